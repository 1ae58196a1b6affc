"""What the trainer needs of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import (
    Flag,
    Kind,
    NonNegative,
    Positive,
    PositiveNumber,
    RefusedError,
    Text,
    check_fields,
    checked,
    instance,
    number,
    sequence,
    whole,
)
from tensorbow.ops.elementwise import cast, equal
from tensorbow.ops.losses import sparse_softmax_cross_entropy_with_logits
from tensorbow.ops.reductions import argmax, reduce_mean, reduce_sum
from tensorbow.specs import float32, int64

Classes: TypeAlias = Annotated[int, whole(1, 1 << 24)]
AsTensor: TypeAlias = Annotated[Tensor, instance(Tensor, expected="a tensor")]
_PAIRS = sequence(sequence(number(), ""), "")


def _read_drops(value: Any) -> tuple[tuple[int, float], ...]:
    pairs = _PAIRS.read(value)
    if any(len(pair) != 2 for pair in pairs):
        raise RefusedError
    return tuple((_EPOCH.read(epoch), _FACTOR.read(factor)) for epoch, factor in value)


_EPOCH, _FACTOR = whole(1), number(0, above=True)
Drops: TypeAlias = Annotated[
    tuple[tuple[int, float], ...], Kind("pairs of an epoch and a factor, as [(10, 0.1)]", _read_drops)
]


@dataclass(frozen=True)
class Heads:
    """What a classifier's step is made of."""

    loss: Tensor  # scalar: mean cross-entropy of the batch
    correct: Tensor  # scalar float32: how many of the batch are right


@dataclass(frozen=True)
class Defaults:
    """Options of a training run that are sound for a model.

    learning_rate: of one replica trained alone; see `Model.default_learning_rate`.
    learning_rate_drops: (epoch, factor) pairs, as in `TrainingConfig`.
    """

    learning_rate: PositiveNumber
    dataset: Text = "digits"
    batch_size: Positive = 16
    learning_rate_drops: Drops = ()
    weight_decay: NonNegative = 0.0
    epochs: Positive = 15

    def __post_init__(self) -> None:
        check_fields(self)


class Model(ABC):
    """A classifier: a name, and a function that adds it to the default graph."""

    name: str
    defaults: Defaults

    @property
    def learning_rate(self) -> float:
        """The rate of one replica trained alone."""
        return self.defaults.learning_rate

    @abstractmethod
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """[batch, classes] from images [batch, height, width, channels]; makes the variables.

        training: whether it is the graph of a training step or that of evaluation, with the same variables.
        """

    @checked
    def default_learning_rate(self, replicas: Positive) -> float:
        """The rate of each of several averaged replicas.

        z moves once per `replicas` batches, by learning_rate * k / (k + 1) where averaging has settled, so
        the rate has to rise with k; the square root is what held up over batch sizes and models.
        """
        return float(self.learning_rate * replicas**0.5)

    @checked
    def heads(self, images: AsTensor, labels: AsTensor, classes: Classes, training: Flag = False) -> Heads:
        """Loss and number of right answers for labels int64 [batch].

        What is to be run with a training step beside the optimiser's update is in UPDATE_OPS.
        """
        logits = self.logits(images, classes, training)
        losses = sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        right = equal(argmax(logits, 1, output_type=int64), labels)
        return Heads(reduce_mean(losses), reduce_sum(cast(right, float32)))


def image_extents(images: Tensor) -> tuple[int, int, int]:
    """Height, width and channels. Raises InvalidArgumentError when they are not known."""
    dims = images.spec.shape
    if dims is None or len(dims) != 4 or None in dims[1:]:
        raise InvalidArgumentError(f"images must be [batch, height, width, channels], got {images.spec}")
    height, width, channels = (d for d in dims[1:] if d is not None)
    return height, width, channels
