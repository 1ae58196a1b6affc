"""TensorFlow 1's names for a few combinations of other ops: to_float, identity_n, sort, and the like."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import (
    AsDType,
    AxisNumber,
    Flag,
    Items,
    Name,
    NonNegativeOrTensor,
    checked,
    one_of,
    refuse,
)
from tensorbow.kinds import is_tensor as is_of_graph
from tensorbow.ops.arrays import transpose
from tensorbow.ops.broadcasting import checked_axis, shape, size
from tensorbow.ops.control import identity
from tensorbow.ops.elementwise import divide, maximum, multiply, sqrt, square, subtract
from tensorbow.ops.ordering import top_k
from tensorbow.ops.reductions import argmax, argmin, reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.shaping import reverse
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import bfloat16, float32, float64, int32, int64

__all__ = [
    "arg_max",
    "arg_min",
    "argsort",
    "clip_by_average_norm",
    "executing_eagerly",
    "guarantee_const",
    "identity_n",
    "is_tensor",
    "shape_n",
    "sort",
    "to_bfloat16",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
]

ASCENDING, DESCENDING = "ASCENDING", "DESCENDING"
SortDirection: TypeAlias = Annotated[str, one_of(ASCENDING, DESCENDING)]


@checked
def arg_max(input: Any, dimension: AxisNumber, output_type: AsDType = int64, name: Name = None) -> Tensor:
    """The position of the greatest element along an axis: `argmax`."""
    return argmax(input, dimension, name, output_type=output_type)


@checked
def arg_min(input: Any, dimension: AxisNumber, output_type: AsDType = int64, name: Name = None) -> Tensor:
    """The position of the least element along an axis: `argmin`."""
    return argmin(input, dimension, name, output_type=output_type)


@checked
def to_float(x: Any, name: Name = "ToFloat") -> Tensor:
    """`x` as float32."""
    return cast(x, float32, name)


@checked
def to_double(x: Any, name: Name = "ToDouble") -> Tensor:
    """`x` as float64."""
    return cast(x, float64, name)


@checked
def to_bfloat16(x: Any, name: Name = "ToBFloat16") -> Tensor:
    """`x` as bfloat16."""
    return cast(x, bfloat16, name)


@checked
def to_int32(x: Any, name: Name = "ToInt32") -> Tensor:
    """`x` as int32; floats are truncated."""
    return cast(x, int32, name)


@checked
def to_int64(x: Any, name: Name = "ToInt64") -> Tensor:
    """`x` as int64; floats are truncated."""
    return cast(x, int64, name)


@checked
def identity_n(input: Items, name: Name = None) -> list[Tensor]:
    """Tensors equal to those of a list."""
    with name_scope(name or "IdentityN"):
        return [identity(each) for each in input]


@checked
def shape_n(input: Items, out_type: AsDType = int32, name: Name = None) -> list[Tensor]:
    """Shapes of the tensors of a list, int32 or int64 vectors."""
    with name_scope(name or "ShapeN"):
        return [shape(each, out_type=out_type) for each in input]


@checked
def clip_by_average_norm(t: Any, clip_norm: NonNegativeOrTensor, name: Name = None) -> Tensor:
    """`t` (floating) times clip_norm / max(norm, clip_norm), where the norm is the Euclidean one of t divided
    by its number of elements.
    """
    tensor = as_tensor(t)
    if not tensor.dtype.is_floating:
        raise refuse("clip_by_average_norm", "t", "a tensor of floats", tensor, "use tb.cast")
    with tensor.graph.as_default(), name_scope(name or "clip_by_average_norm"):
        limit = as_tensor(clip_norm, tensor.dtype)
        total = multiply(limit, cast(size(tensor, out_type=int64), tensor.dtype))
        squares = reduce_sum(square(tensor), keepdims=False)
        return divide(multiply(tensor, total), sqrt(maximum(square(total), squares)))


@checked
def sort(
    values: Any, axis: AxisNumber = -1, direction: SortDirection = ASCENDING, name: Name = None
) -> Tensor:
    """`values` in order along an axis; NaN counts as the greatest.

    direction: "ASCENDING" or "DESCENDING". An extent that is unknown before the step makes it run in the
    dynamic mode. Raises InvalidArgumentError for a scalar, and where the rank is unknown.
    """
    return _sorted("sort", values, axis, direction, name)[0]


@checked
def argsort(
    values: Any,
    axis: AxisNumber = -1,
    direction: SortDirection = ASCENDING,
    stable: Flag = False,
    name: Name = None,
) -> Tensor:
    """Positions, int32, of the elements of `values` in order along an axis.

    Equal elements keep their order, whatever `stable` says. Arguments and errors as for `sort`.
    """
    return _sorted("argsort", values, axis, direction, name)[1]


def _sorted(op: str, values: Any, axis: int, direction: str, name: str | None) -> tuple[Tensor, Tensor]:
    """Elements and positions along an axis, in order."""
    x = as_tensor(values)
    dims = x.spec.shape
    if not dims:
        raise InvalidArgumentError(
            f"{op}: expected values of a known rank of at least 1, got {x.spec}; give the placeholder a shape"
        )
    axis, last = checked_axis(op, axis, len(dims)), len(dims) - 1
    swapped = [*range(len(dims))]
    swapped[axis], swapped[last] = last, axis
    with x.graph.as_default(), name_scope(name or op):
        rows = transpose(x, swapped) if axis != last else x
        known = dims[axis]
        extent = strided_slice(shape(x), axis) if known is None else known
        if direction == ASCENDING:  # the greatest of the reversed rows, so that equal ones keep their order
            found, places = (reverse(each, [last]) for each in top_k(reverse(rows, [last]), extent))
            places = subtract(subtract(extent, 1), places) if known is None else subtract(known - 1, places)
        else:
            found, places = top_k(rows, extent)
        results = (transpose(found, swapped), transpose(places, swapped)) if axis != last else (found, places)
        for each in results:
            each.set_shape(dims)
        return results


def executing_eagerly() -> bool:
    """False: programs are graphs."""
    return False


@checked
def guarantee_const(input: Any, name: Name = None) -> Tensor:
    """`input`: the compiler finds by itself what does not change."""
    return identity(input, name)


def is_tensor(x: Any) -> bool:
    """True for tensors and variables of a graph, sparse tensors and IndexedSlices."""
    return is_of_graph(x)
