"""The rules of the optimisers' updates and of model averaging; rows of the table in `table.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from tensorbow.graph import Attrs, OpDef
from tensorbow.kernels.scalars.expression import (
    Scalar,
    apply,
    cast,
    constant,
    maximum,
    minimum,
    not_equal,
    select,
    sqrt,
    truncate16,
)
from tensorbow.ops.adaptive_updates import (
    ApplyAdadelta,
    ApplyAdagrad,
    ApplyAdam,
    ApplyAdamW,
    ApplyCenteredRMSProp,
    ApplyRMSProp,
)
from tensorbow.ops.averaging import (
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
from tensorbow.ops.exchanges import AllSum
from tensorbow.ops.regularized_updates import (
    ApplyAdagradDA,
    ApplyFtrl,
    ApplyProximalAdagrad,
    ApplyProximalGradientDescent,
)
from tensorbow.ops.updates import ApplyGradientDescent, ApplyMomentum

Inputs = Sequence[Scalar]
State = Mapping[str, Scalar]


def _decayed(gradient: Scalar, variable: Scalar, attrs: Attrs) -> Scalar:
    """gradient + weight_decay * variable."""
    decay = float(attrs["weight_decay"])
    return variable * decay + gradient if decay else gradient


def _descent(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, gradient, rate = x
    return (variable - _decayed(gradient, variable, attrs) * rate,)


def _momentum(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, velocity, gradient, rate, momentum = x
    g = _decayed(gradient, variable, attrs)
    after = velocity * momentum + g
    step = after * momentum + g if attrs["use_nesterov"] else after
    return variable - step * rate, after


def _adagrad(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, total, gradient, rate = x
    g = _decayed(gradient, variable, attrs)
    after = total + g * g
    return variable - g * rate / sqrt(after), after


def _adadelta(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, squares, moves, gradient, rate, rho, epsilon = x
    fresh = 1 - rho
    g = _decayed(gradient, variable, attrs)
    squares = squares * rho + g * g * fresh
    move = g / sqrt(squares + epsilon) * sqrt(moves + epsilon)
    return variable - move * rate, squares, moves * rho + move * move * fresh


def _rms_prop(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, squares, velocity, gradient, rate, rho, momentum, epsilon = x
    g = _decayed(gradient, variable, attrs)
    squares = squares + (g * g - squares) * (1 - rho)
    velocity = velocity * momentum + g * rate / sqrt(squares + epsilon)
    return variable - velocity, squares, velocity


def _centered(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, mean, squares, velocity, gradient, rate, rho, momentum, epsilon = x
    fresh = 1 - rho
    g = _decayed(gradient, variable, attrs)
    mean = mean + (g - mean) * fresh
    squares = squares + (g * g - squares) * fresh
    velocity = velocity * momentum + g * rate / sqrt(squares - mean * mean + epsilon)
    return variable - velocity, mean, squares, velocity


def _adam(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return _moments(x, _decayed(x[3], x[0], attrs))


def _adam_w(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, *others = x
    decay = float(attrs["weight_decay"])
    return _moments([variable * (1 - x[6] * decay) if decay else variable, *others], x[3])


def _moments(x: Inputs, g: Scalar) -> Sequence[Scalar]:
    """Adam's step along g."""
    variable, mean, squares, _, power1, power2, rate, beta1, beta2, epsilon = x
    corrected = rate * sqrt(1 - power2) / (1 - power1)
    mean = mean + (g - mean) * (1 - beta1)
    squares = squares + (g * g - squares) * (1 - beta2)
    return variable - mean * corrected / (sqrt(squares) + epsilon), mean, squares


def _clip(x: Scalar, limit: Scalar) -> Scalar:
    return minimum(maximum(x, -limit), limit)


def _ftrl(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, before, linear, gradient, rate, l1, l2 = x
    exponent = -float(attrs["learning_rate_power"])

    def power(total: Scalar) -> Scalar:
        return sqrt(total) if exponent == 0.5 else apply("power", total, exponent)

    g = _decayed(gradient, variable, attrs)
    total = before + g * g
    scale = power(total)
    linear = linear + g - (scale - power(before)) / rate * variable
    if shrinkage := float(attrs["l2_shrinkage"]):
        linear = linear + variable * (2 * shrinkage)
    tiny = float(np.finfo(variable.dtype.as_numpy_dtype).tiny)
    return (_clip(linear, l1) - linear) / maximum(scale / rate + l2 * 2, tiny), total, linear


def _proximal_descent(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, gradient, rate, l1, l2 = x
    moved = variable - _decayed(gradient, variable, attrs) * rate
    return ((moved - _clip(moved, rate * l1)) / (rate * l2 + 1),)


def _proximal_adagrad(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, total, gradient, rate, l1, l2 = x
    g = _decayed(gradient, variable, attrs)
    total = total + g * g
    own = rate / sqrt(total)
    moved = variable - g * own
    return (moved - _clip(moved, own * l1)) / (own * l2 + 1), total


def _dual_averaging(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    variable, total, squares, gradient, rate, l1, l2, step = x
    g = _decayed(gradient, variable, attrs)
    total, squares = total + g, squares + g * g
    move = (_clip(total, l1 * step) - total) * rate
    return move / (sqrt(squares) + l2 * step * rate), total, squares


def _difference(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    weights, central = x
    moved = (weights - central) * cast(state["alpha"], weights.dtype)
    return (select(not_equal(state["status"], 0), 0, moved),)


def _correct(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return (x[0] - x[1],)


def _sum(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    """Sum in order, from the first replica to the last."""
    return (reduce(lambda total, other: total + other, x),)


def _move(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    central, total, velocity = x
    velocity = velocity * cast(state["mu"], velocity.dtype) + total
    return central + velocity, velocity


def _outer_step(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    central, total, velocity = x
    share, momentum, rate = (cast(state[key], total.dtype) for key in ("share", "mu", "outer_rate"))
    progress = total * share
    velocity = velocity * momentum + progress
    return central + (velocity * momentum + progress) * rate, velocity


def _truncate16(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return (truncate16(x[0]),)


def _follow(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    average, followed = x
    return ((followed - average) * (1 - float(attrs["decay"])) + average,)


def _clear(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return (constant(attrs["value"], x[0].dtype),)


def _mean(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return (x[0] * cast(state["share"], x[0].dtype),)


def _spoil(x: Inputs, attrs: Attrs, state: State) -> Sequence[Scalar]:
    return (select(not_equal(state["status"], 0), math.nan, x[0]),)


_Rule = Callable[[Inputs, Attrs, State], Sequence[Scalar]]

UPDATE_RULES: dict[OpDef, _Rule] = {
    ApplyGradientDescent: _descent,
    ApplyMomentum: _momentum,
    ApplyAdagrad: _adagrad,
    ApplyAdadelta: _adadelta,
    ApplyRMSProp: _rms_prop,
    ApplyCenteredRMSProp: _centered,
    ApplyAdam: _adam,
    ApplyAdamW: _adam_w,
    ApplyFtrl: _ftrl,
    ApplyProximalGradientDescent: _proximal_descent,
    ApplyProximalAdagrad: _proximal_adagrad,
    ApplyAdagradDA: _dual_averaging,
}
AVERAGING_RULES: dict[OpDef, _Rule] = {
    SmaDifference: _difference,
    SmaCorrect: _correct,
    AllSum: _sum,
    SmaMove: _move,
    Truncate16: _truncate16,
    OuterStep: _outer_step,
    SmaFollow: _follow,
    SmaClear: _clear,
    GradientMean: _mean,
    GradientSpoil: _spoil,
}
