"""The base of recurrent cells, and the state of an LSTM: one step, `output, state = cell(inputs, state)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, NamedTuple

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import AsDType, checked, or_tensor, whole
from tensorbow.layers.layer import Layer
from tensorbow.nest import map_leaves
from tensorbow.ops.filling import zeros
from tensorbow.specs import float32


class LSTMStateTuple(NamedTuple):
    """State of an LSTM: memory c and output h, `[batch, units]` each (h `[batch, num_proj]` if projected)."""

    c: Any
    h: Any


class RNNCell(Layer, ABC):
    """Base of cells. state_size: a number, or a nest of numbers, the width of each state.

    A cell of one's own is a `tb.layers.Layer` with `state_size`, `output_size` and `call(inputs, state)`,
    which gives an output and the next state.
    """

    @property
    @abstractmethod
    def state_size(self) -> Any:
        """Width of the state, or a nest of widths."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Width of the output."""

    def __call__(self, inputs: Any, state: Any) -> tuple[Tensor, Any]:
        """One step: inputs `[batch, features]` and a state give an output `[batch, output_size]` and the next
        state.
        """
        found: tuple[Tensor, Any] = super().__call__(convert_to_tensor(inputs), state)
        return found

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step of a cell of one's own, in the scope of its variables: an output and the next state.

        Raises UnimplementedError for a cell that has none.
        """
        raise UnimplementedError(
            f"{type(self).__name__}: expected a method call(self, inputs, state) that returns an output and "
            "the next state; define it"
        )

    @checked
    def zero_state(self, batch_size: Annotated[Any, or_tensor(whole(0))], dtype: AsDType = float32) -> Any:
        """A state of zeros for a batch of this size, a number or a scalar tensor."""
        return map_leaves(lambda _, size: zeros([batch_size, size], dtype), self.state_size, "state_size")
