"""Mixup (Zhang et al., 2018): training on weighted means of two examples and their labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, name_scope
from tensorbow.nest import flatten
from tensorbow.ops.constant import constant
from tensorbow.ops.elementwise import add, floor, minimum, multiply, subtract
from tensorbow.ops.elementwise import round as rounded
from tensorbow.ops.indexing import gather
from tensorbow.ops.random import random_uniform
from tensorbow.ops.selection import cast
from tensorbow.ops.shaping import reverse
from tensorbow.specs import Array, float32, int32, uint8

INTERVALS = 1024  # of equal probability, of the table that shares are drawn from
_FINE = 64 * INTERVALS  # points of the integral from 0 to 1/2


def mixed(inputs: Any, labels: Any, alpha: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Inputs of a batch mixed with those of the batch in reverse; also (labels of the latter, share).

    inputs: floating or uint8 [batch, ...], result alike: share * inputs + (1 - share) * reversed. labels:
    integers [batch]. share: scalar float32 with the distribution Beta(alpha, alpha), drawn once for each step
    and replica from the step's random state. The batch is in random order, so that its reverse is as good a
    pairing as any. Raises InvalidArgumentError for other inputs and labels.
    """
    single = isinstance(inputs, Tensor) and (inputs.dtype.is_floating or _are_pictures(inputs))
    if not single or not isinstance(labels, Tensor) or labels.dtype.is_floating or labels.spec.rank != 1:
        raise InvalidArgumentError(
            "mixup: expected data of one input of pictures or other floats, and labels that are classes, "
            f"integers [batch]; got {_kind_of(inputs, 'input')}, {_kind_of(labels, 'label')}; leave it out"
        )
    with name_scope("mixup"):
        share = _drawn_share(alpha)
        floats = cast(inputs, float32) if inputs.dtype == uint8 else inputs
        own = share if floats.dtype == float32 else cast(share, floats.dtype)
        sum = add(multiply(floats, own), multiply(reverse(floats, [0]), subtract(1, own)))
        result = cast(rounded(sum), uint8) if inputs.dtype == uint8 else sum
        result.set_shape(inputs.spec.shape)
        return result, (reverse(labels, [0]), share)


def _kind_of(nest: Any, name: str) -> str:
    """A tensor's spec, or the number of tensors in a nest."""
    return f"{name}s {nest.spec}" if isinstance(nest, Tensor) else f"{len(flatten(nest))} {name}s"


def _are_pictures(inputs: Tensor) -> bool:
    """True for uint8 pixels; of a lower rank, uint8 numbers may be symbols."""
    return inputs.dtype == uint8 and (inputs.spec.rank or 0) > 2


def _drawn_share(alpha: float) -> Tensor:
    """Scalar float32 of Beta(alpha, alpha), by the inverse of its distribution function.

    A table and a line between two entries give the same bits on every device, and need no rejections.
    """
    table = constant(beta_quantiles(alpha))
    position = multiply(random_uniform([]), float(INTERVALS))
    below = minimum(floor(position), float(INTERVALS - 1))
    index = cast(below, int32)
    low, high = gather(table, index), gather(table, add(index, 1))
    return add(low, multiply(subtract(high, low), subtract(position, below)))


def beta_quantiles(alpha: float) -> Array:
    """Quantiles of Beta(alpha, alpha) at the probabilities 0, 1/INTERVALS, ..., 1, float32.

    Up to 1/2 the distribution function at x is proportional to the integral of (t (1 - t))^(alpha - 1) from 0
    to x, or of (1 - s^(1/alpha))^(alpha - 1) from 0 to x^alpha, which has no pole where alpha is below 1; the
    other half is symmetric.
    """
    power = min(alpha, 1.0)
    ends = np.linspace(0.0, 0.5**power, _FINE + 1)
    points = ends ** (1 / power)
    heights = (1 - points) ** (alpha - 1) if alpha < 1 else (4 * points * (1 - points)) ** (alpha - 1)
    areas = np.concatenate([[0.0], np.cumsum(heights[1:] + heights[:-1])])
    wanted = np.linspace(0.0, 1.0, INTERVALS // 2 + 1) * areas[-1]
    lower = np.interp(wanted, areas, ends) ** (1 / power)
    lower[-1] = 0.5
    return np.concatenate([lower, 1 - lower[-2::-1]]).astype(np.float32)
