"""Colours of images [..., height, width, channels]: brightness, contrast, hue, saturation, grey, statistics.

Floating images have values in [0, 1]. Integer ones are computed in float32 and come back in their dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_numbers, as_tensor, name_scope
from tensorbow.kinds import AsDType, Flag, Name, NonNegative, Number, NumberOrTensor, Seed, checked
from tensorbow.ops.arrays import concat, stack
from tensorbow.ops.broadcasting import broadcast_to, shape
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import (
    add,
    clip_by_value,
    divide,
    equal,
    floor,
    floordiv,
    greater,
    less,
    log,
    maximum,
    multiply,
    pair,
    rsqrt,
    sqrt,
    square,
    subtract,
)
from tensorbow.ops.elementwise import pow as power
from tensorbow.ops.image_geometry import image_of
from tensorbow.ops.random import random_uniform
from tensorbow.ops.reductions import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.shaping import unstack
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import NUMERIC, DType, TensorSpec, float32, float64

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "convert_image_dtype",
    "grayscale_to_rgb",
    "hsv_to_rgb",
    "per_image_standardization",
    "psnr",
    "random_brightness",
    "random_contrast",
    "random_hue",
    "random_saturation",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "total_variation",
]

GREY = (0.2989, 0.5870, 0.1140)  # weights of red, green and blue (ITU-R BT.601)


def _greatest(dtype: DType) -> int:
    return int(np.iinfo(dtype.as_numpy_dtype).max)


@checked
def convert_image_dtype(image: Any, dtype: AsDType, saturate: Flag = False, name: Name = None) -> Tensor:
    """Images in another dtype, with their values scaled: integers to the greatest number, floating ones to 1.

    `saturate` limits values beyond the range of an integer dtype before the cast.
    """
    x = as_numbers(image)
    for each in (x.spec, TensorSpec((), dtype)):
        require_dtype("convert_image_dtype", each, NUMERIC, "the image")
    with x.graph.as_default(), name_scope(name or "convert_image"):
        if x.dtype == dtype or (x.dtype.is_floating and dtype.is_floating):
            return cast(x, dtype)
        if dtype.is_floating:
            return multiply(cast(x, dtype), 1 / _greatest(x.dtype))
        if x.dtype.is_floating:
            wide = multiply(cast(x, float64), _greatest(dtype) + 0.5)
            low = float(np.iinfo(dtype.as_numpy_dtype).min)
            return cast(clip_by_value(wide, low, float(_greatest(dtype))) if saturate else wide, dtype)
        larger, smaller = _greatest(dtype) + 1, _greatest(x.dtype) + 1
        if larger > smaller:
            return multiply(cast(x, dtype), larger // smaller)
        return cast(floordiv(x, smaller // larger), dtype)


def _in_floats(op: str, image: Any, function: Callable[[Tensor], Tensor], name: str | None) -> Tensor:
    x = as_tensor(image)
    with x.graph.as_default(), name_scope(name or op):
        floats = x if x.dtype.is_floating else convert_image_dtype(x, float32)
        return convert_image_dtype(function(floats), x.dtype, saturate=True)


def _rgb(op: str, x: Tensor) -> Tensor:
    dims = x.spec.shape
    if not dims or dims[-1] not in (3, None):
        raise InvalidArgumentError(f"{op}: expected three channels [..., 3], got {x.spec}")
    return x


# Adjustments ----------------------------------------------------------------------------------------------


@checked
def adjust_brightness(image: Any, delta: NumberOrTensor, name: Name = None) -> Tensor:
    """Adds `delta`, of the range of floating images, to all values."""
    return _in_floats("adjust_brightness", image, lambda x: add(x, cast(as_tensor(delta), x.dtype)), name)


@checked
def adjust_contrast(images: Any, contrast_factor: NumberOrTensor, name: Name = None) -> Tensor:
    """Multiplies the distance of each value from its channel's mean over the image."""

    def adjust(x: Tensor) -> Tensor:
        mean = reduce_mean(x, [-3, -2], keepdims=True)
        return add(multiply(subtract(x, mean), cast(as_tensor(contrast_factor), x.dtype)), mean)

    return _in_floats("adjust_contrast", image_of("adjust_contrast", images), adjust, name)


