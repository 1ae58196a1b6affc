"""Recompute: intermediate values of the forward pass are computed again for the gradient, not kept for it.

The white paper (section 4.1) names it for models that do not fit. The values in question are those that are
made before the point of a step at which most memory is live, the end of the forward pass, and read behind it.
`cheap` computes the results of elementwise ops, normalisation and pooling again from what is kept anyway;
`segments` cuts the forward pass into about sqrt(n) segments, keeps what crosses their borders, and computes
the inside of a segment again when the gradient first needs some of it (Chen et al., 2016). The same kernels
run on the same values, so the bits of results stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from tensorbow.compiler.placement import flops_of
from tensorbow.program.control_forms import Cond, While
from tensorbow.program.nodes import Node, Program, Value, storage_of

NEVER, CHEAP, SEGMENTS, SMALLEST = "never", "cheap", "segments", "smallest"
HOW = (NEVER, CHEAP, SEGMENTS, SMALLEST)
TRIED = {
    NEVER: (NEVER,),
    CHEAP: (NEVER, CHEAP),
    SEGMENTS: (NEVER, SEGMENTS),
    SMALLEST: (NEVER, CHEAP, SEGMENTS),
}
"""Ways that are planned, by option: the one with the smallest peak is taken."""
CHEAP_FLOPS = 16  # for each element of the results: as many are soon done beside a convolution


def recompute(program: Program, how: str) -> Program:
    """Gives readers behind the peak copies of what they read, computed again. how: cheap or segments.

    Random ops, those with effects, and those that read a variable that has been written meanwhile are not run
    again: their results are kept.
    """
    lives = _Lives(program)
    if not lives.crossing:
        return program
    kept = lives.not_repeatable()
    if how == CHEAP:
        kept |= {node for node in lives.before if not _is_cheap(node)}
        kept |= lives.not_worth_it(kept)
    else:
        kept |= lives.borders(max(2, round(math.sqrt(len(lives.crossing)))))
    program.nodes, count = _Repetition(lives, kept).nodes(program)
    if count:
        program.notes.append(f"recomputed: {count} ops run again for the gradient, to keep less ({how})")
    return program


def _is_cheap(node: Node) -> bool:
    shapes = [[value.spec.extents for value in values] for values in (node.inputs, node.outputs)]
    elements = sum(math.prod(shape) for shape in shapes[1])
    return flops_of(node.definition.name, node.attrs, *shapes) <= CHEAP_FLOPS * elements


class _Lives:
    """Times at which the values of a program are made and read, and those that cross its peak.

    peak: position of the node at which most bytes are live. before: nodes up to it. crossing: what they make
    and later nodes read; by storage, so without views.
    """

    def __init__(self, program: Program):
        self.order = list(program.nodes)
        self.at = {node: index for index, node in enumerate(self.order)}
        self.readers: dict[Value, list[int]] = {}
        self.writers: dict[Value, list[int]] = {}
        for index, node in enumerate(self.order):
            if node.definition.is_view:
                continue
            for root in {storage_of(value) for value in node.inputs}:
                self.readers.setdefault(root, []).append(index)
            for number in node.definition.writes:
                self.writers.setdefault(storage_of(node.inputs[number]), []).append(index)
        self.fetched = {storage_of(value) for value in program.fetches}
        made = [v for node in self.order for v in node.outputs if storage_of(v) is v]
        self.peak = self._peak(made)
        self.before = self.order[: self.peak + 1]
        self.crossing = {
            value
            for value in made
            if value.node is not None and value not in self.fetched
            if self.at[value.node] <= self.peak < max(self.readers.get(value, [-1]))
        }

    def _peak(self, made: Iterable[Value]) -> int:
        changes = [0] * (len(self.order) + 2)
        for value in made:
            if value.node is not None:
                first = self.at[value.node]
                last = len(self.order) if value in self.fetched else max(self.readers.get(value, [first]))
                changes[first] += value.spec.nbytes
                changes[last + 1] -= value.spec.nbytes
        live = best = peak = 0
        for index, change in enumerate(changes[: len(self.order)]):
            live += change
            if live > best:
                best, peak = live, index
        return peak

    def not_repeatable(self) -> set[Node]:
        """Nodes up to the peak that must not run twice."""
        return {
            node
            for node in self.before
            for op in (node.definition,)
            if op.stateful
            or op.random
            or op.writes
            or op.exchange
            or op.state
            or node.unfused
            or (op.form_of or op) in (While, Cond)
        }

    def is_stale(self, node: Node, at: int) -> bool:
        """True if a variable that a node reads is written between it and a position."""
        written = (number for value in node.inputs for number in self.writers.get(storage_of(value), ()))
        return any(self.at[node] < number < at for number in written)

    def not_worth_it(self, kept: Collection[Node]) -> set[Node]:
        """Nodes whose results are no larger than what would have to be kept longer to compute them again."""
        found: set[Node] = set()
        for node in self.before:
            if node in kept or node.definition.is_view:
                continue
            longer = {
                root
                for root in self.sources([node], {*kept, *found})
                if root.node is not None and root not in self.crossing and root not in self.fetched
            }
            nbytes = sum(v.spec.nbytes for v in node.outputs if v in self.crossing)
            if sum(root.spec.nbytes for root in longer) >= max(nbytes, 1) and nbytes:
                found.add(node)
        return found

    def sources(self, nodes: Iterable[Node], kept: Collection[Node]) -> set[Value]:
        """The storages of kept nodes, and of what comes from outside, that nodes need to run again."""
        found: set[Value] = set()
        pending, seen = list(nodes), set[Node]()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for value in node.inputs:
                root = storage_of(value)
                if root.node is None or root.node in kept:
                    found.add(root)
                else:
                    pending.append(root.node)
        return found

    def borders(self, count: int) -> set[Node]:
        """The nodes whose results cross the borders of `count` segments of the forward pass.

        Borders are at about equal shares of the crossing bytes, each where fewest bytes cross it.
        """
        total = sum(value.spec.nbytes for value in self.crossing)
        sums, running = [], 0
        for node in self.before:
            running += sum(value.spec.nbytes for value in node.outputs if value in self.crossing)
            sums.append(running)
        cut = self._cut_nbytes()
        found: set[Node] = set()
        for number in range(1, count):
            low, high = (total * (number + shift) / count for shift in (-0.35, 0.35))
            places = [index for index, nbytes in enumerate(sums) if low <= nbytes <= high]
            if places:
                border = min(places, key=lambda index: cut[index])
                found |= {
                    node
                    for node in self.before[: border + 1]
                    for value in node.outputs
                    if any(border < at <= self.peak for at in self.readers.get(value, ()))
                }
        return found

    def _cut_nbytes(self) -> list[int]:
        """Bytes made up to each position that forward nodes behind it read."""
        changes = [0] * (len(self.before) + 1)
        for index, node in enumerate(self.before):
            for value in node.outputs:
                last = max((at for at in self.readers.get(value, ()) if at <= self.peak), default=index)
                changes[index] += value.spec.nbytes
                changes[last] -= value.spec.nbytes
        sums, running = [], 0
        for change in changes[:-1]:
            running += change
            sums.append(running)
        return sums


class _Repetition:
    """The nodes of a program with copies in front of readers behind the peak."""

    def __init__(self, lives: _Lives, kept: Collection[Node]):
        self._lives, self._kept = lives, kept
        self._copies: dict[Value, Value] = {}

    def nodes(self, program: Program) -> tuple[list[Node], int]:
        """The nodes in their new order, and how many are copies, without views."""
        lives = self._lives
        nodes = list(lives.before)
        count = 0
        for node in lives.order[lives.peak + 1 :]:
            wanted = [v for v in node.inputs if storage_of(v) in lives.crossing]
            for original in self._needed(wanted, lives.at[node]):
                nodes.append(self._copy(original, node))
                count += not original.definition.is_view
            node.inputs = [self._copies.get(v, v) if v in wanted else v for v in node.inputs]
            nodes.append(node)
        return nodes, count

    def _repeats(self, value: Value, at: int) -> bool:
        """True if a value, or what it is a view of, can be computed again at a position."""
        root = storage_of(value)
        nodes = [node for node in (value.node, root.node) if node is not None]
        return root.node is not None and not any(
            node in self._kept or self._lives.at[node] > self._lives.peak or self._lives.is_stale(node, at)
            for node in nodes
        )

    def _needed(self, wanted: Sequence[Value], at: int) -> list[Node]:
        """The nodes to copy for these values of a reader at a position, in program order."""
        found: set[Node] = set()
        pending = [value for value in wanted if value not in self._copies]
        while pending:
            value = pending.pop()
            node = value.node
            if node is None or node in found or value in self._copies:
                continue
            if not self._repeats(value, at):
                continue
            found.add(node)
            pending += node.inputs
        return sorted(found, key=self._lives.at.__getitem__)

    def _copy(self, original: Node, reader: Node) -> Node:
        inputs = [self._copies.get(value, value) for value in original.inputs]
        copy = Node(
            f"{original.name}/again",
            original.definition,
            original.attrs,
            inputs,
            reader.position,
            original.source,
            device=original.device,
        )
        copy.outputs = [Value(v.name, v.spec, copy, v.index) for v in original.outputs]
        copy.note = f"computed again for {reader.name}"
        self._copies.update(zip(original.outputs, copy.outputs, strict=True))
        return copy
