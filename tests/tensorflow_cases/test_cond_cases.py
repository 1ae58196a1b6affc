"""Branches: TensorFlow 1's cases of cond and case, of their gradients, of groups and of dependencies."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, TensorBowError


def scalar(dtype=tb.float32, name="x"):
    return tb.placeholder(dtype, [], name=name)


# Switch and merge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "expected"), [(True, 7.0), (False, 2.0)])
def test_only_the_live_branch_is_computed(session, value, expected):  # testSwitchDeadBranch, testCond_1
    p = scalar(tb.bool)
    bad = tb.placeholder(tb.float32, [], name="not_fed")
    y = tb.cond(p, lambda: tb.constant(7.0), lambda: tb.constant(2.0))
    assert session.run(y, {p: value}) == expected
    assert session.run(tb.cond(p, lambda: bad * 0.0, lambda: tb.constant(1.0)), {p: False, bad: 3.0}) == 1.0


def test_a_failing_operation_of_the_dead_branch_does_not_run(session):
    x = scalar()
    y = tb.cond(x > 0.0, lambda: tb.check_numerics(tb.log(x), "log"), lambda: x * 0.0)
    assert session.run(y, {x: -1.0}) == 0.0
    assert session.run(y, {x: 1.0}) == 0.0


@pytest.mark.parametrize("kind", ["less", "identity_then_add", "mul"])
def test_merged_values_are_used_outside(session, kind):  # testSwitchMergeLess, ...AddIdentity, ...AddMul
    x = scalar()
    chosen = tb.cond(tb.less(x, 4.0), lambda: x + 1.0, lambda: x * 10.0)
    following = {"less": chosen < 5.0, "identity_then_add": tb.identity(chosen) + 1.0, "mul": chosen * 2.0}[
        kind
    ]
    expected = {"less": (True, False), "identity_then_add": (4.0, 51.0), "mul": (6.0, 100.0)}[kind]
    assert (session.run(following, {x: 2.0}), session.run(following, {x: 5.0})) == expected


def test_indexed_slices_pass_a_cond(session):  # testCondIndexedSlices, testSwitchMergeIndexedSlices
    p = scalar(tb.bool)
    values, indices = tb.constant([[1.0], [2.0]]), tb.constant([1, 3])
    doubled = tb.cond(
        p,
        lambda: tb.IndexedSlices(values * 2.0, indices, [4, 1]),
        lambda: tb.IndexedSlices(values, indices - 1, [4, 1]),
    )
    assert isinstance(doubled, tb.IndexedSlices)
    for fed, expected in ((True, ([[2], [4]], [1, 3])), (False, ([[1], [2]], [0, 2]))):
        got = session.run([doubled.values, doubled.indices], {p: fed})
        for each, wanted in zip(got, expected, strict=True):
            np.testing.assert_array_equal(each, wanted)


def test_sparse_tensors_pass_a_cond(session):  # testCondSparseTensor
    p = scalar(tb.bool)
    sparse = tb.SparseTensor(
        tb.constant([[0], [3]], tb.int64), tb.constant([2.0, 4.0]), tb.constant([5], tb.int64)
    )
    y = tb.cond(
        p,
        lambda: tb.SparseTensor(sparse.indices, sparse.values + 1.0, sparse.dense_shape),
        lambda: sparse,
    )
    np.testing.assert_array_equal(session.run(y, {p: True}).values, [3, 5])
    np.testing.assert_array_equal(session.run(y, {p: False}).values, [2, 4])
    np.testing.assert_array_equal(session.run(y, {p: False}).dense_shape, [5])


# cond: testCond_* ---------------------------------------------------------------------------------------


def test_a_branch_computes_with_outer_tensors(session):  # testCond_1, testCond_2
    x, limit = tb.placeholder(tb.float32, [2]), scalar()
    y = tb.cond(tb.reduce_sum(x) < limit, lambda: x + 1.0, lambda: x - 1.0)
    np.testing.assert_array_equal(session.run(y, {x: [1, 2], limit: 10}), [2, 3])
    np.testing.assert_array_equal(session.run(y, {x: [1, 2], limit: 1}), [0, 1])


def test_conds_in_conds(session):  # testCond_3
    x = scalar()
    y = tb.cond(
        x < 10.0,
        lambda: tb.cond(x < 5.0, lambda: x + 1.0, lambda: x + 2.0),
        lambda: tb.cond(x < 20.0, lambda: x + 3.0, lambda: tb.cond(x < 30.0, lambda: x + 4.0, lambda: x)),
    )
    for value, added in ((0, 1), (6, 2), (12, 3), (22, 4), (40, 0)):
        assert session.run(y, {x: value}) == value + added


def test_a_branch_assigns_to_variables(session):  # testCond_4
    v1, v2, v3 = tb.Variable(7), tb.Variable(7), tb.Variable(7)
    age, limit = tb.constant(3), tb.placeholder(tb.int32, [])

    def both():
        return [tb.assign(v1, 1), tb.assign(v2, 2)]

    y = tb.cond(age > limit, both, lambda: [tb.assign(v3, 3), tb.constant(11)])
    session.run(tb.global_variables_initializer())
    assert session.run(y, {limit: 2}) == [1, 2]
    assert session.run([v1, v2, v3]) == [1, 2, 7]
    assert session.run(y, {limit: 4}) == [3, 11]
    assert session.run([v1, v2, v3]) == [1, 2, 3]


def test_several_conds_share_a_predicate(session):  # testCond_5
    p = scalar(tb.bool)
    one, two = (tb.cond(p, lambda n=n: tb.constant(n), lambda n=n: tb.constant(n) * 10.0) for n in (1.0, 2.0))
    assert session.run([one, two, one + two], {p: True}) == [1.0, 2.0, 3.0]
    assert session.run([one, two, one + two], {p: False}) == [10.0, 20.0, 30.0]


def test_a_cond_returns_the_condition_itself(session):  # testCond_6
    v = tb.Variable(7)
    taken = tb.cond(v.value() > 3, lambda: v.value(), lambda: tb.constant(0))
    session.run(v.initializer)
    assert session.run(taken) == 7


def test_branches_of_several_results(session):  # testCond_7, testCondListOutput
    x = scalar()
    y = tb.cond(x < 1.0, lambda: [x + 10.0, x - 1.0], lambda: [x, x * 2.0])
    assert session.run(y, {x: 0.0}) == [10.0, -1.0]
    assert session.run(y, {x: 3.0}) == [3.0, 6.0]


@pytest.mark.parametrize(
    "nest",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, [b, a]],
        lambda a, b: {"a": a, "b": b},
        lambda a, b: {"a": {"c": [a]}, "b": (b, a)},
        lambda a, b: (a, {"x": b}, [a]),
    ],
    ids=["tuple", "lists", "dict", "nested dict", "mixed"],
)
def test_nests_of_results(session, nest):  # testTupleOutput, testDictOutput, testEmbedded*Output
    x = scalar()
    y = tb.cond(x > 0.0, lambda: nest(x, x + 1.0), lambda: nest(-x, x * x))
    assert session.run(y, {x: 2.0}) == nest(2.0, 3.0)
    assert session.run(y, {x: -3.0}) == nest(3.0, 9.0)


def test_branches_of_unlike_results_are_refused(graph):  # testCheckNestedOutputStruct, testCond_MissingArg
    p = scalar(tb.bool)
    one = tb.constant(1.0)
    for other in (
        lambda: [one],
        lambda: (one, one),
        lambda: {"a": one},
        lambda: tb.constant(1),
        lambda: None,
    ):
        with pytest.raises((TensorBowError, TypeError, ValueError)):
            tb.cond(p, lambda: one, other)
    with pytest.raises((TensorBowError, TypeError, ValueError)):
        tb.cond(p, lambda: {"a": one, "b": one}, lambda: {"a": one, "c": one})
    with pytest.raises((TensorBowError, TypeError)):
        tb.cond(p, true_fn=lambda: one)
    with pytest.raises((TensorBowError, TypeError)):
        tb.cond(p, one, lambda: one)
    with pytest.raises((TensorBowError, TypeError)):
        tb.cond(tb.constant([True, False]), lambda: one, lambda: one)


def test_a_python_bool_as_the_predicate(session):
    # TensorFlow raises a TypeError here; a value that is known chooses the branch while building
    assert session.run(tb.cond(tb.constant(True), lambda: tb.constant(1), lambda: tb.constant(2))) == 1
    assert session.run(tb.cond(tb.constant(False), lambda: tb.constant(1), lambda: tb.constant(2))) == 2


def test_a_branch_may_give_a_constant_and_a_python_number(session):
    p = scalar(tb.bool)
    y = tb.cond(p, lambda: 1.0, lambda: tb.constant(2.0))
    assert (session.run(y, {p: True}), session.run(y, {p: False})) == (1.0, 2.0)


def test_results_are_operations(session):  # testOneOpCond
    v = tb.Variable(0)
    p = scalar(tb.bool)
    done = tb.cond(p, lambda: v.assign(1).op, lambda: v.assign(2).op)
    session.run(v.initializer)
    session.run(done, {p: False})
    assert session.run(v) == 2
    session.run(done, {p: True})
    assert session.run(v) == 1


def test_an_uninitialised_variable_of_the_dead_branch(session):  # testUninitializedRefIdentity
    v = tb.Variable(0.0, name="unset")
    p = scalar(tb.bool)
    ready = tb.Variable(1.0)
    session.run(ready.initializer)
    y = tb.cond(p, lambda: ready.read_value(), lambda: tb.assign(v, 5.0))
    assert session.run(y, {p: True}) == 1.0
    with pytest.raises(FailedPreconditionError, match="unset"):  # the branch that writes it did not run
        session.run(v)
    assert session.run(y, {p: False}) == 5.0
    assert session.run(v) == 5.0
    assert session.run(y, {p: True}) == 1.0
    other = tb.Variable(1.0, name="other")
    read = tb.cond(p, lambda: tb.constant(0.0), lambda: other.read_value() * 2.0)
    with pytest.raises(FailedPreconditionError, match="other"):
        session.run(read, {p: False})
    assert session.run(read, {p: True}) == 0.0


def test_a_cond_over_devices(graph):  # testCondColocation, testCondRecvIdentity
    x = scalar()
    with tb.device("/cpu:0"):
        y = tb.cond(x > 1.0, lambda: tb.identity(x), lambda: x + 1.0)
    with tb.device("/cpu:0"):
        z = y * 2.0
    with tb.Session(devices=["/cpu:0"]) as session:
        assert [session.run(z, {x: value}) for value in (3.0, 0.0)] == [6.0, 2.0]


def test_unknown_shapes_of_branches_are_joined(session):
    p = scalar(tb.bool)
    rows = tb.placeholder(tb.float32, [None, 2])
    y = tb.cond(p, lambda: tb.zeros([1, 2]), lambda: rows)
    assert y.shape.as_list() == [None, 2]
    assert session.run(y, {p: True, rows: np.ones((3, 2))}).shape == (1, 2)
    assert session.run(y, {p: False, rows: np.ones((3, 2))}).shape == (3, 2)


def test_results_of_different_rank(session):
    p = scalar(tb.bool)
    y = tb.cond(p, lambda: tb.zeros([2]), lambda: tb.zeros([2, 3]))
    assert y.shape.ndims is None
    assert session.run(tb.shape(y), {p: False}).tolist() == [2, 3]


def test_a_control_input_of_the_whole_cond(session):
    v = tb.Variable(0)
    session.run(v.initializer)
    p = scalar(tb.bool)
    with tb.control_dependencies([v.assign_add(1)]):
        y = tb.cond(p, lambda: tb.constant(1), lambda: tb.constant(2))
    session.run(y, {p: True})
    session.run(y, {p: False})
    assert session.run(v) == 2


def test_what_depends_on_a_branch_waits_for_it(session):
    v = tb.Variable(1)
    session.run(v.initializer)
    p = scalar(tb.bool)
    done = tb.cond(p, lambda: v.assign(5), lambda: tb.constant(0))
    with tb.control_dependencies([done]):
        after = v.read_value() + 0
    assert session.run(after, {p: False}) == 1
    assert session.run(after, {p: True}) == 5


def test_a_queue_in_a_branch(session):
    queue = tb.FIFOQueue(5, tb.int32, [[]])
    session.run(queue.enqueue_many([[1, 2, 3]]))
    p = scalar(tb.bool)
    y = tb.cond(p, lambda: queue.dequeue(), lambda: tb.constant(-1))
    assert [session.run(y, {p: fed}) for fed in (True, False, True)] == [1, -1, 2]
    assert session.run(queue.size()) == 1


# Gradients: testCondGrad_* ------------------------------------------------------------------------------


def test_gradient_of_the_branch_taken(session):  # testCondGrad_1, testCondGrad_2
    x = scalar()
    y = tb.cond(x > 1.0, lambda: x * 10.0, lambda: x * x)
    (slope,) = tb.gradients(y, x)
    assert session.run(slope, {x: 2.0}) == 10.0
    assert session.run(slope, {x: 0.5}) == 1.0


def test_gradient_of_a_cond_in_a_cond(session):  # testCondGrad_3
    c, x = tb.placeholder(tb.int32, []), scalar()
    outer = tb.cond(
        tb.equal(c, 1), lambda: x * 3.0, lambda: tb.cond(tb.equal(c, 2), lambda: x * x, lambda: x + x)
    )
    (slope,) = tb.gradients(outer, x)
    assert [session.run(slope, {c: n, x: 5.0}) for n in (1, 2, 3)] == [3.0, 10.0, 2.0]


def test_gradient_of_a_variable_through_a_cond(session):  # testCondGrad_4
    w = tb.Variable(3.0)
    p = scalar(tb.bool)
    loss = tb.cond(p, lambda: w * w, lambda: w * 7.0)
    update = tb.train.GradientDescentOptimizer(0.5).minimize(loss)
    session.run(w.initializer)
    session.run(update, {p: False})
    assert session.run(w) == -0.5
    session.run(update, {p: True})
    assert session.run(w) == 0.0


def test_gradient_of_a_gather_in_a_branch(session):  # testCondGrad_Gather
    w = tb.Variable([1.0, 2.0, 3.0])
    p = scalar(tb.bool)
    y = tb.cond(p, lambda: tb.reduce_sum(tb.gather(w, [0, 2, 2])), lambda: tb.reduce_sum(w * w))
    (slope,) = tb.gradients(y, [w])
    slope = tb.convert_to_tensor(slope)
    session.run(w.initializer)
    np.testing.assert_array_equal(session.run(slope, {p: True}), [1, 0, 2])
    np.testing.assert_array_equal(session.run(slope, {p: False}), [2, 4, 6])


def test_a_branch_that_does_not_use_x_has_gradient_zero(session):
    x = scalar()
    y = tb.cond(x > 0.0, lambda: x * 4.0, lambda: tb.constant(2.0))
    (slope,) = tb.gradients(y, x)
    assert session.run(slope, {x: -1.0}) == 0.0
    assert session.run(slope, {x: 1.0}) == 4.0


def test_the_gradient_of_both_results(session):
    x = scalar()
    a, b = tb.cond(x > 0.0, lambda: [x * 2.0, x * x], lambda: [x * 3.0, -x])
    (slope,) = tb.gradients([a, b], x)
    assert session.run(slope, {x: 3.0}) == 8.0
    assert session.run(slope, {x: -3.0}) == 2.0


def test_a_gradient_taken_within_a_branch(session):  # testGradThroughSingleBranchOutsideOfContext
    x = scalar()
    y = tb.cond(x > 0.0, lambda: tb.gradients(x * x, x)[0], lambda: tb.gradients(x * 7.0, x)[0])
    assert session.run(y, {x: 5.0}) == 10.0
    assert session.run(y, {x: -5.0}) == 7.0


def test_second_derivatives(session):
    x = scalar()
    y = tb.cond(x > 0.0, lambda: x * x * x, lambda: x * x)
    (first,) = tb.gradients(y, x)
    (second,) = tb.gradients(first, x)
    assert session.run([first, second], {x: 2.0}) == [12.0, 12.0]
    assert session.run([first, second], {x: -2.0}) == [-4.0, 2.0]


# case: testCase_* ---------------------------------------------------------------------------------------


def choice(x, **options):
    return tb.case(
        [
            (tb.equal(x, 1), lambda: tb.constant(10)),
            (tb.equal(x, 2), lambda: tb.constant(20)),
            *options.pop("more", []),
        ],
        **options,
    )


def test_case_with_a_default(session):
    x = tb.placeholder(tb.int32, [])
    y = choice(x, default=lambda: tb.constant(-1), exclusive=True)
    assert [session.run(y, {x: n}) for n in (1, 2, 3)] == [10, 20, -1]


def test_case_takes_the_first_of_several_matches(session):
    x = tb.placeholder(tb.int32, [])
    y = choice(x, default=lambda: tb.constant(-1), more=[(tb.equal(x, 1), lambda: tb.constant(30))])
    assert session.run(y, {x: 1}) == 10


def test_case_refuses_several_matches_if_exclusive(session):
    x = tb.placeholder(tb.int32, [])
    more = [(tb.equal(x, 2), lambda: tb.constant(30))]
    y = choice(x, default=lambda: tb.constant(-1), more=more, exclusive=True)
    assert session.run(y, {x: 1}) == 10
    with pytest.raises(InvalidArgumentError, match="true at once"):
        session.run(y, {x: 2})


def test_case_without_a_default(session):
    x = tb.placeholder(tb.int32, [])
    y = choice(x, exclusive=True)
    assert [session.run(y, {x: n}) for n in (1, 2)] == [10, 20]
    with pytest.raises(InvalidArgumentError):
        session.run(y, {x: 4})


def test_case_of_one_condition_without_a_default(session):
    x = tb.placeholder(tb.int32, [])
    y = tb.case([(tb.equal(x, 1), lambda: tb.constant(10))])
    assert session.run(y, {x: 1}) == 10
    with pytest.raises(InvalidArgumentError):
        session.run(y, {x: 2})


def test_case_of_a_dictionary(session):
    x = tb.placeholder(tb.int32, [])
    y = tb.case(
        {tb.equal(x, 1): lambda: tb.constant(2), tb.equal(x, 3): lambda: tb.constant(4)},
        default=lambda: tb.constant(6),
        exclusive=True,
    )
    assert [session.run(y, {x: n}) for n in (1, 3, 5)] == [2, 4, 6]


def test_case_runs_the_effects_of_its_branch_alone(session):  # testCase_SideEffects
    v = [tb.Variable(-1) for _ in range(3)]
    x = tb.placeholder(tb.int32, [])
    y = tb.case(
        [(tb.equal(x, n), lambda n=n: v[n].assign(n)) for n in (0, 1)], default=lambda: v[2].assign(2)
    )
    session.run(tb.global_variables_initializer())
    assert session.run(y, {x: 1}) == 1
    assert session.run(v) == [-1, 1, -1]
    assert session.run(y, {x: 9}) == 2
    assert session.run(v) == [-1, 1, 2]


def test_gradient_of_a_case(session):
    x = scalar()
    y = tb.case([(x > 10.0, lambda: x * 2.0), (x > 0.0, lambda: x * x)], default=lambda: -x)
    (slope,) = tb.gradients(y, x)
    assert [session.run(slope, {x: value}) for value in (11.0, 3.0, -2.0)] == [2.0, 6.0, -1.0]


@pytest.mark.parametrize(
    "pairs", [3, [3], [(tb.float32, lambda: 1)], [(True,)]], ids=["number", "numbers", "dtype", "no function"]
)
def test_what_is_no_case_is_refused(graph, pairs):
    with pytest.raises((TensorBowError, TypeError)):
        tb.case(pairs, default=lambda: tb.constant(1))


# group, tuple, dependencies: GroupTestCase, WithDependenciesTestCase, TupleTest -------------------------


def test_an_empty_group(session):
    assert session.run(tb.group()) is None


def test_a_group_of_one_and_of_many(session):
    v = [tb.Variable(0) for _ in range(3)]
    session.run(tb.global_variables_initializer())
    session.run(tb.group(v[0].assign(1)))
    session.run(tb.group(*[each.assign_add(4) for each in v]))
    assert session.run(v) == [5, 4, 4]


def test_a_group_over_devices(graph):  # testGroup_MultiDevices
    with tb.device("/cpu:0"):
        a = tb.Variable(0, name="a")
    with tb.device("/cpu:1"):
        b = tb.Variable(0, name="b")
    both = tb.group(a.assign(3).op, b.assign(4).op)
    with tb.Session(devices=["/cpu:1"]) as session:
        session.run(both)
        assert session.run([a, b]) == [3, 4]


def test_a_group_takes_nests_of_lists(session):
    v = tb.Variable(0)
    session.run(v.initializer)
    session.run(tb.group(v.assign_add(1), tb.no_op()))
    assert session.run(v) == 1


def test_what_is_no_operation_cannot_be_grouped(graph):
    for wrong in (1, [1], "text"):
        with pytest.raises((TensorBowError, TypeError)):
            tb.group(wrong)


def test_tuple_waits_for_all_of_its_tensors(session):  # TupleTest.testTensors
    counts = [tb.Variable(0) for _ in range(3)]
    session.run(tb.global_variables_initializer())
    first, _, third = tb.tuple([each.assign_add(n + 1) for n, each in enumerate(counts)])
    assert session.run(first) == 1
    assert session.run(counts) == [1, 2, 3]
    assert session.run(third) == 6
    assert session.run(counts) == [2, 4, 6]


def test_tuple_keeps_none_and_takes_control_inputs(session):  # testAcceptTensorsAsControlInputs
    v = tb.Variable(0)
    session.run(v.initializer)
    waits = v.assign(7)
    x, nothing = tb.tuple([tb.constant(1.0), None], control_inputs=[waits])
    assert nothing is None
    assert session.run(x) == 1.0
    assert session.run(v) == 7


def test_tuple_of_indexed_slices(session):
    v = tb.Variable(0)
    session.run(v.initializer)
    slices = tb.IndexedSlices(tb.constant([[1.0]]), tb.constant([2]), [4, 1])
    first, _ = tb.tuple([slices, v.assign(3)])
    np.testing.assert_array_equal(session.run(first.values), [[1]])
    assert session.run(v) == 3


def test_a_read_after_its_assignment(session):  # WithDependenciesTestCase
    v = tb.Variable(0)
    session.run(v.initializer)
    with tb.control_dependencies([v.assign(11)]):
        read = tb.identity(v.read_value())
    assert session.run(read) == 11


def test_dependencies_of_a_cond_pass_into_it(session):
    v = tb.Variable(0)
    session.run(v.initializer)
    p = scalar(tb.bool)
    write = v.assign_add(1)

    def branch():
        with tb.control_dependencies([write]):
            return tb.constant(3)

    y = tb.cond(p, branch, lambda: tb.constant(4))
    assert session.run(y, {p: True}) == 3
    assert session.run(v) == 1


def test_a_constant_of_a_branch_waits_for_what_it_depends_on(session):
    v = tb.Variable(0)
    session.run(v.initializer)
    p = scalar(tb.bool)

    def write(value):
        with tb.control_dependencies([v.assign(value)]):
            return tb.constant(value * 10)

    y = tb.cond(p, lambda: write(1), lambda: write(2))
    assert (session.run(y, {p: True}), session.run(v)) == (10, 1)
    assert (session.run(y, {p: False}), session.run(v)) == (20, 2)
    last = tb.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, write(7)), [0, 0])[1]
    assert (session.run(last), session.run(v)) == (70, 7)


# Assert: AssertTest -------------------------------------------------------------------------------------


def test_an_assertion_passes_or_raises_with_its_data(session):
    x = scalar()
    with tb.control_dependencies([tb.Assert(x > 0.0, [x])]):
        y = x * 2.0
    assert session.run(y, {x: 2.0}) == 4.0
    with pytest.raises(InvalidArgumentError, match=r"-3"):
        session.run(y, {x: -3.0})


def test_an_assertion_in_the_dead_branch_does_not_run(session):
    x = scalar()

    def checked():
        with tb.control_dependencies([tb.Assert(x < 10.0, [x])]):
            return tb.identity(x)

    y = tb.cond(x > 0.0, checked, lambda: x)
    assert session.run(y, {x: -20.0}) == -20.0
    with pytest.raises(InvalidArgumentError):
        session.run(y, {x: 20.0})
