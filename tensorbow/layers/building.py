"""Parts of layers: variable scopes, biases, known extents, kinds of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor, convert_to_tensor
from tensorbow.kinds import (
    FLAG,
    FUNCTION,
    SHAPE,
    Kind,
    RefusedError,
    is_tensor,
    number,
    one_of,
    optional,
    or_tensor,
    sequence,
    whole,
)
from tensorbow.ops.nn import bias_add
from tensorbow.specs import bool_
from tensorbow.variable_scope import VariableScope, get_variable, get_variable_scope, variable_scope

FORMATS = {"channels_last": "NHWC", "channels_first": "NCHW"}
_PAIR = sequence(whole(1), "", lone=True)
MOST_ZEROS = (1 << 30) - 1  # on each side: what is padded has an extent of int32
_ZEROS = sequence(whole(0, MOST_ZEROS), "", lone=True)


def read_pair(value: Any) -> tuple[int, int]:
    """Height and width, of one number or two."""
    numbers = _PAIR.read(value)
    if len(numbers) != 2 and not isinstance(value, (int, np.integer)):
        raise RefusedError
    return numbers[0], numbers[-1]


def _read_zeros(value: Any) -> tuple[int, int]:
    numbers = _ZEROS.read(value)
    if len(numbers) != 2 and not isinstance(value, (int, np.integer)):
        raise RefusedError
    return numbers[0], numbers[-1]


def _read_three_zeros(value: Any) -> tuple[int, int, int]:
    numbers = _ZEROS.read(value)
    if len(numbers) != 3 and not isinstance(value, (int, np.integer)):
        raise RefusedError
    return numbers[0], numbers[len(numbers) // 2], numbers[-1]


def _read_activation(value: Any) -> Any:
    if isinstance(value, type):
        raise RefusedError
    return FUNCTION.read(value)


def _read_noise_shape(value: Any) -> Any:
    return value if is_tensor(value) else SHAPE.read(value).as_list()


def _read_training(value: Any) -> Any:
    if not is_tensor(value):
        return bool(FLAG.read(value))
    tensor = convert_to_tensor(value)
    if tensor.dtype != bool_ or tensor.shape.ndims not in (None, 0):
        raise RefusedError
    tensor.set_shape([])  # that of a placeholder may be unknown
    return tensor


WIDTH = Kind("a number of steps to add on each side", whole(0, MOST_ZEROS).read)
LAYER = Kind("a function such as tb.nn.relu", _read_activation)

Activation: TypeAlias = Annotated[Callable[[Tensor], Tensor] | None, optional(LAYER)]
Pair: TypeAlias = Annotated[Any, Kind("a whole number of at least 1, or two of them", read_pair)]
PaddingOrWidth: TypeAlias = Annotated[  # reads a string or a pair of ints
    Any,
    one_of("valid", "same", any_case=True)
    | Kind("a number of rows and columns to add on each side, or (rows, columns)", _read_zeros),
]
PaddingOrWidths: TypeAlias = Annotated[  # reads a string or three ints
    Any,
    one_of("valid", "same", any_case=True)
    | Kind("a number of elements to add on each side, or (slices, rows, columns)", _read_three_zeros),
]
RowsAndColumns: TypeAlias = Annotated[  # reads a pair of ints
    Any, optional(Kind("a number of rows and columns, or (rows, columns)", _read_zeros))
]
SlicesRowsAndColumns: TypeAlias = Annotated[  # reads three ints
    Any, optional(Kind("a number of elements, or (slices, rows, columns)", _read_three_zeros))
]
PaddingOfSteps: TypeAlias = Annotated[  # reads a string or an int
    Any, one_of("valid", "same", any_case=True) | WIDTH
]
PaddingOrCausal: TypeAlias = Annotated[  # reads a string or an int
    Any, one_of("valid", "same", "causal", any_case=True) | WIDTH
]
Format: TypeAlias = Annotated[str, one_of(*FORMATS, any_case=True)]
Rate: TypeAlias = Annotated[Any, or_tensor(number(0, 1, below=True))]
NoiseShape: TypeAlias = Annotated[Any, Kind("a shape, which may be a tensor", _read_noise_shape)]
Share: TypeAlias = Annotated[float, number(0, 1)]
Training: TypeAlias = Annotated[Any, Kind("True, False or a scalar tensor of bools", _read_training)]


_entered: ContextVar[VariableScope | None] = ContextVar("_entered", default=None)


@contextmanager
def entered_for_function(scope: VariableScope) -> Iterator[None]:
    """Inside, the next `layer_scope` is this scope, which a layer object has entered for its function."""
    token = _entered.set(scope)
    try:
        yield
    finally:
        _entered.reset(token)


def layer_scope(name: str | None, default: str, reuse: Any) -> AbstractContextManager[VariableScope]:
    """The variable scope of a layer."""
    entered = _entered.get()
    if entered is not None and entered is get_variable_scope():
        _entered.set(None)  # those of layers inside are new ones
        return nullcontext(entered)
    return variable_scope(name or (default if reuse else None), default, reuse=reuse)


def completed(
    result: Tensor,
    units: int,
    use_bias: bool,
    initializer: Any,
    regularizer: Callable[[Tensor], Any] | None,
    trainable: bool,
    activation: Callable[[Tensor], Tensor] | None,
    layout: str = "NHWC",
) -> Tensor:
    """The result of a layer plus a bias, a new variable `[units]`, and the activation of that, as wanted."""
    if use_bias:
        bias = get_variable("bias", [units], result.dtype, initializer, regularizer, trainable=trainable)
        result = bias_add(result, bias, "NCHW" if layout[1] == "C" else "NHWC")
    return result if activation is None else activation(result)


def known_extent(layer: str, tensor: Tensor, axis: int) -> int:
    """Extent of an axis. Raises InvalidArgumentError if it is unknown."""
    dims = tensor.spec.shape
    extent = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    if extent is None:
        raise InvalidArgumentError(f"{layer}: axis {axis} of {tensor.spec} must be known; use set_shape")
    return extent
