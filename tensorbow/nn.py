"""`tb.nn`: neural-network ops under TensorFlow's names."""

from typing import TYPE_CHECKING, Any

from tensorbow.layers import rnn, steered_rnn
from tensorbow.layers import rnn_cells as rnn_cell
from tensorbow.layers.rnn import *
from tensorbow.layers.steered_rnn import *
from tensorbow.missing_names import no_attribute as _no_attribute
from tensorbow.ops import (
    activations,
    attention,
    average_pooling,
    candidate_samplers,
    candidate_sampling,
    conv,
    ctc,
    depthwise,
    fractional_pooling,
    losses,
    morphology,
    nn,
    normalization,
    ordering,
    pooling,
    pooling_positions,
    sparse_lookups,
    statistics,
    volumes,
    windowed,
)
from tensorbow.ops.activations import *
from tensorbow.ops.attention import *
from tensorbow.ops.average_pooling import *
from tensorbow.ops.candidate_samplers import *
from tensorbow.ops.candidate_sampling import *
from tensorbow.ops.conv import *
from tensorbow.ops.conv1d import conv1d, conv1d_transpose
from tensorbow.ops.ctc import *
from tensorbow.ops.depthwise import *
from tensorbow.ops.elementwise import relu, sigmoid, tanh
from tensorbow.ops.fractional_pooling import *
from tensorbow.ops.losses import *
from tensorbow.ops.morphology import *
from tensorbow.ops.nn import *
from tensorbow.ops.normalization import *
from tensorbow.ops.ordering import *
from tensorbow.ops.pooling import *
from tensorbow.ops.pooling_positions import *
from tensorbow.ops.sparse_lookups import *
from tensorbow.ops.spatial_blocks import depth_to_space, space_to_batch, space_to_depth
from tensorbow.ops.statistics import *
from tensorbow.ops.volumes import *
from tensorbow.ops.windowed import *

__all__ = [
    "conv1d",
    "conv1d_transpose",
    "depth_to_space",
    "relu",
    "rnn_cell",
    "sigmoid",
    "space_to_batch",
    "space_to_depth",
    "tanh",
]
__all__ += activations.__all__
__all__ += attention.__all__
__all__ += average_pooling.__all__
__all__ += candidate_samplers.__all__
__all__ += candidate_sampling.__all__
__all__ += conv.__all__
__all__ += ctc.__all__
__all__ += depthwise.__all__
__all__ += fractional_pooling.__all__
__all__ += losses.__all__
__all__ += morphology.__all__
__all__ += nn.__all__
__all__ += normalization.__all__
__all__ += ordering.__all__
__all__ += pooling.__all__
__all__ += pooling_positions.__all__
__all__ += rnn.__all__
__all__ += steered_rnn.__all__
__all__ += sparse_lookups.__all__
__all__ += statistics.__all__
__all__ += volumes.__all__
__all__ += windowed.__all__


if not TYPE_CHECKING:  # for which every name would be known

    def __getattr__(name: str) -> Any:
        raise _no_attribute(name, __all__, __name__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
