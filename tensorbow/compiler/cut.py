"""Cut: the segments of a list of nodes, between which replicas meet in exchanges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tensorbow.compiler.partition import Send
from tensorbow.errors import InvalidArgumentError
from tensorbow.ops.control import Copy
from tensorbow.program.nodes import Node, Value, storage_of
from tensorbow.program.plan import Region, SegmentKind

ORDER = (SegmentKind.REPLICA, SegmentKind.EXCHANGE, SegmentKind.MIRRORED)
EQUAL_STATE = ("mu", "share", "outer_rate")  # step scalars that are equal for all replicas
STATUS = "status"  # stands among the regions for the sticky status
VARIABLE_REGIONS = {Region.WEIGHTS, Region.SLOTS, Region.STATISTICS, Region.CENTRAL}


@dataclass
class SegmentNodes:
    """Nodes of one segment."""

    kind: SegmentKind
    nodes: list[Node]


@dataclass
class Mirrored:
    """Nodes that run once per device: they read only results of exchanges and mirrored variables."""

    nodes: set[Node] = field(default_factory=set)
    copies: dict[Node, list[Node]] = field(default_factory=dict)  # by exchange, what replicas hand to it

    def classify(self, node: Node) -> SegmentKind:
        """Kind of segment that a node runs in; records it if mirrored. Call in execution order.

        Raises InvalidArgumentError for a replica that writes a mirrored variable.
        """
        definition = node.definition
        if definition.exchange:
            self.nodes.add(node)
            return SegmentKind.EXCHANGE
        if definition is Copy:  # each replica's own
            return SegmentKind.REPLICA
        roots = [storage_of(value) for value in node.inputs]
        equal = [self._is_mirrored(root) for root in roots]
        known = all(each or root.constant is not None for each, root in zip(equal, roots, strict=True))
        own_state = not set(definition.state) <= set(EQUAL_STATE)
        per_replica = definition.random or own_state or (definition.stateful and not definition.writes)
        writes = [equal[index] for index in definition.writes]
        if any(equal) and known and not per_replica and all(writes):
            self.nodes.add(node)
            return SegmentKind.MIRRORED
        if any(writes):
            raise InvalidArgumentError(
                f"{node.name} ({definition.name}) writes a mirrored variable from a value that differs "
                f"between replicas; combine it first, as by all_sum (made at {node.source})"
            )
        return SegmentKind.REPLICA

    def holds(self, value: Value) -> bool:
        """True if a value is there once per device."""
        return self._is_mirrored(storage_of(value))

    def _is_mirrored(self, root: Value) -> bool:
        if root.ref is not None:
            return root.ref.region in (Region.CENTRAL, Region.RESULTS)
        return root.node in self.nodes


def cut(
    nodes: Sequence[Node], mirrored: Mirrored, stages: Mapping[Node, int] | None = None
) -> list[SegmentNodes]:
    """The segments that run one after the other: replicas, an exchange, mirrored nodes, replicas, and so on.

    Each node gets the earliest segment after the nodes whose results it reads, the earlier writers of each
    region of variables that it reads, and the earlier readers and writers of each region that it writes. So
    exchanges that are ready together are in one segment. A segment of rank r has the kind ORDER[r % 3].

    stages: of a replica with several parts, by node the stage of its part that it is in (see `partition`);
    a stage begins behind all segments of the one before, and what it sends is at its end.
    """
    ranks: dict[Node, int] = {}
    parts: dict[int, list[Node]] = {}
    stages, stage, floor = stages or {}, None, 0
    accessed: dict[Region | str, int] = {}  # by region, the last rank that reads or writes it,
    written: dict[Region | str, int] = {}  # and the last one that writes it
    for node in _with_copies(nodes, mirrored):
        kind = ORDER.index(mirrored.classify(node))
        reads, writes = _touched(node)
        if (own := stages.get(node, stage)) != stage:
            stage, floor = own, 0 if stage is None else max(ranks.values(), default=-1) + 1
        least = max(
            (
                floor if node.definition is not Send else max(ranks.values(), default=0),
                *(ranks.get(value.node, 0) for value in node.inputs if value.node is not None),
                *(written.get(region, 0) for region in reads),
                *(accessed.get(region, 0) for region in writes),
            )
        )
        rank = ranks[node] = least + (kind - least) % len(ORDER)  # the next one of the node's kind
        parts.setdefault(rank, []).append(node)
        for region in (*reads, *writes):
            accessed[region] = max(accessed.get(region, 0), rank)
        for region in writes:
            written[region] = max(written.get(region, 0), rank)
    return [SegmentNodes(ORDER[rank % len(ORDER)], parts[rank]) for rank in sorted(parts)]


def _with_copies(nodes: Sequence[Node], mirrored: Mirrored) -> Iterator[Node]:
    """The nodes, with a Copy before an exchange whose input has no storage of its own in the replica."""
    for node in nodes:
        if node.definition.exchange and node not in mirrored.copies:
            mirrored.copies[node] = []
            for index, value in enumerate(node.inputs):
                root = storage_of(value)
                handed = root.ref is not None and root.ref.region in (Region.EXCHANGE, Region.GRADIENTS)
                made = root.node is not None and root.ref is None
                if not handed and (not made or mirrored.holds(root)):
                    copy = Node(
                        f"{node.name}/copy", Copy, {}, [value], node.position, node.source, unfused=True
                    )
                    copy.outputs = [Value(value.name, value.spec, copy)]
                    mirrored.copies[node].append(copy)
                    node.inputs[index] = copy.outputs[0]
        yield from mirrored.copies.get(node, ())
        yield node


def _touched(node: Node) -> tuple[set[Region | str], set[Region | str]]:
    """Regions of variables that a node reads, and those that it writes."""
    definition = node.definition
    reads, writes = set[Region | str](), set[Region | str]()
    for index, value in enumerate(node.inputs):
        root = storage_of(value)
        if root.variable is not None:
            region = Region[root.variable.attrs["role"].upper()]
        elif root.ref is not None:
            region = root.ref.region
        else:
            continue
        (writes if index in definition.writes else reads).add(region)
    writes |= {value.ref.region for value in node.outputs if value.ref is not None}
    reads &= VARIABLE_REGIONS
    writes &= VARIABLE_REGIONS
    if definition.sets_status:
        writes.add(STATUS)
    elif STATUS in definition.state or definition.writes:
        reads.add(STATUS)
    return reads, writes
