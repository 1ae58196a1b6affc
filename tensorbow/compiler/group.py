"""Group: cut a program into segments and let the backend fuse their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.control import CheckFinite
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import Node, Program, Unit, Value, record_readers, storage_of
from tensorbow.program.plan import Region

GRADIENT, UPDATE, STEP = "gradient", "update", "step"


@dataclass
class SegmentDraft:
    """A segment before its memory is planned."""

    name: str
    units: list[Unit]


def group(program: Program, backend: Backend, *, cut: bool, guard: Value | None) -> list[SegmentDraft]:
    """One segment, or with `cut` two; the second begins at the first write of a weight.

    Streams synchronise between the two: the second waits for z. A `guard` (the loss) is checked at the end of
    the first segment, and variables are written only if it is finite. Writes of other variables (counters)
    that come before the check move behind it, where no node reads or writes those variables meanwhile.

    Raises InvalidArgumentError for a guard that is computed after a weight is written.
    """
    nodes = program.nodes
    place = next((i for i, node in enumerate(nodes) if writes_weights(node)), len(nodes))
    if guard is not None and storage_of(guard).node in nodes[place:]:
        raise InvalidArgumentError(
            f"{guard.name} is computed after {nodes[place].name} has written a weight, so that it cannot be "
            f"checked before; build the loss before the update (made at {nodes[place].source})"
        )
    head, tail = nodes[:place], nodes[place:]
    if guard is not None:
        check = Node("check_loss", CheckFinite, {}, [guard], place)
        check.note = f"sets the status when {guard.name} is NaN or infinite"
        late = _postponable(head)
        for node in late:
            node.note = "put off until the loss has been checked"
        put_off = set(late)
        head = [*(node for node in head if node not in put_off), check]
        tail = [*late, *tail]
    record_readers([*head, *tail], program.fetches)
    parts = [(GRADIENT, head), (UPDATE, tail)] if cut else [(STEP, [*head, *tail])]
    return [SegmentDraft(name, backend.fuse(part)) for name, part in parts]


def _postponable(nodes: Sequence[Node]) -> list[Node]:
    """Writes that can move behind all `nodes`: no later node touches the variable that they write, or
    writes what they read.
    """
    late: list[Node] = []
    touched: set[Value] = set()  # by the nodes that stay; the walk goes backwards
    written: set[Value] = set()
    for node in reversed(nodes):
        reads = {storage_of(value) for value in node.inputs}
        writes = {storage_of(node.inputs[index]) for index in node.definition.writes}
        results = {storage_of(value) for value in node.outputs}
        if writes and not (writes | results) & touched and not reads & written:
            late.append(node)
        else:
            touched |= reads
            written |= writes
    return late[::-1]


def writes_weights(node: Node) -> bool:
    """True if a node writes a trainable variable."""
    for index in node.definition.writes:
        root = storage_of(node.inputs[index])
        if root.variable is not None and root.variable.attrs["role"] == Region.WEIGHTS.name.lower():
            return True
    return False