@checked
def adjust_gamma(image: Any, gamma: NonNegative = 1.0, gain: Number = 1.0, name: Name = None) -> Tensor:
    """gain * value ** gamma."""
    return _in_floats("adjust_gamma", image, lambda x: multiply(power(x, gamma), gain), name)


@checked
def adjust_hue(image: Any, delta: NumberOrTensor, name: Name = None) -> Tensor:
    """Adds `delta`, in turns, to the hue of RGB images."""

    def adjust(x: Tensor) -> Tensor:
        hue, saturation, value = unstack(rgb_to_hsv(x), 3, axis=-1)
        turned = add(hue, cast(as_tensor(delta), x.dtype))
        return hsv_to_rgb(stack([subtract(turned, floor(turned)), saturation, value], -1))

    return _in_floats("adjust_hue", image, adjust, name)


@checked
def adjust_saturation(image: Any, saturation_factor: NumberOrTensor, name: Name = None) -> Tensor:
    """Multiplies the saturation of RGB images, up to 1."""

    def adjust(x: Tensor) -> Tensor:
        hue, saturation, value = unstack(rgb_to_hsv(x), 3, axis=-1)
        scaled = multiply(saturation, cast(as_tensor(saturation_factor), x.dtype))
        return hsv_to_rgb(stack([hue, clip_by_value(scaled, 0.0, 1.0), value], -1))

    return _in_floats("adjust_saturation", image, adjust, name)


def _drawn(low: float, high: float, seed: int | None) -> Tensor:
    return random_uniform([], low, high, seed=seed)


@checked
def random_brightness(image: Any, max_delta: NonNegative, seed: Seed = None) -> Tensor:
    """`adjust_brightness` by a delta drawn from [-max_delta, max_delta) in each step."""
    x = as_tensor(image)
    with x.graph.as_default():
        return adjust_brightness(x, _drawn(-max_delta, max_delta, seed))


def _require_range(op: str, lower: float, upper: float) -> None:
    if upper <= lower:
        raise InvalidArgumentError(f"{op}: expected lower < upper, got {lower:g} and {upper:g}")


@checked
def random_contrast(image: Any, lower: NonNegative, upper: NonNegative, seed: Seed = None) -> Tensor:
    """`adjust_contrast` by a factor drawn from [lower, upper) in each step."""
    _require_range("random_contrast", lower, upper)
    x = as_tensor(image)
    with x.graph.as_default():
        return adjust_contrast(x, _drawn(lower, upper, seed))


@checked
def random_hue(image: Any, max_delta: NonNegative, seed: Seed = None) -> Tensor:
    """`adjust_hue` by a delta drawn from [-max_delta, max_delta) in each step; at most 1/2."""
    if max_delta > 0.5:
        raise InvalidArgumentError(f"random_hue: expected max_delta to be at most 0.5, got {max_delta:g}")
    x = as_tensor(image)
    with x.graph.as_default():
        return adjust_hue(x, _drawn(-max_delta, max_delta, seed))


@checked
def random_saturation(image: Any, lower: NonNegative, upper: NonNegative, seed: Seed = None) -> Tensor:
    """`adjust_saturation` by a factor drawn from [lower, upper) in each step."""
    _require_range("random_saturation", lower, upper)
    x = as_tensor(image)
    with x.graph.as_default():
        return adjust_saturation(x, _drawn(lower, upper, seed))


# Colour spaces --------------------------------------------------------------------------------------------


@checked
def rgb_to_hsv(images: Any, name: Name = None) -> Tensor:
    """Hue (in turns), saturation and value, each in [0, 1], of floating RGB images [..., 3]."""
    x = _rgb("rgb_to_hsv", as_tensor(images))
    with x.graph.as_default(), name_scope(name or "RGBToHSV"):
        red, green, blue = unstack(x, 3, axis=-1)
        value = reduce_max(x, -1)
        chroma = subtract(value, reduce_min(x, -1))
        is_grey = equal(chroma, 0)
        divisor = select(is_grey, 1, chroma)
        sixths = select(
            equal(value, red),
            divide(subtract(green, blue), divisor),
            select(
                equal(value, green),
                add(divide(subtract(blue, red), divisor), 2),
                add(divide(subtract(red, green), divisor), 4),
            ),
        )
        turns = multiply(sixths, 1 / 6)
        hue = select(is_grey, 0, select(less(turns, 0), add(turns, 1), turns))
        lit = greater(value, 0)
        return stack([hue, select(lit, divide(chroma, select(lit, value, 1)), 0), value], -1)


