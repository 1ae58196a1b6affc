"""TensorBow's side of the experiments: replicas of a model, trained by the product's scheduler."""

from __future__ import annotations

from typing import Any

from harness import LEARNING_RATE, MOMENTUM, paced

import tensorbow as tb
from scheduler import RoundResults
from scheduler.training.measures.tally import Tally
from scheduler.training.models.classifier_step import build_program
from tensorbow.data import ImageDataset, make_synthetic
from tensorbow.devices import Device
from tensorbow.models import get_model

EXAMPLES, CLASSES = 4096, 10


def image_shape(model: str) -> tuple[int, int, int]:
    """Height, width and channels of a model's pictures: MNIST's, for ResNets CIFAR's."""
    return (32, 32, 3) if "resnet" in model else (28, 28, 1)


def made_up_data(model: str) -> ImageDataset:
    """Random uint8 pictures [4096, height, width, channels] of a model's shape."""
    height, width, channels = image_shape(model)
    train, _ = make_synthetic(EXAMPLES, 16, height=height, width=width, channels=channels, classes=CLASSES)
    return train


class Training:
    """Engine and its batches: a `Window` that trains for so many seconds and returns images per second.

    engine: the `LearningEngine`, with initial values. run_rounds(n): trains n further rounds.
    """

    def __init__(self, engine: tb.LearningEngine, batches: tb.DatasetBatches, batch_size: int):
        self.engine, self.batches, self._batch_size = engine, batches, batch_size
        self.tally = Tally()  # of the losses and metrics of all tasks, as a training run keeps it
        self._window = paced(self.run_rounds, engine.learners.count * batch_size)

    def __call__(self, seconds: float) -> float:
        return self._window(seconds)

    def run_rounds(self, rounds: int) -> None:
        """Runs a number of rounds: one step of every replica and one synchronisation each."""
        self.engine.run(self.batches.open, self.engine.round, self.engine.round + rounds, self._count)

    def _count(self, results: RoundResults) -> None:
        metrics = dict(zip(self.engine.program.metrics, results.metrics, strict=True))
        self.tally.add(results.losses, metrics, self._batch_size)

    def close(self) -> None:
        """Ends the engine's threads and releases its memory."""
        self.engine.close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def training_window(
    model: str,
    batch_size: int,
    replicas: int,
    *,
    sync: str = "sma",
    tau: int = 1,
    devices: tuple[str | Device, ...] = ("/cpu:0",),
    data: ImageDataset | None = None,
    data_on_device: str = "auto",
    depth: int = 4,
    steps_per_launch: int = 1,
    synchronisation: dict[str, Any] | None = None,
    engine_options: dict[str, Any] | None = None,
) -> Training:
    """Replicas of a model, ready to train.

    replicas: on each device. data: by default made up, of the model's shape. data_on_device: see
    `DatasetBatches.keep_on_devices`. depth: batches (or launches of
    `steps_per_launch` batches) prepared ahead for each replica. synchronisation: further arguments of
    `tb.Synchronisation`; engine_options: of `tb.LearningEngine`.
    """
    data = made_up_data(model) if data is None else data
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), data, MOMENTUM, LEARNING_RATE, 0.0)
    engine = tb.LearningEngine(
        program,
        batch_size,
        devices,
        replicas,
        synchronisation=tb.Synchronisation(sync, tau=tau, **(synchronisation or {})),
        steps_per_launch=steps_per_launch,
        **(engine_options or {}),
    )
    batches = tb.DatasetBatches(
        data, batch_size, engine.learners.count, seed=1, depth=depth, steps_per_launch=steps_per_launch
    )
    batches.keep_on_devices(engine.learners, data_on_device)
    engine.initialize()
    return Training(engine, batches, batch_size)
