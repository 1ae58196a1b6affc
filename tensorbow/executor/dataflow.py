"""Values of a dynamic step on their way: ready counts, frames, iterations, dead tensors (white paper, 4.4).

No threads: `DynamicStep` computes outputs, and says here that a node has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorbow.errors import InternalError
from tensorbow.executor.dynamic_plan import DynamicPlan
from tensorbow.executor.iterations import Iteration, RunningFrame
from tensorbow.executor.plan_nodes import DynamicNode, NodeKind
from tensorbow.graph import DEAD, Tensor
from tensorbow.specs import Array

FIRED = 1 << 30  # count of a Merge that has run
LONG_S = 2e-4  # seconds of a sequence that is worth another thread


class Dataflow:
    """The nodes of one run of a plan that are ready, and the values that others wait for.

    ready: nodes to run, and their iterations. slow: those that another thread may run. fetched: values by
    node and output.
    """

    def __init__(self, plan: DynamicPlan):
        self.ready: list[tuple[DynamicNode, Iteration]] = []
        self.slow: list[tuple[DynamicNode, Iteration]] = []
        self.fetched: dict[tuple[DynamicNode, int], Any] = {}
        self._plan = plan
        self._wanted = plan.wanted

    def moves(self) -> dict[NodeKind, Callable[[DynamicNode, Iteration], None]]:
        """Functions that run nodes of control flow, by kind; the step runs sequences and ops of the host."""
        return {
            NodeKind.SWITCH: self._switch,
            NodeKind.MERGE: self._merge,
            NodeKind.PASS: self._pass,
            NodeKind.ENTER: self._enter,
            NodeKind.EXIT: self._leave,
            NodeKind.NEXT: self._next,
            NodeKind.DONE: self._finish,
        }

    def begin(self, feeds: Mapping[Tensor, Array]) -> None:
        """Begins the outermost frame."""
        root = RunningFrame(self._plan.root, None)
        first = root.iterations[0] = Iteration(root, 0)
        first.outstanding = 1  # the step itself
        for node in root.ready:
            self._push(node, first)
        for tensor, readers in self._plan.sources:
            for node, slot in readers:
                self._deliver(node, slot, feeds[tensor], first)

    def _push(self, node: DynamicNode, iteration: Iteration) -> None:
        iteration.outstanding += 1
        if (
            node.slow
            and not iteration.dead[node.index]
            and (node.sequence is None or node.sequence.duration_s > LONG_S)
        ):
            self.slow.append((node, iteration))
        else:
            self.ready.append((node, iteration))

    # What a node of control flow does ---------------------------------------------------------

    def _pass(self, node: DynamicNode, iteration: Iteration) -> None:
        self.emit(node, iteration, (iteration.values[node.first],))

    def _merge(self, node: DynamicNode, iteration: Iteration) -> None:
        values = iteration.values
        for slot in range(node.first, node.first + node.count):
            if values[slot] is not None and values[slot] is not DEAD:
                self.emit(node, iteration, (values[slot],))
                return
        raise InternalError(f"Merge {node.name} has no input")

    def _switch(self, node: DynamicNode, iteration: Iteration) -> None:
        data, pred = iteration.values[node.first], iteration.values[node.first + 1]
        self.emit(node, iteration, (DEAD, data) if pred else (data, DEAD))

    def _leave(self, node: DynamicNode, iteration: Iteration) -> None:
        around = iteration.running.around
        if around is None:
            raise InternalError(f"{node.name} leaves no frame")
        self.emit(node, around, (iteration.values[node.first],))

    def _finish(self, node: DynamicNode, iteration: Iteration) -> None:
        self.emit(node, iteration, ())

    # Values -----------------------------------------------------------------------------------

    def emit(self, node: DynamicNode, iteration: Iteration, outputs: Sequence[Any]) -> None:
        """Hands outputs to their readers, in the iteration where these are."""
        for value, readers in zip(outputs, node.readers, strict=True):
            for reader, slot in readers:
                self._deliver(reader, slot, value, iteration)
        if node.controls:
            for reader in node.controls:
                self._count_down(reader, iteration)
        if node.followers:
            for reader in node.followers:
                self._count_down(reader, iteration)
        if node.ordered:
            self._pass_turn(node, iteration)
        if node.fetched:
            for output in self._wanted.get(node, ()):
                self.fetched[(node, output)] = outputs[output]

    def _pass_turn(self, node: DynamicNode, iteration: Iteration) -> None:
        """Lets an ordered node run in the next iteration."""
        running, number = iteration.running, iteration.number + 1
        running.turns[node] = number
        following = running.iterations.get(number)
        if following is not None:
            self._count_down(node, following)

    def _deliver(self, reader: DynamicNode, slot: int, value: Any, iteration: Iteration) -> None:
        iteration.values[slot] = value
        index = reader.index
        pending = iteration.pending
        if reader.merges:
            pending[index] -= 1
            if value is not DEAD and pending[index] < FIRED // 2:
                pending[index] = FIRED
                self._push(reader, iteration)
            elif pending[index] == 0:
                iteration.dead[index] = 1
                self._push(reader, iteration)
            return
        if value is DEAD:
            iteration.dead[index] = 1
        count = pending[index] = pending[index] - 1
        if count == 0:
            self._push(reader, iteration)

    def _count_down(self, reader: DynamicNode, iteration: Iteration, dead: bool = False) -> None:
        if dead:
            iteration.dead[reader.index] = 1
        count = iteration.pending[reader.index] = iteration.pending[reader.index] - 1
        if count == 0:
            self._push(reader, iteration)

    def pass_dead(self, node: DynamicNode, iteration: Iteration) -> None:
        """Marks the readers of a node as dead in an iteration in which the node is."""
        if node.kind in (NodeKind.NEXT, NodeKind.EXIT):  # of an iteration that is not the last
            return
        if node.kind == NodeKind.ENTER:
            self._skip_frame(node, iteration)
            return
        for readers in node.readers:
            for reader, slot in readers:
                self._deliver(reader, slot, DEAD, iteration)
        for reader in node.controls:
            self._count_down(reader, iteration, dead=True)
        for reader in node.followers:
            self._count_down(reader, iteration)
        if node.ordered:
            self._pass_turn(node, iteration)

    # Frames -----------------------------------------------------------------------------------

    def _enter(self, node: DynamicNode, iteration: Iteration) -> None:
        frame, value = node.target, iteration.values[node.first]
        running = iteration.children.get(frame)
        if running is None:
            running = iteration.children[frame] = RunningFrame(frame, iteration)
            iteration.outstanding += 1
            self._begin(running, 0)
        running.entering -= 1
        if node.op is not None and node.op.attrs["is_constant"]:
            for reader, slot in node.readers[0]:
                running.values[slot] = value
                self._base_down(running, reader)
            for reader in (*node.controls, *node.followers):
                self._base_down(running, reader)
            for each in list(running.iterations.values()):
                self.emit(node, each, (value,))
        else:
            self.emit(node, running.iterations[0], (value,))
        if running.iterations.get(0) is not None and running.iterations[0].outstanding == 0:
            self._iterate(running)

    def _base_down(self, running: RunningFrame, reader: DynamicNode) -> None:
        running.pending[reader.index] -= 1
        if running.pending[reader.index] == 0:
            running.ready.append(reader)

    def _skip_frame(self, node: DynamicNode, iteration: Iteration) -> None:
        """A dead Enter: the frame never runs, and its exits are dead."""
        frame = node.target
        if frame in iteration.children:
            return
        iteration.children[frame] = None
        for leaving in frame.exits:
            for readers in leaving.readers:
                for reader, slot in readers:
                    self._deliver(reader, slot, DEAD, iteration)
            for reader in leaving.controls:
                self._count_down(reader, iteration, dead=True)
        if frame.done is not None:
            self._count_down(frame.done, iteration)

    def _begin(self, running: RunningFrame, number: int) -> Iteration:
        iteration = running.iterations[number] = Iteration(running, number)
        for node in running.ready:
            self._push(node, iteration)
        for node, turn in running.turns.items():
            if turn == number:
                self._count_down(node, iteration)
        return iteration

    def _next(self, node: DynamicNode, iteration: Iteration) -> None:
        running, value = iteration.running, iteration.values[node.first]
        number = iteration.number + 1
        if number - running.oldest >= running.limit:
            running.held_back.append((node, value, number))
            return
        following = running.iterations.get(number) or self._begin(running, number)
        self.emit(node, following, (value,))

    def end(self, iteration: Iteration) -> None:
        """A node has run; the last one of an iteration ends it."""
        iteration.outstanding -= 1
        if iteration.outstanding == 0:
            self.end_iteration(iteration)

    def end_iteration(self, iteration: Iteration) -> None:
        """Ends an iteration in which nothing is left to run."""
        running = iteration.running
        if running.around is not None and iteration.number == running.oldest:
            self._iterate(running)

    def _iterate(self, running: RunningFrame) -> None:
        """Ends iterations in which nothing is left to run, and begins those that waited for them."""
        while True:
            oldest = running.iterations.get(running.oldest)
            if oldest is not None:
                if oldest.outstanding or (running.oldest == 0 and running.entering):
                    return
                del running.iterations[running.oldest]
                running.oldest += 1
            held, running.held_back = running.held_back, deque()
            for node, value, number in held:  # all of the iteration that may begin now
                following = running.iterations.get(number) or self._begin(running, number)
                self.emit(node, following, (value,))
            if not running.iterations:
                break
        around = running.around
        if around is None:
            raise InternalError("the outermost frame ended")
        around.children[running.frame] = None
        if running.frame.done is not None:
            self._count_down(running.frame.done, around)
        self.end(around)
