"""Delay receives: what reads a value of another device runs as late as possible (white paper, section 5.2).

A value is received at the start of the stage that reads it first; from then on it takes memory, and there the
device waits for it. The latest place of a reader is in front of the first node that needs its results, or
that waits for another device itself. It goes there if no more memory is held than before; the work that
lies between then runs before the wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from tensorbow.compiler.partition import dependencies_of
from tensorbow.program.nodes import Node, Program, Value, storage_of


def delay_receives(program: Program, variables: Mapping[str, str]) -> Program:
    """Moves readers of other devices' values, and views, down to the first node that needs them.

    variables: the device of each, by name. All nodes are placed. A node stays where it is if it has effects
    or draws numbers, if another device needs it, or if a variable that it reads is written in between.
    """
    delay = _Delay(program, variables)
    for node in reversed(list(program.nodes)):
        latest = delay.latest(node)
        if latest is not None:
            delay.move(node, latest)
    program.nodes = delay.order
    return program


class _Delay:
    """The order of a program's nodes while some of them move."""

    def __init__(self, program: Program, variables: Mapping[str, str]):
        self.order = list(program.nodes)
        self._variables = variables
        self._at = {node: index for index, node in enumerate(self.order)}
        self._followers: defaultdict[Node, set[Node]] = defaultdict(set)  # that read it or wait for it
        self._readers: defaultdict[Value, set[Node]] = defaultdict(set)  # of a storage
        self._writers: defaultdict[Value, set[Node]] = defaultdict(set)
        self._awaited: dict[Node, Collection[Node]] = {}  # by control dependencies
        kept = set(self.order)
        for node in self.order:
            for value in node.inputs:
                if value.node is not None:
                    self._followers[value.node].add(node)
                if not node.definition.is_view:
                    self._readers[storage_of(value)].add(node)
            for index in node.definition.writes:
                self._writers[storage_of(node.inputs[index])].add(node)
            self._awaited[node] = dependencies_of(node, kept)
            for other in self._awaited[node]:
                self._followers[other].add(node)
        self._fetched = {value for fetch in program.fetches for value in (fetch, storage_of(fetch))}

    def latest(self, node: Node) -> int | None:
        """The place up to which a node should move; None if it stays."""
        definition = node.definition
        if definition.stateful or definition.writes or definition.random or definition.exchange:
            return None
        followers = self._followers[node]
        if any(follower.device != node.device for follower in followers):
            return None
        here = self._at[node]
        last = min((self._at[follower] for follower in followers), default=len(self.order))
        last = next((at for at in range(here + 1, last) if self._waits(self.order[at], node, here)), last)
        roots = {storage_of(value) for value in node.inputs}
        written = (self._at[writer] for root in roots for writer in self._writers[root])
        if last <= here + 1 or any(here < at < last for at in written):
            return None
        return last if definition.is_view or self._saves_memory(node, last) else None

    def _waits(self, other: Node, node: Node, here: int) -> bool:
        """True if a later node of the device waits for what no node before `here` has waited for."""
        if other.device != node.device:
            return False
        away = [root for root in map(storage_of, other.inputs) if self._is_away(root, node.device)]
        return any(follows.device != node.device for follows in self._awaited[other]) or any(
            all(r.device != node.device or self._at[r] >= here for r in self._readers[root]) for root in away
        )

    def _is_away(self, root: Value, device: str) -> bool:
        return self._device_of(root) not in (None, device)

    def _device_of(self, root: Value) -> str | None:
        if root.node is not None:
            return root.node.device
        return self._variables[root.variable.name] if root.variable is not None else None

    def _saves_memory(self, node: Node, last: int) -> bool:
        """True if values from elsewhere come later, and as much memory as before is enough."""
        longer = received = 0
        for value in {storage_of(value): value for value in node.inputs}.values():
            root = storage_of(value)
            readers = [r for r in self._readers[root] if r is not node and r.device == node.device]
            if self._is_away(root, node.device):
                if all(self._at[reader] > self._at[node] for reader in readers):
                    received += value.spec.nbytes
            elif root.node is not None and root not in self._fetched:
                longer += all(self._at[reader] < last for reader in readers) * root.spec.nbytes
        shorter = received + sum(v.spec.nbytes for v in node.outputs if storage_of(v) is v)
        return bool(received) and longer <= shorter

    def move(self, node: Node, last: int) -> None:
        """Moves a node in front of the one at `last`."""
        here = self._at[node]
        self.order[here:last] = [*self.order[here + 1 : last], node]
        for index in range(here, last):
            self._at[self.order[index]] = index
