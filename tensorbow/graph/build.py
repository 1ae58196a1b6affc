"""Construction of tensors and operations from Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorbow.call_errors import UnfitError
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.defaults import default_graphs
from tensorbow.graph.graph import Graph, get_default_graph
from tensorbow.graph.operation import Operation, Tensor
from tensorbow.graph.user_lines import label_of, user_line
from tensorbow.kinds import AsDType, Name, checked, shown
from tensorbow.specs import DType

if TYPE_CHECKING:
    from tensorbow.graph.definition import OpDef

Conversion = Callable[[Any, "DType | None", "str | None"], Tensor]
DEEPEST = 64  # levels of nested lists, more than a tensor has axes; a list may contain itself
_conversions: list[tuple[type | tuple[type, ...], Conversion]] = []


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()  # the default of an attribute that must be given


def register_tensor_conversion(kind: type | tuple[type, ...], convert: Conversion) -> None:
    """Lets values of a type be used as tensors: `convert(value, dtype, name)` makes the tensor.

    If several registered types match, the one registered last is used.
    """
    _conversions.insert(0, (kind, convert))


@checked
def convert_to_tensor(value: Any, dtype: AsDType | None = None, name: Name = None) -> Tensor:
    """A tensor of the default graph from a tensor, variable, array, number or nested list.

    Raises InvalidArgumentError if the value has another dtype than `dtype`, or no supported dtype.
    """
    return as_tensor(value, dtype, name)


def as_tensor(value: Any, dtype: DType | None = None, name: str | None = None) -> Tensor:
    """`convert_to_tensor` for the library's own calls. Raises UnfitError."""
    if isinstance(value, Tensor):
        tensor = value
    else:
        tensor = _converted(value, dtype, name)
    if dtype is not None and tensor.dtype != dtype:
        raise UnfitError(
            f"tensor {tensor.name} has dtype {tensor.dtype.name}, expected {dtype.name}; use tb.cast", value
        )
    return tensor


def as_numbers(value: Any) -> Tensor:
    """`as_tensor` of what must not be of strings. Raises UnfitError."""
    tensor = as_tensor(value)
    if tensor.dtype.is_string:
        raise UnfitError(f"it is {tensor.spec}, expected numbers; tb.string_to_number makes them", value)
    return tensor


def _converted(value: Any, dtype: DType | None, name: str | None) -> Tensor:
    for kind, convert in _conversions:
        if isinstance(value, kind):
            try:
                return convert(value, dtype, name)
            except UnfitError as error:
                raise UnfitError(error.reason, value) from None
            except InvalidArgumentError as error:
                raise UnfitError(str(error), value) from None
    if isinstance(value, Mapping) and value and all(isinstance(each, Tensor) for each in value.values()):
        several = ", ".join(f"{key!r}: {each.spec}" for key, each in value.items())
        raise UnfitError(
            f"cannot make a tensor of several, {{{several}}}: choose one, as [{next(iter(value))!r}]", value
        )
    raise UnfitError(
        f"cannot make a tensor of {shown(value)}: "
        "expected a tensor, a variable, an array, a number, a text or a nested list of them",
        value,
    )


def graph_of(values: Sequence[Any]) -> Graph:
    """The graph of the tensors among `values`; the default graph if there are none.

    While a function is made, it is the function's.
    """
    if default_graphs.making:
        for graph in reversed(default_graphs.stack):
            if graph.captures:
                made: Graph = graph
                return made
    return _graph_among(values) or get_default_graph()


def _graph_among(values: Sequence[Any], depth: int = 0) -> Graph | None:
    for value in values:
        if type(value) is Tensor:  # fast path: called for every op
            return value.op.graph
        nested = isinstance(value, (list, tuple)) and depth < DEEPEST
        graph = _graph_among(value, depth + 1) if nested else getattr(value, "graph", None)
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
    stack = default_graphs.stack
    stack.append(graph)  # same effect as `graph.as_default`
    try:
        inputs = _convert_inputs(definition, values, name or "")
        op = graph.create_op(definition, inputs, complete, name)
    finally:
        stack.pop()
    return _results(op)


def complete_attrs(definition: OpDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes completed by defaults. Raises InvalidArgumentError for unknown or missing ones."""
    if not attrs.keys() <= definition.attrs.keys():
        unknown = sorted(attrs.keys() - definition.attrs.keys())
        raise InvalidArgumentError(
            f"{definition.name}: unknown attribute {', '.join(unknown)}; "
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


def _convert_inputs(definition: OpDef, values: Sequence[Any], name: str) -> list[Tensor]:
    hint: DType | None = None
    if definition.uniform_dtype:
        typed = [v for v in values if isinstance(getattr(v, "dtype", None), DType)]
        hint = typed[0].dtype if typed else None
    converted: list[Tensor] = []
    for index, value in enumerate(values):
        if type(value) is Tensor:
            hint = value.dtype if hint is None and definition.uniform_dtype else hint
            converted.append(value)
            continue
        if index in definition.writes and hasattr(value, "_as_graph_element"):
            value = value._as_graph_element()  # a variable to write: a reference to its storage, not a read
            if value.op.definition.host is not None and definition.host is None:
                raise InvalidArgumentError(
                    f"{label_of(definition.name, name)}: variable {value.op.name} is of strings, or its "
                    f"shape may change: expected assign, assign_add or assign_sub (made at {user_line()})"
                )
        wanted = None if hint is None or isinstance(getattr(value, "dtype", None), DType) else hint
        try:
            tensor = as_tensor(value, wanted)
        except UnfitError as error:
            beside = "" if wanted is None else f", or use tb.cast on the {wanted.name} operand beside it"
            where = f"{label_of(definition.name, name)}: {_input_name(definition, index)}"
            made = f" (made at {user_line()})"
            raise UnfitError(f"{error.reason}{beside}", value, where, made) from None
        if tensor.dtype.is_string and not definition.strings:
            where = f"{label_of(definition.name, name)}: {_input_name(definition, index)}"
            reason = f"it is {tensor.spec}, and the op has no kernel for strings; give numbers"
            raise UnfitError(reason, value, where, f" (made at {user_line()})")
        if hint is None and definition.uniform_dtype:
            hint = tensor.dtype
        converted.append(tensor)
    return converted


def _input_name(definition: OpDef, index: int) -> str:
    names = definition.input_names
    last = names[min(index, len(names) - 1)]
    return f"{last[1:]}[{index - len(names) + 1}]" if last.startswith("*") else last


def _results(op: Operation) -> Any:
    if not op.outputs:
        return op
    return op.outputs[0] if len(op.outputs) == 1 else op.outputs
