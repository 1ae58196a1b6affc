"""Base class of the models that the trainer and the command line train."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.kinds import (
    TEXT,
    Flag,
    Fraction,
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
    shown,
    whole,
)
from tensorbow.models.model_outputs import ModelOutputs, outputs_of_logits, outputs_of_numbers
from tensorbow.ops.arrays import reshape
from tensorbow.ops.elementwise import multiply
from tensorbow.ops.selection import cast
from tensorbow.specs import float32, int32, int64, uint8

Classes: TypeAlias = Annotated[int, whole(1, 1 << 24)]
AsTensor: TypeAlias = Annotated[Tensor, instance(Tensor, expected="a tensor")]
_PAIRS = sequence(sequence(number(), ""), "")


def _read_drops(value: Any) -> tuple[tuple[float, float], ...]:
    pairs = _PAIRS.read(value)
    if any(len(pair) != 2 for pair in pairs):
        raise RefusedError
    return tuple((_EPOCH.read(epoch), _FACTOR.read(factor)) for epoch, factor in value)


_EPOCH, _FACTOR = number(0, above=True), number(0, above=True)
Drops: TypeAlias = Annotated[
    tuple[tuple[float, float], ...], Kind("pairs of an epoch and a factor, as [(10, 0.1)]", _read_drops)
]


def _read_rates(value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, (list, tuple)) or any(len(pair) != 2 for pair in value):
        raise RefusedError
    return tuple((TEXT.read(dataset), _FACTOR.read(rate)) for dataset, rate in value)


Rates: TypeAlias = Annotated[
    tuple[tuple[str, float], ...], Kind("pairs of a data set and a rate, as [('mnist', 0.01)]", _read_rates)
]


def _read_dataset_drops(value: Any) -> tuple[tuple[str, tuple[tuple[float, float], ...]], ...]:
    if not isinstance(value, (list, tuple)) or any(len(pair) != 2 for pair in value):
        raise RefusedError
    return tuple((TEXT.read(dataset), _read_drops(drops)) for dataset, drops in value)


DatasetDrops: TypeAlias = Annotated[
    tuple[tuple[str, tuple[tuple[float, float], ...]], ...],
    Kind("pairs of a data set and drops, as [('mnist', [(1, 0.25)])]", _read_dataset_drops),
]

_TENSORS = sequence(instance(Tensor, expected=""), "")


def _read_mixed_labels(value: Any) -> tuple[Tensor, ...]:
    pair: tuple[Tensor, ...] = _TENSORS.read(value)
    if len(pair) != 2:
        raise RefusedError
    return pair


MixedLabels: TypeAlias = Annotated[
    tuple[Tensor, Tensor], Kind("a pair of tensors, labels and a share", _read_mixed_labels)
]

ImageSize: TypeAlias = Annotated[
    tuple[int, int], sequence(whole(1, 1 << 14), "a height and a width, as (64, 64)")
]

ALONG_GRADIENT = ("momentum", "nesterov", "sgd")  # optimisers whose steps are proportional to the gradient
OF_NUMBERS = 0.1  # factor of their rates where models predict numbers: the squared error is steeper
LARGEST_RATIO = 16  # of batch sizes, up to which the learning rate rises: no greater ones were measured


@dataclass(frozen=True)
class Defaults:
    """Default options of a training run for a model.

    learning_rate: for a single replica with batch_size; see `Model.default_learning_rate`. learning_rates:
    pairs of a data set and the rate that is known to be better there. learning_rate_drops: (epoch, factor)
    pairs, as in `TrainingConfig`. dataset_drops: pairs of a data set and its own drops, which go with the
    default rate. optimizer, schedule: by name. image_size: (height, width) to which the pictures of data sets
    with a name are resized; None leaves them as they are.
    """

    learning_rate: PositiveNumber
    dataset: Text = "digits"
    batch_size: Positive = 16
    learning_rate_drops: Drops = ()
    weight_decay: NonNegative = 0.0
    epochs: Positive = 15
    optimizer: Text = "momentum"
    schedule: Text = "piecewise"
    learning_rates: Rates = ()
    dataset_drops: DatasetDrops = ()
    image_size: ImageSize | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def drops_of(self, dataset: str | None) -> tuple[tuple[float, float], ...]:
        """The default `learning_rate_drops` on a data set."""
        return dict(self.dataset_drops).get(dataset or "", self.learning_rate_drops)


def rate_factor(defaults: Defaults, batch_size: int | None, is_known: bool = False) -> float:
    """Factor of a model's default learning rate for another batch size than its default one.

    The ratio of the two for optimisers that step along the gradient (Goyal et al., 2017), its square root for
    adaptive ones, such as Adam (Malladi et al., NeurIPS 2022); at most that of 16 times the batch size.
    is_known: the rate is the best known one of a data set; then it rises with the square root only.
    """
    ratio = min((batch_size or defaults.batch_size) / defaults.batch_size, LARGEST_RATIO)
    is_linear = defaults.optimizer in ALONG_GRADIENT and not (is_known and ratio > 1)
    return ratio if is_linear else float(ratio**0.5)


class Model(ABC):
    """A classifier: its name, its default options, and `logits`, which builds it in the default graph.

    Any callable `model(inputs, labels, training)` that returns `ModelOutputs`, or a tuple (loss, outputs,
    metrics), can be trained; this class adds the loss and accuracy of a classifier to its logits, and where
    the labels are numbers, loss and errors of a regression.
    """

    name: str
    defaults: Defaults

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute. Raises InvalidArgumentError for one that would hide a method of this class."""
        hidden = getattr(type(self), name, None) if hasattr(Model, name) else None
        if callable(hidden) or isinstance(hidden, property):
            raise InvalidArgumentError(
                f"{type(self).__name__}: expected attributes that hide no method of tb.models.Model, got "
                f"self.{name} = {shown(value)}; keep it by another name, as self.own_{name}"
            )
        super().__setattr__(name, value)

    @property
    def learning_rate(self) -> float:
        """Default learning rate of a single replica."""
        return self.defaults.learning_rate

    @abstractmethod
    def logits(self, images: AsTensor, classes: Classes, training: Flag = False) -> Tensor:
        """Creates the variables; logits [batch, classes] from images [batch, height, width, channels].

        training: whether the graph is for training or evaluation; both have the same variables.
        """

    @checked
    def default_learning_rate(
        self,
        replicas: Positive,
        dataset: Text | None = None,
        batch_size: Positive | None = None,
        of_numbers: Flag = False,
    ) -> float:
        """Default learning rate of each averaged replica: that of a single one, times sqrt(replicas).

        dataset: its name; for some there are rates of their own, see `Defaults`. batch_size: examples per
        replica and step, by default the model's; see `rate_factor`. z moves only once per k = `replicas`
        batches, in the steady state by learning_rate * k / (k + 1), so the rate must rise with k; the square
        root worked best over batch sizes and models. of_numbers: whether the labels are numbers to predict;
        then rates along the gradient are a tenth, with which no run diverged in trials with 100 features,
        outliers and heavy tails.
        """
        defaults, known = self.defaults, dict(self.defaults.learning_rates)
        rate = known.get(dataset or "", self.learning_rate)
        rate *= OF_NUMBERS if of_numbers and defaults.optimizer in ALONG_GRADIENT else 1
        return float(rate * replicas**0.5 * rate_factor(defaults, batch_size, dataset in known))

    @checked
    def __call__(
        self,
        inputs: Any,
        labels: Any,
        training: Flag = False,
        classes: Classes | None = None,
        class_weights: Any = None,
        label_smoothing: Fraction = 0.0,
        label_scale: Any = None,
        mixed_labels: MixedLabels | None = None,
    ) -> ModelOutputs:
        """Builds the classifier: the mean cross-entropy as loss, logits as outputs, and the metric accuracy.

        Floating labels [batch], or [batch, columns], are numbers to predict: then `logits` has an output for
        each column, and the model is that of `outputs_of_numbers`.

        inputs, training: of `logits`; labels: integers [batch], or [batch, steps] of sequences. classes:
        number of classes; must be given. class_weights: float32 [classes], by which the loss of each label is
        multiplied. label_smoothing: share of the target that is spread over all classes (Szegedy et al.,
        2016). label_scale: mean and standard deviation of the numbers to predict, by default 0 and 1.
        mixed_labels: where examples were mixed with others, the labels of these, and the share of the own
        ones in loss and accuracy, a scalar (Zhang et al., 2018). A training step must also run the operations
        in the collection UPDATE_OPS. Raises InvalidArgumentError for data with neither classes nor numbers,
        and for class_weights, label_smoothing and mixed_labels of numbers.
        """
        of_one_input = isinstance(labels, Tensor) and isinstance(inputs, Tensor)
        if of_one_input and labels.dtype.is_floating and _is_of_numbers(labels):
            for_classes = {
                "class_weights": class_weights is not None,
                "label_smoothing": label_smoothing,
                "mixed_labels": mixed_labels is not None,
            }
            for what in (name for name, is_given in for_classes.items() if is_given):
                raise InvalidArgumentError(
                    f"{what}: model {self.name} predicts numbers, labels {labels.spec}; leave it out, or "
                    "give integer labels of classes"
                )
            return self._regression(inputs, labels, training, label_scale)
        if classes is None or not of_one_input or labels.dtype.is_floating:
            raise InvalidArgumentError(
                f"model {self.name}: expected data of one input, and labels that are classes, integers "
                "[batch] in 0..classes-1, or numbers to predict, floats [batch] or [batch, columns]; got "
                f"inputs {shown(inputs)}, labels {shown(labels)} and classes {classes}; number the classes "
                "from 0, as np.unique(labels, return_inverse=True)[1], and give their number, as classes=10, "
                "or write a model for other labels"
            )
        logits = self.logits(inputs, classes, training)
        return outputs_of_logits(logits, labels, classes, class_weights, label_smoothing, mixed_labels)

    def _regression(self, inputs: Tensor, labels: Tensor, training: bool, label_scale: Any) -> ModelOutputs:
        columns = 1 if labels.spec.rank == 1 else labels.spec.dims[1]
        values = self.logits(inputs, int(columns or 1), training)
        if values.spec.rank != 2:
            raise InvalidArgumentError(
                f"model {self.name} classifies the steps of sequences; it predicts no numbers, got labels "
                f"{labels.spec}"
            )
        return outputs_of_numbers(values if labels.spec.rank == 2 else values[:, 0], labels, label_scale)


