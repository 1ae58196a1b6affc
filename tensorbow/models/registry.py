"""Models by their names on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import Text, checked
from tensorbow.models.lenet import LeNet
from tensorbow.models.logistic_regression import LogisticRegression
from tensorbow.models.model import Model
from tensorbow.models.resnet import ResNet

MOST_BLOCKS = 200  # per stage: 1202 layers, the deepest network of He et al. (2015, section 4.2)
_RESNET = re.compile(r"resnet(0|[1-9]\d{0,8})", re.ASCII)

# Models of the papers; `get_model` also knows ResNets of other depths.
MODELS: dict[str, Callable[[], Model]] = {
    LogisticRegression.name: LogisticRegression,
    LeNet.name: LeNet,
    **{f"resnet{6 * blocks + 2}": partial(ResNet, blocks) for blocks in (1, 2, 3, 5, 7, 9, 18)},
}
MODEL_NAMES = f"{', '.join(MODELS)}, and all other resnets of 6n+2 layers, n from 1 to {MOST_BLOCKS}"


@checked
def get_model(name: Text) -> Model:
    """Returns a model by its name: one of MODELS, or `resnet` followed by 6n + 2 for n from 1 to 200.

    Raises InvalidArgumentError for other names; for another depth it names the nearest valid one.
    """
    if name in MODELS:
        return MODELS[name]()
    match = _RESNET.fullmatch(name)
    if match is None:
        raise InvalidArgumentError(f"model: expected one of {MODEL_NAMES}, got {name!r:.80}")
    layers = int(match.group(1))
    blocks = min(max((layers + 1) // 6, 1), MOST_BLOCKS)
    if 6 * blocks + 2 != layers:
        raise InvalidArgumentError(
            f"model: expected a resnet of 6n+2 layers, n from 1 to {MOST_BLOCKS}, got {name!r}; "
            f"the nearest is resnet{6 * blocks + 2}"
        )
    return ResNet(blocks)
