"""Images of another size: every method is a weighted sum of gathered rows, then of gathered columns.

Positions and weights are constants where the extents are known when the graph is built. For others, as of
decoded pictures, a function of the host does the same. They are those of TensorFlow 1: pixel i of the result
lies at i * scale, without half pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Attrs, HostCall, Operation, Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Kind, Name, checked, is_tensor, sequence, whole
from tensorbow.ops.arrays import expand_dims, squeeze
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import add, multiply
from tensorbow.ops.indexing import gather
from tensorbow.ops.selection import cast
from tensorbow.specs import NUMERIC, Array, DType, TensorSpec, compatible, float32

__all__ = [
    "ResizeMethod",
    "resize",
    "resize_area",
    "resize_bicubic",
    "resize_bilinear",
    "resize_images",
    "resize_nearest_neighbor",
]

_SIZE = sequence(whole(1), "[height, width], whole numbers of at least 1")


def _read_size(value: Any) -> Any:
    """A tuple of two numbers or of tensors, or a vector that is no constant."""
    if is_tensor(value):
        known = as_tensor(value).spec.value
        return value if known is None else _SIZE.read(known)
    if isinstance(value, (list, tuple)) and any(map(is_tensor, value)):
        return tuple(each if is_tensor(each) else whole(1).read(each) for each in value)
    return _SIZE.read(value)


Size: TypeAlias = Annotated[Any, Kind(f"{_SIZE.expected}, or a vector of them", _read_size)]
METHODS = ("bilinear", "nearest", "bicubic", "area")  # by number


def _read_method(value: Any) -> int:
    number: int = (
        METHODS.index(value) if isinstance(value, str) and value in METHODS else whole(0, 3).read(value)
    )
    return number


Method: TypeAlias = Annotated[
    int, Kind(f"one of tb.image.ResizeMethod, or {', '.join(map(repr, METHODS))}", _read_method)
]
Taps = list[tuple[Array, Array]]  # positions and weights of one source pixel for each pixel of the result

KEYS = -0.75  # the slope of Keys' cubic kernel at 1 that TensorFlow 1 uses


class ResizeMethod:
    """Methods of `resize_images`."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _taps(extent: int, size: int, method: int, align_corners: bool) -> Taps:
    scale = (extent - 1) / (size - 1) if align_corners and size > 1 else extent / size
    at = np.arange(size) * scale
    low = np.floor(at).astype(np.int64)
    if method == ResizeMethod.NEAREST_NEIGHBOR:
        nearest = np.floor(at + 0.5).astype(np.int64) if align_corners else low
        return [(np.minimum(nearest, extent - 1), np.ones(size))]
    if method == ResizeMethod.AREA:
        last = extent if align_corners else np.inf
        ends = np.minimum(at + scale, last)
        count = math.ceil(scale) + 1
        parts = [(low + k, np.minimum(ends, low + k + 1) - np.maximum(at, low + k)) for k in range(count)]
        total = sum(np.maximum(weights, 0) for _, weights in parts)
        return [(np.minimum(i, extent - 1), np.maximum(weights, 0) / total) for i, weights in parts]
    part = at - low
    if method == ResizeMethod.BILINEAR:
        return [(np.minimum(low, extent - 1), 1 - part), (np.minimum(low + 1, extent - 1), part)]
    return [(np.clip(low + k, 0, extent - 1), _cubic(np.abs(part - k))) for k in (-1, 0, 1, 2)]


def _cubic(x: Array) -> Array:
    """Keys' cubic kernel (Keys, 1981) at a distance of up to 2."""
    near = ((KEYS + 2) * x - (KEYS + 3)) * x * x + 1
    far = KEYS * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far)


def _resampled(x: Tensor, axis: int, taps: Taps) -> Tensor:
    total = None
    for positions, weights in taps:
        term = gather(x, constant(positions), axis=axis)
        if not (weights == 1).all():
            shaped = weights.reshape([-1] + [1] * (3 - axis))
            term = multiply(term, constant(shaped, x.dtype))
        total = term if total is None else add(total, term)
    assert total is not None  # every method has a tap
    return total


