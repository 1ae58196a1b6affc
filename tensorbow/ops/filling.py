"""Tensors made from a few scalars: range, fill, zeros, ones, and the rank of a tensor.

With constant arguments all of them fold to constants when a step is compiled.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Attrs,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    as_tensor,
    graph_of,
    name_scope,
)
from tensorbow.kinds import AsDType, Name, checked, is_tensor, or_tensor, whole
from tensorbow.ops.argument_kinds import Extents
from tensorbow.ops.broadcasting import as_shape_vector, dims_of_vector, size
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype, require_same_dtype
from tensorbow.ops.elementwise import add, divide, maximum, multiply, pair, subtract
from tensorbow.ops.partial_extents import with_known_extents
from tensorbow.ops.reductions import reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.specs import DType, TensorSpec, float32, float64, int32, int64

__all__ = ["fill", "lin_space", "linspace", "ones", "range", "rank", "zeros"]

CHUNK = 1 << 15  # elements per pass, so that no table of all positions is needed
RANGED = (int32, int64, float32, float64)  # in ascending order of promotion


# Range ------------------------------------------------------------------------------------------------


def _range_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dtype = require_same_dtype("Range", inputs)
    require_dtype("Range", inputs[0], RANGED)
    for what, spec in zip(("start", "limit", "delta"), inputs, strict=True):
        if spec.shape not in ((), None):
            raise InvalidArgumentError(f"Range: {what} is {spec}, expected a scalar")
    values = [spec.value for spec in inputs]
    if any(value is None for value in values):
        return TensorSpec((None,), dtype)
    start, limit, delta = (value.item() for value in values if value is not None)
    if delta == 0 or not all(math.isfinite(number) for number in (start, limit, delta)):
        raise InvalidArgumentError(
            f"Range: from {start} to {limit} by {delta} does not end; delta must not be 0"
        )
    length = -((start - limit) // delta) if dtype.is_integer else math.ceil((limit - start) / delta)
    return TensorSpec((max(0, length),), dtype)


def _range_kernel(call: KernelCall) -> Callable[[], None]:
    (start, _, delta), (out,) = call.inputs, call.outputs
    positions = np.arange(min(out.size, CHUNK))

    def run() -> None:
        for first in builtins.range(0, out.size, CHUNK):
            part = out[first : first + CHUNK]
            np.add(positions[: part.size], first, out=part, casting="unsafe")
            np.multiply(part, delta, out=part)
            np.add(part, start, out=part)

    return run


Range = define_op(
    "Range",
    spec=_range_spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(prepare=_range_kernel),
    inputs=("start", "limit", "delta"),
    shape_inputs=(0, 1, 2),
)


@checked
def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: AsDType | None = None, name: Name = None
) -> Tensor:
    """The numbers start, start + delta, ... below `limit` (above it for a negative delta), as a vector.

    With one argument it is the limit, and start is 0. The dtype is the widest of the arguments': int32,
    int64, float32, float64. Raises InvalidArgumentError for a delta of 0.
    """
    if limit is None:
        start, limit = 0, start
    with graph_of([start, limit, delta]).as_default():
        bounds = [_bound(value, dtype) for value in (start, limit, delta)]
        widest = max((b.dtype for b in bounds), key=_order)
        result: Tensor = Range(*[cast(b, widest) for b in bounds], name=name)
    return result


@checked
def linspace(start: Any, stop: Any, num: Annotated[Any, or_tensor(whole(1))], name: Name = None) -> Tensor:
    """`num` numbers from `start` to `stop` (floating scalars), at equal distances, as a vector.

    num: a whole number of at least 1, or a scalar tensor of int32 or int64.
    """
    with graph_of([start, stop]).as_default(), name_scope(name or "LinSpace"):
        for bound in (start, stop):
            if isinstance(bound, (bool, np.bool_)):
                raise UnfitError(f"it is {bound}, expected a floating scalar", bound)
        first, last = pair(start, stop)
        if is_tensor(num):
            count = as_tensor(num)
            steps = cast(maximum(subtract(count, 1), 1), first.dtype)
            share = divide(cast(range(count), first.dtype), steps)
        else:
            share = constant(np.linspace(0.0, 1.0, num), first.dtype)
        return add(multiply(first, subtract(1, share)), multiply(last, share))


lin_space = linspace  # TensorFlow's other name


def _bound(value: Any, wanted: DType | None) -> Tensor:
    if hasattr(value, "graph"):
        tensor = as_tensor(value)
        return tensor if wanted is None else cast(tensor, wanted)
    return constant(value, wanted)


def _order(dtype: DType) -> int:
    return RANGED.index(dtype) if dtype in RANGED else len(RANGED)  # the op refuses other dtypes


# Fill -------------------------------------------------------------------------------------------------


def _fill_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dims, value = inputs
    if value.shape not in ((), None):
        raise InvalidArgumentError(f"Fill: the value is {value}, expected a scalar; use tb.broadcast_to")
    extents = dims_of_vector("Fill", dims, "dims")
    return TensorSpec(extents, value.dtype)


def _fill_kernel(call: KernelCall) -> None:
    np.copyto(call.outputs[0], call.inputs[1])


def _fill_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    return [None, reduce_sum(g) if g.dtype.is_differentiable else None]


Fill = define_op(
    "Fill",
    spec=_fill_spec,
    gradient=_fill_gradient,
    kernel=_fill_kernel,
    inputs=("dims", "value"),
    shape_inputs=(0,),
    unknown_dtypes=lambda inputs, attrs: (inputs[1].dtype,),
    strings=True,
)


@checked
def fill(dims: Extents, value: Any, name: Name = None) -> Tensor:
    """A tensor of shape `dims` filled with the scalar `value`."""
    result: Tensor = Fill(as_shape_vector(dims), value, name=name)
    return with_known_extents(result, dims)


@checked
def zeros(shape: Extents, dtype: AsDType = float32, name: Name = None) -> Tensor:
    """A tensor of zeros; of strings, empty ones."""
    return _filled(shape, 0, dtype, name or "zeros")


@checked
def ones(shape: Extents, dtype: AsDType = float32, name: Name = None) -> Tensor:
    """A tensor of ones."""
    return _filled(shape, 1, dtype, name or "ones")


def _filled(shape: Any, value: int, dtype: DType, name: str) -> Tensor:
    if dtype.is_string and value:
        raise InvalidArgumentError("ones: there is no one among strings; use tb.fill")
    with graph_of([shape]).as_default():
        scalar: Any = b"" if dtype.is_string else np.array(value, dtype.as_numpy_dtype)
        return fill(shape, constant(scalar), name)


# Rank -------------------------------------------------------------------------------------------------


def _rank_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    dims = inputs[0].shape
    return TensorSpec((), int32, None if dims is None else np.array(len(dims), np.int32))


def _rank_kernel(call: KernelCall) -> None:
    call.outputs[0][...] = call.inputs[0].ndim


Rank = define_op(
    "Rank", spec=_rank_spec, gradient=NOT_DIFFERENTIABLE, kernel=_rank_kernel, inputs=("input",), strings=True
)


@checked
def rank(input: Any, name: Name = None) -> Tensor:
    """The number of axes of `input`, a tensor or `tb.SparseTensor`, an int32 scalar."""
    if type(input) is not Tensor and hasattr(input, "_extents"):
        return size(input._extents(None, int32), name=name)
    return Rank.tensor(input, name=name)
