"""Public behaviour of the element-wise ops: operators, dtypes, refusals, extremes."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import InvalidArgumentError
from tensorbow.gradients import gradients
from tensorbow.graph import Graph
from tensorbow.ops import elementwise, matmul, slicing  # noqa: F401  (they install operators)
from tensorbow.ops.broadcasting import sum_to
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.control import placeholder
from tensorbow.ops.elementwise import (
    clip_by_value,
    div,
    divide,
    floordiv,
    maximum,
    minimum,
    relu,
    sigmoid,
)
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.selection import cast
from tensorbow.ops.sums import add_n
from tensorbow.specs import float32, float64, int32
from tests.ops_contract.collection import product_ops
from tests.ops_contract.interpreter import run_graph

pytestmark = pytest.mark.usefixtures("graph")


def value(tensor):
    return run_graph([tensor], {})[0]


X = np.array([[1.5, -2.0], [0.5, 3.0]], np.float32)
Y = np.array([[2.0, 4.0], [-1.0, 0.25]], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: x // y,
        lambda x, y: x % y,
        lambda x, y: abs(x) ** y,
        lambda x, y: x @ y,
        lambda x, y: -x,
        lambda x, y: abs(x),
        lambda x, y: x < y,
        lambda x, y: x <= y,
        lambda x, y: x > y,
        lambda x, y: x >= y,
        lambda x, y: (x < y) & (x < 1),
        lambda x, y: (x < y) | (x < 1),
        lambda x, y: ~(x < y),
        lambda x, y: x[1:, ::-1],
        lambda x, y: 2 + x,
        lambda x, y: 2 - x,
        lambda x, y: 2 * x,
        lambda x, y: 2.5 / x,
        lambda x, y: 7 // x,
        lambda x, y: 7 % x,
        lambda x, y: 2**x,
        lambda x, y: x > 1,
        lambda x, y: Y @ x,
        lambda x, y: Y + x,
        lambda x, y: Y / x,
    ],
)
def test_operators_are_those_of_numpy(function):
    result = function(constant(X), constant(Y))
    np.testing.assert_allclose(value(result), function(X, Y), rtol=1e-6)
    assert result.dtype == function(X, Y).dtype


def test_equality_is_identity():
    x, y = constant(X), constant(X)
    assert x == x
    assert x != y
    assert len({x, y}) == 2


def test_integers_divide_as_in_tensorflow():
    x = constant([7, -7])
    assert divide(x, 2).dtype == float64
    assert value(x / 2).tolist() == [3.5, -3.5]
    assert value(divide(cast(x, "uint8"), cast(constant([2, 2]), "uint8"))).dtype == np.float32
    assert value(div(x, 2)).tolist() == [3, -4]
    assert value(x // 2).tolist() == [3, -4]
    assert value(div(constant(7.0), 2)) == 3.5
    assert value(14 / x).tolist() == [2.0, -2.0]


def test_integer_division_by_zero_is_refused():
    with pytest.raises(InvalidArgumentError, match="FloorDiv: integer division by zero"):
        value(floordiv(constant([7, 8]), constant([1, 0])))


def test_dtypes_do_not_mix():
    with pytest.raises(InvalidArgumentError, match=r"Add: .*float32 and int32.*tb\.cast"):
        constant(X) + constant([1, 2])
    with pytest.raises(InvalidArgumentError, match="without loss"):
        constant([1, 2]) + 0.5
    with pytest.raises(
        InvalidArgumentError, match="Sigmoid: input has dtype int32, expected float32 or float64"
    ):
        sigmoid(constant([1, 2]))


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"Mul: .*\[2, 3\] and \[2, 4\]"):
        placeholder(float32, [2, 3]) * placeholder(float32, [2, 4])


def test_sigmoid_neither_overflows_nor_loses_small_values():
    x = np.array([-1000, -100, -80, -20, 0, 20, 100, 1000], np.float32)
    result = value(sigmoid(constant(x)))
    exact = 1 / (1 + np.exp(-x.astype(np.longdouble)))
    np.testing.assert_allclose(result, exact.astype(np.float32), rtol=1e-6)
    assert 0 < result[1] < 1e-40  # e^-100 is a small float32, not zero


def grad(y, *xs):
    return [value(g) for g in gradients([y], list(xs))]


def test_where_extremes_are_equal_the_gradient_goes_to_the_first():
    x, y = constant([1.0, 2.0, 3.0]), constant([1.0, 3.0, 2.0])
    assert [g.tolist() for g in grad(maximum(x, y), x, y)] == [[1, 0, 1], [0, 1, 0]]
    assert [g.tolist() for g in grad(minimum(x, y), x, y)] == [[1, 1, 0], [0, 0, 1]]


def test_no_gradient_flows_through_relu_at_zero_and_below():
    x = constant([-1.0, 0.0, 2.0])
    (g,) = gradients([relu(x)], [x], [constant([np.inf, 5.0, 7.0])])
    assert value(g).tolist() == [0, 0, 7]


def test_where_takes_numbers_and_keeps_bad_values_out():
    x = constant([-1.0, 4.0])
    assert value(where(x > 0, x, 0)).tolist() == [0, 4]
    assert value(where(x > 0, 1.0, x)).tolist() == [-1, 1]
    assert value(where(constant([True, False]), 1, 2)).tolist() == [1, 2]
    with pytest.raises(InvalidArgumentError, match="condition has dtype float32, expected bool"):
        where(x, x, x)


def test_small_compositions():
    x = constant([-3.0, 0.5, 3.0])
    assert value(clip_by_value(x, -1, 1)).tolist() == [-1, 0.5, 1]
    assert value(add_n([x, x, x])).tolist() == [-9, 1.5, 9]
    with pytest.raises(InvalidArgumentError, match="empty list"):
        add_n([])
    assert cast(x, float32) is x
    assert value(cast(x, int32)).tolist() == [-3, 0, 3]


def test_sum_to_adds_no_op_where_shapes_are_equal():
    x = placeholder(float32, [3, 4])
    assert sum_to(x, placeholder(float32, [3, 4])) is x
    assert sum_to(x, placeholder(float32, [4])).shape.as_list() == [4]
    assert sum_to(placeholder(float32, [None, 4]), placeholder(float32, [None, 4])).op.type == "SumTo"


def test_results_on_the_graph_of_the_tensor_and_named():
    x = constant(X)
    with Graph().as_default():
        for result in (x + 1, 1 - x, x / 2, 2 / x, x > 0, where(x > 0, x, 0)):
            assert result.graph is x.graph
    assert elementwise.add(x, x, name="total").name == "total:0"


def test_the_table_is_in_the_registry():
    assert set(ELEMENTWISE) <= set(product_ops())