def _resized_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    images, size = inputs
    require_dtype("ResizeImages", images, NUMERIC, "images")
    if not compatible(size.shape, (2,)) or not size.dtype.is_integer:
        raise InvalidArgumentError(f"resize_images: size is {size}, expected whole numbers [height, width]")
    wanted = (None, None) if size.value is None else tuple(size.value.tolist())
    return TensorSpec((*images.dims[:-3], *wanted, images.dims[-1]), _resized_dtype(images.dtype, attrs))


def _resized_dtype(dtype: DType, attrs: Attrs) -> DType:
    keeps = attrs["method"] == ResizeMethod.NEAREST_NEIGHBOR or dtype.is_floating
    return dtype if keeps else float32


def _taps_of(call: HostCall, extents: Sequence[int], size: Array) -> list[Taps]:
    """The taps of both axes. Raises InvalidArgumentError for a size below 1, and images without pixels."""
    if min(size) < 1 or min(extents) < 1:
        raise InvalidArgumentError(
            f"resize_images: images of {extents[0]} x {extents[1]} to size {size.tolist()}; expected extents "
            "of at least 1"
        )
    method, corners = call.attrs["method"], call.attrs["align_corners"]
    return [_taps(extent, int(wanted), method, corners) for extent, wanted in zip(extents, size, strict=True)]


def _resized(call: HostCall) -> Array:
    x, size = call.inputs
    dtype = call.op.outputs[0].dtype.as_numpy_dtype
    result = x.astype(dtype, copy=False)
    for axis, taps in zip((-3, -2), _taps_of(call, x.shape[-3:-1], size), strict=True):
        weights = [_along(weights, axis).astype(dtype) for _, weights in taps]
        parts = [result.take(positions, axis) for positions, _ in taps]
        result = parts[0] * weights[0]
        for part, each in zip(parts[1:], weights[1:], strict=True):
            result += part * each
    return np.asarray(result, dtype)


def _along(weights: Array, axis: int) -> Array:
    return weights.reshape([-1] + [1] * (-1 - axis))


def _resized_back(call: HostCall) -> Array:
    """The transposed sums: each pixel's gradient, weighted, is added to the pixels that it was made of."""
    gradient, images, size = call.inputs
    result = gradient
    for axis, taps in zip((-2, -3), _taps_of(call, images.shape[-3:-1], size)[::-1], strict=True):
        whole_axis = np.moveaxis(result, axis, 0)
        sums = np.zeros((images.shape[axis], *whole_axis.shape[1:]), gradient.dtype)
        for positions, weights in taps:
            shaped = weights.reshape([-1] + [1] * (sums.ndim - 1)).astype(gradient.dtype)
            np.add.at(sums, positions, whole_axis * shaped)
        result = np.moveaxis(sums, 0, axis)
    return np.ascontiguousarray(result)


def _resized_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    if not op.inputs[0].dtype.is_floating:
        return [None, None]
    return [ResizeImagesGrad(g, *op.inputs, **op.attrs), None]


_ATTRS: dict[str, Any] = {"method": ResizeMethod.BILINEAR, "align_corners": False}
ResizeImages = define_op(
    "ResizeImages",
    spec=_resized_spec,
    gradient=_resized_gradient,
    host=_resized,
    slow=True,
    inputs=("images", "size"),
    attrs=_ATTRS,
    unknown_dtypes=lambda inputs, attrs: (_resized_dtype(inputs[0].dtype, attrs),),
    doc="Images of another size, where only a step knows extents.",
)
ResizeImagesGrad = define_op(
    "ResizeImagesGrad",
    spec=lambda inputs, attrs: TensorSpec(inputs[1].shape, inputs[0].dtype),
    gradient=lambda op, g: [ResizeImages(g, op.inputs[2], **op.attrs), None, None],
    host=_resized_back,
    slow=True,
    inputs=("gradient", "images", "size"),
    attrs=_ATTRS,
    doc="The gradient of ResizeImages with respect to the images.",
)


