"""Places of the ops of a dynamic plan: their frames, conditions, and the slow ops that they wait behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorbow.errors import InvalidArgumentError
from tensorbow.executor.effects import touched
from tensorbow.executor.plan_nodes import Frame
from tensorbow.executor.units import Item, Units, WholeUnit
from tensorbow.graph import Operation, Tensor


@dataclass(eq=False)
class OpPlace:
    """Place of an op: its frame, the conditions under which it runs, and what it waits behind.

    waits: the bits of the slow ops and ops of control flow that run before it.
    """

    frame: Frame
    conditions: frozenset[object]
    waits: int
    level: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the quick ops of one sequence."""
        return (id(self.frame), self.conditions, self.waits, self.level)


def is_back_edge(op: Operation) -> bool:
    """True if an op hands its input to the next iteration."""
    return op.definition.flow == "next_iteration"


def controls_of(item: Item) -> Sequence[Operation]:
    """The control inputs of an item."""
    return item.controls if isinstance(item, WholeUnit) else item.control_inputs


def condition_name(predicate: str, branch: int) -> str:
    """The condition that a predicate, by its tensor's name, is true (1) or false (0)."""
    return f"{predicate}={branch}"


def name_of_predicate(predicate: Tensor) -> str:
    """Name of a predicate, at the task that makes it."""
    received = predicate.op.definition.flow == "receive"
    return str(predicate.op.attrs["key"]) if received else predicate.name


class OpPlaces:
    """The places of all items of a plan, and its frames.

    Items of a cluster wait behind the same.
    """

    def __init__(
        self,
        units: Units,
        included: Collection[Operation],
        fed: Collection[Tensor],
        cluster_of: Mapping[Item, int],
        name: Callable[[Tensor], str] = name_of_predicate,
    ):
        """included: all ops of the step. cluster_of: numbers of the clusters that items are in. name: of a
        predicate.
        """
        self._units, self._included, self._fed, self._name = units, included, fed, name
        self._cluster_of = cluster_of
        self.root: Frame
        self.frames: dict[tuple[Frame, str], Frame]
        self._places: dict[Item, OpPlace]
        self._delays = dict.fromkeys(cluster_of.values(), 0)  # what the clusters wait behind
        self._bits = {item: 1 << number for number, item in enumerate(filter(units.is_dynamic, units.items))}
        if self.is_one_sequence:
            self.root, self.frames = Frame("", None), {}
            self._places = dict.fromkeys(units.items, OpPlace(self.root, frozenset(), 0))
            return
        while True:
            before = dict(self._delays)
            self.root, self.frames, self._places = Frame("", None), {}, {}
            self._set_frames()
            if before == self._delays:
                break

    @property
    def is_one_sequence(self) -> bool:
        """True if all items are quick, and so of one sequence."""
        return not self._bits

    def of(self, item: Item) -> OpPlace:
        """The place of an item."""
        return self._places[item]

    def sources(self, item: Item) -> Iterator[Item]:
        """The items that an item waits for, those that hand values to the next iteration apart."""
        of = self._units.of
        for tensor in item.inputs:
            if tensor not in self._fed and tensor.op in self._included and not is_back_edge(tensor.op):
                yield of(tensor.op)
        for control in controls_of(item):
            if control in self._included and not is_back_edge(control):
                yield of(control)

    def _set_frames(self) -> None:
        for item in self._units.items:
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
                    # One op that changes an object runs in the order of iterations anyway.
                    several = op.definition.changes and (frame is not place.frame or writes & frame.writes)
                    frame.sequential = frame.sequential or bool(op.definition.writes or several)
                    frame.reads |= reads
                    frame.writes |= writes

    def _entered(self, op: Operation, place: OpPlace) -> Frame:
        key = (place.frame, op.attrs["frame_name"])
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames[key] = Frame(key[1], place.frame, int(op.attrs["parallel_iterations"]))
        return frame

    def _place_of(self, item: Item) -> OpPlace:
        frame: Frame | None = None
        conditions: frozenset[object] = frozenset()
        waits = 0
        common: frozenset[object] | None = None
        for tensor in item.inputs:
            if tensor in self._fed or tensor.op not in self._included or is_back_edge(tensor.op):
                continue
            where, under, behind = self.of_output(tensor)
            frame = self._same_frame(item, frame, where)
            conditions |= under
            waits |= behind
            common = under if common is None else common & under
        for control in controls_of(item):
            if control not in self._included or is_back_edge(control):
                continue
            where, under, behind = self.of_end(control)
            frame = self._same_frame(item, frame, where)
            conditions |= under
            waits |= behind
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

    def target(self, op: Operation) -> Frame:
        """The frame of an op's outputs."""
        place = self._places[self._units.of(op)]
        if op in self._units.unit_of:
            return place.frame
        if op.definition.flow == "enter":
            return self.frames[(place.frame, op.attrs["frame_name"])]
        if op.definition.flow == "exit" and place.frame.parent is not None:
            return place.frame.parent
        return place.frame

    def of_end(self, op: Operation) -> tuple[Frame, frozenset[object], int]:
        """The frame that an op's control outputs are in, with the conditions and the waits there."""
        place = self._places[self._units.of(op)]
        flow = "" if op in self._units.unit_of else op.definition.flow
        if flow in ("enter", "exit", "receive"):
            return self.of_output(op.outputs[0])
        return place.frame, place.conditions, place.waits

    def of_output(self, tensor: Tensor) -> tuple[Frame, frozenset[object], int]:
        """The frame of a tensor, the conditions under which it has a value, and what it waits behind."""
        op = tensor.op
        place = self._places[self._units.of(op)]
        flow = "" if op in self._units.unit_of else op.definition.flow
        if flow == "enter":
            return self.target(op), frozenset(), place.waits
        if flow == "exit":
            return self.target(op), place.frame.conditions, place.waits | place.frame.waits
        if flow == "switch":
            condition = condition_name(self._name(op.inputs[1]), tensor.index)
            return place.frame, place.conditions | {condition}, place.waits
        conditions = place.conditions
        if flow == "receive":  # conditions of the value at its task
            conditions = conditions.union(op.attrs["conditions"])
        return place.frame, conditions, place.waits | self._bits.get(op, 0)
