"""What is enqueued for rounds: learning tasks, averaging, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.averaging.all_reduce import AllReduce
from scheduler.averaging.gradient_mean import clear_segment, update_segment
from scheduler.averaging.sma_segments import SEGMENT_UPDATE, averaging_segment, restart_segment
from scheduler.replicas.round_launcher import RoundLauncher
from scheduler.replicas.values import ReplicaValues
from tensorbow.data import BatchInputs
from tensorbow.devices import Event
from tensorbow.program import Executable


class LearningTasks(ReplicaValues):
    """What `Learners` enqueue; nothing here waits. The fields are those of `Learners`."""

    executable: Executable
    per_device: tuple[int, ...]
    launcher: RoundLauncher | None
    _launchers: dict[int, RoundLauncher | None]
    _here: bool
    _z_events: dict[int, list[Event]]
    _last: list[Event | None]
    _all_reduce: AllReduce | None

    @property
    def exchanges(self) -> bool:
        """Whether replicas are kept together at all."""
        return self.averages or self.aggregates

    def restarts_before(self, round: int, jumps: bool) -> bool:
        """Whether averaging restarts before a round: where the rate `jumps`, and to go over to ssgd."""
        if not self.averages or self._is_gang(round - 1):
            return False
        return (jumps and self.options.restarts) or round == self.gang_from

    def launch(
        self, index: int, round: int, inputs: BatchInputs, state: Mapping[str, Any], step: int | None = None
    ) -> Event | None:
        """Enqueues a learning task; the inputs must stay unchanged until the event is done.

        step: under which its results are asked for, by default the round.
        None when the task ends with the round's synchronisation, which gives its event.
        """
        if self._is_gang(round):
            self._last[index] = self.replicas[index].compute(round, inputs, state)
            return None
        segment, after = SEGMENT_UPDATE, None
        if self.averages and (round + 1) % self.options.tau == 0 and not self.options.first_come:
            segment, after = self._averaging_of(index, round)
        here = self._here and self.count == 1
        done = self.replicas[index].launch(round, inputs, state, segment, after, step, here)
        self._last[index] = done
        return done

    def _averaging_of(self, index: int, round: int) -> tuple[int, Event | None]:
        """The segment of a replica's averaging after a round, and when its z is there."""
        number = self._averagings(round) - 1
        events = self._z_events.get(number - self.slots)
        return averaging_segment(number % self.slots), events[self.places[index]] if events else None

    def run_here(self, here: bool) -> None:
        """Says whether who launches waits for the task, so that it may do the work of one replica itself."""
        for launcher in self._launchers.values():
            if launcher is not None:
                launcher.runs_here = here
        self._here = here

    def _averagings(self, round: int) -> int:
        """Averagings up to and including the one of this round."""
        return (round + 1) // self.options.tau

    def _is_gang(self, round: int) -> bool:
        """Whether all replicas step on the mean gradient in this round."""
        return self.gang_from is not None and round >= self.gang_from

    def synchronise(self, round: int) -> tuple[list[Event], list[Event]]:
        """Enqueues the synchronisation of a round, all of whose tasks are enqueued.

        Gives an event per device, and of a round whose tasks end with it the tasks' events.
        """
        if self._is_gang(round):
            return self._step_on_mean(round)
        return self._average(round), []

    def _step_on_mean(self, round: int) -> tuple[list[Event], list[Event]]:
        summed = [model.sum_gradients(self._tasks_of(place)) for place, model in enumerate(self.central)]
        total = self._all_reduce.post(summed) if self._all_reduce is not None else None
        means = [model.mean_gradient(total) for model in self.central]
        segment = update_segment(self.executable)
        done = [
            replica.update(segment, round, means[self.places[index]])
            for index, replica in enumerate(self.replicas)
        ]
        self._last = [*done]
        return means, done

    def _average(self, round: int) -> list[Event]:
        if self.options.first_come:
            for index, replica in enumerate(self.replicas):
                segment, after = self._averaging_of(index, round)
                self._last[index] = replica.update(segment, round, after)
        number = self._averagings(round) - 1
        slot = number % self.slots
        reduced = [model.reduce(slot, self._tasks_of(place)) for place, model in enumerate(self.central)]
        total = self._all_reduce.post(reduced) if self._all_reduce is not None else None
        moved = [model.move(slot, total) for model in self.central]
        self._z_events[number] = moved
        self._z_events.pop(number - self.slots, None)
        return moved

    def restart(self, round: int) -> None:
        """Enqueues w_i = z, u = 0 after a round and its averaging; no older z is read afterwards.

        Before the first averaging z is what it started from.
        """
        slot = (self._averagings(round) - 1) % self.slots
        cleared = [
            model.restart(slot, () if self.launcher is None else self.launcher.last) for model in self.central
        ]
        for index, replica in enumerate(self.replicas):
            after = cleared[self.places[index]]
            restarted = self._last[index] = replica.restart(restart_segment(slot), after)
            if self.launcher is not None:
                self.launcher.enqueued(index, restarted)
            if round + 1 == self.gang_from:
                self._last[index] = replica.restart(clear_segment(self.executable), after)
        for number in self._z_events:
            self._z_events[number] = cleared

    def _tasks_of(self, place: int) -> list[Event]:
        first = sum(self.per_device[:place])
        return [event for event in self._last[first : first + self.per_device[place]] if event is not None]
