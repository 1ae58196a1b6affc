"""Smooth learning-rate schedules: decays, one cycle, and warm-up before any schedule."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import AsDType, Flag, Kind, Name, NonNegative, Positive, PositiveNumber, checked, number
from tensorbow.ops.elementwise import (
    add,
    ceil,
    cos,
    divide,
    exp,
    floor,
    less,
    maximum,
    minimum,
    multiply,
    pow,
    subtract,
)
from tensorbow.ops.selection import cast, select
from tensorbow.optimizers.schedules import Schedule, as_schedule, checked_step
from tensorbow.specs import DType, float32

Share: TypeAlias = Annotated[float, number(0, 1)]
_RATE = number(0, above=True)


def _read_schedule(value: Any) -> Schedule:
    return value if isinstance(value, Schedule) else as_schedule(_RATE.read(value))


AsSchedule: TypeAlias = Annotated[
    Any, Kind(f"{_RATE.expected}, or a schedule", _read_schedule)
]  # reads a Schedule


class ExponentialDecay(Schedule):
    """rate * decay_rate ** (step / decay_steps); `staircase` rounds the exponent down.

    Same as `tf.train.exponential_decay`. Averaging does not restart, not even at the stairs.
    """

    @checked
    def __init__(
        self,
        rate: PositiveNumber,
        decay_steps: PositiveNumber,
        decay_rate: PositiveNumber,
        staircase: Flag = False,
    ):
        self.rate, self.decay_steps, self.decay_rate = rate, decay_steps, decay_rate
        self.staircase = staircase

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        step = checked_step(step)
        periods = step // self.decay_steps if self.staircase else step / self.decay_steps
        rate: float = self.rate * self.decay_rate**periods
        return rate

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`, as graph ops."""
        return _exponential(self.rate, step, self.decay_steps, self.decay_rate, self.staircase, dtype)

    @checked
    def scaled(self, factor: PositiveNumber) -> ExponentialDecay:
        """The same decay, its initial rate times `factor`."""
        return ExponentialDecay(self.rate * factor, self.decay_steps, self.decay_rate, self.staircase)


class CosineDecay(Schedule):
    """Decay from `rate` to alpha * rate along half a cosine in decay_steps (Loshchilov and Hutter, 2016).

    Same as `tf.train.cosine_decay`; the rate stays constant afterwards.
    """

    @checked
    def __init__(self, rate: PositiveNumber, decay_steps: PositiveNumber, alpha: Share = 0.0):
        self.rate, self.decay_steps, self.alpha = rate, decay_steps, alpha

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(checked_step(step), self.decay_steps) / self.decay_steps))
        return self.rate * ((1 - self.alpha) * cosine + self.alpha)

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`, as graph ops."""
        return _cosine(self.rate, step, self.decay_steps, self.alpha, dtype)

    @checked
    def scaled(self, factor: PositiveNumber) -> CosineDecay:
        """The same curve, its initial rate times `factor`."""
        return CosineDecay(self.rate * factor, self.decay_steps, self.alpha)


class PolynomialDecay(Schedule):
    """Decay from `rate` to `end` in decay_steps: (rate - end) * (1 - step / decay_steps) ** power + end.

    Same as `tf.train.polynomial_decay` without `cycle`; the rate stays constant afterwards.
    """

    @checked
    def __init__(
        self,
        rate: PositiveNumber,
        decay_steps: PositiveNumber,
        end: NonNegative = 0.0001,
        power: PositiveNumber = 1.0,
    ):
        self.rate, self.decay_steps, self.end, self.power = rate, decay_steps, end, power

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        left = 1 - min(checked_step(step), self.decay_steps) / self.decay_steps
        rate: float = (self.rate - self.end) * left**self.power + self.end
        return rate

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`, as graph ops."""
        done = divide(minimum(cast(step, dtype), self.decay_steps), self.decay_steps)
        left = pow(subtract(1.0, done), convert_to_tensor(self.power, dtype))
        return add(multiply(left, self.rate - self.end), self.end)

    @checked
    def scaled(self, factor: PositiveNumber) -> PolynomialDecay:
        """The same curve, both rates times `factor`."""
        return PolynomialDecay(self.rate * factor, self.decay_steps, self.end * factor, self.power)


class OneCycle(Schedule):
    """Rise from rate / div_factor to `rate` in the share `rise` of `steps`, then fall to `end`.

    Both along half a cosine (Smith and Topin, 2017, in the form of PyTorch's `OneCycleLR`); the rate stays
    constant afterwards.
    """

    @checked
    def __init__(
        self,
        rate: PositiveNumber,
        steps: PositiveNumber,
        rise: Share = 0.3,
        div_factor: PositiveNumber = 25.0,
        end: NonNegative = 0.0,
    ):
        self.rate, self.steps, self.rise, self.div_factor, self.end = rate, steps, rise, div_factor, end

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        top, step = self.rise * self.steps, checked_step(step)
        if step < top:
            return _between(self.rate / self.div_factor, self.rate, step / top)
        fallen = (min(step, self.steps) - top) / (self.steps - top) if top < self.steps else 1.0
        return _between(self.rate, self.end, fallen)

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`: both halves as graph ops, and a select."""
        top, at = self.rise * self.steps, cast(step, dtype)
        start = self.rate / self.div_factor
        up = _along(start, self.rate, divide(minimum(at, top), top or 1.0))
        fallen = divide(subtract(minimum(at, self.steps), top), (self.steps - top) or 1.0)
        return select(less(at, top), up, _along(self.rate, self.end, fallen))

    @checked
    def scaled(self, factor: PositiveNumber) -> OneCycle:
        """The same curve, all rates times `factor`."""
        return OneCycle(self.rate * factor, self.steps, self.rise, self.div_factor, self.end * factor)


def _between(start: float, end: float, share: float) -> float:
    """Value at a share of the way from start to end, along half a cosine."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * share))


def _along(start: float, end: float, share: Tensor) -> Tensor:
    """`_between` as graph ops."""
    return add(multiply(add(cos(multiply(share, math.pi)), 1.0), 0.5 * (start - end)), end)


class WarmUp(Schedule):
    """Another schedule, times (step + 1) / steps during the first `steps` steps (Goyal et al., 2017)."""

    @checked
    def __init__(self, schedule: AsSchedule, steps: Positive):
        self.schedule: Schedule = schedule
        self.steps = steps

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        step = checked_step(step)
        return self.schedule(step) * min(1.0, (step + 1) / self.steps)

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`, as graph ops."""
        return multiply(self.schedule.tensor(step, dtype), _warm(step, self.steps, dtype))

    def restarts(self, step: int) -> bool:
        """True where the other schedule restarts."""
        return self.schedule.restarts(checked_step(step))

    @checked
    def scaled(self, factor: PositiveNumber) -> WarmUp:
        """The same warm-up before the other schedule times `factor`."""
        return WarmUp(self.schedule.scaled(factor), self.steps)


@checked
def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: PositiveNumber,
    decay_rate: PositiveNumber,
    staircase: Flag = False,
    name: Name = None,
) -> Tensor:
    """learning_rate * decay_rate ** (global_step / decay_steps), a scalar float32; TensorFlow's function."""
    with name_scope(name, "ExponentialDecay"):
        step = convert_to_tensor(global_step)
        return _exponential(learning_rate, step, decay_steps, decay_rate, staircase, float32)


