"""Gradients of loops: TensorFlow 1's cases; each runs compiled or unrolled, and dynamic."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import TensorBowError


@pytest.fixture(params=[True, False], ids=["compiled", "dynamic"])
def session(request, graph):
    with tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as made:
        yield made


def scalar(name="x"):
    return tb.placeholder(tb.float64, [], name=name)


def repeated(times, step, start, **options):
    """The value after `step` was applied that often."""
    return tb.while_loop(lambda i, v: i < times, lambda i, v: (i + 1, step(v)), [0, start], **options)[1]


def test_square_until_a_limit(session):  # testWhileGrad_Square
    v = scalar()
    r = tb.while_loop(lambda v: v < 100.0, lambda v: tb.square(v), [v])
    (slope,) = tb.gradients(r, v)
    assert session.run([r, slope], {v: 2.0}) == [256.0, 1024.0]
    assert session.run([r, slope], {v: 200.0}) == [200.0, 1.0]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("parallel", [1, 10])
def test_add_and_multiply_what_comes_from_outside(session, swap, parallel):  # testWhileGrad_LoopAdd, _Mul
    n, a = scalar("n"), scalar("a")
    options = {"parallel_iterations": parallel, "swap_memory": swap}
    total = repeated(4, lambda v: v * a + a, n, **options)
    # ((((n a + a) a + a) a + a) a + a)
    slopes = tb.gradients(total, [n, a])
    got = session.run([total, *slopes], {n: 2.0, a: 3.0})
    np.testing.assert_allclose(got, [2 * 81 + 3 + 9 + 27 + 81, 81, 4 * 27 * 2 + 1 + 6 + 27 + 4 * 27])


def test_a_value_that_is_used_several_times(session):  # testWhileGrad_MultipleUses
    v = scalar()
    r = repeated(2, lambda v: v * v, v)
    (slope,) = tb.gradients(r * r, v)
    assert session.run(slope, {v: 2.0}) == 8 * 2.0**7


def test_a_variable(session):  # testWhileGrad_Variable
    a = tb.Variable(3.0)
    session.run(a.initializer)
    r = repeated(3, lambda v: v * a, tb.constant(2.0))
    (slope,) = tb.gradients(r, a)
    assert session.run([r, slope]) == [54.0, 54.0]


def test_a_variable_is_trained_through_a_loop(session):
    w = tb.Variable(np.eye(2, dtype=np.float32) * 0.5)
    h = repeated(3, lambda v: tb.matmul(v, w), tb.ones([1, 2]))
    step = tb.train.GradientDescentOptimizer(0.1).minimize(tb.reduce_sum(tb.square(h - 1.0)))
    session.run(w.initializer)
    losses = [session.run([tb.reduce_sum(tb.square(h - 1.0)), step])[0] for _ in range(20)]
    assert losses[-1] < 0.6 * losses[0]


def test_a_constant_has_no_gradient(session):  # testWhileGrad_Const
    x = scalar()
    r = tb.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, tb.constant(2.0, tb.float64)), [0, x])[1]
    (slope,) = tb.gradients(r, x)
    assert slope is None or session.run(slope, {x: 1.0}) == 0.0


def test_no_iteration_passes_the_gradient_on(session):
    x = scalar()
    (slope,) = tb.gradients(repeated(0, lambda v: v * 5.0, x), x)
    assert session.run(slope, {x: 3.0}) == 1.0


def test_integers_count_and_floats_are_differentiated(session):
    x = scalar()
    i, v = tb.while_loop(
        lambda i, v: i < 4, lambda i, v: (i + 1, v * tb.cast(i + 1, tb.float64)), [tb.constant(0), x]
    )
    (slope,) = tb.gradients(v, x)
    assert session.run([i, v, slope], {x: 2.0}) == [4, 48.0, 24.0]


def test_shapes_in_the_loop(session):  # testWhileGrad_Shape, testWhileGrad_BaseShape
    x = tb.placeholder(tb.float32, [None])
    v = tb.constant([2.0, 2.0])
    r = tb.while_loop(
        lambda v: tb.reduce_sum(v) < 50.0, lambda v: v * x, [v], shape_invariants=[tb.TensorShape([None])]
    )
    (slope,) = tb.gradients(tb.reduce_sum(r), x)
    np.testing.assert_allclose(session.run(slope, {x: [2.0, 3.0]}), [2 * 3 * 4, 2 * 3 * 9])


def test_concat_in_the_loop(session):  # testWhileGrad_Concat
    x = tb.placeholder(tb.float32, [1, 2])
    _, rows = tb.while_loop(
        lambda i, r: i < 3,
        lambda i, r: (i + 1, tb.concat([r, x * tb.cast(i + 1, tb.float32)], 0)),
        [tb.constant(0), x],
        shape_invariants=[tb.TensorShape([]), tb.TensorShape([None, 2])],
    )
    (slope,) = tb.gradients(tb.reduce_sum(rows * rows), x)
    np.testing.assert_allclose(session.run(slope, {x: [[1.0, 2.0]]}), [[30.0, 60.0]])


def test_gather_in_the_loop(session):  # IndexedSlices gradients in a while loop
    table = tb.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))
    session.run(table.initializer)
    _, total = tb.while_loop(
        lambda i, t: i < 4,
        lambda i, t: (i + 1, t + tb.reduce_sum(tb.gather(table, tb.expand_dims(i % 3, 0)))),
        [tb.constant(0), tb.constant(0.0)],
    )
    (slope,) = tb.gradients(total, table)
    np.testing.assert_array_equal(session.run(tb.convert_to_tensor(slope)), [[2, 2], [1, 1], [1, 1]])


def test_two_loops_in_series(session):  # testWhileGrad_SerialTwoLoops
    x = scalar()
    r = repeated(2, lambda v: v * v, repeated(3, lambda v: v * 2.0, x))
    (slope,) = tb.gradients(r, x)
    assert session.run(slope, {x: 0.5}) == 4 * 4.0**3 * 8


def test_two_loops_beside_each_other(session):  # testWhileGrad_ParallelTwoLoops
    x = scalar()
    r = repeated(3, lambda v: v * 2.0, x) * repeated(2, lambda v: v * v, x)
    (slope,) = tb.gradients(r, x)
    assert session.run(slope, {x: 1.0}) == 8 * 5


def test_one_of_two_results(session):  # testWhileGrad_OneOutputWithControlDependencyOnSecond
    x, y = scalar("x"), scalar("y")

    def body(i, a, b):
        with tb.control_dependencies([b]):
            following = a * 2.0
        return i + 1, following, b * 3.0

    _, a, b = tb.while_loop(lambda i, a, b: i < 3, body, [0, x, y])
    assert session.run(tb.gradients(a, x)[0], {x: 1.0, y: 1.0}) == 8.0
    assert session.run(tb.gradients(b, y)[0], {x: 1.0, y: 1.0}) == 27.0


def test_variables_that_depend_on_each_other(session):
    x, y = scalar("x"), scalar("y")
    _, a, _ = tb.while_loop(lambda i, a, b: i < 4, lambda i, a, b: (i + 1, a + b, a), [0, x, y])
    slopes = tb.gradients(a, [x, y])
    assert session.run([a, *slopes], {x: 1.0, y: 1.0}) == [8.0, 5.0, 3.0]


def test_stop_gradient_around_and_in_a_loop(session):  # testWhileGrad_StopGrad, _StopGradInside
    x, y = scalar("x"), scalar("y")

    def body(i, a, b):
        return i + 1, a * b, b * tb.stop_gradient(y)

    _, a, b = tb.while_loop(lambda i, a, b: i < 2, body, [0, x, y])
    feeds = {x: 3.0, y: 6.0}
    assert session.run(tb.gradients(b, y)[0], feeds) == 36.0
    assert tb.gradients(tb.stop_gradient(a), x)[0] is None
    (slope,) = tb.gradients(a, y)
    assert session.run([a, slope], feeds) == [3 * 6 * 36.0, 3 * 2 * 36.0]
    (stopped,) = tb.gradients(repeated(3, lambda v: tb.stop_gradient(v * 2.0), x), x)
    assert stopped is None or session.run(stopped, feeds) == 0.0


def test_back_prop_false(session):
    x = scalar()
    assert tb.gradients(repeated(3, lambda v: v * 2.0, x, back_prop=False), x)[0] is None


def test_maximum_iterations(session):
    x = scalar()
    (slope,) = tb.gradients(repeated(100, lambda v: v * 2.0, x, maximum_iterations=5), x)
    assert session.run(slope, {x: 1.0}) == 32.0


# Nests --------------------------------------------------------------------------------------------------


def test_a_loop_in_a_loop(session):  # testNestedWhileGrad_Simple
    v = scalar()
    r = tb.while_loop(
        lambda x: x < 8.0, lambda x: tb.while_loop(lambda y: y < 100.0, lambda y: y * y, [x]), [v]
    )
    (slope,) = tb.gradients(r, v)
    assert session.run([r, slope], {v: 3.0}) == [6561.0, 8 * 3.0**7]


def test_two_inner_loops_in_series(session):  # testNestedWhileGrad_SerialInner
    x = scalar()
    r = repeated(2, lambda v: repeated(2, lambda u: u * 3.0, repeated(2, lambda u: u + v, v)), x)
    (slope,) = tb.gradients(r, x)
    assert session.run(slope, {x: 1.0}) == (3 * 9) ** 2


def test_two_inner_loops_beside_each_other(session):  # testNestedWhileGrad_ParallelInner
    x = scalar()
    r = repeated(2, lambda v: repeated(2, lambda u: u * 2.0, v) * repeated(1, lambda u: u + 1.0, v), x)
    # f(v) = 4 v (v + 1)
    (slope,) = tb.gradients(r, x)
    assert session.run(slope, {x: 1.0}) == (8 * 8 + 4) * 12


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_vector_through_nested_loops(session, parallel):  # testNestedWhileGrad_ParallelIterations
    x = tb.placeholder(tb.float32, [3])
    r = repeated(
        2,
        lambda v: repeated(3, lambda u: u * x, v, parallel_iterations=parallel),
        tb.ones([3]),
        parallel_iterations=parallel,
    )
    (slope,) = tb.gradients(r, x)
    np.testing.assert_allclose(session.run(slope, {x: [1.0, 2.0, 0.5]}), 6 * np.array([1, 32, 1 / 32]))


def test_a_branch_in_a_loop(session):  # testWhileCondGrad_Simple
    v = scalar()
    r = tb.while_loop(
        lambda i, v: i < 5,
        lambda i, v: (i + 1, tb.cond(i < 3, lambda: v * 2.0, lambda: v * v)),
        [tb.constant(0), v],
    )[1]
    (slope,) = tb.gradients(r, v)
    assert session.run([r, slope], {v: 0.5}) == [4.0**4, 8 * 4 * 4.0**3]


def test_a_branch_on_data_in_a_loop(session):  # testWhileCondGrad_UnknownShape
    x = tb.placeholder(tb.float32)

    def body(i, v):
        following = tb.cond(tb.reduce_sum(v) > 10.0, lambda: v + 1.0, lambda: v * 3.0)
        following.set_shape(v.shape)
        return i + 1, following

    _, r = tb.while_loop(lambda i, v: i < 3, body, [tb.constant(0), x])
    (slope,) = tb.gradients(tb.reduce_sum(r), x)
    np.testing.assert_array_equal(session.run(slope, {x: [1.0, 2.0]}), [9, 9])
    np.testing.assert_array_equal(session.run(slope, {x: [[20.0]]}), [[1]])


def test_a_loop_in_a_branch(session):  # testWhileGradInCond
    n = scalar("n")
    y = tb.cond(n < 10.0, lambda: tb.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, [n]), lambda: n * 7.0)
    (slope,) = tb.gradients(y, n)
    assert session.run(slope, {n: 1.0}) == 128.0
    assert session.run(slope, {n: 20.0}) == 7.0


def test_a_gradient_taken_in_a_loop(session):  # testWhileGradInWhile, testGradInWhileWrtInitialLoopVal
    x = scalar()

    def body(i, v):
        inner = repeated(2, lambda u: u * u, v)
        return i + 1, tb.gradients(inner, v)[0] * 0.25

    _, r = tb.while_loop(lambda i, v: i < 2, body, [0, x])
    assert session.run(r, {x: 2.0}) == (2.0**3) ** 3


def test_a_gradient_with_respect_to_what_is_outside_of_the_loop_around(session):
    x = scalar()
    y = x * x

    def body(i, total):
        return i + 1, total + tb.gradients(y, x)[0]

    try:
        _, r = tb.while_loop(lambda i, t: i < 3, body, [0, tb.constant(0.0, tb.float64)])
    except TensorBowError:
        return  # refused, as in TensorFlow's first versions
    assert session.run(r, {x: 5.0}) == 30.0


def test_second_derivatives_of_a_loop(session):
    # TensorFlow 1 refuses these (testWhileGradGradFail)
    x = scalar()
    (first,) = tb.gradients(repeated(2, lambda v: v * v, x), x)
    (second,) = tb.gradients(first, x)
    assert session.run([first, second], {x: 2.0}) == [32.0, 48.0]


def test_a_recurrent_net_agrees_with_its_unrolled_form(session):
    rng = np.random.default_rng(0)
    w = tb.Variable(rng.normal(size=(3, 3)) * 0.5)
    rows = tb.constant(rng.normal(size=(4, 2, 3)))
    session.run(w.initializer)

    def step(h, row):
        return tb.tanh(tb.matmul(h, w) + row)

    h = tb.zeros([2, 3], tb.float64)
    looped = tb.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, step(s, rows[i])), [tb.constant(0), h])[1]
    for number in range(4):
        h = step(h, rows[number])
    slopes = [tb.gradients(tb.reduce_sum(tb.square(each)), w)[0] for each in (looped, h)]
    one, other = session.run(slopes)
    np.testing.assert_allclose(one, other, rtol=1e-10)


def test_the_gradient_of_a_queue_fed_loop_stops_at_the_queue(session):
    queue = tb.FIFOQueue(9, tb.float64, [[]])
    session.run(queue.enqueue_many([[2.0, 3.0, 4.0]]))
    x = scalar()
    r = tb.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, v * queue.dequeue()), [0, x], parallel_iterations=1
    )[1]
    (slope,) = tb.gradients(r, x)
    assert session.run([r, slope], {x: 1.0}) == [24.0, 24.0]
