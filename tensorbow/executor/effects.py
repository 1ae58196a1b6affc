"""Effects of ops besides their inputs and outputs, and the ops that may take long."""

from __future__ import annotations

from tensorbow.graph import Operation
from tensorbow.ops.control_flow import StackPop, StackPush


def touched(op: Operation) -> tuple[set[str], set[str]]:
    """The variables, by name, stacks and objects that an op reads and writes."""
    reads, writes = set(), set()
    for index, tensor in enumerate(op.inputs):
        if tensor.op.definition.name == "Variable":
            if index in op.definition.writes:
                writes.add(tensor.op.name)
            else:
                reads.add(tensor.op.name)
    if op.definition is StackPush:
        writes.add(f"stack {op.name}")
    elif op.definition is StackPop:
        reads.add(f"stack {op.attrs['push']}")
    elif op.definition.changes and op.attrs[op.definition.changes] is not None:
        writes.add(f"object {id(op.attrs[op.definition.changes])}")
    return reads, writes


def is_slow(op: Operation) -> bool:
    """True if an op waits, or may take so long that other ops run meanwhile."""
    return op.definition.asynchronous or op.definition.slow
