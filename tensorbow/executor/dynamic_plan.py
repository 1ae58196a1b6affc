"""Dynamic plan: a pruned graph cut into sequences, slow ops of the host and ops of control flow.

A sequence is a maximal set of quick ops that run together: of one frame, under the same conditions, behind
the same slow ops, with no other op between them. Loops and conds of quick ops are quick, too (see `units`).
In a sequence static ops are regions, which are compiled like planned steps when they run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tensorbow.compiler.wholes import chains_of, wholes_in
from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InvalidArgumentError
from tensorbow.executor.make_sequence import StepGraph, free_value, make_sequence
from tensorbow.executor.op_levels import OpLevels
from tensorbow.executor.op_places import OpPlaces, is_back_edge
from tensorbow.executor.plan_nodes import ChainLink, DynamicNode, Frame, NodeKind
from tensorbow.executor.units import Excluded, Item, Units, WholeUnit, is_quick, partners_among
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.ops.state import ReadVariable, VariableReference
from tensorbow.specs import Array

VARIABLE: Any = object()  # stands for the value of a fetched variable, which is read when the step has ended
_KINDS = {
    "": NodeKind.HOST,
    "switch": NodeKind.SWITCH,
    "enter": NodeKind.ENTER,
    "exit": NodeKind.EXIT,
    "next_iteration": NodeKind.NEXT,
    "loop_condition": NodeKind.PASS,
    "send": NodeKind.SEND,
    "receive": NodeKind.HOST,
}


class DynamicPlan:
    """The nodes of a step in dynamic mode, made once for its fetches and fed tensors."""

    def __init__(
        self,
        elements: Sequence[Tensor | Operation],
        fed: Collection[Tensor],
        needed: Sequence[Operation],
        reason: str,
        compiles_loops: bool = True,
        repeats_reads: bool = False,
    ):
        """reason: why the step is not planned. needed: the pruned operations, in program order.
        compiles_loops: regions may have loops and conds. repeats_reads: nobody else writes the step's
        variables, so that each region may read them itself.

        Raises InvalidArgumentError for fetches and feeds in a loop, and tensors read in the wrong frame.
        """
        self.elements = tuple(elements)
        self.reason = reason
        self._fed = set(fed)
        self._ops = [op for op in needed if not is_free(op) and not self._is_fed(op)]
        self._included = set(self._ops)
        self._nodes: dict[Operation, DynamicNode] = {}
        wholes = wholes_in(self._ops)
        self._chains = chains_of(self._ops, wholes)
        wanted = frozenset(each for each in elements if isinstance(each, Tensor))
        self._repeated = self._repeated_reads(wanted) if repeats_reads else frozenset[Operation]()
        self._graph = StepGraph(
            frozenset(self._ops),
            frozenset(self._fed),
            wanted,
            wholes,
            compiles_loops,
            partners_among(self._ops),
            self._repeated,
        )
        self.sources: list[tuple[Tensor, list[tuple[DynamicNode, int]]]] = []  # readers of fed tensors
        self.results: list[tuple[DynamicNode, int] | Tensor | None] = []  # of the elements
        self.wanted: dict[DynamicNode, list[int]] = {}  # outputs that are results, by node
        self.moves = False  # True if it has nodes of control flow
        self._check_feeds()
        self._excluded: set[Excluded] = set()
        self._loose: set[Excluded] = set()  # what cannot be with others that it is better with
        self._tries = 0  # that failed; each lets twice as many items be apart
        while not self._arrange():
            pass
        self._make_nodes()
        self._connect()
        self.chain = self._chain()

    def _chain(self) -> Sequence[ChainLink] | None:
        """The nodes of the step, if each of them waits for the one before: sequences and asynchronous ops."""
        chain: list[DynamicNode] = []
        waits = {node: node.waits for frame in self.frames for node in frame.nodes}
        if not all(node.frame is self.root and node.may_be_chained for node in waits):
            return None
        for _, readers in self.sources:
            for node, _ in readers:
                waits[node] -= 1
        while len(chain) < len(waits):
            ready = [node for node, count in waits.items() if count == 0 and node not in chain]
            if len(ready) != 1:
                return None
            chain += ready
            for node in chain[-1].after:
                waits[node] -= 1
        return [ChainLink.of(node) for node in chain]

    @staticmethod
    def given(result: Tensor | None, feeds: Mapping[Tensor, Array]) -> Any:
        """The value of an element that no node makes: fed, constant, `VARIABLE`, or None of an operation."""
        if result is None:
            return None
        if result in feeds:
            return feeds[result]
        return result.op.attrs["value"] if result.op.definition.name == "Const" else VARIABLE

    def _arrange(self) -> bool:
        """Gives each op its frame, conditions and level; False if another try is needed."""
        self._units = Units(
            self._ops,
            self._chains,
            self._included,
            self._fed,
            self.elements,
            self._excluded,
            is_quick,
            in_sequences=True,
        )
        clusters = [
            [item for item in each if not self._loose.intersection(Units.left_out([item]))]
            for each in self._units.clusters
        ]
        cluster_of = {item: number for number, each in enumerate(clusters) for item in each}
        self._places = OpPlaces(self._units, self._included, self._fed, cluster_of)
        levels = OpLevels(self._units, self._places, cluster_of)
        self._before = levels.before
        rising = levels.set_levels()
        if rising is not None:
            if not clusters:
                names = ", ".join(frame.name for frame in self._places.frames.values())
                raise InvalidArgumentError(f"loops wait for each other's results: {names[:300]}")
            numbers = [cluster_of[item] for item in self._units.items if item in cluster_of]
            found = [number for number in dict.fromkeys(numbers) if number in rising] or numbers[:1]
            self._tries += 1
            return self._separate([clusters[number] for number in found[: 2**self._tries]])
        split = [each for each in clusters if len({self._places.of(item).key for item in each}) > 1]
        return self._separate(split)

    def _separate(self, clusters: Sequence[Sequence[Item]]) -> bool:
        """Lets the items of clusters be apart, from the next try on; True if there are none."""
        items = [item for cluster in clusters for item in cluster]
        hard = [item for item in items if item in self._units.hard]
        self._excluded |= Units.left_out(hard)
        self._loose |= Units.left_out(items)
        return not items

    def _repeated_reads(self, wanted: Collection[Tensor]) -> frozenset[Operation]:
        """Reads of variables that the step does not write, whose values regions alone take."""
        written = {op.inputs[index].op for op in self._ops for index in op.definition.writes}
        awaited = {control for op in self._ops for control in op.control_inputs}
        return frozenset(
            op
            for op in self._ops
            if op.definition is ReadVariable
            and op.inputs[0].op.definition is VariableReference
            and op.inputs[0].op not in written
            and not op.control_inputs
            and op not in awaited
            and op.outputs[0] not in wanted
            and all(
                reader.definition.host is None and not reader.definition.flow and not reader.has_strings
                for reader in op.outputs[0].consumers()
                if reader in self._included
            )
        )

    def _is_fed(self, op: Operation) -> bool:
        """True for a fed placeholder that something waits for: its value is there."""
        return op.definition.name == "Placeholder" and op.outputs[0] in self._fed

    def _check_feeds(self) -> None:
        for tensor in self._fed:
            context = tensor.op.context
            if context is not None and any(isinstance(each, LoopContext) for each in context.chain()):
                raise InvalidArgumentError(
                    f"feed {tensor.name}: it is in a tb.while_loop, with a value in each iteration; feed "
                    f"what enters the loop (made at {tensor.op.source})"
                )

    @property
    def root(self) -> Frame:
        """The outermost frame."""
        return self._places.root

    @property
    def frames(self) -> list[Frame]:
        """All frames, the outermost first."""
        return [self.root, *self._places.frames.values()]

    # Nodes ------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        members: dict[tuple[object, ...], list[Item]] = {}
        for item in self._units.items:
            place = self._places.of(item)
            if isinstance(item, WholeUnit) or not self._units.is_dynamic(item):
                members.setdefault(place.key, []).append(item)
                continue
            target = self._places.target(item)
            node = DynamicNode(_kind(item), item.name, place.frame, target, len(item.outputs), op=item)
            node.slow = item.definition.slow
            self._order_iterations(node, [item])
            self._nodes[item] = node
        for items in members.values():
            own = {op for item in items for op in (item.ops if isinstance(item, WholeUnit) else [item])}
            own -= self._repeated
            own |= {tensor.op for op in own for tensor in op.inputs if tensor.op in self._repeated}
            if not own:
                continue
            ops = sorted(own, key=lambda op: op.id)
            inputs, outputs, sequence = make_sequence(ops, self._graph)
            frame = self._places.of(items[0]).frame
            node = DynamicNode(
                NodeKind.SEQUENCE,
                ops[0].name,
                frame,
                frame,
                len(outputs),
                sequence=sequence,
                inputs=inputs,
                made=outputs,
            )
            node.slow = sequence.may_be_long
            self._order_iterations(node, ops)
            self._nodes.update(dict.fromkeys(ops, node))

    def _order_iterations(self, node: DynamicNode, ops: Sequence[Operation]) -> None:
        """Lets a node with effects run in the order of iterations."""
        if node.frame is not self.root and any(map(_has_effects, ops)):
            node.ordered = True
            node.frame.ordered.append(node)

    # Edges ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        fed: dict[Tensor, list[tuple[DynamicNode, int]]] = {}
        for node in dict.fromkeys(self._nodes.values()):
            inputs, frame = node.inputs, node.frame
            node.first, node.count = frame.slots, len(inputs)
            node.blank = [None] * node.count
            if node.kind is NodeKind.PASS:  # a loop's Merge gets one of its inputs in each iteration
                node.count = 1
            frame.slots += node.count
            for number, tensor in enumerate(inputs):
                slot = node.first + (0 if node.kind is NodeKind.PASS else number)
                if tensor in self._fed:
                    fed.setdefault(tensor, []).append((node, slot))
                elif is_free(tensor.op):
                    frame.constants.append((slot, free_value(tensor, node.name)))
                    continue
                else:
                    source = self._nodes[tensor.op]
                    source.readers[self._output_of(tensor)].append((node, slot))
                if node.kind is not NodeKind.PASS or number == 0:
                    node.waits += 1
        self.sources = list(fed.items())
        for frame in self.frames:
            for node in frame.nodes:
                self._count_enters(node)
        self._connect_controls()
        self.results = [self._result(element) for element in self.elements]
        self.wanted = {}
        for node, output in {result for result in self.results if isinstance(result, tuple)}:
            node.fetched = True
            self.wanted.setdefault(node, []).append(output)
        plain = (NodeKind.SEQUENCE, NodeKind.HOST, NodeKind.SEND)
        self.moves = any(node.kind not in plain for frame in self.frames for node in frame.nodes)

    def _node_of(self, item: Item) -> DynamicNode:
        return self._nodes[item.ops[0] if isinstance(item, WholeUnit) else item]

    def _output_of(self, tensor: Tensor) -> int:
        node = self._nodes[tensor.op]
        return tensor.index if node.op is not None else node.made.index(tensor)

    def _count_enters(self, node: DynamicNode) -> None:
        if node.kind is NodeKind.ENTER:
            node.target.enters += 1
        elif node.kind is NodeKind.EXIT:
            node.frame.exits.append(node)

    def _connect_controls(self) -> None:
        ordered: set[tuple[DynamicNode, DynamicNode]] = set()
        for op in self._ops:
            node = self._nodes[op]
            for control in op.control_inputs:
                if control not in self._included or is_back_edge(control):
                    continue
                source = self._nodes[control]
                if source is not node and (source, node) not in ordered:
                    ordered.add((source, node))
                    source.controls.append(node)
                    node.waits += 1
        for item, before in self._before.items():
            node = self._node_of(item)
            for other in before:
                source = self._done(other) if isinstance(other, Frame) else self._node_of(other)
                if source is not node and (source, node) not in ordered:
                    ordered.add((source, node))
                    source.followers.append(node)
                    node.waits += 1

    def _done(self, frame: Frame) -> DynamicNode:
        if frame.done is None:
            around = frame.parent or self.root
            frame.done = DynamicNode(NodeKind.DONE, f"end of {frame.name}", around, around, 0, waits=1)
        return frame.done

    def _result(self, element: Tensor | Operation) -> tuple[DynamicNode, int] | Tensor | None:
        """The node and output of a fetched tensor; the tensor itself if it is fed, constant or a variable."""
        op = element if isinstance(element, Operation) else element.op
        if isinstance(element, Tensor) and (element in self._fed or is_free(op)):
            return element
        if op not in self._included:
            return None
        where = self._places.target(op)
        if isinstance(element, Operation):
            where = self._places.of(self._units.of(op)).frame
        if where is not self.root:
            raise InvalidArgumentError(
                f"fetch {element.name}: it is in the loop {where.name}, with a value in each iteration; "
                f"return it from the body and fetch the loop's result (made at {op.source})"
            )
        if isinstance(element, Operation):
            return None
        return self._nodes[op], self._output_of(element)


def _kind(op: Operation) -> NodeKind:
    flow = op.definition.flow
    if flow == "merge":
        loops = any(is_back_edge(t.op) for t in op.inputs)
        return NodeKind.PASS if loops else NodeKind.MERGE
    return _KINDS[flow]


def _has_effects(op: Operation) -> bool:
    """True if an op runs in the order of the iterations of the loops around it."""
    definition = op.definition
    if definition.flow:
        return False
    return bool(definition.stateful or definition.random or definition.writes) and definition.name not in (
        "StackPush",
        "StackPop",
        "NoOp",
        "CheckFinite",
    )
