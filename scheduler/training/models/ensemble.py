"""Ensemble of a run's replicas as one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.training.folders.run_models import without_accuracy
from scheduler.training.models.evaluation import ACCURACY, Evaluation
from scheduler.training.models.trained_model import TrainedModel, raw_inputs, require_examples_of
from tensorbow.data import TrainingData
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import AsPath, checked
from tensorbow.nest import leaves_like, pack
from tensorbow.specs import Array


class Ensemble:
    """All replicas of a run as one model, whose probabilities, or other outputs, are the mean of theirs.

    Use it with `with`, or close it.
    """

    @checked
    def __init__(self, path: AsPath, *, device: str = "/cpu:0"):
        """Loads each replica's own model from the folder of a run, with any synchronisation.

        Raises as `TrainedModel`, and InvalidArgumentError for a run with one replica.
        """
        self.path = Path(path)
        self._members = TrainedModel.members(self.path, device)
        self.about: dict[str, Any] = without_accuracy(self._members[0].about)
        if len(self._members) < 2:
            self.close()
            raise InvalidArgumentError(f"ensemble: expected several replicas, {path} has one")

    def __len__(self) -> int:
        return len(self._members)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the model's pictures."""
        return self._members[0].image_shape

    @property
    def classes(self) -> int | None:
        """Number of classes; None if the model predicts something else."""
        return self._members[0].classes

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; empty if they have none."""
        return self._members[0].class_names

    @property
    def input_specs(self) -> Any:
        """Specs of the inputs; see `TrainedModel.input_specs`."""
        return self._members[0].input_specs

    def probabilities(self, images: Any) -> NDArray[np.float32]:
        """Mean of the members' class probabilities, in their order; see `TrainedModel.probabilities`."""
        return self._mean([member.probabilities(images) for member in self._members])

    def predict(self, inputs: Any) -> Any:
        """Mean of the members' outputs, in their order; see `TrainedModel.predict`."""
        first, *others = (member.predict(inputs) for member in self._members)
        leaves = [[leaf for _, leaf in leaves_like(first, each, "outputs")] for each in (first, *others)]
        return pack(first, iter([self._mean(column) for column in zip(*leaves, strict=True)]))

    def _mean(self, arrays: Sequence[Array]) -> Array:
        total, *others = arrays
        for other in others:
            total = total + other
        mean: Array = total / total.dtype.type(len(self))
        return mean

    def evaluate(self, dataset: TrainingData) -> Evaluation:
        """Loss and metrics of the mean probabilities, or of the mean of other outputs, on a data set.

        Raises as `TrainedModel.evaluate_predictions`.
        """
        require_examples_of(self._members[0], dataset)
        if self.classes is None:
            mean = self.predict(raw_inputs(dataset))
            return self._members[0].evaluate_predictions(dataset, mean)
        labels = dataset.arrays[-1]
        probabilities = self.probabilities(raw_inputs(dataset))
        own = np.maximum(probabilities[np.arange(len(dataset)), labels], np.finfo(np.float32).tiny)
        right = probabilities.argmax(1) == labels
        return Evaluation(float(-np.log(own.astype(np.float64)).mean()), {ACCURACY: float(right.mean())})

    def close(self) -> None:
        """Closes the members' sessions; idempotent."""
        for member in self._members:
            member.close()

    def __enter__(self) -> Ensemble:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
