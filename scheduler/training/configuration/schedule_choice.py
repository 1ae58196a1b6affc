"""Learning-rate schedules of a training run, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.batches.positions import RoundPositions
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.optimizer_choice import default_rate
from tensorbow.errors import UnimplementedError
from tensorbow.graph import Tensor
from tensorbow.optimizers import (
    Constant,
    CosineDecay,
    ExponentialDecay,
    OneCycle,
    PiecewiseConstant,
    PolynomialDecay,
    Schedule,
    WarmUp,
)
from tensorbow.specs import DType

_CURVES: Mapping[str, Callable[[int, float], Schedule]] = {  # (steps, rate at the end), from a rate of 1
    "cosine": lambda steps, end: CosineDecay(1.0, steps, end),
    "one_cycle": lambda steps, end: OneCycle(1.0, steps, end=end),
    "exponential": lambda steps, end: ExponentialDecay(1.0, steps, end),
    "polynomial": lambda steps, end: PolynomialDecay(1.0, steps, end),
}


class BatchSchedule(Schedule):
    """A schedule of rounds, times a curve over the batches that all replicas have taken before a round.

    So the curve means the same for any number of replicas, and where it changes during the run. With one
    replica batches are rounds. Averaging restarts where the schedule of rounds says.
    """

    def __init__(self, by_round: Schedule, curve: Schedule, positions: RoundPositions):
        self.by_round, self.curve, self.positions = by_round, curve, positions

    def __call__(self, step: int) -> float:
        """The rate of a round."""
        epoch, number = self.positions.at(step)
        return self.by_round(step) * self.curve(epoch * self.positions.order.batches_per_epoch + number)

    def tensor(self, step: Any, dtype: DType) -> Tensor:
        """Raises UnimplementedError: graphs do not know the positions of rounds in the data."""
        raise UnimplementedError("a schedule over batches is set round by round, by the engine")

    def restarts(self, step: int) -> bool:
        """True if averaging restarts before round `step`."""
        return self.by_round.restarts(step)

    def scaled(self, factor: float) -> BatchSchedule:
        """The same curve, all rates times `factor`."""
        return BatchSchedule(self.by_round.scaled(factor), self.curve, self.positions)


def initial_rate(config: TrainingConfig, replicas: int, of_numbers: bool = False) -> float:
    """Learning rate before schedules: the configured one, or the default for this number of replicas.

    of_numbers: whether the labels are numbers to predict.
    """
    source, batch_size = config.source, config.batch_size
    of_model = source.default_learning_rate(
        config.model_options, replicas, config.dataset, batch_size, of_numbers
    )
    return config.learning_rate or default_rate(
        config.optimizer, of_model, source.defaults, replicas, batch_size
    )


def build_schedule(
    config: TrainingConfig, replicas: int, positions: RoundPositions, of_numbers: bool = False
) -> Schedule:
    """Learning rate by round, which begins with `initial_rate`."""
    rate = initial_rate(config, replicas, of_numbers)
    batches = positions.order.batches_per_epoch
    by_round: Schedule = Constant(rate)
    if config.schedule == "piecewise" and config.learning_rate_drops:
        values = [rate, *(rate * factor for _, factor in config.learning_rate_drops)]
        boundaries = [positions.first_round(epoch) - 1 for epoch, _ in config.learning_rate_drops]
        by_round = PiecewiseConstant(boundaries, values)
    curve: Schedule = Constant(1.0)
    if make := _CURVES.get(config.schedule):
        curve = make(max(1, round(batches * config.epochs)), config.final_rate)
    if (steps := round(config.warmup_epochs * batches)) and config.schedule != "one_cycle":
        curve = WarmUp(curve, steps)
    return by_round if isinstance(curve, Constant) else BatchSchedule(by_round, curve, positions)
