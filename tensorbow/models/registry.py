"""The models by the names that the command line knows."""

from __future__ import annotations

from tensorbow.errors import InvalidArgumentError
from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.model import Model

MODELS: dict[str, type[Model]] = {model.name: model for model in (LogisticRegression, LeNet)}


def get_model(name: str) -> Model:
    """A model by its name on the command line. Raises InvalidArgumentError."""
    if name not in MODELS:
        raise InvalidArgumentError(f"unknown model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]()
