"""Padding for a layer with windows: a number of rows and columns on each side, as in PyTorch.

Images [batch, height, width, channels] and volumes [batch, depth, height, width, channels], or channels
second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.ops.broadcasting import shape
from tensorbow.ops.padding import pad
from tensorbow.ops.slicing import strided_slice


def for_convolution(
    images: Tensor,
    padding: str | tuple[int, ...],
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
    padding: str | tuple[int, ...],
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


def for_mean(images: Tensor, padding: str | tuple[int, ...], layout: str) -> tuple[Tensor, str]:
    """Images with zeros around them, which are counted as elements, and the op's padding."""
    if isinstance(padding, str):
        return images, padding.upper()
    dims = images.spec.dims
    if any(padding) and (dims is None or len(dims) == len(layout)):
        images = _with_sides(images, padding, _first(layout), 0.0)
    return images, "VALID"


def for_transposed(
    layer: str,
    extents: Sequence[int],
    padding: str | tuple[int, ...],
    windows: Sequence[tuple[int, int]],
    added: tuple[int, ...] | None,
) -> tuple[list[int], str, tuple[int, ...]]:
    """Extents that a transposed convolution makes, the op's padding, and what is cut off on each side then.

    windows: size and stride of each axis. added: PyTorch's output_padding, of elements behind. Raises
    InvalidArgumentError for paddings that do not fit.
    """
    strides = [stride for _, stride in windows]
    if isinstance(padding, str):
        if added is not None:
            raise InvalidArgumentError(
                f"{layer}: output_padding: expected together with a padding of numbers, got padding {padding}"
            )
        sizes = zip(extents, windows, strict=True)
        made = [n * step + (padding == "valid") * max(size - step, 0) for n, (size, step) in sizes]
        return made, padding.upper(), (0,) * len(made)
    behind = added or (0,) * len(strides)
    if any(more >= step for more, step in zip(behind, strides, strict=True)):
        raise InvalidArgumentError(
            f"{layer}: output_padding: expected numbers below the strides {strides}, got {[*behind]}"
        )
    each = zip(extents, windows, behind, strict=True)
    whole = [(n - 1) * step + size + more for n, (size, step), more in each]
    kept = [n - 2 * width for n, width in zip(whole, padding, strict=True)]
    if min(kept) < 1:
        raise InvalidArgumentError(
            f"{layer}: padding: expected less than half of the extents {whole} without it, got {[*padding]}"
        )
    pairs = zip(kept, padding, windows, strict=True)
    if all(_is_same(n, width, (*window, 1)) for n, width, window in pairs):
        return kept, "SAME", (0,) * len(kept)
    return whole, "VALID", padding


def _cut_off(images: Tensor, widths: tuple[int, ...], layout: str) -> Tensor:
    """Images without so many rows and columns on each side; their extents must be known."""
    if not any(widths):
        return images
    first = _first(layout)
    extents = images.spec.extents[first : first + len(widths)]
    inner = [slice(width, extent - width) for width, extent in zip(widths, extents, strict=True)]
    return strided_slice(images, (*[slice(None)] * first, *inner))


def _padded(
    images: Tensor,
    padding: tuple[int, ...],
    windows: Sequence[tuple[int, int, int]],
    layout: str,
    value: float,
) -> tuple[Tensor, str]:
    dims = images.spec.dims
    if not any(padding) or (dims is not None and len(dims) != len(layout)):  # which the op refuses
        return images, "VALID"
    first = _first(layout)
    extents = (None,) * len(padding) if dims is None else dims[first : first + len(padding)]
    if all(_is_same(*each) for each in zip(extents, padding, windows, strict=True)):
        return images, "SAME"
    return _with_sides(images, padding, first, value), "VALID"


def _first(layout: str) -> int:
    """The first axis over which windows move."""
    return 1 if layout.endswith("C") else 2


def _is_same(extent: int | None, width: int, window: tuple[int, int, int]) -> bool:
    """True if padding SAME has the same windows as `width` elements on each side."""
    size, stride, dilation = window
    span = (size - 1) * dilation + 1
    if extent is None:
        return stride == 1 and 2 * width == span - 1
    count = -(-extent // stride)
    total = max((count - 1) * stride + span - extent, 0)
    return count == (extent + 2 * width - span) // stride + 1 and total // 2 == width


def _with_sides(images: Tensor, widths: tuple[int, ...], first: int, value: float) -> Tensor:
    sides = [[0, 0] for _ in range(len(widths) + 2)]
    for axis, width in enumerate(widths, first):
        sides[axis] = [width, width]
    return pad(images, sides, constant_values=value)


def transposed(
    convolve: Callable[..., Tensor],
    inputs: Tensor,
    kernel: Any,
    extents: Sequence[int],
    strides: Sequence[int],
    padding: str,
    layout: str,
    cut: Any,
) -> Tensor:
    """A transposed convolution of a batch of any size. padding, cut: as `for_transposed` gives them.

    extents: all but the batch's, in the order of the layout.
    """
    batch = inputs.shape[0]
    size = strided_slice(shape(inputs), 0) if batch is None else batch
    result = convolve(inputs, kernel, [size, *extents], strides, padding, layout)
    result.set_shape([batch, *extents])
    return _cut_off(result, cut, layout)
