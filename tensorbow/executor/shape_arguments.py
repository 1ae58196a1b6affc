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
        return [tensor for tensor in op.inputs[NUMBERS[op.definition] :][:1] if follows_shapes(tensor, by_op)]
    indices = op.attrs["f"].shape_arguments if op.definition is Call else op.definition.shape_inputs
    return [op.inputs[i] for i in indices if i < len(op.inputs)]


def follows_shapes(
    tensor: Tensor, decide: Callable[[Tensor], bool | None], known: dict[Tensor, bool] | None = None
) -> bool:
    """True if a value changes only where shapes do.

    decide: `by_op`, or a rule of the caller's in front of it; None where the inputs decide. known: what was
    found, kept from call to call.
    """
    known = {} if known is None else known
    pending = [tensor]
    while pending:
        each = pending[-1]
        found = known.get(each, decide(each))
        if found is None:
            waits = [source for source in each.op.inputs if source not in known]
            if waits:
                pending += waits
                continue
            found = all(known[source] for source in each.op.inputs)
        known[each] = found
        pending.pop()
    return known[tensor]


def by_op(tensor: Tensor) -> bool | None:
    """True for constants and shapes, False for what other things change, None where the inputs decide."""
    op, definition = tensor.op, tensor.op.definition
    if is_free(op):
        return definition.name == "Const"
    if definition.name in SHAPE_ONLY:
        return True
    if op.is_dynamic or definition.stateful or definition.random or not op.inputs:
        return False
    return None


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
