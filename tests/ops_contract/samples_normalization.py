"""Samples of fused batch normalisation and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.batch_norm import FusedBatchNorm, FusedBatchNormGrad
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal, uniform

EPSILON = 0.01
NOTHING = np.zeros(0, np.float32)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1]).astype(np.float64)


def _trained(x: Array, scale: Array, offset: Array, *_: Array) -> tuple[Array, ...]:
    rows = _rows(x)
    count = np.float64(len(rows))
    mean = rows.sum(0) / count
    squares = ((rows - mean) ** 2).sum(0)
    variance = squares / count
    y = (x - mean) / np.sqrt(variance + EPSILON) * scale + offset
    return y, mean, squares / max(1, count - 1), mean, (variance + EPSILON) ** -0.5


def _applied(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Array, ...]:
    y = (x - mean) / np.sqrt(variance + EPSILON) * scale + offset
    return y, mean, variance, mean, (variance + EPSILON) ** -0.5


def _gradient(is_training: bool) -> Any:
    def expected(dy: Array, x: Array, scale: Array, mean: Array, inverse: Array) -> tuple[Array, ...]:
        """Gradient by the matrix of derivatives of the normalised rows, channel by channel."""
        h = (_rows(x) - mean) * inverse
        n = max(1, len(h))
        back = np.empty_like(h)
        for c in range(h.shape[1]):
            jacobian = np.eye(len(h))
            if is_training:
                jacobian = jacobian - 1 / n - np.outer(h[:, c], h[:, c]) / n
            back[:, c] = jacobian @ _rows(dy)[:, c] * scale[c] * inverse[c]
        return back.reshape(x.shape), (_rows(dy) * h).sum(0), _rows(dy).sum(0)

    return expected


def _by_channel_sums(dy: Array, x: Array, scale: Array, mean: Array, inverse: Array) -> tuple[Array, ...]:
    h, flow = (_rows(x) - mean) * inverse, _rows(dy)
    back = scale * inverse * (flow - flow.mean(0) - h * (flow * h).mean(0))
    return back.reshape(x.shape), (flow * h).sum(0), flow.sum(0)


def _training(*shape: int, **more: Any) -> list[Sample]:
    channels = shape[-1]
    x, scale, offset = normal(*shape), uniform(channels), normal(channels)
    with np.errstate(all="ignore"):
        mean, inverse = (np.asarray(a, np.float32) for a in _trained(x, scale, offset)[3:])
    large = more.get("label") == "large"
    shared: dict[str, Any] = {"exact_layout": False, "rtol": 1e-4, "atol": 2e-3 if large else 2e-5, **more}
    grad = _by_channel_sums if large else _gradient(True)
    return [
        Sample(
            FusedBatchNorm,
            (x, scale, offset, NOTHING, NOTHING.copy()),
            _trained,
            {"epsilon": EPSILON},
            wrt=(0, 1, 2),
            through=(0,),
            second_order=not more,
            **shared,
        ),
        # mean and inverse count as functions of x, so that only samples of FusedBatchNorm differentiate twice
        Sample(
            FusedBatchNormGrad, (normal(*shape, seed=1), x, scale, mean, inverse), grad, wrt=(0,), **shared
        ),
    ]


def _inference(*shape: int, **more: Any) -> list[Sample]:
    channels = shape[-1]
    x, scale, mean = normal(*shape), uniform(channels), normal(channels)
    vectors = normal(channels, seed=1), mean, uniform(channels, seed=1)
    shared: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-5, "exact_layout": False, **more}
    return [
        Sample(
            FusedBatchNorm,
            (x, scale, *vectors),
            _applied,
            {"epsilon": EPSILON, "is_training": False},
            wrt=(0, 1, 2),
            through=(0,),
            second_order=True,
            **shared,
        ),
        Sample(
            FusedBatchNormGrad,
            (normal(*shape, seed=1), x, scale, mean, uniform(channels)),
            _gradient(False),
            {"is_training": False},
            wrt=(0, 1, 2),
            second_order=True,
            **shared,
        ),
    ]


SAMPLES = [
    *_training(2, 3, 4, 5),
    *_training(7, 3, label="matrix"),
    *_training(1, 1, 1, 3, label="one row"),
    *_training(0, 3, 4, 5, label="empty"),
    *_training(16, 24, 23, 32, label="large"),
    *_inference(2, 3, 4, 5, label="inference"),
    *_inference(0, 2, 3, 5, label="inference, empty"),
]
