"""Grey-scale dilation and erosion of images (TensorFlow 1's dilation2d and erosion2d)."""

from __future__ import annotations

from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, name_scope
from tensorbow.kinds import Name, checked
from tensorbow.ops.argument_kinds import Padding, WindowSize
from tensorbow.ops.arrays import reshape
from tensorbow.ops.elementwise import add, negative, pair
from tensorbow.ops.extents import batch_of, known_extents
from tensorbow.ops.padding import pad
from tensorbow.ops.patches import around, extract_image_patches
from tensorbow.ops.reductions import reduce_max
from tensorbow.ops.shaping import reverse
from tensorbow.ops.sliding_windows import make_axis, spatial_pair

__all__ = ["dilation2d", "erosion2d"]


@checked
def dilation2d(
    input: Any, filter: Any, strides: WindowSize, rates: WindowSize, padding: Padding, name: Name = None
) -> Tensor:
    """The maximum over each window of the image plus the filter: [batch, rows, columns, channels].

    input: [batch, height, width, channels]; filter: [height, width, channels]; float32 or float64. Strides
    and rates (dilations) are as in `conv2d`; padding is never the maximum. Pixels that are equal share the
    gradient. Raises InvalidArgumentError for channels that do not fit, and for extents that are not known.
    """
    return _dilated("dilation2d", input, filter, strides, rates, padding, name)


@checked
def erosion2d(
    value: Any, kernel: Any, strides: WindowSize, rates: WindowSize, padding: Padding, name: Name = None
) -> Tensor:
    """The minimum over each window of the image minus the kernel: see `dilation2d`."""
    x, w = pair(value, kernel)
    with x.graph.as_default(), name_scope(name or "Erosion2D"):
        turned = reverse(w, [0, 1])
        return negative(_dilated("erosion2d", negative(x), turned, strides, rates, padding, None))


def _dilated(
    op: str, images: Any, kernel: Any, strides: Any, rates: Any, padding: str, name: str | None
) -> Tensor:
    x, w = pair(images, kernel)
    height, width, channels = known_extents(op, x, 4)
    extents = w.spec.shape
    if extents is None or len(extents) != 3 or None in extents or extents[2] != channels:
        raise InvalidArgumentError(
            f"{op}: expected a filter [height, width, {channels}] for {x.spec}, got {w.spec}"
        )
    rows, columns = (int(extent or 0) for extent in extents[:2])
    steps, gaps = (
        spatial_pair(op, value, what, "NHWC")[1:3] for value, what in ((strides, "strides"), (rates, "rates"))
    )
    axes = [
        make_axis(extent, window, step, padding, gap)
        for extent, window, step, gap in zip((height, width), (rows, columns), steps, gaps, strict=True)
    ]
    with x.graph.as_default(), name_scope(name or "Dilation2D"):
        if any(axis.is_padded for axis in axes):
            x = pad(x, [[0, 0], *map(around, axes), [0, 0]], constant_values=x.dtype.min)
        patches = extract_image_patches(x, (rows, columns), tuple(steps), tuple(gaps), "VALID")
        windows = reshape(patches, [batch_of(x), axes[0].count, axes[1].count, rows * columns, channels])
        return reduce_max(add(windows, reshape(w, [rows * columns, channels])), 3)
