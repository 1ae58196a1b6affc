"""Callbacks of a training run: their base class, early stopping, the best metric, and what calls them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from scheduler.batches.positions import RoundPositions
from scheduler.engine.results import RoundResults
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.option_kinds import MODES, metric_and_mode
from scheduler.training.measures.classification_metrics import ClassificationReport
from scheduler.training.measures.metric_order import loss_beside, lower_is_better, score_of
from scheduler.training.measures.tally import TrainingResult
from scheduler.training.models.evaluation import ACCURACY
from tensorbow.errors import (
    AbortedError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from tensorbow.kinds import NonNegative, Positive, Text, checked, instance, one_of, sequence
from tensorbow.missing_names import did_you_mean
from tensorbow.optimizers import Schedule
from tensorbow.specs import Array
from tensorbow.training import finite_or_none

if TYPE_CHECKING:
    from scheduler.engine.learning_engine import LearningEngine

Mode: TypeAlias = Annotated[str, one_of(*MODES)]
Record: TypeAlias = Mapping[str, Any]


class RoundReport(NamedTuple):
    """A round's figures, of each replica, in the order of its batches.

    round: its number, from 0. replicas: their numbers. metrics: by name, as the step gives them.
    """

    round: int
    replicas: Sequence[int]
    losses: Sequence[float]
    metrics: Mapping[str, Sequence[Any]]
    learning_rate: float


class TrainingRun:
    """A training run, as its callbacks see it.

    config: its options. round: rounds trained so far; in `on_round`, up to the end of the launch. epoch: the
    epochs that these are, with the fraction of the current one. replicas: their number, on all devices.
    folder: output folder, or None. history: the records of its evaluations, as in metrics.jsonl.
    split: the data that these are of, "test" or "validation". report: predictions of the last one, by z or by
    the first independent replica; None unless the options name metrics.
    """

    def __init__(self, config: TrainingConfig):
        self.config = config
        self.round = 0
        self.epoch = 0.0
        self.folder: Path | None = None
        self.history: list[dict[str, Any]] = []
        self.stop_reason: str | None = None
        self.engine: LearningEngine | None = None  # while its state may be read
        self.replicas = config.replicas
        self.split = "test"
        self.report: ClassificationReport | None = None

    def stop(self, reason: str) -> None:
        """Ends training after the current launch; it is evaluated and saved as at its usual end."""
        self.stop_reason = self.stop_reason or str(reason)

    def central_values(self) -> dict[str, Array]:
        """Variables of the central model z by name, copied; see `Callback.reads_state` for `on_round`.

        Raises FailedPreconditionError where they may not be read.
        """
        return self._readable("central_values").central_values(self.round)

    def replica_values(self, index: int) -> dict[str, Array]:
        """Variables of a replica by name, copied. Raises as `central_values`, and for an odd index."""
        engine = self._readable("replica_values")
        if not 0 <= index < engine.learners.count:
            raise InvalidArgumentError(
                f"replica_values: expected 0 to {engine.learners.count - 1}, got {index!r:.40}"
            )
        return engine.learners.values.replica_values(index)

    def _readable(self, call: str) -> LearningEngine:
        if self.engine is None:
            raise FailedPreconditionError(
                f"{call}: rounds are in flight; set `reads_state = True` in the callback's class to read "
                "values in on_round (with dispatch round_robin), or read them in on_epoch"
            )
        self.engine.learners.drain()
        return self.engine


class Callback:
    """Base class of callbacks of a training run. Override the methods that are needed; others cost nothing.

    A method's exception ends the run, with a checkpoint, and an error that names callback and method.
    reads_state: whether `on_round` reads values of z or of replicas. Then a launch waits for the methods of
    the one before. The values are those at the end of the launch, which are the round's own only with
    steps_per_launch=1. Results do not depend on it.
    """

    reads_state = False

    def on_begin(self, run: TrainingRun) -> None:
        """Called before the first round, also of a resumed run."""

    def on_round(self, run: TrainingRun, report: RoundReport) -> None:
        """Called after each launch, once for each of its rounds, in order."""

    def on_epoch(self, run: TrainingRun, record: Record) -> None:
        """Called after each evaluation: of an epoch, or as `evaluate_every` says. record: its figures."""

    def on_checkpoint(self, run: TrainingRun, path: Path) -> None:
        """Called when a checkpoint has been written."""

    def on_end(self, run: TrainingRun, result: TrainingResult | None) -> None:
        """Called once at the end, where `on_begin` was. result: None if an error ends the run."""

    def state(self) -> Mapping[str, Any] | None:
        """State for checkpoints, as JSON values; None for nothing."""
        return None

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes the state of the checkpoint that a run is resumed from, before `on_begin`."""


