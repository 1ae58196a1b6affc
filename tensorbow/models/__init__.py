"""The models that come with the library."""

from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.model import Heads, Model
from tensorbow.models.registry import MODELS, get_model

__all__ = ["MODELS", "Heads", "LeNet", "LogisticRegression", "Model", "get_model"]
