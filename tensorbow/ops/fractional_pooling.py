"""Fractional pooling: windows of random extents, with any mean extent (Graham 2014, arXiv:1412.6071).

Each step draws where the windows begin along the rows and the columns of all images; the shapes are known
before. A window has k or k + 1 pixels along an axis, where k is the whole part of the ratio of input to
output extent. Rows and columns are pooled one after the other by gathers, so that all backends have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, as_tensor, name_scope
from tensorbow.kinds import Flag, Name, Seed, checked, number, sequence
from tensorbow.ops.arrays import concat, reshape
from tensorbow.ops.constant import constant
from tensorbow.ops.cumulative import cumsum
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import add, ceil, less_equal, maximum, minimum, multiply, subtract
from tensorbow.ops.indexing import gather
from tensorbow.ops.random import RandomPermutation, RandomUniform, get_seed
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import FLOATING, NUMERIC, Array, DType, float64, int64

__all__ = ["fractional_avg_pool", "fractional_max_pool"]

Ratios: TypeAlias = Annotated["Sequence[float]", sequence(number(), "a list of four numbers")]
Pooled: TypeAlias = tuple[Tensor, Tensor, Tensor]


@checked
def fractional_max_pool(
    value: Any,
    pooling_ratio: Ratios,
    pseudo_random: Flag = False,
    overlapping: Flag = False,
    deterministic: Flag = False,
    seed: Seed = 0,
    seed2: Seed = 0,
    name: Name = None,
) -> Pooled:
    """The maximum of each window of images [batch, height, width, channels], with windows of random extents.

    As in section 2 of the paper. value: of any dtype of numbers, height and width static. pooling_ratio:
    [1, rows, columns, 1], the mean extents of a window, each at least 1, 1.44 for example. pseudo_random:
    windows are as even as they can be, else their extents are in random order. overlapping: a window has the
    first row and column of the next one, too. deterministic: the windows are drawn once, when the operation
    is made, and stay in all steps. seed, seed2: of the draws; if both are 0, as of `tb.random_uniform`.

    Returns the images [batch, floor(height / rows), floor(width / columns), channels], and where the windows
    begin along rows and columns, int64, each sequence with the input's extent at its end. A gradient goes to
    the first of equal maxima.

    Raises InvalidArgumentError for other ratios, and for images of unknown or too small extents.
    """
    windows = _Windows("fractional_max_pool", pooling_ratio, pseudo_random, overlapping, deterministic)
    with name_scope(name or "FractionalMaxPool"):
        return windows.pooled(value, NUMERIC, (seed or 0, seed2 or 0), _maxima)


@checked
def fractional_avg_pool(
    value: Any,
    pooling_ratio: Ratios,
    pseudo_random: Flag = False,
    overlapping: Flag = False,
    deterministic: Flag = False,
    seed: Seed = 0,
    seed2: Seed = 0,
    name: Name = None,
) -> Pooled:
    """The mean of each window of images [batch, height, width, channels], with windows of random extents.

    value: floating. Other arguments, results and errors: see `fractional_max_pool`.
    """
    windows = _Windows("fractional_avg_pool", pooling_ratio, pseudo_random, overlapping, deterministic)
    with name_scope(name or "FractionalAvgPool"):
        return windows.pooled(value, FLOATING, (seed or 0, seed2 or 0), _means)


class _Windows:
    """The options of a fractional pooling, checked."""

    def __init__(
        self, op: str, ratios: Sequence[float], pseudo_random: bool, overlapping: bool, deterministic: bool
    ):
        if len(ratios) != 4 or ratios[0] != 1 or ratios[3] != 1 or min(ratios) < 1:
            raise InvalidArgumentError(
                f"{op}: expected pooling_ratio to be [1, rows, columns, 1] with ratios of at least 1, got "
                f"{list(ratios)!r:.80}; batch and channels are not pooled"
            )
        self._op, self._ratios = op, ratios[1:3]
        self._is_even, self._overlaps, self._is_fixed = pseudo_random, overlapping, deterministic

    def pooled(
        self, value: Any, dtypes: Sequence[DType], seeds: tuple[int, int], pool: Callable[..., Tensor]
    ) -> Pooled:
        """The images pooled along rows, then columns, and both sequences."""
        images = as_tensor(value)
        require_dtype(self._op, images.spec, dtypes, "value")
        dims = images.spec.shape
        if dims is None or len(dims) != 4 or dims[1] is None or dims[2] is None:
            raise InvalidArgumentError(
                f"{self._op}: value is {images.spec}, expected [batch, height, width, channels] with known "
                "height and width; give them by set_shape"
            )
        sequences: list[Tensor] = []
        with images.graph.as_default():
            for axis, ratio in zip((1, 2), self._ratios, strict=True):
                extent = int(dims[axis] or 0)
                count = math.floor(extent / ratio)
                if not count:
                    raise InvalidArgumentError(
                        f"{self._op}: value is {images.spec}, expected at least {ratio:g} pixels along axis "
                        f"{axis}, its pooling_ratio"
                    )
                drawn = (seeds[0], seeds[1] + axis - 1) if any(seeds) else get_seed(None)
                begins = self._begins(extent, count, drawn)
                images = self._along(axis, images, begins, extent, count, pool)
                sequences.append(begins)
        return images, sequences[0], sequences[1]

    def _begins(self, extent: int, count: int, seeds: tuple[int, int]) -> Tensor:
        """Begins of windows, and the extent: [count + 1]."""
        small, larger = divmod(extent, count)
        if not larger:
            return constant(np.arange(count + 1) * small, int64)
        if self._is_fixed:
            return constant(self._fixed_begins(extent, count, seeds), int64)
        ends = [constant([0], int64), constant([extent], int64)]
        if self._is_even:
            draw = RandomUniform([1], dtype=float64, seed=seeds[0], seed2=seeds[1])
            shift = multiply(draw, _largest_shift(extent, count))
            begins = subtract(cast(ceil(add(shift, _steps(extent, count))), int64), constant(1, int64))
            return concat([ends[0], minimum(begins, _latest(extent, count)), ends[1]], 0)
        order = RandomPermutation([count], seed=seeds[0], seed2=seeds[1])
        extents = gather(constant(_extents(extent, count), int64), order)
        return concat([ends[0], cumsum(extents)], 0)

    def _fixed_begins(self, extent: int, count: int, seeds: tuple[int, int]) -> Array:
        generator = np.random.default_rng([seed % (1 << 64) for seed in seeds])
        if self._is_even:
            shifted = np.ceil(_steps(extent, count) + generator.random() * _largest_shift(extent, count))
            begins = np.minimum(shifted.astype(np.int64) - 1, _latest(extent, count))
            return np.concatenate([[0], begins, [extent]])
        return np.concatenate([[0], np.cumsum(generator.permutation(_extents(extent, count)))])

    def _along(
        self, axis: int, images: Tensor, begins: Tensor, extent: int, count: int, pool: Callable[..., Tensor]
    ) -> Tensor:
        """Images pooled along one axis."""
        first, following = strided_slice(begins, slice(0, count)), strided_slice(begins, slice(1, count + 1))
        last = following if self._overlaps else subtract(following, constant(1, int64))
        last = minimum(last, constant(extent - 1, int64))
        longest = -(-extent // count) + self._overlaps
        return pool(images, axis, first, last, min(longest, extent))


def _largest_shift(extent: int, count: int) -> float:
    """The bound of a shift in pixels with which no window is longer than k + 1 or shorter than k."""
    ratio, small = extent / count, extent // count
    return min(small + 2 - ratio, extent + 1 - small - ratio * (count - 1))


def _steps(extent: int, count: int) -> Array:
    return np.arange(1, count) * (extent / count)


def _latest(extent: int, count: int) -> Array:
    """Latest begins of windows, which rounding could exceed."""
    return extent - extent // count * (count - np.arange(1, count))


def _extents(extent: int, count: int) -> Array:
    small, larger = divmod(extent, count)
    return np.array([small + 1] * larger + [small] * (count - larger))


def _maxima(images: Tensor, axis: int, first: Tensor, last: Tensor, longest: int) -> Tensor:
    found: Tensor = gather(images, first, axis=axis)
    for offset in range(1, longest):
        found = maximum(found, gather(images, minimum(add(first, constant(offset, int64)), last), axis=axis))
    return found


def _means(images: Tensor, axis: int, first: Tensor, last: Tensor, longest: int) -> Tensor:
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    lengths = cast(add(subtract(last, first), constant(1, int64)), images.dtype)
    total: Tensor | None = None
    for offset in range(longest):
        place = add(first, constant(offset, int64))
        weights = reshape(cast(less_equal(place, last), images.dtype) / lengths, shape)
        part = multiply(gather(images, minimum(place, last), axis=axis), weights)
        total = part if total is None else add(total, part)
    if total is None:
        raise InvalidArgumentError("fractional_avg_pool: a window without pixels")
    return total
