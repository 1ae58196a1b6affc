"""Inputs on whose values the shapes of a region depend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorbow.function_calls import Call
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.graph.function import SHAPE_ONLY
from tensorbow.ops.tensor_arrays import (
    TensorArrayConcat,
    TensorArrayGather,
    TensorArrayNew,
    TensorArrayScatter,
    TensorArraySplit,
)

NUMBERS = {  # by op of a TensorArray, the input with numbers of elements, which a plan must know
    TensorArrayNew: 0,
    TensorArrayScatter: 1,
    TensorArrayGather: 1,
    TensorArrayConcat: 2,
    TensorArraySplit: 2,
}


def shape_arguments(op: Operation) -> list[Tensor]:
    """The inputs of an op that its shapes depend on; of one of a TensorArray also those that plans know."""
    if op.definition in NUMBERS:
        return [tensor for tensor in op.inputs[NUMBERS[op.definition] :][:1] if _is_of_shapes(tensor)]
    indices = op.attrs["f"].shape_arguments if op.definition is Call else op.definition.shape_inputs
    return [op.inputs[i] for i in indices if i < len(op.inputs)]


def _is_of_shapes(tensor: Tensor) -> bool:
    """True if a value depends on constants and shapes alone, so that it changes only where shapes do."""
    pending, seen = [tensor.op], set[Operation]()
    while pending:
        op = pending.pop()
        if op in seen or op.definition.name in SHAPE_ONLY or op.definition.name == "Const":
            continue
        seen.add(op)
        definition = op.definition
        if is_free(op) or op.is_dynamic or definition.stateful or definition.random or not op.inputs:
            return False
        pending += [each.op for each in op.inputs]
    return True


def determining(ops: Sequence[Operation], is_input: Callable[[Tensor], bool]) -> dict[Tensor, None]:
    """Inputs of ops that run together whose values are in shapes of these ops."""
    inside = set(ops)
    found: dict[Tensor, None] = {}
    pending = [tensor for op in ops for tensor in shape_arguments(op)]
    seen: set[Tensor] = set()
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if is_input(tensor):
            found[tensor] = None
        elif tensor.op in inside and tensor.op.definition.name not in SHAPE_ONLY:
            if tensor.op.definition.host is not None:
                continue  # what a loop kept, or an element of an array
            if any(each.op.definition.flow == "next_iteration" for each in tensor.op.inputs):
                continue  # a loop's variable
            pending.extend(tensor.op.inputs)
    return found
