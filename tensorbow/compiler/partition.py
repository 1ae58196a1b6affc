"""Partition: cut a placed program at device borders (OSDI 2016, section 3.3).

Each device gets a program of its own, and its program is cut into stages: what runs back to back on the
device's stream. A value that is needed elsewhere is sent at the end of the stage that makes it, once for each
device that needs it; there, whatever reads it reads the one copy received. A stage that sends takes no more
kernels, so that a later write of a variable comes after everybody who read it before, wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorbow.errors import InternalError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Kernel, OpDef
from tensorbow.program.nodes import Node, Program, Value, storage_of

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
SEND_KERNEL = Kernel(run=lambda call: None)  # the stage copies when its kernels have run


@dataclass
class Stage:
    """One segment of one device's part, in the order in which all are enqueued.

    waits: numbers of earlier stages, of other devices, that must have ended before it starts.
    receives: keys of the sent values that are read in it first: they are there once `waits` have ended.
    signals: whether a later stage of another device waits for it.
    """

    device: str
    segment: int
    waits: tuple[int, ...]
    receives: tuple[str, ...]
    signals: bool = False


@dataclass
class Part:
    """What one device does: its program, in segments that end with what they send.

    fetched: which of the step's fetches it has.
    """

    device: str
    program: Program
    segments: list[list[Node]] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)


@dataclass
class Cut:
    """The result: parts by device, home first if it has work, and all stages in order."""

    parts: dict[str, Part]
    stages: list[Stage]


def settle_views(program: Program) -> None:
    """Puts views where their root is: they have no kernel, so that they never cause a copy."""
    for node in program.nodes:
        if node.definition.is_view:
            root = storage_of(node.outputs[0])
            if root.node is not None:
                node.device = root.node.device


def partition(program: Program, home: str, variables: Mapping[str, str]) -> Cut:
    """Cuts a program whose nodes have devices.

    home: the device of fetched constants and feeds. variables: the device of each variable, by name.
    """
    return _Partition(program, home, variables).cut()


class _Draft:
    """The stage that a device is filling."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sends: list[Node] = []
        self.waits: set[int] = set()
        self.receives: list[Value] = []
        self.number = -1  # once it is closed
        self.is_awaited = False  # other devices wait for its end: kernels that follow open the next stage


class _Partition:
    """The state of one walk over a program, in its order."""

    def __init__(self, program: Program, home: str, variables: Mapping[str, str]):
        self._program = program
        self._home = home
        self._variables = variables
        self._parts: dict[str, Part] = {}
        self._drafts: dict[str, _Draft] = {}
        self._stages: list[Stage] = []
        # By device, the newest stage of each device that all its further work comes after.
        self._clocks: dict[str, dict[str, int]] = {}
        self._stage_clocks: list[dict[str, int]] = []
        self._homes: dict[Node, _Draft] = {}  # the draft that each node went to
        self._sent: dict[tuple[Value, str], tuple[Value, _Draft]] = {}  # (value, to): (its copy, from)
        self._received: set[Value] = set()  # copies that a stage has taken in
        self._kept = set(program.nodes)
        self._destinations, self._followed = self._borders()

    def _device_of(self, value: Value) -> str | None:
        """Where a value is; None for what every device can have: feeds, constants, scalars."""
        if value.node is not None:
            return value.node.device
        return self._variables[value.variable.name] if value.variable is not None else None

    def _borders(self) -> tuple[dict[Value, dict[str, None]], set[Node]]:
        """Which values are needed on which other devices, and which nodes other devices wait for."""
        destinations: dict[Value, dict[str, None]] = {}
        followed: set[Node] = set()
        for node in self._program.nodes:
            for value in node.inputs:
                if self._device_of(value) not in (None, node.device):
                    if value.node is None:
                        raise InternalError(f"{node.name} uses {value.name}, which is elsewhere")
                    destinations.setdefault(value, {})[node.device] = None
            node.after = tuple(self._resolved(node))
            followed.update(other for other in node.after if other.device != node.device)
        return destinations, followed

    def _resolved(self, node: Node) -> dict[Node, None]:
        """The nodes of the program that control dependencies put before one; passes may have removed some."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        pending = list(node.after)
        while pending:
            other = pending.pop()
            if other in seen:
                continue
            seen.add(other)
            if other in self._kept:
                found[other] = None
            else:
                pending.extend(other.after)
                pending.extend(v.node for v in other.inputs if v.node is not None)
        return found

    def _part(self, device: str) -> Part:
        if device not in self._parts:
            self._parts[device] = Part(device, Program([], [], {}))
            self._drafts[device] = _Draft()
            self._clocks[device] = {}
        return self._parts[device]

    def cut(self) -> Cut:
        """Walks over the program."""
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
        """Gives every part the feeds it reads; nobody sends them."""
        for part in self._parts.values():
            values = [v for node in part.program.nodes for v in node.inputs] + part.program.fetches
            used = {storage_of(value) for value in values}
            part.program.feeds.update({k: v for k, v in self._program.feeds.items() if v in used})

    def _add(self, node: Node) -> None:
        device = node.device
        self._part(device)
        required = [self._ended(self._homes[other]) for other in node.after if other.device != device]
        copies: dict[Value, None] = {}
        for place, value in enumerate(node.inputs):
            if self._device_of(value) not in (None, device):
                copy, draft = self._sent[value, device]
                required.append(self._ended(draft))
                node.inputs[place] = copy
                copies[copy] = None
        clock = self._clocks[device]
        required = [n for n in required if clock.get(self._stages[n].device, -1) < n]
        draft = self._drafts[device]
        if (required and draft.nodes) or (draft.is_awaited and not node.definition.is_view):
            self._close(device)
            draft = self._drafts[device]
        for number in sorted(set(required), reverse=True):  # the newest first: it may cover older ones
            if clock.get(self._stages[number].device, -1) < number:
                draft.waits.add(number)
                self._stages[number].signals = True
                for other, reached in self._stage_clocks[number].items():
                    clock[other] = max(clock.get(other, -1), reached)
        draft.receives += [copy for copy in copies if copy not in self._received]
        self._received.update(copies)
        draft.nodes.append(node)
        self._homes[node] = draft
        for value in node.outputs:
            for target in self._destinations.get(value, ()):
                self._send(draft, node, value, target)
        draft.is_awaited |= node in self._followed

    def _send(self, draft: _Draft, node: Node, value: Value, target: str) -> None:
        """Sends a value that `node` makes; on the other side it is like one that was fed."""
        key = f"{value.name} from {node.device}"
        send = Node(
            f"{value.name}/send", Send, {"to": target, "key": key}, [value], node.position, node.source
        )
        send.note = f"to {target}"
        send.device = node.device
        draft.sends.append(send)
        copy = Value(value.name, value.spec, feed=key)
        self._part(target).program.feeds[key] = copy
        self._sent[value, target] = copy, draft
        draft.is_awaited = True

    def _ended(self, draft: _Draft) -> int:
        """The number of the stage that a draft became, now at the latest."""
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
    """The segments again, when `protect` has put copies behind nodes that read variables."""
    where = {node: number for number, nodes in enumerate(part.segments) for node in nodes}
    segments: list[list[Node]] = [[] for _ in part.segments]
    number = 0
    for node in part.program.nodes:
        number = where.get(node, number)  # a copy goes where the node before it is
        segments[number].append(node)
    return segments
