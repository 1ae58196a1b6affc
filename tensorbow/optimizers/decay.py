"""Learning rates that change smoothly: exponential and cosine decay, and a warm-up before any schedule."""

from __future__ import annotations

import math
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.ops.elementwise import add, cast, cos, divide, floor, minimum, multiply, pow
from tensorbow.optimizers.schedules import Schedule, as_schedule
from tensorbow.specs import DType, float32


class ExponentialDecay(Schedule):
    """rate * decay_rate ** (step / decay_steps); with `staircase` by whole numbers of decay_steps.

    As `tf.train.exponential_decay`. Averaging does not restart, not even at the stairs.
    """

    def __init__(self, rate: float, decay_steps: int, decay_rate: float, staircase: bool = False):
        _require_positive("exponential_decay", rate=rate, decay_steps=decay_steps, decay_rate=decay_rate)
        self.rate, self.decay_steps, self.decay_rate = float(rate), decay_steps, float(decay_rate)
        self.staircase = staircase

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        periods = step // self.decay_steps if self.staircase else step / self.decay_steps
        return self.rate * self.decay_rate**periods

    def tensor(self, step: Tensor, dtype: DType) -> Tensor:
        """The formula in the graph."""
        return _exponential(self.rate, step, self.decay_steps, self.decay_rate, self.staircase, dtype)

    def scaled(self, factor: float) -> ExponentialDecay:
        """The same decay from another rate."""
        return ExponentialDecay(self.rate * factor, self.decay_steps, self.decay_rate, self.staircase)


class CosineDecay(Schedule):
    """From rate down to alpha * rate along half a cosine in decay_steps (Loshchilov and Hutter, 2016).

    As `tf.train.cosine_decay`; it stays there afterwards.
    """

    def __init__(self, rate: float, decay_steps: int, alpha: float = 0.0):
        _require_positive("cosine_decay", rate=rate, decay_steps=decay_steps)
        if not 0 <= alpha <= 1:
            raise InvalidArgumentError(f"cosine_decay: alpha must be in [0, 1], got {alpha}")
        self.rate, self.decay_steps, self.alpha = float(rate), decay_steps, float(alpha)

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, self.decay_steps) / self.decay_steps))
        return self.rate * ((1 - self.alpha) * cosine + self.alpha)

    def tensor(self, step: Tensor, dtype: DType) -> Tensor:
        """The formula in the graph."""
        return _cosine(self.rate, step, self.decay_steps, self.alpha, dtype)

    def scaled(self, factor: float) -> CosineDecay:
        """The same curve from another rate."""
        return CosineDecay(self.rate * factor, self.decay_steps, self.alpha)


class WarmUp(Schedule):
    """Another schedule, times (step + 1) / steps during the first `steps` (Goyal et al., 2017)."""

    def __init__(self, schedule: float | Schedule, steps: int):
        _require_positive("warm_up", steps=steps)
        self.schedule, self.steps = as_schedule(schedule), steps

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        return self.schedule(step) * min(1.0, (step + 1) / self.steps)

    def tensor(self, step: Tensor, dtype: DType) -> Tensor:
        """The product in the graph."""
        return multiply(self.schedule.tensor(step, dtype), _warm(step, self.steps, dtype))

    def restarts(self, step: int) -> bool:
        """Where the other schedule restarts."""
        return self.schedule.restarts(step)

    def scaled(self, factor: float) -> WarmUp:
        """The same warm-up of the scaled schedule."""
        return WarmUp(self.schedule.scaled(factor), self.steps)


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str = "ExponentialDecay",
) -> Tensor:
    """TensorFlow's function: learning_rate * decay_rate ** (global_step / decay_steps); a scalar float32."""
    _require_positive("exponential_decay", decay_steps=decay_steps, decay_rate=decay_rate)
    with name_scope(name):
        step = convert_to_tensor(global_step)
        return _exponential(learning_rate, step, decay_steps, decay_rate, staircase, float32)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: int, alpha: float = 0.0, name: str = "CosineDecay"
) -> Tensor:
    """TensorFlow's function, see `CosineDecay`; a scalar float32."""
    _require_positive("cosine_decay", decay_steps=decay_steps)
    with name_scope(name):
        return _cosine(learning_rate, convert_to_tensor(global_step), decay_steps, alpha, float32)


def warm_up(learning_rate: Any, global_step: Any, steps: int, name: str = "WarmUp") -> Tensor:
    """learning_rate (a number or a scalar tensor) times min(1, (global_step + 1) / steps); float32."""
    _require_positive("warm_up", steps=steps)
    with name_scope(name):
        factor = _warm(convert_to_tensor(global_step), steps, float32)
        return multiply(convert_to_tensor(learning_rate, float32), factor)


def _exponential(
    rate: Any, step: Tensor, decay_steps: int, decay_rate: float, staircase: bool, dtype: DType
) -> Tensor:
    periods = divide(cast(step, dtype), float(decay_steps))
    if staircase:
        periods = floor(periods)
    return multiply(convert_to_tensor(rate, dtype), pow(convert_to_tensor(decay_rate, dtype), periods))


def _cosine(rate: Any, step: Tensor, decay_steps: int, alpha: float, dtype: DType) -> Tensor:
    fraction = divide(minimum(cast(step, dtype), float(decay_steps)), float(decay_steps))
    cosine = multiply(add(cos(multiply(fraction, math.pi)), 1.0), 0.5)
    return multiply(convert_to_tensor(rate, dtype), add(multiply(cosine, 1.0 - alpha), alpha))


def _warm(step: Tensor, steps: int, dtype: DType) -> Tensor:
    return minimum(divide(add(cast(step, dtype), 1.0), float(steps)), 1.0)


def _require_positive(what: str, **numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise InvalidArgumentError(f"{what}: {name} must be positive and finite, got {number}")
