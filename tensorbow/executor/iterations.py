"""Running frames and their iterations: counts and values of the nodes in them (white paper, section 4.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tensorbow.errors import CancelledError, DeadlineExceededError
from tensorbow.executor.plan_nodes import DynamicNode, Frame
from tensorbow.graph import add_iteration


class Iteration:
    """State of one iteration of a running frame: its tag is the frame and the number."""

    __slots__ = ("children", "dead", "number", "outstanding", "pending", "running", "values")

    def __init__(self, running: RunningFrame, number: int):
        self.running = running
        self.number = number
        self.pending: list[int] = running.pending.copy()
        self.values: list[Any] = running.values.copy()
        self.dead = bytearray(running.dead)
        self.outstanding = 0  # nodes that are ready or running, and frames inside
        self.children: dict[Frame, RunningFrame | None] = {}

    def loops(self) -> Iterator[tuple[str, int]]:
        """The loops around what runs here, the innermost first, and the iteration of each."""
        around: Iteration | None = self
        while around is not None and around.running.around is not None:
            yield around.running.frame.name, around.number
            around = around.running.around

    def place(self, error: BaseException) -> None:
        """Adds the loops and iterations in which an op has failed to its error."""
        if not isinstance(error, (CancelledError, DeadlineExceededError)):
            for name, number in self.loops():
                add_iteration(error, name, number)


class RunningFrame:
    """A frame that has been entered from one iteration of the frame around."""

    __slots__ = (
        "around", "dead", "entering", "frame", "held_back", "iterations", "oldest", "pending",
        "ready", "turns", "values",
    )  # fmt: skip

    def __init__(self, frame: Frame, around: Iteration | None):
        self.frame = frame
        self.around = around
        # What every iteration begins with: constants, and what has come in by constant Enters.
        self.pending = frame.pending.copy()
        self.values: list[Any] = frame.values.copy()
        self.dead = bytearray(len(frame.nodes))
        self.ready = frame.ready.copy()
        self.turns = dict.fromkeys(frame.ordered, 0)  # the iteration whose turn it is
        self.entering = frame.enters  # Enters still to come
        self.iterations: dict[int, Iteration] = {}
        self.oldest = 0
        self.held_back: deque[tuple[DynamicNode, Any, int]] = (
            deque()
        )  # NextIterations beyond parallel_iterations

    @property
    def limit(self) -> int:
        """Iterations that may be under way at once."""
        return 1 if self.frame.sequential else self.frame.parallel_iterations
