"""Patches: the elements of sliding windows, taken by strided slices of the padded tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Name, checked, refuse
from tensorbow.ops.argument_kinds import Padding, WindowSize
from tensorbow.ops.arrays import concat, stack
from tensorbow.ops.elementwise import add, floordiv, maximum, multiply, subtract
from tensorbow.ops.extents import Extent, extents_of
from tensorbow.ops.padding import pad
from tensorbow.ops.slicing import strided_slice
from tensorbow.ops.sliding_windows import Axis, make_axis, span, spatial_pair

__all__ = ["extract_image_patches"]

MOST_PIXELS = 1 << 16  # of a window: each is a slice of its own


def around(axis: Axis) -> list[int]:
    """Padding in front and behind, of an axis whose windows exceed it."""
    return [axis.before, max(0, axis.covered - axis.before - axis.extent)]


class SlidingAxis:
    """Windows along an axis whose extent may be known in a step only.

    They begin at every `stride`-th element of the axis as `padded_for` pads it, as many as fit.
    """

    def __init__(self, extent: Extent, window: int, stride: int, padding: str, rate: int = 1):
        self.window, self._stride, self._rate = window, stride, rate
        self.span = span(window, rate)
        self.padding: tuple[Extent, Extent] = (0, 0)
        if isinstance(extent, int):
            axis = make_axis(extent, window, stride, padding, rate)
            if axis.is_padded:
                self.padding = (axis.before, around(axis)[1])
        elif padding == "SAME":
            count = floordiv(add(extent, stride - 1), stride)
            needed = subtract(add(multiply(subtract(count, 1), stride), self.span), extent)
            total = maximum(needed, 0)
            before = floordiv(total, 2)
            self.padding = before, subtract(total, before)

    def elements(self, number: int) -> slice:
        """The element of that number of every window."""
        behind = number * self._rate - (self.span - 1)
        return slice(number * self._rate, behind or None, self._stride)


def padded_for(x: Tensor, axes: Sequence[SlidingAxis | None]) -> Tensor:
    """Zeros around x, so that all windows lie on it; None for an axis without windows."""
    pairs = [(0, 0) if axis is None else axis.padding for axis in axes]
    if all(each == 0 for pair in pairs for each in pair if isinstance(each, int)) and not any(
        isinstance(each, Tensor) for pair in pairs for each in pair
    ):
        return x
    if not any(isinstance(each, Tensor) for pair in pairs for each in pair):
        return pad(x, [list(pair) for pair in pairs])
    padded = pad(x, stack([stack(list(pair)) for pair in pairs]))
    if x.spec.shape is not None:
        kept = zip(axes, x.spec.shape, strict=True)
        padded.set_shape([extent if axis is None else None for axis, extent in kept])
    return padded


@checked
def extract_image_patches(
    images: Any,
    ksizes: WindowSize,
    strides: WindowSize,
    rates: WindowSize,
    padding: Padding,
    name: Name = None,
) -> Tensor:
    """The pixels of each window of images [batch, height, width, channels], as channels.

    Returns [batch, rows, columns, window height * window width * channels], the window's pixels in row-major
    order. Sizes, strides and rates (dilations) are as in `conv2d`; "SAME" pads with zeros.
    """
    op = "extract_image_patches"
    x = as_tensor(images)
    sizes, steps, gaps = (
        spatial_pair(op, value, what, "NHWC")[1:3]
        for value, what in ((ksizes, "ksizes"), (strides, "strides"), (rates, "rates"))
    )
    if sizes[0] * sizes[1] > MOST_PIXELS:
        raise refuse(op, "ksizes", f"windows of at most {MOST_PIXELS} pixels", ksizes)
    with x.graph.as_default(), name_scope(name or "ExtractImagePatches"):
        _, *extents, _ = extents_of(op, x, 4)
        windows = [SlidingAxis(extents[i], sizes[i], steps[i], padding, gaps[i]) for i in (0, 1)]
        x = padded_for(x, [None, *windows, None])
        taken = [[window.elements(i) for i in range(window.window)] for window in windows]
        return concat(
            [strided_slice(x, (slice(None), row, column)) for row in taken[0] for column in taken[1]], 3
        )
