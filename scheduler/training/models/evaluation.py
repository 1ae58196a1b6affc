"""Evaluation of a model's variables on a data set, in a session of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scheduler.training.measures.classification_metrics import CONFUSION, ClassificationReport, report_of
from scheduler.training.models.model_inputs import build_model, inputs_for
from tensorbow.data import TrainingData
from tensorbow.devices import Device, usable_cores
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Tensor
from tensorbow.models import find_model
from tensorbow.runtime import Session
from tensorbow.specs import Array

BATCH = 250  # examples per step; affects speed and memory, not the result
ROUNDING = 1e-6  # of a mean of float32
MSE, RMSE, R2 = "mse", "rmse", "r2"  # metrics of models that predict numbers
ACCURACY = "accuracy"  # metric by which runs are compared, where a model has it


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and metrics, by name, on a data set. The metric "accuracy" is a fraction, 0 to 1."""

    loss: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The metric "accuracy"; None for a model without it."""
        return self.metrics.get(ACCURACY)

    @classmethod
    def mean(cls, results: Sequence[Evaluation]) -> Evaluation:
        """Mean of the evaluations of several models."""
        count = len(results)
        names = results[0].metrics
        metrics = {name: math.fsum(each.metrics[name] for each in results) / count for name in names}
        return cls(math.fsum(each.loss for each in results) / count, metrics)

    @classmethod
    def of_batches(cls, parts: Sequence[tuple[int, Sequence[float]]], names: Sequence[str]) -> Evaluation:
        """Evaluation of a data set from the examples, and the loss and metrics, of each batch."""
        examples = sum(count for count, _ in parts)
        loss = math.fsum(float(values[0]) * count for count, values in parts) / examples
        metrics = {
            name: math.fsum(total_of_mean(float(values[index]), count) for count, values in parts) / examples
            for index, name in enumerate(names, 1)
        }
        return cls(loss, metrics)

    def with_derived(self, dataset: TrainingData) -> Evaluation:
        """Adds rmse and r2 to a mean squared error `mse` of a data set whose labels are numbers.

        r2 is 1 - mse / variance of the labels, of several columns the mean of their variances.
        """
        derived = derived_metrics(self.metrics, dataset)
        if not derived or dataset.numbers is None:
            return self
        mse, spread = self.metrics[MSE], float(dataset.numbers.astype(np.float64).var(0).mean())
        values = {RMSE: math.sqrt(mse) if mse >= 0 else mse, R2: 1 - mse / spread if spread else math.nan}
        return Evaluation(self.loss, {**self.metrics, **{name: values[name] for name in derived}})


def derived_metrics(names: Collection[str], dataset: TrainingData) -> list[str]:
    """Metrics that an evaluation derives from those of a model, which are means over examples."""
    if MSE not in names or dataset.numbers is None:
        return []
    return [name for name in (RMSE, R2) if name not in names]


def total_of_mean(mean: float, count: int) -> float:
    """Sum of values from their mean in float32; whole if it is so up to rounding, as a number of hits."""
    total = mean * count
    if not math.isfinite(total):
        return total
    whole = float(round(total))
    return whole if abs(total - whole) <= ROUNDING * count else total


def _scores_of(outputs: Any, dataset: TrainingData) -> Tensor:
    """Outputs of a classifier, [batch, ..., classes]. Raises InvalidArgumentError for others."""
    if isinstance(outputs, Tensor):
        dims = outputs.spec.shape
        if dims is not None and len(dims) > 1 and dims[-1] == dataset.classes is not None:
            return outputs
    raise InvalidArgumentError(
        "metrics: expected a classifier, whose outputs are scores [batch, classes], and data with classes; "
        "return further metrics from the model itself"
    )


class Evaluator:
    """Evaluates snapshots of a model, in its own session with its own stream groups and memory."""

    def __init__(
        self,
        model: Any,
        dataset: TrainingData,
        device: Device,
        threads: int,
        model_options: Mapping[str, Any] | None = None,
        metrics: Sequence[str] = (),
    ):
        """model: see `tb.models.find_model`. threads: most batches evaluated in parallel; limited to the
        number of cores. metrics: further ones, of classifiers; see `ClassificationReport`.

        Raises InvalidArgumentError for further metrics of a model that is no classifier.
        """
        self._dataset, self._further = dataset, tuple(metrics)
        self.report: ClassificationReport | None = None  # of the last evaluation, with further metrics
        self._threads = max(1, min(threads, usable_cores()))
        graph = Graph()
        with graph.as_default():
            self._inputs = inputs_for(dataset)
            built = build_model(find_model(model), model_options or {}, dataset, self._inputs, training=False)
        self._names, self._fetches = [*built.metrics], [built.loss, *built.metrics.values()]
        if metrics:
            self._fetches.append(_scores_of(built.outputs, dataset))
        self._session = Session(graph=graph, device=device)

    def evaluate(
        self, values: Mapping[str, Array], stopped: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """Loss and metrics of the model with these values; None if `stopped()` becomes true meanwhile.

        The result does not depend on the number of threads.
        """
        self._session.load_variables(values)
        starts = range(0, len(self._dataset), BATCH)
        with ThreadPoolExecutor(self._threads, "tensorbow-evaluation") as pool:
            try:
                parts = list(pool.map(lambda start: None if stopped() else self._batch(start), starts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        done = [part for part in parts if part is not None]
        if len(done) < len(parts):
            return None
        result = Evaluation.of_batches(done, self._names).with_derived(self._dataset)
        if not self._further:
            return result
        scores = np.concatenate([values[-1] for _, values in done])
        self.report = report_of(scores, np.asarray(self._dataset.arrays[-1]), self._dataset.class_names)
        return Evaluation(result.loss, {**result.metrics, **self.report.values(self._further)})

    def _batch(self, start: int) -> tuple[int, list[Any]]:
        """Size, and loss, metrics and scores, of the batch of examples from `start`."""
        stop = min(start + BATCH, len(self._dataset))
        arrays = self._dataset.made(np.arange(start, stop))
        feeds = dict(zip(self._inputs.placeholders, arrays, strict=True))
        return stop - start, self._session.run(self._fetches, feeds)

    @property
    def figures(self) -> list[str]:
        """Names of the loss and the metrics, the further ones included."""
        further = [name for name in self._further if name != CONFUSION]
        derived = derived_metrics(self._names, self._dataset)
        return list(dict.fromkeys(["loss", *self._names, *derived, *further]))

    def close(self) -> None:
        """Closes the session."""
        self._session.close()
