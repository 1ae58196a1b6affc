"""Samples of the ops that forward values, write variables, update them, and average replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.averaging import (
    GradientCheck,
    GradientMean,
    GradientSpoil,
    OuterStep,
    SmaClear,
    SmaCorrect,
    SmaDifference,
    SmaFollow,
    SmaMove,
    Truncate16,
)
from tensorbow.ops.control import (
    Again,
    AtMost,
    CheckFinite,
    Copy,
    CustomGradient,
    Identity,
    PlaceholderWithDefault,
    StopGradient,
)
from tensorbow.ops.state import Assign, AssignAdd, AssignSub, ReadVariable
from tensorbow.ops.updates import ApplyGradientDescent, ApplyMomentum
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, normal

SIZES = {"": (3, 5), "empty": (0, 5), "large": (256, 513)}
LENGTHS = {"": (7,), "empty": (0,), "large": (140_000,)}


def _same(x: Array) -> Array:
    return x


PASSING = [
    Sample(op, (normal(*shape),), _same, label=label)
    for op in (Identity, StopGradient, Copy, CustomGradient, ReadVariable)
    for label, shape in SIZES.items()
] + [Sample(Again, (normal(*shape),), _same, {"use": 3}, label=label) for label, shape in SIZES.items()]
PASSING += [
    Sample(AtMost, (np.int32(needed), np.int32(5)), lambda a, b: np.minimum(a, b), label=label)
    for needed, label in ((3, ""), (7, "more"))
]
PASSING += [
    Sample(PlaceholderWithDefault, (normal(*shape),), _same, {"shape": shape}, label=label)
    for label, shape in SIZES.items()
]


def _check(x: Array, label: str) -> Sample:
    return Sample(CheckFinite, (x,), lambda x: (), label=label, state={"status": 0})


CHECKS = [_check(normal(*shape), label) for label, shape in SIZES.items()]


def _write(op: OpDef, after: Any) -> list[Sample]:
    return [
        Sample(
            op,
            (normal(*shape), normal(*shape, seed=1)),
            after,
            label=label,
            written=lambda v, x: (after(v, x),),
        )
        for label, shape in SIZES.items()
    ]


WRITES = [
    *_write(Assign, lambda v, x: x),
    *_write(AssignAdd, lambda v, x: v + x),
    *_write(AssignSub, lambda v, x: v - x),
]

RATE, MOMENTUM = np.float32(0.1), np.float32(0.9)


def _descent(label: str, shape: tuple[int, ...], decay: float) -> Sample:
    def after(w: Array, g: Array, rate: Array) -> Array:
        return w - rate * (g + np.float32(decay) * w)

    return Sample(
        ApplyGradientDescent,
        (normal(*shape), normal(*shape, seed=1), np.asarray(RATE)),
        after,
        {"weight_decay": decay},
        label=label,
        contiguous=(1,),
        written=lambda *inputs: (after(*inputs),),
    )


def _momentum(label: str, shape: tuple[int, ...], decay: float, nesterov: bool) -> Sample:
    def after(w: Array, v: Array, g: Array, rate: Array, momentum: Array) -> tuple[Array, Array]:
        g = g + np.float32(decay) * w
        velocity = momentum * v + g
        return w - rate * (momentum * velocity + g if nesterov else velocity), velocity

    return Sample(
        ApplyMomentum,
        (*(normal(*shape, seed=i) for i in range(3)), np.asarray(RATE), np.asarray(MOMENTUM)),
        lambda *inputs: after(*inputs)[0],
        {"weight_decay": decay, "use_nesterov": nesterov},
        label=label,
        contiguous=(2,),
        written=after,
    )


UPDATES = [
    *[_descent(label, shape, 0.0) for label, shape in SIZES.items()],
    _descent("decay", (3, 5), 0.01),
    *[_momentum(label, shape, 0.0, False) for label, shape in SIZES.items()],
    _momentum("decay", (3, 5), 0.01, False),
    _momentum("nesterov", (3, 5), 0.01, True),
]


def _flat(op: OpDef, count: int, expected: Any, written: Any = None, **more: Any) -> list[Sample]:
    return [
        Sample(
            op,
            tuple(normal(*shape, seed=i) for i in range(count)),
            expected,
            label=label,
            written=written,
            **more,
        )
        for label, shape in LENGTHS.items()
    ]


HALF = np.float32(0.5)
AVERAGING = [
    *_flat(SmaDifference, 2, lambda w, z: np.float32(0.25) * (w - z), state={"alpha": 0.25, "status": 0}),
    Sample(
        SmaDifference,
        (normal(7), normal(7, seed=1)),
        lambda w, z: np.zeros(7),
        label="status set",
        state={"alpha": 0.25, "status": 1},
    ),
    *_flat(SmaClear, 1, lambda u: (), lambda u: (np.zeros_like(u),)),
    *_flat(SmaCorrect, 2, lambda w, c: (), lambda w, c: (w - c,)),
    *_flat(GradientCheck, 1, lambda g: (), state={"status": 0}),
    *_flat(GradientSpoil, 1, lambda g: (), lambda g: (g,), state={"status": 0}),
    Sample(
        GradientSpoil,
        (normal(3),),
        lambda g: (),
        label="status set",
        written=lambda g: (np.full(3, np.nan),),
        state={"status": 1},
    ),
    *_flat(GradientMean, 1, lambda a: a / 4, state={"share": 0.25}),
    *_flat(
        SmaMove,
        3,
        lambda z, a, u: z + (np.float32(0.5) * u + a),
        lambda z, a, u: (np.float32(0.5) * u + a,),
        state={"mu": 0.5},
    ),
    *_flat(
        OuterStep,
        3,
        lambda z, a, u: z + (HALF * (HALF * u + HALF**2 * a) + HALF**2 * a) * HALF,
        lambda z, a, u: (HALF * u + HALF**2 * a,),
        state={"share": 0.25, "mu": 0.5, "outer_rate": 0.5},
    ),
    *_flat(Truncate16, 1, lambda x: (np.asarray(x, np.float32).view(np.uint32) >> 16 << 16).view(np.float32)),
    *_flat(SmaFollow, 2, lambda e, z: e + np.float32(0.125) * (z - e), attrs={"decay": 0.875}),
]

SAMPLES = [*PASSING, *CHECKS, *WRITES, *UPDATES, *AVERAGING]
