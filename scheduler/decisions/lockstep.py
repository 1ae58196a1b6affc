"""Rounds in lockstep, as a pure state machine: all tasks of a round are launched together and end together.

So it is where a task is a whole step, averaging included, in one launch (`RoundLauncher`). A round
is one thing here: launched when `SchedulerState` with tau 1 and staleness 0 would have launched all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.decisions.machine import Handlers, Machine
from scheduler.decisions.messages import (
    Instruction,
    LaunchRound,
    Restart,
    RoundFailed,
    RoundFinished,
    RoundReady,
    SourceFailed,
    StopRequested,
)
from scheduler.decisions.tasks import EXECUTING, FINISHED, READY, STORIES, WAITING
from tensorbow.errors import InternalError


class LockstepState(Machine[None]):
    """Which round may run next. `handle` takes events and returns instructions, in order.

    Rounds are launched in order, and end in order. So two numbers say which are executing, and nothing is
    kept of those before.
    """

    def __init__(
        self,
        replicas: int,
        start: int,
        stop: int,
        *,
        launch_ahead: int = 2,
        synchronised: bool = True,
        restarts_before: Callable[[int], bool] = lambda round: False,
    ):
        """Rounds `start` to `stop` - 1. `restarts_before(r)`: averaging restarts before round r.

        launch_ahead: rounds enqueued and not finished, at most.
        Raises InvalidArgumentError for numbers out of range.
        """
        super().__init__(replicas, start, stop, launch_ahead, synchronised, restarts_before)
        self._ready: set[int] = set()  # rounds that could be launched
        self._next = start  # the round that is launched next
        self._oldest = start  # the first that has not ended

    @classmethod
    def _handlers_of_events(cls) -> Handlers[None]:
        return {
            RoundReady: cls._on_round_ready,
            RoundFinished: lambda machine, event: machine._end_round(event.round),
            RoundFailed: cls._on_round_failed,
            SourceFailed: lambda machine, event: machine._fail(event.reason),
            StopRequested: cls._on_stop_requested,
        }

    # Events

    def _on_round_ready(self, event: RoundReady) -> None:
        state = self._state(event.round)
        if state != WAITING or event.round < self.start:
            raise InternalError(f"{event} came again, or too late; {self._story(event.round)}")
        self._ready.add(event.round)

    def _end_round(self, round: int) -> None:
        if round != self._oldest or round == self._next:
            raise InternalError(
                f"round {round} has ended before round {self._oldest}, or without being launched; "
                f"{self._story(round)}"
            )
        self._oldest += 1

    def _on_round_failed(self, event: RoundFailed) -> None:
        self._end_round(event.round)
        self._fail(event.reason)

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason

    def _on_stop_requested(self, event: StopRequested) -> None:
        self.stop = min(self.stop, self._next)

    # Decisions

    def _advance(self, hints: Sequence[None]) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self._failure is None:
            most = min(self.stop, self._oldest + self.launch_ahead)
            while self._next < most and self._next in self._ready:
                self._ready.remove(self._next)
                instructions.append(LaunchRound(self._next))
                self._next += 1
                if self.synchronised and self._restarts_before(self._next):
                    instructions.append(Restart(self._next - 1))
        if self._next == self._oldest:
            self._end(instructions, self._next if self._next == self.stop else None)
        return instructions

    # Rounds

    def _state(self, round: int) -> str:
        if self.start <= round < self._next:
            return FINISHED if round < self._oldest else EXECUTING
        return READY if round in self._ready else WAITING

    def _story(self, round: int) -> str:
        return f"the story of round {round}: {' -> '.join(STORIES[self._state(round)])}"

    @property
    def in_flight(self) -> int:
        """Rounds enqueued and not finished."""
        return self._next - self._oldest

    def check_invariants(self) -> None:
        """Raises InternalError when the books do not balance."""
        where = f"next is round {self._next}, the oldest {self._oldest}, stop {self.stop}"
        self._require(self.start <= self._oldest <= self._next <= max(self.stop, self.start), where)
        self._require(self.in_flight <= self.launch_ahead, f"{self.in_flight} rounds are enqueued; {where}")
        self._require(all(round >= self._next for round in self._ready), f"ready are {self._ready}; {where}")
        if self._failure is None and self.in_flight < self.launch_ahead and self._next < self.stop:
            self._require(self._state(self._next) == WAITING, f"round {self._next} is not launched; {where}")
        if self._ended:
            self._require(not self.in_flight, f"ended with {self.in_flight} in flight")
            self._require(self._next == self.stop or self._failure is not None, f"ended early; {where}")
