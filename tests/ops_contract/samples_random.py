"""Samples of the random ops, against separate implementations of Philox and of `tensorbow.ops.sampling`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.ops.random import (
    DropoutMask,
    RandomStandardNormal,
    RandomUniform,
    RandomUniformInt,
    TruncatedNormal,
)
from tensorbow.specs import Array, float32, float64
from tests.ops_contract.sample import Sample, vector

SEEDS = {"seed": 2**40 + 5, "seed2": -3}
STATE = {"counter": 2**35 + 3, "random_stream": 1}


def philox(counter: list[Array], key: tuple[int, int]) -> list[Array]:
    """Four words of each counter: Salmon et al., figure and table of section 3.3, on uint64 arrays."""
    c, (k0, k1) = [np.asarray(word, np.uint64) for word in counter], key
    low = np.uint64(2**32 - 1)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            q // np.uint64(2**32) ^ c[1] ^ np.uint64(k0),
            q & low,
            p // np.uint64(2**32) ^ c[3] ^ np.uint64(k1),
        ]
        c.append(p & low)
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def words_of(size: int, per_element: int, attempt: int = 0) -> Array:
    """uint64 [size, per_element]: the words of each element, for SEEDS and STATE."""
    blocks = np.arange(-(-size * per_element // 4), dtype=np.uint64)
    halves = [half for value in SEEDS.values() for half in (value % 2**32, value // 2**32 % 2**32)]
    k0, k1, *_ = philox(halves, (STATE["random_stream"], 0))
    step = STATE["counter"]
    fixed = [np.full(len(blocks), value, np.uint64) for value in (attempt, step % 2**32, step // 2**32)]
    words = np.stack(philox([blocks, *fixed], (int(k0), int(k1))), axis=1)
    return words.reshape(-1)[: size * per_element].reshape(size, per_element)


def uniforms(size: int, dtype: Any, attempt: int = 0) -> Array:
    if dtype == np.float32:
        return (words_of(size, 1, attempt)[:, 0] >> np.uint64(8)).astype(np.float32) / np.float32(2**24)
    high, low = words_of(size, 2, attempt).T
    return ((high * np.uint64(2**32) + low) >> np.uint64(11)).astype(np.float64) / 2**53


def normals(size: int, dtype: Any, attempt: int = 0) -> Array:
    u, v = uniforms(size + size % 2, dtype, attempt).astype(np.float64).reshape(-1, 2).T
    radius = np.sqrt(-2 * np.log(1 - u))
    pairs = np.stack([radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)], axis=1)
    return pairs.reshape(-1)[:size].astype(dtype)


def truncated(size: int, dtype: Any) -> Array:
    values = normals(size, dtype)
    for attempt in range(1, 8):
        values = np.where(np.abs(values) > 2, normals(size, dtype, attempt), values)
    return values


def drawn(rule: Any, dtype: Any) -> Any:
    return lambda shape, *_: rule(int(np.prod(shape)), dtype).reshape(shape)


def integers(shape: Any, low: Any, high: Any) -> Array:
    a, b = words_of(int(np.prod(shape)), 2).T
    above = (a * np.uint64(2**32) + b) % np.uint64(int(high) - int(low))
    return (above + np.uint64(int(low) % 2**64)).astype(low.dtype).reshape(shape)  # wraps around


def mask(shape: Any, rate: Any) -> Array:
    kept = uniforms(int(np.prod(shape)), np.float32).astype(np.float64) >= float(rate)
    return np.where(kept, 1 / (1 - float(rate)), 0).astype(rate.dtype).reshape(shape)


EMPTY_SHAPE = np.zeros(0, np.int32)
SHARED = {"state": STATE, "wrt": (), "rtol": 1e-4, "atol": 2e-6}

SAMPLES = [
    Sample(
        op,
        (shape.copy(),),
        expected=drawn(rule, dtype.as_numpy_dtype),
        attrs={**SEEDS, "dtype": dtype},
        label=f"{dtype.name} {label}",
        **SHARED,
    )
    for op, rule in (
        (RandomUniform, uniforms),
        (RandomStandardNormal, normals),
        (TruncatedNormal, truncated),
    )
    for dtype in (float32, float64)
    for label, shape in (
        ("rest", vector(3, 5, 7)),
        ("whole", vector(4, 6)),
        ("one", vector(1)),
        ("scalar", EMPTY_SHAPE),
        ("empty", vector(3, 0)),
        ("large", vector(511, 513)),
    )
]
for shape, label in (
    (vector(3, 5, 7), ""),
    (EMPTY_SHAPE, "scalar"),
    (vector(3, 0), "empty"),
    (vector(311, 513), "large"),
):
    for low, high in ((np.int32(-7), np.int32(12)), (np.int64(-(2**63)), np.int64(2**63 - 1))):
        bounds = np.asarray(low), np.asarray(high)
        SAMPLES.append(
            Sample(
                RandomUniformInt,
                (shape.copy(), *bounds),
                expected=integers,
                attrs=SEEDS,
                label=f"{low.dtype} {label}",
                state=STATE,
            )
        )
    for rate in (np.float32(0.3), np.float64(0.0), np.float64(0.75)):
        SAMPLES.append(
            Sample(
                DropoutMask,
                (shape.copy(), np.asarray(rate)),
                expected=mask,
                attrs=SEEDS,
                label=f"{rate.dtype} {rate:.2} {label}",
                **SHARED,
            )
        )
