"""Loops and branches whose ops are on several tasks (white paper, section 4.4)."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorbow as tb
from tensorbow.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from tests.cluster.servers import cluster_of, end, servers_here, start_process
from tests.executor.random_programs import NAMES, in_graph, in_python, programs

pytestmark = pytest.mark.usefixtures("graph")

LIMITED = tb.ConfigProto(operation_timeout_in_ms=60_000)  # an error says what waits for ever
HOME, FAR, PS = "/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"


@pytest.fixture
def servers():
    with servers_here(ps=1, worker=2) as servers:
        yield servers


def compare(servers, fetches, *feeds, initialise=(), at="worker0"):
    """Runs a step on the tasks and in one process, with the same results."""
    with (
        tb.Session(servers[at].target, config=LIMITED) as session,
        tb.Session(allow_soft_placement=True) as plain,
    ):
        for each in (session, plain):
            each.run(list(initialise))
        for feed in feeds:
            got, expected = session.run(fetches, feed), plain.run(fetches, feed)
            for number, (one, other) in enumerate(zip(got, expected, strict=True)):
                np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=f"{fetches[number]} {feed}")


@contextmanager
def once(holds, call):
    """Calls a function from another thread as soon as something holds, as that a task has sent a value."""

    def watch():
        while not holds():
            time.sleep(0.001)
        call()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    thread.join(60)


def is_dynamic(session):
    return any(step.is_dynamic for step in session._steps.values())


def test_a_loop_has_its_body_on_another_task(servers):
    x = tb.placeholder(tb.float32, [3], "x")

    def body(i, a):
        with tb.device(FAR):
            a = a * 1.5 + 1.0
        return i + 1, a

    i, a = tb.while_loop(lambda i, a: tb.reduce_sum(a) < 90.0, body, [0, x])
    with tb.Session(servers["worker0"].target) as session, tb.Session(allow_soft_placement=True) as plain:
        for value in ([1.0, 2.0, 3.0], [100.0, 0.0, 0.0], [-1.0, 0.5, 2.0]):
            got, expected = session.run([i, a], {x: value}), plain.run([i, a], {x: value})
            assert got[0] == expected[0]
            np.testing.assert_array_equal(got[1], expected[1])
        assert is_dynamic(session)


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("reads", ["the constant", "what is made of it"])
def test_a_constant_of_an_imported_loop_waits_for_its_iteration(servers, reads, compiles):
    """TensorFlow's graphs give the constants in a loop's body a control input there."""
    with tb.Graph().as_default() as graph:
        x = tb.placeholder(tb.float32, [3], "x")

        def body(a):
            with tb.device(FAR), tb.control_dependencies([a]):
                c = tb.constant(1.5, name="c")
            with tb.device(FAR):
                return a * c if reads == "the constant" else a * tb.reshape(c * 2.0, [1])

        found = tb.while_loop(lambda a: tb.reduce_sum(a) < 90.0, body, [x], name="loop")
        made = graph.as_graph_def()
    for node in made.node:
        if node.name == "loop/c":
            assert node.op == "Identity"
            node.op, node.context, node.attr = "Const", "", {"value": np.array(1.5, np.float32)}
            node.input = [item for item in node.input if item.startswith("^")]
            assert node.input
    (found,) = tb.import_graph_def(made, name="", return_elements=[found.name])
    config = tb.ConfigProto(compiles_loops=compiles, allow_soft_placement=True)
    with (
        tb.Session(servers["worker0"].target, config=LIMITED) as session,
        tb.Session(config=config) as plain,
    ):
        expected = plain.run(found, {"x:0": [1.0, 2.0, 3.0]})
        np.testing.assert_array_equal(session.run(found, {"x:0": [1.0, 2.0, 3.0]}), expected)
        assert is_dynamic(session)
    factor = 1.5 if reads == "the constant" else 3.0
    value = np.float32([1.0, 2.0, 3.0])
    while value.sum() < 90.0:
        value *= np.float32(factor)
    np.testing.assert_array_equal(expected, value)


def test_loops_with_their_condition_and_variables_elsewhere(servers):
    x = tb.placeholder(tb.float32, [], "x")

    def condition(i, a, b):
        with tb.device(FAR):
            return tb.logical_and(a + b < 100.0, i < 50)

    def body(i, a, b):
        with tb.device(PS):
            b = b + tb.cast(i, tb.float32)
        with tb.device(FAR):
            a = a * 2.0
        return i + 1, a + b, b

    with tb.device(PS):
        found = tb.while_loop(condition, body, [0, x, x * 0.5])
    compare(servers, found, {x: 1.0}, {x: 200.0}, {x: -3.0})


def test_branches_on_different_tasks(servers):
    x = tb.placeholder(tb.float32, [2], "x")
    with tb.device(PS):
        w = tb.Variable(np.float32([2.0, -3.0]), name="w")

    def true():
        with tb.device(FAR):
            return tb.gather(x, tb.cast(tb.where(x > 0.0)[:, 0], tb.int32)) * 2.0

    def false():
        with tb.device(PS):
            return x * w

    def last():
        with tb.device(PS):
            return tb.reduce_sum(w * w) + tb.reduce_sum(x)

    chosen = tb.cond(tb.reduce_sum(x) > 0.0, true, false)
    with tb.device(FAR):
        after = tb.reduce_sum(chosen)
        nested = tb.cond(
            after > 5.0, lambda: tb.cond(x[0] > x[1], last, lambda: after * 3.0), lambda: after - 1.0
        )
    compare(
        servers,
        [chosen, after, nested, *tb.gradients([after, nested], [x, w])],
        {x: [1.0, 2.0]},
        {x: [-1.0, -2.0]},
        {x: [4.0, -2.0]},
        {x: [4.0, -3.9]},
        {x: [1.0, 9.0]},
        initialise=[w.initializer],
    )


def test_a_gradient_that_comes_back_from_another_task_does_not_hold_its_branch_up(servers):
    """A branch and its gradient are no sequence: the gradient waits for what is made of the branch."""
    x, y = tb.placeholder(tb.float64, [], "x"), tb.placeholder(tb.float64, [], "y")
    with tb.device(HOME):
        rows = tb.where(tb.stack([x, y]) > -9.0)
        chosen = tb.cond(y > 0.25, lambda: x * 0.5 + x, lambda: tb.sin(x + x) * 0.3)
    with tb.device(PS):
        total = y * 0.5 + chosen * chosen
    compare(servers, [total, rows, *tb.gradients(total, [x, y])], {x: 0.7, y: 0.0}, {x: 0.7, y: 1.0})


def test_a_branch_on_one_task_with_its_predicate_on_another(servers):
    x = tb.placeholder(tb.float32, [2], "x")
    with tb.device(PS):
        pred = tb.reduce_sum(x) > 0.0
    with tb.device(FAR):
        chosen = tb.cond(pred, lambda: x * 2.0, lambda: x - 1.0)
        kept = tb.boolean_mask(chosen, chosen > 0.0)
    compare(servers, [chosen, kept, *tb.gradients(chosen, [x])], {x: [1.0, 2.0]}, {x: [-1.0, -2.0]})


def test_gradients_through_loops_over_tasks(servers):
    """What the gradient needs is kept at the task of the forward op."""
    x = tb.placeholder(tb.float64, [2], "x")
    with tb.device(PS):
        w = tb.Variable(np.array([1.5, 0.5]), name="w")

    def body(a):
        with tb.device(FAR):
            b = tb.sin(a) * w
        with tb.device(PS):
            c = tb.tanh(b + w) * a
        return c + a

    until = tb.while_loop(lambda a: tb.reduce_sum(a) < 20.0, body, [x])
    with tb.device(FAR):
        loss = tb.reduce_sum(until * until)
    slopes = tb.gradients(loss, [x, w])
    curve = tb.gradients(tb.reduce_sum(slopes[0]), [w])
    compare(
        servers,
        [until, loss, *slopes, *curve],
        {x: [1.0, 2.0]},
        {x: [30.0, 2.0]},
        {x: [0.5, 0.75]},
        initialise=[w.initializer],
    )
    pushes = [op for op in tb.get_default_graph().get_operations() if op.type == "StackPush"]
    assert {PS, FAR} <= {op.device for op in pushes}


def nest_of_loops(x, w, at):
    """Loops in loops, conds in loops and loops in conds; `at` gives the device of each op."""

    def inner(j, b):
        with tb.device(at()):
            b = b * 0.5 + w
        with tb.device(at()):
            return j + 1, tb.minimum(b, 9.0)

    def rarely(a):
        with tb.device(at()):
            return tb.while_loop(lambda b: tb.reduce_max(b) < 4.0, lambda b: inner(0, b * 2.0)[1], [a])

    def body(i, a):
        with tb.device(at()):
            odd = tb.equal(i % 2, 1)
        with tb.device(at()):
            limit = i + 1
        with tb.device(at()):
            _, b = tb.while_loop(lambda j, b: j < limit, inner, [0, a])
        with tb.device(at()):
            a = tb.cond(odd, lambda: rarely(b), lambda: b - 1.0)
        with tb.device(at()):
            return i + 1, a

    with tb.device(at()):
        going = tb.reduce_sum(x) * 0.0 + 200.0
    with tb.device(at()):
        return tb.while_loop(
            lambda i, a: tb.logical_and(i < 4, tb.reduce_sum(a) < going), body, [0, x], parallel_iterations=3
        )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(2)
def test_nests_of_loops_and_branches_anywhere(servers, seed):
    draw = random.Random(seed)
    x = tb.placeholder(tb.float64, [2], "x")
    with tb.device(PS):
        w = tb.Variable(np.array([1.0, 0.25]), name="w")
    found = nest_of_loops(x, w, lambda: draw.choice([HOME, FAR, PS]))
    slopes = tb.gradients(found[1], [x, w])
    compare(
        servers,
        [*found, *slopes],
        {x: [1.0, 2.0]},
        {x: [300.0, 1.0]},
        {x: [-2.0, 0.5]},
        initialise=[w.initializer],
        at=draw.choice(["worker0", "worker1", "ps0"]),
    )


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(programs, st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.randoms(use_true_random=False))
def test_random_programs_scattered_over_tasks(servers, program, values, draw):
    """Values and slopes are those of one process, wherever each statement is."""
    with tb.Graph().as_default() as graph:
        x = [tb.placeholder(tb.float64, []) for _ in NAMES]
        results = in_graph(program, x, 4, lambda: tb.device(draw.choice([HOME, FAR, PS])))
        results = [tb.identity(each) for each in results]
        slopes = [tb.convert_to_tensor(g) for g in tb.gradients(results, x) if g is not None]
        feed = dict(zip(x, values, strict=True))
        with (
            tb.Session(servers["worker0"].target, graph, LIMITED) as session,
            tb.Session(graph=graph, allow_soft_placement=True) as plain,
        ):
            got, expected = session.run([results, slopes], feed), plain.run([results, slopes], feed)
    np.testing.assert_allclose(got[0], in_python(program, values), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-9, atol=1e-12)


def test_a_loop_updates_variables_of_another_task_in_order(servers):
    with tb.device(PS):
        count = tb.Variable(np.float32(0), name="count")
        queue = tb.FIFOQueue(8, [tb.float32], [[]], name="q")
        put = queue.enqueue_many([tb.placeholder(tb.float32, [None], "many")])
    with tb.device(HOME):
        x = tb.placeholder(tb.float32, [], "x")
        total = tb.while_loop(lambda a: a < 100.0, lambda a: a + tb.assign_add(count, a), [x])
        drawn = tb.while_loop(lambda a: a < 10.0, lambda a: a * 2.0 + queue.dequeue(), [x])
    with tb.Session(servers["worker0"].target) as session:
        session.run(count.initializer)
        a = expected = 1.0
        count_is = 0.0
        while expected < 100.0:
            count_is += expected
            expected += count_is
        assert session.run(total, {x: a}) == expected
        assert session.run(count) == count_is
        session.run(put, {"many:0": [1.0, 2.0, 3.0, 4.0]})
        assert session.run(drawn, {x: 1.0}) == (1 * 2 + 1) * 2 * 2 + 2 * 2 + 3
        assert session.run(queue.size()) == 1


def test_arrays_of_loops_stay_on_one_task(servers):
    x = tb.placeholder(tb.float32, [4, 2], "x")

    def scaled(row):
        with tb.device(FAR):
            return tb.reduce_sum(row * row) + tb.cast(tb.shape(tb.where(row > 0.0))[0], tb.float32)

    def added(before, row):
        with tb.device(PS):
            return before * 0.5 + tb.cast(tb.where(row > -9.0)[1, 0], tb.float32) * row

    with tb.device(HOME):
        rows = tb.map_fn(scaled, x)
        scanned = tb.scan(added, x, tb.zeros([2]))
    compare(
        servers,
        [rows, scanned, *tb.gradients([rows, scanned], [x])],
        {x: np.arange(-3.0, 5.0).reshape(4, 2)},
    )


def test_random_ops_in_loops_over_tasks_draw_anew(servers):
    def body(a):
        with tb.device(FAR):
            return a + tb.random_uniform([2], 1.0, 2.0, seed=3)

    a = tb.while_loop(lambda a: a[0] < 8.0, body, [tb.zeros([2])])
    with tb.Session(servers["worker0"].target) as session:
        one, other = session.run(a), session.run(a)
    assert len({*one, *other}) == 4
    assert 8.0 <= one[0] <= 10.0


def test_a_failure_in_a_loop_names_the_task_the_loop_and_the_iteration(servers):
    x = tb.placeholder(tb.float32, [], "x")

    def body(i, a):
        with tb.device(FAR):
            a = tb.check_numerics(1.0 / (3.0 - i) + a, "here")
        return i + 1.0, a

    found = tb.while_loop(lambda i, a: tb.logical_and(i < 5.0, a < 1e9), body, [0.0, x])
    with tb.Session(servers["worker0"].target) as session:
        for _ in range(2):
            with pytest.raises(
                InvalidArgumentError,
                match=r"^/job:worker/task:1: .*CheckNumerics.*here.*in iteration 3 of loop",
            ):
                session.run(found, {x: 1.0})
        assert session.run(found, {x: 1e10}) == [0.0, np.float32(1e10)]


def test_a_limit_ends_a_loop_over_tasks_for_all_of_them(servers):
    x = tb.placeholder(tb.float32, [], "x")

    def body(a):
        with tb.device(FAR):
            return a * 1.0

    found = tb.while_loop(lambda a: a > 0.0, body, [x])
    with tb.Session(servers["worker0"].target) as session:
        for _ in range(2):
            with pytest.raises(DeadlineExceededError, match=r"/job:worker/task:1: it ") as caught:
                session.run(found, {x: 1.0}, options=tb.RunOptions(timeout_in_ms=150))
            assert "/job:worker/task:0: it " in str(caught.value)
            assert session.run(found, {x: -2.0}) == -2.0
        for name in ("worker0", "worker1"):
            task = servers[name]._task
            late = task.run_of(next(iter(task._given_up)))
            late.arrive((), {"a value": np.zeros(1)})
            assert not task._runs  # what comes late is not kept


def test_a_loop_ends_when_one_of_its_tasks_stops(servers):
    x = tb.placeholder(tb.float32, [], "x")

    def body(a):
        with tb.device(FAR):
            a = a + 1.0
        with tb.device(PS):
            taken = tb.FIFOQueue(4, [tb.float32], [[]], shared_name="never").dequeue()
        return a + taken

    found = tb.while_loop(lambda a: a > 0.0, body, [x])
    with (
        tb.Session(servers["worker0"].target) as session,
        once(lambda: servers["worker1"]._task._peers._idle, servers["worker1"].stop),
        pytest.raises(UnavailableError, match="/job:worker/task:1"),
    ):
        session.run(found, {x: 1.0})


@pytest.mark.slow
def test_a_killed_process_is_named_and_the_loop_runs_once_it_is_back():
    cluster = cluster_of(worker=2)
    process = start_process(cluster, "worker", 1)
    try:
        x = tb.placeholder(tb.float32, [], "x")

        def body(a):
            with tb.device(FAR):
                return a * 1.0

        found = tb.while_loop(lambda a: a > 0.0, body, [x])
        with tb.train.Server(cluster, "worker", 0) as server:
            with (
                tb.Session(server.target) as session,
                once(lambda: server._task._peers._idle, process.kill),
                pytest.raises(UnavailableError, match=r"^/job:worker/task:1 is unavailable"),
            ):
                session.run(found, {x: 1.0})
            end(process)
            process = start_process(cluster, "worker", 1)
            with tb.Session(server.target) as session:
                assert session.run(found, {x: -1.0}) == -1.0
    finally:
        end(process)


def test_values_cross_tasks_as_16_bits_also_in_loops(servers):
    x = tb.placeholder(tb.float32, [3], "x")

    def body(a):
        with tb.device(FAR):
            return a * 1.01

    found = tb.while_loop(lambda a: tb.reduce_sum(a) < 9.0, body, [x])
    with tb.device(PS):
        kept = tb.boolean_mask(x, x > 0.0)
    with tb.device(FAR):
        crossed = kept * 1.0
        count = tb.shape(kept)[0]

    def rounded(value):
        return (np.asarray(value, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)

    value = np.float32([1.0001, 2.345678, 1.7])
    a = value
    while np.sum(a, dtype=np.float32) < 9.0:
        a = rounded(rounded(a) * np.float32(1.01))
    config = tb.ConfigProto(lossy_transfers=True)
    with tb.Session(servers["worker0"].target, config=config) as session:
        got = session.run([found, crossed, count, kept], {x: value})
        assert is_dynamic(session)
    np.testing.assert_array_equal(got[0], a)
    np.testing.assert_array_equal(got[1], rounded(value))
    assert got[2] == 3
    np.testing.assert_array_equal(got[3], value)  # results are sent whole
