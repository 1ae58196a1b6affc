"""`tb.nn.rnn_cell`: cells of recurrent networks, with TensorFlow 1's names of classes and variables.

A cell computes one step, `output, state = cell(inputs, state)`; `tb.nn.static_rnn` and `tb.nn.dynamic_rnn`
unroll it. It makes its variables in the scope of its first call in a graph, and shares them with later calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import Graph, Tensor, convert_to_tensor
from tensorbow.kinds import (
    FUNCTION,
    AsDType,
    Flag,
    Function,
    Name,
    Number,
    Positive,
    PositiveNumber,
    Seed,
    checked,
    optional,
    or_tensor,
    refuse,
    whole,
)
from tensorbow.layers.building import Activation, known_extent
from tensorbow.layers.layer import Layer, LayerPlace
from tensorbow.missing_names import no_attribute
from tensorbow.nest import flatten, map_leaves, pack
from tensorbow.ops.argument_kinds import Rate
from tensorbow.ops.arrays import concat
from tensorbow.ops.elementwise import add, clip_by_value, divide, floor, multiply, sigmoid, subtract, tanh
from tensorbow.ops.filling import zeros
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add, dropout
from tensorbow.ops.random import random_uniform
from tensorbow.ops.selection import cast
from tensorbow.ops.shaping import split
from tensorbow.specs import DType, float32
from tensorbow.variable_scope import Reuse, Start, get_variable, get_variable_scope, variable_scope
from tensorbow.variables import Variable

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
]


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


class _CellOfVariables(RNNCell):
    """A cell with variables of its own."""

    _variables: Any = None  # those of the graph in which it was built last

    def __init__(self, num_units: int, name: str | None, reuse: Any):
        super().__init__(name=name, _reuse=reuse)
        self._units = num_units

    @property
    def output_size(self) -> int:
        return self._units

    @property
    def state_size(self) -> Any:
        return self._units

    def __call__(self, inputs: Any, state: Any) -> tuple[Tensor, Any]:
        """One step; see `RNNCell`.

        Raises InvalidArgumentError for an unknown number of features, and for a state of another structure.
        """
        tensor, label = convert_to_tensor(inputs), type(self).__name__
        if tensor.shape.ndims != 2:
            raise InvalidArgumentError(f"{label}: expected inputs [batch, features], got {tensor.spec}")
        if len(flatten(state)) != len(flatten(self.state_size)):
            raise InvalidArgumentError(
                f"{label}: expected a state of {len(flatten(self.state_size))} tensors, got "
                f"{len(flatten(state))}; begin with cell.zero_state(batch_size)"
            )
        known_extent(label, tensor, -1)
        return super().__call__(tensor, state)

    def build(self, input_shape: Any) -> None:
        """Makes the variables for inputs of this shape."""
        self._variables = self._made(int(input_shape[-1]), self._floats)

    @abstractmethod
    def _made(self, features: int, dtype: DType) -> Any:
        """Makes the variables for inputs of this width."""

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        return self._step(inputs, state, self._variables)

    @abstractmethod
    def _step(self, inputs: Tensor, state: Any, variables: Any) -> tuple[Tensor, Any]:
        """One step with these variables."""


def _dense(parts: Sequence[Any], kernel: Any, bias: Any) -> Tensor:
    return bias_add(matmul(concat(list(parts), 1) if parts[1:] else parts[0], kernel), bias)


class BasicRNNCell(_CellOfVariables):
    """activation([inputs, state] x kernel + bias), both the output and the next state (Elman, 1990)."""

    @checked
    def __init__(
        self,
        num_units: Positive,
        activation: Activation = None,
        reuse: Reuse | None = None,
        name: Name = None,
    ):
        """activation: by default tanh."""
        super().__init__(num_units, name, reuse)
        self._activation = activation or tanh

    def _made(self, features: int, dtype: DType) -> Any:
        kernel = get_variable("kernel", [features + self._units, self._units], dtype)
        return kernel, get_variable("bias", [self._units], dtype, "zeros")

    def _step(self, inputs: Tensor, state: Any, variables: Any) -> tuple[Tensor, Any]:
        output = self._activation(_dense([inputs, state], *variables))
        return output, output


class LSTMCell(_CellOfVariables):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 1999):

    i, j, f, o = split([inputs, h] x kernel + bias)
    c = sigmoid(f + forget_bias) * c + sigmoid(i) * activation(j)
    h = sigmoid(o) * activation(c)
    """

    @checked
    def __init__(
        self,
        num_units: Positive,
        use_peepholes: Flag = False,
        cell_clip: PositiveNumber | None = None,
        initializer: Start | None = None,
        num_proj: Positive | None = None,
        proj_clip: PositiveNumber | None = None,
        *,
        forget_bias: Number = 1.0,
        state_is_tuple: Flag = True,
        activation: Activation = None,
        reuse: Reuse | None = None,
        name: Name = None,
    ):
        """use_peepholes: the gates see c (Gers and Schmidhuber, 2000). cell_clip: bound of |c|.
        num_proj: width of h, projected from num_units (Sak et al., 2014). proj_clip: bound of |h|, where
        projected. state_is_tuple: states are `LSTMStateTuple`s; with False tensors
        `[batch, num_units + width of h]`, c beside h. activation: by default tanh.
        """
        super().__init__(num_units, name, reuse)
        self._is_tuple, self._projection_clip = state_is_tuple, proj_clip
        self._peepholes, self._clip, self._initializer = use_peepholes, cell_clip, initializer
        self._projected, self._forget_bias = num_proj, forget_bias
        self._activation = activation or tanh

    @property
    def output_size(self) -> int:
        """Width of h."""
        return self._projected or self._units

    @property
    def state_size(self) -> Any:
        """Widths of c and h, or their sum for states that are no tuples."""
        widths = LSTMStateTuple(self._units, self.output_size)
        return widths if self._is_tuple else sum(widths)

    def _made(self, features: int, dtype: DType) -> Any:
        def weights(label: str, shape: list[int]) -> Any:
            return get_variable(label, shape, dtype, self._initializer)

        made = {
            "kernel": weights("kernel", [features + self.output_size, 4 * self._units]),
            "bias": get_variable("bias", [4 * self._units], dtype, "zeros"),
        }
        if self._peepholes:
            for gate in "fio":
                made[gate] = weights(f"w_{gate}_diag", [self._units])
        if self._projected:
            with variable_scope("projection"):
                made["projection"] = weights("kernel", [self._units, self._projected])
        return made

    def _step(self, inputs: Tensor, state: Any, variables: Any) -> tuple[Tensor, Any]:
        c, h = state if self._is_tuple else split(state, [self._units, self.output_size], 1)
        i, j, f, o = split(_dense([inputs, h], variables["kernel"], variables["bias"]), 4, 1)

        def seen(gate: Tensor, label: str, memory: Any) -> Tensor:
            return add(gate, multiply(memory, variables[label])) if self._peepholes else gate

        kept = sigmoid(add(seen(f, "f", c), self._forget_bias))
        memory = add(multiply(kept, c), multiply(sigmoid(seen(i, "i", c)), self._activation(j)))
        if self._clip is not None:
            memory = clip_by_value(memory, -self._clip, self._clip)
        output = multiply(sigmoid(seen(o, "o", memory)), self._activation(memory))
        if self._projected:
            output = matmul(output, variables["projection"])
            if self._projection_clip is not None:
                output = clip_by_value(output, -self._projection_clip, self._projection_clip)
        after = LSTMStateTuple(memory, output)
        return output, after if self._is_tuple else concat(after, 1)