@checked
def resize_images(
    images: Any,
    size: Size,
    method: Method = ResizeMethod.BILINEAR,
    align_corners: Flag = False,
    name: Name = None,
    *,
    preserve_aspect_ratio: Flag = False,
) -> Tensor:
    """Images of `size` [height, width], by one of the methods of `ResizeMethod`, or by its name.

    images: [batch, height, width, channels] or [height, width, channels]; if height, width or `size` are
    known only when it runs, the step is in the dynamic mode. Returns float32 (float64 for that), or the dtype
    of the images for NEAREST_NEIGHBOR. With `align_corners` the corners' centres stay where they are. With
    `preserve_aspect_ratio` the images fit into `size`, rounded; their extents and `size` must be known then.
    Raises InvalidArgumentError for other ranks.
    """
    x = as_tensor(images)
    rank = x.shape.ndims
    if preserve_aspect_ratio:
        size = _fitting(x, size)
    is_data = not isinstance(size, tuple) or any(map(is_tensor, size))
    if rank not in (3, 4) or 0 in x.spec.dims[-3:-1] or (isinstance(size, tuple) and len(size) != 2):
        raise InvalidArgumentError(
            f"resize_images: expected images [batch, height, width, channels], or one of them, of a known "
            f"rank, and a size [height, width], got {x.spec} and {size}"
        )
    if is_data or None in x.spec.dims[-3:-1]:
        wanted = as_tensor(list(size) if isinstance(size, tuple) else size)
        result: Tensor = ResizeImages(x, wanted, method=method, align_corners=align_corners, name=name)
        if isinstance(size, tuple):
            known = [None if is_tensor(each) else each for each in size]
            result.set_shape([*x.spec.dims[:-3], *known, x.spec.dims[-1]])
        return result
    with x.graph.as_default(), name_scope(name or "resize_images"):
        batch = x if rank == 4 else expand_dims(x, 0)
        if method != ResizeMethod.NEAREST_NEIGHBOR and not x.dtype.is_floating:
            batch = cast(batch, float32)
        for axis, wanted in enumerate(size, start=1):
            extent = batch.spec.dims[axis] or 1
            if extent != wanted:
                batch = _resampled(batch, axis, _taps(extent, wanted, method, align_corners))
        return batch if rank == 4 else squeeze(batch, 0)


def _fitting(x: Tensor, size: Any) -> tuple[int, int]:
    """The greatest size of the images' ratio within a size."""
    extents = x.spec.shape[-3:-1] if x.spec.shape is not None and len(x.spec.shape) in (3, 4) else (None,)
    if None in extents or not isinstance(size, tuple) or len(size) != 2 or any(map(is_tensor, size)):
        raise InvalidArgumentError(
            f"resize_images: preserve_aspect_ratio needs a known size and known extents of images, got "
            f"{x.spec} and {size}"
        )
    scale = min(wanted / max(extent or 0, 1) for wanted, extent in zip(size, extents, strict=True))
    height, width = (max(int(np.rint(scale * (extent or 0))), 1) for extent in extents)
    return height, width


resize = resize_images  # TensorFlow's newer name


@checked
def resize_bilinear(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by bilinear interpolation."""
    return resize_images(images, size, ResizeMethod.BILINEAR, align_corners, name)


@checked
def resize_nearest_neighbor(
    images: Any, size: Size, align_corners: Flag = False, name: Name = None
) -> Tensor:
    """`resize_images` by the nearest pixel, in the dtype of the images."""
    return resize_images(images, size, ResizeMethod.NEAREST_NEIGHBOR, align_corners, name)


@checked
def resize_bicubic(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by cubic convolution (Keys, 1981)."""
    return resize_images(images, size, ResizeMethod.BICUBIC, align_corners, name)


@checked
def resize_area(images: Any, size: Size, align_corners: Flag = False, name: Name = None) -> Tensor:
    """`resize_images` by the mean of the area that a pixel of the result covers."""
    return resize_images(images, size, ResizeMethod.AREA, align_corners, name)
