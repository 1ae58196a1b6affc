"""Learning rates as functions of the step number: on the host and in a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor, name_scope
from tensorbow.kinds import INT64, AsDType, Name, PositiveNumber, checked, number, read_as, sequence, whole
from tensorbow.ops.elementwise import less_equal
from tensorbow.ops.selection import cast, select
from tensorbow.specs import DType, float32, int64

_STEP = whole(0)
Boundaries: TypeAlias = Annotated[Sequence[int], sequence(whole(), "a list of whole numbers")]
Rates: TypeAlias = Annotated[
    Sequence[float], sequence(number(0, above=True), "a list of positive finite numbers")
]
Numbers: TypeAlias = Annotated[
    Sequence[float], sequence(whole() | number(), "a list of finite numbers")
]  # ints stay ints


def checked_step(step: Any) -> int:
    """A step as an int; with a fast path for ints, as schedules are called every round."""
    return step if type(step) is int and 0 <= step < INT64 else int(read_as(_STEP, step, "schedule", "step"))


class Schedule(ABC):
    """A learning rate that depends on the step."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The rate of a step, counted from 0."""

    @abstractmethod
    def tensor(self, step: Tensor, dtype: DType) -> Tensor:
        """The rate at a step (a scalar of integers), a scalar tensor of `dtype`."""

    def restarts(self, step: int) -> bool:
        """True if averaging restarts before this step (Crossbow, section 3): at jumps of the rate."""
        checked_step(step)
        return False

    @abstractmethod
    def scaled(self, factor: float) -> Schedule:
        """The same schedule with all rates multiplied by `factor`."""


class Constant(Schedule):
    """A constant rate."""

    @checked
    def __init__(self, rate: PositiveNumber):
        self.rate = rate

    def __call__(self, step: int) -> float:
        """The rate."""
        checked_step(step)
        return self.rate

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate as a constant of the graph."""
        return convert_to_tensor(self.rate, dtype)

    @checked
    def scaled(self, factor: PositiveNumber) -> Constant:
        """A constant schedule with the rate times `factor`."""
        return Constant(self.rate * factor)


class PiecewiseConstant(Schedule):
    """`values[i]` up to and including step `boundaries[i]`, then the last value.

    Same as `tf.train.piecewise_constant`. Averaging restarts at the jumps.
    """

    @checked
    def __init__(self, boundaries: Boundaries, values: Rates):
        _check_pieces(boundaries, values)
        self.boundaries, self.values = list(boundaries), list(values)

    def __call__(self, step: int) -> float:
        """The rate of a step."""
        return self.values[bisect_left(self.boundaries, checked_step(step))]

    @checked
    def tensor(self, step: Any, dtype: AsDType) -> Tensor:
        """The rate at a step, a scalar of `dtype`: a chain of selects."""
        return _select(cast(step, int64), self.boundaries, self.values, dtype)

    def restarts(self, step: int) -> bool:
        """True at the first step of a new rate."""
        return checked_step(step) - 1 in self.boundaries

    @checked
    def scaled(self, factor: PositiveNumber) -> PiecewiseConstant:
        """The same boundaries, all rates times `factor`."""
        return PiecewiseConstant(self.boundaries, [v * factor for v in self.values])


@checked
def piecewise_constant(x: Any, boundaries: Numbers, values: Numbers, name: Name = None) -> Tensor:
    """`values[i]` for `x <= boundaries[i]`, then the last value; a scalar float32. TensorFlow's function.

    x: a scalar tensor or variable, for example the global step; boundaries have its dtype.
    """
    _check_pieces(boundaries, values)
    with name_scope(name, "PiecewiseConstant"):
        return _select(convert_to_tensor(x), boundaries, values, float32)


def _check_pieces(boundaries: Sequence[float], values: Sequence[float]) -> None:
    if len(values) != len(boundaries) + 1:
        raise InvalidArgumentError(
            f"piecewise_constant: {len(boundaries)} boundaries need {len(boundaries) + 1} values, "
            f"got {len(values)}"
        )
    if any(a >= b for a, b in pairwise(boundaries)):
        raise InvalidArgumentError(f"piecewise_constant: boundaries must rise, got {list(boundaries)}")


def _select(x: Tensor, boundaries: Sequence[float], values: Sequence[float], dtype: DType) -> Tensor:
    rate = convert_to_tensor(values[-1], dtype)
    for boundary, value in reversed(list(zip(boundaries, values, strict=False))):
        rate = select(less_equal(x, boundary), convert_to_tensor(value, dtype), rate)
    return rate


def as_schedule(rate: float | Schedule) -> Schedule:
    """A schedule from a number or a schedule."""
    return rate if isinstance(rate, Schedule) else Constant(rate)
