"""Sums, means, products, extremes, any and all over axes, and argmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    NodeSpec,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.graph.definition import GradientRule, _NotDifferentiable
from tensorbow.kinds import AsDType, Flag, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import AxesOrTensor, AxisOrTensor
from tensorbow.ops.arrays import expand_dims, reshape, squeeze
from tensorbow.ops.axis_order import MovedAxes
from tensorbow.ops.broadcasting import broadcast_to, checked_axis, shape, size
from tensorbow.ops.control import stop_gradient
from tensorbow.ops.cumulative import others
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    exp,
    floordiv,
    is_finite,
    log,
    maximum,
    multiply,
    negative,
    not_equal,
    sqrt,
    square,
    subtract,
    truncatediv,
)
from tensorbow.ops.elementwise_table import conjugate
from tensorbow.ops.selection import cast, select
from tensorbow.specs import (
    ANALYTIC,
    HALVES,
    NUMBERS,
    NUMERIC,
    Array,
    DType,
    TensorSpec,
    as_dtype,
    bool_,
    float64,
    int32,
    int64,
    uint64,
)

__all__ = [
    "argmax",
    "argmin",
    "count_nonzero",
    "reduce_all",
    "reduce_any",
    "reduce_euclidean_norm",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]


def _axes(op: str, axis: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes as non-negative numbers, ascending."""
    if axis is None:
        return tuple(range(rank))
    axes = sorted(checked_axis(op, a, rank) for a in axis)
    if len(set(axes)) != len(axes):
        raise InvalidArgumentError(f"{op}: axis {list(axis)} names an axis of rank {rank} twice")
    return tuple(axes)


def _reduction(
    name: str,
    compute: Callable[[Array, tuple[int, ...], bool, Array], None],
    dtypes: Sequence[DType],
    gradient: GradientRule | _NotDifferentiable,
) -> OpDef:
    """Defines a reduction; `compute(x, axes, keepdims, out)` is its kernel."""

    def spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
        (x,) = inputs
        require_dtype(name, x, dtypes)
        if attrs["axis"] is None and not attrs["keepdims"]:
            return TensorSpec((), x.dtype)
        axes = _axes(name, attrs["axis"], x.rank)
        if attrs["keepdims"]:
            return TensorSpec(tuple(1 if i in axes else d for i, d in enumerate(x.dims)), x.dtype)
        return TensorSpec(tuple(d for i, d in enumerate(x.dims) if i not in axes), x.dtype)

    def run(call: KernelCall) -> None:
        x = call.inputs[0]
        compute(x, _axes(name, call.attrs["axis"], x.ndim), call.attrs["keepdims"], call.outputs[0])

    return define_op(
        name,
        spec=spec,
        gradient=gradient,
        kernel=run,
        inputs=("input",),
        attrs={"axis": None, "keepdims": False},
    )


