"""Rounds that are launched: their events, and what these say at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from tensorbow.devices import Event
from tensorbow.errors import AbortedError


class LaunchedRounds:
    """The tasks of all replicas in some rounds, launched together; they end together."""

    def __init__(self, number: int, rounds: range, members: Sequence[range]):
        """number: of the launch. members: for each event the replicas whose tasks it ends, in order."""
        self.number, self.rounds, self.members = number, rounds, members
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
        """By replica, when its tasks ended, by `time.perf_counter`."""
        if len(self.events) == 1:
            return [self.events[0].time_s] * len(self.members[0])
        pairs = zip(self.members, self.events, strict=True)
        return [event.time_s for replicas, event in pairs for _ in replicas]

    def failed(self, replica: int) -> bool:
        """True if the event of a replica ended with an error."""
        pairs = zip(self.members, self.events, strict=True)
        return any(event.error is not None for replicas, event in pairs if replica in replicas)
