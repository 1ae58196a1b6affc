"""Prune: keep only what the fetches need (TensorFlow white paper, section 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tensorbow.graph import Operation, Tensor
from tensorbow.program.nodes import Program


def prune(targets: Iterable[Operation], fed: Collection[Tensor]) -> list[Operation]:
    """Operations that `targets` need, in program order.

    Walks back over inputs and control inputs, and stops at fed tensors.
    """
    needed: set[Operation] = set()
    pending = list(targets)
    while pending:
        op = pending.pop()
        if op in needed:
            continue
        needed.add(op)
        pending.extend(t.op for t in op.inputs if t not in fed)
        pending.extend(op.control_inputs)
    return sorted(needed, key=lambda op: op.id)


def drop_unused(program: Program) -> Program:
    """Removes nodes without effects that are not targets and whose results nothing reads."""
    wanted = set(program.fetches)
    kept = []
    for node in reversed(program.nodes):
        needed = node.definition.stateful or node.is_target
        if needed or any(v in wanted for v in node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    program.nodes = kept[::-1]
    return program
