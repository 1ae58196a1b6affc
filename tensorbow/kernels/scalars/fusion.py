"""Fusion of element-wise nodes of one shape into units that read and write memory once.

A node joins the unit of its readers if one unit contains all of them, the result is not fetched, the shapes
agree (or it is a scalar), and no variable that it reads is written between its position and the
unit's, which is the last node's. Its result then exists in registers only. The last node may be an
assignment: an element of the variable is read before it is written. Optimisers' updates are not fused, as
their gradient must be in memory to be checked and averaged; nor are random ops, nor copies, whose purpose
is to keep a value.

Each operation is rounded as without fusion: the bits stay the same.
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
MAX_INPUTS = 12  # per unit: each input needs registers, and all are live at once
MAX_NODES = 24


@dataclass(frozen=True)
class FusedMap:
    """Scalar expression of a fused unit for one element: its inputs by number, its one result.

    assigns: the result is not an output but the new value of input 0, a variable.
    """

    name: str
    result: Scalar
    assigns: bool = False


@dataclass(eq=False)
class _Draft:
    """A unit under construction; nodes in reverse order, the head first."""

    index: int  # of the head
    shape: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)
    inputs: set[Value] = field(default_factory=set)  # storages read from memory


def fuse_maps(
    nodes: Sequence[Node],
    kernel_of: Callable[[Node], Kernel],
    kernel_of_map: Callable[[FusedMap], Kernel],
    joins: Callable[[Node], bool] = lambda node: True,
    begins: Callable[[Node], bool] = lambda node: True,
) -> list[Unit]:
    """The units of a segment, in the order of their last nodes; views have no kernel and get none.

    kernel_of: makes the kernel of a node that is not fused. kernel_of_map: makes that of a fused unit,
    without in-place rules. joins: nodes that may be fused; begins: those that may be a unit's last. Values
    must know their readers (`record_readers`), or nothing is fused.
    """
    ordered = [node for node in nodes if not node.definition.is_view]
    drafts = _drafts(ordered, joins, begins)
    units: list[Unit] = []
    for node in ordered:
        draft = drafts.get(node)
        if draft is None or len(draft.nodes) == 1:
            units.append(Unit((node,), kernel_of(node), node.inputs, node.outputs))
        elif node is draft.nodes[0]:
            units.append(_fused(draft, kernel_of_map))
    return units


def is_fusable(node: Node) -> bool:
    """True if a node is a map without effects and with one result."""
    definition = node.definition
    return (
        definition in RULES
        and definition is not Copy
        and not (definition.writes or definition.state or definition.stateful or definition.alias)
        and len(node.outputs) == 1
    )


def _drafts(
    nodes: Sequence[Node], joins: Callable[[Node], bool], begins: Callable[[Node], bool]
) -> dict[Node, _Draft]:
    """Drafts by node, built from the last node to the first: a value's readers come before it."""
    writes = [frozenset(storage_of(node.inputs[i]) for i in node.definition.writes) for node in nodes]
    drafts: dict[Node, _Draft] = {}
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        assigns = node.definition in ASSIGNMENTS
        if not (assigns or is_fusable(node)) or not joins(node):
            continue
        draft = None if assigns else _readers_draft(node, drafts)
        if draft is None or not _may_join(node, draft, frozenset().union(*writes[index : draft.index])):
            if not begins(node):
                continue
            draft = _Draft(index, node.outputs[0].spec.extents)
        draft.nodes.append(node)
        draft.inputs.discard(node.outputs[0])
        draft.inputs.update(storage_of(value) for value in node.inputs)
        drafts[node] = draft
    return drafts


def _readers_draft(node: Node, drafts: dict[Node, _Draft]) -> _Draft | None:
    """The draft that contains all readers of a node's result, or None."""
    result = node.outputs[0]
    if result.is_fetched or not result.readers:
        return None
    homes = {drafts.get(reader) for reader in result.readers}
    return homes.pop() if len(homes) == 1 else None


def _may_join(node: Node, draft: _Draft, written: frozenset[Value]) -> bool:
    """True if shapes, limits and the variables `written` before the draft's head allow the node to join."""
    result = node.outputs[0]
    reads = {storage_of(value) for value in node.inputs}
    views = (v for member in draft.nodes for v in member.inputs if storage_of(v) is result)
    return (
        result.spec.extents in (draft.shape, ())
        and all(view.spec.extents == result.spec.extents for view in views)
        and not reads & written
        and len(draft.nodes) < MAX_NODES
        and len((draft.inputs | reads) - {result}) <= MAX_INPUTS
    )


def _fused(draft: _Draft, kernel_of_map: Callable[[FusedMap], Kernel]) -> Unit:
    nodes = tuple(reversed(draft.nodes))
    head = nodes[-1]
    assigns = head.definition in ASSIGNMENTS
    inner: dict[Value, Scalar] = {}  # by storage
    inputs = head.inputs[:1] if assigns else []  # the variable first: the head's `writes` are indices
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
