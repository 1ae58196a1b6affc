"""`tb.nn.rnn_cell`: cells of recurrent networks, with TensorFlow 1's names of classes and variables.

A cell computes one step, `output, state = cell(inputs, state)`; `tb.nn.static_rnn` and `tb.nn.dynamic_rnn`
unroll it. It makes its variables in the scope of its first call in a graph, and shares them with later calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import Flag, Name, Number, Positive, PositiveNumber, checked
from tensorbow.layers.building import Activation, known_extent
from tensorbow.layers.cell import LSTMStateTuple, RNNCell
from tensorbow.layers.cell_wrappers import DeviceWrapper, DropoutWrapper, MultiRNNCell, ResidualWrapper
from tensorbow.missing_names import no_attribute
from tensorbow.nest import flatten
from tensorbow.ops.arrays import concat
from tensorbow.ops.elementwise import add, clip_by_value, multiply, sigmoid, subtract, tanh
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add
from tensorbow.ops.shaping import split
from tensorbow.specs import DType
from tensorbow.variable_scope import Reuse, Start, get_variable, variable_scope

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


if not TYPE_CHECKING:  # type checkers would take any name

    def __getattr__(name: str) -> Any:
        raise no_attribute(name, __all__, "tensorbow.nn.rnn_cell")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
