"""Samples of products of 8-bit integers, against sums of whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.quantized_products import PackWeights, QuantizedConv2D, QuantizedMatMul
from tensorbow.specs import DType, float32, int32, uint8
from tests.ops_contract.naive_windows import dilated, naive_conv2d
from tests.ops_contract.sample import Sample, integers, uniform

Shape = tuple[int, ...]


def weights(*shape: int) -> Any:
    """Weights, as large as they may be among others."""
    return integers(*shape, low=-128, high=128, dtype=np.int8)


def activations(*shape: int) -> Any:
    return integers(*shape, high=256, dtype=np.uint8)


def packed(runs: Any) -> Any:
    """Words of weights [runs, length, outputs], made one by one."""
    count, length, outputs = runs.shape
    words = np.zeros((count, -(-length // 4), outputs), np.int64)
    for position in range(length):
        byte = runs[:, position].astype(np.int64) & 0xFF
        words[:, position // 4] |= byte << 8 * (position % 4)
    return words.astype(np.uint32).view(np.int32)


def converted(sums: Any, multiplier: Any, dtype: DType, zero_point: int) -> Any:
    if dtype == int32:
        return sums.astype(np.int32)
    scaled = sums.astype(np.float32) * multiplier
    if dtype == float32:
        return scaled
    return np.clip(np.rint(scaled) + zero_point, 0, 255).astype(np.uint8)


def of_channels(outputs: int) -> tuple[Any, Any]:
    """Bias and multipliers."""
    return integers(outputs, low=-5000, high=5000), uniform(outputs, low=1e-4, high=1e-3)


def product(rows: int, inner: int, outputs: int, dtype: DType, label: str, zero_point: int = 0) -> Sample:
    w = weights(inner, outputs)

    def expected(x: Any, words: Any, bias: Any, multiplier: Any) -> Any:
        return converted(x.astype(np.int64) @ w.astype(np.int64) + bias, multiplier, dtype, zero_point)

    attrs = {"inner": inner, "dtype": dtype, "zero_point": zero_point}
    given = activations(rows, inner), packed(w[np.newaxis]), *of_channels(outputs)
    return Sample(QuantizedMatMul, given, expected, attrs, label=label)


def convolution(
    label: str,
    images: Shape,
    window: Shape,
    outputs: int,
    dtype: DType,
    strides: tuple[int, int] = (1, 1),
    padding: str = "SAME",
    dilations: tuple[int, int] = (1, 1),
    padding_value: int = 0,
    zero_point: int = 0,
) -> Sample:
    w = weights(*window, outputs)
    rows, columns, channels = window
    in_runs = (rows, columns * channels) if dilations[1] == 1 else (rows * columns, channels)

    def expected(x: Any, words: Any, bias: Any, multiplier: Any) -> Any:
        centred = x.astype(np.float64) - padding_value
        whole = w.astype(np.float64)
        sums = naive_conv2d(centred, dilated(whole, dilations), strides, padding)
        sums = sums + padding_value * whole.sum(axis=(0, 1, 2)) + bias
        return converted(np.rint(sums).astype(np.int64), multiplier, dtype, zero_point)

    attrs = {
        "window": window,
        "strides": (1, *strides, 1),
        "padding": padding,
        "dilations": (1, *dilations, 1),
        "padding_value": padding_value,
        "zero_point": zero_point,
        "dtype": dtype,
    }
    given = activations(*images), packed(w.reshape(*in_runs, outputs)), *of_channels(outputs)
    return Sample(QuantizedConv2D, given, expected, attrs, label=label)


SAMPLES = [
    Sample(PackWeights, (weights(2, 7, 5),), packed),
    Sample(PackWeights, (weights(0, 7, 5),), packed, label="empty"),
    Sample(PackWeights, (weights(3, 402, 501),), packed, label="large"),
    product(3, 7, 5, int32, "sums"),
    product(3, 8, 17, float32, "scaled"),
    product(5, 6, 33, uint8, "bytes", zero_point=140),
    product(0, 7, 5, uint8, "empty"),
    product(70, 601, 1025, uint8, "large", zero_point=90),
    convolution("same", (2, 5, 6, 3), (2, 4, 3), 7, int32, padding_value=11),
    convolution("valid", (2, 7, 6, 4), (3, 2, 4), 5, float32, padding="VALID"),
    convolution("bytes", (2, 7, 6, 3), (3, 2, 3), 18, uint8, padding_value=200, zero_point=120),
    convolution("strides", (2, 7, 8, 5), (3, 2, 5), 4, uint8, (2, 3), zero_point=128),
    convolution("dilated", (2, 6, 7, 6), (3, 2, 6), 4, int32, (1, 1), "SAME", (2, 4), 7),
    convolution("dilated strides", (2, 9, 8, 3), (3, 2, 3), 4, int32, (2, 3), "SAME", (3, 2), 5),
    convolution("pointwise", (2, 4, 3, 6), (1, 1, 6), 5, uint8, zero_point=100),
    convolution("one", (1, 1, 1, 1), (1, 1, 1), 1, int32),
    convolution("empty", (0, 7, 6, 3), (3, 4, 3), 5, uint8),
    convolution("large", (6, 50, 52, 33), (3, 2, 33), 34, uint8, padding_value=3, zero_point=127),
]
