"""Windows of images: crops and margins.

Where the extents of the images, or the window, are known by a step only, as of decoded pictures, the window
is cut by a function of the host: nothing is compiled anew for pictures of another size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import REQUIRED, Attrs, HostCall, Operation, Tensor, as_tensor, name_scope
from tensorbow.kinds import is_tensor
from tensorbow.ops.arrays import stack
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op
from tensorbow.ops.padding import pad
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import Array, TensorSpec, int64

CROP, PAD, MIDDLE, FRACTION = "crop_to_bounding_box", "pad_to_bounding_box", "crop_or_pad", "central_crop"

WINDOWS = (CROP, PAD, MIDDLE, FRACTION)


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, numbers = inputs
    dims = images.dims
    size = [None, None] if attrs["kind"] == FRACTION or numbers.value is None else numbers.value[-2:].tolist()
    return TensorSpec((*dims[:-3], *size, dims[-1]), images.dtype)


def _window(kind: str, numbers: Sequence[int], fraction: float, extents: Sequence[int]) -> tuple[int, ...]:
    """Top, left, height and width of the window, in rows and columns of the images."""
    if kind == FRACTION:
        starts = [int((extent - extent * fraction) / 2) for extent in extents]
        return *starts, *(extent - 2 * start for extent, start in zip(extents, starts, strict=True))
    *offsets, height, width = numbers
    if min(height, width) < 1 or min(offsets, default=0) < 0:
        raise InvalidArgumentError(
            f"{kind}: offsets {offsets}, height {height}, width {width}; expected offsets of at least 0 and "
            "extents of at least 1"
        )
    if kind == MIDDLE:  # of what is larger its middle; what is smaller lies in the middle
        top, left = (
            (extent - size) // 2 if extent >= size else -((size - extent) // 2)
            for extent, size in zip(extents, (height, width), strict=True)
        )
        return top, left, height, width
    top, left = offsets if kind == CROP else (-offsets[0], -offsets[1])
    box = [(top, height, extents[0]), (left, width, extents[1])]
    if kind == CROP and any(start + size > extent for start, size, extent in box):
        raise InvalidArgumentError(
            f"{kind}: rows {top}:{top + height}, columns {left}:{left + width} of images of "
            f"{extents[0]} x {extents[1]}; expected a box inside the image"
        )
    if kind == PAD and any(start + size < extent for start, size, extent in box):
        raise InvalidArgumentError(
            f"{kind}: images of {extents[0]} x {extents[1]} at {offsets} do not fit {height} x {width}"
        )
    return top, left, height, width


def _common(start: int, size: int, extent: int) -> tuple[slice, slice]:
    """The overlap of images and window along an axis, as a slice of each."""
    first, last = max(start, 0), max(min(start + size, extent), max(start, 0))
    return slice(first, last), slice(first - start, last - start)


def _parts(call: HostCall, images: Array) -> tuple[tuple[int, ...], Any, Any]:
    """The window's shape, the part of the images, and the part of the window."""
    extents, numbers = images.shape[-3:-1], call.inputs[-1].tolist()
    window = _window(call.attrs["kind"], numbers, call.attrs["fraction"], extents)
    rows, columns = map(_common, window[:2], window[2:], extents)
    shape = (*images.shape[:-3], *window[2:], images.shape[-1])
    return shape, (..., rows[0], columns[0], slice(None)), (..., rows[1], columns[1], slice(None))


def _cut(call: HostCall) -> Array:
    images = call.inputs[0]
    shape, source, target = _parts(call, images)
    result = np.zeros(shape, images.dtype)
    result[target] = images[source]
    return result


def _put_back(call: HostCall) -> Array:
    gradient, images, _ = call.inputs
    _, source, target = _parts(call, images)
    result = np.zeros(images.shape, gradient.dtype)
    result[source] = gradient[target]
    return result


def _gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    if not g.dtype.is_differentiable:
        return [None, None]
    return [ImageWindowGrad(g, *op.inputs, **op.attrs), None]


ImageWindow = define_op(
    "ImageWindow",
    spec=_spec,
    gradient=_gradient,
    host=_cut,
    inputs=("images", "numbers"),
    attrs={"kind": REQUIRED, "fraction": 1.0},
    doc="A window of images, with zeros outside of these. numbers: [height, width], after offsets if any.",
)

ImageWindowGrad = define_op(
    "ImageWindowGrad",
    spec=lambda inputs, attrs: TensorSpec(inputs[1].shape, inputs[0].dtype),
    gradient=lambda op, g: [ImageWindow(g, op.inputs[2], **op.attrs), None, None],
    host=_put_back,
    inputs=("gradient", "images", "numbers"),
    attrs={"kind": REQUIRED, "fraction": 1.0},
    doc="The gradient of ImageWindow with respect to the images.",
)


def known_size(x: Tensor) -> tuple[int, int]:
    """Height and width of images, where they are known."""
    height, width = (extent or 0 for extent in x.spec.dims[-3:-1])
    return height, width


def is_fixed(x: Tensor, numbers: Sequence[Any]) -> bool:
    """True if the extents of the images, and the numbers of the window, are known."""
    return None not in x.spec.dims[-3:-1] and not any(map(is_tensor, numbers))


def window_of(
    kind: str, x: Tensor, numbers: Sequence[Any], name: str | None, fraction: float = 1.0
) -> Tensor:
    """A window of images. numbers: whole numbers and scalar tensors, [height, width] after offsets if any.

    Raises InvalidArgumentError for a window that does not fit, in the step where only the step knows.
    """
    if is_fixed(x, numbers):
        return _known_window(x, _window(kind, numbers, fraction, known_size(x)), name)
    with x.graph.as_default():
        if any(map(is_tensor, numbers)):
            vector = stack([cast(as_tensor(each), int64) for each in numbers])
        else:
            vector = constant(np.array(numbers, np.int64))
    result: Tensor = ImageWindow(x, vector, kind=kind, fraction=fraction, name=name)
    if numbers:
        known = [None if is_tensor(each) else each for each in numbers[-2:]]
        result.set_shape([*x.spec.dims[:-3], *known, x.spec.dims[-1]])
    return result


def _known_window(x: Tensor, window: Sequence[int], name: str | None) -> Tensor:
    """Top, left, height and width of images, by a slice and zeros around it."""
    axes = [*map(_common, window[:2], window[2:], known_size(x))]
    kept = (..., *(source for source, _ in axes), slice(None))
    margins = [[part.start, size - part.stop] for (_, part), size in zip(axes, window[2:], strict=True)]
    if not any(map(any, margins)):
        return strided_slice(x, kept, name)
    pairs = [*[[0, 0]] * (x.spec.rank - 3), *margins, [0, 0]]
    if all(source == slice(0, extent) for (source, _), extent in zip(axes, known_size(x), strict=True)):
        return pad(x, pairs, name=name)
    with x.graph.as_default(), name_scope(name or "window"):
        return pad(strided_slice(x, kept), pairs)
