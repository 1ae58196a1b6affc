"""Updates that scale each element's step by its past gradients: Adagrad, Adadelta, RMSProp, Adam, AdamW.

The formulas are TensorFlow 1's (ApplyAdagrad, ApplyAdadelta, ApplyRMSProp, ApplyCenteredRMSProp,
ApplyAdam); g is the gradient plus weight_decay times the variable, but with ApplyAdamW the gradient alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel, KernelCall, OpDef
from tensorbow.ops.definition import define_op
from tensorbow.ops.updates import chunks, decayed_gradient, two_chunks, update_spec
from tensorbow.specs import Array

Formula = Callable[..., None]
"""(two temporaries, variable, *slots, gradient, *scalars, **attributes of the op): works in place."""


def _preparation(
    formula: Formula, arrays: int, rate: int | None, attrs: Collection[str]
) -> Callable[[KernelCall], Callable[[], None]]:
    """The kernel's `prepare`: applies a formula to the first `arrays` inputs, piece by piece.

    rate: which scalar is the learning rate, for a decay of the variable itself instead of the gradient.
    attrs: names of the attributes that the formula takes.
    """

    def prepare(call: KernelCall) -> Callable[[], None]:
        first, second = call.scratch
        scalars, decay = call.inputs[arrays:], float(call.attrs["weight_decay"])
        own = {name: call.attrs[name] for name in attrs}
        pieces = list(chunks(first, *call.inputs[:arrays]))

        def step() -> None:
            for a, w, *slots, gradient in pieces:
                if rate is not None:
                    np.multiply(w, 1 - scalars[rate] * w.dtype.type(decay), out=w)
                    formula(a, second[: a.size], w, *slots, gradient, *scalars, **own)
                    continue
                g = decayed_gradient(decay, a, w, gradient)
                formula(a, second[: a.size], w, *slots, g, *scalars, **own)

        return step

    return prepare


def _approach(average: Array, target: Array, weight: Array, step: Array) -> None:
    """average += weight * (target - average)."""
    np.subtract(target, average, out=step)
    np.multiply(step, weight, out=step)
    np.add(average, step, out=average)


# Formulas: `a` may hold the gradient, and is overwritten after its last read ---------------------------


def adagrad(a: Array, b: Array, w: Array, total: Array, g: Array, rate: Array) -> None:
    """One Adagrad step."""
    np.multiply(g, g, out=b)
    np.add(total, b, out=total)
    np.multiply(g, rate, out=a)
    np.sqrt(total, out=b)
    np.divide(a, b, out=a)
    np.subtract(w, a, out=w)


def adadelta(a: Array, b: Array, w: Array, squares: Array, moves: Array, g: Array, *scalars: Array) -> None:
    """One Adadelta step; scalars are rate, rho and epsilon."""
    rate, rho, epsilon = scalars
    fresh = 1 - rho
    np.multiply(squares, rho, out=squares)
    np.multiply(g, g, out=b)
    np.multiply(b, fresh, out=b)
    np.add(squares, b, out=squares)
    np.add(squares, epsilon, out=b)  # b = move = sqrt((moves + epsilon) / (squares + epsilon)) * g
    np.sqrt(b, out=b)
    np.divide(g, b, out=b)
    np.add(moves, epsilon, out=a)
    np.sqrt(a, out=a)
    np.multiply(b, a, out=b)
    np.multiply(moves, rho, out=moves)
    np.multiply(b, b, out=a)
    np.multiply(a, fresh, out=a)
    np.add(moves, a, out=moves)
    np.multiply(b, rate, out=b)
    np.subtract(w, b, out=w)


def rms_prop(
    a: Array, b: Array, w: Array, squares: Array, velocity: Array, g: Array, *scalars: Array
) -> None:
    """One RMSProp step; scalars are rate, rho, momentum and epsilon."""
    rate, rho, momentum, epsilon = scalars
    np.multiply(velocity, momentum, out=velocity)
    np.multiply(g, g, out=b)
    np.subtract(b, squares, out=b)
    np.multiply(b, 1 - rho, out=b)
    np.add(squares, b, out=squares)
    np.multiply(g, rate, out=a)
    np.add(squares, epsilon, out=b)
    np.sqrt(b, out=b)
    np.divide(a, b, out=a)
    np.add(velocity, a, out=velocity)
    np.subtract(w, velocity, out=w)


def centered_rms_prop(
    a: Array, b: Array, w: Array, mean: Array, squares: Array, velocity: Array, g: Array, *scalars: Array
) -> None:
    """One centered RMSProp step; scalars are rate, rho, momentum and epsilon."""
    rate, rho, momentum, epsilon = scalars
    fresh = 1 - rho
    np.multiply(velocity, momentum, out=velocity)
    _approach(mean, g, fresh, b)
    np.multiply(g, g, out=b)
    np.subtract(b, squares, out=b)
    np.multiply(b, fresh, out=b)
    np.add(squares, b, out=squares)
    np.multiply(g, rate, out=a)
    np.multiply(mean, mean, out=b)
    np.subtract(squares, b, out=b)
    np.add(b, epsilon, out=b)
    np.sqrt(b, out=b)
    np.divide(a, b, out=a)
    np.add(velocity, a, out=velocity)
    np.subtract(w, velocity, out=w)


def _adam(a: Array, b: Array, w: Array, mean: Array, squares: Array, g: Array, *scalars: Array) -> None:
    beta1_power, beta2_power, rate, beta1, beta2, epsilon = scalars
    corrected = rate * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    _approach(mean, g, 1 - beta1, b)
    np.multiply(g, g, out=a)
    _approach(squares, a, 1 - beta2, b)
    np.sqrt(squares, out=a)
    np.add(a, epsilon, out=a)
    np.multiply(mean, corrected, out=b)
    np.divide(b, a, out=b)
    np.subtract(w, b, out=w)


def define_update(
    name: str,
    slots: Sequence[str],
    scalars: Sequence[str],
    formula: Formula,
    doc: str,
    decoupled: bool = False,
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> OpDef:
    """Defines an op of (variable, slots, gradient, scalars) that writes variable and slots.

    decoupled: whether weight decay scales the variable, instead of adding to the gradient. attrs: further
    attributes, with their defaults, which the formula gets by name.
    """
    arrays = 2 + len(slots)
    return define_op(
        name,
        spec=update_spec(arrays),
        gradient=NOT_DIFFERENTIABLE,
        inputs=("var", *slots, "gradient", *scalars),
        attrs={"weight_decay": 0.0, **attrs},
        kernel=Kernel(
            prepare=_preparation(
                formula, arrays, scalars.index("learning_rate") if decoupled else None, attrs
            ),
            scratch=two_chunks,
            pointwise=True,
        ),
        alias=((0, 0),),
        writes=tuple(range(arrays - 1)),
        update=(0, arrays - 1),
        uniform_dtype=True,
        doc=doc,
    )


ApplyAdagrad = define_update(
    "ApplyAdagrad",
    ("accumulator",),
    ("learning_rate",),
    adagrad,
    "a += g^2; w -= rate * g / sqrt(a)",
)
ApplyAdadelta = define_update(
    "ApplyAdadelta",
    ("accum", "accum_update"),
    ("learning_rate", "rho", "epsilon"),
    adadelta,
    "a = rho a + (1 - rho) g^2; d = g sqrt(u + epsilon) / sqrt(a + epsilon); "
    "u = rho u + (1 - rho) d^2; w -= rate * d",
)
ApplyRMSProp = define_update(
    "ApplyRMSProp",
    ("rms", "momentum_slot"),
    ("learning_rate", "rho", "momentum", "epsilon"),
    rms_prop,
    "s += (1 - rho) (g^2 - s); v = momentum * v + rate * g / sqrt(s + epsilon); w -= v",
)
ApplyCenteredRMSProp = define_update(
    "ApplyCenteredRMSProp",
    ("mg", "rms", "momentum_slot"),
    ("learning_rate", "rho", "momentum", "epsilon"),
    centered_rms_prop,
    "m += (1 - rho) (g - m); s += (1 - rho) (g^2 - s); "
    "v = momentum * v + rate * g / sqrt(s - m^2 + epsilon); w -= v",
)
ApplyAdam = define_update(
    "ApplyAdam",
    ("m", "v"),
    ("beta1_power", "beta2_power", "learning_rate", "beta1", "beta2", "epsilon"),
    _adam,
    "m += (1 - beta1) (g - m); v += (1 - beta2) (g^2 - v); "
    "w -= rate * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon)",
)
ApplyAdamW = define_update(
    "ApplyAdamW",
    ("m", "v"),
    ("beta1_power", "beta2_power", "learning_rate", "beta1", "beta2", "epsilon"),
    _adam,
    "w *= 1 - rate * weight_decay; then as ApplyAdam without decay",
    decoupled=True,
)
