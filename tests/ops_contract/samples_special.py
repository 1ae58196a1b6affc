"""Samples of functions and distributions of statistics, against SciPy, and of bits as another dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from tensorbow.graph import OpDef
from tensorbow.ops.bessel import BesselI0e, BesselI1e
from tensorbow.ops.conversions import Bitcast
from tensorbow.ops.random_distributions import RandomGamma, RandomPoisson
from tensorbow.ops.special_functions import (
    Betainc,
    Igamma,
    Igammac,
    IgammaGradA,
    Polygamma,
    RandomGammaGrad,
    Zeta,
)
from tensorbow.specs import Array, float32, int16, int32, uint8
from tests.ops_contract.sample import Sample, integers, normal, uniform, vector
from tests.ops_contract.samples_random import SEEDS, STATE

Make = Callable[..., Array]


def _samples(op: OpDef, expected: Callable[..., Any], *makes: Make, **more: Any) -> list[Sample]:
    def inputs(*shapes: Any, dtype: Any = np.float32) -> tuple[Array, ...]:
        return tuple(make(*shapes[i % len(shapes)], dtype=dtype, seed=i) for i, make in enumerate(makes))

    loose: dict[str, Any] = {"rtol": 3e-4, "atol": 1e-5, **more}
    return [
        Sample(op, inputs((3, 1), (3, 5)), expected, **loose),
        Sample(op, inputs((7,), dtype=np.float64), expected, label="double", **{**loose, "rtol": 1e-9}),
        Sample(op, inputs((0, 3), (1, 3)), expected, label="empty", **loose),
        Sample(op, inputs((8, 8000), dtype=np.float64), expected, label="large", **loose),
    ]


def _positive(*shape: int, dtype: Any, seed: int) -> Array:
    return uniform(*shape, low=0.3, high=6.0, dtype=dtype, seed=seed)


def _share(*shape: int, dtype: Any, seed: int) -> Array:
    return uniform(*shape, low=0.05, high=0.95, dtype=dtype, seed=seed)


def _exponent(*shape: int, dtype: Any, seed: int) -> Array:
    return uniform(*shape, low=1.2, high=5.0, dtype=dtype, seed=seed)


def _any_sign(*shape: int, dtype: Any, seed: int) -> Array:
    return np.asarray(30 * normal(*shape, seed=seed), dtype)


def _order(*shape: int, dtype: Any, seed: int) -> Array:
    return integers(*shape, high=4, dtype=dtype, seed=seed)


def _by_a(a: Array, x: Array) -> Array:
    """The derivative of P(a, x) by a, by differences of the fourth order."""
    a, x = a.astype(np.float64), x.astype(np.float64)
    h = 1e-3
    near = special.gammainc(a + h, x) - special.gammainc(a - h, x)
    far = special.gammainc(a + 2 * h, x) - special.gammainc(a - 2 * h, x)
    return np.asarray((8 * near - far) / (12 * h))


def _of_random_gamma(a: Array, x: Array) -> Array:
    a, x = a.astype(np.float64), x.astype(np.float64)
    return np.asarray(-_by_a(a, x) / np.exp((a - 1) * np.log(x) - x - special.gammaln(a)))


def _random(op: OpDef, shape: Array, parameters: Array, label: str, **more: Any) -> Sample:
    return Sample(op, (shape, parameters), None, SEEDS, state=STATE, label=label, contiguous=(1,), **more)


def _bits(x: Array, dtype: Any, label: str) -> Sample:
    def expected(x: Array) -> Array:
        plain = np.frombuffer(x.tobytes(), dtype.as_numpy_dtype)
        ratio = x.dtype.itemsize / dtype.size
        shape = x.shape if ratio == 1 else (*x.shape, int(ratio)) if ratio > 1 else x.shape[:-1]
        return plain.reshape(shape)

    return Sample(Bitcast, (x,), expected, {"type": dtype}, label=label)


SAMPLES = [
    *_samples(BesselI0e, special.i0e, _any_sign),
    *_samples(BesselI1e, special.i1e, _any_sign),
    *_samples(Igamma, special.gammainc, _positive, _positive),
    *_samples(Igammac, special.gammaincc, _positive, _positive),
    *_samples(IgammaGradA, _by_a, _positive, _positive),
    *_samples(RandomGammaGrad, _of_random_gamma, _positive, _positive),
    *_samples(Betainc, special.betainc, _positive, _positive, _share, wrt=(2,)),
    *_samples(Zeta, special.zeta, _exponent, _positive, wrt=(1,)),
    *_samples(
        Polygamma,
        lambda n, x: special.polygamma(n.astype(int), x.astype(np.float64)),
        _order,
        _positive,
        wrt=(1,),
    ),
    _random(RandomPoisson, vector(3, 4), uniform(5), "ordinary"),
    _random(RandomPoisson, vector(3), uniform(0), "empty"),
    _random(RandomPoisson, vector(400), uniform(7, 100, dtype=np.float64), "large"),
    _random(RandomGamma, vector(3, 4), uniform(5, dtype=np.float64), "ordinary", wrt=()),
    _random(RandomGamma, vector(3), uniform(0), "empty"),
    _random(RandomGamma, vector(400), uniform(7, 100), "large"),
    _bits(normal(3, 5), int32, "same size"),
    _bits(normal(3, 5), int16, "smaller"),
    _bits(integers(3, 4, high=250, dtype=np.uint8), float32, "larger"),
    _bits(normal(0, 5), uint8, "empty"),
    _bits(normal(256, 517), int32, "large"),
]