Callbacks: TypeAlias = Annotated[
    Sequence[Callback],
    sequence(instance(Callback, expected="a tb.Callback"), "a list of tb.Callback objects"),
]


class CallbackCaller:
    """Calls the callbacks of a run, until one fails. failure: the error then, to be raised at the end."""

    def __init__(self, callbacks: Sequence[Callback], run: TrainingRun):
        self.run = run
        self.failure: AbortedError | None = None
        names: dict[str, Callback] = {}
        for callback in callbacks:
            _require_known_methods(type(callback))
            name, number = type(callback).__name__, 2
            while name in names:
                name, number = f"{type(callback).__name__} {number}", number + 1
            names[name] = callback
        self._named = names
        self._of_rounds = {
            name: callback
            for name, callback in names.items()
            if type(callback).on_round is not Callback.on_round
        }
        self.reads_state = any(callback.reads_state for callback in self._of_rounds.values())
        self._begun: list[str] = []

    def begin(self) -> None:
        """Calls `on_begin`."""
        for name, callback in self._named.items():
            if self.failure is None:
                self._begun.append(name)
            self._call(name, "on_begin", callback.on_begin)

    def epoch(self, record: Record) -> None:
        """Calls `on_epoch`."""
        for name, callback in self._named.items():
            self._call(name, "on_epoch", callback.on_epoch, record)

    def checkpoint(self, path: Path) -> None:
        """Calls `on_checkpoint`."""
        for name, callback in self._named.items():
            self._call(name, "on_checkpoint", callback.on_checkpoint, path)

    def end(self, result: TrainingResult | None) -> None:
        """Calls `on_end` of all whose `on_begin` was called, also after a failure; once."""
        begun, self._begun = self._begun, []
        for name in begun:
            earlier, self.failure = self.failure, None
            self._call(name, "on_end", self._named[name].on_end, result)
            self.failure = earlier or self.failure

    def rounds(
        self,
        results: RoundResults,
        names: Sequence[str],
        schedule: Schedule,
        positions: RoundPositions,
        engine: LearningEngine,
    ) -> None:
        """Calls `on_round` for each round of a launch. names: of the metrics."""
        if not self._of_rounds:
            return
        count, self.run.round = len(results.replicas), results.rounds.stop
        self.run.replicas, self.run.epoch = count, positions.epoch(self.run.round)
        readable = self.reads_state and engine.options.in_lockstep
        with self.reading(engine if readable else None):
            for index, round in enumerate(results.rounds):
                part = slice(index * count, (index + 1) * count)
                report = RoundReport(
                    round,
                    results.replicas,
                    results.losses[part],
                    {name: column[part] for name, column in zip(names, results.metrics, strict=True)},
                    schedule(round),
                )
                for name, callback in self._of_rounds.items():
                    self._call(name, "on_round", callback.on_round, report)

    @contextmanager
    def reading(self, engine: LearningEngine | None) -> Iterator[None]:
        """Context in which callbacks may read the engine's values; None: in which they may not."""
        before, self.run.engine = self.run.engine, engine
        try:
            yield
        finally:
            self.run.engine = before

    def _call(self, name: str, method: str, function: Callable[..., None], *arguments: Any) -> None:
        if self.failure is not None:
            return
        try:
            function(self.run, *arguments)
        except Exception as error:
            self.failure = _failure(name, method, error, f" at round {self.run.round:,}")

    # State in checkpoints -------------------------------------------------------------------------

    def states(self) -> dict[str, Any]:
        """States of the callbacks that have one, by name. Raises AbortedError for one that is not JSON."""
        states = {}
        for name, callback in self._named.items():
            try:
                state = callback.state()
                if state is not None:
                    states[name] = json.loads(json.dumps(state, allow_nan=False))
            except Exception as error:
                raise _failure(name, "state", error) from error
        return states

    def load_states(self, states: Any) -> list[str]:
        """Gives the states of a checkpoint to the callbacks; returns the names of those that are not here.

        Raises DataLossError for states of another form, AbortedError for a failure of a callback.
        """
        if not isinstance(states, dict):
            raise DataLossError(f"callbacks: expected states by name, got {states!r:.40}")
        for name, callback in self._named.items():
            if name in states:
                try:
                    callback.load_state(states[name])
                except Exception as error:
                    raise _failure(name, "load_state", error) from error
        return [name for name in states if name not in self._named]


