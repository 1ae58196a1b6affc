"""Launches of rounds: their interface, their events, and what these say at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import AbortedError
from tensorbow.specs import Array


class LaunchedRounds:
    """The tasks of all replicas in some rounds, launched together; they end together."""

    def __init__(self, number: int, rounds: range, replicas: Sequence[range]):
        """number: of the launch. replicas: for each event those whose tasks it ends, in order."""
        self.number, self.rounds, self.replicas = number, rounds, replicas
        self.events: Sequence[Event] = ()

    def follow(
        self,
        events: Sequence[Event],
        call: Callable[[LaunchedRounds], object],
        stop: Callable[[], object] | None = None,
    ) -> None:
        """Takes the events; has `call` be called at the end of the last, `stop` at one that failed."""
        self.events = events
        ended = count(1)

        def one_ended(event: Event) -> None:
            if stop is not None and event.error is not None:
                stop()
            if next(ended) == len(events):
                call(self)

        for event in events:
            event.on_done(one_ended)

    @property
    def whole_rounds(self) -> int:
        """Rounds of a launch that failed before the one in which it did; see RoundLaunch.whole_rounds."""
        return 0

    @property
    def is_whole(self) -> bool:
        """True if all replicas have done these and no more."""
        return False

    def forget(self) -> None:
        """Holds the events no more: their errors hold frames, and these this object."""
        self.events = ()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the launch, if any; AbortedError only if no replica has another one."""
        if len(self.events) == 1:
            return self.events[0].error
        errors = [error for event in self.events if (error := event.error) is not None]
        return next((e for e in errors if not isinstance(e, AbortedError)), errors[0]) if errors else None

    @property
    def times_s(self) -> Sequence[float]:
        """Times by `time.perf_counter` at which the tasks ended, by replica."""
        if len(self.events) == 1:
            return [self.events[0].time_s] * len(self.replicas[0])
        pairs = zip(self.replicas, self.events, strict=True)
        return [event.time_s for replicas, event in pairs for _ in replicas]

    def failed(self, replica: int) -> bool:
        """True if the event of a replica ended with an error."""
        pairs = zip(self.replicas, self.events, strict=True)
        return any(event.error is not None for replicas, event in pairs if replica in replicas)


class Launcher(ABC):
    """Enqueues rounds of all replicas, as whole rounds or segment by segment; nothing here waits."""

    most_rounds: int  # of a launch
    least_rounds = 1  # of a launch whose rounds take long: more are faster
    caller_waits = False  # for the result, so that it may run the task in its own thread
    shares_central = False  # see RoundProgram

    @property
    def may_refuse(self) -> bool:
        """True if native code of whole rounds may refuse an input in the middle of one."""
        return False

    @property
    def may_refuse_midway(self) -> bool:
        """True if a refused input may be one that is not checked before a launch; fed indices are checked."""
        return self.may_refuse

    def connect(self) -> None:  # noqa: B027 - most need nothing
        """Takes what it shares with other workers; collective, once all have made such a launcher."""

    @abstractmethod
    def launch(
        self,
        number: int,
        rounds: range,
        inputs: Sequence[BatchInputs | BatchRun],
        state: Mapping[str, Any],
        when_ended: Callable[[LaunchedRounds], object],
        when_synchronised: Callable[[Event], object],
    ) -> int:
        """Enqueues the tasks of all replicas in some rounds, and their synchronisation.

        inputs: of one round, or runs of batches. state: step scalars as for `RoundProgram.launch`; with a
        status, rounds go on whatever it becomes. when_ended: called from any thread, at the end of the tasks.
        when_synchronised: at the end of each synchronisation that is not part of the tasks, with an event
        that says how it ended. Returns the number of these.
        """

    @abstractmethod
    def ended(self, tasks: LaunchedRounds) -> None:
        """Takes note of the end of a launch."""

    @abstractmethod
    def fetched(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """Values fetched by the finished tasks of a replica in a launch: a column per fetch, by round."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """True if it is known which threads do launches like the last one."""

    @property
    @abstractmethod
    def stopped(self) -> bool:
        """True if some status may be set."""

    @property
    def ended_by_others(self) -> bool:
        """True if launches have ended early because of a status that is set on another worker."""
        return False

    @abstractmethod
    def reset(self) -> None:
        """Before and after a run, when nothing is in flight."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Gives back what it holds beside the replicas, while nothing is in flight; idempotent."""
