"""Named containers: variables shared by name between sessions, under concurrent runs, until reset."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from tensorbow.specs import TensorSpec

OPENED: list[tb.Session] = []


@pytest.fixture(autouse=True)
def clean():
    yield
    while OPENED:
        OPENED.pop().close()
    tb.Session.reset()


class Program:
    """A counter in a container, in a graph and session of its own."""

    def __init__(self, container="shared", shape=(3,), device="/cpu:0", **options):
        self.graph = tb.Graph()
        with self.graph.as_default(), tb.container(container):
            self.own = None
            self.v = tb.Variable(np.zeros(shape, np.float64), name="v", **options)
            self.add = self.v.assign_add(np.ones(shape))
        with self.graph.as_default():
            self.private = tb.Variable(5.0, name="private")
        self.session = tb.Session(graph=self.graph, device=device)
        OPENED.append(self.session)


def test_two_sessions_see_one_variable():
    a, b = Program(), Program()
    a.session.run([a.v.initializer, a.private.initializer])
    a.session.run(a.add)
    np.testing.assert_array_equal(b.session.run(b.v), [1, 1, 1])
    np.testing.assert_array_equal(b.session.run(b.add), [2, 2, 2])
    np.testing.assert_array_equal(a.session.run(a.v), [2, 2, 2])
    b.v.load(np.full(3, 7.0), b.session)
    np.testing.assert_array_equal(a.session.run(a.v * 2), [14, 14, 14])
    with pytest.raises(FailedPreconditionError, match="private"):
        b.session.run(b.private)


def test_it_outlives_the_session_that_made_it():
    a = Program()
    a.session.run(a.v.initializer)
    a.session.run(a.add)
    a.session.close()
    b = Program()
    np.testing.assert_array_equal(b.session.run(b.v), [1, 1, 1])


def test_containers_devices_and_the_own_one_are_apart():
    programs = [Program("one"), Program("two"), Program(""), Program("one", device="/cpu:1")]
    programs[0].session.run(programs[0].v.initializer)
    for other in programs[1:]:
        with pytest.raises(FailedPreconditionError, match="without a value: v"):
            other.session.run(other.v)


def test_reset_by_name():
    a, b = Program("one"), Program("two")
    for program in (a, b):
        program.session.run(program.v.initializer)
    tb.Session.reset("", containers=["one"])
    with pytest.raises(FailedPreconditionError, match="without a value: v"):
        a.session.run(a.add)
    b.session.run(b.add)
    tb.Session.reset("")
    with pytest.raises(FailedPreconditionError):
        b.session.run(b.v)
    a.session.run(a.v.initializer)
    np.testing.assert_array_equal(a.session.run(a.add), [1, 1, 1])
    with pytest.raises(NotFoundError, match=r"there is no container 'three'; there are: .*one"):
        tb.Session.reset("", ["one", "three"])
    np.testing.assert_array_equal(a.session.run(a.v), [1, 1, 1])
    with pytest.raises(InvalidArgumentError, match="target"):
        tb.Session.reset("tensorbow")


def test_another_shape_or_dtype_is_refused():
    a, b = Program(), Program(shape=(2,))
    a.session.run(a.v.initializer)
    for action in (lambda: b.session.run(b.v), lambda: b.session.run(b.v.initializer)):
        clash = r"v of container 'shared' is float64\[3\].*float64\[2\]"
        with pytest.raises(InvalidArgumentError, match=clash):
            action()
    np.testing.assert_array_equal(a.session.run(a.v), [0, 0, 0])


@pytest.mark.slow
def test_concurrent_sessions_lose_no_update_and_see_whole_states():
    programs = [Program(shape=(4000,)) for _ in range(4)]
    programs[0].session.run(programs[0].v.initializer)

    def work(program):
        for _ in range(40):
            program.session.run(program.add.op)
            value = program.session.run(program.v)
            assert (value == value[0]).all()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, programs * 2))
    np.testing.assert_array_equal(programs[3].session.run(programs[3].v), np.full(4000, 320.0))


def test_two_containers_in_one_step_and_in_opposite_orders():
    def make(first, second):
        graph = tb.Graph()
        with graph.as_default():
            with tb.container(first):
                a = tb.Variable(np.zeros(10), name=first)
            with tb.container(second):
                b = tb.Variable(np.zeros(10), name=second)
            both = tb.group(a.assign_add(np.ones(10)), b.assign_add(np.ones(10)))
            OPENED.append(tb.Session(graph=graph))
            return OPENED[-1], both, (a, b)

    sessions = [make("left", "right"), make("right", "left")]
    session, _, variables = sessions[0]
    session.run([v.initializer for v in variables])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda s: [s[0].run(s[1]) for _ in range(60)], sessions))
    assert [session.run(v)[0] for v in variables] == [120, 120]


def test_a_failing_step_leaves_the_shared_value():
    def fail(call):
        if call.inputs[0][0] > 0:
            raise ValueError("no")
        call.outputs[0][...] = call.inputs[0]

    op = tb.define_op(
        "TestContainersFail",
        spec=lambda inputs, attrs: TensorSpec(inputs[0].shape, inputs[0].dtype),
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("x",),
        kernel=fail,
        replace=True,
    )
    a, b = Program(), Program()
    with a.graph.as_default():
        added = a.v.assign_add(np.ones(3))
        with tb.control_dependencies([added]):
            late = op(added, name="late")
    a.session.run(a.v.initializer)
    with pytest.raises(tb.TensorBowError, match="no"):
        a.session.run(late)
    np.testing.assert_array_equal(a.session.run(a.v), [0, 0, 0])
    np.testing.assert_array_equal(b.session.run(b.v), [0, 0, 0])


def test_the_graph_may_grow_and_graph_defs_keep_containers():
    a = Program()
    a.session.run(a.v.initializer)
    with a.graph.as_default(), tb.container("shared"):
        w = tb.Variable(np.ones(2), name="w")
    a.session.run(w.initializer)
    copy = tb.Graph()
    with copy.as_default():
        tb.import_graph_def(tb.GraphDef.from_json(a.graph.as_graph_def().to_json()), name="")
        with tb.Session() as session:
            np.testing.assert_array_equal(session.run("w:0"), [1, 1])
            session.run(tb.global_variables()[0].assign_add(np.ones(3)))
    np.testing.assert_array_equal(a.session.run(a.v), [1, 1, 1])


def test_replicas_refuse_what_they_would_not_share():
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        with tb.container("shared"):
            w = tb.Variable(tb.ones([2, 1]), name="w")
        train = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_mean(tb.matmul(x, w)))
    session = tb.Session("tensorbow", graph=graph)
    OPENED.append(session)
    session.run(w.initializer)
    with pytest.raises(InvalidArgumentError, match=r"variable w is in container 'shared'.*test_session_cont"):
        session.run(train, {x: np.ones((4, 2))})
    np.testing.assert_array_equal(session.run(w), [[1], [1]])


def test_threads_of_one_session_and_a_reset_among_them():
    a, b = Program(shape=(500,)), Program(shape=(500,))
    a.session.run(a.v.initializer)

    def work(program):
        lost = 0
        for step in range(60):
            try:
                program.session.run(program.add.op)
                value = program.session.run(program.v)
                assert (value == value[0]).all()
            except FailedPreconditionError:
                lost += 1
            if program is b and step % 20 == 0:
                tb.Session.reset("", ["shared"])
                program.session.run(program.v.initializer)
        return lost

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [a, b] * 3))
    assert (a.session.run(a.v) == b.session.run(b.v)).all()


def test_a_name_no_container_can_have():
    with pytest.raises(InvalidArgumentError, match="not a valid scope name"), tb.container("a b"):
        pass
