"""Dynamic plan: a pruned graph cut into sequences, slow ops of the host and ops of control flow.

A sequence is a maximal set of quick ops that run together: of one frame, under the same conditions, behind
the same slow ops, with no other op between them. Loops and conds of quick ops are quick, too (see `units`).
In a sequence static ops are regions, which are compiled like planned steps when they run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tensorbow.compiler.wholes import around, wholes_in
from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InvalidArgumentError
from tensorbow.executor.effects import touched
from tensorbow.executor.make_sequence import StepGraph, make_sequence
from tensorbow.executor.sequence import OpSequence, usual_output
from tensorbow.executor.units import Excluded, Item, Units, WholeUnit, is_quick, partners_among
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.specs import Array


class NodeKind(IntEnum):
    """How the executor runs a node."""

    SEQUENCE = 0
    HOST = 1  # a slow op
    SWITCH = 2
    MERGE = 3  # of branches: takes the input that is not dead
    PASS = 4  # hands its input on
    ENTER = 5
    EXIT = 6
    NEXT = 7
    DONE = 8  # runs when a frame has ended
    SEND = 9  # its function runs also for a dead input


@dataclass(eq=False)
class Frame:
    """A loop of the plan, or with parent None all that is in none."""

    name: str
    parent: Frame | None
    parallel_iterations: int = 1
    nodes: list[DynamicNode] = field(default_factory=list)
    slots: int = 0  # input values of its nodes
    enters: int = 0
    done: DynamicNode | None = None  # of the frame around
    exits: list[DynamicNode] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    sequential: bool = False  # its iterations write variables, so they run one by one
    ordered: list[DynamicNode] = field(default_factory=list)
    constants: list[tuple[int, Array]] = field(default_factory=list)  # slots filled in every iteration
    conditions: frozenset[object] = frozenset()  # of the ops around it
    waits: frozenset[str] = frozenset()

    def chain(self) -> list[Frame]:
        """The frames around it and itself, outermost first."""
        return [*(self.parent.chain() if self.parent is not None else []), self]


@dataclass(eq=False)
class DynamicNode:
    """One thing to run in each iteration of a frame.

    frame: that its inputs are in. waits: number of inputs and control inputs that it waits for.
    readers: by output, the nodes that read it and the slots of the value; in the frame `target`.
    """

    kind: NodeKind
    name: str
    frame: Frame
    target: Frame
    outputs: int
    index: int = 0
    first: int = 0  # slot of its first input
    count: int = 0  # of inputs
    blank: list[None] = field(default_factory=list)  # None for each of them
    waits: int = 0
    readers: list[list[tuple[DynamicNode, int]]] = field(default_factory=list)
    controls: list[DynamicNode] = field(default_factory=list)  # dead if this one is
    followers: list[DynamicNode] = field(default_factory=list)  # run after this one, dead or not
    sequence: OpSequence | None = None
    inputs: Sequence[Tensor] = ()
    made: Sequence[Tensor] = ()  # its outputs
    op: Operation | None = None
    merges: bool = False  # it is of kind MERGE
    fetched: bool = False
    slow: bool = False  # it may run on the pool
    ordered: bool = False  # it has effects: it runs once the iteration before is through with it
    dtype: object = None  # of the only output of a host op, as NumPy has it,
    shape: object = None  # and its shape, if it is known

    def __post_init__(self) -> None:
        self.merges = self.kind is NodeKind.MERGE
        if self.op is not None:
            self.inputs, self.made = self.op.inputs, self.op.outputs
            if self.kind is NodeKind.HOST:
                self.dtype, self.shape = usual_output(self.op)
        self.readers = [[] for _ in range(self.outputs)]
        self.index = len(self.frame.nodes)
        self.frame.nodes.append(self)


@dataclass
class OpPlace:
    """Where an op is: its frame, the conditions under which it runs, and what it waits behind."""

    frame: Frame
    conditions: frozenset[object]
    waits: frozenset[str]
    level: int = 0


class DynamicPlan:
    """The nodes of a step in dynamic mode, made once for its fetches and fed tensors."""

    def __init__(
        self,
        elements: Sequence[Tensor | Operation],
        fed: Collection[Tensor],
        needed: Sequence[Operation],
        reason: str,
        compiles_loops: bool = True,
    ):
        """reason: why the step is not planned. needed: the pruned operations, in program order.
        compiles_loops: regions may have loops and conds.

        Raises InvalidArgumentError for fetches and feeds in a loop, and tensors read in the wrong frame.
        """
        self.elements = tuple(elements)
        self.reason = reason
        self._fed = set(fed)
        self._ops = [op for op in needed if not is_free(op) and not self._is_fed(op)]
        self._included = set(self._ops)
        self._nodes: dict[Operation, DynamicNode] = {}
        wholes = wholes_in(self._ops)
        self._chains = {op: around(op, wholes) for op in self._ops}
        wanted = frozenset(each for each in elements if isinstance(each, Tensor))
        self._graph = StepGraph(
            frozenset(self._ops),
            frozenset(self._fed),
            wanted,
            wholes,
            compiles_loops,
            partners_among(self._ops),
        )
        self.sources: list[tuple[Tensor, list[tuple[DynamicNode, int]]]] = []  # readers of fed tensors
        self.results: list[tuple[DynamicNode, int] | Tensor | None] = []  # of the elements
        self._check_feeds()
        self._excluded: set[Excluded] = set()
        self._loose: set[Excluded] = set()  # what cannot be with others that it is better with
        self._tries = 0  # that failed; each lets twice as many items be apart
        while not self._arrange():
            pass
        self._make_nodes()
        self._connect()

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
        self._items = self._units.items
        clusters = self._clusters = [
            [item for item in each if not self._loose.intersection(Units.left_out([item]))]
            for each in self._units.clusters
        ]
        self._cluster_of = {item: number for number, each in enumerate(clusters) for item in each}
        self._floors = [0] * len(clusters)  # levels of the clusters
        self._delays: list[frozenset[str]] = [frozenset()] * len(clusters)  # what they wait behind
        self._before: dict[Item, set[Item | Frame]] = {}  # order of variables' reads and writes
        while True:
            before = list(self._delays)
            self.root = Frame("", None)
            self.frames: dict[tuple[Frame, str], Frame] = {}
            self._places: dict[Item, OpPlace] = {}
            self._set_frames()
            if before == self._delays:
                break
        self._set_order()
        rising = self._set_levels()
        if rising is not None:
            if not clusters:
                names = ", ".join(frame.name for frame in self.frames.values())
                raise InvalidArgumentError(f"loops wait for each other's results: {names[:300]}")
            numbers = [self._cluster_of[item] for item in self._items if item in self._cluster_of]
            found = [number for number in dict.fromkeys(numbers) if number in rising] or numbers[:1]
            self._tries += 1
            return self._separate([clusters[number] for number in found[: 2**self._tries]])
        split = [each for each in clusters if len({self._key(item) for item in each}) > 1]
        return self._separate(split)

    def _separate(self, clusters: Sequence[Sequence[Item]]) -> bool:
        """Lets the items of clusters be apart, from the next try on; True if there are none."""
        items = [item for cluster in clusters for item in cluster]
        hard = [item for item in items if item in self._units.hard]
        self._excluded |= Units.left_out(hard)
        self._loose |= Units.left_out(items)
        return not items

    def _key(self, item: Item) -> tuple[object, ...]:
        """Values that the quick ops of one sequence share."""
        place = self._places[item]
        return (id(place.frame), place.conditions, place.waits, place.level)

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

    # Frames and conditions --------------------------------------------------------------------

    def _set_frames(self) -> None:
        for item in self._items:
            place = self._place_of(item)
            self._places[item] = place
            ops = item.ops if isinstance(item, WholeUnit) else [item]
            flow = "" if isinstance(item, WholeUnit) else item.definition.flow
            if flow == "enter":
                op = ops[0]
                frame = self._entered(op, place)
                frame.conditions |= place.conditions
                frame.waits |= place.waits
                limit = int(op.attrs["parallel_iterations"])
                frame.parallel_iterations = max(1, min(limit, frame.parallel_iterations or limit))
            elif flow == "exit" and place.frame.parent is None:
                raise InvalidArgumentError(f"Exit {ops[0].name} is in no loop (made at {ops[0].source})")
            around = place.frame.chain()[1:]
            for op in ops if around else ():
                reads, writes = touched(op)
                for frame in around:
                    frame.reads |= reads
                    frame.writes |= writes
                    frame.sequential = frame.sequential or bool(op.definition.writes)

    def _entered(self, op: Operation, place: OpPlace) -> Frame:
        key = (place.frame, op.attrs["frame_name"])
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames[key] = Frame(key[1], place.frame, int(op.attrs["parallel_iterations"]))
        return frame

    def _place_of(self, item: Item) -> OpPlace:
        frame: Frame | None = None
        conditions: frozenset[object] = frozenset()
        waits: frozenset[str] = frozenset()
        common: frozenset[object] | None = None
        for tensor in item.inputs:
            if not self._flows(tensor) or self._is_back_edge(tensor.op):
                continue
            where, under, behind = self._place_of_output(tensor)
            frame = self._same_frame(item, frame, where)
            conditions |= under
            waits |= behind
            common = under if common is None else common & under
        for control in _controls(item):
            if control not in self._included or self._is_back_edge(control):
                continue
            place = self._places[self._units.of(control)]
            where = self._target(control)
            frame = self._same_frame(item, frame, where)
            waits |= place.waits
            if where is place.frame:
                conditions |= place.conditions
            if control.definition.flow == "receive":
                conditions |= frozenset(control.attrs["conditions"])
                waits |= {control.name}
        if not isinstance(item, WholeUnit) and item.definition.flow == "merge" and common is not None:
            conditions = common
        number = self._cluster_of.get(item)
        if number is not None:
            waits = self._delays[number] = self._delays[number] | waits
        return OpPlace(self.root if frame is None else frame, conditions, waits)

    def _same_frame(self, item: Item, one: Frame | None, other: Frame) -> Frame:
        if one is not None and one is not other:
            op = item.ops[0] if isinstance(item, WholeUnit) else item
            raise InvalidArgumentError(
                f"{op.type} {op.name} reads tensors of the frames {one.name or 'root'} and "
                f"{other.name or 'root'}; bring them in by Enter and out by Exit (made at {op.source})"
            )
        return other

    def _is_back_edge(self, op: Operation) -> bool:
        return op.definition.flow == "next_iteration"

    def _flows(self, tensor: Tensor) -> bool:
        """True if an op of the plan makes it: it is neither fed nor a constant."""
        return tensor not in self._fed and tensor.op in self._included

    def _target(self, op: Operation) -> Frame:
        """The frame of an op's outputs."""
        place = self._places[self._units.of(op)]
        if op in self._units.unit_of:
            return place.frame
        if op.definition.flow == "enter":
            return self.frames[(place.frame, op.attrs["frame_name"])]
        if op.definition.flow == "exit" and place.frame.parent is not None:
            return place.frame.parent
        return place.frame

    def _place_of_output(self, tensor: Tensor) -> tuple[Frame, frozenset[object], frozenset[str]]:
        op = tensor.op
        place = self._places[self._units.of(op)]
        flow = "" if op in self._units.unit_of else op.definition.flow
        if flow == "enter":
            return self._target(op), frozenset(), place.waits
        if flow == "exit":
            return self._target(op), place.frame.conditions, place.waits | place.frame.waits
        if flow == "switch":
            condition = condition_name(_name_of(op.inputs[1]), tensor.index)
            return place.frame, place.conditions | {condition}, place.waits
        conditions = place.conditions
        if flow == "receive":  # those of the value at its task
            conditions = conditions.union(op.attrs["conditions"])
        behind = place.waits | {op.name} if self._units.is_dynamic(self._units.of(op)) else place.waits
        return place.frame, conditions, behind

    # Order of reads and writes ----------------------------------------------------------------

    def _set_order(self) -> None:
        """Finds for each op those that touched the same variables before, in its frame or as whole loops."""
        writers: dict[tuple[Frame, str], list[Item | Frame]] = {}
        readers: dict[tuple[Frame, str], list[Item | Frame]] = {}
        self._before = {}

        def after(item: Item, frame: Frame, reads: Iterable[str], writes: Iterable[str]) -> None:
            before = self._before.setdefault(item, set())
            for name in {*reads, *writes}:
                before.update(writers.get((frame, name), ()))
            for name in writes:
                before.update(readers.get((frame, name), ()))

        def touches(item: Item | Frame, frame: Frame, reads: Iterable[str], writes: Iterable[str]) -> None:
            for name in writes:
                writers[(frame, name)] = [item]
                readers[(frame, name)] = []
            for name in set(reads) - set(writes):
                readers.setdefault((frame, name), []).append(item)

        entering: dict[Frame, set[Item | Frame]] = {}  # by frame, what its Enters wait for
        for item in self._items:
            place = self._places[item]
            if not isinstance(item, WholeUnit) and item.definition.flow == "enter":
                frame = self._target(item)
                if frame not in entering:  # its place in program order is that of its first Enter
                    after(item, place.frame, frame.reads, frame.writes)
                    touches(frame, place.frame, frame.reads, frame.writes)
                    entering[frame] = self._before[item]
                self._before[item] = set(entering[frame])
                continue
            reads, writes = _touched_by(item)
            if reads or writes:
                after(item, place.frame, reads, writes)
                touches(item, place.frame, reads, writes)
        for item, before in self._before.items():
            before.discard(item)

    # Levels -----------------------------------------------------------------------------------

    def _set_levels(self) -> set[int] | None:
        """Gives each op the level of its sequence, above those of the sequences that it waits for.

        What leaves a loop has waited for all that enters it, which may come later in program order. Returns
        None, or the clusters that wait for themselves or such ones.
        """
        levels: dict[Frame, int] = {}
        rising: set[int] = set()
        for _ in range(len(self.frames) + 2 * len(self._floors) + 2):
            before, floors = dict(levels), list(self._floors)
            self._raise_levels(levels)
            rising = {n for n, floor in enumerate(floors) if self._floors[n] != floor}
            if before == levels and not rising:
                return None
            if max((*levels.values(), *self._floors)) > len(self._items):
                break  # no order has more levels
        return rising

    def _raise_levels(self, frame_levels: dict[Frame, int]) -> None:
        for item in self._items:
            place = self._places[item]
            number = self._cluster_of.get(item)
            level = 0 if number is None else self._floors[number]
            if not isinstance(item, WholeUnit) and item.definition.flow == "exit":
                level = frame_levels.get(place.frame, 0)
            for tensor in item.inputs:
                if self._flows(tensor) and not self._is_back_edge(tensor.op):
                    level = max(level, self._level_after(self._units.of(tensor.op), item))
            for control in _controls(item):
                if control in self._included and not self._is_back_edge(control):
                    level = max(level, self._level_after(self._units.of(control), item))
            for other in self._before.get(item, ()):
                if isinstance(other, Frame):
                    level = max(level, frame_levels.get(other, 0) + 1)
                else:
                    level = max(level, self._level_after(other, item))
            place.level = level
            if number is not None:
                self._floors[number] = level
            for frame in place.frame.chain()[1:]:
                frame_levels[frame] = max(level, frame_levels.get(frame, 0))

    def _level_after(self, before: Item, item: Item) -> int:
        """The least level of an op that runs after another one."""
        place, own = self._places[before], self._places[item]
        if self._units.is_dynamic(item):
            return place.level
        together = (
            not self._units.is_dynamic(before)
            and place.frame is own.frame
            and place.conditions == own.conditions
            and place.waits == own.waits
        )
        return place.level if together else place.level + 1

    # Nodes ------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        members: dict[tuple[object, ...], list[Item]] = {}
        for item in self._items:
            if isinstance(item, WholeUnit) or not self._units.is_dynamic(item):
                members.setdefault(self._key(item), []).append(item)
                continue
            frame = self._places[item].frame
            node = DynamicNode(
                self._kind(item), item.name, frame, self._target(item), len(item.outputs), op=item
            )
            node.slow = item.definition.slow
            self._order_iterations(node, [item])
            self._nodes[item] = node
        for items in members.values():
            ops = sorted(
                (op for item in items for op in (item.ops if isinstance(item, WholeUnit) else [item])),
                key=lambda op: op.id,
            )
            inputs, outputs, sequence = make_sequence(ops, self._graph)
            frame = self._places[items[0]].frame
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

    def _kind(self, op: Operation) -> NodeKind:
        flow = op.definition.flow
        if flow == "merge":
            loops = any(self._is_back_edge(t.op) for t in op.inputs)
            return NodeKind.PASS if loops else NodeKind.MERGE
        kinds = {
            "": NodeKind.HOST,
            "switch": NodeKind.SWITCH,
            "enter": NodeKind.ENTER,
            "exit": NodeKind.EXIT,
            "next_iteration": NodeKind.NEXT,
            "loop_condition": NodeKind.PASS,
            "send": NodeKind.SEND,
            "receive": NodeKind.HOST,
        }
        return kinds[flow]

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
                    if tensor.op.definition.name != "Const":
                        raise InvalidArgumentError(
                            f"{node.name}: input {tensor.name} is a variable's reference; read it by "
                            "tb.identity"
                        )
                    frame.constants.append((slot, tensor.op.attrs["value"]))
                    continue
                else:
                    source = self._nodes[tensor.op]
                    source.readers[self._output_of(tensor)].append((node, slot))
                if node.kind is not NodeKind.PASS or number == 0:
                    node.waits += 1
        self.sources = list(fed.items())
        for frame in [self.root, *self.frames.values()]:
            for node in frame.nodes:
                self._count_enters(node)
        self._connect_controls()
        self.results = [self._result(element) for element in self.elements]
        for result in self.results:
            if isinstance(result, tuple):
                result[0].fetched = True

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
                if control not in self._included or self._is_back_edge(control):
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
        where = self._target(op)
        if isinstance(element, Operation):
            where = self._places[self._units.of(op)].frame
        if where is not self.root:
            raise InvalidArgumentError(
                f"fetch {element.name}: it is in the loop {where.name}, with a value in each iteration; "
                f"return it from the body and fetch the loop's result (made at {op.source})"
            )
        if isinstance(element, Operation):
            return None
        return self._nodes[op], self._output_of(element)


def condition_name(predicate: str, branch: int) -> str:
    """The condition that a predicate, by its tensor's name, is true (1) or false (0)."""
    return f"{predicate}={branch}"


def _name_of(predicate: Tensor) -> str:
    """Name of a predicate, at the task that makes it."""
    received = predicate.op.definition.flow == "receive"
    return str(predicate.op.attrs["key"]) if received else predicate.name


def _controls(item: Item) -> Sequence[Operation]:
    return item.controls if isinstance(item, WholeUnit) else item.control_inputs


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


def _touched_by(item: Item) -> tuple[set[str], set[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for op in item.ops if isinstance(item, WholeUnit) else [item]:
        more = touched(op)
        reads |= more[0]
        writes |= more[1]
    return reads, writes
