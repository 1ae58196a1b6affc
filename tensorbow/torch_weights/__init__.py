"""Weights of PyTorch: files of them, layouts of variables, and which entry is which variable's.

`tb.interop.torch` exchanges them with sessions and Replicators, training runs begin with them.
"""

from tensorbow.torch_weights.known_names import TORCH_NAMES, known_names, names_described, remember_names
from tensorbow.torch_weights.layouts import Layouts
from tensorbow.torch_weights.matching import UNLIKE, Fitted, Wording, fitted
from tensorbow.torch_weights.recurrent import TorchCell, layer_named, torch_cells
from tensorbow.torch_weights.state_names import state_names
from tensorbow.torch_weights.states import (
    arrays_of,
    is_written_here,
    parse_state,
    read_state,
    render_state,
)
from tensorbow.torch_weights.uneven_padding import warning_of_padding
from tensorbow.torch_weights.weight import GraphWeight, weights_of

__all__ = [
    "TORCH_NAMES",
    "UNLIKE",
    "Fitted",
    "GraphWeight",
    "Layouts",
    "TorchCell",
    "Wording",
    "arrays_of",
    "fitted",
    "is_written_here",
    "known_names",
    "layer_named",
    "names_described",
    "parse_state",
    "read_state",
    "remember_names",
    "render_state",
    "state_names",
    "torch_cells",
    "warning_of_padding",
    "weights_of",
]
