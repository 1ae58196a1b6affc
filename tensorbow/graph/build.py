"""From Python values to tensors and operations."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.definition import REQUIRED, OpDef
from tensorbow.graph.graph import Graph, get_default_graph
from tensorbow.graph.operation import Operation, Tensor
from tensorbow.graph.source import blame, user_line
from tensorbow.specs import DType, as_dtype

Conversion = Callable[[Any, "DType | None", "str | None"], Tensor]
_conversions: list[tuple[type | tuple[type, ...], Conversion]] = []


def register_tensor_conversion(kind: type | tuple[type, ...], convert: Conversion) -> None:
    """Lets values of a type stand where a tensor is expected: `convert(value, dtype, name)`.

    Of several that fit, the one that was registered last counts.
    """
    _conversions.insert(0, (kind, convert))


def convert_to_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Tensor:
    """A tensor of the default graph from a tensor, variable, array, number or nested list.

    Raises InvalidArgumentError when the value has another dtype than `dtype`, or none that fits.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(value, Tensor):
        tensor = value
    else:
        for kind, convert in _conversions:
            if isinstance(value, kind):
                tensor = convert(value, wanted, name)
                break
        else:
            raise InvalidArgumentError(
                f"cannot make a tensor of {type(value).__name__} {reprlib.repr(value)}: "
                "expected a tensor, a variable, an array, a number or a nested list of numbers"
            )
    if wanted is not None and tensor.dtype != wanted:
        raise InvalidArgumentError(
            f"tensor {tensor.name} has dtype {tensor.dtype.name}, expected {wanted.name}; use tb.cast"
        )
    return tensor


def graph_of(values: Sequence[Any]) -> Graph:
    """The graph the tensors among `values` belong to, else the default graph."""
    return _graph_among(values) or get_default_graph()


def _graph_among(values: Sequence[Any]) -> Graph | None:
    for value in values:
        nested = isinstance(value, (list, tuple))
        graph = _graph_among(value) if nested else getattr(value, "graph", None)
        if isinstance(graph, Graph):
            return graph
    return None


def build_op(definition: OpDef, values: Sequence[Any], attrs: dict[str, Any], name: str | None) -> Any:
    """Adds one operation: converts inputs, completes attributes, returns the outputs.

    One output gives a Tensor, several a tuple, none the Operation. Raises InvalidArgumentError for
    attributes and inputs that the op does not take, FailedPreconditionError when the graph is finalized.
    """
    complete = complete_attrs(definition, attrs)
    check_arity(definition, len(values))
    graph = graph_of(values)
    with graph.as_default():
        try:
            inputs = _convert_inputs(definition, values)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(blame(definition.name, name or "", error, user_line())) from None
        op = graph.create_op(definition, inputs, complete, name)
    return _results(op)


def complete_attrs(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes with their defaults. Raises InvalidArgumentError for unknown or missing ones."""
    unknown = set(attrs) - set(definition.attrs)
    if unknown:
        raise InvalidArgumentError(
            f"{definition.name}: unknown attribute {', '.join(sorted(unknown))}; "
            f"known: {', '.join(definition.attrs) or 'none'}"
        )
    complete = {**definition.attrs, **attrs}
    missing = [key for key, value in complete.items() if value is REQUIRED]
    if missing:
        raise InvalidArgumentError(f"{definition.name}: attribute {', '.join(missing)} must be given")
    return complete


def check_arity(definition: OpDef, count: int) -> None:
    """Raises InvalidArgumentError unless the op takes that many inputs."""
    expected = len(definition.input_names)
    variadic = bool(definition.input_names) and definition.input_names[-1].startswith("*")
    if count < expected - variadic or (count > expected and not variadic):
        raise InvalidArgumentError(
            f"{definition.name}: expected {expected} inputs ({', '.join(definition.input_names)}), "
            f"got {count}"
        )


def _convert_inputs(definition: OpDef, values: Sequence[Any]) -> list[Tensor]:
    hint: DType | None = None
    if definition.uniform_dtype:
        typed = [v for v in values if isinstance(getattr(v, "dtype", None), DType)]
        hint = typed[0].dtype if typed else None
    converted: list[Tensor] = []
    for index, value in enumerate(values):
        if index in definition.writes and hasattr(value, "_as_graph_element"):
            value = value._as_graph_element()  # a variable to write: its storage, not a read of it
        if hint is None or isinstance(getattr(value, "dtype", None), DType):
            tensor = convert_to_tensor(value)
        else:
            try:
                tensor = convert_to_tensor(value, hint)
            except InvalidArgumentError as error:
                beside = f"{error}, or use tb.cast on the {hint.name} operand beside it"
                raise InvalidArgumentError(beside) from None
        if hint is None and definition.uniform_dtype:
            hint = tensor.dtype
        converted.append(tensor)
    return converted


def _results(op: Operation) -> Any:
    if not op.outputs:
        return op
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs
