"""Ranges of tensors, observed on examples, and the integers that cover them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.runtime import Session
from tensorbow.specs import Array

BATCH = 64  # examples of a step
LEAST_SCALE = 1e-30  # of tensors that are always 0


@dataclass(frozen=True)
class Coding:
    """uint8 q stands for (q - zero_point) * scale."""

    scale: float
    zero_point: int

    @classmethod
    def of(cls, low: float, high: float) -> Coding:
        """The integers 0 to 255 for numbers from `low` to `high`, widened so that 0 is one of them."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max(float(np.float32((high - low) / 255)), LEAST_SCALE)
        return cls(scale, min(max(round(-low / scale), 0), 255))


def observe(
    session: Session, tensors: Sequence[Tensor], inputs: Mapping[Tensor, Array]
) -> dict[Tensor, tuple[float, float]]:
    """Least and greatest element of each tensor over all examples.

    inputs: arrays [examples, ...] to feed. Raises InvalidArgumentError for no examples, or a tensor that is
    not finite.
    """
    counts = {len(array) for array in inputs.values()}
    if len(counts) != 1 or not min(counts):
        raise InvalidArgumentError(
            f"quantize_model: expected at least one example, as many for each input, got {sorted(counts)}"
        )
    found = dict.fromkeys(tensors, (math.inf, -math.inf))
    for start in range(0, counts.pop(), BATCH):
        feeds = {tensor: array[start : start + BATCH] for tensor, array in inputs.items()}
        for tensor, value in zip(tensors, session.run(list(tensors), feeds), strict=True):
            if not value.size:
                continue
            low, high = float(value.min()), float(value.max())
            if not (math.isfinite(low) and math.isfinite(high)):
                raise InvalidArgumentError(
                    f"quantize_model: {tensor.name} is not finite for these examples; quantise a model whose "
                    "weights and examples are finite"
                )
            found[tensor] = min(found[tensor][0], low), max(found[tensor][1], high)
    return found
