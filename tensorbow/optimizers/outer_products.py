"""Warning of a loss that subtracts [batch] and [batch, 1], which broadcast to [batch, batch]."""

from __future__ import annotations

from tensorbow.graph import Operation, Tensor, warn_at_user_line

_MEANT = (
    "ExpandDims",
    "Reshape",
    "Sum",
    "Mean",
    "Max",
    "Min",
    "Transpose",
)  # pairs of all examples are wanted


def warn_of_outer_products(loss: Tensor) -> None:
    """Warns of the first difference of [batch] and [batch, 1] on the way to a loss.

    Both depend on what is fed; an axis of 1 that the program has made itself is taken as meant.
    """
    needed: set[Operation] = set()
    pending = [loss.op]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending.extend(tensor.op for tensor in op.inputs)
    fed: set[Operation] = set()
    for op in sorted(needed, key=lambda each: each.id):
        if op.type == "Placeholder" or any(tensor.op in fed for tensor in op.inputs):
            fed.add(op)
        if op.type != "Sub" or not all(tensor.op in fed for tensor in op.inputs):
            continue
        flat, column = sorted(op.inputs, key=lambda each: len(each.spec.shape or ()))
        dims = flat.spec.shape
        is_pair = dims is not None and len(dims) == 1 and column.spec.shape == (*dims, 1)
        if is_pair and dims != (1,) and column.op.type not in _MEANT:
            warn_at_user_line(
                f"the loss compares each example with all others: {op.type} broadcasts {flat.spec} and "
                f"{column.spec} to {op.outputs[0].spec}; give both one shape, as x[:, 0], or make the axis "
                f"by tb.expand_dims if that is meant (made at {op.source})"
            )
            return
