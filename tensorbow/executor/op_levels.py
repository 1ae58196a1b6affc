"""Order of the ops of a dynamic plan: reads and writes of variables, and the levels of its sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorbow.executor.effects import touched
from tensorbow.executor.op_places import OpPlaces
from tensorbow.executor.plan_nodes import Frame
from tensorbow.executor.units import Item, Units, WholeUnit


class OpLevels:
    """Sets the levels of the places of all items.

    before: by op, those that touched the same variables before, in its frame or as whole loops; by Receive,
    the Sends that its value depends on.
    """

    def __init__(self, units: Units, places: OpPlaces, cluster_of: Mapping[Item, int]):
        self._units, self._places, self._cluster_of = units, places, cluster_of
        self._floors = dict.fromkeys(cluster_of.values(), 0)
        self.before: dict[Item, set[Item | Frame]] = {}
        if not places.is_one_sequence:
            self._set_order()

    def _set_order(self) -> None:
        writers: dict[tuple[Frame, str], list[Item | Frame]] = {}
        readers: dict[tuple[Frame, str], list[Item | Frame]] = {}

        def after(item: Item, frame: Frame, reads: Iterable[str], writes: Iterable[str]) -> None:
            before = self.before.setdefault(item, set())
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

        entering: dict[Frame, set[Item | Frame]] = {}  # by frame, the inputs of its Enters
        for item in self._units.items:
            place = self._places.of(item)
            if not isinstance(item, WholeUnit) and item.definition.flow == "enter":
                frame = self._places.target(item)
                if frame not in entering:  # a frame has its first Enter's place in program order
                    after(item, place.frame, frame.reads, frame.writes)
                    touches(frame, place.frame, frame.reads, frame.writes)
                    entering[frame] = self.before[item]
                self.before[item] = set(entering[frame])
                continue
            if not isinstance(item, WholeUnit) and item.definition.flow == "receive":
                self.before[item] = {item.graph.get_operation_by_name(name) for name in item.attrs["after"]}
            reads, writes = _touched_by(item)
            if reads or writes:
                after(item, place.frame, reads, writes)
                touches(item, place.frame, reads, writes)
        for item, before in self.before.items():
            before.discard(item)

    def set_levels(self) -> set[int] | None:
        """Gives each op the level of its sequence, above those of the sequences that it waits for.

        What leaves a loop has waited for all that enters it, which may come later in program order. Returns
        None, or the clusters that wait for themselves or such ones.
        """
        if self._places.is_one_sequence:
            return None
        levels: dict[Frame, int] = {}
        rising: set[int] = set()
        for _ in range(len(self._places.frames) + 2 * len(self._floors) + 2):
            before, floors = dict(levels), dict(self._floors)
            self._raise_levels(levels)
            rising = {n for n, floor in floors.items() if self._floors[n] != floor}
            if before == levels and not rising:
                return None
            if max((*levels.values(), *self._floors.values())) > len(self._units.items):
                break  # no order has more levels
        return rising

    def _raise_levels(self, frame_levels: dict[Frame, int]) -> None:
        for item in self._units.items:
            place = self._places.of(item)
            number = self._cluster_of.get(item)
            level = 0 if number is None else self._floors[number]
            if not isinstance(item, WholeUnit) and item.definition.flow == "exit":
                level = frame_levels.get(place.frame, 0)
            for source in self._places.sources(item):
                level = max(level, self._level_after(source, item))
            for other in self.before.get(item, ()):
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
        place, own = self._places.of(before), self._places.of(item)
        if self._units.is_dynamic(item):
            return place.level
        together = (
            not self._units.is_dynamic(before)
            and place.frame is own.frame
            and place.conditions == own.conditions
            and place.waits == own.waits
        )
        return place.level if together else place.level + 1


def _touched_by(item: Item) -> tuple[set[str], set[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for op in item.ops if isinstance(item, WholeUnit) else [item]:
        more = touched(op)
        reads |= more[0]
        writes |= more[1]
    return reads, writes