def _require_known_methods(cls: type[Callback]) -> None:
    """Raises InvalidArgumentError for a method on_..., as on_ronud, that would never be called."""
    known = [name for name in dir(Callback) if name.startswith("on_")]
    for name in dir(cls):
        if name.startswith("on_") and name not in known and callable(getattr(cls, name)):
            raise InvalidArgumentError(
                f"callback {cls.__name__}: expected methods {', '.join(known)}, got {name}, never called"
                f"{did_you_mean(name, known)}"
            )


def _failure(name: str, method: str, error: Exception, where: str = "") -> AbortedError:
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    failure = AbortedError(f"callback {name}.{method} failed{where}: {reason}")
    failure.__cause__ = error
    return failure


# Callbacks of the options ---------------------------------------------------------------------------


def require_figure(option: str, metric: str, known: Sequence[str]) -> None:
    """Raises InvalidArgumentError if the metric of an option is not among the figures of evaluations."""
    if metric not in known:
        split, _, figure = metric.partition("_")  # val_loss is like test_loss
        alike = [name for name in known if split and figure and name.endswith(f"_{figure}")]
        # By the figure alone where the split is there: test_accuracy is not like test_r2.
        of_split = [name for name in known if name.startswith(f"{split}_")]
        near = did_you_mean(figure, [name.partition("_")[2] for name in of_split], before=f"{split}_")
        hint = f"; did you mean {alike[0]}?" if alike else near if of_split else did_you_mean(metric, known)
        raise InvalidArgumentError(f"{option}: expected one of {', '.join(known)}, got {metric!r}{hint}")


def require_watched(
    config: TrainingConfig, split: str, metrics: Collection[str], evaluated: Collection[str]
) -> None:
    """Raises InvalidArgumentError for an option that watches a figure which evaluations will not have.

    metrics: of training. evaluated: figures of the evaluated split.
    """
    known = ["loss", *metrics, *(f"{split}_{name}" for name in evaluated)]
    known += [f"ema_{name}" for name in evaluated] if config.ema is not None else []
    stopping = None if config.early_stopping is None else config.early_stopping[0]
    best = None if config.best_metric is None else metric_and_mode(config.best_metric)[0]
    for option, metric in (("early_stopping", stopping), ("best_metric", best)):
        if metric is not None:
            require_figure(option, metric, known)
    if config.target_accuracy is not None and ACCURACY not in evaluated:
        raise InvalidArgumentError(
            f"target_accuracy: expected a model with the metric {ACCURACY}, got one with "
            f"{', '.join(evaluated)}; leave it out, or use early_stopping, as {split}_loss:3"
        )


