"""The most iterations of a loop that counts to a limit."""

from __future__ import annotations

from tensorbow.compiler.wholes import WholeLoop
from tensorbow.graph import Tensor, is_free
from tensorbow.specs import Array

COMPARISONS = {"Less": 1, "LessEqual": 1, "Greater": -1, "GreaterEqual": -1}
UNKNOWN = -1  # number of iterations of a loop that counts to a limit


def limit_of(loop: WholeLoop) -> int | None:
    """The most iterations of a loop that counts to a limit; UNKNOWN if the limit is not constant.

    None for a loop that does not: it may never end. The condition compares a whole number, to which the body
    adds a constant, with what does not change in the loop; it may ask more, by logical_and.
    """
    found: int | None = None
    pending = [loop.condition.inputs[0]]
    while pending:
        op = _beyond_identities(pending.pop()).op
        if op.type == "LogicalAnd":
            pending.extend(op.inputs)
        elif op.type in COMPARISONS:
            sign = COMPARISONS[op.type]
            left, right = op.inputs
            for counter, limit, way in ((left, right, sign), (right, left, -sign)):
                count = _count(loop, counter, limit, way)
                if count is not None and (found is None or found == UNKNOWN or 0 <= count < found):
                    found = count
    return found


def _count(loop: WholeLoop, counter: Tensor, limit: Tensor, way: int) -> int | None:
    """Iterations until a counter reaches a limit; None if it is no counter, or goes the other way."""
    merge = _beyond_identities(counter).op
    if merge not in loop.merges or counter.dtype.is_floating or not _is_constant(loop, limit):
        return None
    following = _beyond_identities(merge.inputs[1].op.inputs[0]).op
    if following.type not in ("Add", "Sub"):
        return None
    operands = list(following.inputs)
    if following.type == "Add" and _known(operands[0]) is not None:
        operands.reverse()
    step = _known(operands[1])
    switch = _beyond_identities(operands[0]).op
    if step is None or switch.definition.flow != "switch" or switch.inputs[0].op is not merge:
        return None
    each = (int(step) if following.type == "Add" else -int(step)) * way
    if each <= 0:
        return None
    start, end = _known(merge.inputs[0].op.inputs[0]), _known(limit)
    if start is None or end is None:
        return UNKNOWN
    return max(0, -(-(int(end) - int(start)) * way // each) + 1)


def _is_constant(loop: WholeLoop, tensor: Tensor) -> bool:
    op = _beyond_identities(tensor).op
    return is_free(op) or (
        op.definition.flow == "enter" and bool(op.attrs["is_constant"]) and op in loop.enters
    )


def _known(tensor: Tensor) -> Array | None:
    op = _beyond_identities(tensor).op
    if op.definition.flow == "enter":
        op = _beyond_identities(op.inputs[0]).op
    return op.attrs["value"] if op.definition.name == "Const" and op.attrs["value"].ndim == 0 else None


def _beyond_identities(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
