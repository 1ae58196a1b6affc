"""Search spaces: the configurations of a sweep, as a grid, or drawn at random from ranges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.options import options_of, shortened
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.synonyms import nearest_option
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import find_model
from tensorbow.models.model_options import value_of_text

Choices = dict[str, Any]
"""Values of the swept options, by name."""

DIGITS = 4  # significant digits of numbers that are drawn, so that they can be typed again
# Options that are equal for all members.
SHARED = (
    *("model", "dataset", "data_dir", "data", "target", "task", "image_size", "augmentation"),
    *("ignore_columns", "validation_split", "test_split", "split_seed", "devices", "replica_mode", "compute"),
    *("launch_ahead", "steps_per_launch", "data_on_device", "best_metric"),
)
# Options of single runs: of averaging, of their ends, and of their files.
OF_RUNS = (
    *("replicas_per_device", "sync", "tau", "alpha", "mu", "staleness", "ema", "dispatch", "ssgd_epoch"),
    *("outer_learning_rate", "outer_momentum", "clear_velocity", "on_nan", "evaluate_every", "max_seconds"),
    *("target_accuracy", "early_stopping", "exchange_dtype", "backup"),
    *("output", "resume", "checkpoint_rounds", "keep_checkpoints", "trace", "trace_rounds"),
    *("metrics", "tensorboard"),
)


@dataclass(frozen=True)
class Range:
    """Interval from which numbers are drawn: evenly, or evenly in their logarithm.

    Whole numbers are drawn, both ends included, if both ends are whole numbers.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InvalidArgumentError(
                f"range: expected two finite numbers LOW:HIGH that rise, as 0.1:0.9, got {self}"
            )
        if self.log and self.low <= 0:
            raise InvalidArgumentError(f"range: expected positive numbers with log, got {self}")

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low!r}:{self.high!r}"

    def draw(self, generator: np.random.Generator) -> float | int:
        """A number, rounded to `DIGITS` significant digits."""
        whole = type(self.low) is int and type(self.high) is int
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        if self.log:
            drawn = math.exp(generator.uniform(math.log(max(low, 0.5) if whole else low), math.log(high)))
        else:
            drawn = generator.uniform(low, high)
        if whole:
            return int(min(max(round(drawn), self.low), self.high))
        return float(f"{drawn:.{DIGITS}g}")


def configurations(
    grid: Mapping[str, Sequence[Any]],
    ranges: Mapping[str, Range | Sequence[Any]],
    random: int | None,
    seed: int,
) -> list[Choices]:
    """All combinations of the grid's values, each with `random` draws from the ranges if there are any.

    A range may be a list, of which each draw takes one value. seed: of the draws.
    Raises InvalidArgumentError for names that are no options or that a sweep cannot vary, empty lists, and
    draws without ranges or ranges without a number of draws.
    """
    for name in (*grid, *ranges):
        require_option(name)
    grid, ranges = plain_values(grid), plain_values(ranges)
    if both := sorted(grid.keys() & ranges.keys()):
        raise InvalidArgumentError(f"{both[0]}: expected in the grid or as a range, got both")
    for name, values in (*grid.items(), *((n, r) for n, r in ranges.items() if not isinstance(r, Range))):
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InvalidArgumentError(f"{name}: expected a list of values, got {shortened(values)}")
    if bool(ranges) != (random is not None):
        got = "ranges without it" if ranges else f"random {random} without a range"
        raise InvalidArgumentError(
            f"random: expected a number of draws together with ranges, as --random 20 --range "
            f"learning_rate=log:1e-4:1e-1, got {got}"
        )
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if random is None:
        return points
    generator = np.random.Generator(np.random.Philox(seed))
    drawn = [{name: _drawn(own, generator) for name, own in ranges.items()} for _ in range(random)]
    return [{**point, **draw} for draw in drawn for point in points]


def plain_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with NumPy's numbers and arrays as Python's."""
    plain: dict[str, Any] = {}
    for name, values in given.items():
        values = values.tolist() if isinstance(values, np.ndarray) else values
        if isinstance(values, (list, tuple)):
            values = [value.item() if isinstance(value, np.generic) else value for value in values]
        plain[name] = values
    return plain


def _drawn(own: Range | Sequence[Any], generator: np.random.Generator) -> Any:
    return own.draw(generator) if isinstance(own, Range) else own[int(generator.integers(len(own)))]


def require_option(name: str) -> None:
    """Raises InvalidArgumentError for a name that members cannot differ in, with one near it."""
    known = [each for each in options_of(TrainingConfig) if each not in (*SHARED, *OF_RUNS, "seed")]
    if name in known or name.startswith("model."):
        return
    if name == "seed":
        raise InvalidArgumentError(
            "seed: expected among the options of all members; vary it by seeds, as seeds=8"
        )
    if name in SHARED:
        raise InvalidArgumentError(
            f"{name}: expected one value for all members, got a list; sweep each alone"
        )
    near = nearest_option(name, known)
    hint = (f"; did you mean {near!r}?" if near else "") or (
        f"; there are {', '.join(map(repr, known))}, and arguments of your model, as model.{name}"
    )
    raise InvalidArgumentError(f"{name}: expected an option in which members can differ{hint}")


def with_choices(base: Mapping[str, Any], choices: Mapping[str, Any]) -> TrainingConfig:
    """Configuration of a member: the sweep's options, and its choices. Raises InvalidArgumentError."""
    options = dict(base)
    for name, value in choices.items():
        group, _, inner = name.partition(".")
        if inner:
            options[f"{group}_options"] = {**(options.get(f"{group}_options") or {}), inner: value}
        else:
            options[name] = value
    return TrainingConfig.from_dict(options)


def with_required(base: Mapping[str, Any], choices: Choices) -> TrainingConfig:
    """Configuration that all members share, with a member's choices for arguments that the model needs.

    Raises InvalidArgumentError.
    """
    given = base.get("model", options_of(TrainingConfig)["model"].default)
    needed = {f"model.{name}" for name, each in find_model(given).options.items() if each.required}
    return with_choices(base, {name: value for name, value in choices.items() if name in needed})


def read_values(text: str) -> tuple[str, list[Any]]:
    """(option, values) of a text such as `learning_rate=0.01,0.03`. Raises InvalidArgumentError."""
    name, values = _split(text, "grid", "learning_rate=0.01,0.03")
    return name, [value_of_text(part.strip()) for part in values.split(",")]


def read_range(text: str) -> tuple[str, Range | list[Any]]:
    """(option, range) of a text such as `learning_rate=log:1e-4:1e-1`, `momentum=0.5:0.99`, or a list.

    Raises InvalidArgumentError.
    """
    name, values = _split(text, "range", "learning_rate=log:1e-4:1e-1")
    if ":" not in values:
        return name, [value_of_text(part.strip()) for part in values.split(",")]
    parts = values.split(":")
    log = parts[0] == "log"
    ends = [value_of_text(part.strip()) for part in (parts[1:] if log else parts)]
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        raise InvalidArgumentError(
            f"range {name}: expected LOW:HIGH or log:LOW:HIGH, as log:1e-4:1e-1, got {shortened(values)}"
        )
    return name, Range(ends[0], ends[1], log)


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise InvalidArgumentError(f"{option}: expected NAME=VALUES, as {example}, got {shortened(text)}")
    group, dot, inner = name.strip().partition(".")
    return group.replace("-", "_") + dot + inner, values.strip()
