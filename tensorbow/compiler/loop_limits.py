"""The most iterations of a loop that counts to a limit."""

from __future__ import annotations

from collections.abc import Mapping

from tensorbow.compiler.wholes import WholeLoop
from tensorbow.graph import Tensor, is_free
from tensorbow.ops.elementwise_table import Minimum
from tensorbow.program.nodes import Value

COMPARISONS = {"Less": 1, "LessEqual": 1, "Greater": -1, "GreaterEqual": -1}
UNKNOWN = -1  # number of iterations of a loop that counts to a limit


def limit_of(loop: WholeLoop, values: Mapping[Tensor, Value]) -> int | None:
    """The most iterations of a loop that counts to a limit; UNKNOWN if the limit has no known bound.

    values: of tensors outside of the loop; a limit may be the minimum of a constant and of something else.
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
                count = _count(loop, counter, limit, way, values)
                if count is not None and count != UNKNOWN:
                    count += op.type.endswith("Equal")
                if count is not None and (found is None or found == UNKNOWN or 0 <= count < found):
                    found = count
    return found


def _count(
    loop: WholeLoop, counter: Tensor, limit: Tensor, way: int, values: Mapping[Tensor, Value]
) -> int | None:
    """Iterations until a counter reaches a limit; None if it is no counter, or goes the other way."""
    merge = _beyond_identities(counter).op
    if merge not in loop.merges or counter.dtype.is_floating or not _is_constant(loop, limit):
        return None
    following = _beyond_identities(merge.inputs[1].op.inputs[0]).op
    if following.type not in ("Add", "Sub"):
        return None
    operands = list(following.inputs)
    if following.type == "Add" and _known(operands[0], values) is not None:
        operands.reverse()
    step = _known(operands[1], values)
    switch = _beyond_identities(operands[0]).op
    if step is None or switch.definition.flow != "switch" or switch.inputs[0].op is not merge:
        return None
    each = (step if following.type == "Add" else -step) * way
    if each <= 0:
        return None
    start, end = _known(merge.inputs[0].op.inputs[0], values), _known(limit, values, at_most=way > 0)
    if start is None or end is None:
        return UNKNOWN
    return max(0, -(-(end - start) * way // each))


def _is_constant(loop: WholeLoop, tensor: Tensor) -> bool:
    op = _beyond_identities(tensor).op
    return is_free(op) or (
        op.definition.flow == "enter" and bool(op.attrs["is_constant"]) and op in loop.enters
    )


def _known(tensor: Tensor, values: Mapping[Tensor, Value], at_most: bool = False) -> int | None:
    """The value of a scalar, or with `at_most` a bound of it, where that is known."""
    tensor = _beyond_identities(tensor)
    if tensor.op.definition.flow == "enter":
        tensor = _beyond_identities(tensor.op.inputs[0])
    if tensor.op.definition.name == "Const":
        array = tensor.op.attrs["value"]
        return int(array) if array.ndim == 0 else None
    value = values.get(tensor)
    if value is None:
        return None
    node = value.node
    sources = node.inputs if at_most and node is not None and node.definition is Minimum else [value]
    constants = [source.constant for source in sources]
    return min((int(array) for array in constants if array is not None and array.ndim == 0), default=None)


def _beyond_identities(tensor: Tensor) -> Tensor:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
