"""The count of asynchronous steps: who may begin one, how far workers may be apart, and their results."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tensorbow.errors import InternalError

GO, WAIT, END = "go", "wait", "end"


@dataclass
class _Progress:
    """State of one worker. clock: steps that it is taken to have done; active: it has joined and not left."""

    clock: int = 0
    active: bool = False
    in_step: bool = False
    seen_s: float = 0.0
    overlooked: bool = False
    given_up: bool = False  # its step was silent for too long: others may take it
    steps: int = 0  # that it has done


@dataclass
class StepCoordinator:
    """A pure state machine; times come from outside.

    steps: of all workers together; None: until their inputs end. staleness: a worker waits while it is more
    than so many steps ahead of the slowest; None: it never waits. timeout_s: a worker that is not heard of
    for so long is not waited for, and others take its step if they have no other left. most_results: so many
    results may wait for whoever takes them.
    """

    workers: int
    steps: int | None = None
    staleness: int | None = None
    timeout_s: float = 10.0
    most_results: int = 64
    begun: int = 0
    done: int = 0
    ended: bool = False
    results: deque[tuple[int, Any]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._progress = [_Progress() for _ in range(self.workers)]

    @property
    def steps_by_worker(self) -> list[int]:
        """Number of steps that each worker has done."""
        return [each.steps for each in self._progress]

    @property
    def lacks_steps(self) -> bool:
        """True while a number of steps is asked for that has not been done."""
        return self.steps is not None and not self.ended and self.done < self.steps

    def join(self, worker: int, now_s: float) -> None:
        """A worker begins, or begins again: a step that it had begun is not counted; others may take it."""
        own = self._progress[worker]
        if own.in_step:
            self.begun -= 1
        clocks = [each.clock for each in self._progress if each is not own and each.active]
        own.clock, own.active = min(clocks, default=own.clock), True
        own.in_step = own.given_up = False
        self._heard_of(own, now_s)

    def leave(self, worker: int) -> None:
        """Removes a worker without inputs, or lost: its step is not counted, and no worker waits for it."""
        own = self._progress[worker]
        if own.in_step:
            self.begun -= 1
        own.active = own.in_step = own.given_up = False

    def finish(self, worker: int, result: Any, now_s: float) -> None:
        """A worker has done a step, which is not counted if others have taken it meanwhile.

        Raises InternalError if it has not begun one.
        """
        own = self._progress[worker]
        if own.given_up:
            own.given_up = False
            if self.begun == self.steps:
                self._heard_of(own, now_s)
                return
            own.in_step = True  # no other call has begun it
            self.begun += 1
        if not own.in_step:
            raise InternalError(f"worker {worker} ends a step that it has not begun")
        own.in_step = False
        own.clock += 1
        own.steps += 1
        self.done += 1
        self.results.append((worker, result))
        self._heard_of(own, now_s)

    def ask(self, worker: int, now_s: float) -> str:
        """Answer to a worker that wants to begin a step: GO, WAIT or END."""
        own = self._progress[worker]
        self._heard_of(own, now_s)
        if self.ended or (self.steps is not None and self.done >= self.steps):
            return END
        if self.steps is not None and self.begun >= self.steps:
            self._give_up_silent(now_s)
            if self.begun >= self.steps:
                return WAIT  # another's step may come to nothing
        if len(self.results) >= self.most_results:
            return WAIT
        if self.staleness is not None and own.clock - self._slowest(now_s) > self.staleness:
            return WAIT
        own.in_step = True
        self.begun += 1
        return GO

    def _give_up_silent(self, now_s: float) -> None:
        """Has others take the steps of workers that were silent for too long."""
        for each in self._progress:
            if each.in_step and now_s - each.seen_s > self.timeout_s:
                each.in_step, each.given_up = False, True
                self.begun -= 1

    def _slowest(self, now_s: float) -> int:
        """Clock of the slowest worker that is waited for."""
        for each in self._progress:
            if (each.in_step or each.given_up) and now_s - each.seen_s > self.timeout_s:
                each.overlooked = True
        return min(each.clock for each in self._progress if each.active and not each.overlooked)

    def _heard_of(self, own: _Progress, now_s: float) -> None:
        if own.overlooked:  # others went on without it
            own.overlooked = False
            clocks = [each.clock for each in self._progress if each is not own and each.active]
            own.clock = max(own.clock, min(clocks, default=own.clock))
        own.seen_s = now_s

    def end(self) -> None:
        """No step begins any more."""
        self.ended = True

    @property
    def is_over(self) -> bool:
        """True if no result comes any more once those at hand are taken."""
        all_done = self.steps is not None and self.done >= self.steps
        return all_done or (self.ended and not any(each.in_step for each in self._progress))
