"""Fusing element-wise nodes: several of one shape become one unit, which reads and writes memory once.

A node joins the unit of its readers when the one unit has them all, nobody fetches the result, the shapes
agree (or it is a scalar), and no write of a variable that it reads stands between its place and the
unit's, which is the last node's. Such a value exists in registers only. The last node may be an assignment:
each element of the variable is written by whoever read it. Optimisers' updates stay alone, as their gradient
must be in memory to be checked and averaged; so does what draws numbers, and a copy, which is there to be
kept.

Fused or not, each operation rounds as it does alone: the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tensorbow.graph import Kernel
from tensorbow.kernels.scalars.expression import Scalar, symbol
from tensorbow.kernels.scalars.table import RULES
from tensorbow.ops.control import Copy
from tensorbow.ops.state import Assign, AssignAdd, AssignSub
from tensorbow.program.nodes import Node, Unit, Value, storage_of

ASSIGNMENTS = (Assign, AssignAdd, AssignSub)
MAX_INPUTS = 12  # of a unit: each costs registers, and all are live at once
MAX_NODES = 24


@dataclass(frozen=True)
class FusedMap:
    """What a fused unit computes of one element: its inputs by number, its one result.

    assigns: the result is not an output but the new value of input 0, a variable.
    """

    name: str
    result: Scalar
    assigns: bool = False


@dataclass(eq=False)
class _Draft:
    """A unit in the making; members in reverse order, the head first."""

    place: int  # of the head
    shape: tuple[int, ...]
    members: list[Node] = field(default_factory=list)
    inputs: set[Value] = field(default_factory=set)  # storages read from memory


def fuse_maps(
    nodes: Sequence[Node],
    kernel_of: Callable[[Node], Kernel],
    kernel_of_map: Callable[[FusedMap], Kernel],
    fuses: Callable[[Node], bool] = lambda node: True,
) -> list[Unit]:
    """The units of a segment, in the order of their last nodes; views cost nothing and vanish.

    kernel_of: the kernel of a node that stays alone. kernel_of_map: of what is fused, without its in-place
    rules. fuses: of a node that could be fused, whether the backend wants it so. Values must know their
    readers (`record_readers`), or nothing is fused.
    """
    ordered = [node for node in nodes if not node.definition.is_view]
    drafts = _drafts(ordered, fuses)
    units: list[Unit] = []
    for node in ordered:
        draft = drafts.get(node)
        if draft is None or len(draft.members) == 1:
            units.append(Unit((node,), kernel_of(node), node.inputs, node.outputs))
        elif node is draft.members[0]:
            units.append(_fused(draft, kernel_of_map))
    return units


def is_fusable(node: Node) -> bool:
    """Whether a node is a map without effects, of one result."""
    definition = node.definition
    return (
        definition in RULES
        and definition is not Copy
        and not (definition.writes or definition.state or definition.stateful or definition.alias)
        and len(node.outputs) == 1
    )


def _drafts(nodes: Sequence[Node], fuses: Callable[[Node], bool]) -> dict[Node, _Draft]:
    """From the last node to the first, so that all readers of a value have their units before it has."""
    writes = [frozenset(storage_of(node.inputs[i]) for i in node.definition.writes) for node in nodes]
    drafts: dict[Node, _Draft] = {}
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        assigns = node.definition in ASSIGNMENTS
        if not (assigns or is_fusable(node)) or not fuses(node):
            continue
        draft = None if assigns else _readers_draft(node, drafts)
        if draft is None or not _may_join(node, draft, frozenset().union(*writes[place : draft.place])):
            draft = _Draft(place, node.outputs[0].spec.extents)
        draft.members.append(node)
        draft.inputs.discard(node.outputs[0])
        draft.inputs.update(storage_of(value) for value in node.inputs)
        drafts[node] = draft
    return drafts


def _readers_draft(node: Node, drafts: dict[Node, _Draft]) -> _Draft | None:
    """The draft that has all readers of a node's result, if there is one."""
    result = node.outputs[0]
    if result.is_fetched or not result.readers:
        return None
    homes = {drafts.get(reader) for reader in result.readers}
    return homes.pop() if len(homes) == 1 else None


def _may_join(node: Node, draft: _Draft, written: frozenset[Value]) -> bool:
    """Whether the shapes, the limits and what is `written` on the way to the draft's place allow it."""
    result = node.outputs[0]
    reads = {storage_of(value) for value in node.inputs}
    views = (v for member in draft.members for v in member.inputs if storage_of(v) is result)
    return (
        result.spec.extents in (draft.shape, ())
        and all(view.spec.extents == result.spec.extents for view in views)
        and not reads & written
        and len(draft.members) < MAX_NODES
        and len((draft.inputs | reads) - {result}) <= MAX_INPUTS
    )


def _fused(draft: _Draft, kernel_of_map: Callable[[FusedMap], Kernel]) -> Unit:
    nodes = tuple(reversed(draft.members))
    head = nodes[-1]
    assigns = head.definition in ASSIGNMENTS
    inner: dict[Value, Scalar] = {}  # by storage
    inputs = head.inputs[:1] if assigns else []  # the variable first, where the head's `writes` look for it
    outside: dict[Value, Scalar] = {}

    def operand(value: Value) -> Scalar:
        made = inner.get(storage_of(value), outside.get(value))
        if made is None:
            made = outside[value] = symbol(len(inputs), value.spec.dtype)
            inputs.append(value)
        return made

    for node in nodes:
        if node is head and assigns:
            variable, value = node.inputs
            operands = [symbol(0, variable.spec.dtype), operand(value)]
        else:
            operands = [operand(value) for value in node.inputs]
        (inner[node.outputs[0]],) = RULES[node.definition](operands, node.attrs, {})
    result = head.outputs[0]
    alike = (result.spec.extents, result.spec.dtype)
    same = ((0, i) for i, value in enumerate(inputs) if (value.spec.extents, value.spec.dtype) == alike)
    kernel = replace(
        kernel_of_map(FusedMap(head.name, inner[result], assigns)),
        inplace=() if assigns else tuple(same),
        pointwise=assigns,
    )
    return Unit(nodes, kernel, inputs, [result])