@checked
def hsv_to_rgb(images: Any, name: Name = None) -> Tensor:
    """The inverse of `rgb_to_hsv`."""
    x = _rgb("hsv_to_rgb", as_tensor(images))
    with x.graph.as_default(), name_scope(name or "HSVToRGB"):
        hue, saturation, value = unstack(x, 3, axis=-1)
        sixths = multiply(hue, 6)
        full = [
            subtract(absolute(subtract(sixths, 3)), 1),
            subtract(2, absolute(subtract(sixths, 2))),
            subtract(2, absolute(subtract(sixths, 4))),
        ]
        white = subtract(1, saturation)
        return stack(
            [multiply(value, add(white, multiply(saturation, clip_by_value(part, 0, 1)))) for part in full],
            -1,
        )


@checked
def rgb_to_grayscale(images: Any, name: Name = None) -> Tensor:
    """The brightness of RGB images: [..., 1]."""

    def weigh(x: Tensor) -> Tensor:
        return reduce_sum(multiply(x, constant(GREY, x.dtype)), -1, keepdims=True)

    return _in_floats("rgb_to_grayscale", _rgb("rgb_to_grayscale", as_tensor(images)), weigh, name)


@checked
def grayscale_to_rgb(images: Any, name: Name = None) -> Tensor:
    """Grey images [..., 1] with three equal channels."""
    x = as_tensor(images)
    if not x.spec.shape or x.spec.shape[-1] not in (1, None):
        raise InvalidArgumentError(f"grayscale_to_rgb: expected one channel [..., 1], got {x.spec}")
    with x.graph.as_default(), name_scope(name or "grayscale_to_rgb"):
        lead = strided_slice(shape(x), slice(None, -1))
        return broadcast_to(x, concat([lead, constant([3])], 0))


# Statistics -----------------------------------------------------------------------------------------------


@checked
def per_image_standardization(image: Any, name: Name = None) -> Tensor:
    """Images with a mean of 0 and a variance of 1 over height, width and channels; float32, or float64.

    The standard deviation is at least 1 / sqrt(number of values), for images of one colour.
    """
    x = image_of("per_image_standardization", image)
    with x.graph.as_default(), name_scope(name or "per_image_standardization"):
        x = x if x.dtype.is_floating else cast(x, float32)
        axes = [-3, -2, -1]
        centred = subtract(x, reduce_mean(x, axes, keepdims=True))
        deviation = sqrt(reduce_mean(square(centred), axes, keepdims=True))
        number = cast(reduce_prod(strided_slice(shape(x), slice(-3, None))), x.dtype)
        return divide(centred, maximum(deviation, rsqrt(number)))


@checked
def total_variation(images: Any, name: Name = None) -> Tensor:
    """The sum of the absolute differences of neighbouring pixels: of each image [batch], or of one image."""
    x = image_of("total_variation", images)
    with x.graph.as_default(), name_scope(name or "total_variation"):
        whole, but_first, but_last = slice(None), slice(1, None), slice(None, -1)
        down = subtract(
            strided_slice(x, (..., but_first, whole, whole)), strided_slice(x, (..., but_last, whole, whole))
        )
        across = subtract(strided_slice(x, (..., but_first, whole)), strided_slice(x, (..., but_last, whole)))
        axes = [-3, -2, -1]
        return add(reduce_sum(absolute(down), axes), reduce_sum(absolute(across), axes))


@checked
def psnr(a: Any, b: Any, max_val: Number, name: Name = None) -> Tensor:
    """The peak signal-to-noise ratio of two images in decibels, over the last three axes; float32.

    max_val: the difference of the greatest and the least possible value.
    """
    x, y = pair(a, b)
    with x.graph.as_default(), name_scope(name or "PSNR"):
        error = reduce_mean(square(subtract(cast(x, float32), cast(y, float32))), [-3, -2, -1])
        return multiply(log(divide(max_val**2, error)), 10 / math.log(10))
