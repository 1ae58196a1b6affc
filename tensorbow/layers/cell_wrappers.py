"""Recurrent cells made of other cells: several one above another, with a device, dropout or a residual."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Tensor, convert_to_tensor
from tensorbow.kinds import FUNCTION, AsDType, Flag, Function, Seed, checked, optional, refuse
from tensorbow.layers.cell import LSTMStateTuple, RNNCell
from tensorbow.layers.layer import LayerPlace
from tensorbow.nest import flatten, pack
from tensorbow.ops.argument_kinds import Rate
from tensorbow.ops.arrays import concat
from tensorbow.ops.elementwise import add, divide, floor, multiply
from tensorbow.ops.nn import dropout
from tensorbow.ops.random import random_uniform
from tensorbow.ops.selection import cast
from tensorbow.ops.shaping import split
from tensorbow.variable_scope import get_variable_scope, variable_scope
from tensorbow.variables import Variable


class _CellOfCells(RNNCell):
    """A cell made of others: its variables, losses and updates are theirs."""

    _cells: Sequence[RNNCell]

    def _of(self, collection: str) -> list[Variable]:
        return [variable for cell in self._cells for variable in cell._of(collection)]

    def _gathered(self, key: str) -> list[Any]:
        return [each for cell in self._cells for each in cell._gathered(key)]


class MultiRNNCell(_CellOfCells):
    """Cells one above another: the output of each is the input of the next. The state is a tuple."""

    @checked
    def __init__(self, cells: Any, state_is_tuple: Flag = True):
        """state_is_tuple: False has the states of the cells side by side in one tensor.

        Raises InvalidArgumentError unless cells is a list of different cells, at least one, and for one
        whose state is a tuple with state_is_tuple=False.
        """
        if not isinstance(cells, Sequence) or not cells or not all(isinstance(c, RNNCell) for c in cells):
            raise refuse("MultiRNNCell", "cells", "a list of cells, at least one", cells)
        if len({id(cell) for cell in cells}) < len(cells):
            raise InvalidArgumentError(
                "MultiRNNCell: one cell is given twice, and would share its variables; make one per layer"
            )
        super().__init__()
        self._cells = list(cells)
        self._is_tuple = state_is_tuple
        if not state_is_tuple and not all(isinstance(cell.state_size, int) for cell in cells):
            raise InvalidArgumentError(
                "MultiRNNCell: state_is_tuple=False needs cells with one state tensor each, got states "
                f"{self._sizes()}; give LSTM cells state_is_tuple=False, too"
            )

    def _sizes(self) -> tuple[Any, ...]:
        return tuple(cell.state_size for cell in self._cells)

    @property
    def state_size(self) -> Any:
        """State sizes of the cells, or their sum for a state that is no tuple."""
        return self._sizes() if self._is_tuple else sum(self._sizes())

    @property
    def output_size(self) -> int:
        """Width of the last cell's output."""
        return self._cells[-1].output_size

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step of each cell. Raises InvalidArgumentError for a state that is no tuple of the cells'."""
        if not self._is_tuple:
            state = split(state, list(self._sizes()), 1)
        if not isinstance(state, (tuple, list)) or len(state) != len(self._cells):
            raise refuse("MultiRNNCell", "state", f"a tuple of {len(self._cells)} states", state)
        current, states = inputs, []
        for number, (cell, own) in enumerate(zip(self._cells, state, strict=True)):
            with variable_scope(f"cell_{number}"):
                current, after = cell(current, own)
            states.append(after)
        return current, tuple(states) if self._is_tuple else concat(states, 1)


class _CellAroundOne(_CellOfCells):
    """A cell that changes what another one takes or gives; its sizes are that one's.

    It has no scope of its own, as in TensorFlow: `scope_name` is the scope in which it is called.
    """

    def __init__(self, cell: RNNCell):
        """Raises InvalidArgumentError unless it is a cell."""
        if not isinstance(cell, RNNCell):
            expected = "a cell such as tb.nn.rnn_cell.GRUCell(128)"
            raise refuse(type(self).__name__, "cell", expected, cell)
        super().__init__(name=self._default_name())
        self._cell, self._cells = cell, [cell]

    @contextmanager
    def _entered(self, graph: Graph) -> Iterator[LayerPlace]:
        outer, self._active = self._active, LayerPlace(graph, get_variable_scope())
        try:
            yield self._active
        finally:
            self._active = outer

    @property
    def state_size(self) -> Any:
        """State size of the cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> int:
        """Width of the cell's output."""
        return self._cell.output_size


