"""Padding of images for a layer with windows: a number of rows and columns on each side, as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.ops.slicing import pad


def for_convolution(
    images: Tensor,
    padding: str | tuple[int, int],
    windows: Sequence[tuple[int, int, int]],
    layout: str,
) -> tuple[Tensor, str]:
    """Images with zeros around them, and the padding that the op of the windows adds: "SAME" or "VALID".

    padding: "same", "valid", or rows and columns on each side. windows: size, stride and dilation of each
    axis. An op that adds the same rows and columns by itself gets the images as they are: that is faster.
    """
    if isinstance(padding, str):
        return images, padding.upper()
    return _padded(images, padding, windows, layout, 0.0)


def for_maximum(
    layer: str,
    images: Tensor,
    padding: str | tuple[int, int],
    windows: Sequence[tuple[int, int, int]],
    layout: str,
) -> tuple[Tensor, str]:
    """Images with elements around them that are never the maximum, and the op's padding.

    Raises InvalidArgumentError for windows that could lie in the padding alone.
    """
    if isinstance(padding, str):
        return images, padding.upper()
    for width, (size, *_) in zip(padding, windows, strict=True):
        if width > size // 2:
            raise InvalidArgumentError(
                f"{layer}: expected a padding of at most half the size {size} of the windows, got {width}"
            )
    return _padded(images, padding, windows, layout, images.dtype.min)


def for_mean(images: Tensor, padding: str | tuple[int, int], layout: str) -> tuple[Tensor, str]:
    """Images with zeros around them, which are counted as elements, and the op's padding."""
    if isinstance(padding, str):
        return images, padding.upper()
    dims = images.spec.dims
    if any(padding) and (dims is None or len(dims) == 4):
        images = _with_sides(images, padding, layout.index("H"), 0.0)
    return images, "VALID"


def _padded(
    images: Tensor,
    padding: tuple[int, int],
    windows: Sequence[tuple[int, int, int]],
    layout: str,
    value: float,
) -> tuple[Tensor, str]:
    dims = images.spec.dims
    if not any(padding) or (dims is not None and len(dims) != 4):  # which the op refuses
        return images, "VALID"
    first = layout.index("H")
    extents = (None, None) if dims is None else dims[first : first + 2]
    if all(_is_same(*each) for each in zip(extents, padding, windows, strict=True)):
        return images, "SAME"
    return _with_sides(images, padding, first, value), "VALID"


def _is_same(extent: int | None, width: int, window: tuple[int, int, int]) -> bool:
    """True if padding SAME has the same windows as `width` elements on each side."""
    size, stride, dilation = window
    span = (size - 1) * dilation + 1
    if extent is None:
        return stride == 1 and 2 * width == span - 1
    count = -(-extent // stride)
    total = max((count - 1) * stride + span - extent, 0)
    return count == (extent + 2 * width - span) // stride + 1 and total // 2 == width


def _with_sides(images: Tensor, widths: tuple[int, int], first: int, value: float) -> Tensor:
    sides = [[0, 0] for _ in range(4)]
    for axis, width in enumerate(widths, first):
        sides[axis] = [width, width]
    return pad(images, sides, constant_values=value)
