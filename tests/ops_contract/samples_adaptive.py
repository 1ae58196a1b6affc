"""Samples of the updates of Adagrad, Adadelta, RMSProp and Adam, dense and by rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.ops.adaptive_updates import (
    ApplyAdadelta,
    ApplyAdagrad,
    ApplyAdam,
    ApplyAdamW,
    ApplyCenteredRMSProp,
    ApplyRMSProp,
)
from tensorbow.ops.sparse_adaptive_updates import (
    SparseApplyAdadelta,
    SparseApplyAdagrad,
    SparseApplyCenteredRMSProp,
    SparseApplyRMSProp,
)
from tensorbow.specs import Array
from tests.ops_contract.sample import Sample, integers, normal, uniform, vector

SIZES = {"": (3, 5), "empty": (0, 5), "large": (256, 513)}
DECAY = np.float32(0.01)
Formula = Callable[..., tuple[Array, ...]]


def _adagrad(w: Array, a: Array, g: Array, rate: Array) -> tuple[Array, ...]:
    a = a + g**2
    return w - rate * g / a**0.5, a


def _adadelta(w: Array, a: Array, u: Array, g: Array, rate: Array, rho: Array, e: Array) -> tuple[Array, ...]:
    a = rho * a + (1 - rho) * g**2
    d = g * ((u + e) / (a + e)) ** 0.5
    return w - rate * d, a, rho * u + (1 - rho) * d**2


def _rms_prop(w: Array, s: Array, v: Array, g: Array, *scalars: Array) -> tuple[Array, ...]:
    rate, rho, momentum, e = scalars
    s = rho * s + (1 - rho) * g**2
    v = momentum * v + rate * g / (s + e) ** 0.5
    return w - v, s, v


def _centered(w: Array, m: Array, s: Array, v: Array, g: Array, *scalars: Array) -> tuple[Array, ...]:
    rate, rho, momentum, e = scalars
    m = rho * m + (1 - rho) * g
    s = rho * s + (1 - rho) * g**2
    v = momentum * v + rate * g / (s - m**2 + e) ** 0.5
    return w - v, m, s, v


def _adam(w: Array, m: Array, v: Array, g: Array, *scalars: Array) -> tuple[Array, ...]:
    power1, power2, rate, beta1, beta2, e = scalars
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    return w - rate * (1 - power2) ** 0.5 / (1 - power1) * m / (v**0.5 + e), m, v


def update_samples(
    op: OpDef, formula: Formula, slots: int, scalars: tuple[float, ...], **attrs: Any
) -> list[Sample]:
    """Samples with positive slots; attrs: of the op, which the formula takes, too."""

    def after(*inputs: Array, decay: float) -> tuple[Array, ...]:
        wide = [array.astype(np.float64) for array in inputs]
        if op is ApplyAdamW:
            wide[0] = wide[0] * (1 - scalars[2] * decay)
            return formula(*wide)
        wide[slots + 1] = wide[slots + 1] + decay * wide[0]
        return formula(*wide, **attrs)

    made = []
    for label, shape, decay in [
        *((label, shape, 0.0) for label, shape in SIZES.items()),
        ("decay", (3, 5), 0.5 if op is ApplyAdamW else 0.01),
    ]:
        arrays = [
            normal(*shape),
            *(uniform(*shape, low=2.0, high=3.0, seed=1 + i) for i in range(slots)),
            normal(*shape, seed=9),
        ]
        made.append(
            Sample(
                op,
                (*arrays, *(np.asarray(scalar, np.float32) for scalar in scalars)),
                lambda *inputs, decay=decay: after(*inputs, decay=decay)[0],
                {"weight_decay": decay, **attrs},
                label=label,
                contiguous=(slots + 1,),
                written=lambda *inputs, decay=decay: after(*inputs, decay=decay),
                rtol=1e-4,
                atol=1e-5,
            )
        )
    return made


def _row_sample(
    op: OpDef,
    formula: Formula,
    slots: int,
    scalars: tuple[float, ...],
    variable: Array,
    indices: Array,
    label: str,
    attrs: Mapping[str, Any],
) -> Sample:
    """Applies the formula to each indexed row; the first scalar is the learning rate."""

    def after(*inputs: Array) -> tuple[Array, ...]:
        tables = [array.astype(np.float64) for array in inputs[: slots + 1]]
        gradient, rate, indices, *more = inputs[slots + 1 :]
        for row, index in zip(gradient, indices.tolist(), strict=True):
            if index >= 0:
                moved = formula(*(table[index] for table in tables), row, rate, *more, **attrs)
                for table, value in zip(tables, moved, strict=True):
                    table[index] = value
        return tuple(tables)

    shape = variable.shape
    rate, *more = (np.asarray(scalar, np.float32) for scalar in scalars)
    return Sample(
        op,
        (
            variable,
            *(uniform(*shape, low=2.0, high=3.0, seed=1 + i) for i in range(slots)),
            normal(len(indices), *shape[1:], seed=9),
            rate,
            indices,
            *more,
        ),
        lambda *inputs: after(*inputs)[0],
        attrs,
        written=after,
        label=label,
        rtol=1e-4,
        atol=1e-5,
    )


def row_samples(
    op: OpDef, formula: Formula, slots: int, scalars: tuple[float, ...], **attrs: Any
) -> list[Sample]:
    """Samples of an update of rows; its formula is that of one row."""
    return [
        _row_sample(op, formula, slots, scalars, variable, indices, label, attrs)
        for variable, indices, label in [
            (normal(6, 3), vector(1, 4, 5), ""),
            (normal(6), vector(-1, -1), "nothing left"),
            (normal(5, 3), integers(0), "empty"),
            (normal(600, 300), np.arange(0, 600, 2), "large"),
        ]
    ]


SAMPLES = [
    *update_samples(ApplyAdagrad, _adagrad, 1, (0.1,)),
    *update_samples(ApplyAdadelta, _adadelta, 2, (0.1, 0.75, 1e-3)),
    *update_samples(ApplyRMSProp, _rms_prop, 2, (0.1, 0.75, 0.5, 1e-3)),
    *update_samples(ApplyCenteredRMSProp, _centered, 3, (0.1, 0.75, 0.5, 9.0)),
    *update_samples(ApplyAdam, _adam, 2, (0.75, 0.5, 0.1, 0.75, 0.875, 1e-3)),
    *update_samples(ApplyAdamW, _adam, 2, (0.75, 0.5, 0.1, 0.75, 0.875, 1e-3)),
    *row_samples(SparseApplyAdagrad, _adagrad, 1, (0.1,)),
    *row_samples(SparseApplyAdadelta, _adadelta, 2, (0.1, 0.75, 1e-3)),
    *row_samples(SparseApplyRMSProp, _rms_prop, 2, (0.1, 0.75, 0.5, 1e-3)),
    *row_samples(SparseApplyCenteredRMSProp, _centered, 3, (0.1, 0.75, 0.5, 9.0)),
]
