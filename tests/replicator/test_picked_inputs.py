"""Steps whose batches are rows of arrays in memory, picked by devices: the bits of rows given as arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.scheduler_rig.running import same_bits

ROWS, BATCH = 50, 6
draw = np.random.default_rng(0)
X = draw.normal(size=(ROWS, 7)).astype(np.float32)
Y = draw.integers(0, 4, ROWS)
ARRAYS = tb.data.Dataset.from_tensor_slices((X, Y))


def trained(input_fn, steps=14, devices=("/cpu:0",), replicas=2, restores=None, saves=None, **options):
    """Losses, z, and whether devices keep the arrays."""
    own = {name: options.pop(name) for name in ("num_gpus_per_replica",) if name in options}
    with tb.Graph().as_default(), tb.MultiGpuReplicator(list(devices), replicas, **own) as repl:
        with repl.context():
            tb.set_random_seed(0)
            optimizer = repl.wrap_optimizer(tb.train.MomentumOptimizer(0.1, 0.9))

        def step(x, y, *others):
            logits = tb.layers.dense(x, 4) * 1.5
            losses = tb.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            with tb.control_dependencies([optimizer.minimize(tb.reduce_mean(losses))]):
                return losses * 2.0, tb.identity(y), [tb.identity(each) for each in others]

        loop = repl.train(step, input_fn, None, **options)
        repl.init()
        kept = repl._running.stepper.engine.learners.dataset is not None
        if restores is not None:
            repl.restore(restores)
        results = [*itertools.islice(loop, steps)]
        if saves is not None:
            repl.save(saves)
        loop.close()
        return results, repl.central_values(), kept


def as_given(dataset):
    """The same elements, given as arrays."""
    return dataset.map(lambda *arrays: arrays)


def pipeline(name):
    return lambda replica_id: PIPELINES[name](replica_id)


def assert_same(input_fn, steps=14, kept=True, **options):
    expected, z, by_hand = trained(lambda replica_id: as_given(input_fn(replica_id)), steps, **options)
    results, values, is_kept = trained(input_fn, steps, **options)
    assert (by_hand, is_kept) == (False, kept)
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected, strict=True):
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            np.testing.assert_array_equal(one, other)
    assert same_bits(values, z)


ONE_FOR_ALL = ARRAYS.shuffle(30, seed=3).batch(BATCH, True).repeat(5)
PIPELINES = {
    "whole shuffle": lambda i: ARRAYS.shuffle(ROWS, seed=i).batch(BATCH, drop_remainder=True).repeat(),
    "window, repeated before": lambda i: ARRAYS.repeat().shuffle(9, seed=i).batch(BATCH),
    "shards": lambda i: ARRAYS.shard(2, i).shuffle(5, seed=1).batch(BATCH, drop_remainder=True).repeat(),
    "batches shuffled, skipped and taken": lambda i: ARRAYS.batch(BATCH).take(8).shuffle(4, seed=i).skip(1),
    "one for all": lambda i: ONE_FOR_ALL,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_those_of_the_pipeline(name):
    assert_same(pipeline(name), steps=40)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"devices": ("/cpu:0", "/cpu:1"), "steps_per_launch": 4},
        {"devices": ("/cpu:0", "/cpu:1"), "replicas": 1, "num_gpus_per_replica": 2, "kept": False},
        {"data_on_device": "never", "kept": False},
        {"data_on_device": "always", "steps_per_launch": 1, "prefetch": 0},
    ],
)
def test_on_several_devices_and_by_several_ways(options):
    assert_same(pipeline("whole shuffle"), **options)


@pytest.mark.usefixtures("reference_kernels")
def test_by_reference_kernels():
    assert_same(pipeline("whole shuffle"))


@pytest.mark.parametrize("smaller", ["drop", "pad"])
def test_global_batches_are_split(smaller):
    batches = ARRAYS.shuffle(ROWS, seed=1).batch(2 * BATCH).repeat()
    options = {"input_replication": tb.PER_WORKER, "smaller_batch": smaller}
    expected, z, _ = trained(lambda: as_given(batches), 9, **options)
    results, values, kept = trained(lambda: batches, 9, **options)
    assert kept
    assert [each[1].tolist() for each in results] == [each[1].tolist() for each in expected]
    assert same_bits(values, z)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_arrays_of_any_dtype_and_layout_in_any_nest(dtype):
    other = (draw.integers(0, 2, (3, ROWS, 2)) * 3).astype(dtype).transpose(1, 0, 2)
    source = tb.data.Dataset.from_tensor_slices({"x": X[:, ::-1], "others": other, "y": Y})
    batches = source.shuffle(ROWS, seed=2).batch(BATCH, True).repeat()

    def step(inputs):
        return tb.identity(inputs["x"]), tb.identity(inputs["others"])

    with tb.Graph().as_default(), tb.MultiGpuReplicator(["/cpu:0"], 2) as repl:
        rows = itertools.islice(repl.train(step, lambda: batches), 12)
        for (x, others), batch in zip(rows, batches, strict=False):
            assert others.dtype == dtype
            for replica in range(2):
                np.testing.assert_array_equal(x[replica], batch["x"])
                np.testing.assert_array_equal(others[replica], batch["others"])


def test_a_file_has_the_position_in_the_pipelines(tmp_path):
    input_fn = pipeline("window, repeated before")
    expected, z, _ = trained(input_fn, 30)
    trained(input_fn, 17, saves=tmp_path / "state")
    results, values, _ = trained(input_fn, 13, restores=tmp_path / "state")
    assert [each[1].tolist() for each in results] == [each[1].tolist() for each in expected[17:]]
    assert same_bits(values, z)


@pytest.mark.slow
def test_what_devices_do_not_keep():
    """More arrays than there are places for, others for each replica, and smaller batches with own steps."""
    many = tb.data.Dataset.from_tensor_slices((X, Y, *[X] * 7))
    copies = [tb.data.Dataset.from_tensor_slices((X.copy(), Y)) for _ in range(2)]
    swapped = X[:, ::-1].astype(">f4")
    for input_fn, options in (
        (lambda replica_id: many.batch(BATCH), {}),
        (lambda replica_id: copies[replica_id].batch(BATCH), {}),
        (lambda replica_id: tb.data.Dataset.from_tensor_slices((swapped, Y)).batch(BATCH), {}),
        (lambda replica_id: ARRAYS.batch(BATCH), {"smaller_batch": "compile"}),
    ):
        assert_same(input_fn, steps=4, kept=False, **options)


def test_a_smaller_last_batch_is_refused_and_an_end_is_one():
    results, _, kept = trained(
        lambda replica_id: ARRAYS.skip(replica_id).batch(BATCH, drop_remainder=True), 20
    )
    assert (len(results), kept) == (ROWS // BATCH, True)
    with pytest.raises(InvalidArgumentError, match=r"batch 8: expected .*\[6\] .*got .*\[2\]; for"):
        trained(lambda replica_id: ARRAYS.skip(replica_id).batch(BATCH), 20)
