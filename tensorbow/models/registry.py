"""Models by their names on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Text, checked
from tensorbow.missing_names import did_you_mean
from tensorbow.models.character_rnn import CharacterRNN
from tensorbow.models.fast_resnet import FastResNet
from tensorbow.models.imagenet_convnets import AlexNet, Overfeat, OxfordNet
from tensorbow.models.imagenet_resnet import BLOCKS, ImageNetResNet
from tensorbow.models.inception import GoogLeNet, InceptionV3
from tensorbow.models.language_model import LSTMLanguageModel
from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LinearModel, LogisticRegression
from tensorbow.models.mlp import MLP
from tensorbow.models.mobilenet import MobileNet
from tensorbow.models.model import Model
from tensorbow.models.resnet import ResNet
from tensorbow.models.resnet9 import ResNet9
from tensorbow.models.tiny_transformer import TinyTransformer
from tensorbow.models.vgg import CONVOLUTIONS, VGG
from tensorbow.models.vision_transformer import VisionTransformer

MOST_BLOCKS = 200  # per stage: 1202 layers, the deepest network of He et al. (2015, section 4.2)
_RESNET = re.compile(r"resnet(0|[1-9]\d{0,8})", re.ASCII)

# `get_model` also knows ResNets of 6n + 2 layers of other depths. resnet50 and resnet152 are 6n + 2, too, but
# the names are those of ImageNet's networks, as everywhere; `ResNet(8)` and `ResNet(25)` make the others.
MODELS: dict[str, Callable[[], Model]] = {
    **{model.name: model for model in (LogisticRegression, LinearModel)},
    LeNet.name: LeNet,
    MLP.name: MLP,
    **{f"resnet{6 * blocks + 2}": partial(ResNet, blocks) for blocks in (1, 2, 3, 5, 7, 9, 18)},
    ResNet9.name: ResNet9,
    FastResNet.name: FastResNet,
    **{f"resnet{depth}": partial(ImageNetResNet, depth) for depth in BLOCKS},
    **{f"vgg{depth}": partial(VGG, depth) for depth in CONVOLUTIONS},
    **{model.name: model for model in (AlexNet, Overfeat, OxfordNet, GoogLeNet, InceptionV3)},
    MobileNet.name: MobileNet,
    VisionTransformer.name: VisionTransformer,
    CharacterRNN.name: CharacterRNN,
    LSTMLanguageModel.name: LSTMLanguageModel,
    TinyTransformer.name: TinyTransformer,
}
MODEL_NAMES = f"{', '.join(MODELS)}, and all other resnets of 6n+2 layers, n from 1 to {MOST_BLOCKS}"


@checked
def get_model(name: Text) -> Model:
    """Returns a model by its name: one of MODELS, or `resnet` followed by 6n + 2 for n from 1 to 200.

    Raises InvalidArgumentError for other names; for another depth it names the nearest valid one.
    """
    return factory_of(name)()


def factory_of(name: str) -> Callable[..., Model]:
    """Class or function that makes the model of a name. Raises as `get_model`."""
    if name in MODELS:
        return MODELS[name]
    match = _RESNET.fullmatch(name)
    if match is None:
        raise InvalidArgumentError(
            f"model: expected one of {MODEL_NAMES}, or your own as my_model.py:MyModel, got {name!r:.80}"
            f"{did_you_mean(name.lower(), MODELS)}"
        )
    layers = int(match.group(1))
    blocks = min(max((layers + 1) // 6, 1), MOST_BLOCKS)
    if 6 * blocks + 2 != layers:
        raise InvalidArgumentError(
            f"model: expected a resnet of 6n+2 layers, n from 1 to {MOST_BLOCKS}, got {name!r}; "
            f"the nearest is resnet{6 * blocks + 2}"
        )
    return partial(ResNet, blocks)
