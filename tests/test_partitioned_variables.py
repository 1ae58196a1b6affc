"""Variables in parts: partitioners, values, gradients, checkpoints, lookups, devices."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("graph")

WHOLE = np.arange(14, dtype=np.float32).reshape(7, 2)


def cut(count=3, name="w", **options):
    return tb.get_variable(name, initializer=WHOLE, partitioner=tb.fixed_size_partitioner(count), **options)


@pytest.mark.parametrize(
    ("partitioner", "counts"),
    [
        (tb.fixed_size_partitioner(3), [3, 1]),
        (tb.fixed_size_partitioner(99, axis=1), [1, 4]),
        # 10 rows of 16 bytes: 2 rows are the most in 47 bytes
        (tb.variable_axis_size_partitioner(47), [5, 1]),
        (tb.variable_axis_size_partitioner(47, max_shards=3), [3, 1]),
        (tb.variable_axis_size_partitioner(1, axis=1), [1, 4]),
        (tb.min_max_variable_partitioner(8, min_slice_size=50), [4, 1]),
        (tb.min_max_variable_partitioner(3, min_slice_size=50), [3, 1]),
        (tb.min_max_variable_partitioner(8), [1, 1]),
    ],
)
def test_partitioners_give_tensorflows_numbers_of_parts(partitioner, counts):
    w = tb.get_variable("w", [10, 4], partitioner=partitioner)
    assert partitioner(tb.TensorShape([10, 4]), tb.float32) == counts
    assert len(w) == max(counts)
    assert w.shape == [10, 4]
    assert [part.op.name for part in w] == [f"w/part_{number}" for number in range(len(w))]


def test_a_partitioned_variable_computes_and_trains_as_a_whole_one():
    """Parts of 3, 2 and 2 rows beside one variable: the same values after reads, writes and steps."""
    parts, plain = cut(), tb.get_variable("plain", initializer=WHOLE)
    x = np.linspace(-1, 1, 21, dtype=np.float32).reshape(3, 7)
    optimizer = tb.train.MomentumOptimizer(0.1, 0.9)
    updates = [optimizer.minimize(tb.reduce_mean(tb.square(tb.matmul(x, w) - 1.0))) for w in (parts, plain)]
    changed = [w.assign_add(tb.ones([7, 2]) * 0.5) for w in (parts, plain)]
    assert [part.shape.as_list() for part in parts] == [[3, 2], [2, 2], [2, 2]]
    with tb.Session() as session:
        session.run([parts.initializer, tb.global_variables_initializer()])
        np.testing.assert_array_equal(session.run(2.0 * parts - parts[1]), WHOLE * 2 - WHOLE[1])
        for _ in range(3):
            session.run(updates)
        np.testing.assert_allclose(*session.run([parts.as_tensor(), plain]), rtol=1e-5)
        np.testing.assert_allclose(*session.run(changed), rtol=1e-5)
        session.run([parts.assign(WHOLE * 3), parts.assign_sub(WHOLE)])
        np.testing.assert_array_equal(session.run(parts.as_tensor()), WHOLE * 2)
    with pytest.raises(InvalidArgumentError, match=r"assign: expected the shape \[7, 2\] of w, got \[2, 2\]"):
        parts.assign(np.ones((2, 2)))


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_lookups_gather_rows_of_the_parts(strategy):
    table, ids = cut(), np.array([6, 0, 3, 3, 2])
    rows = tb.nn.embedding_lookup(table, ids, strategy)
    starts = np.cumsum([0, 3, 2])
    places = ids if strategy == "div" else starts[ids % 3] + ids // 3
    gradients = tb.gradients(tb.reduce_sum(rows), [*table])
    assert all(isinstance(each, tb.IndexedSlices) for each in gradients)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        np.testing.assert_array_equal(session.run(rows), WHOLE[places])


@pytest.mark.slow
def test_initialisers_know_the_whole():
    """Fans are of the whole; a seed, and orthogonal matrices, give slices of the whole value."""
    third = tb.fixed_size_partitioner(3)
    told = []

    def own(shape, dtype, partition_info):
        told.append((shape.as_list(), partition_info.full_shape, partition_info.var_offset))
        return tb.zeros(shape, dtype)

    tb.get_variable("own", [7, 2], initializer=own, partitioner=third)
    assert told == [([3, 2], (7, 2), (0, 0)), ([2, 2], (7, 2), (3, 0)), ([2, 2], (7, 2), (5, 0))]
    pairs = []
    starts = {"glorot": tb.initializers.glorot_uniform(seed=3), "q": tb.initializers.orthogonal(seed=4)}
    for name, start in starts.items():
        parts = tb.get_variable(name, [60, 5], initializer=start, partitioner=third)
        pairs.append((parts.as_tensor(), tb.get_variable(f"{name}_whole", [60, 5], initializer=start)))
    free = tb.get_variable("free", [60, 5], partitioner=third)
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        for parts, whole in session.run(pairs):
            np.testing.assert_array_equal(parts, whole)
        first, second, _ = session.run([*free])
    assert not np.array_equal(first, second)
    limit = np.sqrt(6 / 65)
    assert 0.9 * limit < abs(first).max() <= limit < np.sqrt(6 / 25)


def test_a_checkpoint_fits_any_number_of_parts(tmp_path):
    """Weights and momentum of three parts, restored into one variable, and from there into two parts."""

    def program(partitioner):
        with tb.Graph().as_default():
            w = tb.get_variable("w", initializer=WHOLE, partitioner=partitioner)
            update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(tb.reduce_sum(tb.square(w)))
            value = tb.convert_to_tensor(w) if partitioner else w
            return tb.Session(), update, value, tb.train.Saver(), tb.global_variables_initializer()

    session, update, w, saver, init = program(tb.fixed_size_partitioner(3))
    session.run(init)
    session.run(update)
    path = saver.save(session, tmp_path / "three")
    assert sorted(tb.train.list_variables(path)) == [("w", [7, 2]), ("w/Momentum", [7, 2])]
    for count in (None, 2):
        other, step, value, loader, _ = program(count and tb.fixed_size_partitioner(count))
        loader.restore(other, path)
        np.testing.assert_array_equal(other.run(value), session.run(w))
        path = loader.save(other, tmp_path / f"from {count}")
        session.run(update)
        other.run(step)
        np.testing.assert_array_equal(other.run(value), session.run(w))
        saver.restore(session, path)


def test_savers_of_parts_and_their_refusals(tmp_path):
    w = cut()
    with tb.Session() as session:
        session.run(tb.global_variables_initializer())
        path = tb.train.Saver({"other": w}).save(session, tmp_path / "one")
    assert tb.train.list_variables(path) == [("other", [7, 2])]
    with pytest.raises(InvalidArgumentError, match="expected all parts of w, 14 elements, got parts with 6"):
        tb.train.Saver([w.parts[0]])
    loaded = tb.Graph()
    with loaded.as_default():
        tb.import_graph_def(w.graph.as_graph_def(), name="")
        infos = [v.save_slice_info for v in tb.global_variables()]
    assert infos == [part.save_slice_info for part in w]


def test_sharing_needs_the_partitioner_that_it_was_made_with():
    partitioner = tb.fixed_size_partitioner(2)
    with tb.variable_scope("a", partitioner=partitioner, regularizer=tb.nn.l2_loss) as scope:
        w = tb.get_variable("w", [3, 2])
        assert isinstance(tb.get_variable("scalar", []), tb.Variable)
        tb.layers.batch_normalization(tb.layers.dense(tb.ones([2, 3]), 4))
    assert len(tb.get_collection(tb.GraphKeys.REGULARIZATION_LOSSES, "a/w/")) == 2
    scope.reuse_variables()
    with tb.variable_scope(scope):
        assert tb.get_variable("w", [3, 2]) is w
        with pytest.raises(InvalidArgumentError, match="a/w has the shape"):
            tb.get_variable("w", [3, 3])
        with pytest.raises(InvalidArgumentError, match="2 parts along axis 0, and the partitioner gives 1"):
            tb.get_variable("w", partitioner=tb.fixed_size_partitioner(1))
    tb.get_variable("plain", [3])
    for name, given, message in (
        ("a/w", None, "expected a partitioner for a/w, which is in 2 parts"),
        ("plain", partitioner, "expected no partitioner for plain"),
    ):
        with tb.variable_scope("", reuse=True), pytest.raises(InvalidArgumentError, match=message):
            tb.get_variable(name, partitioner=given)


@pytest.mark.parametrize("counts", [[2], [2, 2], [8, 1], [0, 1], "ab", [1.0, 1]])
def test_numbers_of_parts_that_do_not_fit_are_refused(counts):
    with pytest.raises(InvalidArgumentError, match="result of the partitioner of w to be 2 numbers"):
        tb.get_variable("w", [7, 2], partitioner=lambda shape, dtype: counts)
    with pytest.raises(InvalidArgumentError, match="expected axis to be one of the 1"):
        tb.get_variable("v", [7], partitioner=tb.fixed_size_partitioner(2, axis=1))


def test_parts_take_turns_on_devices():
    with tb.device(tb.train.replica_device_setter(ps_tasks=2)):
        w = cut()
    assert [part.device for part in w] == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]
    placed = []
    for number in range(2):
        with tb.device(f"/cpu:{number}"):
            placed.append(cut(2, f"v{number}"))
    total = tb.reduce_sum(placed[0] + placed[1])
    with tb.Session(devices=["/cpu:0", "/cpu:1"]) as session:
        session.run([each.initializer for each in placed])
        assert session.run(total) == 2 * WHOLE.sum()
