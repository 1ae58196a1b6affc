"""Partition: cut a placed program at device borders (OSDI 2016, section 3.3).

Each device gets its own program, cut into stages; the kernels of a stage run back to back on the device's
stream. A value needed on another device is sent once per receiving device, at the end of the stage that
computes it; all readers there share the received copy. A stage takes no more kernels once it sends, so a
later write of a variable comes after all earlier reads of it, on every device.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Kernel, OpDef
from tensorbow.ops.transfers import Narrow16, Widen16
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.specs import float32

Send = OpDef(
    "Send",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    kernels={},
    input_names=("value",),
    attrs={"to": REQUIRED, "key": REQUIRED},
    stateful=True,
    doc="At a stage's end: the value is copied into its slot on device `to`. Only the compiler makes it.",
)
SEND_KERNEL = Kernel(run=lambda call: None)  # the stage itself copies, after its kernels


@dataclass
class Stage:
    """A segment of one device's part; stages are numbered in the order of enqueueing.

    waits: numbers of the earlier stages of other devices that must end before this one starts.
    receives: keys of the sent values that this stage reads first; they have arrived once `waits` have ended.
    signals: a later stage of another device waits for this one.
    """

    device: str
    segment: int
    waits: tuple[int, ...]
    receives: tuple[str, ...]
    signals: bool = False


@dataclass
class Part:
    """One device's share of a step: its program, in segments that end with their sends.

    fetched: which of the step's fetches this part holds. received: keys of the values sent to it, which are
    among its program's feeds.
    """

    device: str
    program: Program
    segments: list[list[Node]] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    received: set[str] = field(default_factory=set)

    def receive(self, key: str, value: Value) -> None:
        """Has the part read a value that another part sends."""
        self.program.feeds[key] = value
        self.received.add(key)


@dataclass
class Cut:
    """The result of partition: parts by device, home first if it has work, and all stages in order."""

    parts: dict[str, Part]
    stages: list[Stage]


def settle_views(program: Program) -> None:
    """Places each view on its root's device: views have no kernel, so they never cause a copy."""
    for node in program.nodes:
        if node.definition.is_view:
            root = storage_of(node.outputs[0])
            if root.node is not None:
                node.device = root.node.device


def partition(
    program: Program,
    home: str,
    variables: Mapping[str, str],
    large_nbytes: float = math.inf,
    lossy: bool = False,
) -> Cut:
    """Cuts a program whose nodes are placed.

    home: the device of fetched constants and feeds. variables: the device of each variable, by name.
    large_nbytes: a value of as many bytes is received by a stage that begins with its first reader, even if
    the device need not wait for it. lossy: float32 is sent as its upper 16 bits (white paper, section 5.5).
    """
    return _Partition(program, home, variables, large_nbytes, lossy).cut()


def dependencies_of(node: Node, kept: Collection[Node]) -> dict[Node, None]:
    """Nodes of the program that stand for a node's control dependencies, some of which passes removed.

    kept: the program's nodes.
    """
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    pending = list(node.after)
    while pending:
        other = pending.pop()
        if other in seen:
            continue
        seen.add(other)
        if other in kept:
            found[other] = None
        else:
            pending.extend(other.after)
            pending.extend(v.node for v in other.inputs if v.node is not None)
    return found


