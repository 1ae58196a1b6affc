"""Effects of ops besides their inputs and outputs, and the ops that may take long."""

from __future__ import annotations

from tensorbow.graph import Operation
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.ops.host_variables import VARIABLES
from tensorbow.queues.critical_section import MutexHandle, MutexLock, MutexUnlock


def touched(op: Operation) -> tuple[set[str], set[str]]:
    """The variables, by name, stacks, objects and critical sections that an op reads and writes.

    Executions of one section are in program order, as the writes in them are: otherwise one could hold the
    section and wait for a write of another one, which waits for the section.
    """
    reads, writes = set(), set()
    for index, tensor in enumerate(op.inputs):
        if tensor.op.definition in VARIABLES:
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
    elif op.definition is MutexLock or op.definition is MutexUnlock:
        writes.add(f"section {_section(op)}")
    return reads, writes


def _section(op: Operation) -> str:
    """The shared or own name of the critical section that an op enters or leaves."""
    while op.inputs and op.definition is not MutexHandle:
        op = op.inputs[0].op
    return op.attrs.get("shared_name") or op.name


def is_slow(op: Operation) -> bool:
    """True if an op waits, or may take so long that other ops run meanwhile."""
    return op.definition.asynchronous or op.definition.slow
