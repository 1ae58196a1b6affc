"""Progress of a training run, which its checkpoints store, and its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from operator import add
from typing import Any

from scheduler.training.measures.metric_order import score_of
from scheduler.training.measures.tuning_result import TuningResult
from tensorbow.errors import DataLossError
from tensorbow.training import finite_or_none, finite_values
from tensorbow.training.checkpoints import MAXIMUM_ROUND

SOUND = 2.0  # times the loss of a guess, log(classes): a model with more is worse than an untrained one


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run. seconds: of training alone, without evaluation and checkpoints.

    test_accuracy: on the test split; None without accuracy, or if a run with a validation split is
        interrupted.
    metrics: the last ones by name, with the split before it, as `test_accuracy` or `validation_r2`.
    """

    model: str
    dataset: str
    devices: list[str]
    replicas: int
    batch_size: int
    sync: str
    epochs: float
    steps: int
    images_per_second: float
    seconds: float
    test_accuracy: float | None
    seconds_to_target: float | None
    interrupted: bool = False
    skipped_updates: int = 0
    tuning: TuningResult | None = None
    ema_accuracy: float | None = None
    stop_reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    workers: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values, without `interrupted` and `skipped_updates`.

        If the number of replicas was tuned, includes the measurements and the reason of the choice;
        `ema_accuracy` and `stop_reason`, of a callback, where there is one; `workers` if there are several.
        """
        values = finite_values(asdict(self))
        del values["interrupted"], values["skipped_updates"], values["tuning"]
        values["metrics"] = finite_values(self.metrics)
        for name in ("ema_accuracy", "stop_reason"):
            if values[name] is None:
                del values[name]
        if self.workers == 1:
            del values["workers"]
        if self.tuning is not None:
            values["tuning"] = self.tuning.to_dict()
        return values


@dataclass
class Tally:
    """Counters and sums of a run up to a round.

    epoch_*: over the tasks of the current epoch; losses that are not finite are left out.
    evaluated_at: round of the last evaluation, 0 for none.
    ema_accuracy: test accuracy of the moving average of z, if there is one.
    epoch_sums: of each metric over the examples of the epoch, by name.
    test_accuracy: of z on the evaluated split; without averaging the mean of test_accuracies, one per
        replica; None for a model without accuracy.
    test_metrics: loss and metrics on the evaluated split, by name.
    best: round with the best test accuracy so far, among equals with the lowest test loss, or the best by
        `best_metric`; best_accuracy and best_loss are its values. None before the first evaluation, and in
        checkpoints of older versions.
    sound: last round with a checkpoint from which training continued well: up to the next checkpoint all
        losses were finite, with a mean of at most `SOUND` times the loss of a guess.
    A round whose weights had exploded by its checkpoint, or the next one, is neither best nor sound.
    """

    round: int = 0
    seconds: float = 0.0
    images: int = 0
    epoch_loss: float = 0.0
    epoch_losses: int = 0
    epoch_images: int = 0
    epoch_seconds: float = 0.0
    skipped_updates: int = 0
    evaluated_at: int = 0
    test_accuracy: float | None = None
    seconds_to_target: float | None = None
    test_accuracies: list[float] | None = None
    best: int | None = None
    best_accuracy: float | None = None
    best_loss: float | None = None
    sound: int | None = None
    ema_accuracy: float | None = None
    epoch_sums: dict[str, float] = field(default_factory=dict)
    test_metrics: dict[str, float] = field(default_factory=dict)

    def begin_epoch(self) -> None:
        """Resets the sums of the epoch."""
        self.epoch_loss = self.epoch_seconds = 0.0
        self.epoch_sums = {}
        self.epoch_losses = self.epoch_images = 0

    def add(self, losses: Sequence[float], metrics: Mapping[str, Sequence[float]], images: int) -> None:
        """Adds tasks of `images` images each, one by one: the bits do not depend on how tasks are grouped.

        metrics: by name, means of each task's batch.
        """
        self.images += images * len(losses)
        self.epoch_images += images * len(losses)
        for name, means in metrics.items():
            self.epoch_sums[name] = reduce(
                add, map(float(images).__mul__, means), self.epoch_sums.get(name, 0.0)
            )
        total, counted = reduce(add, losses, self.epoch_loss), len(losses)
        if not math.isfinite(total):
            finite = [loss for loss in losses if math.isfinite(loss)]
            total, counted = reduce(add, finite, self.epoch_loss), len(finite)
        self.epoch_loss = total
        self.epoch_losses += counted

    def mark_best(self, test_loss: float, is_there: bool) -> None:
        """Updates the best round with the one just evaluated. is_there: the best one's checkpoint exists."""
        before = score_of(self.best_accuracy, self.best_loss)
        is_better = score_of(self.test_accuracy, test_loss) > before
        self.mark_best_by(self.best is None or not is_there or is_better, test_loss)

    def mark_best_by(self, is_best: bool, test_loss: float) -> None:
        """Updates the best round with the one just evaluated if that is the best by some metric."""
        if is_best:
            self.best, self.best_accuracy = self.round, self.test_accuracy
            self.best_loss = finite_or_none(test_loss)

    def mark_sound(self, checkpoint: int, loss: float, classes: int | None) -> None:
        """Marks a round's checkpoint as sound if the mean loss up to the next one is."""
        if checkpoint and is_sound(loss, classes):
            self.sound = checkpoint

    @property
    def loss(self) -> float:
        """Mean loss of the epoch so far."""
        return self.epoch_loss / self.epoch_losses if self.epoch_losses else math.nan

    @property
    def metrics(self) -> dict[str, float]:
        """Mean of each metric over the training of the epoch so far, by name."""
        return {name: total / self.epoch_images for name, total in self.epoch_sums.items()}

    @property
    def images_per_second(self) -> float:
        """Images per second of training, over the whole run."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def epoch_images_per_second(self) -> float:
        """Images per second of training, over the current epoch so far."""
        return self.epoch_images / self.epoch_seconds if self.epoch_seconds else 0.0

    def to_metadata(self) -> dict[str, Any]:
        """The tally as JSON values, with None for metrics that are not finite."""
        values = asdict(self)
        for name in ("epoch_sums", "test_metrics"):
            values[name] = finite_values(values[name])
        return values

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tally:
        """Reads the tally from a checkpoint's metadata. Raises DataLossError for an invalid value."""
        values: dict[str, Any] = {}
        for each in fields(cls):
            value, annotation = metadata.get(each.name), str(each.type)
            if annotation.startswith("dict"):
                value = _of_older_version(each.name, metadata) if value is None else value
                sound = isinstance(value, dict) and all(
                    isinstance(name, str) and (item is None or type(item) in (int, float))
                    for name, item in value.items()
                )
                if sound:
                    value = {name: math.nan if item is None else item for name, item in value.items()}
            elif annotation.startswith("list"):
                sound = isinstance(value, list) and all(_can_be(item, annotation) for item in value)
            else:
                is_loss = each.name.endswith("_loss")  # as of a density, less than 0
                sound = _can_be(abs(value) if is_loss and type(value) is float else value, annotation)
            if not sound and not (value is None and "None" in annotation):
                raise DataLossError(f"a run's {each.name} cannot be {str(value)[:80]!r}")
            values[each.name] = value
        tally = cls(**values)
        if tally.evaluated_at > tally.round:
            raise DataLossError(f"a run at round {tally.round} was not evaluated at {tally.evaluated_at}")
        return tally


def _of_older_version(name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of a checkpoint of an older version, which knows accuracy alone."""
    key = {"epoch_sums": "epoch_correct", "test_metrics": "test_accuracy"}[name]
    return {} if metadata.get(key) is None else {"accuracy": metadata[key]}


def is_sound(loss: float | None, classes: int | None) -> bool:
    """True if a mean loss is at most SOUND times that of a guess; False for NaN and None.

    classes: None if the labels are no classes: then a guess is not known, and every finite loss is sound.
    """
    if loss is None or classes is None:
        return loss is not None and math.isfinite(loss)
    return loss <= SOUND * math.log(max(classes, 2))


def _can_be(value: Any, annotation: str) -> bool:
    """True if a value from a file is in the range of a field with this annotation."""
    if type(value) is int:
        return 0 <= value <= MAXIMUM_ROUND
    return type(value) is float and "float" in annotation and 0 <= value < math.inf