def _is_of_numbers(labels: Tensor) -> bool:
    """True for labels of one number for each example, or of a known number of them."""
    return labels.spec.rank == 1 or (labels.spec.rank == 2 and labels.spec.dims[1] is not None)


def image_extents(images: Tensor) -> tuple[int, int, int]:
    """(height, width, channels) of images. Raises InvalidArgumentError if they are unknown."""
    dims = images.spec.shape
    if dims is None or len(dims) != 4 or None in dims[1:]:
        raise _no_images(images)
    height, width, channels = (d for d in dims[1:] if d is not None)
    return height, width, channels


def flat_features(inputs: Tensor) -> tuple[Tensor, int]:
    """Inputs [batch, ...] as features float [batch, features], and their number; uint8 ones from 0 to 1.

    Raises InvalidArgumentError if their number is unknown.
    """
    dims = inputs.spec.shape
    if not dims or None in dims[1:]:
        raise InvalidArgumentError(f"features must be [batch, ...] of known size, got {inputs.spec}")
    features = math.prod(extent for extent in dims[1:] if extent is not None)
    return reshape(_as_floats(inputs), [-1, features]), features


def float_images(images: Tensor) -> Tensor:
    """Images of a model: floating ones as they are, uint8 ones as float32 from 0 to 1.

    Raises InvalidArgumentError for another rank than that of [batch, height, width, channels].
    """
    if images.spec.rank not in (4, None):
        raise _no_images(images)
    return _as_floats(images)


def _as_floats(values: Tensor) -> Tensor:
    return multiply(cast(values, float32), 1 / 255) if values.dtype == uint8 else values


def _no_images(images: Tensor) -> InvalidArgumentError:
    return InvalidArgumentError(f"images must be [batch, height, width, channels], got {images.spec}")


def token_steps(tokens: Tensor) -> int:
    """Steps of sequences of symbols. Raises InvalidArgumentError if they are unknown, or no whole numbers."""
    dims = tokens.spec.shape
    if dims is None or len(dims) != 2 or dims[1] is None or tokens.dtype not in (int32, int64, uint8):
        raise InvalidArgumentError(
            f"expected tokens to be whole numbers [batch, steps] of known steps, got {tokens.spec}; the "
            "model is for sequences of symbols, as of the data set text"
        )
    return dims[1]
