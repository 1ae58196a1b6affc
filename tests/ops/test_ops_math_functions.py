"""Functions of `tb.math` alone and of bits: values where a factor is 0, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from tensorbow.errors import InvalidArgumentError
from tests.ops_contract.gradient_check import check_gradients

pytestmark = pytest.mark.usefixtures("session")

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("function", "x", "y", "value", "by_x", "by_y"),
    [
        (tb.math.xlogy, [0, 0, 2], [0, NAN, 4], [0, 0, 2 * np.log(4)], [0, 0, np.log(4)], [0, 0, 0.5]),
        (tb.math.xdivy, [0, 0, 2], [0, NAN, 4], [0, 0, 0.5], [0, 0, 0.25], [0, 0, -0.125]),
        (tb.math.multiply_no_nan, [INF, NAN, 2], [0, 0, 4], [0, 0, 8], [0, 0, 4], [0, 0, 2]),
    ],
)
def test_products_with_zero_are_zero(
    session: tb.Session, function: Any, x: list[float], y: list[float], value: Any, by_x: Any, by_y: Any
) -> None:
    a, b = tb.constant(x, tb.float64), tb.constant(y, tb.float64)
    result = function(a, b)
    found = session.run([result, *tb.gradients(result, [a, b])])
    for each, expected in zip(found, (value, by_x, by_y), strict=True):
        np.testing.assert_allclose(each, expected)
    with pytest.raises(InvalidArgumentError, match=function.__name__):
        function(tb.constant([1]), tb.constant([2]))


def test_a_product_with_a_finite_factor_has_its_slope_at_zero(session: tb.Session) -> None:
    x, y = tb.constant([3.0]), tb.constant([0.0])
    assert session.run(tb.gradients(tb.math.multiply_no_nan(x, y), [x, y])) == [[0.0], [3.0]]


def test_deviations_and_polynomials(session: tb.Session) -> None:
    x = np.random.default_rng(1).normal(size=(3, 4))
    assert np.allclose(session.run(tb.math.reduce_std(x, 1)), x.std(1))
    assert np.allclose(session.run(tb.math.reduce_variance(x, [0], keepdims=True)), x.var(0, keepdims=True))
    check_gradients(lambda given: [tb.math.reduce_std(given, 0)], [x])
    assert np.allclose(session.run(tb.math.polyval([2.0, -1.0, 3.0], x)), np.polyval([2, -1, 3], x))
    assert session.run(tb.math.polyval([], [1.0, 2.0])).tolist() == [0, 0]
    assert session.run(tb.math.polyval([tb.constant(5.0)], 2.0)) == 5
    with pytest.raises(InvalidArgumentError, match="reduce_variance"):
        tb.math.reduce_variance([1, 2])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_bits_of_every_dtype(session: tb.Session, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 5, 97], dtype)
    y = np.array([1, 2, 4, 3], dtype)
    for function, expected in (
        (tb.bitwise.bitwise_and, x & y),
        (tb.bitwise.bitwise_or, x | y),
        (tb.bitwise.bitwise_xor, x ^ y),
        (tb.bitwise.left_shift, x << y),
        (tb.bitwise.right_shift, x >> y),
    ):
        found = session.run(function(x, y))
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    assert session.run(tb.bitwise.invert(x)).tolist() == (~x).tolist()


def test_shifts_are_limited_to_the_bits_there_are(session: tb.Session) -> None:
    x = tb.placeholder(tb.int32, [None])
    y = tb.constant([40, -1, 31])
    shifted = [tb.bitwise.left_shift(x, y), tb.bitwise.right_shift(x, y)]
    left, right = session.run(shifted, {x: [3, 3, -4]})
    assert (left.tolist(), right.tolist()) == ([-(2**31), 3, 0], [0, 3, -1])
    with pytest.raises(InvalidArgumentError, match=r"BitwiseAnd.*float32"):
        tb.bitwise.bitwise_and(tb.constant([1.0]), tb.constant([2.0]))


def test_classes_under_their_later_name(session: tb.Session) -> None:
    drawn = tb.random.categorical(tb.log([[0.0, 1.0], [1.0, 0.0]]), 3, tb.int32, seed=1)
    found = session.run(drawn)
    assert (found.dtype, found.tolist()) == (np.int32, [[1] * 3, [0] * 3])


def test_further_names(session: tb.Session) -> None:
    x = np.random.default_rng(4).normal(size=(2, 5, 3)).astype(np.float32)
    pairs = np.stack([x[:, :-1], x[:, 1:]])
    assert np.allclose(session.run(tb.nn.max_pool1d(x, 2, 1, "VALID")), pairs.max(0))
    assert np.allclose(session.run(tb.nn.avg_pool1d(x, [2], [1], "VALID")), pairs.mean(0))
    turned = tb.nn.max_pool1d(x.transpose(0, 2, 1), 2, 2, "SAME", data_format="NCW")
    expected = np.stack([x[:, :2].max(1), x[:, 2:4].max(1), x[:, 4]], 2)
    assert np.allclose(session.run(turned), expected)
    assert tb.nn.depth_to_space is tb.depth_to_space
    w, b = np.ones((3, 2), np.float32), np.array([0.5, -0.5], np.float32)
    assert np.allclose(session.run(tb.nn.relu_layer(x[0], w, b)), np.maximum(x[0] @ w + b, 0), atol=1e-6)
    square = np.arange(4.0).reshape(2, 2)
    assert session.run(tb.where_v2([True, False], square, -square)).tolist() == [[0, -1], [2, -3]]
    assert session.run(tb.where([True, False], square, -square)).tolist() == [[0, 1], [-2, -3]]
    assert session.run(tb.where_v2([False, True])).tolist() == [[1]]
    assert session.run(tb.guarantee_const([1.0])).tolist() == [1]
    assert [tb.is_tensor(each) for each in (tb.constant(1), tb.Variable(1.0), 1.0, square)] == [
        True,
        True,
        False,
        False,
    ]
    assert not tb.executing_eagerly()
    tb.set_random_seed(3)
    assert tb.get_seed(5) == (3, 5)
