"""Sessions and partial runs: the behaviour that TensorFlow 1's cases of sessions check."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    TensorBowError,
)
from tests.tensorflow_cases.in_threads import InThread, together, until

Pair = namedtuple("Pair", "first second")


# Graphs and sessions: testUseExistingGraph, testUseDefaultGraph, testCreate, testDefaultGraph, ... ------


def test_an_existing_graph_is_used(kernels_of_cases):
    graph = tb.Graph()
    with graph.as_default():
        product = tb.constant(6.0) * tb.constant(7.0)
    with tb.Session(graph=graph) as session:
        assert session.graph is graph
        assert session.run(product) == 42.0


def test_the_default_graph_is_used(graph):
    product = tb.constant(6.0) * tb.constant(7.0)
    with tb.Session() as session:
        assert session.graph is graph
        assert product.eval() == 42.0


def test_an_empty_graph_has_a_session(session):
    assert session.run([]) == []


def test_many_cpus(graph):
    with tb.device("/cpu:0"):
        a = tb.constant([1.0, 2.0])
    with tb.device("/cpu:3"):
        total = tb.reduce_sum(a * 2.0)
    with tb.Session(config=tb.ConfigProto(device_count={"CPU": 4})) as session:
        assert session.run(total) == 6.0


def test_entering_a_session_makes_its_graph_the_default(graph):
    other = tb.Graph()
    with tb.Session(graph=other):
        assert tb.get_default_graph() is other
        x = tb.constant(1.0)
    assert x.graph is other
    assert tb.get_default_graph() is graph


def test_a_session_within_another_graph(graph):
    a = tb.constant(2.0)
    with tb.Session() as session, tb.Graph().as_default() as inner:
        assert tb.get_default_graph() is inner
        assert tb.get_default_session() is session
        assert a.eval() == 2.0


def test_nested_sessions_are_left_in_turn(graph):
    with tb.Session() as outer:
        with tb.Session() as inner:
            assert tb.get_default_session() is inner
        assert tb.get_default_session() is outer
    assert tb.get_default_session() is None


def test_as_default_leaves_the_session_open(graph):
    x = tb.constant(3.0)
    session = tb.Session()
    with session.as_default():
        assert x.eval() == 3.0
    assert tb.get_default_session() is None
    assert session.run(x) == 3.0
    session.close()


def test_default_sessions_and_graphs_are_of_their_thread(session):
    assert together([tb.get_default_session])[0] is None

    def work():
        with tb.Graph().as_default(), tb.Session() as own:
            assert tb.get_default_session() is own
            return tb.constant(5.0).eval()

    assert together([work] * 4) == [5.0] * 4
    assert tb.get_default_session() is session


def test_graphs_are_shared_by_sessions(graph):
    v = tb.Variable(1.0)
    add = v.assign_add(1.0)
    with tb.Session() as one, tb.Session() as two:
        for each in (one, two):
            each.run(v.initializer)
        assert [one.run(add), one.run(add), two.run(add)] == [2.0, 3.0, 2.0]


def test_invalid_targets(graph):
    with pytest.raises(TensorBowError, match="INVALID"):
        tb.Session("INVALID_TARGET")
    with pytest.raises(TensorBowError):
        tb.Session(37)


def test_interactive_sessions_evaluate_without_with(kernels_of_cases):
    session = tb.InteractiveSession(graph=tb.Graph())
    try:
        a, b = tb.constant(5.0), tb.constant(6.0)
        assert (a * b).eval() == 30.0
    finally:
        session.close()


def test_contexts_nest_as_they_were_entered(graph):
    first, second = tb.Session(), tb.Session()
    with first.as_default(), second.as_default():
        assert tb.get_default_session() is second
    assert tb.get_default_session() is None
    first.close()
    second.close()


# Use after the end: testUseAfterClose, testUseAfterCloseConcurrent --------------------------------------


def test_use_after_close(graph):
    x = tb.constant(1.0)
    with tb.Session() as session:
        assert session.run(x) == 1.0
    with pytest.raises((FailedPreconditionError, RuntimeError), match="closed"):
        session.run(x)


def test_use_after_close_from_another_thread(graph):
    product = tb.matmul(tb.constant([[1.0, 2.0]]), tb.constant([[3.0], [4.0]]))
    session, done = tb.Session(), threading.Event()

    def keep_running():
        while True:
            session.run(product)
            done.set()

    running = InThread(keep_running)
    assert done.wait(30)
    session.close()
    with pytest.raises((FailedPreconditionError, RuntimeError), match="closed"):
        running.result()


def test_closing_twice(graph):
    session = tb.Session()
    session.close()
    session.close()


# Fetches: testFetch*, testExtend* -----------------------------------------------------------------------


def test_fetch_none(session):
    s = session
    with pytest.raises((TypeError, InvalidArgumentError)):
        s.run(None)
    with pytest.raises((TypeError, InvalidArgumentError)):
        s.run([None])
    with pytest.raises((TypeError, InvalidArgumentError)):
        s.run({"b": None})
    with pytest.raises((TypeError, InvalidArgumentError)):
        s.run({"a": tb.constant(1.0), "b": None})


def test_fetch_a_singleton_and_by_name(session):
    a = tb.constant(42.0, name="a")
    assert session.run(a) == 42.0
    assert session.run("a:0") == 42.0
    assert session.run(a.op) is None
    assert session.run("a") is None


@pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
def test_fetch_sequences(session, kind):
    a, b = tb.constant(42.0), tb.constant(44.0)
    v = tb.Variable(54.0)
    session.run(v.initializer)
    got = session.run(kind([a, b.op, b, v, a]))
    assert type(got) is kind
    assert got == kind([42.0, None, 44.0, 54.0, 42.0])


def test_fetch_a_named_tuple(session):
    got = session.run(Pair(tb.constant(42.0), tb.constant(44.0).op))
    assert isinstance(got, Pair)
    assert got == Pair(42.0, None)


@pytest.mark.parametrize("kind", [dict, OrderedDict], ids=["dict", "ordered"])
def test_fetch_dictionaries(session, kind):
    a, b = tb.constant(42.0), tb.constant(44.0)
    got = session.run(kind([("c", a), ("b", b), ("a", b.op)]))
    assert type(got) is kind
    assert list(got.items()) == [("c", 42.0), ("b", 44.0), ("a", None)]


def test_fetch_a_default_dict(session):
    wanted = defaultdict(list)
    wanted["a"].append(tb.constant(1.0))
    wanted["a"].append(tb.constant(2.0))
    assert session.run(wanted) == {"a": [1.0, 2.0]}


@pytest.mark.parametrize("empty", [[], (), {}], ids=["list", "tuple", "dict"])
def test_fetch_empty_nests(session, empty):
    assert session.run(empty) == empty
    assert session.run([empty, {"x": empty}]) == [empty, {"x": empty}]


def test_fetch_nests_of_one_level(session):
    a, b, c = tb.constant(1.0), tb.constant(2.0), tb.constant(3.0)
    assert session.run([[a, b], (c,), {"x": b}]) == [[1.0, 2.0], (3.0,), {"x": 2.0}]
    assert session.run(([a], Pair(b, c))) == ([1.0], Pair(2.0, 3.0))
    assert session.run({"l": [a], "p": Pair(b, c)}) == {"l": [1.0], "p": Pair(2.0, 3.0)}


def test_fetch_nests_of_two_levels(session):
    a, b = tb.constant(1.0), tb.constant(2.0)
    wanted = [a, [a, Pair({"x": [b], "y": (a, b)}, b.op)], {"z": [[a]]}]
    assert session.run(wanted) == [1.0, [1.0, Pair({"x": [2.0], "y": (1.0, 2.0)}, None)], {"z": [[1.0]]}]


def test_fetch_a_tensor_twice_computes_it_once(session):
    drawn = tb.random_uniform([3])
    first, second, sum_of_both = session.run([drawn, drawn, drawn + 0.0])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, sum_of_both)
    assert first is not second


def test_fetch_scalars_of_numpy(session):
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        x = tb.constant(7, dtype=tb.as_dtype(dtype))
        got = session.run(x)
        assert type(got) is dtype
        assert session.run([x])[0] == 7


def test_fetch_a_sparse_tensor(session):
    indices = np.array([[3, 2], [4, 5]], np.int64)
    values, shape = np.array([1.0, 2.0], np.float32), np.array([7, 9], np.int64)
    sparse = tb.SparseTensor(tb.constant(indices), tb.constant(values), tb.constant(shape))
    got = session.run(sparse)
    assert isinstance(got, tb.SparseTensorValue)
    for value, expected in zip(got, (indices, values, shape), strict=True):
        np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(session.run([sparse])[0].values, values)


def test_feed_a_sparse_placeholder(session):
    placed = tb.sparse_placeholder(tb.float32, [3, 4])
    dense = tb.sparse_tensor_to_dense(placed)
    fed = tb.SparseTensorValue(np.array([[0, 1], [2, 3]], np.int64), np.array([5.0, 6.0], np.float32), [3, 4])
    expected = np.zeros((3, 4))
    expected[0, 1], expected[2, 3] = 5, 6
    np.testing.assert_array_equal(session.run(dense, {placed: fed}), expected)
    np.testing.assert_array_equal(session.run(dense, {placed: tuple(fed)}), expected)


def test_fetch_indexed_slices(session):  # testFetchIndexedSlices, ...WithoutDenseShape
    rows, places = np.float32([[1, 2], [3, 4]]), np.int64([3, 0])
    slices = tb.IndexedSlices(tb.constant(rows), tb.constant(places), tb.constant([7, 2]))
    got, again = session.run([slices, {"of": slices.values}])
    assert isinstance(got, tb.IndexedSlicesValue)
    for value, expected in zip(got, (rows, places, [7, 2]), strict=True):
        np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(again["of"], rows)
    open_ended = session.run(tb.IndexedSlices(tb.constant(rows), tb.constant(places)))
    assert open_ended.dense_shape is None
    np.testing.assert_array_equal(open_ended.indices, places)
    with tb.control_dependencies([tb.IndexedSlices(tb.constant(rows), tb.constant(places))]):
        assert session.run(tb.constant(3)) == 3


@pytest.mark.parametrize("shape", [None, [5, 2], "fed"])
def test_feed_indexed_slices(session, shape):  # testFeedIndexedSlices, ...WithoutDenseShape
    values, indices = tb.placeholder(tb.float32, [None, 2]), tb.placeholder(tb.int32, [None])
    extents = tb.placeholder(tb.int32, [2]) if shape == "fed" else shape
    slices = tb.IndexedSlices(values, indices, extents)
    fed = tb.IndexedSlicesValue(np.float32([[1, 2], [3, 4]]), np.int32([3, 0]), [5, 2])
    got = session.run(slices, {slices: fed})
    np.testing.assert_array_equal(got.values, fed.values)
    np.testing.assert_array_equal(got.indices, fed.indices)
    if shape is not None:
        assert got.dense_shape.tolist() == [5, 2]
        dense = session.run(tb.convert_to_tensor(slices), {slices: tuple(fed)})
        assert dense[:, 0].tolist() == [3, 0, 0, 1, 0]
    with pytest.raises(InvalidArgumentError, match=r"expected tb.IndexedSlicesValue\(values, indices"):
        session.run(slices, {slices: [1.0]})
    if shape == [5, 2]:
        with pytest.raises(InvalidArgumentError, match=r"expected dense_shape \[5, 2\], got"):
            session.run(slices, {slices: fed._replace(dense_shape=[6, 2])})


def test_the_graph_is_extended_between_runs(session):
    a = tb.constant([[1.0, 2.0]])
    np.testing.assert_array_equal(session.run(a), [[1, 2]])
    b = a + 1.0
    np.testing.assert_array_equal(session.run(b), [[2, 3]])
    c = tb.matmul(b, b, transpose_b=True)
    np.testing.assert_array_equal(session.run(c), [[13]])


def test_the_graph_is_extended_with_variables(session):
    v = tb.Variable(1.0, name="v")
    session.run(v.initializer)
    w = tb.Variable(v.initialized_value() * 10.0, name="w")
    session.run(w.initializer)
    assert session.run([v, w]) == [1.0, 10.0]
    session.run(v.assign_add(1.0))
    assert session.run([v, w]) == [2.0, 10.0]


def test_the_graph_is_extended_with_a_group(session):
    p = tb.Variable(0.0), tb.Variable(1.0)
    session.run(tb.variables_initializer(p))
    both = tb.group(p[0].assign_add(1.0), p[1].assign_add(1.0))
    assert session.run(both) is None
    assert session.run(list(p)) == [1.0, 2.0]


def test_eval_and_run_use_the_default_session(session):
    v = tb.Variable(3.0)
    v.initializer.run()
    x = tb.placeholder(tb.float32, [])
    assert (v * x).eval({x: 2.0}) == 6.0
    assert v.eval() == 3.0


def test_without_a_default_session_eval_and_run_are_refused(graph):
    x = tb.constant(1.0)
    for call in (x.eval, x.op.run):
        with pytest.raises(TensorBowError, match="session"):
            call()


def test_other_objects_are_no_fetches(session):
    for wanted in (37, 2.5, object(), [tb.constant(1.0), 3]):
        with pytest.raises((TypeError, InvalidArgumentError)):
            session.run(wanted)


def test_a_tensor_of_another_graph_is_refused(session):
    with tb.Graph().as_default():
        other = tb.constant(1.0)
    with pytest.raises(InvalidArgumentError, match="graph"):
        session.run(other)


def test_unknown_names_are_refused(session):
    tb.constant(1.0, name="there")
    for name in ("missing", "missing:0", "there:1"):
        with pytest.raises((NotFoundError, InvalidArgumentError)):
            session.run(name)


# Feeds: testFeed*, testRunFeedDict ----------------------------------------------------------------------


def test_feed_two_placeholders(session):
    a, b = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
    assert session.run(a * b, {a: 6, b: 7}) == 42.0


@pytest.mark.parametrize("value", [[1, 2], (1, 2), np.array([1.0, 2.0]), np.int32([1, 2])], ids=str)
def test_feed_sequences_and_arrays(session, value):
    a = tb.placeholder(tb.float32, [2])
    np.testing.assert_array_equal(session.run(a * 2.0, {a: value}), [2, 4])


def test_feed_by_name(session):
    tb.placeholder(tb.float32, [], name="x")
    y = tb.get_default_graph().get_tensor_by_name("x:0") + 1.0
    assert session.run(y, {"x:0": 2.0}) == 3.0


def test_feed_and_fetch_the_same_tensor(session):
    for dtype in ("float32", "float64", "int32", "int64", "uint8", "int16", "int8", "bool", "complex64"):
        for shape in ([], [3], [2, 0], [2, 3]):
            a = tb.placeholder(dtype, shape)
            value = (np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(a.dtype.as_numpy_dtype)
            got = session.run(a, {a: value})
            np.testing.assert_array_equal(got, value)
            assert got.dtype == value.dtype


def test_feed_replaces_any_tensor(session):
    a = tb.constant(1.0)
    b = a + 1.0
    c = b * 10.0
    assert session.run(c) == 20.0
    assert session.run(c, {b: 5.0}) == 50.0
    assert session.run([b, c], {b: 5.0}) == [5.0, 50.0]


def test_a_fed_variable_keeps_its_value(session):
    v = tb.Variable(1.0)
    session.run(v.initializer)
    assert session.run(v * 2.0, {v: 10.0}) == 20.0
    assert session.run(v) == 1.0


def test_unfed_placeholders_are_named(session):
    x = tb.placeholder(tb.float32, [], name="lonely")
    with pytest.raises(InvalidArgumentError, match="lonely"):
        session.run(x + 1.0)


def test_feed_errors(session):
    x = tb.placeholder(tb.float32, [2])
    for value in (tb.constant([1.0, 2.0]), "text", object(), [1.0], [[1.0, 2.0]], [1.0, [2.0, 3.0]], None):
        with pytest.raises((InvalidArgumentError, TypeError, ValueError)):
            session.run(x, {x: value})


def test_an_integer_that_would_lose_digits_is_refused(session):
    small = tb.placeholder(tb.int32, [])
    with pytest.raises((InvalidArgumentError, TypeError)):
        session.run(small, {small: 1.5})
    with pytest.raises((InvalidArgumentError, TypeError)):
        session.run(small, {small: 1 << 40})
    with pytest.raises((InvalidArgumentError, TypeError)):
        session.run(small, {small: np.int64([1 << 40])[0]})


def test_shapes_of_feeds_must_be_compatible(session):
    some = tb.placeholder(tb.float32, [None, 3])
    y = tb.reduce_sum(some)
    assert session.run(y, {some: np.ones((2, 3))}) == 6.0
    for shape in ((3,), (2, 2), (1, 2, 3)):
        with pytest.raises((InvalidArgumentError, ValueError)):
            session.run(y, {some: np.ones(shape)})
    anything = tb.placeholder(tb.float32)
    assert session.run(tb.reduce_sum(anything), {anything: np.ones((2, 2, 2))}) == 8.0


def test_a_feed_that_the_fetch_does_not_need(session):
    x, y = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
    assert session.run(x + 1.0, {x: 1.0, y: 2.0}) == 2.0


def test_arrays_that_were_fed_may_change_afterwards(session):
    x = tb.placeholder(tb.float32, [3])
    value = np.ones(3, np.float32)
    got = session.run(x, {x: value})
    value[:] = 7
    np.testing.assert_array_equal(got, [1, 1, 1])


def test_fetched_arrays_may_be_changed(session):
    c = tb.constant([1.0, 2.0])
    got = session.run(c)
    got[:] = 9
    np.testing.assert_array_equal(session.run(c), [1, 2])


def test_a_value_of_no_element(session):
    x = tb.placeholder(tb.float32, [None, 2])
    assert session.run(tb.concat([x, x], 0), {x: np.zeros((0, 2))}).shape == (0, 2)


# Concurrency: testConcurrency, testParallelRun, testMultiThreaded* --------------------------------------


def test_many_threads_run_the_same_step(session):
    c = tb.matmul(tb.constant([[1.0, 2.0]]), tb.constant([[3.0], [4.0]]))

    def work():
        return [session.run(c).item() for _ in range(5)]

    assert together([work] * 10) == [[11.0] * 5] * 10


def test_threads_write_one_variable(session):
    v = tb.Variable(0)
    add = v.assign_add(1)
    session.run(v.initializer)
    together([lambda: [session.run(add.op) for _ in range(10)]] * 8)
    assert session.run(v) == 80


def test_runs_of_two_sessions_beside_each_other(graph):
    x = tb.placeholder(tb.float32, [])
    y = x * 3.0
    with tb.Session() as one, tb.Session() as two:
        calls = [lambda s=s, n=n: s.run(y, {x: n}) for n, s in enumerate([one, two] * 4)]
        assert together(calls) == [3.0 * n for n in range(8)]


# Errors and time limits: testErrorsReported, testTimeout* -----------------------------------------------


def test_errors_are_reported_and_the_session_goes_on(session):
    x = tb.placeholder(tb.float32, [])
    checked = tb.check_numerics(x, "the value")
    with pytest.raises(InvalidArgumentError, match="the value"):
        session.run(checked, {x: np.nan})
    assert session.run(checked, {x: 1.0}) == 1.0


def test_an_error_names_the_operation(session):
    queue = tb.FIFOQueue(1, tb.float32, [[]], name="ended")
    session.run(queue.close())
    with pytest.raises(TensorBowError, match="ended") as told:
        session.run(queue.dequeue(name="taking"))
    assert "taking" in str(told.value)


def test_a_time_limit_of_a_run(session):
    queue = tb.FIFOQueue(1, tb.float32)
    with pytest.raises(DeadlineExceededError):
        session.run(queue.dequeue(), options=tb.RunOptions(timeout_in_ms=50))


def test_a_time_limit_of_a_session(graph):
    queue = tb.FIFOQueue(1, tb.float32)
    taken = queue.dequeue()
    with (
        tb.Session(config=tb.ConfigProto(operation_timeout_in_ms=50)) as session,
    ):
        with pytest.raises(DeadlineExceededError, match="operation_timeout_in_ms=50"):
            session.run(taken)
        with pytest.raises(DeadlineExceededError, match=" timeout_in_ms=20 "):
            session.run(taken, options=tb.RunOptions(timeout_in_ms=20))
        session.run(queue.enqueue(3.0))
        assert session.run(taken) == 3.0


def test_short_steps_stay_within_a_time_limit(session):
    x = tb.Variable(0)
    session.run(x.initializer)
    add = x.assign_add(1)
    options = tb.RunOptions(timeout_in_ms=20_000)
    for _ in range(5):
        session.run(add, options=options)
    assert session.run(x) == 5


def test_a_blocked_run_ends_when_the_session_closes(graph):
    session = tb.Session()
    queue = tb.FIFOQueue(1, tb.float32)
    taken = queue.dequeue()
    running = InThread(session.run, taken)
    until(lambda: session._dynamic.running)
    session.close()
    with pytest.raises(TensorBowError):
        running.result()


# Variables of sessions ----------------------------------------------------------------------------------


def test_a_variable_without_a_value_is_named(session):
    v = tb.Variable(1.0, name="unset")
    with pytest.raises(FailedPreconditionError, match="unset"):
        session.run(v + 1.0)


def test_values_end_with_the_session(graph):
    v = tb.Variable(1.0)
    with tb.Session() as session:
        session.run(v.initializer)
    with tb.Session() as session, pytest.raises(FailedPreconditionError):
        session.run(v)


def test_initialisation_of_everything(session):
    tb.Variable([1.0, 2.0], name="a"), tb.Variable(3, name="b")
    session.run(tb.global_variables_initializer())
    assert [np.sum(value) for value in session.run(tb.global_variables())] == [3.0, 3]


def test_loading_a_value(session):
    v = tb.Variable(np.ones(2, np.float32))
    v.load([5.0, 6.0], session)
    np.testing.assert_array_equal(session.run(v), [5, 6])


# Callables: testMakeCallable* ---------------------------------------------------------------------------


def test_a_callable_of_a_tensor_without_feeds(session):
    call = session.make_callable(tb.constant(42.0))
    assert [call(), call()] == [42.0, 42.0]


def test_a_callable_of_an_operation(session):
    v = tb.Variable(1)
    session.run(v.initializer)
    call = session.make_callable(v.assign_add(1).op)
    assert call() is None
    call()
    assert session.run(v) == 3


def test_a_callable_with_feeds(session):
    a, b = tb.placeholder(tb.float32, []), tb.placeholder(tb.float32, [])
    call = session.make_callable([a * b, {"sum": a + b}], [a, b])
    assert call(2, 3) == [6.0, {"sum": 5.0}]
    with pytest.raises(InvalidArgumentError):
        call(2)


def test_a_callable_over_a_queue(session):
    queue = tb.FIFOQueue(3, tb.int32, [[]])
    x = tb.placeholder(tb.int32, [])
    put, take = session.make_callable(queue.enqueue(x), [x]), session.make_callable(queue.dequeue())
    put(4)
    put(5)
    assert [take(), take()] == [4, 5]


# Partial runs: testPartialRun*, testManyPartialRun, testConcurrentPartialRun, testRunAndPartialRun ------


@pytest.fixture
def abc(session):
    a, b, c = (tb.placeholder(tb.float32, [], name=name) for name in "abc")
    first = a + b
    second = first * c
    return session, (a, b, c), first, second


def test_a_partial_run(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    got = session.partial_run(handle, first, {a: 1, b: 2})
    assert got == 3.0
    assert session.partial_run(handle, second, {c: 17 * got}) == 153.0


def test_a_partial_run_may_stay_incomplete(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    assert session.partial_run(handle, first, {a: 1, b: 2}) == 3.0


def test_concurrent_partial_runs(abc):
    session, (a, b, c), first, second = abc
    one, two = (session.partial_run_setup([first, second], [a, b, c]) for _ in range(2))
    got = session.partial_run(one, first, {a: 1, b: 2})
    assert session.partial_run(two, first, {a: 5, b: 6}) == 11.0
    assert session.partial_run(two, second, {c: 2}) == 22.0
    assert session.partial_run(one, second, {c: got}) == 9.0


def test_many_partial_runs(abc):
    session, (a, b, c), first, second = abc
    handles = [session.partial_run_setup([first, second], [a, b, c]) for _ in range(12)]
    for n, handle in enumerate(handles):
        assert session.partial_run(handle, first, {a: n, b: 1}) == n + 1
    for n, handle in enumerate(handles):
        assert session.partial_run(handle, second, {c: 2}) == 2 * (n + 1)


def test_runs_among_partial_runs(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    assert session.partial_run(handle, first, {a: 1, b: 2}) == 3.0
    assert session.run(second, {a: 9, b: 1, c: 10}) == 100.0
    assert session.partial_run(handle, second, {c: 4}) == 12.0


def test_partial_run_without_the_feed_that_is_needed(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    with pytest.raises(InvalidArgumentError, match="b:0"):
        session.partial_run(handle, first, {a: 1})


@pytest.mark.parametrize("what", ["feed", "fetch"])
def test_partial_run_of_what_was_not_set_up(abc, what):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first], [a, b])
    part = (first, {a: 1, b: 2, c: 3}) if what == "feed" else (second, {a: 1, b: 2})
    with pytest.raises(InvalidArgumentError, match=f"not among the {what}"):
        session.partial_run(handle, *part)


def test_partial_run_of_what_is_done(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    session.partial_run(handle, first, {a: 1, b: 2})
    with pytest.raises(InvalidArgumentError, match="was fed"):
        session.partial_run(handle, second, {a: 3, c: 1})
    with pytest.raises(InvalidArgumentError, match="was fetched"):
        session.partial_run(handle, first)


def test_partial_run_with_empty_fetches(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup([first, second], [a, b, c])
    session.partial_run(handle, [], {a: 1, b: 3})
    assert session.partial_run(handle, first) == 4.0


def test_partial_run_without_feeds(session):
    a, b = tb.constant(1.0), tb.constant(2.0)
    handle = session.partial_run_setup([a, b + a])
    assert session.partial_run(handle, a) == 1.0
    assert session.partial_run(handle, "Add:0") == 3.0


def test_partial_run_keeps_the_nest_of_the_fetches(abc):
    session, (a, b, c), first, second = abc
    handle = session.partial_run_setup({"x": first, "y": [second]}, [a, b, c])
    assert session.partial_run(handle, {"x": first}, {a: 1, b: 2}) == {"x": 3.0}
    assert session.partial_run(handle, [(second,)], {c: 2}) == [(6.0,)]
