"""Variables in host memory: of strings, and of shapes that change; reads, writes, savers, refusals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tests.cluster.servers import servers_here

pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture
def session() -> Iterator[tb.Session]:
    with tb.Session() as made:
        yield made


def start(session: tb.Session) -> None:
    session.run(tb.global_variables_initializer())


def test_an_assignment_changes_the_shape(session: tb.Session) -> None:
    v = tb.Variable([1.0, 2.0], validate_shape=False, name="v")
    x = tb.placeholder(tb.float32, [None])
    total = tb.reduce_sum(v * v)
    (gradient,) = tb.gradients(total, v)
    grown = v.assign(tb.concat([v, x], 0))
    after = tb.size(v)
    assert (v.shape.ndims, v.value().shape.ndims, v.trainable) == (None, None, False)
    start(session)
    assert session.run([total, v, grown, after], {x: [3.0]})[0] == 5
    assert session.run(v).tolist() == [1, 2, 3]
    found = session.run([grown, v, after, gradient], {x: [4.0, 5.0]})
    assert [each.tolist() for each in found] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 5, [2, 4, 6]]
    assert session.run(tb.assign_sub(v, tb.ones([5]))).tolist() == session.run(v).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidArgumentError, match=r"the variable is \[5\], the value is \[2\].*must agree"):
        session.run(v.assign_add([1.0, 1.0]))
    v.load([[7.0]], session)
    assert v.eval(session).tolist() == [[7]]


def test_an_initial_value_of_unknown_shape(session: tb.Session) -> None:
    kept = tb.boolean_mask([1.0, 2.0, 3.0], [True, False, True])
    v = tb.get_variable("v", initializer=kept, validate_shape=False)
    with tb.variable_scope(tb.get_variable_scope(), reuse=True):
        assert tb.get_variable("v", [2]) is v
    start(session)
    assert session.run(v).tolist() == [1, 3]


def test_strings(session: tb.Session) -> None:
    words = tb.Variable(["a", "b"], name="words")
    blank = tb.get_variable("blank", [2], tb.string)
    with pytest.raises(FailedPreconditionError, match="variables without a value: words"):
        session.run(words)
    assert session.run(tb.report_uninitialized_variables()).tolist() == [b"words", b"blank"]
    start(session)
    assert session.run(tb.report_uninitialized_variables()).size == 0
    assert (words.dtype, words.shape) == (tb.string, [2])
    found = session.run([words, blank, tb.string_join([words, words])])
    assert [each.tolist() for each in found] == [[b"a", b"b"], [b"", b""], [b"aa", b"bb"]]
    x = tb.placeholder(tb.string)
    assert session.run(words.assign(x), {x: ["c", "d"]}).tolist() == [b"c", b"d"]
    with pytest.raises(InvalidArgumentError, match=r"variable is string\[2\], the value is \[3\]"):
        session.run(words.assign(x), {x: ["c", "d", "e"]})
    with pytest.raises(InvalidArgumentError, match=r"the variable is string\[2\], the value is string\[1\]"):
        words.assign(["c"])
    with pytest.raises(InvalidArgumentError):
        words.assign_add(["c", "d"])


def test_reads_and_writes_in_branches_and_loops(session: tb.Session) -> None:
    v = tb.Variable([1.0], validate_shape=False)
    wide = tb.placeholder(tb.bool, [])
    chosen = tb.cond(wide, lambda: v.assign([2.0, 2.0]), lambda: v + 1.0)

    def body(count: tb.Tensor, size: tb.Tensor) -> tuple[tb.Tensor, tb.Tensor]:
        return count + 1, tb.size(v.assign(tb.concat([v, [0.0]], 0)))

    sizes = tb.while_loop(lambda count, size: count < 3, body, [0, 0])
    start(session)
    assert session.run(chosen, {wide: False}).tolist() == [2]
    assert session.run([chosen, v], {wide: True})[1].tolist() == [2, 2]
    assert [int(each) for each in session.run(sizes)] == [3, session.run(v).size] == [3, 5]


def test_savers_write_and_read_them(session: tb.Session, tmp_path: object) -> None:
    v = tb.Variable([1.0], validate_shape=False, name="v")
    words = tb.Variable([["ä", ""]], name="words")
    plain = tb.Variable(3.0, name="plain")
    erase = tb.group(v.assign([0.0]), words.assign([["x", "y"]]), plain.assign(0.0))
    saver = tb.train.Saver()
    start(session)
    session.run(v.assign([4.0, 5.0]))
    path = saver.save(session, f"{tmp_path}/model")
    assert tb.train.list_variables(path) == [("plain", []), ("v", [2]), ("words", [1, 2])]
    assert tb.train.load_variable(path, "words").tolist() == [["ä".encode(), b""]]
    definition = saver.saver_def
    for restore in (
        lambda: saver.restore(session, path),
        lambda: session.run(definition.restore_op_name, {definition.filename_tensor_name: path}),
    ):
        session.run(erase)
        restore()
        found = session.run([v, words, plain])
        assert [each.tolist() for each in found] == [[4, 5], [["ä".encode(), b""]], 3]
    session.run(definition.save_tensor_name, {definition.filename_tensor_name: f"{tmp_path}/shards"})
    assert tb.train.load_variable(f"{tmp_path}/shards", "v").tolist() == [4, 5]


def test_graphs_are_read_again_and_frozen(session: tb.Session) -> None:
    words = tb.Variable(["a"], name="words")
    twice = tb.string_join([words, words], name="twice")
    start(session)
    frozen = tb.graph_util.convert_variables_to_constants(
        session, tb.get_default_graph().as_graph_def(), ["twice"]
    )
    with tb.Graph().as_default(), tb.Session() as other:
        tb.import_graph_def(frozen, name="")
        assert other.run("twice:0").tolist() == [b"aa"]
    with tb.Graph().as_default(), tb.Session() as other:
        tb.train.import_meta_graph(tb.train.export_meta_graph(graph=twice.graph))
        start(other)
        (again,) = tb.global_variables()
        assert other.run([again.assign(["b"]), "twice:0"])[0].tolist() == [b"b"]
        assert other.run("twice:0").tolist() == [b"bb"]
    with pytest.raises(InvalidArgumentError, match="save_model: variable words is of strings"):
        tb.train.save_model("unused", {}, {"twice": twice}, {})


def test_each_session_has_its_own(session: tb.Session) -> None:
    v = tb.Variable([1.0], validate_shape=False)
    start(session)
    with tb.Session() as other, pytest.raises(FailedPreconditionError, match="without a value"):
        other.run(v)


def test_sessions_of_a_cluster_share_them() -> None:
    with servers_here(ps=1, worker=1) as servers:
        with tb.device(tb.train.replica_device_setter(ps_tasks=1)):
            v = tb.Variable([1.0], validate_shape=False, name="v")
            words = tb.Variable(["a"], name="words")
        grown = v.assign(tb.concat([v, [2.0]], 0))
        assert v.device == "/job:ps/task:0"
        with tb.Session(servers["worker0"].target) as one, tb.Session(servers["ps0"].target) as two:
            start(one)
            one.run(grown)
            assert two.run(tb.identity(v)).tolist() == [1, 2]
            found = two.run([v, words])
            assert [each.tolist() for each in found] == [[1, 2], [b"a"]]
            v.load([3.0], two)
            assert one.run(grown).tolist() == [3, 2]


def test_what_they_cannot_be() -> None:
    with pytest.raises(InvalidArgumentError, match="expected no combine, got 'first'"):
        tb.Variable(["a"], combine="first")
    with tb.container("shared"), pytest.raises(InvalidArgumentError, match="expected no container"):
        tb.Variable(["a"])
    v = tb.Variable([1.0], validate_shape=False, name="v")
    with pytest.raises(InvalidArgumentError, match=r"ScatterAdd: variable v is of strings.*expected assign"):
        tb.scatter_add(v, [0], [1.0])
    with pytest.raises(InvalidArgumentError, match="the shape of v:0 may change, and it is not trained"):
        tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(v * v), var_list=[v])
    with pytest.raises(InvalidArgumentError, match="v:0 has the shape <unknown rank>, expected a fully"):
        tb.train.ExponentialMovingAverage(0.9).apply([v])
    with pytest.raises(InvalidArgumentError, match="expected no partitioner with validate_shape=False"):
        tb.get_variable("w", [4], partitioner=tb.fixed_size_partitioner(2), validate_shape=False)


def test_replicas_cannot_have_them() -> None:
    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"])

    def step(x: tb.Tensor) -> tb.Tensor:
        v = tb.Variable([1.0], validate_shape=False, name="v")
        return tb.reduce_sum(v) + tb.reduce_sum(x)

    refused = pytest.raises(InvalidArgumentError, match="variable v is of strings, or its shape may change")
    with replicator.context(), refused:
        replicator.run(step, lambda: np.ones((4, 2), np.float32))
