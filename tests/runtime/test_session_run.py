"""Results of a session: nests, names, dtypes, copies, cached steps."""

import gc
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tensorbow.runtime import planned_runs

pytestmark = pytest.mark.usefixtures("session")


def test_results_come_in_the_nest_of_the_fetches(session):
    a, b = tb.constant(1.0, name="a"), tb.constant([2, 3], name="b")
    pair = namedtuple("pair", "x y")
    assert session.run(a) == 1.0
    assert session.run("a:0") == 1.0
    assert session.run("a") is None
    assert session.run([]) == []
    assert session.run({}) == {}
    assert session.run((a, [a], a.op)) == (1.0, [1.0], None)
    got = session.run({"first": pair(a, [b]), "second": (b.op,)})
    assert isinstance(got["first"], pair)
    assert got["first"].x == 1.0
    np.testing.assert_array_equal(got["first"].y[0], [2, 3])
    assert got["second"] == (None,)
    ordered = session.run(OrderedDict([("z", a), ("y", a)]))
    assert isinstance(ordered, OrderedDict)
    assert list(ordered) == ["z", "y"]
    default = defaultdict(list, key=a)
    assert session.run(default) == {"key": 1.0}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_scalars_are_numpy_scalars_and_arrays_arrays(session, dtype):
    x = tb.placeholder(dtype, [])
    y = tb.placeholder(dtype, [2])
    scalar, array, kept = session.run(
        [x, y, tb.constant(np.ones((), dtype))], {x: np.ones((), dtype), y: np.ones(2, dtype)}
    )
    assert isinstance(scalar, np.generic)
    assert isinstance(kept, np.generic)
    assert isinstance(array, np.ndarray)
    assert scalar.dtype == array.dtype == np.dtype(dtype)


def test_results_belong_to_the_caller(session):
    v = tb.Variable(np.ones(3))
    session.run(v.initializer)
    first = session.run(v)
    first[...] = 7.0
    second = session.run(v.assign_add(np.ones(3)))
    np.testing.assert_array_equal(session.run(v), second)
    session.run(v.assign_add(np.ones(3)))
    np.testing.assert_array_equal(second, [2, 2, 2])


def test_empty_tensors(session):
    x = tb.placeholder(tb.float32, [None, 3])
    got = session.run([x * 2.0, tb.reduce_sum(x)], {x: np.zeros((0, 3))})
    assert got[0].shape == (0, 3)
    assert got[1] == 0.0


def test_only_what_is_needed_runs(session):
    v = tb.Variable(0.0)
    add, unused = v.assign_add(1.0), tb.placeholder(tb.float32)
    y = tb.constant(2.0) * 3.0
    session.run(v.initializer)
    session.run(y)
    assert session.run(v) == 0.0
    session.run(add.op)
    assert session.run(v) == 1.0
    assert unused.consumers() == []


def test_steps_are_compiled_once_per_fetches_feeds_and_shapes(session, monkeypatch):
    compiled = []
    compile_on_devices = planned_runs.compile_on_devices

    def counted(*args, **options):
        compiled.append(args[0])
        return compile_on_devices(*args, **options)

    monkeypatch.setattr(planned_runs, "compile_on_devices", counted)
    x, y = tb.placeholder(tb.float32, [None]), tb.placeholder(tb.float32, [None])
    total = x + y
    for _ in range(3):
        session.run(total, {x: [1.0], y: [2.0]})
        session.run(total, {y: [2.0], x: [1.0]})
    assert len(compiled) == 1
    session.run(total, {x: [1.0, 2.0], y: [2.0, 3.0]})
    session.run([total], {x: [1.0], y: [2.0]})  # another nest of the same fetches
    assert len(compiled) == 2
    tb.constant(1.0)  # the graph grows, but no variable
    session.run(total, {x: [1.0], y: [2.0]})
    assert len(compiled) == 2


