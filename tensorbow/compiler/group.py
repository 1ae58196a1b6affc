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
    """One segment, or with `cut` two: up to the first write of a weight, and from there on.

    The second is where streams meet: it waits for z. A `guard` (the loss) is checked at the end of
    the first: writes of variables are skipped while it is not finite. Writes of other variables, such as
    counters, that come before it are put off until after the check where nothing reads them meanwhile.

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
    """The writes that may just as well come after all `nodes`: what they write is not touched behind them,
    and what they read is not written there.
    """
    late: list[Node] = []
    touched: set[Value] = set()  # by the nodes that stay, from the end on
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
    """Whether a node changes a trainable variable."""
    for index in node.definition.writes:
        root = storage_of(node.inputs[index])
        if root.variable is not None and root.variable.attrs["role"] == Region.WEIGHTS.name.lower():
            return True
    return False
