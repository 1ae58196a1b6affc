"""The models that come with the library."""

from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.model import Defaults, Heads, Model
from tensorbow.models.registry import MODEL_NAMES, MODELS, get_model
from tensorbow.models.resnet import ResNet

__all__ = [
    "MODELS",
    "MODEL_NAMES",
    "Defaults",
    "Heads",
    "LeNet",
    "LogisticRegression",
    "Model",
    "ResNet",
    "get_model",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
