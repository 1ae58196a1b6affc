"""Padding around the axes of a tensor: by a value, or by the elements of the tensor, mirrored."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, Text, checked
from tensorbow.ops.argument_kinds import AnyNumber
from tensorbow.ops.broadcasting import INDEX, shape
from tensorbow.ops.constant import require_scalar
from tensorbow.ops.control import identity
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import add, greater_equal, less, minimum, multiply, subtract
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import Pad, strided_slice
from tensorbow.specs import compatible, int32

__all__ = ["pad"]

EDGES = {"REFLECT": 0, "SYMMETRIC": 1}  # how often the mirrored part has the element at the border


@checked
def pad(
    tensor: Any, paddings: Any, mode: Text = "CONSTANT", name: Name = None, constant_values: AnyNumber = 0
) -> Tensor:
    """`tensor` with `paddings[i] = [before, after]` elements around axis i, int32 or int64 [rank, 2].

    mode: "CONSTANT": `constant_values`; "REFLECT": the elements beside the border, mirrored, without the one
    at the border; "SYMMETRIC": with it. The last two need a rank that is known from `tensor` or `paddings`.
    Raises InvalidArgumentError for paddings that do not fit, for those of an axis with too few elements to
    mirror (at run time, on CPU devices, where they are not known before), and for a value that the dtype
    cannot hold.
    """
    x, kind = as_tensor(tensor), mode.upper()
    if kind == "CONSTANT":
        require_scalar("pad", "constant_values", constant_values, x.dtype)
        return Pad.tensor(x, paddings, constant_values=constant_values, name=name)
    if kind not in EDGES:
        raise InvalidArgumentError(f"pad: expected mode to be CONSTANT, REFLECT or SYMMETRIC, got {mode!r}")
    with x.graph.as_default(), name_scope(name or "MirrorPad"):
        return _mirrored(x, as_tensor(paddings), kind)


def _mirrored(x: Tensor, paddings: Tensor, mode: str) -> Tensor:
    require_dtype("pad", paddings.spec, INDEX, "paddings")
    ndims = x.shape.ndims
    rank = (paddings.spec.shape or (None,))[0] if ndims is None else ndims
    if rank is None or not compatible((rank, 2), paddings.spec.shape):
        raise InvalidArgumentError(
            f"pad: paddings are {paddings.spec} for {x.spec}, expected [rank, 2]: before and after each axis"
        )
    result = identity(x)
    result.set_shape([None] * rank)
    known, wide = paddings.spec.value, cast(paddings, int32)
    for axis in range(rank):
        extent = None if x.spec.shape is None else x.spec.shape[axis]
        widths = None if known is None else known[axis].tolist()
        if widths == [0, 0]:
            continue
        if widths is not None and (min(widths) < 0 or _is_short(extent, max(widths), mode)):
            raise InvalidArgumentError(
                f"pad: paddings {widths} of axis {axis} of {x.spec}; expected at least 0, and at most what "
                f"{mode} can mirror: {'one less than ' if mode == 'REFLECT' else ''}the extent"
            )
        before, after = (strided_slice(wide, (axis, side)) for side in range(2))
        result = gather(result, _places(strided_slice(shape(result), axis), before, after, mode), axis=axis)
        if widths is not None and extent is not None:
            result.set_shape([extent + sum(widths) if k == axis else None for k in range(rank)])
    return result


def _is_short(extent: int | None, width: int, mode: str) -> bool:
    return extent is not None and width > extent - 1 + EDGES[mode]


def _places(extent: Tensor, before: Tensor, after: Tensor, mode: str) -> Tensor:
    """Positions of the elements of a padded axis, out of [0, extent) where there is none to mirror."""
    edge = EDGES[mode]
    places = subtract(number_range(add(add(before, extent), after)), before)
    behind = subtract(add(multiply(extent, 2), edge - 2), places)
    mirrored = select(
        less(places, 0), subtract(-edge, places), select(greater_equal(places, extent), behind, places)
    )
    return select(less(minimum(before, after), 0), -1, mirrored)
