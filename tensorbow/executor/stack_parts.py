"""Values that a loop keeps for its gradient: those of an iteration are pushed, and taken back, together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorbow.executor.sequence import HostPart, SequenceCalls, SequencePart, blamed_host
from tensorbow.ops.control_flow import StackPop, StackPush


class StackPart:
    """Pushes, or pops, that come one after the other and have the same numbers of iterations."""

    __slots__ = ("index", "moves", "parts", "pushes")

    def __init__(self, parts: Sequence[HostPart], index: tuple[int, ...], moves: Sequence[tuple[str, int]]):
        """index: slots of the numbers. moves: of each part the name of its stack, and the value's slot."""
        self.parts, self.index, self.moves = parts, index, moves
        self.pushes = parts[0].op.definition is StackPush

    def run(self, values: list[Any], calls: SequenceCalls) -> None:
        """See SequencePart.run. One by one where they are traced, or values may lie on devices."""
        if calls.teller is not None or calls.keeps_values:
            for part in self.parts:
                part.run(values, calls)
            return
        index = tuple([int(values[slot]) for slot in self.index])
        stacks, step = calls.stacks, calls.shared.step
        for number, (name, slot) in enumerate(self.moves):
            kept = stacks.get(name)
            if kept is None:
                kept = stacks[name] = step.get(name, dict)
            if self.pushes:
                kept[index] = values[slot]
                continue
            try:
                values[slot] = kept.pop(index)
            except KeyError as error:
                raise blamed_host(self.parts[number].op, error) from error


def with_joined_stacks(parts: Sequence[SequencePart]) -> list[SequencePart]:
    """The parts of a block, with neighbouring pushes, and pops, as one."""
    joined: list[SequencePart] = []
    run: list[HostPart] = []
    last: object = None  # common to all parts of a run
    for part in parts:
        kind = _kind(part)
        if run and kind != last:
            joined.append(_joined(run))
            run = []
        last = kind
        if kind is not None and isinstance(part, HostPart):
            run.append(part)
        else:
            joined.append(part)
    if run:
        joined.append(_joined(run))
    return joined


def _kind(part: SequencePart) -> object:
    """The op's definition and the slots of the index; None for what is no push or pop of a stack."""
    if not isinstance(part, HostPart) or part.op.definition not in (StackPush, StackPop):
        return None
    if part.op.definition is StackPush:
        return StackPush, part.slots[1:]
    return None if part.op.attrs["or_zeros"] else (StackPop, part.slots)


def _joined(parts: Sequence[HostPart]) -> SequencePart:
    first = parts[0]
    if first.op.definition is StackPush:
        return StackPart([*parts], first.slots[1:], [(part.op.name, part.slots[0]) for part in parts])
    return StackPart([*parts], first.slots, [(part.op.attrs["push"], part.first) for part in parts])
