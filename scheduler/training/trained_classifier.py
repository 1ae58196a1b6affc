"""Use of trained classifiers: predict, evaluate, export."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.training.evaluation import BATCH, Evaluation
from scheduler.training.run_folder import MODEL
from scheduler.training.run_models import (
    StoredModel,
    average_model,
    central_model,
    replica_model,
    replica_models,
)
from tensorbow.data import ImageDataset
from tensorbow.devices import get_device, usable_cores
from tensorbow.errors import DataLossError, InvalidArgumentError, TensorBowError
from tensorbow.graph import Graph, Tensor, name_scope
from tensorbow.kinds import AsPath, Count, Flag, checked
from tensorbow.models import get_model
from tensorbow.ops.control import identity, placeholder
from tensorbow.ops.elementwise import equal, multiply, subtract
from tensorbow.ops.losses import sparse_softmax_cross_entropy_with_logits
from tensorbow.ops.nn import softmax
from tensorbow.ops.reductions import argmax, reduce_mean, reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.runtime import Session
from tensorbow.specs import Array, TensorSpec, float32, int64, uint8
from tensorbow.training import SavedModel, save_model
from tensorbow.training.graph_files import GRAPH, require_fitting

THREADS = 4  # most batches computed in parallel
LARGEST_SCALE = 1e6  # largest plausible mean, standard deviation, and inverse of it, of pixels


class Classifier:
    """Trained model, loaded from a run's folder, its model file, or a folder written by `export`.

    It takes uint8 pictures; their normalisation is part of the graph. Use it with `with`, or close it.
    """

    @checked
    def __init__(
        self,
        path: AsPath,
        *,
        device: str = "/cpu:0",
        replica: Count | None = None,
        ema: Flag = False,
    ):
        """Loads z, or with sync `none` replica 0.

        replica: loads this replica's own values instead, of a run's folder; ema: the moving average of z.
        Raises NotFoundError, DataLossError or InvalidArgumentError if `path` has no usable model.
        """
        path = self.path = Path(path)
        self._values: dict[str, Array] | None = None  # None: an exported model, which has its own files
        if replica is not None and ema:
            raise InvalidArgumentError(f"Classifier: expected replica or ema, got replica {replica} and ema")
        if replica is not None:
            self._begin(replica_model(path, replica), device)
        elif ema:
            self._begin(average_model(path), device)
        elif (path / GRAPH).exists():
            saved = SavedModel(path, device=device)
            self._session = saved.session
            self._inputs, self._outputs, self.about = saved.inputs, saved.outputs, saved.about
            try:
                _check_about(path, self.about)
                _check_signature(path, self._inputs, self._outputs, self.image_shape, self.classes)
            except BaseException:
                saved.close()
                raise
        else:
            self._begin(central_model(path), device)

    @classmethod
    def members(cls, path: Path, device: str) -> list[Classifier]:
        """A classifier for each replica of a run's folder. Raises as the constructor."""
        found: list[Classifier] = []
        try:
            for stored in replica_models(path, "ensemble"):
                member = cls.__new__(cls)
                member.path = path
                member._begin(stored, device)
                found.append(member)
        except BaseException:
            for member in found:
                member.close()
            raise
        return found

    def _begin(self, stored: StoredModel, device: str) -> None:
        """Opens a session with the model's inference graph."""
        file, self.about = stored.file, stored.about
        self._values = stored.values
        _check_about(file, self.about)
        graph = Graph()
        try:
            with graph.as_default():
                self._inputs, self._outputs = _inference_graph(self.about)
        except TensorBowError as error:
            raise type(error)(f"{file}: {error}") from None
        try:
            require_fitting(graph, stored.values)
        except TensorBowError as error:
            raise type(error)(f"{file} does not fit model {self.about['model']}: {error}") from None
        self._session = Session(graph=graph, device=get_device(device))
        try:
            self._session.load_variables(stored.values)
        except TensorBowError as error:
            self._session.close()
            raise type(error)(f"{file}: {error}") from None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the model's pictures."""
        height, width, channels = self.about["image_shape"]
        return height, width, channels

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.about["classes"])

    def probabilities(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Class probabilities, float32 [n, classes], of pictures uint8 [n, height, width, channels].

        Raises InvalidArgumentError for pictures of another shape or dtype.
        """

        def batch(start: int) -> Any:
            return self._run(("probabilities",), images=images[start : start + BATCH])[0]

        if images.dtype != np.uint8 or images.shape[1:] != self.image_shape:
            raise InvalidArgumentError(
                f"expected pictures uint8 [n, {', '.join(map(str, self.image_shape))}], "
                f"got {images.dtype} {list(images.shape)}"
            )
        with ThreadPoolExecutor(_threads(), "tensorbow-prediction") as pool:
            parts = list(pool.map(batch, range(0, len(images), BATCH)))
        empty = np.empty((0, self.classes), np.float32)
        return np.concatenate([empty, *parts])

    def evaluate(self, dataset: ImageDataset) -> Evaluation:
        """Loss and accuracy on a data set, normalised as in the model's training.

        Raises InvalidArgumentError if the data set's picture shape or number of classes differs.
        """
        require_pictures_of(self, dataset)

        def batch(start: int) -> tuple[float, float]:
            rows = slice(start, start + BATCH)
            images, labels = dataset.images[rows], dataset.labels[rows]
            loss, correct = self._run(("loss", "correct"), images=images, labels=labels)
            return float(loss) * len(labels), float(correct)

        with ThreadPoolExecutor(_threads(), "tensorbow-evaluation") as pool:
            parts = list(pool.map(batch, range(0, len(dataset), BATCH)))
        total = len(dataset)
        return Evaluation(
            math.fsum(loss for loss, _ in parts) / total, math.fsum(right for _, right in parts) / total
        )

    def _run(self, outputs: tuple[str, ...], **inputs: Any) -> list[Any]:
        feeds = {self._inputs[name]: value for name, value in inputs.items()}
        results: list[Any] = self._session.run([self._outputs[name] for name in outputs], feeds)
        return results

    def export(self, folder: str | os.PathLike[str]) -> str:
        """Writes graph and variables for inference, to be used without the model's code; returns the folder.

        Raises InvalidArgumentError for a model that was loaded from an export.
        """
        if self._values is None:
            raise InvalidArgumentError(f"{self.path} is an exported model already; give the folder of a run")
        return save_model(folder, self._inputs, self._outputs, self._values, self.about)

    def close(self) -> None:
        """Closes the session; idempotent."""
        self._session.close()

    def __enter__(self) -> Classifier:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Ensemble:
    """All replicas of a run as one classifier, whose probabilities are the mean of theirs.

    Use it with `with`, or close it.
    """

    @checked
    def __init__(self, path: AsPath, *, device: str = "/cpu:0"):
        """Loads each replica's own model from the folder of a run, with any synchronisation.

        Raises as `Classifier`, and InvalidArgumentError for a run with one replica.
        """
        self.path = Path(path)
        self._members = Classifier.members(self.path, device)
        self.about: dict[str, Any] = {**self._members[0].about, "test_accuracy": None}
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
    def classes(self) -> int:
        """Number of classes."""
        return self._members[0].classes

    def probabilities(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Mean of the members' class probabilities, in their order; see `Classifier.probabilities`."""
        total, *others = (member.probabilities(images) for member in self._members)
        for other in others:
            total += other
        total /= np.float32(len(self))
        return total

    def evaluate(self, dataset: ImageDataset) -> Evaluation:
        """Loss (of the mean probabilities) and accuracy on a data set. Raises as `Classifier.evaluate`."""
        require_pictures_of(self, dataset)
        probabilities = self.probabilities(dataset.images)
        own = np.maximum(probabilities[np.arange(len(dataset)), dataset.labels], np.finfo(np.float32).tiny)
        right = probabilities.argmax(1) == dataset.labels
        return Evaluation(float(-np.log(own.astype(np.float64)).mean()), float(right.mean()))

    def close(self) -> None:
        """Closes the members' sessions; idempotent."""
        for member in self._members:
            member.close()

    def __enter__(self) -> Ensemble:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def require_pictures_of(model: Classifier | Ensemble, dataset: ImageDataset) -> None:
    """Raises InvalidArgumentError if a data set has other pictures or classes than a model."""
    if dataset.image_shape != model.image_shape or dataset.classes != model.classes:
        raise InvalidArgumentError(
            f"the model is for pictures {list(model.image_shape)} of {model.classes} classes; "
            f"{dataset.name} has {list(dataset.image_shape)} of {dataset.classes}"
        )


def _check_signature(
    path: Path,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    image_shape: tuple[int, int, int],
    classes: int,
) -> None:
    """Raises InvalidArgumentError unless the saved model has the inputs and outputs of such a classifier."""
    expected = {
        "images": (inputs, TensorSpec((None, *image_shape), uint8)),
        "labels": (inputs, TensorSpec((None,), int64)),
        "logits": (outputs, TensorSpec((None, classes), float32)),
        "probabilities": (outputs, TensorSpec((None, classes), float32)),
        "loss": (outputs, TensorSpec((), float32)),
        "correct": (outputs, TensorSpec((), float32)),
    }
    missing = [name for name, (tensors, _) in expected.items() if name not in tensors]
    if missing:
        raise InvalidArgumentError(f"{path} is no classifier: it has no {', '.join(missing)}")
    for name, (tensors, spec) in expected.items():
        found = tensors[name].spec
        if (found.shape, found.dtype) != (spec.shape, spec.dtype):
            raise InvalidArgumentError(f"{path} is no classifier: its {name} is {found}, expected {spec}")


def _inference_graph(about: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Builds the inference graph; returns inputs and outputs by name. Computes the same as `Evaluator`."""
    images = placeholder(uint8, [None, *about["image_shape"]], name="images")
    labels = placeholder(int64, [None], name="labels")
    with name_scope("normalize"):
        scale, offset = np.float32(1 / (255 * about["std"])), np.float32(about["mean"] / about["std"])
        normalized = subtract(multiply(cast(images, float32), scale), offset)
    logits = get_model(about["model"]).logits(normalized, about["classes"])
    losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    right = equal(argmax(logits, 1, output_type=int64), labels)
    outputs = {
        "logits": identity(logits, name="logits"),
        "probabilities": softmax(logits, name="probabilities"),
        "loss": reduce_mean(losses, name="loss"),
        "correct": reduce_sum(cast(right, float32), name="correct"),
    }
    return {"images": images, "labels": labels}, outputs


def _check_about(path: Path, about: Mapping[str, Any]) -> None:
    """Raises DataLossError for an intact file that does not describe a classifier."""
    if isinstance(about.get("config"), dict):
        raise DataLossError(
            f"{path} is a checkpoint to go on from, no trained classifier; give {path.with_name(MODEL)}, "
            "which a run writes when it ends"
        )
    shape, classes = about.get("image_shape"), about.get("classes")
    mean, std = about.get("mean"), about.get("std")
    sound = (
        isinstance(about.get("model"), str)
        and isinstance(shape, list)
        and len(shape) == 3
        and all(type(extent) is int and 1 <= extent <= 1 << 16 for extent in shape)
        and math.prod(shape) < 1 << 31
        and type(classes) is int
        and 1 <= classes <= 1 << 20
        and _is_scale(mean)
        and _is_scale(std)
        and float(std or 0) >= 1 / LARGEST_SCALE
    )
    if not sound:
        raise DataLossError(f"{path} is no trained classifier: it does not say model, classes and pictures")


def _is_scale(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= LARGEST_SCALE  # False for NaN


def _threads() -> int:
    return max(1, min(THREADS, usable_cores()))
