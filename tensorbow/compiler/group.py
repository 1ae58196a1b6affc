"""Group: cut a program into segments and let the backend fuse their nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from tensorbow.compiler.cut import Mirrored, SegmentNodes, cut
from tensorbow.compiler.partition import SEND_KERNEL, Send
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.control import CheckFinite
from tensorbow.program.backend import Backend
from tensorbow.program.nodes import (
    Node,
    Program,
    Rewriting,
    SplitStep,
    Unit,
    Value,
    record_readers,
    storage_of,
    writes_weights,
)
from tensorbow.program.plan import SegmentKind

GRADIENT, STEP = "gradient", "step"


@dataclass
class SegmentDraft:
    """A segment before its memory is planned. predicated: writes only while the status is not set."""

    name: str
    units: list[Unit]
    kind: SegmentKind = SegmentKind.REPLICA
    predicated: bool = False
    fetches: bool = False
    receives: tuple[
        str, ...
    ] = ()  # inputs that are sent to it and copied into the slab before, see `partition`


def group(
    program: Program, backend: Backend, *, rewriting: Rewriting | None = None, guard: Value | None = None
) -> tuple[list[SegmentDraft], dict[str, tuple[int, ...]]]:
    """The segments, and by name of a variant those that it runs: all of them in one, without a rewriting.

    With a rewriting the step is cut before the first write of a weight, for averaging has to wait there, and
    at exchanges. A `guard` (the loss) is checked at the end of the gradient, and variables are written only
    if it is finite. Writes of other variables (counters) that come before the check move behind it, where no
    node reads or writes those variables meanwhile.

    Raises InvalidArgumentError for a guard that is computed after a weight is written.
    """
    step = split(program, guard, hoists=rewriting is not None)
    if rewriting is None:
        nodes = [*step.gradient, *step.update]
        record_readers(nodes, program.fetches)
        return [SegmentDraft(STEP, backend.fuse(nodes), predicated=step.guarded, fetches=True)], {STEP: (0,)}
    return group_variants(step, program.fetches, backend, rewriting)


def group_variants(
    step: SplitStep,
    fetches: Sequence[Value],
    backend: Backend,
    rewriting: Rewriting,
    stages: Mapping[Node, int] | None = None,
) -> tuple[list[SegmentDraft], dict[str, tuple[int, ...]]]:
    """The segments of a step's variants; see `group`, and `cut` for `stages`."""
    variants = rewriting(step)
    mirrored = Mirrored()
    whole = [(GRADIENT, step.gradient), *((variant.name, variant.nodes) for variant in variants)]
    cuts = [(name, cut(nodes, mirrored, stages)) for name, nodes in whole]
    cuts[0] = GRADIENT, cuts[0][1] or [SegmentNodes(SegmentKind.REPLICA, [])]
    fetched = {storage_of(value).node for value in fetches}
    for variant, (_, parts) in zip(variants, cuts[1:], strict=True):
        run = [*cuts[0][1], *parts]
        behind = takewhile(lambda part: part.kind is not SegmentKind.REPLICA, reversed(run))
        if not variant.without_gradient and any(not fetched.isdisjoint(part.nodes) for part in behind):
            parts.append(SegmentNodes(SegmentKind.REPLICA, []))
    cut_nodes = (node for _, parts in cuts for part in parts for node in part.nodes)
    record_readers(dict.fromkeys(cut_nodes), fetches)
    drafts: list[SegmentDraft] = []
    indices: list[tuple[int, ...]] = []  # of each cut's segments
    for name, parts in cuts:
        first = len(drafts)
        for part in parts:
            units = units_of(part.nodes, backend)
            title = name if part.kind is SegmentKind.REPLICA else f"{name}: {part.kind.value}"
            drafts.append(SegmentDraft(title, units, part.kind))
        indices.append(tuple(range(first, len(drafts))))
    runs: dict[str, tuple[int, ...]] = {}
    for variant, own in zip(variants, indices[1:], strict=True):
        runs[variant.name] = own if variant.without_gradient else indices[0] + own
        for index in own:
            drafts[index].predicated = variant.predicated and drafts[index].kind is SegmentKind.REPLICA
        if not variant.without_gradient:
            ends = [p for p in runs[variant.name] if drafts[p].kind is SegmentKind.REPLICA]
            drafts[ends[-1]].fetches = True
    return drafts, runs


def units_of(nodes: Sequence[Node], backend: Backend) -> list[Unit]:
    """Units of the backend: neighbouring nodes, fused where the backend can, and `unfused` nodes alone.

    Sends come last.
    """
    kept = enumerate(node for node in nodes if node.definition is not Send)
    runs = groupby(kept, key=lambda pair: pair[0] if pair[1].unfused else None)
    sends = [Unit((node,), SEND_KERNEL, node.inputs, []) for node in nodes if node.definition is Send]
    return [*(unit for _, run in runs for unit in backend.fuse([node for _, node in run])), *sends]


def split(program: Program, guard: Value | None, hoists: bool) -> SplitStep:
    """A program's nodes before the first write of a weight, and from it on.

    hoists: what is computed later, but depends on nothing that is written, comes before, so that the
    gradients of several losses are checked before any variable is written.
    """
    nodes = program.nodes
    first = next((i for i, node in enumerate(nodes) if writes_weights(node)), len(nodes))
    early, tail = _hoisted(nodes[first:]) if hoists else ([], nodes[first:])
    head = [*nodes[:first], *early]
    if guard is not None and storage_of(guard).node in tail:
        raise InvalidArgumentError(
            f"{guard.name} is computed after {nodes[first].name} has written a weight, so that it cannot be "
            f"checked before; build the loss before the update (made at {nodes[first].source})"
        )
    if guard is not None:
        check = Node("check_loss", CheckFinite, {}, [guard], first)
        check.note = f"sets the status when {guard.name} is NaN or infinite"
        late = _postponable(head)
        for node in late:
            node.note = "put off until the loss has been checked"
        put_off = set(late)
        head = [*(node for node in head if node not in put_off), check]
        tail = [*late, *tail]
    return SplitStep(head, tail, guard is not None)


def _hoisted(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Nodes without effects that depend on no other node, and the others."""
    early, late = list[Node](), list[Node]()
    written = set[Value]()
    stay = set[Node]()
    for node in nodes:
        roots = {storage_of(value) for value in node.inputs}
        depends = any(value.node in stay for value in (*node.inputs, *roots))
        if node.definition.stateful or node.definition.writes or depends or roots & written:
            late.append(node)
            stay.add(node)
            written |= {storage_of(node.inputs[index]) for index in node.definition.writes}
        else:
            early.append(node)
    return early, late


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
