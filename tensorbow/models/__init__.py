"""The models that come with the library."""

from tensorbow.models.character_rnn import CharacterRNN
from tensorbow.models.fast_resnet import FastResNet
from tensorbow.models.imagenet_convnets import AlexNet, Overfeat, OxfordNet
from tensorbow.models.imagenet_resnet import ImageNetResNet
from tensorbow.models.inception import GoogLeNet, InceptionV3
from tensorbow.models.language_model import LSTMLanguageModel
from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.mlp import MLP
from tensorbow.models.mobilenet import MobileNet
from tensorbow.models.model import Defaults, Model
from tensorbow.models.model_outputs import ModelOutputs
from tensorbow.models.model_source import ModelSource, find_model
from tensorbow.models.registry import MODEL_NAMES, MODELS, get_model
from tensorbow.models.resnet import ResNet
from tensorbow.models.resnet9 import ResNet9
from tensorbow.models.summary import LayerSummary, ModelSummary, summarize
from tensorbow.models.tiny_transformer import TinyTransformer
from tensorbow.models.vgg import VGG
from tensorbow.models.vision_transformer import VisionTransformer

__all__ = [
    "MLP",
    "MODELS",
    "MODEL_NAMES",
    "VGG",
    "AlexNet",
    "CharacterRNN",
    "Defaults",
    "FastResNet",
    "GoogLeNet",
    "ImageNetResNet",
    "InceptionV3",
    "LSTMLanguageModel",
    "LayerSummary",
    "LeNet",
    "LogisticRegression",
    "MobileNet",
    "Model",
    "ModelOutputs",
    "ModelSource",
    "ModelSummary",
    "Overfeat",
    "OxfordNet",
    "ResNet",
    "ResNet9",
    "TinyTransformer",
    "VisionTransformer",
    "find_model",
    "get_model",
    "summarize",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
