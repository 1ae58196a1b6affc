"""Structural similarity of images, and the colour spaces of television: YIQ and YUV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, graph_of, name_scope
from tensorbow.kinds import (
    Kind,
    Name,
    Positive,
    PositiveNumber,
    RefusedError,
    checked,
    number,
    sequence,
)
from tensorbow.ops.arrays import reshape
from tensorbow.ops.average_pooling import avg_pool2d
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.depthwise import depthwise_conv2d
from tensorbow.ops.einsum import tensordot
from tensorbow.ops.elementwise import add, divide, multiply, pow, relu, square, subtract
from tensorbow.ops.image_colors import convert_image_dtype
from tensorbow.ops.padding import pad
from tensorbow.ops.reductions import reduce_mean
from tensorbow.specs import FLOATING, NUMERIC, Array, float32

__all__ = ["rgb_to_yiq", "rgb_to_yuv", "ssim", "ssim_multiscale", "yiq_to_rgb", "yuv_to_rgb"]

SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # the exponents of the paper


def _read_powers(value: Any) -> Any:
    read = sequence(number(0), "").read(value)
    if not read:
        raise RefusedError
    return read


Powers: TypeAlias = Annotated[Sequence[float], Kind("a list of numbers of at least 0", _read_powers)]

# Rows: red, green, blue (ITU-R BT.470); columns: the channels of the other space.
YIQ = np.array(
    [
        [0.299, 0.59590059, 0.2115],
        [0.587, -0.27455667, -0.52273617],
        [0.114, -0.32134392, 0.31119955],
    ]
)
YUV = np.array(
    [
        [0.299, -0.14714119, 0.61497538],
        [0.587, -0.28886916, -0.51496512],
        [0.114, 0.43601035, -0.10001026],
    ]
)


def _converted(op: str, images: Any, matrix: Array) -> Tensor:
    x = as_tensor(images)
    require_dtype(op, x.spec, FLOATING, "images")
    if not x.spec.shape or x.spec.shape[-1] != 3:
        raise InvalidArgumentError(f"{op}: expected three channels [..., 3], got {x.spec}")
    with x.graph.as_default(), name_scope(op):
        result = tensordot(x, constant(matrix, x.dtype), 1)
        result.set_shape(x.shape)
        return result


@checked
def rgb_to_yiq(images: Any) -> Tensor:
    """RGB images [..., 3] (floating, in [0, 1]) as luma and the chroma I and Q."""
    return _converted("rgb_to_yiq", images, YIQ)


@checked
def yiq_to_rgb(images: Any) -> Tensor:
    """The inverse of `rgb_to_yiq`."""
    return _converted("yiq_to_rgb", images, np.linalg.inv(YIQ))


@checked
def rgb_to_yuv(images: Any) -> Tensor:
    """RGB images [..., 3] (floating, in [0, 1]) as luma and the chroma U and V."""
    return _converted("rgb_to_yuv", images, YUV)


@checked
def yuv_to_rgb(images: Any) -> Tensor:
    """The inverse of `rgb_to_yuv`."""
    return _converted("yuv_to_rgb", images, np.linalg.inv(YUV))


@checked
def ssim(
    img1: Any,
    img2: Any,
    max_val: PositiveNumber,
    filter_size: Positive = 11,
    filter_sigma: PositiveNumber = 1.5,
    k1: PositiveNumber = 0.01,
    k2: PositiveNumber = 0.03,
    name: Name = None,
) -> Tensor:
    """The structural similarity of images [..., height, width, channels] (Wang et al., 2004): [...], float32.

    The mean over pixels and channels, with a Gaussian window of `filter_size` and deviation `filter_sigma`.
    max_val: the greatest value that the images can have. Extents but the first must be known.
    """
    with graph_of([img1, img2]).as_default(), name_scope(name or "SSIM"):
        x, y, limit, batch = _pair("ssim", img1, img2, max_val)
        index, _ = _similarities("ssim", x, y, limit, filter_size, filter_sigma, k1, k2)
        return reshape(reduce_mean(index, [1]), batch)


@checked
def ssim_multiscale(
    img1: Any,
    img2: Any,
    max_val: PositiveNumber,
    power_factors: Powers = SCALES,
    filter_size: Positive = 11,
    filter_sigma: PositiveNumber = 1.5,
    k1: PositiveNumber = 0.01,
    k2: PositiveNumber = 0.03,
    name: Name = None,
) -> Tensor:
    """The similarity of images over several scales (Wang et al., 2003): [...], float32.

    power_factors: the exponents of the scales, the finest first; each one halves the images of the one
    before, of which an odd last row or column is doubled. The other arguments are as of `ssim`, and extents
    must be at least `filter_size` at the last scale.
    """
    with graph_of([img1, img2]).as_default(), name_scope(name or "MS-SSIM"):
        x, y, limit, batch = _pair("ssim_multiscale", img1, img2, max_val)
        product = None
        for scale, power in enumerate(power_factors):
            if scale:
                x, y = _halved(x), _halved(y)
            how = (limit, filter_size, filter_sigma, k1, k2)
            index, contrast = _similarities("ssim_multiscale", x, y, *how)
            last = scale == len(power_factors) - 1
            factor = pow(relu(index if last else contrast), float(power))
            product = factor if product is None else multiply(product, factor)
        assert product is not None  # there is a scale
        return reshape(reduce_mean(product, [1]), batch)


def _pair(op: str, img1: Any, img2: Any, max_val: float) -> tuple[Tensor, Tensor, float, list[int]]:
    """Two batches of images as float32, the greatest value, and the shape of the result."""
    for given in (img1, img2):
        require_dtype(op, as_tensor(given).spec, NUMERIC, "images")
    pair = [convert_image_dtype(as_tensor(each), float32) for each in (img1, img2)]
    limit = float(max_val)
    if as_tensor(img1).dtype.is_integer:
        limit /= float(np.iinfo(as_tensor(img1).dtype.as_numpy_dtype).max)
    dims = pair[0].spec.shape
    if dims is None or len(dims) < 3 or dims != pair[1].spec.shape:
        raise InvalidArgumentError(
            f"{op}: expected images [..., height, width, channels] of one known shape, got "
            f"{pair[0].spec} and {pair[1].spec}"
        )
    if None in dims[-3:]:
        raise InvalidArgumentError(f"{op}: expected known extents of the images, got {pair[0].spec}")
    x, y = (reshape(each, [-1, *dims[-3:]]) for each in pair)
    return x, y, limit, [-1 if d is None else d for d in dims[:-3]]


def _halved(images: Tensor) -> Tensor:
    sides = [[0, (extent or 0) % 2] for extent in images.spec.dims[1:3]]
    if any(map(any, sides)):
        images = pad(images, [[0, 0], *sides, [0, 0]], "SYMMETRIC")
    return avg_pool2d(images, 2, 2, "VALID")


def _similarities(
    op: str, x: Tensor, y: Tensor, limit: float, size: int, sigma: float, k1: float, k2: float
) -> tuple[Tensor, Tensor]:
    """Means over pixels, [n, channels]: of the structural similarity, and of its contrast and structure."""
    height, width, channels = (int(extent or 0) for extent in x.spec.dims[1:])
    if min(height, width) < size:
        raise InvalidArgumentError(
            f"{op}: images of {height} x {width} pixels, expected at least filter_size, {size}"
        )
    place = np.arange(size) - (size - 1) / 2
    window = np.exp(-0.5 * (place / sigma) ** 2)
    window = np.multiply.outer(window, window)
    kernel = np.broadcast_to((window / window.sum())[..., None, None], (*window.shape, channels, 1))
    blur = constant(np.array(kernel, np.float32))

    def mean(images: Tensor) -> Tensor:
        return depthwise_conv2d(images, blur, [1, 1, 1, 1], "VALID")

    mean_x, mean_y = mean(x), mean(y)
    c1, c2 = (k1 * limit) ** 2, (k2 * limit) ** 2
    product = multiply(mean_x, mean_y)
    squares = add(square(mean_x), square(mean_y))
    luminance = divide(add(multiply(product, 2.0), c1), add(squares, c1))
    covariance = subtract(mean(multiply(x, y)), product)
    variances = subtract(mean(add(square(x), square(y))), squares)
    structure = divide(add(multiply(covariance, 2.0), c2), add(variances, c2))
    return reduce_mean(multiply(luminance, structure), [1, 2]), reduce_mean(structure, [1, 2])