@dataclass
class _Watched:
    """A metric of evaluations, and its best value so far."""

    metric: str
    option: str
    min_delta: float = 0.0
    mode: str | None = None
    best: float | None = None

    @property
    def is_lower_better(self) -> bool:
        """True for mode `min`, and without a mode as `lower_is_better` says."""
        return lower_is_better(self.metric, self.mode)

    @property
    def key(self) -> str:
        """Key of its state: the metric, with the direction where that is not the usual one."""
        turned = self.is_lower_better != lower_is_better(self.metric)
        return f"{self.metric}:{self.mode}" if turned else self.metric

    def value_in(self, record: Record) -> float | None:
        """The metric in a record; None if it is not finite.

        Raises InvalidArgumentError for a metric that the record has not.
        """
        numbers = [name for name, value in record.items() if value is None or isinstance(value, (int, float))]
        require_figure(self.option, self.metric, numbers)
        value = record[self.metric]
        return float(value) if value is not None and math.isfinite(value) else None

    def improves(self, record: Record) -> bool:
        """Takes a record; returns whether its value is the best so far. Raises as `value_in`."""
        value = self.value_in(record)
        if value is None:
            return False
        gain = math.inf if self.best is None else value - self.best
        if (-gain if self.is_lower_better and self.best is not None else gain) > self.min_delta:
            self.best = value
            return True
        return False


class EarlyStopping(Callback):
    """Stops training after `patience` evaluations in a row in which a metric did not get better."""

    @checked
    def __init__(
        self, metric: Text, patience: Positive, min_delta: NonNegative = 0.0, mode: Mode | None = None
    ):
        """metric: a number of the records. mode: `min` if lower is better, `max` if higher; by default lower
        for losses and errors, else higher. min_delta: an improvement is by more than this.
        """
        self._watched = _Watched(metric, "early_stopping", min_delta, mode)
        self.patience, self.waited = patience, 0

    def on_begin(self, run: TrainingRun) -> None:
        """Stops a resumed run that had waited long enough."""
        self._stop_if_over(run)

    def on_epoch(self, run: TrainingRun, record: Record) -> None:
        """Compares the metric."""
        self.waited = 0 if self._watched.improves(record) else self.waited + 1
        self._stop_if_over(run)

    def _stop_if_over(self, run: TrainingRun) -> None:
        if self.waited >= self.patience:
            best = "" if self._watched.best is None else f" than {self._watched.best:.6g}"
            run.stop(
                f"early stopping: {self._watched.metric} was not better{best} in {self.waited} evaluations"
            )

    def state(self) -> Mapping[str, Any]:
        """The best value, and the evaluations since."""
        return {"metric": self._watched.key, "best": self._watched.best, "waited": self.waited}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on with a state of the same metric; with another one begins anew."""
        if state["metric"] == self._watched.key:
            self._watched.best, self.waited = state["best"], state["waited"]


class BestMetric(Callback):
    """Finds the evaluation with the best value of a metric, in the order of `score_of`.

    is_best: whether it was the last one.
    """

    def __init__(self, metric: str):
        """metric: as for EarlyStopping, with its mode as `score:min`."""
        name, mode = metric_and_mode(metric)
        self._watched = _Watched(name, "best_metric", mode=mode)
        self._loss: float | None = None  # of the best evaluation
        self.is_best = False

    def on_epoch(self, run: TrainingRun, record: Record) -> None:
        """Compares the metric."""
        watched, loss = self._watched, record.get(loss_beside(self._watched.metric))
        value, lower = watched.value_in(record), watched.is_lower_better
        better = score_of(value, loss, lower) > score_of(watched.best, self._loss, lower)
        self.is_best = value is not None and better
        if self.is_best:
            watched.best, self._loss = value, loss

    def state(self) -> Mapping[str, Any]:
        """The best value, and the loss beside it."""
        return {"metric": self._watched.key, "best": self._watched.best, "loss": finite_or_none(self._loss)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on with the best value of the same metric."""
        if state["metric"] == self._watched.key:
            self._watched.best, self._loss = state["best"], state.get("loss")
