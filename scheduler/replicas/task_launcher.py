"""Tasks and synchronisations on streams, segment by segment, ordered by events: on every kind of device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from scheduler.averaging.all_reduce import AllReduce
from scheduler.averaging.gradient_mean import clear_segment, update_segment
from scheduler.averaging.sma_segments import SEGMENT_UPDATE, averaging_segment, restart_segment
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.central import CentralModel
from scheduler.replicas.launched_rounds import LaunchedRounds
from scheduler.replicas.replica import Replica
from tensorbow.data import AllInputs, BatchInputs, BatchRun, RoundInputs
from tensorbow.devices import Event
from tensorbow.errors import InternalError
from tensorbow.specs import Array


class TaskLauncher:
    """Enqueues the tasks of replicas, their synchronisation, and restarts; nothing here waits."""

    most_rounds = 1  # of a launch: more would be no faster
    settled = True  # how launches go

    def __init__(
        self,
        replicas: Sequence[Replica],
        central: Sequence[CentralModel],
        options: Synchronisation,
        places: Sequence[int],
        all_reduce: AllReduce | None,
    ):
        """places: by replica, that of its device in `central`."""
        self._replicas, self._central, self._options = replicas, central, options
        self._places, self._all_reduce = places, all_reduce
        count = len(replicas)
        self._averages, self._gang_from = options.averages(count), options.gang_from(count)
        self._slots = options.staleness + 1 if self._averages else 0
        self._z_events: dict[int, list[Event]] = {}  # by averaging number, one per device
        self._last: list[Event | None] = [None] * count  # the last enqueued task of each replica
        self.runs_here = False  # whether who launches may as well do the work, for it waits anyway

    # Rounds ---------------------------------------------------------------------------------------

    def launch(
        self,
        number: int,
        rounds: range,
        inputs: AllInputs,
        state: Mapping[str, Any],
        when_ended: Callable[[LaunchedRounds], object],
        when_synchronised: Callable[[Event], object],
    ) -> int:
        """Enqueues the tasks of all replicas in a round, and its synchronisation.

        rounds: one. inputs, state: as for RoundLauncher.launch. when_ended: called from any thread, at the
        end of the tasks. when_synchronised: at the end of the synchronisation, with an event that says how it
        ended. Returns the number of synchronisations, 0 or 1.
        """
        (round,), count = rounds, len(self._replicas)
        tasks = LaunchedRounds(number, rounds, [range(index, index + 1) for index in range(count)])
        events: list[Event | None] = []
        for index in range(count):
            batch = inputs.of(index) if isinstance(inputs, RoundInputs) else inputs[index]
            if isinstance(batch, BatchRun):
                raise InternalError(f"round {round}: expected one batch for each replica, got several")
            events.append(self.launch_task(index, round, batch, state))
        synchronises = self._is_gang(round) or (self._averages and (round + 1) % self._options.tau == 0)
        if synchronises:
            moved, updated = self.synchronise(round)
            events = [*updated] or events
            announce(moved, when_synchronised)
        tasks.follow([event for event in events if event is not None], when_ended)
        return int(synchronises)

    def fetched(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """Fetched values of a replica's task, each as a column of one round."""
        return [[value] for value in self._replicas[replica].results(tasks.rounds.start)]

    def ended(self, tasks: LaunchedRounds) -> None:
        """Takes note of the end of a launch."""

    @property
    def stopped(self) -> bool:
        """True if some status may be set."""
        return True

    def reset(self) -> None:
        """Before and after a run, when nothing is in flight."""
        self._z_events.clear()
        self._last = [None] * len(self._replicas)

    # One by one -----------------------------------------------------------------------------------

    def launch_task(
        self, index: int, round: int, inputs: BatchInputs, state: Mapping[str, Any], step: int | None = None
    ) -> Event | None:
        """Enqueues a learning task; the inputs must stay unchanged until the event is done.

        step: under which its results are asked for, by default the round.
        None when the task ends with the round's synchronisation, which gives its event.
        """
        if self._is_gang(round):
            self._last[index] = self._replicas[index].compute(round, inputs, state)
            return None
        segment, after = SEGMENT_UPDATE, None
        if self._averages and (round + 1) % self._options.tau == 0 and not self._options.first_come:
            segment, after = self._averaging_of(index, round)
        here = self.runs_here and len(self._replicas) == 1
        done = self._replicas[index].launch(round, inputs, state, segment, after, step, here)
        self._last[index] = done
        return done

    def _averaging_of(self, index: int, round: int) -> tuple[int, Event | None]:
        """The segment of a replica's averaging after a round, and when its z is there."""
        number = self._averagings(round) - 1
        events = self._z_events.get(number - self._slots)
        return averaging_segment(number % self._slots), events[self._places[index]] if events else None

    def _averagings(self, round: int) -> int:
        """Averagings up to and including the one of this round."""
        return (round + 1) // self._options.tau

    def _is_gang(self, round: int) -> bool:
        """True if all replicas step on the mean gradient in this round."""
        return self._gang_from is not None and round >= self._gang_from

    def synchronise(self, round: int) -> tuple[list[Event], list[Event]]:
        """Enqueues the synchronisation of a round, all of whose tasks are enqueued.

        Gives an event per device, and of a round whose tasks end with it the tasks' events.
        """
        if self._is_gang(round):
            return self._step_on_mean(round)
        return self._average(round), []

    def _step_on_mean(self, round: int) -> tuple[list[Event], list[Event]]:
        summed = [model.sum_gradients(self._tasks_of(place)) for place, model in enumerate(self._central)]
        total = self._all_reduce.post(summed) if self._all_reduce is not None else None
        means = [model.mean_gradient(total) for model in self._central]
        segment = update_segment(self._replicas[0].executable)
        done = [
            replica.update(segment, round, means[self._places[index]])
            for index, replica in enumerate(self._replicas)
        ]
        self._last = [*done]
        return means, done

    def _average(self, round: int) -> list[Event]:
        if self._options.first_come:
            for index, replica in enumerate(self._replicas):
                segment, after = self._averaging_of(index, round)
                self._last[index] = replica.update(segment, round, after)
        number = self._averagings(round) - 1
        slot = number % self._slots
        reduced = [model.reduce(slot, self._tasks_of(place)) for place, model in enumerate(self._central)]
        total = self._all_reduce.post(reduced) if self._all_reduce is not None else None
        moved = [model.move(slot, total) for model in self._central]
        self._z_events[number] = moved
        self._z_events.pop(number - self._slots, None)
        return moved

    def restart(self, round: int) -> None:
        """Enqueues w_i = z, u = 0 after a round and its averaging; no older z is read afterwards.

        Before the first averaging z is what it started from.
        """
        slot = (self._averagings(round) - 1) % self._slots
        executable = self._replicas[0].executable
        cleared = [model.restart(slot) for model in self._central]
        for index, replica in enumerate(self._replicas):
            after = cleared[self._places[index]]
            self._last[index] = replica.restart(restart_segment(slot), after)
            if round + 1 == self._gang_from:
                self._last[index] = replica.restart(clear_segment(executable), after)
        for number in self._z_events:
            self._z_events[number] = cleared

    def _tasks_of(self, place: int) -> list[Event]:
        pairs = zip(self._places, self._last, strict=True)
        return [event for own, event in pairs if own == place and event is not None]


def announce(events: Sequence[Event], call: Callable[[Event], object]) -> None:
    """Calls with the last of some events when all have ended, or with the first that failed."""
    waiting = deque(events)
    waiting.popleft().on_done(partial(_next_done, call, waiting))


def _next_done(call: Callable[[Event], object], waiting: deque[Event], event: Event) -> None:
    """Goes on to the next event; a function that called itself as a closure would be a cycle."""
    if event.error is not None or not waiting:
        call(event)
    else:
        waiting.popleft().on_done(partial(_next_done, call, waiting))