@pytest.mark.slow
def test_the_cache_is_bounded_and_its_memory_is_given_back(session, monkeypatch):
    monkeypatch.setattr(session._cache, "_capacity", 3)
    x = tb.placeholder(tb.float32, [None])
    y = tb.reduce_sum(tb.tanh(x))
    allocator = session._cache.groups[0].allocator
    in_use = []
    for size in range(1, 12):
        session.run(y, {x: np.ones(size)})
        in_use.append(allocator.statistics().in_use_nbytes)
        assert len(session._cache) <= 3
    assert in_use[-1] == in_use[3]
    assert session.run(y, {x: np.ones(1)}) == pytest.approx(np.tanh(1))


def test_the_graph_grows_and_values_stay(session):
    a = tb.Variable(np.arange(6.0).reshape(2, 3), name="a")
    session.run(a.initializer)
    session.run(a.assign_add(np.ones((2, 3))))
    b = tb.Variable(np.ones(5, np.float32), name="b")
    c = tb.Variable(7, name="c")
    np.testing.assert_array_equal(session.run(a), np.arange(6.0).reshape(2, 3) + 1)
    session.run([b.initializer, c.initializer])
    d = tb.Variable(np.zeros((100, 100)), name="d")
    session.run(d.initializer)
    np.testing.assert_array_equal(session.run(a), np.arange(6.0).reshape(2, 3) + 1)
    np.testing.assert_array_equal(session.run(b), np.ones(5))
    assert session.run(c) == 7


def test_callables(session):
    x, y = tb.placeholder(tb.float32, [None], name="x"), tb.placeholder(tb.float32, [], name="y")
    scale = session.make_callable({"scaled": x * y, "op": x.op}, [x, "y:0"])
    for factor in (2.0, 3.0):
        got = scale([1, 2], factor)
        np.testing.assert_array_equal(got["scaled"], [factor, 2 * factor])
        assert got["op"] is None
    with pytest.raises(InvalidArgumentError, match="expected 2 values for the feed_list, got 1"):
        scale([1.0])
    with pytest.raises(InvalidArgumentError, match=r"feed x:0: expected shape \[\?\], got \[1, 1\]"):
        scale([[1.0]], 1.0)
    with pytest.raises(InvalidArgumentError, match="x:0: it is fed twice"):
        session.make_callable(x, [x, "x:0"])


def test_default_sessions():
    x = tb.constant(3.0)
    outer = tb.get_default_session()
    with tb.Graph().as_default() as graph, tb.Session() as inner:
        assert tb.get_default_session() is inner
        assert tb.get_default_graph() is graph
        assert tb.constant(4.0).eval() == 4.0
    assert tb.get_default_session() is outer
    assert x.eval() == 3.0
    assert x.eval({x: 5.0}) == 5.0
    with tb.Session() as session, tb.Graph().as_default():
        assert x.eval(session=session) == 3.0


def test_sessions_have_values_of_their_own():
    v = tb.Variable(0.0)
    with tb.Session() as a, tb.Session() as b:
        a.run(v.initializer)
        b.run(v.initializer)
        a.run(v.assign_add(5.0))
        assert (a.run(v), b.run(v)) == (5.0, 0.0)


def test_two_optimisers_in_one_run(session):
    w = tb.Variable(np.array([1.0, 2.0]), name="w")
    first, second = tb.reduce_sum(tb.square(w)), tb.reduce_sum(w * 3.0)
    one = tb.train.GradientDescentOptimizer(0.1).minimize(first)
    two = tb.train.GradientDescentOptimizer(0.01).minimize(second)
    session.run(w.initializer)
    losses = session.run([first, second, one, two])
    assert losses[:2] == [5.0, 9.0]
    np.testing.assert_allclose(session.run(w), [1 - 0.2 - 0.03, 2 - 0.4 - 0.03])


def test_garbage_is_not_kept_alive_by_a_run(session):
    x = tb.placeholder(tb.float32, [1000])
    y = x + 1.0
    session.run(y, {x: np.zeros(1000)})
    big = np.zeros(1000, np.float32)
    count = len(gc.get_referrers(big))
    session.run(y, {x: big})
    assert len(gc.get_referrers(big)) <= count
