"""Order of the entries of a sequence, and levels: which of them are one region, and what runs between."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tensorbow.compiler.wholes import Whole
from tensorbow.errors import InternalError
from tensorbow.executor.effects import touched
from tensorbow.executor.shape_arguments import by_op, determining, follows_shapes, shape_arguments
from tensorbow.executor.units import Item, Units, WholeUnit
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.graph.function import SHAPE_ONLY
from tensorbow.ops.control_flow import StackPop
from tensorbow.ops.tensor_arrays import TensorArraySize


@dataclass(eq=False)
class InnerWhole:
    """A loop or cond that the sequence runs itself."""

    whole: Whole
    items: list[Item] = field(default_factory=list)

    @property
    def ops(self) -> list[Operation]:
        """Its whole content."""
        return [op for item in self.items for op in ops_of(item)]


Entry: TypeAlias = "Operation | WholeUnit | InnerWhole"


def ops_of(entry: Entry) -> list[Operation]:
    """The ops of an entry of a block."""
    return [entry] if isinstance(entry, Operation) else entry.ops


class SplitError(Exception):
    """Raised where loops and conds that belong together cannot be in one region."""

    def __init__(self, items: Iterable[Item]):
        super().__init__()
        self.excluded = Units.left_out(items)


def _place(entry: Entry) -> int:
    """Place in program order."""
    return entry.id if isinstance(entry, Operation) else min(op.id for op in entry.ops)


def _sorted(entries: Sequence[Entry], needs: Mapping[Entry, set[Entry]]) -> list[Entry]:
    """Entries in program order, as far as each comes after what it needs; they are given in program order.

    Raises SplitError for units that wait for each other.
    """
    number_of = {entry: number for number, entry in enumerate(entries)}
    readers: dict[Entry, list[Entry]] = {entry: [] for entry in entries}
    left = {}
    for entry, needed in needs.items():
        left[entry] = len(needed)
        for source in needed:
            readers[source].append(entry)
    ready = [number_of[entry] for entry in entries if not left[entry]]
    ordered: list[Entry] = []
    while ready:
        entry = entries[heapq.heappop(ready)]
        ordered.append(entry)
        for reader in readers[entry]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, number_of[reader])
    if len(ordered) < len(entries):
        units = [each for each in entries if isinstance(each, WholeUnit) and left[each]]
        if not units:
            raise InternalError("ops of a sequence wait for each other")
        raise SplitError(units)
    return ordered


class EntryOrder:
    """The order of a sequence's entries, block by block.

    aliases: identities of what no region makes, which nothing runs.
    """

    def __init__(self, units: Units, fed: Collection[Tensor]):
        self._units, self._fed = units, fed
        self._cluster_of = {item: n for n, each in enumerate(units.clusters) for item in each}
        self._floors = [0] * len(units.clusters)
        self.aliases: set[Operation] = set()
        self._known: dict[Tensor, bool] = {}
        self._cut_of: dict[Entry, list[Tensor]] = {}

    def is_static(self, entry: Entry) -> bool:
        """True if a region has it."""
        if isinstance(entry, InnerWhole) or entry in self.aliases:
            return False
        return not self._units.is_dynamic(entry)

    def is_alias(self, op: Operation) -> bool:
        """True for an op that nothing runs: its output is its input."""
        return op in self.aliases or bool(op.definition.flow)

    def arranged(self, entries: list[Entry]) -> tuple[list[Entry], dict[Entry, int]]:
        """Entries in program order, as far as each comes after what it needs, and the level of each.

        Static ones of one level are a region, and run before others of it. Raises SplitError.
        """
        entries = sorted(entries, key=_place)
        number_of = {op: number for number, entry in enumerate(entries) for op in ops_of(entry)}
        if not any(map(self.is_static, entries)) and self._is_ordered(number_of):
            return entries, dict.fromkeys(entries, 0)
        needs: dict[Entry, set[Entry]] = {}
        for number, entry in enumerate(entries):
            needed = {number_of.get(each, number) for op in ops_of(entry) for each in self._needed(op)}
            needs[entry] = {entries[each] for each in needed if each != number}
        ordered = _sorted(entries, needs)
        for entry in ordered:
            if isinstance(entry, Operation) and self._hands_on(entry, entries, number_of):
                self.aliases.add(entry)
        self._add_order(ordered, needs)
        return ordered, self._levels(ordered, needs)

    def _is_ordered(self, number_of: Mapping[Operation, int]) -> bool:
        """True if what ops need comes before them."""
        return all(
            number_of.get(other, number) <= number
            for op, number in number_of.items()
            for other in self._needed(op)
        )

    def _needed(self, op: Operation) -> list[Operation]:
        """Ops that run before another one, of this sequence or not."""
        needed = [tensor.op for tensor in op.inputs if tensor not in self._fed]
        needed += op.control_inputs
        if op.definition is StackPop:
            needed.append(op.graph.get_operation_by_name(op.attrs["push"]))
        return [each for each in needed if each.definition.flow != "next_iteration"]

    def _hands_on(self, op: Operation, entries: Sequence[Entry], number_of: Mapping[Operation, int]) -> bool:
        """True for an Identity of what no region makes: it is no op to run."""
        if op.type != "Identity" or self._units.is_dynamic(op) or op.inputs[0] in self._fed:
            return False
        source = op.inputs[0].op
        if is_free(source):
            return False
        number = number_of.get(source)
        return number is None or not self.is_static(entries[number])

    def _add_order(self, ordered: Sequence[Entry], needs: dict[Entry, set[Entry]]) -> None:
        """Adds the order in which variables and stacks are read and written."""
        writers: dict[str, Entry] = {}
        readers: dict[str, list[Entry]] = {}
        for entry in ordered:
            reads, writes = set(), set()
            for op in ops_of(entry):
                more = touched(op)
                reads |= more[0]
                writes |= more[1]
            for name in reads | writes:
                if name in writers:
                    needs[entry].add(writers[name])
            for name in writes:
                needs[entry].update(readers.pop(name, ()))
                writers[name] = entry
            for name in reads - writes:
                readers.setdefault(name, []).append(entry)
            needs[entry].discard(entry)

    def _levels(self, ordered: Sequence[Entry], needs: Mapping[Entry, set[Entry]]) -> dict[Entry, int]:
        here = {item for item in ordered if item in self._cluster_of}
        for item in here:
            cluster = self._units.clusters[self._cluster_of[item]]
            if not here.issuperset(cluster):
                raise SplitError(cluster)
        for _ in range(2 * len(self._floors) + 2):
            floors = list(self._floors)
            levels = self._raised(ordered, needs)
            if floors == self._floors:
                return levels
        rising = [n for n, floor in enumerate(floors) if floor != self._floors[n]]
        raise SplitError(self._units.clusters[rising[0]])

    def _raised(self, ordered: Sequence[Entry], needs: Mapping[Entry, set[Entry]]) -> dict[Entry, int]:
        levels: dict[Entry, int] = {}
        after: dict[Entry, tuple[int, int]] = {}  # the least level of a static, and of another op behind it
        of = {op: entry for entry in ordered for op in ops_of(entry)}
        for entry in ordered:
            static = self.is_static(entry)
            alias = isinstance(entry, Operation) and self.is_alias(entry)
            cluster = None if isinstance(entry, InnerWhole) else self._cluster_of.get(entry)
            least = 0 if cluster is None else self._floors[cluster]
            either = [after[each] for each in needs[entry]]
            level = max((pair[0 if static else 1] for pair in either), default=0)
            level = max(level, least)
            for tensor in self._cuts(entry) if static else ():
                source = of.get(tensor.op)
                if source is not None and source is not entry and self.is_static(source):
                    level = max(level, levels[source] + 1)
            levels[entry] = level
            if cluster is not None:
                self._floors[cluster] = level
            if alias:
                after[entry] = (max((pair[0] for pair in either), default=0), level)
            else:
                after[entry] = (level if static else level + 1, level)
        return levels

    def _cuts(self, entry: Entry) -> list[Tensor]:
        """Inputs on whose values shapes depend, and which are not known once other shapes are."""
        known = self._cut_of.get(entry)
        if known is None:
            known = self._cut_of[entry] = self._found_cuts(entry)
        return known

    def _found_cuts(self, entry: Entry) -> list[Tensor]:
        if isinstance(entry, WholeUnit):
            inside = set(entry.ops)
            found = list(determining(entry.ops, lambda tensor: tensor.op not in inside))
        else:
            found = shape_arguments(entry) if isinstance(entry, Operation) else []
        return [tensor for tensor in found if not follows_shapes(tensor, self._is_known, self._known)]

    def _is_known(self, tensor: Tensor) -> bool | None:
        """True if a value is known in its region once the shapes of the region's inputs are: see `by_op`."""
        definition = tensor.op.definition
        if not is_free(tensor.op):
            if tensor in self._fed:
                return False
            if definition.name in SHAPE_ONLY or definition is TensorArraySize:
                return not self._units.is_dynamic(tensor.op)
        return by_op(tensor)
