"""`tb.fit`: training of a model on data in one call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

from scheduler.training.configuration.config import DEFAULT_REPLICAS, TrainingConfig
from scheduler.training.measures.tally import TrainingResult
from scheduler.training.models.evaluation import Evaluation
from scheduler.training.models.trained_model import TrainedModel
from scheduler.training.running.callbacks import Callbacks
from scheduler.training.running.outcome import models_of
from scheduler.training.running.trainer import Trainer
from tensorbow.data import DATASETS, TrainingData
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Anything, Flag, checked
from tensorbow.training import TrainingProgress


class FittedModel:
    """Model trained by `tb.fit`. Close it, or use it with `with`, if many are made.

    config: all options of the run. result: its figures, a `TrainingResult`. history: a dictionary for each
    evaluation, as in metrics.jsonl, with those of a run that was resumed. values: variables of the central
    model z by name. replica_values: of every independent replica with sync `none`, otherwise of z alone.
    ema_values: variables of the moving average of z, with the option `ema`, or None.
    """

    def __init__(self, trainer: Trainer, result: TrainingResult):
        """trainer: whose run has ended, before it is closed."""
        engine, round = trainer.engine, result.steps
        self.config, self.result = trainer.config, result
        self.history: list[dict[str, Any]] = trainer.run.history
        self.replica_values = models_of(engine, round)
        self.values = self.replica_values[0]
        self.ema_values = engine.ema_values(round) if engine.options.ema is not None else None
        self._described, self._data = trainer.described, trainer.data
        self._open: TrainedModel | None = None

    def __repr__(self) -> str:
        figures = self.history[-1].items() if self.history else ()
        tested = "".join(
            f", {name} {value:.4g}"
            for name, value in figures
            if name.startswith("test_") and isinstance(value, float)
        )
        steps = f"{self.result.steps} steps{', interrupted' if self.result.interrupted else ''}"
        return f"<FittedModel: {self.config.source.name}, {steps}{tested}>"

    def curve(self, name: str) -> list[Any]:
        """Values of a figure of the history, such as `test_loss`, one for each evaluation.

        Raises InvalidArgumentError for one that no record has.
        """
        if not any(name in record for record in self.history):
            names = list(dict.fromkeys(key for record in self.history for key in record))
            raise InvalidArgumentError(f"curve: expected one of {', '.join(names)}, got {name!r:.60}")
        return [record.get(name) for record in self.history]

    @property
    def model(self) -> TrainedModel:
        """The central model, for inference on the run's first device."""
        if self._open is None:
            self._open = TrainedModel.in_memory(
                self.values, self._described, self.config.source, self.config.devices[0]
            )
        return self._open

    def predict(self, inputs: Any) -> Any:
        """Outputs of the model for raw inputs; see `TrainedModel.predict`."""
        return self.model.predict(inputs)

    def probabilities(self, inputs: Any) -> Any:
        """Class probabilities, float32 [examples, classes]; see `TrainedModel.probabilities`."""
        return self.model.probabilities(inputs)

    def evaluate(self, data: TrainingData | None = None) -> Evaluation:
        """Loss and metrics on a data set, by default the run's test data; see `TrainedModel.evaluate`."""
        return self.model.evaluate(self._data.test if data is None else data)

    def save(self, folder: str | PathLike[str]) -> str:
        """Writes the model for `tb.train.load_model` and the command line; returns the folder."""
        return self.model.export(folder)

    def close(self) -> None:
        """Closes the session of the model; idempotent."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def __enter__(self) -> FittedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@checked
def fit(
    model: Anything = "lenet",
    data: Anything = None,
    *,
    replicas: Anything = DEFAULT_REPLICAS,
    weights: Anything = None,
    callbacks: Callbacks = (),
    progress: Flag = True,
    **options: Any,
) -> FittedModel:
    """Trains a model with several replicas that are averaged (Crossbow, VLDB 2019), and returns it.

        trained = tb.fit("lenet", "digits", replicas=4, epochs=5, schedule="cosine")
        print(trained.result.test_accuracy, trained.predict(pictures).argmax(1))

    model: a name of the zoo, a callable `model(inputs, labels, training)` that returns (loss, outputs,
        metrics), or a class of such.
    data: name of a data set, a file or folder as for `tensorbow train --data`, or arrays: (train, test) or
        (train, validation, test), each (inputs, labels) or a data set. By default the model's.
    replicas: on each device; a number, one for each device, or "auto".
    weights: to begin with, in all replicas: a state dict of PyTorch, `values` of another FittedModel, or a
        path as for `tensorbow train --weights`.
    progress: whether to show a bar, or lines, on standard output.
    options: all others of `TrainingConfig`, such as `epochs`, `learning_rate`, `devices`, `output` (no folder
        is written without) or `resume`.

    Ctrl-C ends the run after the current round; `result.interrupted` is True then. A second one raises
    KeyboardInterrupt. Raises InvalidArgumentError for options that do not exist or do not fit, and what
    `Trainer` and `Trainer.train` raise.
    """
    given = {"model": model, "replicas_per_device": replicas, **options}
    named, arrays = named_data(data)
    state = weights if isinstance(weights, Mapping) else None
    if state is None and weights is not None:
        given["weights"] = weights
    config = TrainingConfig.from_dict({**given, **named})
    shown = TrainingProgress.on_standard_output() if progress else TrainingProgress()
    with Trainer(config, shown, data=arrays, weights=state, callbacks=callbacks) as trainer:
        with stopped_by_interrupt(trainer.request_stop):
            result = trainer.train()
        return FittedModel(trainer, result)


def named_data(data: Any) -> tuple[dict[str, str], Any]:
    """Options for data that are given by name, and data that are given as arrays, or None."""
    if isinstance(data, str):
        return {"dataset" if data in DATASETS else "data": data}, None
    if isinstance(data, os.PathLike):
        return {"data": os.fspath(data)}, None
    return {}, data


@contextmanager
def stopped_by_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Context in which the first Ctrl-C calls `stop`, in the main thread of a program without a handler."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) != usual:
        yield
        return

    def interrupted(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        stop()

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
