"""Launches of rounds of replicas with several parts: a segment comes after those that send to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.synchronisers import UPDATE
from scheduler.replicas.dynamic.divided_parts import DividedParts
from scheduler.replicas.launches import LaunchedRounds, Launcher
from scheduler.replicas.learners import Learners
from scheduler.replicas.parted_replica import PartedReplica, known_state
from scheduler.replicas.task_launcher import announce
from tensorbow.compiler import PartedExecutable
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import InternalError
from tensorbow.specs import Array

MOST_ROUNDS = 64  # of a launch
LEAST_ROUNDS = 4  # parts then work on different rounds at the same time


class PartedLauncher(Launcher):
    """Enqueues the segments of all parts, each part by its own task launcher."""

    most_rounds = MOST_ROUNDS
    least_rounds = LEAST_ROUNDS
    settled = True
    stopped = True

    def __init__(
        self, parts: Sequence[Learners], replicas: Sequence[PartedReplica], options: Synchronisation
    ):
        self._parts, self._replicas = parts, replicas
        self._variants = RoundVariants(options, len(replicas))

    def select(self, executable: PartedExecutable) -> None:
        """Launches another step of the replicas from now on; while nothing is in flight."""
        divided = isinstance(executable, DividedParts)
        self.most_rounds, self.least_rounds = (1, 1) if divided else (MOST_ROUNDS, LEAST_ROUNDS)
        self._orders = {
            variant: [
                (part, [segment for _, segment in run])
                for part, run in groupby(executable.order(variant), key=itemgetter(0))
            ]
            for variant in executable.parts[0].variants
        }

    def launch(
        self,
        number: int,
        rounds: range,
        inputs: Sequence[BatchInputs | BatchRun],
        state: Mapping[str, Any],
        when_ended: Callable[[LaunchedRounds], object],
        when_synchronised: Callable[[Event], object],
    ) -> int:
        """See Launcher. Returns the number of parts that synchronise replicas."""
        moved: dict[int, list[Event]] = {}
        for index, round in enumerate(rounds):
            one = [own[index] if isinstance(own, BatchRun) else own for own in inputs]
            now = {
                key: value[index] if isinstance(value, Sequence) else value for key, value in state.items()
            }
            moved |= self._run(round, self._variants.of(round), one, now)
        one_by_one = [range(index, index + 1) for index in range(len(self._replicas))]
        tasks = PartedRounds(number, rounds, one_by_one * len(self._parts))
        events = [event for part in self._parts for event in part.tasks.last]
        for each in moved.values():
            announce(each, when_synchronised)
        tasks.follow(events, when_ended)
        return len(moved)

    def _run(
        self, number: int, variant: str, inputs: Sequence[BatchInputs], state: Mapping[str, Any]
    ) -> dict[int, list[Event]]:
        """Enqueues a variant. Returns the events of its synchronisation for each part that ends with one."""
        own = [replica.inputs_by_part(given) for replica, given in zip(self._replicas, inputs, strict=True)]
        self._run_executors(number, inputs, state)
        begun = set[int]()
        moved: dict[int, list[Event]] = {}
        for part, segments in self._orders[variant]:
            tasks, rest = self._parts[part].tasks, segments
            if part not in begun:
                begun.add(part)
                scalars = known_state(self._parts[part].replicas[0], state)
                tasks.begin(number, [each[part] for each in own], scalars, segments[:1])
                rest = segments[1:]
            if rest:
                moved[part] = tasks.go_on(number, rest)[0]
        return {part: events for part, events in moved.items() if events}

    def _run_executors(self, number: int, inputs: Sequence[BatchInputs], state: Mapping[str, Any]) -> None:
        """Enqueues the dynamic parts of a divided step on the streams of the first parts.

        They come behind all that other parts have to do, and no part begins before all of them have ended.
        """
        first, *others = self._parts
        if first.replicas[0].executor is None:
            return
        for part in others:
            for replica, event in zip(first.replicas, part.tasks.last, strict=True):
                if event is not None:
                    replica.group.compute.wait(event)
        events = first.tasks.run_executors(number, inputs, state)
        for part in others:
            for replica in part.replicas:
                for event in events:
                    replica.group.compute.wait(event)

    def evaluate(self, number: int, inputs: Sequence[BatchInputs], state: Mapping[str, Any]) -> None:
        """See TaskLauncher.evaluate."""
        self._run(number, UPDATE, inputs, state)

    def restart(self, round: int) -> None:
        """See TaskLauncher.restart."""
        for part in self._parts:
            part.tasks.restart(round)

    def launch_task(
        self, index: int, round: int, inputs: BatchInputs, state: Mapping[str, Any], result_number: int
    ) -> Event:
        """Raises InternalError: parts of replicas run in lockstep."""
        raise InternalError("first come, first served was asked of replicas with several parts")

    def synchronise(self, round: int) -> list[Event]:
        """Raises InternalError: parts of replicas run in lockstep."""
        raise InternalError("first come, first served was asked of replicas with several parts")

    def fetched(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """See Launcher."""
        return [*zip(*map(self._replicas[replica].results, tasks.rounds), strict=True)]

    def ended(self, tasks: LaunchedRounds) -> None:
        """Does nothing: the events say everything."""

    def reset(self) -> None:
        """See Launcher."""
        for replica in self._replicas:
            replica.forget_mail()


class PartedRounds(LaunchedRounds):
    """Launched rounds with an event for each part of each replica."""

    @property
    def times_s(self) -> Sequence[float]:
        """Times by `time.perf_counter` at which the last part of each replica ended, by replica."""
        latest: dict[int, float] = {}
        for (replica,), event in zip(self.replicas, self.events, strict=True):
            latest[replica] = max(event.time_s, latest.get(replica, 0.0))
        return [*latest.values()]