class DeviceWrapper(_CellAroundOne):
    """A cell whose ops and variables are requested for a device, as those of each layer for another one."""

    def __init__(self, cell: Any, device: Any):
        """device: as `tb.device` takes it, such as "/cpu:1"."""
        super().__init__(cell)
        self._device = device

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step of the cell."""
        with inputs.graph.device(self._device):
            return self._cell(inputs, state)


class DropoutWrapper(_CellAroundOne):
    """A cell with dropout of its inputs, outputs and state, drawn anew in each step, or once for all."""

    @checked
    def __init__(
        self,
        cell: Any,
        input_keep_prob: Rate = 1.0,
        output_keep_prob: Rate = 1.0,
        state_keep_prob: Rate = 1.0,
        variational_recurrent: Flag = False,
        input_size: Any = None,
        dtype: AsDType | None = None,
        seed: Seed = None,
        dropout_state_filter_visitor: Function | None = None,
    ):
        """keep_prob: probability of keeping an element, a number or a scalar tensor; feed 1 to evaluate.

        variational_recurrent: all steps and examples drop the same elements, which each run of the session
            draws once (Gal and Ghahramani, 2016). It needs dtype, that of inputs and state, and for dropped
            inputs input_size, their width.
        dropout_state_filter_visitor: a function of the state, and of each tuple in it, which gives False for
            what is not dropped, True, or a tuple of these by part; by default an LSTM's memory c is kept.
        Raises InvalidArgumentError without these.
        """
        super().__init__(cell)
        self._keep, self._seed = (input_keep_prob, output_keep_prob, state_keep_prob), seed
        self._is_dropped = dropout_state_filter_visitor or _all_but_memories
        self._noise: Any = [None, None, None]
        if not variational_recurrent:
            return
        if dtype is None:
            raise refuse("DropoutWrapper", "dtype", "the cell's, for variational_recurrent", dtype)
        if not _keeps_all(input_keep_prob) and not isinstance(input_size, int):
            expected = "the width of the inputs, for variational_recurrent"
            raise refuse("DropoutWrapper", "input_size", expected, input_size)
        widths = [flatten(nest) for nest in (input_size, self.output_size, self.state_size)]
        self._noise = [
            None
            if _keeps_all(keep)
            else [
                random_uniform([1, width], dtype=dtype, seed=self._seed_of(place, number))
                for number, width in enumerate(widths[place])
            ]
            for place, keep in enumerate(self._keep)
        ]

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step of the cell."""
        (given,) = self._dropped(0, [inputs])
        output, after = self._cell(given, state)
        kept = self._dropped(2, flatten(after), _flags(after, self._is_dropped))
        return self._dropped(1, [output])[0], pack(after, iter(kept))

    def _dropped(self, place: int, leaves: list[Any], flags: Sequence[bool] = (True,)) -> list[Any]:
        """Tensors with dropout where a flag says so. place: 0 for the input, 1 the output, 2 the state."""
        keep, noise = self._keep[place], self._noise[place]
        if _keeps_all(keep):
            return leaves
        if noise is None:  # drawn anew in each step
            return [
                dropout(leaf, keep_prob=keep, seed=self._seed_of(place, number)) if is_dropped else leaf
                for number, (leaf, is_dropped) in enumerate(zip(leaves, flags, strict=True))
            ]
        keep = cast(convert_to_tensor(keep), noise[0].dtype)
        return [
            multiply(divide(leaf, keep), floor(add(keep, own))) if is_dropped else leaf
            for leaf, own, is_dropped in zip(leaves, noise, flags, strict=True)
        ]

    def _seed_of(self, place: int, number: int) -> int | None:
        """A seed for each tensor: with one for all, tensors of one width would drop the same elements."""
        if self._seed is None:
            return None
        words = np.random.SeedSequence((self._seed % (1 << 64), place, number)).generate_state(1)
        return int(words[0])


def _keeps_all(keep: Any) -> bool:
    return isinstance(keep, (int, float)) and keep == 1


def _all_but_memories(state: Any) -> Any:
    """The parts of a state that are dropped by default."""
    return LSTMStateTuple(c=False, h=True) if isinstance(state, LSTMStateTuple) else True


def _flags(state: Any, visitor: Callable[[Any], Any], chosen: Any = None) -> list[bool]:
    """True for each leaf of a state that the visitor lets be dropped; chosen: its answer, if it is known."""
    chosen = visitor(state) if chosen is None else chosen
    if isinstance(chosen, bool):
        if not chosen or not isinstance(state, (tuple, list)):
            return [chosen] * len(flatten(state))
        return [flag for part in state for flag in _flags(part, visitor)]
    return [
        flag
        for part, own in zip(state, chosen, strict=True)
        for flag in _flags(part, visitor, None if own is True and isinstance(part, (tuple, list)) else own)
    ]


class ResidualWrapper(_CellAroundOne):
    """A cell whose inputs are added to its outputs, of the same width (Wu et al., 2016)."""

    @checked
    def __init__(self, cell: Any, residual_fn: Annotated[Any, optional(FUNCTION)] = None):
        """residual_fn: a function (inputs, outputs) that gives the outputs, by default their sum."""
        super().__init__(cell)
        self._residual: Callable[..., Any] = residual_fn or add

    def call(self, inputs: Tensor, state: Any) -> tuple[Any, Any]:
        """One step of the cell."""
        output, after = self._cell(inputs, state)
        return self._residual(inputs, output), after
