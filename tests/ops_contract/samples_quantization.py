"""Samples of the conversions between float32 and integers of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.quantization import Dequantize, Quantize
from tensorbow.specs import DType, int8, uint8
from tests.ops_contract.sample import Sample, integers, normal, uniform


def coded(dtype: DType, zero_point: int) -> Any:
    limits = np.iinfo(dtype.as_numpy_dtype)

    def expected(x: Any, scale: Any) -> Any:
        rounded = np.rint(x * (np.float32(1) / scale)) + zero_point
        rounded = np.where(np.isnan(rounded), limits.min, rounded)
        return np.clip(rounded, limits.min, limits.max).astype(dtype.as_numpy_dtype)

    return expected


def quantized(x: Any, scale: Any, dtype: DType = uint8, zero_point: int = 0, label: str = "") -> Sample:
    attrs = {"dtype": dtype, "zero_point": zero_point}
    return Sample(Quantize, (x, np.float32(scale)), coded(dtype, zero_point), attrs, label=label)


def dequantized(x: Any, scale: Any, zero_point: int = 0, label: str = "") -> Sample:
    return Sample(
        Dequantize,
        (x, np.float32(scale)),
        lambda x, scale: (x.astype(np.float32) - zero_point) * scale,
        {"zero_point": zero_point},
        label=label,
    )


HALVES = np.float32([[0.25, 0.75, 1.25, 1.75, 130], [-0.25, -200, 63.5, 64, 127.75]])

SAMPLES = [
    quantized(normal(3, 5), 0.01, zero_point=130),
    quantized(normal(3, 5), 0.02, int8, zero_point=-7, label="int8"),
    quantized(normal(3, 4, 5), uniform(4, 1, low=0.01, high=0.1), int8, label="per channel"),
    quantized(HALVES, 0.5, zero_point=3, label="halves and limits"),
    quantized(HALVES, 0.5, int8, label="halves and limits of int8"),
    quantized(normal(0, 5), 0.1, label="empty"),
    quantized(normal(255, 515), 0.02, zero_point=100, label="large"),
    dequantized(integers(3, 5, high=256, dtype=np.uint8), 0.03, zero_point=9),
    dequantized(integers(3, 5, low=-128, high=128, dtype=np.int8), uniform(5), -3, label="int8"),
    dequantized(integers(3, 5, low=-(2**30), high=2**30), uniform(5), label="int32"),
    dequantized(integers(0, 5, dtype=np.uint8), 0.1, label="empty"),
    dequantized(integers(255, 515, high=256, dtype=np.uint8), 0.02, 100, label="large"),
]