class _Draft:
    """The stage that a device is currently filling."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sends: list[Node] = []
        self.waits: set[int] = set()
        self.receives: list[Value] = []
        self.number = -1  # set when the draft is closed
        self.is_awaited = False  # other devices wait for its end, so the next kernel opens a new stage


class _Partition:
    """State of one walk over a program, in program order."""

    def __init__(
        self, program: Program, home: str, variables: Mapping[str, str], large_nbytes: float, lossy: bool
    ):
        self._large_nbytes = large_nbytes
        self._lossy = lossy
        self._narrowed: dict[Value, Value] = {}  # what is sent in the place of a value
        self._widened: dict[Value, Node] = {}  # by its result, what makes float32 of a received value
        self._program = program
        self._home = home
        self._variables = variables
        self._parts: dict[str, Part] = {}
        self._drafts: dict[str, _Draft] = {}
        self._stages: list[Stage] = []
        # Vector clocks by device: the newest stage of each device that precedes all its further work.
        self._clocks: dict[str, dict[str, int]] = {}
        self._stage_clocks: list[dict[str, int]] = []
        self._homes: dict[Node, _Draft] = {}  # the draft of each node
        self._sent: dict[tuple[Value, str], tuple[Value, _Draft]] = {}  # (value, receiver): (copy, sender)
        self._received: set[Value] = set()  # copies that some stage already receives
        self._kept = set(program.nodes)
        self._destinations, self._followed = self._borders()

    def _device_of(self, value: Value) -> str | None:
        """The device of a value; None for feeds, constants and scalars, which every device can have."""
        if value.node is not None:
            return value.node.device
        return self._variables[value.variable.name] if value.variable is not None else None

    def _borders(self) -> tuple[dict[Value, dict[str, None]], set[Node]]:
        """Values with the other devices that need them, and nodes whose end other devices wait for."""
        destinations: dict[Value, dict[str, None]] = {}
        followed: set[Node] = set()
        order = {node: index for index, node in enumerate(self._program.nodes)}
        for node in self._program.nodes:
            for value in node.inputs:
                if self._device_of(value) not in (None, node.device):
                    if value.node is None:
                        raise InternalError(f"{node.name} uses {value.name}, which is elsewhere")
                    destinations.setdefault(value, {})[node.device] = None
            # `split` moves writes that no later node depends on to the end: waits for them are dropped.
            node.after = tuple(
                other for other in dependencies_of(node, self._kept) if order[other] < order[node]
            )
            followed.update(other for other in node.after if other.device != node.device)
        return destinations, followed

    def _part(self, device: str) -> Part:
        if device not in self._parts:
            self._parts[device] = Part(device, Program([], [], {}))
            self._drafts[device] = _Draft()
            self._clocks[device] = {}
        return self._parts[device]

    def cut(self) -> Cut:
        """Runs the walk and returns the parts and stages."""
        for node in self._program.nodes:
            self._add(node)
        for index, value in enumerate(self._program.fetches):
            device = self._device_of(value) or self._home
            part = self._part(device)
            part.fetched.append(index)
            part.program.fetches.append(value)
        for device, draft in self._drafts.items():
            if draft.nodes or draft.waits or not self._parts[device].segments:
                self._close(device)
        self._feed_parts()
        order = sorted(self._parts, key=lambda device: device != self._home)
        return Cut({device: self._parts[device] for device in order}, self._stages)

    def _feed_parts(self) -> None:
        """Gives every part the feeds that it reads: feeds are not sent."""
        for part in self._parts.values():
            values = [v for node in part.program.nodes for v in node.inputs] + part.program.fetches
            used = {storage_of(value) for value in values}
            part.program.feeds.update({k: v for k, v in self._program.feeds.items() if v in used})

    def _add(self, node: Node) -> None:
        device = node.device
        self._part(device)
        required = [self._ended(self._homes[other]) for other in node.after if other.device != device]
        copies: dict[Value, None] = {}
        widening: dict[Node, None] = {}
        for index, value in enumerate(node.inputs):
            if self._device_of(value) not in (None, device):
                copy, draft = self._sent[value, device]
                required.append(self._ended(draft))
                node.inputs[index] = copy
                if copy in self._widened:
                    widening[self._widened[copy]] = None
                    copy = self._widened[copy].inputs[0]
                copies[copy] = None
        clock = self._clocks[device]
        required = [n for n in required if clock.get(self._stages[n].device, -1) < n]
        draft = self._drafts[device]
        new = [copy for copy in copies if copy not in self._received]
        late = any(copy.spec.nbytes >= self._large_nbytes for copy in new)
        if ((required or late) and draft.nodes) or (draft.is_awaited and not node.definition.is_view):
            self._close(device)
            draft = self._drafts[device]
        for number in sorted(set(required), reverse=True):  # newest first: it may imply older ones
            if clock.get(self._stages[number].device, -1) < number:
                draft.waits.add(number)
                self._stages[number].signals = True
                for other, reached in self._stage_clocks[number].items():
                    clock[other] = max(clock.get(other, -1), reached)
        draft.receives += new
        self._received.update(new)
        draft.nodes += [each for each in widening if each.inputs[0] in new]
        draft.nodes.append(node)
        self._homes[node] = draft
        for value in node.outputs:
            for target in self._destinations.get(value, ()):
                self._send(draft, node, value, target)
        draft.is_awaited |= node in self._followed

    def _send(self, draft: _Draft, node: Node, value: Value, target: str) -> None:
        """Sends a value that `node` computes; the receiving device treats the copy like a feed."""
        key = f"{value.name} from {node.device}"
        lossy = self._lossy and value.spec.dtype is float32
        sent = self._narrow(draft, node, value) if lossy else value
        send = Node(
            f"{value.name}/send", Send, {"to": target, "key": key}, [sent], node.position, node.source
        )
        send.note = f"to {target}{', the upper 16 bits of float32' if lossy else ''}"
        send.device = node.device
        draft.sends.append(send)
        copy = Value(value.name, sent.spec, feed=key)
        self._part(target).receive(key, copy)
        if lossy:
            widen = Node(f"{value.name}/widen", Widen16, {}, [copy], node.position, node.source)
            widen.outputs, widen.device = [Value(value.name, value.spec, widen)], target
            copy = widen.outputs[0]
            self._widened[copy] = widen
        self._sent[value, target] = copy, draft
        draft.is_awaited = True

    def _narrow(self, draft: _Draft, node: Node, value: Value) -> Value:
        """The upper 16 bits of a value that `node` computes, for all devices that they are sent to."""
        if value not in self._narrowed:
            narrow = Node(f"{value.name}/narrow", Narrow16, {}, [value], node.position, node.source)
            (spec,) = Narrow16.infer([value.spec], {})
            narrow.outputs, narrow.device = [Value(value.name, spec, narrow)], node.device
            draft.nodes.append(narrow)
            self._narrowed[value] = narrow.outputs[0]
        return self._narrowed[value]

    def _ended(self, draft: _Draft) -> int:
        """Number of a draft's stage; closes the draft if it is still open."""
        if draft.number < 0:
            self._close(next(device for device, other in self._drafts.items() if other is draft))
        return draft.number

    def _close(self, device: str) -> None:
        draft, part = self._drafts[device], self._parts[device]
        draft.number = len(self._stages)
        keys = tuple(copy.feed for copy in draft.receives if copy.feed is not None)
        self._stages.append(Stage(device, len(part.segments), tuple(sorted(draft.waits)), keys))
        part.segments.append([*draft.nodes, *draft.sends])
        part.program.nodes += part.segments[-1]
        self._clocks[device][device] = draft.number
        self._stage_clocks.append(dict(self._clocks[device]))
        self._drafts[device] = _Draft()


def segments_with_copies(part: Part) -> list[list[Node]]:
    """Splits a part's program into its segments again, after `protect` has inserted copies of variables."""
    where = {node: number for number, nodes in enumerate(part.segments) for node in nodes}
    segments: list[list[Node]] = [[] for _ in part.segments]
    number = 0
    for node in part.program.nodes:
        number = where.get(node, number)  # a copy joins the segment of the node before it
        segments[number].append(node)
    return segments
