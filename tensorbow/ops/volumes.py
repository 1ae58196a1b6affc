"""Convolution and pooling of volumes [batch, depth, height, width, channels], made of those of images.

A convolution lays the slices that a window covers in depth side by side as channels; a pool takes height and
width first, depth then. Pools and the transpose need known extents after the batch, a convolution does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, checked, one_of, refuse, sequence, whole
from tensorbow.ops.argument_kinds import Padding
from tensorbow.ops.arrays import concat, reshape, transpose
from tensorbow.ops.average_pooling import avg_pool
from tensorbow.ops.conv import conv2d
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import pair
from tensorbow.ops.extents import batch_of, extents_for_reshape, known_extents, times
from tensorbow.ops.padding import pad
from tensorbow.ops.patches import SlidingAxis, padded_for
from tensorbow.ops.pooling import max_pool
from tensorbow.ops.shaping import reverse
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sliding_windows import make_axis
from tensorbow.specs import FLOATING, TensorShape

__all__ = ["avg_pool3d", "conv3d", "conv3d_transpose", "max_pool3d"]

VOLUME = sequence(
    whole(1), "a whole number, [depth, height, width] or [1, depth, height, width, 1]", lone=True
)
VolumeSize: TypeAlias = Annotated[Any, VOLUME]
VolumeFormat: TypeAlias = Annotated[str, one_of("NDHWC", "NCDHW", any_case=True)]
TO_LAST, TO_SECOND = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)


def _triple(op: str, what: str, numbers: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    if data_format == "NCDHW" and len(numbers) == 5:
        numbers = (numbers[0], *numbers[2:], numbers[1])
    if len(numbers) == 1:
        return numbers * 3
    if len(numbers) == 3:
        return numbers
    if len(numbers) == 5 and numbers[0] == numbers[4] == 1:
        return numbers[1:4]
    raise InvalidArgumentError(f"{op}: {what} {list(numbers)}: expected {VOLUME.expected}")


@checked
def conv3d(
    input: Any,
    filter: Any,
    strides: VolumeSize,
    padding: Padding,
    data_format: VolumeFormat = "NDHWC",
    dilations: VolumeSize = (1,),
    name: Name = None,
) -> Tensor:
    """Convolution of volumes [batch, depth, height, width, in] with [depth, height, width, in, out].

    Strides, padding and dilations are as in `conv2d`, along three axes. Returns
    [batch, slices, rows, columns, out], float32 or float64. With data format NCDHW channels are second.
    Raises InvalidArgumentError for channels that do not fit, and for a filter of unknown extents.
    """
    x, w = pair(input, filter)
    (step, *steps), (gap, *gaps) = (
        _triple("conv3d", what, value, data_format)
        for what, value in (("strides", strides), ("dilations", dilations))
    )
    with x.graph.as_default(), name_scope(name or "Conv3D"):
        x = transpose(x, TO_LAST) if data_format == "NCDHW" else x
        *size, channels, out = known_extents("conv3d", w, 5)
        window = batch_of(w)
        batch, deep, height, width, own = extents_for_reshape("conv3d", x, 5)
        if window < 1 or (isinstance(own, int) and own != channels):
            raise InvalidArgumentError(
                f"conv3d: {own} channels in {x.spec}; expected a filter "
                f"[depth, height, width, {own}, out], got {w.spec}"
            )
        axis = SlidingAxis(deep, window, step, padding, gap)
        flat = padded_for(reshape(x, [batch, deep, times(height, width, channels)]), [None, axis, None])
        slices = [strided_slice(flat, (slice(None), axis.elements(i))) for i in range(window)]
        count = extents_for_reshape("conv3d", slices[0], 3)[1]
        images = [reshape(each, [times(batch, count), height, width, channels]) for each in slices]
        kernel = reshape(transpose(w, [1, 2, 0, 3, 4]), [*size, window * channels, out])
        laid = images[0] if window == 1 else concat(images, 3)
        flow = conv2d(laid, kernel, tuple(steps), padding, dilations=tuple(gaps))
        rows, columns = extents_for_reshape("conv3d", flow, 4)[1:3]
        result = reshape(flow, [batch, count, rows, columns, out])
        return transpose(result, TO_SECOND) if data_format == "NCDHW" else result


@checked
def conv3d_transpose(
    value: Any,
    filter: Any,
    output_shape: Any,
    strides: VolumeSize,
    padding: Padding = "SAME",
    data_format: VolumeFormat = "NDHWC",
    name: Name = None,
) -> Tensor:
    """The transpose of `conv3d`: volumes [batch, slices, rows, columns, in] to `output_shape`.

    filter: [depth, height, width, out, in]. output_shape: five whole numbers, [batch, depth, height, width,
    out], the extents of volumes of which `conv3d` makes those of `value`; the batch may be a tensor, in a
    list, or -1. Computed as a convolution of the value with zeros between its elements.
    Raises InvalidArgumentError for extents that do not fit, or that are not known.
    """
    x, w = pair(value, filter)
    steps = _triple("conv3d_transpose", "strides", strides, data_format)
    with x.graph.as_default(), name_scope(name or "conv3d_transpose"):
        x = transpose(x, TO_LAST) if data_format == "NCDHW" else x
        *small, channels = known_extents("conv3d_transpose", x, 5)
        rest = known_extents("conv3d_transpose", w, 5)
        window = (batch_of(w), *rest[:2])
        if not isinstance(output_shape, (list, tuple, np.ndarray, TensorShape)):
            raise refuse("conv3d_transpose", "output_shape", "a list of five whole numbers", output_shape)
        wanted = list(output_shape)
        if data_format == "NCDHW" and len(wanted) == 5:
            wanted = [wanted[0], *wanted[2:], wanted[1]]
        known = [int(each) for each in wanted[1:] if isinstance(each, (int, np.integer))]
        if len(wanted) != 5 or len(known) != 4 or known[3] != rest[2] or rest[3] != channels:
            raise InvalidArgumentError(
                f"conv3d_transpose: output_shape {wanted} for {x.spec} and a filter {w.spec}; expected "
                f"[batch, depth, height, width, {rest[2]}] with known extents, and {channels} channels"
            )
        axes = [make_axis(n, k, s, padding) for n, k, s in zip(known, window, steps, strict=False)]
        if [axis.count for axis in axes] != small:
            raise InvalidArgumentError(
                f"conv3d_transpose: output_shape {wanted} gives {[axis.count for axis in axes]} windows with "
                f"strides {list(steps)} and padding {padding}, expected {small}, the extents of {x.spec}"
            )
        x = _spread(x, small, steps, channels)
        pairs = []
        for axis, k in zip(axes, window, strict=True):
            before = k - 1 - axis.before
            length = (axis.count - 1) * axis.stride + 1
            pairs.append((before, axis.extent + k - 1 - before - length))
        x = _padded_or_cut(x, pairs)
        turned = transpose(reverse(w, [0, 1, 2]), [0, 1, 2, 4, 3])
        result = conv3d(x, turned, (1,), "VALID")
        return transpose(result, TO_SECOND) if data_format == "NCDHW" else result


def _spread(x: Tensor, extents: list[int], steps: tuple[int, ...], channels: int) -> Tensor:
    """Puts steps - 1 zeros between neighbours along the three axes."""
    batch = batch_of(x)
    for axis, step in enumerate(steps):
        if step == 1:
            continue
        lead, tail = extents[: axis + 1], extents[axis + 1 :]
        wide = reshape(x, [batch, *lead, 1, *tail, channels])
        wide = pad(wide, [[0, 0]] * (axis + 2) + [[0, step - 1]] + [[0, 0]] * (len(tail) + 1))
        x = reshape(wide, [batch, *lead[:-1], lead[-1] * step, *tail, channels])
        extents = [*lead[:-1], (lead[-1] - 1) * step + 1, *tail]
        x = strided_slice(x, (*[slice(None)] * (axis + 1), slice(extents[axis])))
    return x


def _padded_or_cut(x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Pads the three axes by so many zeros in front and behind; negative numbers cut."""
    if any(min(pair) < 0 for pair in pairs):
        cuts = [slice(max(0, -before), behind if behind < 0 else None) for before, behind in pairs]
        x = strided_slice(x, (slice(None), *cuts))
    return pad(x, [[0, 0], *([max(0, before), max(0, behind)] for before, behind in pairs), [0, 0]])


