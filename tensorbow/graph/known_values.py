"""Values of tensors that follow from constants and static shapes alone, known while a graph is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorbow.errors import TensorBowError
from tensorbow.specs import Array

if TYPE_CHECKING:
    from tensorbow.graph.operation import Tensor

DEEPEST = 64  # operations between a tensor and the constants that it follows from
MOST_ELEMENTS = 1024  # of a value


def known_value(tensor: Tensor, left: int = DEEPEST) -> Array | None:
    """The value of `tensor`, such as `tb.range(1, tb.rank(x))`, if it is small and known; else None.

    left: operations that may lie before it.
    """
    if tensor.spec.value is not None:
        return tensor.spec.value
    op, definition = tensor.op, tensor.op.definition
    unsuited = definition.is_dynamic or definition.stateful or definition.random or definition.exchange
    if unsuited or definition.writes or definition.state or not op.inputs or not left or op.has_strings:
        return None
    inputs: list[Array] = []
    for each in op.inputs:
        value = known_value(each, left - 1)
        if value is None or value.size > MOST_ELEMENTS:
            return None
        inputs.append(value)
    try:
        return definition.small_results(inputs, op.attrs, MOST_ELEMENTS)[tensor.index]
    except (TensorBowError, ArithmeticError, LookupError):  # the step raises it, with the op's name
        return None
