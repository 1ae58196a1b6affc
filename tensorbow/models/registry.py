"""The models by the names that the command line knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tensorbow.errors import InvalidArgumentError
from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.model import Model
from tensorbow.models.resnet import ResNet

MODELS: dict[str, Callable[[], Model]] = {
    LogisticRegression.name: LogisticRegression,
    LeNet.name: LeNet,
    **{f"resnet{6 * blocks + 2}": partial(ResNet, blocks) for blocks in (1, 2, 3, 5, 7, 9, 18)},
}


def get_model(name: str) -> Model:
    """A model by its name on the command line. Raises InvalidArgumentError."""
    if name not in MODELS:
        raise InvalidArgumentError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]()
