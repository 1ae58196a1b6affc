"""Loops: TensorFlow 1's cases of while_loop, without gradients; each runs compiled and dynamic."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError, TensorBowError

State = namedtuple("State", "index total")


@pytest.fixture(params=[True, False], ids=["compiled", "dynamic"])
def session(request, graph):
    with tb.Session(config=tb.ConfigProto(compiles_loops=request.param)) as made:
        yield made


def test_a_loop_whose_condition_is_false_at_once(session):  # testLoop_false, testWhile with no iteration
    assert session.run(tb.while_loop(lambda x: x < 0, lambda x: x + 1, [tb.constant(5)])) == 5


@pytest.mark.parametrize("parallel", [1, 10, 20])
def test_a_count_to_ten_thousand(session, parallel):  # testLoop_1, testWhile_1
    y = tb.while_loop(lambda i: i < 10000, lambda i: i + 1, [0], parallel_iterations=parallel)
    assert session.run(y) == 10000


def test_two_loop_variables(session):  # testLoop_2
    i, x = tb.while_loop(lambda i, x: i < 5, lambda i, x: [i + 1, x * 2.0], [0, 3.0])
    assert session.run([i, x]) == [5, 96.0]


def test_a_single_result_is_no_list(session):
    y = tb.while_loop(lambda i: i < 3, lambda i: [i + 1], [tb.constant(0)])
    assert isinstance(y, tb.Tensor)
    assert session.run(y) == 3


def test_three_loop_variables_of_different_dtypes(session):  # testWhile_3
    def body(i, m, c):
        return i + 1, m * 2.0, tb.logical_not(c)

    i, m, c = tb.while_loop(lambda i, m, c: i < 7, body, [tb.constant(0), tb.ones([2, 2]), tb.constant(True)])
    count, matrix, flag = session.run([i, m, c])
    assert (count, flag) == (7, False)
    np.testing.assert_array_equal(matrix, np.full((2, 2), 128))


def test_rows_are_gathered_one_by_one(session):  # testWhile_4
    rows = tb.constant(np.arange(6.0, dtype=np.float32).reshape(3, 2))

    def body(i, total):
        return i + 1, total + tb.gather(rows, i)

    _, total = tb.while_loop(lambda i, t: i < 3, body, [0, tb.zeros([2])])
    np.testing.assert_array_equal(session.run(total), [6, 9])


def test_a_value_that_grows(session):  # testWhile_5, testWhileShape
    _, rows = tb.while_loop(
        lambda i, r: i < 4,
        lambda i, r: (i + 1, tb.concat([r, tb.expand_dims(tb.cast(i, tb.float32), 0)], 0)),
        [0, tb.zeros([1])],
        shape_invariants=[[], [None]],
    )
    np.testing.assert_array_equal(session.run(rows), [0, 0, 1, 2, 3])
    assert rows.shape.as_list() == [None]


def test_a_shape_that_changes_without_an_invariant_is_refused(graph):  # testWhileShapeInference
    with pytest.raises((TensorBowError, ValueError), match="shape"):
        tb.while_loop(lambda r: tb.size(r) < 9, lambda r: tb.concat([r, r], 0), [tb.ones([2])])


@pytest.mark.parametrize("bad", [[None], [[2, 2]], [[3]]], ids=str)
def test_an_invariant_that_the_start_does_not_have_is_refused(graph, bad):
    if bad == [None]:  # nothing known: allowed
        tb.while_loop(
            lambda r: tb.size(r) < 9, lambda r: tb.concat([r, r], 0), [tb.ones([2])], [tb.TensorShape(None)]
        )
        return
    with pytest.raises((TensorBowError, ValueError)):
        tb.while_loop(lambda r: tb.size(r) < 9, lambda r: r, [tb.ones([2])], shape_invariants=bad)


def test_a_dtype_that_changes_is_refused(graph):
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.while_loop(lambda x: x < 3, lambda x: tb.cast(x, tb.float32), [tb.constant(0)])


def test_results_of_another_number_or_nest_are_refused(graph):
    for body in (lambda i, x: i, lambda i, x: [i, x, x], lambda i, x: (i, [x, x])):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            tb.while_loop(lambda i, x: i < 3, body, [tb.constant(0), tb.constant(1.0)])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: tb.while_loop(3, lambda x: x, [0]),
        lambda: tb.while_loop(lambda x: x < 3, 3, [0]),
        lambda: tb.while_loop(lambda: True, lambda: (), []),
        lambda: tb.while_loop(lambda x: x, lambda x: x + 1, [0]),
        lambda: tb.while_loop(lambda x: tb.constant([True]), lambda x: x + 1, [0]),
        lambda: tb.while_loop(lambda x: x < 3, lambda x: x + 1, [0], parallel_iterations=0),
        lambda: tb.while_loop(lambda x: x < 3, lambda x: x + 1, [0], maximum_iterations="many"),
        lambda: tb.while_loop(lambda x: x < 3, lambda x: x + 1, [0], maximum_iterations=tb.constant([1])),
    ],
    ids=["cond", "body", "no variable", "no bool", "no scalar", "parallel", "text", "vector"],
)
def test_arguments_that_are_refused(graph, wrong):  # testInvalidMaximumIterations*, WhileContext errors
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        wrong()


@pytest.mark.parametrize(("most", "expected"), [(None, 10), (0, 0), (3, 3), (100, 10)])
def test_maximum_iterations(session, most, expected):
    assert (
        session.run(tb.while_loop(lambda i: i < 10, lambda i: i + 1, [0], maximum_iterations=most))
        == expected
    )


def test_maximum_iterations_as_a_tensor(session):
    most = tb.placeholder(tb.int32, [])
    y = tb.while_loop(lambda i, x: i < 10, lambda i, x: (i + 1, x * 2), [0, 1], maximum_iterations=most)
    assert session.run(y, {most: 4}) == [4, 16]
    assert session.run(y, {most: 40}) == [10, 1024]


def test_numbers_and_lists_are_loop_variables(session):  # testWhileWithNonTensorInput_Scalar / _Vector
    assert session.run(tb.while_loop(lambda n: n < 10000, lambda n: n + 1, [0])) == 10000
    n = np.array([0])
    np.testing.assert_array_equal(session.run(tb.while_loop(lambda n: n[0] < 5, lambda n: n + 1, [n])), [5])


@pytest.mark.parametrize(
    ("start", "body", "expected"),
    [
        ((0, (1, [2])), lambda i, j: (i + 1, (j[0] + i, [j[1][0] * 2])), (4, (7, [32]))),
        ([{"i": 0, "x": 1.0}], lambda d: [{"i": d["i"] + 1, "x": d["x"] * 3.0}], {"i": 4, "x": 81.0}),
        ((State(0, 1.0),), lambda s: (State(s.index + 1, s.total + 2.0),), State(4, 9.0)),
    ],
    ids=["tuples", "dict", "named tuple"],
)
def test_nests_of_loop_variables(session, start, body, expected):  # testNestedStructure*, testWhileLoopNamed*
    def condition(*values):
        first = values[0]
        index = first["i"] if isinstance(first, dict) else first.index if isinstance(first, State) else first
        return index < 4

    got = session.run(tb.while_loop(condition, body, start))
    assert got == expected


def test_loop_variables_pass_unchanged(session):
    i, x = tb.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), [0, tb.constant([1.0, 2.0])])
    np.testing.assert_array_equal(session.run([i, x])[1], [1, 2])


def test_variables_swap_places(session):
    i, a, b = tb.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b, a), [0, 1.0, 2.0])
    assert session.run([i, a, b]) == [3, 2.0, 1.0]


def test_buffers_are_not_shared_between_iterations(session):  # testBufferForwarding
    def body(i, x, y):
        return i + 1, x + 1.0, y + x

    _, x, y = tb.while_loop(lambda i, x, y: i < 4, body, [0, tb.zeros([3]), tb.zeros([3])])
    np.testing.assert_array_equal(session.run([x, y]), [[4] * 3, [6] * 3])


def test_two_results_are_one_value(session):
    def body(i, x, y):
        z = x * 2.0
        return i + 1, z, z

    assert session.run(tb.while_loop(lambda i, x, y: i < 3, body, [0, 1.0, 5.0])) == [3, 8.0, 8.0]


def test_sparse_tensors_are_loop_variables(session):  # testWhileShapeInferenceSparseTensor
    sparse = tb.SparseTensor(
        tb.constant([[0], [3]], tb.int64), tb.constant([2.0, 4.0]), tb.constant([5], tb.int64)
    )
    _, result = tb.while_loop(
        lambda i, s: i < 3,
        lambda i, s: [i + 1, tb.SparseTensor(s.indices, s.values * 2.0, s.dense_shape)],
        [tb.constant(0), sparse],
    )
    got = session.run(result)
    np.testing.assert_array_equal(got.values, [16, 32])
    np.testing.assert_array_equal(got.dense_shape, [5])


def test_indexed_slices_are_loop_variables(session):  # testWhileShapeInferenceIndexedSlices
    slices = tb.IndexedSlices(tb.constant([[2.0, 2.0], [3.0, 3.0]]), tb.constant([0, 3]), [10, 2])
    _, result = tb.while_loop(
        lambda i, s: i < 3,
        lambda i, s: [i + 1, tb.IndexedSlices(s.values * 2.0, s.indices, s.dense_shape)],
        [tb.constant(0), slices],
    )
    np.testing.assert_array_equal(session.run(result.values), [[16, 16], [24, 24]])


def test_the_number_of_sparse_values_may_change(session):
    sparse = tb.SparseTensor(tb.constant([[0]], tb.int64), tb.constant([2.0]), tb.constant([5], tb.int64))
    slices = tb.IndexedSlices(tb.constant([[2.0, 2.0]]), tb.constant([0]), [10, 2])

    def body(i, s, r):
        more = tb.concat([s.indices, tb.cast(tb.reshape(i + 1, [1, 1]), tb.int64)], 0)
        s = tb.SparseTensor(more, tb.concat([s.values, [1.0]], 0), s.dense_shape)
        rows = tb.concat([r.values, tb.ones([1, 2])], 0), tb.concat([r.indices, [i]], 0)
        return i + 1, s, tb.IndexedSlices(*rows, r.dense_shape)

    _, sparse, slices = tb.while_loop(
        lambda i, s, r: i < 2, body, [0, sparse, slices], shape_invariants=[[], [1], [None, 2]]
    )
    np.testing.assert_array_equal(session.run(tb.sparse_tensor_to_dense(sparse)), [2, 1, 1, 0, 0])
    np.testing.assert_array_equal(session.run(slices.indices), [0, 0, 1])


# Nests of loops and branches: testNestedWhile_*, testWhileCond_*, testCondWhile_* -----------------------


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_loop_in_a_loop(session, parallel):  # testNestedWhile_1
    def inner(i, x):
        return tb.while_loop(
            lambda j, y: j < 3, lambda j, y: (j + 1, y + 1.0), [0, x], parallel_iterations=parallel
        )[1]

    _, x = tb.while_loop(
        lambda i, x: i < 4, lambda i, x: (i + 1, inner(i, x) * 2.0), [0, 1.0], parallel_iterations=parallel
    )
    assert session.run(x) == 106.0


def test_a_loop_that_runs_as_often_as_the_outer_index(session):  # testNestedWhile_2
    def body(i, total):
        n = tb.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + j), [tb.constant(0), total])[1]
        return i + 1, n

    assert session.run(tb.while_loop(lambda i, t: i < 5, body, [0, tb.constant(0)]))[1] == 0 + 0 + 1 + 3 + 6


def test_three_loops_in_each_other(session):
    def level(depth, x):
        if depth == 0:
            return x + 1
        return tb.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, level(depth - 1, x)), [0, x])[1]

    assert session.run(level(3, tb.constant(0))) == 8


def test_a_branch_in_a_loop(session):  # testWhileCond_1
    y = tb.while_loop(
        lambda i, n: i < 10, lambda i, n: (i + 1, tb.cond(i < 5, lambda: n + 1, lambda: n + 10)), [0, 0]
    )
    assert session.run(y) == [10, 55]


def test_a_branch_that_is_always_taken(session):  # testWhileCond_2, testWhileCond_3
    n = tb.while_loop(
        lambda n: n < 10, lambda n: tb.cond(tb.constant(True), lambda: n + 1, lambda: n), [tb.constant(0)]
    )
    assert session.run(n) == 10


@pytest.mark.parametrize(("fed", "expected"), [(1, 10), (11, -11)])
def test_a_loop_in_a_branch(session, fed, expected):  # testCondWhile_1, _2
    n = tb.placeholder(tb.int32, [])
    y = tb.cond(n < 10, lambda: tb.while_loop(lambda i: i < 10, lambda i: i + 1, [n]), lambda: -n)
    assert session.run(y, {n: fed}) == expected


def test_loops_in_both_branches_of_a_cond_in_a_loop(session):  # testCondWhile_3
    def times(x, limit, factor):
        return tb.while_loop(lambda j, y: j < limit, lambda j, y: (j + 1, y * factor), [0, x])[1]

    def body(i, x):
        return i + 1, tb.cond(tb.equal(i % 2, 0), lambda: times(x, 2, 2), lambda: times(x, 1, 3))

    assert session.run(tb.while_loop(lambda i, x: i < 4, body, [0, 1]))[1] == 144


# Control dependencies: testWhileWithControl_*, testWhileCondWithControl ---------------------------------


def test_a_control_input_of_the_condition(session):
    def condition(i):
        with tb.control_dependencies([tb.constant(1) + i]):
            return i < 5

    assert session.run(tb.while_loop(condition, lambda i: i + 1, [0])) == 5


def test_a_control_input_of_the_body(session):
    c = tb.placeholder(tb.float32, [])

    def body(i, x):
        with tb.control_dependencies([c * 2.0]):
            return i + 1, x + 1.0

    assert session.run(tb.while_loop(lambda i, x: i < 3, body, [0, 0.0])[1], {c: 1.0}) == 3.0


def test_a_control_input_of_the_whole_loop(session):  # testWhileWithControl_3
    v = tb.Variable(0)
    session.run(v.initializer)
    with tb.control_dependencies([v.assign_add(1)]):
        y = tb.while_loop(lambda i: i < 4, lambda i: i + 1, [0])
    assert session.run(y) == 4
    assert session.run(v) == 1


def test_a_control_input_on_a_loops_result(session):  # testWhileCondExitControl
    v = tb.Variable(1)
    session.run(v.initializer)
    y = tb.while_loop(lambda i: i < 5, lambda i: i + 1, [0])
    with tb.control_dependencies([y]):
        after = v.assign_add(10)
    assert session.run(after) == 11


def test_a_control_input_within_a_branch_within_a_loop(session):  # testWhileCondWithControl_1
    v = tb.Variable(0)
    session.run(v.initializer)

    def body(i):
        def add():
            with tb.control_dependencies([v.assign_add(1)]):
                return i + 1

        return tb.cond(tb.equal(i % 2, 0), add, lambda: i + 1)

    assert session.run(tb.while_loop(lambda i: i < 6, body, [0])) == 6
    assert session.run(v) == 3


# Variables and queues in loops: testWhileUpdateVariable_*, testWhileQueue_1 -----------------------------


def test_a_loop_adds_to_a_variable(session):
    v = tb.Variable(3)
    session.run(v.initializer)

    def body(i):
        with tb.control_dependencies([v.assign_add(2)]):
            return i + 1

    assert session.run(tb.while_loop(lambda i: i < 5, body, [0])) == 5
    assert session.run(v) == 13


def test_a_loop_reads_what_it_has_written(session):
    v = tb.Variable(1)
    session.run(v.initializer)

    def body(i, total):
        with tb.control_dependencies([v.assign(v.read_value() * 2)]):
            return i + 1, total + v.read_value()

    assert (
        session.run(tb.while_loop(lambda i, t: i < 4, body, [0, 0], parallel_iterations=1))[1]
        == 2 + 4 + 8 + 16
    )
    assert session.run(v) == 16


def test_scattered_updates_in_a_loop(session):  # testWhileUpdateVariable_1
    v = tb.Variable(tb.zeros([4]))
    session.run(v.initializer)

    def body(i):
        with tb.control_dependencies([tb.scatter_add(v, tb.expand_dims(i, 0), [1.0])]):
            return i + 1

    session.run(tb.while_loop(lambda i: i < 3, body, [0]))
    np.testing.assert_array_equal(session.run(v), [1, 1, 1, 0])


def test_a_variable_in_the_condition(session):
    v = tb.Variable(0)
    session.run(v.initializer)

    def body(i):
        with tb.control_dependencies([v.assign_add(1)]):
            return i + 10

    y = tb.while_loop(lambda i: v.read_value() < 5, body, [0], parallel_iterations=1)
    assert session.run(y) == 50


def test_two_variables_are_updated(session):  # testWhileUpdateVariable_5, _6
    a, b = tb.Variable(1.0), tb.Variable(10.0)
    session.run(tb.global_variables_initializer())

    def body(i):
        first = a.assign_add(b.read_value())
        with tb.control_dependencies([first]):
            second = b.assign_add(1.0)
        with tb.control_dependencies([second]):
            return i + 1

    session.run(tb.while_loop(lambda i: i < 3, body, [0], parallel_iterations=1))
    assert session.run([a, b]) == [34.0, 13.0]


def test_a_queue_is_filled_by_a_loop(session):  # testWhileQueue_1
    queue = tb.FIFOQueue(-1, tb.int32, [[]])

    def body(i):
        with tb.control_dependencies([queue.enqueue(i)]):
            return i + 1

    assert session.run(tb.while_loop(lambda i: i < 20, body, [0], parallel_iterations=1)) == 20
    np.testing.assert_array_equal(session.run(queue.dequeue_many(20)), np.arange(20))


def test_random_numbers_differ_in_each_iteration(session):
    _, drawn = tb.while_loop(
        lambda i, r: i < 4,
        lambda i, r: (i + 1, tb.concat([r, tb.random_uniform([1])], 0)),
        [0, tb.zeros([0])],
        shape_invariants=[[], [None]],
    )
    assert len(set(session.run(drawn))) == 4


def test_a_python_function_in_a_loop(session):
    seen = []

    def note(i):
        seen.append(int(i))
        return np.int32(i * 2)

    def body(i, t):
        noted = tb.py_func(note, [i], tb.int32)
        noted.set_shape([])
        return i + 1, t + noted

    assert session.run(tb.while_loop(lambda i, t: i < 4, body, [0, 0], parallel_iterations=1))[1] == 12
    assert seen == [0, 1, 2, 3]


# Feeds, fetches and frames ------------------------------------------------------------------------------


def test_what_is_in_a_loop_cannot_be_fetched_or_fed(session):  # testDifferentFrame, testNonFetchable
    inside = []

    def body(i):
        inside.append(i + 1)
        return inside[-1]

    y = tb.while_loop(lambda i: i < 3, body, [0])
    with pytest.raises((TensorBowError, ValueError), match="loop"):
        session.run(inside[0])
    with pytest.raises((TensorBowError, ValueError), match="loop"):
        session.run(y, {inside[0]: 1})
    with pytest.raises((TensorBowError, ValueError)):
        session.run(inside[0] + tb.constant(1))


def test_a_loop_of_an_unknown_number_of_iterations(session):
    x = tb.placeholder(tb.float32, [])
    steps, _ = tb.while_loop(lambda i, v: v > 1.0, lambda i, v: (i + 1, v / 2.0), [0, x])
    assert [session.run(steps, {x: value}) for value in (16.0, 1.0, 1000.0)] == [4, 0, 10]


def test_two_loops_beside_each_other(session):
    x = tb.placeholder(tb.int32, [])
    one = tb.while_loop(lambda i: i < x, lambda i: i + 1, [0])
    two = tb.while_loop(lambda i: i < x, lambda i: i + 2, [0])
    assert session.run([one, two, one + two], {x: 5}) == [5, 6, 11]


def test_a_loop_after_a_loop(session):
    x = tb.placeholder(tb.int32, [])
    one = tb.while_loop(lambda i: i < x, lambda i: i + 3, [0])
    two = tb.while_loop(lambda i: i > 0, lambda i: i - 2, [one])
    assert session.run(two, {x: 7}) == -1


def test_an_error_in_an_iteration_is_raised(session):
    y = tb.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, tb.check_numerics(x - 1.0, "x") / x), [0, 3.0])
    with pytest.raises(InvalidArgumentError, match="x"):
        session.run(
            tb.while_loop(
                lambda i, x: i < 5, lambda i, x: (i + 1, tb.check_numerics(tb.log(x), "log")), [0, 1.0]
            )
        )
    assert session.run(y)[0] == 5
