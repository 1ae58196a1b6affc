"""Members of a sweep: one configuration and seed each, their state and their figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.decisions.halving import Score
from scheduler.sweeps.search_space import Choices, with_choices
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.optimizer_choice import WITH_MOMENTUM
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.measures.metric_order import lower_is_better, score_of
from tensorbow.training import finite_values

WAITING, TRAINING, PAUSED = "waiting", "training", "paused"
FINISHED, STOPPED, DIVERGED = "finished", "stopped", "diverged"
ENDED = (FINISHED, STOPPED, DIVERGED)
# Options of which the compiled step does not depend.
OUTSIDE = (
    "seed",
    "epochs",
    "learning_rate",
    "schedule",
    "learning_rate_drops",
    "final_rate",
    "warmup_epochs",
    "best_metric",
    "weights",
    "weights_skip",
    "weights_names",
    "weights_flattened",
)


@dataclass
class Member:
    """One configuration and seed of a sweep.

    number: from 0. choices: values of the swept options. config: of its run alone.
    status: waiting, training, paused (until all members are compared), finished, stopped (by halving), or
    diverged. epochs: trained. rounds: steps trained. figures: the last ones, by name: loss and metrics, as
    accuracy (mean over the last epoch's batches), and of evaluations validation_loss, test_loss,
    validation_accuracy, ...
    """

    number: int
    choices: Choices
    config: TrainingConfig
    status: str = WAITING
    epochs: int = 0
    rounds: int = 0
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Seed of its initial values, order of examples, and random ops."""
        return self.config.seed

    @property
    def score(self) -> Score:
        """Score by `best_metric`, by default accuracy on validation data, and then by the loss there."""
        metric, mode = metric_and_mode(self.config.best_metric or "validation_accuracy")
        value, loss = self.figures.get(metric), self.figures.get("validation_loss")
        return score_of(value, loss, lower_is_better(metric, mode))

    def row(self) -> dict[str, Any]:
        """Row of `results.csv`."""
        told = {"seed": self.seed, "status": self.status, "epochs": self.epochs}
        return {"member": self.number, **self.choices, **told, **finite_values(self.figures)}

    def state(self) -> dict[str, Any]:
        """State for checkpoints."""
        told = {"status": self.status, "epochs": self.epochs, "rounds": self.rounds}
        return {**told, "figures": finite_values(self.figures)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes the state of a checkpoint."""
        self.status, self.epochs, self.rounds = state["status"], state["epochs"], state["rounds"]
        figures = state["figures"].items()
        self.figures = {name: math.nan if value is None else value for name, value in figures}


def members_of(base: Mapping[str, Any], configurations: Iterable[Choices], seeds: int) -> list[Member]:
    """Members of all configurations, each with `seeds` seeds from the base's on.

    Raises InvalidArgumentError for a configuration that is not allowed.
    """
    first = int(base.get("seed", 0))
    members: list[Member] = []
    for choices in configurations:
        for seed in range(first, first + seeds):
            config = with_choices({**base, "seed": seed}, choices)
            members.append(Member(len(members), choices, config))
    return members


def ranked(members: Iterable[Member]) -> list[Member]:
    """Members that trained to their end, the best first; of equal ones the lower number."""
    finished = (member for member in members if member.status == FINISHED)
    return sorted(finished, key=lambda member: (*(-part for part in member.score), member.number))


def bound_options(config: TrainingConfig) -> tuple[str, ...]:
    """Options that are step scalars of a member's step, beside the learning rate."""
    momentum = ("momentum",) if config.optimizer in WITH_MOMENTUM else ()
    decay = ("weight_decay",) if config.weight_decay and config.optimizer != "adamw" else ()
    return momentum + decay


def grouped(members: Sequence[Member]) -> list[list[Member]]:
    """Members by compiled step, shared by those that differ only in step scalars or options outside it."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        options, bound = member.config.to_dict(), bound_options(member.config)
        inside = {name: value for name, value in options.items() if name not in (*OUTSIDE, *bound)}
        groups.setdefault(repr((inside, bound)), []).append(member)
    return [*groups.values()]