class BasicLSTMCell(LSTMCell):
    """`LSTMCell` without options, under TensorFlow 1's name (Zaremba et al., 2014)."""

    @checked
    def __init__(
        self,
        num_units: Positive,
        forget_bias: Number = 1.0,
        state_is_tuple: Flag = True,
        activation: Activation = None,
        reuse: Reuse | None = None,
        name: Name = None,
    ):
        """state_is_tuple: as of `LSTMCell`. activation: by default tanh."""
        super().__init__(
            num_units,
            forget_bias=forget_bias,
            state_is_tuple=state_is_tuple,
            activation=activation,
            reuse=reuse,
            name=name,
        )


class GRUCell(_CellOfVariables):
    """Gated recurrent unit (Cho et al., 2014):

    r, u = split(sigmoid([inputs, h] x gates/kernel + gates/bias))
    h = u * h + (1 - u) * activation([inputs, r * h] x candidate/kernel + candidate/bias)

    With reset_after the state is reset after its product, as in cuDNN and `torch.nn.GRU` (below, p and q are
    candidate/input_projection and candidate/hidden_projection, each with a kernel and a bias):

    h = u * h + (1 - u) * activation(inputs x p/kernel + p/bias + r * (h x q/kernel + q/bias))
    """

    @checked
    def __init__(
        self,
        num_units: Positive,
        activation: Activation = None,
        reuse: Reuse | None = None,
        kernel_initializer: Start | None = None,
        bias_initializer: Start | None = None,
        name: Name = None,
        *,
        reset_after: Flag = False,
    ):
        """activation: by default tanh. bias_initializer: by default ones (gates) and zeros (candidate)."""
        super().__init__(num_units, name, reuse)
        self._activation, self._reset_after = activation or tanh, reset_after
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    def _made(self, features: int, dtype: DType) -> Any:
        both, units, made = features + self._units, self._units, []
        parts = [("gates", both, 2 * units, "ones"), ("candidate", both, units, "zeros")]
        if self._reset_after:
            of_inputs, of_state = "candidate/input_projection", "candidate/hidden_projection"
            parts[1:] = [(of_inputs, features, units, "zeros"), (of_state, units, units, "zeros")]
        for label, width, count, start in parts:
            with variable_scope(label):
                kernel = get_variable("kernel", [width, count], dtype, self._kernel_initializer)
                own = start if self._bias_initializer is None else self._bias_initializer
                made.append((kernel, get_variable("bias", [count], dtype, own)))
        return made

    def _step(self, inputs: Tensor, state: Any, variables: Any) -> tuple[Tensor, Any]:
        gates, candidate, *of_state = variables
        reset, update = split(sigmoid(_dense([inputs, state], *gates)), 2, 1)
        if of_state:
            known = multiply(reset, _dense([state], *of_state[0]))
            new = self._activation(add(_dense([inputs], *candidate), known))
        else:
            new = self._activation(_dense([inputs, multiply(reset, state)], *candidate))
        output = add(multiply(update, state), multiply(subtract(1.0, update), new))
        return output, output


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
        """The cell's."""
        return self._cell.state_size

    @property
    def output_size(self) -> int:
        """The cell's."""
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
        widths = (input_size, self.output_size, self.state_size)
        self._noise = [
            None
            if _keeps_all(keep)
            else map_leaves(
                lambda _, width: random_uniform([1, width], dtype=dtype, seed=seed), nest, "width"
            )
            for keep, nest in zip(self._keep, widths, strict=True)
        ]

    def call(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step of the cell."""
        of_input, of_output, of_state = self._keep
        input_noise, output_noise, state_noise = self._noise
        output, after = self._cell(self._dropped(inputs, of_input, input_noise), state)
        leaves = flatten(after)
        noise = [None] * len(leaves) if state_noise is None else flatten(state_noise)
        kept = [
            self._dropped(leaf, of_state, its) if is_dropped else leaf
            for leaf, its, is_dropped in zip(leaves, noise, _flags(after, self._is_dropped), strict=True)
        ]
        return self._dropped(output, of_output, output_noise), pack(after, iter(kept))

    def _dropped(self, value: Any, keep: Any, noise: Any) -> Any:
        """noise: numbers from 0 to 1 for each element; None draws them anew."""
        if _keeps_all(keep):
            return value
        if noise is None:
            return dropout(value, keep_prob=keep, seed=self._seed)
        keep = cast(convert_to_tensor(keep), noise.dtype)
        return multiply(divide(value, keep), floor(add(keep, noise)))


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


if not TYPE_CHECKING:  # type checkers would take any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(name, __all__, "tensorbow.nn.rnn_cell")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
