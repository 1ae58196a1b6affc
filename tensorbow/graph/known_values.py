"""Values of tensors that follow from constants and static shapes alone, known while a graph is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorbow.errors import TensorBowError
from tensorbow.specs import Array

if TYPE_CHECKING:
    from tensorbow.graph.operation import Tensor

DEEPEST = 64  # operations between a tensor and the constants that it follows from
MOST_ELEMENTS = 1024  # of a value


def known_value(tensor: Tensor) -> Array | None:
    """The value of `tensor`, such as `tb.range(1, tb.rank(x))`, if it is small and known; else None."""
    return _found(tensor, DEEPEST, {})


def _found(tensor: Tensor, left: int, found: dict[Tensor, Array | None]) -> Array | None:
    """See known_value. left: operations that may lie before it. found: values so far, by tensor."""
    if tensor.spec.value is not None:
        return tensor.spec.value
    if tensor not in found:
        found[tensor] = _computed(tensor, left, found)
    return found[tensor]


def _computed(tensor: Tensor, left: int, found: dict[Tensor, Array | None]) -> Array | None:
    op, definition = tensor.op, tensor.op.definition
    unsuited = definition.is_dynamic or definition.stateful or definition.random or definition.exchange
    if unsuited or definition.writes or definition.state or not op.inputs or not left or op.has_strings:
        return None
    inputs: list[Array] = []
    for each in op.inputs:
        value = _found(each, left - 1, found)
        if value is None or value.size > MOST_ELEMENTS:
            return None
        inputs.append(value)
    try:
        return definition.small_results(inputs, op.attrs, MOST_ELEMENTS)[tensor.index]
    except (TensorBowError, ArithmeticError, LookupError):  # the step raises it, with the op's name
        return None
