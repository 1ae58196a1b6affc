"""Assertions, checks of NaN and infinity, printed values."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError

pytestmark = pytest.mark.usefixtures("session")


def test_an_assertion_guards_what_depends_on_it(session):
    x = tb.placeholder(tb.float32, [None], name="x")
    with tb.control_dependencies([tb.Assert(x > 0.0, [x, "sizes", tb.size(x)][::2], summarize=2)]):
        y = x * 2.0
    np.testing.assert_array_equal(session.run(y, {x: [1.0, 2.0]}), [2.0, 4.0])
    with pytest.raises(
        InvalidArgumentError, match=r"assertion failed: : \[1.0 -2.0\.\.\.\] \[3\].*test_ops_checks"
    ):
        session.run(y, {x: [1.0, -2.0, 3.0]})
    np.testing.assert_array_equal(session.run(y, {x: [5.0]}), [10.0])


CASES = {
    tb.assert_equal: ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]),
    tb.assert_none_equal: ([1.0, 2.0], [2.0, 1.0], [3.0, 2.0]),
    tb.assert_less: ([1.0, 2.0], [2.0, 2.5], [2.0, 2.0]),
    tb.assert_less_equal: ([1.0, 2.0], [2.0, 2.0], [2.0, 1.0]),
    tb.assert_greater: ([1.0, 2.0], [0.0, 1.0], [0.0, 2.0]),
    tb.assert_greater_equal: ([1.0, 2.0], [1.0, 1.0], [1.5, 1.0]),
    tb.assert_near: ([1.0, 2.0], [1.0, 2.0 + 1e-6], [1.0, 2.001]),
}


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_comparisons_of_two(session, check):
    first, good, bad = CASES[check]
    x, y = tb.placeholder(tb.float32, [2], name="x"), tb.placeholder(tb.float32, [2], name="y")
    made = check(x, y, message="my message")
    assert session.run(made, {x: first, y: good}) is None
    with pytest.raises(
        InvalidArgumentError, match=rf"{check.__name__}: my message.*x:0.*y:0: \[1.0 2.0\] \["
    ):
        session.run(made, {x: first, y: bad})
    if check is not tb.assert_near:  # known values are compared while the graph is built
        session.run(check(first, good))
        with pytest.raises(
            InvalidArgumentError, match=rf"{check.__name__}: expected x .* y, got x \[1.0 2.0\]"
        ):
            check(first, bad)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (tb.assert_positive, [1, 2], [1, 0]),
        (tb.assert_negative, [-1, -2], [-1, 0]),
        (tb.assert_non_negative, [0, 2], [0, -1]),
        (tb.assert_non_positive, [0, -2], [0, 1]),
    ],
)
def test_comparisons_to_zero(session, check, good, bad):
    x = tb.placeholder(tb.int32, [None])
    made = check(x)
    session.run(made, {x: good})
    session.run(made, {x: []})
    with pytest.raises(InvalidArgumentError, match=check.__name__):
        session.run(made, {x: bad})
    with pytest.raises(InvalidArgumentError, match=check.__name__):
        check(bad)


def test_static_checks(session):
    x = tb.placeholder(tb.float32, [None, 3])
    session.run([tb.assert_rank(x, 2), tb.assert_rank_at_least(x, 1), tb.assert_type(x, tb.float32)])
    session.run([tb.assert_integer([1]), tb.assert_scalar(1.0)])
    unknown = tb.placeholder(tb.float32)
    for wrong, message in (
        (
            lambda: tb.assert_rank(x, 3, message="images"),
            r"assert_rank: images: expected rank 3, got float32",
        ),
        (lambda: tb.assert_rank_at_least(x, 3), "expected rank 3 or more"),
        (
            lambda: tb.assert_rank(unknown, 3),
            "the rank of Placeholder_1:0 is unknown; give it a static shape",
        ),
        (lambda: tb.assert_type(x, tb.int32), "expected dtype int32, got float32"),
        (lambda: tb.assert_integer(x), "expected a dtype of integers"),
        (lambda: tb.assert_scalar(x), "expected a scalar"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            wrong()


def test_nan_and_infinity_are_found_in_values_and_gradients(session):
    x = tb.placeholder(tb.float32, [None, 2])
    y = tb.check_numerics(x, "my x")
    (gradient,) = tb.gradients(tb.sqrt(tb.verify_tensor_all_finite(x, "root")), x)
    np.testing.assert_array_equal(session.run(y, {x: [[1.0, 2.0]]}), [[1.0, 2.0]])
    with pytest.raises(
        InvalidArgumentError, match=r"my x: tensor has NaN and infinity, 2 of 4 elements.*at \[0, 1\]"
    ):
        session.run(y, {x: [[1.0, np.nan], [np.inf, 0.0]]})
    np.testing.assert_array_equal(session.run(gradient, {x: [[1.0, 4.0]]}), [[0.5, 0.25]])
    with pytest.raises(InvalidArgumentError, match=r"gradient: root: tensor has infinity, 1 of 2"):
        session.run(gradient, {x: [[0.0, 1.0]]})


@pytest.mark.parametrize("dtype", [tb.float16, tb.bfloat16])
def test_halves_are_checked(session, dtype):
    x = tb.placeholder(dtype, [2])
    y = tb.check_numerics(x, "halves")
    assert session.run(y, {x: [1.0, 2.0]}).tolist() == [1.0, 2.0]
    with pytest.raises(InvalidArgumentError, match=r"halves: tensor has infinity, 1 of 2"):
        session.run(y, {x: [1.0, np.inf]})


def test_every_tensor_is_checked_and_the_first_bad_op_is_named(session):
    x, v = tb.placeholder(tb.float32, [2], name="x"), tb.Variable([1.0, 1.0], name="v")
    y = tb.exp(tb.log(x, name="log") * v, name="exp")
    tb.cond(tb.reduce_sum(x) > 0.0, lambda: x, lambda: x / 0.0)
    check = tb.add_check_numerics_ops()
    session.run(v.initializer)
    np.testing.assert_allclose(session.run([y, check], {x: [1.0, 2.0]})[0], [1.0, 2.0], rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match=r"log:0: tensor has infinity"):
        session.run([y, check], {x: [1.0, 0.0]})


def test_print_shows_values_in_every_step_and_passes_gradients(session, capfd):
    x = tb.placeholder(tb.float32, [None])
    y = tb.Print(x, [x, tb.shape(x)], message="x: ")
    few = tb.Print(x, [tb.reduce_sum(x)], "sum ", first_n=2, summarize=-1)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(y * 2.0, {x: [1.0, 2.0, 3.0, 4.0]}), [2.0, 4.0, 6.0, 8.0])
        session.run(few, {x: [1.0, 2.0]})
    shown = capfd.readouterr().err.splitlines()
    assert shown.count("x: [1.0 2.0 3.0...][4]") == 3
    assert shown.count("sum [3.0]") == 2
    np.testing.assert_array_equal(session.run(tb.gradients(y * 3.0, x)[0], {x: [1.0]}), [3.0])


def test_checks_work_in_steps_of_replicas(capfd):
    def step_fn(x):
        with tb.control_dependencies([tb.assert_less(x, 3.5)]):
            return tb.Print(tb.reduce_sum(x), [x], message="got ")

    def input_fn(replica_id):
        while True:
            yield np.array([1.0, 2.0 + 2.0 * replica_id], np.float32)

    replicator = tb.MultiGpuReplicator(["/cpu:0", "/cpu:1"])
    with replicator.context(), pytest.raises(InvalidArgumentError, match="assert_less: expected x < y"):
        next(iter(replicator.train(step_fn, input_fn, steps=1)))
    assert "got [1.0 2.0]" in capfd.readouterr().err


def test_bincount(session):
    x = tb.placeholder(tb.int32, [None])
    for values in ([3, 1, 1, 7], [], [-1, 2]):
        counts = session.run(tb.bincount(x), {x: values})
        np.testing.assert_array_equal(counts, np.bincount([v for v in values if v >= 0]))
    limited = tb.bincount(x, minlength=4, maxlength=6)
    np.testing.assert_array_equal(session.run(limited, {x: [9, 1]}), [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(session.run(limited, {x: [1]}), [0, 1, 0, 0])
    weights = tb.placeholder(tb.float32, [None])
    sums = tb.bincount(x, weights, minlength=3, maxlength=3)
    fed = {x: [2, 0, 2], weights: [0.5, 1.0, 2.0]}
    np.testing.assert_array_equal(session.run(sums, fed), [1.0, 0.0, 2.5])
    np.testing.assert_array_equal(session.run(tb.gradients(sums[2], weights)[0], fed), [1.0, 0.0, 1.0])


def test_ranks_and_dtypes_of_a_list(session):
    x, whole = tb.placeholder(tb.float32, [2, None]), tb.constant(1)
    session.run(tb.assert_rank_in(x, [1, 2]))
    with pytest.raises(InvalidArgumentError, match="assert_rank_in: pixels: expected a rank of 1, 3"):
        tb.assert_rank_in(x, [1, 3], message="pixels")
    assert tb.assert_same_float_dtype() == tb.float32
    assert tb.assert_same_float_dtype([tb.zeros([1], tb.float64)]) == tb.float64
    with pytest.raises(InvalidArgumentError, match="expected float32, got int32"):
        tb.assert_same_float_dtype([x, whole])
    with pytest.raises(InvalidArgumentError, match=r"expected a floating dtype, got int32"):
        tb.assert_same_float_dtype(dtype=tb.int32)
    tb.assert_proper_iterable({"a": 1})
    for other in ("ab", x, np.ones(2), 3):
        with pytest.raises(InvalidArgumentError, match="values to be a list or another iterable"):
            tb.assert_proper_iterable(other)
    assert [*map(tb.is_numeric_tensor, (x, whole, tb.constant([True]), tb.constant("a"), 3))] == [
        *(True, True, False, False, False)
    ]


def test_order(session):
    x = tb.placeholder(tb.int32)
    both = tb.is_non_decreasing(x), tb.is_strictly_increasing(x)
    for value, expected in (
        ([1, 2, 5], (True, True)),
        ([[1, 1], [3, 4]], (True, False)),
        ([2, 1], (False, False)),
        ([], (True, True)),
        (7, (True, True)),
    ):
        assert session.run(both, {x: value}) == expected
