"""Prune: keep only what the fetches need (TensorFlow white paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.program.nodes import Program


def prune(
    targets: Iterable[Operation], fed: Collection[Tensor], within: Collection[Operation] | None = None
) -> list[Operation]:
    """Operations that `targets` need, in program order.

    Walks back over inputs and control inputs, and stops at fed tensors. within: operations beyond which it
    does not go, constants and references of variables apart. Raises InvalidArgumentError for an operation
    that no step computes.
    """
    needed: set[Operation] = set()
    pending = list(targets)
    while pending:
        op = pending.pop()
        if op in needed or (within is not None and op not in within and not is_free(op)):
            continue
        if op.definition.fetched is not None:
            raise InvalidArgumentError(
                f"{op.type} {op.name} is made when it is fetched: fetch its tensor, and let no operation "
                f"but a merge of summaries read it or wait for it (made at {op.source})"
            )
        needed.add(op)
        for tensor in op.inputs:
            if tensor not in fed:
                pending.append(tensor.op)
        pending += op.control_inputs
        if "push" in op.attrs:  # a StackPop, whose value another loop keeps
            pending.append(op.graph.get_operation_by_name(op.attrs["push"]))
    return sorted(needed, key=lambda op: op.id)


def needed_for(
    elements: Iterable[Tensor | Operation],
    fed: Collection[Tensor],
    within: Collection[Operation] | None = None,
) -> list[Operation]:
    """Operations that fetches need, in program order: `prune` for those that are not fed."""
    return prune([e if isinstance(e, Operation) else e.op for e in elements if e not in fed], fed, within)


def drop_unused(program: Program) -> Program:
    """Removes nodes without effects that are not targets and whose results nothing reads."""
    wanted = set(program.fetches)
    kept = []
    for node in reversed(program.nodes):
        needed = node.definition.stateful or node.is_target
        if needed or any(v in wanted for v in node.outputs):
            wanted.update(node.reads)
            kept.append(node)
    program.nodes = kept[::-1]
    return program
