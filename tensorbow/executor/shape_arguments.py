"""Inputs on whose values the shapes of a region depend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorbow.function_calls import Call
from tensorbow.graph import Operation, Tensor
from tensorbow.graph.function import SHAPE_ONLY


def shape_arguments(op: Operation) -> list[Tensor]:
    """The inputs of an op that its shapes depend on."""
    indices = op.attrs["f"].shape_arguments if op.definition is Call else op.definition.shape_inputs
    return [op.inputs[i] for i in indices if i < len(op.inputs)]


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
