"""The library's own models as `Model`s of the scheduler's tests, on made-up pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorbow as tb
from scheduler.training.models.classifier_step import build_program
from tensorbow.data import make_synthetic
from tensorbow.models import get_model
from tests.scheduler_rig.programs import Model

SHAPES = {"lenet": (28, 28, 1), "logreg": (28, 28, 1)}  # of pictures; CIFAR-10's for all others


def classifier(name: str, batch_size: int, *, classes: int = 10) -> Model:
    """Model of `tensorbow.models` in training, with momentum and weight decay; its batches can be learned.

    The engine's schedule sets the learning rate.
    """
    height, width, channels = SHAPES.get(name, (32, 32, 3))
    data, _ = make_synthetic(512, 16, height=height, width=width, channels=channels, classes=classes)
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(3)
        program = build_program(get_model(name), data, 0.9, 0.01, 1e-4)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return data.batch(np.random.default_rng((19, round, replica)).integers(0, len(data), batch_size))

    return Model(program, list(program.specs(batch_size)), program.initial_values(), batch)