def _sum(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    if as_dtype(x.dtype) in HALVES:  # summed in float32, rounded once
        out[...] = np.sum(x, axis=axes, dtype=np.float32, keepdims=keepdims)
    else:
        np.add.reduce(x, axis=axes, dtype=out.dtype, out=out, keepdims=keepdims)


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    _sum(x, axes, keepdims, out)
    if out.size:
        np.divide(out, x.size / out.size, out=out)  # without elements: NaN


def _max(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    lowest = as_dtype(x.dtype).limits[0] if x.dtype.kind in "iu" else -np.inf
    np.maximum.reduce(x, axis=axes, out=out, keepdims=keepdims, initial=lowest)


def _min(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    highest = as_dtype(x.dtype).limits[1] if x.dtype.kind in "iu" else np.inf
    np.minimum.reduce(x, axis=axes, out=out, keepdims=keepdims, initial=highest)


def _prod(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    np.multiply.reduce(x, axis=axes, dtype=out.dtype, out=out, keepdims=keepdims)


def _any(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    np.logical_or.reduce(x, axis=axes, out=out, keepdims=keepdims)


def _all(x: Array, axes: tuple[int, ...], keepdims: bool, out: Array) -> None:
    np.logical_and.reduce(x, axis=axes, out=out, keepdims=keepdims)


def _with_axes_kept(op: Operation, reduced: Tensor) -> Tensor:
    """`reduced` with the reduced axes restored as extents of 1."""
    axis, rank = op.attrs["axis"], op.inputs[0].shape.ndims
    if op.attrs["keepdims"] or axis is None:
        return reduced  # a scalar broadcasts as it is
    if rank is None:  # known only at run time; the Sum is dropped, as only its shape is used
        return reshape(reduced, shape(Sum(op.inputs[0], axis=axis, keepdims=True)))
    for a in _axes(op.type, axis, rank):
        reduced = expand_dims(reduced, a)
    return reduced


def _broadcast(op: Operation, g: Tensor) -> Tensor:
    return broadcast_to(_with_axes_kept(op, g), shape(op.inputs[0]))


def _sum_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [_broadcast(op, g) if g.dtype.is_differentiable else None]


def _mean_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    (x,), (z,) = op.inputs, op.outputs
    count = divide(cast(size(x, out_type=int64), g.dtype), cast(maximum(size(z, out_type=int64), 1), g.dtype))
    return [_broadcast(op, divide(g, count))]


def _extreme_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Tied elements share the gradient equally, as in TensorFlow."""
    (x,), (z,) = op.inputs, op.outputs
    if not g.dtype.is_floating:
        return [None]
    chosen = cast(equal(x, _with_axes_kept(op, z)), g.dtype)
    number: Tensor = Sum(chosen, axis=op.attrs["axis"], keepdims=op.attrs["keepdims"])
    return [multiply(chosen, _with_axes_kept(op, divide(g, number)))]


def _prod_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Multiplies by the product of the other elements, axis by axis: no division, so zeros are allowed."""
    x, axes = conjugate(op.inputs[0]), op.attrs["axis"]
    if not g.dtype.is_differentiable:
        return [None]
    if axes is None:
        return [reshape(multiply(others(reshape(x, [-1]), 0), reshape(g, [])), shape(x))]
    partial = [x]
    for axis in axes[:-1]:
        partial.append(Prod(partial[-1], axis=(axis,), keepdims=True))
    g = _with_axes_kept(op, g)
    for axis, factors in zip(reversed(axes), reversed(partial), strict=False):
        g = multiply(others(factors, axis), g)
    return [g]


Sum = _reduction("Sum", _sum, NUMBERS, _sum_gradient)
Mean = _reduction("Mean", _mean, ANALYTIC, _mean_gradient)
Max = _reduction("Max", _max, NUMERIC, _extreme_gradient)
Min = _reduction("Min", _min, NUMERIC, _extreme_gradient)
Prod = _reduction("Prod", _prod, NUMBERS, _prod_gradient)
Any_ = _reduction("Any", _any, (bool_,), NOT_DIFFERENTIABLE)
All = _reduction("All", _all, (bool_,), NOT_DIFFERENTIABLE)


@checked
def reduce_sum(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The sum over `axis`: an int, several, or None for all axes. `keepdims` leaves extents of 1."""
    return _reduce(Sum, input_tensor, axis, keepdims, name)


@checked
def reduce_mean(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The mean over `axis`, see `reduce_sum`; NaN if there are no elements.

    The mean of integers is rounded towards zero, from a sum of 64 bits; 0 if there are no elements.
    """
    x = as_tensor(input_tensor)
    if not x.dtype.is_integer:
        return _reduce(Mean, x, axis, keepdims, name)
    with x.graph.as_default(), name_scope(name or "Mean"):
        wide = cast(x, uint64 if x.dtype == uint64 else int64)
        total = reduce_sum(wide, axis, keepdims)
        count = floordiv(size(x, out_type=int64), maximum(size(total, out_type=int64), 1))
        return cast(truncatediv(total, cast(maximum(count, 1), wide.dtype)), x.dtype)


@checked
def reduce_max(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The maximum over `axis`, see `reduce_sum`; -infinity (or the lowest integer) if it is empty."""
    return _reduce(Max, input_tensor, axis, keepdims, name)


@checked
def reduce_min(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The minimum over `axis`, see `reduce_sum`; infinity (or the highest integer) if it is empty."""
    return _reduce(Min, input_tensor, axis, keepdims, name)


@checked
def reduce_prod(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The product over `axis`, see `reduce_sum`; 1 if there are no elements."""
    return _reduce(Prod, input_tensor, axis, keepdims, name)


@checked
def reduce_euclidean_norm(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The root of the sum of squares over `axis`, see `reduce_sum`; of complex numbers of absolute values.

    That of integers is computed in float64 and truncated. The gradient at 0 is NaN.
    """
    x = as_tensor(input_tensor)
    if x.dtype.is_integer:
        with x.graph.as_default():
            return cast(reduce_euclidean_norm(cast(x, float64), axis, keepdims), x.dtype, name)
    with x.graph.as_default(), name_scope(name or "EuclideanNorm"):
        x = absolute(x) if x.dtype.is_complex else x
        return sqrt(reduce_sum(square(x), axis, keepdims))


@checked
def reduce_logsumexp(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """log(sum(exp(input))) over `axis` (floating), see `reduce_sum`; without overflow."""
    x = as_tensor(input_tensor)
    with x.graph.as_default(), name_scope(name or "ReduceLogSumExp"):
        top = reduce_max(x, axis, keepdims=True)
        top = stop_gradient(select(is_finite(top), top, 0.0))
        result = add(log(reduce_sum(exp(subtract(x, top)), axis, keepdims=True)), top)
        return result if keepdims or (not is_tensor(axis) and axis == ()) else squeeze(result, axis)


@checked
def count_nonzero(
    input_tensor: Any,
    axis: AxesOrTensor = None,
    keepdims: Flag = False,
    dtype: AsDType = int64,
    name: Name = None,
) -> Tensor:
    """The number of elements over `axis` that are not 0, see `reduce_sum`."""
    x = as_tensor(input_tensor)
    with x.graph.as_default(), name_scope(name or "count_nonzero"):
        found = x if x.dtype == bool_ else not_equal(x, 0)
        return reduce_sum(cast(found, dtype), axis, keepdims)


@checked
def reduce_any(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """True if any element (bool) over `axis` is true, see `reduce_sum`."""
    return _reduce(Any_, input_tensor, axis, keepdims, name)


@checked
def reduce_all(
    input_tensor: Any, axis: AxesOrTensor = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """True if all elements (bool) over `axis` are true, see `reduce_sum`."""
    return _reduce(All, input_tensor, axis, keepdims, name)


def _reduce(definition: OpDef, x: Any, axis: Any, keepdims: bool, name: str | None) -> Tensor:
    if is_tensor(axis):
        moved = MovedAxes(x, axis)
        with moved.graph.as_default(), name_scope(name or definition.name):
            if moved.numbers is None:
                joined = definition.tensor(reshape(moved.last, moved.extents("product")), axis=(-1,))
                return moved.back(reshape(joined, moved.extents("ones"))) if keepdims else joined
            result = definition.tensor(moved.last, axis=moved.numbers, keepdims=keepdims)
            return moved.back(result) if keepdims else result
    return definition.tensor(x, axis=axis, keepdims=keepdims, name=name)


# ArgMax -----------------------------------------------------------------------------------------------


def _argmax_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    require_dtype("ArgMax", x, NUMERIC)
    require_dtype("ArgMax", TensorSpec((), attrs["output_type"]), (int32, int64), "output_type")
    (axis,) = _axes("ArgMax", (attrs["axis"],), x.rank)
    if x.dims[axis] == 0:
        raise InvalidArgumentError(f"ArgMax: axis {axis} of {x} is empty, expected at least one element")
    return TensorSpec((*x.dims[:axis], *x.dims[axis + 1 :]), attrs["output_type"])


def _argmax_scratch(node: NodeSpec) -> list[TensorSpec]:
    """The input with its axis last and contiguous, and int64 positions, as NumPy's argmax needs."""
    (x,), axis = node.inputs, node.attrs["axis"]
    last = (*node.outputs[0].extents, x.extents[axis])
    return [TensorSpec(last, x.dtype), TensorSpec(last[:-1], int64)]


def _argmax_kernel(call: KernelCall) -> None:
    (x,), (out,), (rows, positions) = call.inputs, call.outputs, call.scratch
    np.copyto(rows, np.moveaxis(x, call.attrs["axis"], -1))
    np.argmax(rows, axis=-1, out=positions)
    np.copyto(out, positions, casting="unsafe")


ArgMax = define_op(
    "ArgMax",
    spec=_argmax_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_argmax_kernel, scratch=_argmax_scratch),
    inputs=("input",),
    attrs={"axis": 0, "output_type": int64},
    unknown_dtypes=lambda inputs, attrs: (attrs["output_type"],),
)


@checked
def argmax(
    input: Any, axis: AxisOrTensor | None = None, name: Name = None, *, output_type: AsDType = int64
) -> Tensor:
    """The position of the greatest element along `axis` (default 0), the first of equals; int64 or int32.

    Raises InvalidArgumentError if the axis is empty.
    """
    if isinstance(axis, Tensor):
        return ArgMax.tensor(MovedAxes(input, axis).last, axis=-1, output_type=output_type, name=name)
    return ArgMax.tensor(input, axis=axis or 0, output_type=output_type, name=name)


@checked
def argmin(
    input: Any, axis: AxisOrTensor | None = None, name: Name = None, *, output_type: AsDType = int64
) -> Tensor:
    """The position of the smallest element along `axis` (default 0), see `argmax`."""
    x = as_tensor(input)
    if x.dtype.is_integer:  # not negated: the lowest integer has no counterpart
        x = subtract(x.dtype.max if x.dtype.is_unsigned else -1, x)
        return argmax(x, axis, name, output_type=output_type)
    return argmax(negative(x), axis, name, output_type=output_type)
