"""Flips, rotations, crops and margins of images.

Images are [batch, height, width, channels] or [height, width, channels]. Where a crop or margin depends on
heights and widths that are not known, as of decoded pictures, the step runs in the dynamic mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import AxisNumber, Name, Seed, checked, number
from tensorbow.ops.argument_kinds import CountOrTensor, Extents, PositiveCountOrTensor, numbers_of
from tensorbow.ops.arrays import concat, stack, transpose
from tensorbow.ops.broadcasting import as_shape_vector, ones_like, shape
from tensorbow.ops.elementwise import add, divide, floor, less, maximum, multiply, subtract
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.image_windows import (
    CROP,
    FRACTION,
    MIDDLE,
    PAD,
    is_fixed,
    known_size,
    window_of,
)
from tensorbow.ops.indexing import gather
from tensorbow.ops.random import random_uniform
from tensorbow.ops.reductions import reduce_max
from tensorbow.ops.resizing import Method, ResizeMethod, resize_images
from tensorbow.ops.selection import cast, select
from tensorbow.ops.shaping import reverse
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import compatible, float64, int32

__all__ = [
    "central_crop",
    "crop_to_bounding_box",
    "flip_left_right",
    "flip_up_down",
    "pad_to_bounding_box",
    "random_flip_left_right",
    "random_flip_up_down",
    "resize_image_with_crop_or_pad",
    "resize_image_with_pad",
    "rot90",
    "transpose_image",
]


def image_of(op: str, image: Any) -> Tensor:
    """The images as a tensor. Raises InvalidArgumentError unless their rank is 3 or 4."""
    x = as_tensor(image)
    if x.shape.ndims not in (3, 4):
        raise InvalidArgumentError(
            f"{op}: expected images [batch, height, width, channels], or one of them, got {x.spec}"
        )
    return x


@checked
def flip_left_right(image: Any, name: Name = None) -> Tensor:
    """Mirrors images from left to right."""
    return reverse(image_of("flip_left_right", image), [-2], name)


@checked
def flip_up_down(image: Any, name: Name = None) -> Tensor:
    """Mirrors images from top to bottom."""
    return reverse(image_of("flip_up_down", image), [-3], name)


@checked
def transpose_image(image: Any, name: Name = None) -> Tensor:
    """Swaps height and width of images."""
    x = image_of("transpose_image", image)
    return transpose(x, [1, 0, 2] if x.shape.ndims == 3 else [0, 2, 1, 3], name)


@checked
def rot90(image: Any, k: AxisNumber = 1, name: Name = None) -> Tensor:
    """Rotates images by `k` quarters of a turn, counterclockwise."""
    x = image_of("rot90", image)
    with x.graph.as_default(), name_scope(name or "rot90"):
        if k % 4 == 2:
            return reverse(x, [-3, -2])
        if k % 4 == 0:
            return x
        turned = transpose_image(x)
        return flip_up_down(turned) if k % 4 == 1 else flip_left_right(turned)


@checked
def random_flip_left_right(image: Any, seed: Seed = None) -> Tensor:
    """Mirrors each image from left to right with a probability of 1/2, drawn anew in each step."""
    return _randomly("random_flip_left_right", flip_left_right, image, seed)


@checked
def random_flip_up_down(image: Any, seed: Seed = None) -> Tensor:
    """Mirrors each image from top to bottom with a probability of 1/2, drawn anew in each step."""
    return _randomly("random_flip_up_down", flip_up_down, image, seed)


def _randomly(op: str, flip: Callable[[Tensor], Tensor], image: Any, seed: int | None) -> Tensor:
    x = image_of(op, image)
    with x.graph.as_default(), name_scope(op):
        extents = shape(x)
        lead = strided_slice(extents, slice(None, -3))
        one_each = concat([lead, ones_like(strided_slice(extents, slice(-3, None)))], 0)
        return select(less(random_uniform(one_each, seed=seed), 0.5), flip(x), x)


@checked
def crop_to_bounding_box(
    image: Any,
    offset_height: CountOrTensor,
    offset_width: CountOrTensor,
    target_height: PositiveCountOrTensor,
    target_width: PositiveCountOrTensor,
    name: Name = None,
) -> Tensor:
    """The box of images that begins at an offset and has a height and width.

    Raises InvalidArgumentError for a box that is not inside the images, at run time where it is not known
    before.
    """
    x = image_of("crop_to_bounding_box", image)
    box = numbers_of(offset_height, offset_width, target_height, target_width)
    return window_of(CROP, x, box, name)


@checked
def pad_to_bounding_box(
    image: Any,
    offset_height: CountOrTensor,
    offset_width: CountOrTensor,
    target_height: PositiveCountOrTensor,
    target_width: PositiveCountOrTensor,
    name: Name = None,
) -> Tensor:
    """Images at an offset on a ground of zeros, with a height and width.

    Raises InvalidArgumentError for a ground that is too small, at run time where it is not known before.
    """
    x = image_of("pad_to_bounding_box", image)
    box = numbers_of(offset_height, offset_width, target_height, target_width)
    return window_of(PAD, x, box, name)


@checked
def resize_image_with_crop_or_pad(
    image: Any, target_height: PositiveCountOrTensor, target_width: PositiveCountOrTensor, name: Name = None
) -> Tensor:
    """The middle of images, with zeros around it, so that they have a height and width."""
    x = image_of("resize_image_with_crop_or_pad", image)
    return window_of(MIDDLE, x, numbers_of(target_height, target_width), name)


@checked
def resize_image_with_pad(
    image: Any,
    target_height: PositiveCountOrTensor,
    target_width: PositiveCountOrTensor,
    method: Method = ResizeMethod.BILINEAR,
    name: Name = None,
) -> Tensor:
    """Images resized as a whole, height to width as before, in the middle of zeros of a height and width.

    method: of `resize_images`, which says the dtype of the result, too.
    """
    x = image_of("resize_image_with_pad", image)
    target = numbers_of(target_height, target_width)
    with x.graph.as_default(), name_scope(name or "resize_image_with_pad"):
        if is_fixed(x, target):
            known = known_size(x)
            if 0 in known:
                raise InvalidArgumentError(f"resize_image_with_pad: {x.spec} has no pixels; expected some")
            scale = max(own / wanted for own, wanted in zip(known, target, strict=True))
            fitted = [own / scale for own in known]
            size: Any = [max(1, int(extent)) for extent in fitted]
            offset: Any = [max(0, int((t - extent) / 2)) for t, extent in zip(target, fitted, strict=True)]
        else:
            extents = cast(strided_slice(shape(x), slice(-3, -1)), float64)
            wanted = cast(stack([as_tensor(each) for each in target]), float64)
            reduced = divide(extents, reduce_max(divide(extents, wanted)))
            size = maximum(cast(floor(reduced), int32), 1)
            begin = maximum(cast(floor(divide(subtract(wanted, reduced), 2)), int32), 0)
            offset = [strided_slice(begin, axis) for axis in (0, 1)]
        return pad_to_bounding_box(resize_images(x, size, method), *offset, *target)


@checked
def central_crop(
    image: Any, central_fraction: Annotated[float, number(0, 1, above=True)], name: Name = None
) -> Tensor:
    """The middle of images: `central_fraction`, above 0 and at most 1, of the height and of the width."""
    x = image_of("central_crop", image)
    return window_of(FRACTION, x, (), name, central_fraction)


@checked
def random_crop(value: Any, size: Extents, seed: Seed = None, name: Name = None) -> Tensor:
    """A part of `value` of a shape `size`, at a place drawn anew in each step.

    The rank must be known. Raises InvalidArgumentError for a part of another rank or larger than `value`, at
    run time on CPU devices where its shape is not known before.
    """
    x = as_tensor(value)
    with x.graph.as_default(), name_scope(name or "random_crop"):
        wanted = cast(as_tensor(as_shape_vector(size)), int32)
        known = wanted.spec.value
        if x.shape.ndims is None or not compatible(wanted.spec.shape, (x.shape.ndims,)):
            raise InvalidArgumentError(
                f"random_crop: size {wanted.spec} for {x.spec}; expected an extent per axis, a known rank"
            )
        pairs = [] if known is None else zip(x.spec.dims, known.tolist(), strict=True)
        if known is not None and any(extent is not None and extent < size for extent, size in pairs):
            raise InvalidArgumentError(f"random_crop: a part {known.tolist()} is larger than {x.spec}")
        room = add(subtract(shape(x), wanted), 1)
        draws = random_uniform(shape(room), seed=seed, dtype=float64)
        begin = cast(floor(multiply(draws, cast(room, float64))), int32)
        for axis in range(x.spec.rank):
            if known is None or x.spec.dims[axis] != known[axis]:
                steps = number_range(strided_slice(wanted, axis))
                x = gather(x, add(strided_slice(begin, axis), steps), axis=axis)
        return x