@checked
def max_pool3d(
    input: Any,
    ksize: VolumeSize,
    strides: VolumeSize,
    padding: Padding,
    data_format: VolumeFormat = "NDHWC",
    name: Name = None,
) -> Tensor:
    """The maximum of each window of volumes [batch, depth, height, width, channels]: see `max_pool`."""
    return _pool("max_pool3d", max_pool, input, ksize, strides, padding, data_format, name)


@checked
def avg_pool3d(
    input: Any,
    ksize: VolumeSize,
    strides: VolumeSize,
    padding: Padding,
    data_format: VolumeFormat = "NDHWC",
    name: Name = None,
) -> Tensor:
    """The mean of each window of volumes, without padding: see `avg_pool`."""
    return _pool("avg_pool3d", avg_pool, input, ksize, strides, padding, data_format, name)


def _pool(
    op: str,
    pool: Callable[..., Tensor],
    volumes: Any,
    ksize: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    data_format: str,
    name: str | None,
) -> Tensor:
    (size, *sizes), (step, *steps) = (
        _triple(op, what, value, data_format) for what, value in (("ksize", ksize), ("strides", strides))
    )
    x = as_tensor(volumes)
    require_dtype(op, x.spec, FLOATING, "the volumes")
    with x.graph.as_default(), name_scope(name or op):
        x = transpose(x, TO_LAST) if data_format == "NCDHW" else x
        deep, height, width, channels = known_extents(op, x, 5)
        batch = batch_of(x)
        images = reshape(x, [times(batch, deep), height, width, channels])
        flow = pool(images, tuple(sizes), tuple(steps), padding)
        rows, columns, _ = known_extents(op, flow)
        result = pool(reshape(flow, [batch, deep, rows * columns, channels]), (size, 1), (step, 1), padding)
        slices = known_extents(op, result)[0]
        result = reshape(result, [batch, slices, rows, columns, channels])
        return transpose(result, TO_SECOND) if data_format == "NCDHW" else result
