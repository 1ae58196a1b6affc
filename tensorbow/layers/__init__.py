"""`tb.layers`: layers that make their own variables, with TensorFlow 1's names, arguments and defaults.

A layer without a name gets a unique one in the current variable scope (`dense`, `dense_1`, ...).
In a scope entered again with `reuse`, layers find their variables again, in the same order. A layer with its
own `reuse` shares the variables of the layer of its name, by default the first (`dense`).
A regularizer is a function of a variable's tensor that gives a scalar loss, such as `l2_regularizer(0.0005)`;
the losses are in the collection REGULARIZATION_LOSSES, which `tb.losses.get_total_loss` adds.
"""

from typing import TYPE_CHECKING, Any

from tensorbow.layers import (
    attention,
    composition,
    convolution,
    core,
    input_spec,
    layer,
    layer_classes,
    normalization,
    regularizers,
    separable_convolution,
    volumes,
)
from tensorbow.layers.attention import *
from tensorbow.layers.composition import *
from tensorbow.layers.convolution import *
from tensorbow.layers.core import *
from tensorbow.layers.input_spec import *
from tensorbow.layers.layer import *
from tensorbow.layers.layer_classes import *
from tensorbow.layers.normalization import *
from tensorbow.layers.regularizers import *
from tensorbow.layers.separable_convolution import *
from tensorbow.layers.volumes import *
from tensorbow.missing_names import no_attribute as _no_attribute

__all__: list[str] = sorted(
    [
        *attention.__all__,
        *composition.__all__,
        *convolution.__all__,
        *core.__all__,
        *input_spec.__all__,
        *layer.__all__,
        *layer_classes.__all__,
        *normalization.__all__,
        *regularizers.__all__,
        *separable_convolution.__all__,
        *volumes.__all__,
    ]
)


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        raise _no_attribute(name, __all__, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
