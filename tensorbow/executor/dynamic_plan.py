"""Dynamic plan: a pruned graph cut into static regions, host ops and ops of control flow.

A region is a maximal set of static ops that run together: of one frame, under the same conditions, behind the
same asynchronous ops, with no other op between them. Regions are compiled like planned steps when they run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InternalError, InvalidArgumentError
from tensorbow.executor.region import StaticRegion
from tensorbow.executor.simple_loop import SimpleLoop, simple_loop
from tensorbow.function_calls import Call
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.graph.function import SHAPE_ONLY
from tensorbow.ops.control_flow import StackPop, StackPush
from tensorbow.specs import Array


class NodeKind(IntEnum):
    """How the executor runs a node."""

    REGION = 0
    HOST = 1
    SWITCH = 2
    MERGE = 3  # of branches: takes the input that is not dead
    PASS = 4  # hands its input on
    ENTER = 5
    EXIT = 6
    NEXT = 7
    DONE = 8  # runs when a frame has ended


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
    sequential: bool = False  # its iterations have effects, so they run one by one
    constants: list[tuple[int, Array]] = field(default_factory=list)  # slots filled in every iteration
    conditions: frozenset[object] = frozenset()  # of the ops around it
    waits: frozenset[str] = frozenset()
    simple: SimpleLoop | None = None  # its form without frames, if there is one

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
    region: StaticRegion | None = None
    op: Operation | None = None
    merges: bool = False  # it is of kind MERGE
    fetched: bool = False
    dtype: object = None  # of the only output of a host op, as NumPy has it,
    shape: object = None  # and its shape, if it is known

    def __post_init__(self) -> None:
        self.merges = self.kind is NodeKind.MERGE
        if self.op is not None and self.kind is NodeKind.HOST and self.outputs == 1:
            spec = self.op.outputs[0].spec
            if spec.is_static:
                self.dtype, self.shape = np.dtype(spec.dtype.as_numpy_dtype), spec.extents
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
    ):
        """reason: why the step is not planned. needed: the pruned operations, in program order.

        Raises InvalidArgumentError for fetches and feeds in a loop, and tensors read in the wrong frame.
        """
        self.elements = tuple(elements)
        self.reason = reason
        self._fed = set(fed)
        self._needed = [op for op in needed if not is_free(op) and not self._is_fed(op)]
        self._included = set(self._needed)
        self.root = Frame("", None)
        self.frames: dict[tuple[Frame, str], Frame] = {}
        self._places: dict[Operation, OpPlace] = {}
        self._before: dict[Operation, set[Operation | Frame]] = {}  # order of variables' reads and writes
        self._nodes: dict[Operation, DynamicNode] = {}
        self.regions: list[StaticRegion] = []
        self.sources: list[tuple[Tensor, list[tuple[DynamicNode, int]]]] = []  # readers of fed tensors
        self.results: list[tuple[DynamicNode, int] | Tensor | None] = []  # of the elements
        self._check_feeds()
        self._set_frames()
        self._set_order()
        self._set_levels()
        self._make_nodes()
        self._connect()
        for frame in self.frames.values():
            frame.simple = self._simple_form(frame)

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
        for op in self._needed:
            place = self._place_of(op)
            self._places[op] = place
            flow = op.definition.flow
            if flow == "enter":
                frame = self._entered(op, place)
                frame.conditions |= place.conditions
                frame.waits |= place.waits
                limit = int(op.attrs["parallel_iterations"])
                frame.parallel_iterations = max(1, min(limit, frame.parallel_iterations or limit))
            elif flow == "exit" and place.frame.parent is None:
                raise InvalidArgumentError(f"Exit {op.name} is in no loop (made at {op.source})")
            definition = op.definition
            if (definition.stateful or definition.random or definition.writes) and definition.name not in (
                "StackPush",
                "StackPop",
                "NoOp",
                "CheckFinite",
            ):
                for frame in place.frame.chain()[1:]:
                    frame.sequential = True
            reads, writes = touched(op)
            for frame in place.frame.chain()[1:]:
                frame.reads |= reads
                frame.writes |= writes

    def _entered(self, op: Operation, place: OpPlace) -> Frame:
        key = (place.frame, op.attrs["frame_name"])
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames[key] = Frame(key[1], place.frame, int(op.attrs["parallel_iterations"]))
        return frame

    def _place_of(self, op: Operation) -> OpPlace:
        frame: Frame | None = None
        conditions: frozenset[object] = frozenset()
        waits: frozenset[str] = frozenset()
        common: frozenset[object] | None = None
        for tensor in op.inputs:
            if not self._flows(tensor) or self._is_back_edge(tensor.op):
                continue
            where, under, behind = self._place_of_output(tensor)
            frame = self._same_frame(op, frame, where)
            conditions |= under
            waits |= behind
            common = under if common is None else common & under
        for control in op.control_inputs:
            if control not in self._included or self._is_back_edge(control):
                continue
            place = self._places[control]
            where = self._target(control)
            frame = self._same_frame(op, frame, where)
            waits |= place.waits
            if where is place.frame:
                conditions |= place.conditions
        if op.definition.flow == "merge" and common is not None:
            conditions = common
        return OpPlace(self.root if frame is None else frame, conditions, waits)

    def _same_frame(self, op: Operation, one: Frame | None, other: Frame) -> Frame:
        if one is not None and one is not other:
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
        place = self._places[op]
        if op.definition.flow == "enter":
            return self.frames[(place.frame, op.attrs["frame_name"])]
        if op.definition.flow == "exit" and place.frame.parent is not None:
            return place.frame.parent
        return place.frame

    def _place_of_output(self, tensor: Tensor) -> tuple[Frame, frozenset[object], frozenset[str]]:
        op = tensor.op
        place = self._places[op]
        flow = op.definition.flow
        if flow == "enter":
            return self._target(op), frozenset(), place.waits
        if flow == "exit":
            return self._target(op), place.frame.conditions, place.waits | place.frame.waits
        if flow == "switch":
            condition = (op.inputs[1], tensor.index)
            return place.frame, place.conditions | {condition}, place.waits
        behind = place.waits | {op.name} if op.definition.asynchronous else place.waits
        return place.frame, place.conditions, behind

    def is_certain(self, element: Tensor | Operation) -> bool:
        """True if each run makes it once: it is in no loop, and under no condition."""
        op = element if isinstance(element, Operation) else element.op
        if op not in self._places or (isinstance(element, Tensor) and element in self._fed):
            return True  # fed, constant, or a variable
        if isinstance(element, Tensor):
            frame, conditions, _ = self._place_of_output(element)
        else:
            place, frame = self._places[op], self._target(op)
            conditions = place.frame.conditions if op.definition.flow == "exit" else place.conditions
        return frame is self.root and not conditions

    # Order of reads and writes ----------------------------------------------------------------

    def _set_order(self) -> None:
        """Finds for each op those that touched the same variables before, in its frame or as whole loops."""
        writers: dict[tuple[Frame, str], list[Operation | Frame]] = {}
        readers: dict[tuple[Frame, str], list[Operation | Frame]] = {}

        def after(op: Operation, frame: Frame, reads: Iterable[str], writes: Iterable[str]) -> None:
            before = self._before.setdefault(op, set())
            for name in {*reads, *writes}:
                before.update(writers.get((frame, name), ()))
            for name in writes:
                before.update(readers.get((frame, name), ()))

        def touches(
            item: Operation | Frame, frame: Frame, reads: Iterable[str], writes: Iterable[str]
        ) -> None:
            for name in writes:
                writers[(frame, name)] = [item]
                readers[(frame, name)] = []
            for name in set(reads) - set(writes):
                readers.setdefault((frame, name), []).append(item)

        entering: dict[Frame, set[Operation | Frame]] = {}  # by frame, what its Enters wait for
        for op in self._needed:
            place = self._places[op]
            if op.definition.flow == "enter":
                frame = self._target(op)
                if frame not in entering:  # its place in program order is that of its first Enter
                    after(op, place.frame, frame.reads, frame.writes)
                    touches(frame, place.frame, frame.reads, frame.writes)
                    entering[frame] = self._before[op]
                self._before[op] = set(entering[frame])
                continue
            reads, writes = touched(op)
            if reads or writes:
                after(op, place.frame, reads, writes)
                touches(op, place.frame, reads, writes)
        for op, before in self._before.items():
            before.discard(op)

    # Regions ----------------------------------------------------------------------------------

    def _set_levels(self) -> None:
        """Gives each op the level of its region, above those of the regions that it waits for.

        What leaves a loop has waited for all that enters it, which may come later in program order.
        """
        frame_levels: dict[Frame, int] = {}
        for _ in range(len(self.frames) + 2):
            before = dict(frame_levels)
            self._raise_levels(frame_levels)
            if before == frame_levels:
                return
        names = ", ".join(frame.name for frame in self.frames.values())
        raise InvalidArgumentError(f"loops wait for each other's results: {names[:300]}")

    def _raise_levels(self, frame_levels: dict[Frame, int]) -> None:
        for op in self._needed:
            place = self._places[op]
            dynamic = op.is_dynamic
            cut = set() if dynamic else {t for t in self._shape_inputs(op) if not self._folds(t)}
            level = frame_levels.get(place.frame, 0) if op.definition.flow == "exit" else 0
            for tensor in op.inputs:
                if self._flows(tensor) and not self._is_back_edge(tensor.op):
                    level = max(level, self._level_after(tensor.op, op, tensor in cut))
            for control in op.control_inputs:
                if control in self._included and not self._is_back_edge(control):
                    level = max(level, self._level_after(control, op, False))
            for item in self._before.get(op, ()):
                if isinstance(item, Frame):
                    level = max(level, frame_levels.get(item, 0) + 1)
                else:
                    level = max(level, self._level_after(item, op, False))
            place.level = level
            for frame in place.frame.chain()[1:]:
                frame_levels[frame] = max(level, frame_levels.get(frame, 0))

    def _level_after(self, before: Operation, op: Operation, cut: bool) -> int:
        """The least level of an op that runs after another one."""
        place, own = self._places[before], self._places[op]
        if op.is_dynamic:
            return place.level
        together = (
            not before.is_dynamic
            and not cut
            and place.frame is own.frame
            and place.conditions == own.conditions
            and place.waits == own.waits
        )
        return place.level if together else place.level + 1

    def _shape_inputs(self, op: Operation) -> list[Tensor]:
        indices = op.attrs["f"].shape_arguments if op.definition is Call else op.definition.shape_inputs
        return [op.inputs[i] for i in indices if i < len(op.inputs)]

    def _folds(self, tensor: Tensor) -> bool:
        """True if a value is known in its region once the shapes of the region's inputs are."""
        definition = tensor.op.definition
        if is_free(tensor.op):
            return definition.name == "Const"
        if tensor in self._fed or tensor.op.is_dynamic or definition.stateful or definition.random:
            return False
        if definition.name in SHAPE_ONLY:
            return True
        return bool(tensor.op.inputs) and all(map(self._folds, tensor.op.inputs))

    # Nodes ------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        members: dict[tuple[object, ...], list[Operation]] = {}
        for op in self._needed:
            place = self._places[op]
            if op.is_dynamic:
                self._nodes[op] = DynamicNode(
                    self._kind(op), op.name, place.frame, self._target(op), len(op.outputs), op=op
                )
                continue
            key = (id(place.frame), place.conditions, place.waits, place.level)
            members.setdefault(key, []).append(op)
        for ops in members.values():
            region = self._region(ops)
            frame = self._places[ops[0]].frame
            node = DynamicNode(NodeKind.REGION, ops[0].name, frame, frame, len(region.outputs), region=region)
            self.regions.append(region)
            self._nodes.update(dict.fromkeys(ops, node))

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
        }
        return kinds[flow]

    def _region(self, ops: list[Operation]) -> StaticRegion:
        inside = set(ops)
        inputs: dict[Tensor, None] = {}
        for op in ops:
            for tensor in op.inputs:
                if tensor in self._fed or (tensor.op not in inside and not is_free(tensor.op)):
                    inputs[tensor] = None
        wanted = {e for e in self.elements if isinstance(e, Tensor)}
        outputs = [
            tensor
            for op in ops
            for tensor in op.outputs
            if tensor not in self._fed
            and (tensor in wanted or any(r in self._included and r not in inside for r in tensor.consumers()))
        ]
        read = {tensor.op for op in ops for tensor in op.inputs}
        made = {tensor.op for tensor in outputs}
        targets = [
            op
            for op in ops
            if op not in made and (op not in read or op.definition.stateful or op.definition.writes)
        ]
        baked = self._baked(ops, inside, inputs)
        return StaticRegion(ops, tuple(inputs), tuple(outputs), tuple(targets), baked)

    def _baked(
        self, ops: Sequence[Operation], inside: set[Operation], inputs: Collection[Tensor]
    ) -> set[Tensor]:
        """Inputs of a region whose values are in its shapes."""
        baked: set[Tensor] = set()
        pending = [tensor for op in ops for tensor in self._shape_inputs(op)]
        seen: set[Tensor] = set()
        while pending:
            tensor = pending.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            if tensor in inputs:
                baked.add(tensor)
            elif tensor.op in inside and tensor.op.definition.name not in SHAPE_ONLY:
                pending.extend(tensor.op.inputs)
        return baked

    # Edges ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        fed: dict[Tensor, list[tuple[DynamicNode, int]]] = {}
        for node in dict.fromkeys(self._nodes.values()):
            inputs = node.region.inputs if node.region is not None else self._op_of(node).inputs
            frame = node.frame
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

    def _simple_form(self, frame: Frame) -> SimpleLoop | None:
        """The form of a loop of static regions alone: no loop or cond in it, and no effects."""
        if frame.sequential or frame.writes or any(each.parent is frame for each in self.frames.values()):
            return None
        if any(
            reader.frame is not frame
            for node in frame.nodes
            if node.kind != NodeKind.EXIT
            for reader in (*node.controls, *node.followers)
        ):
            return None
        ops = [op for op in self._needed if self._places[op].frame is frame]
        enters = [op for op in self._needed if op.definition.flow == "enter" and self._target(op) is frame]
        levels = {self._nodes[op]: self._places[op].level for op in ops if self._nodes[op].region}
        ordered = sorted(levels, key=lambda node: (levels[node], node.index))
        regions = [node.region for node in ordered if node.region is not None]
        return simple_loop([*enters, *ops], regions, self._fed.__contains__)

    def _op_of(self, node: DynamicNode) -> Operation:
        if node.op is None:
            raise InternalError(f"node {node.name} stands for no operation")
        return node.op

    def _output_of(self, tensor: Tensor) -> int:
        region = self._nodes[tensor.op].region
        return tensor.index if region is None else region.outputs.index(tensor)

    def _count_enters(self, node: DynamicNode) -> None:
        if node.kind is NodeKind.ENTER:
            node.target.enters += 1
        elif node.kind is NodeKind.EXIT:
            node.frame.exits.append(node)

    def _connect_controls(self) -> None:
        ordered: set[tuple[DynamicNode, DynamicNode]] = set()
        for op in self._needed:
            node = self._nodes[op]
            for control in op.control_inputs:
                if control not in self._included or self._is_back_edge(control):
                    continue
                source = self._nodes[control]
                if source is not node and (source, node) not in ordered:
                    ordered.add((source, node))
                    source.controls.append(node)
                    node.waits += 1
        for op, before in self._before.items():
            node = self._nodes[op]
            for item in before:
                source = self._done(item) if isinstance(item, Frame) else self._nodes[item]
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
        where = self._places[op].frame if isinstance(element, Operation) else self._target(op)
        if where is not self.root:
            raise InvalidArgumentError(
                f"fetch {element.name}: it is in the loop {where.name}, with a value in each iteration; "
                f"return it from the body and fetch the loop's result (made at {op.source})"
            )
        if isinstance(element, Operation):
            return None
        return self._nodes[op], self._output_of(element)


def touched(op: Operation) -> tuple[set[str], set[str]]:
    """The variables, by name, and stacks that an op reads and writes."""
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
    return reads, writes