@checked
def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: PositiveNumber, alpha: Share = 0.0, name: Name = None
) -> Tensor:
    """Cosine decay (see `CosineDecay`), a scalar float32; TensorFlow's function."""
    with name_scope(name, "CosineDecay"):
        return _cosine(learning_rate, convert_to_tensor(global_step), decay_steps, alpha, float32)


@checked
def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: PositiveNumber,
    end_learning_rate: NonNegative = 0.0001,
    power: PositiveNumber = 1.0,
    cycle: Flag = False,
    name: Name = None,
) -> Tensor:
    """(learning_rate - end) * (1 - step / decay_steps) ** power + end, a scalar float32, as in TensorFlow.

    After `decay_steps` the rate stays at `end_learning_rate`; with `cycle`, decay_steps is multiplied by the
    smallest whole number that makes it at least the step.
    """
    with name_scope(name, "PolynomialDecay"):
        step = cast(convert_to_tensor(global_step), float32)
        steps = convert_to_tensor(decay_steps, float32)
        if cycle:
            steps = multiply(steps, maximum(ceil(divide(step, decay_steps)), 1.0))
        left = subtract(1.0, divide(minimum(step, steps), steps))
        rate = convert_to_tensor(learning_rate, float32)
        return add(multiply(subtract(rate, end_learning_rate), pow(left, power)), end_learning_rate)


@checked
def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: PositiveNumber,
    decay_rate: PositiveNumber,
    staircase: Flag = False,
    name: Name = None,
) -> Tensor:
    """learning_rate / (1 + decay_rate * global_step / decay_steps), a scalar float32, as in TensorFlow."""
    with name_scope(name, "InverseTimeDecay"):
        periods = _periods(convert_to_tensor(global_step), decay_steps, staircase, float32)
        return divide(convert_to_tensor(learning_rate, float32), add(multiply(periods, decay_rate), 1.0))


@checked
def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: PositiveNumber,
    decay_rate: PositiveNumber,
    staircase: Flag = False,
    name: Name = None,
) -> Tensor:
    """learning_rate * exp(-decay_rate * global_step / decay_steps), a scalar float32, as in TensorFlow."""
    with name_scope(name, "NaturalExpDecay"):
        periods = _periods(convert_to_tensor(global_step), decay_steps, staircase, float32)
        return multiply(convert_to_tensor(learning_rate, float32), exp(multiply(periods, -decay_rate)))


@checked
def warm_up(learning_rate: Any, global_step: Any, steps: Positive, name: Name = None) -> Tensor:
    """learning_rate (a number or a scalar tensor) times min(1, (global_step + 1) / steps); float32."""
    with name_scope(name, "WarmUp"):
        factor = _warm(convert_to_tensor(global_step), steps, float32)
        return multiply(convert_to_tensor(learning_rate, float32), factor)


def _exponential(
    rate: Any, step: Tensor, decay_steps: float, decay_rate: float, staircase: bool, dtype: DType
) -> Tensor:
    periods = _periods(step, decay_steps, staircase, dtype)
    return multiply(convert_to_tensor(rate, dtype), pow(convert_to_tensor(decay_rate, dtype), periods))


def _periods(step: Tensor, decay_steps: float, staircase: bool, dtype: DType) -> Tensor:
    periods = divide(cast(step, dtype), decay_steps)
    return floor(periods) if staircase else periods


def _cosine(rate: Any, step: Tensor, decay_steps: float, alpha: float, dtype: DType) -> Tensor:
    fraction = divide(minimum(cast(step, dtype), decay_steps), decay_steps)
    cosine = multiply(add(cos(multiply(fraction, math.pi)), 1.0), 0.5)
    return multiply(convert_to_tensor(rate, dtype), add(multiply(cosine, 1.0 - alpha), alpha))


def _warm(step: Tensor, steps: int, dtype: DType) -> Tensor:
    return minimum(divide(add(cast(step, dtype), 1.0), float(steps)), 1.0)
