"""Functions that TensorFlow has in `tf.math` alone: products that zeros win, polynomials, deviations."""

from __future__ import annotations

from typing import Any

from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import Flag, Items, Name, checked
from tensorbow.ops.argument_kinds import AxesOrTensor
from tensorbow.ops.broadcasting import zeros_like
from tensorbow.ops.control import identity
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    is_finite,
    log,
    logical_or,
    multiply,
    not_equal,
    pair,
    sqrt,
    square,
    subtract,
)
from tensorbow.ops.reductions import reduce_mean
from tensorbow.ops.selection import select
from tensorbow.specs import ANALYTIC, FLOATS

__all__ = ["multiply_no_nan", "polyval", "reduce_std", "reduce_variance", "xdivy", "xlogy"]


@checked
def xlogy(x: Any, y: Any, name: Name = None) -> Tensor:
    """x * log(y), and 0 where x is 0, whatever y is; so are the gradients there. Floating or complex."""
    with graph_of([x, y]).as_default(), name_scope(name or "xlogy"):
        a, b = pair(x, y)
        require_dtype("xlogy", a.spec, ANALYTIC, "x")
        return multiply(a, log(select(equal(a, 0), 1, b)))


@checked
def xdivy(x: Any, y: Any, name: Name = None) -> Tensor:
    """x / y, and 0 where x is 0, whatever y is; so are the gradients there. Floating or complex."""
    with graph_of([x, y]).as_default(), name_scope(name or "xdivy"):
        a, b = pair(x, y)
        require_dtype("xdivy", a.spec, ANALYTIC, "x")
        is_zero = equal(a, 0)
        return select(is_zero, 0, divide(a, select(is_zero, 1, b)))


@checked
def multiply_no_nan(x: Any, y: Any, name: Name = None) -> Tensor:
    """x * y, and 0 where y is 0, though x may be infinite or NaN there. Floating."""
    with graph_of([x, y]).as_default(), name_scope(name or "multiply_no_nan"):
        a, b = pair(x, y)
        require_dtype("multiply_no_nan", a.spec, FLOATS, "x")
        return multiply(select(logical_or(is_finite(a), not_equal(b, 0)), a, 0), b)


@checked
def polyval(coeffs: Items, x: Any, name: Name = None) -> Tensor:
    """The polynomial of `x` with these coefficients, that of the highest power first; 0 without any.

    coeffs: a list of numbers or tensors, which broadcast with `x`. Computed by Horner's rule.
    """
    with graph_of([*coeffs, x]).as_default(), name_scope(name or "polyval"):
        at = as_tensor(x)
        if not coeffs:
            return zeros_like(at)
        first, *rest = (as_tensor(each, at.dtype) for each in coeffs)
        total = identity(first)
        for coefficient in rest:
            total = add(multiply(total, at), coefficient)
        return total


@checked
def reduce_variance(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The mean of squared distances from the mean over `axis`, see `reduce_mean`. Floating."""
    x = as_tensor(input_tensor)
    with x.graph.as_default(), name_scope(name or "reduce_variance"):
        require_dtype("reduce_variance", x.spec, FLOATS, "input_tensor")
        return reduce_mean(square(subtract(x, reduce_mean(x, axis, keepdims=True))), axis, keepdims)


@checked
def reduce_std(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The standard deviation over `axis`: the square root of `reduce_variance`."""
    x = as_tensor(input_tensor)
    with x.graph.as_default(), name_scope(name or "reduce_std"):
        require_dtype("reduce_std", x.spec, FLOATS, "input_tensor")
        return sqrt(reduce_variance(x, axis, keepdims))
