"""Tasks and synchronisations on streams, segment by segment, ordered by events: on every kind of device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisers import UPDATE, UPDATE_ON_MEAN
from scheduler.averaging.transport import Transport
from scheduler.replicas.central import CentralModel
from scheduler.replicas.dynamic.divided_rounds import scalars_of_replica
from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.launches import LaunchedRounds, Launcher
from scheduler.replicas.replica import Replica
from tensorbow.data import BatchInputs, BatchRun
from tensorbow.devices import Event
from tensorbow.errors import InternalError
from tensorbow.kernels.merging import touch
from tensorbow.program import Executable, Ref, Region, SegmentKind
from tensorbow.specs import Array

NEVER: tuple[int, list[Event]] = 0, []
NOTHING: list[list[Event]] = [[]]
SHARED = (Region.CENTRAL, Region.RESULTS, Region.EXCHANGE, Region.GRADIENTS)


class TaskLauncher(Launcher):
    """Enqueues the tasks of replicas, their synchronisation, and restarts, segment by segment."""

    most_rounds = 1  # more would be no faster
    settled = True
    stopped = True

    def __init__(
        self,
        replicas: Sequence[Replica],
        central: Sequence[CentralModel],
        variants: RoundVariants,
        device_indices: Sequence[int],
    ):
        """device_indices: by replica, the index of its device in `central`."""
        self._replicas, self._central, self._device_indices = replicas, central, device_indices
        self._transport: Transport | None = None
        self._variants = variants
        self._segments = _Segments(replicas[0].step)
        self._last_run: dict[int, tuple[int, list[Event]]] = {}  # by segment, when it last ran on the devices
        self._copies: dict[int, list[Event]] = {}  # by replica, copies of its variables that others make
        self._order = 0  # of what devices run
        self._last: list[Any] = [None] * len(replicas)  # the last event of each replica, or None
        self._devices = max(device_indices) + 1
        self._members = [range(index, index + 1) for index in range(len(replicas))]

    def select(self, executable: Executable, transport: Transport | None) -> None:
        """Launches another step of the replicas from now on; while nothing is in flight.

        transport: between several devices, connected for that step.
        """
        self._segments, self._transport = _Segments(executable), transport
        self._last_run.clear()

    # Rounds ---------------------------------------------------------------------------------------

    def launch(
        self,
        number: int,
        rounds: range,
        inputs: Sequence[BatchInputs | BatchRun],
        state: Mapping[str, Any],
        when_ended: Callable[[LaunchedRounds], object],
        when_synchronised: Callable[[Event], object],
    ) -> int:
        """See Launcher; rounds: one. Returns 0 or 1."""
        (round,) = rounds
        tasks = LaunchedRounds(number, rounds, self._members)
        variant = self._variants.of(round)
        self.run_executors(round, inputs, state)
        self.begin(round, inputs, state, self._segments.before[variant])
        events = self.last
        behind = self._segments.behind[variant]
        if behind:
            moved, updated = self.go_on(round, behind)
            events = updated or events
            announce(moved, when_synchronised)
        tasks.follow(events, when_ended)
        return int(bool(behind))

    def begin(
        self,
        number: int,
        inputs: Sequence[BatchInputs | BatchRun],
        state: Mapping[str, Any],
        segments: Sequence[int],
    ) -> None:
        """Enqueues the first segments of a task of each replica. number: the round, and its result."""
        work = self._work(segments)
        for index, device_index in enumerate(self._device_indices):
            own = inputs[index]
            if isinstance(own, BatchRun):
                raise InternalError(f"step {number}: expected one batch for each replica, got several")
            self._begin(index, number, own, scalars_of_replica(state, index), work[device_index])

    def run_executors(
        self, number: int, inputs: Sequence[BatchInputs | BatchRun], state: Mapping[str, Any]
    ) -> list[Event]:
        """Enqueues the dynamic parts of a divided step; nothing else of it begins before all have ended.

        So a step whose dynamic part fails in one replica has changed no replica. Parts whose effects depend
        on their order run one after the other. Returns the event of each replica; none of a planned step.
        """
        executor = self._replicas[0].executor
        if executor is None:
            return []
        events: list[Event] = []
        for index, replica in enumerate(self._replicas):
            own = inputs[index]
            if isinstance(own, BatchRun):
                raise InternalError(f"step {number}: expected one batch for each replica, got several")
            if events and executor.part.ordered_by is not None:
                replica.group.compute.wait(events[-1])
            after = self._event_before(0, self._device_indices[index])
            events.append(replica.run_executor(number, own, scalars_of_replica(state, index), after=after))
            events[-1].on_done(self._end_others)
        for index, replica in enumerate(self._replicas):
            for other, event in enumerate(events):
                if other != index:
                    replica.group.compute.wait(event)
        return events

    def _end_others(self, event: Event) -> None:
        """Ends the dynamic parts of all replicas if that of one has failed: they may wait for it."""
        if event.error is not None:
            for replica in self._replicas:
                if replica.executor is not None:
                    replica.executor.cancel()

    @property
    def last(self) -> list[Event]:
        """Events of the segments enqueued last, by replica."""
        return [*self._last]

    def fetched(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """See Launcher."""
        return [[value] for value in self._replicas[replica].results(tasks.rounds.start)]

    def ended(self, tasks: LaunchedRounds) -> None:
        """Does nothing: the events say everything."""

    def reset(self) -> None:
        """See Launcher."""
        self._last_run.clear()
        self._copies.clear()
        self._last = [None] * len(self._replicas)
        for replica in self._replicas:
            if replica.executor is not None:
                replica.executor.reset()

    # One by one -----------------------------------------------------------------------------------

    def launch_task(
        self, index: int, round: int, inputs: BatchInputs, state: Mapping[str, Any], result_number: int
    ) -> Event:
        """Enqueues a learning task of `fcfs`; the inputs must stay unchanged until the event is done.

        result_number: see Replica.launch.
        """
        work = self._work(self._segments.before[self._variants.of(round)])[self._device_indices[index]]
        return self._begin(index, round, inputs, state, work, result_number, alone=True)

    def _work(self, segments: Sequence[int]) -> list[list[tuple[int, Event | None]]]:
        """Segments of replicas, each with the event that it waits for, by device."""
        return [
            [(each, self._event_before(each, device_index)) for each in segments]
            for device_index in range(self._devices)
        ]

    def _begin(
        self,
        index: int,
        round: int,
        inputs: BatchInputs,
        state: Mapping[str, Any],
        work: Sequence[tuple[int, Event | None]],
        result_number: int | None = None,
        alone: bool = False,
    ) -> Event:
        """alone: the task is not of a round in which all replicas begin together."""
        waits = self.caller_waits and len(self._replicas) == 1
        replica = self._replicas[index]
        if alone and replica.executor is not None:
            after = self._event_before(0, self._device_indices[index])
            event = replica.run_executor(round, inputs, state, result_number, after)
            event.on_done(self._end_others)
        done = self._last[index] = replica.launch(round, inputs, state, work, result_number, waits)
        return done

    def begin_gradient(self, index: int, round: int, inputs: BatchInputs, state: Mapping[str, Any]) -> Event:
        """Enqueues the gradient of a round with backup workers, which `combine` may take."""
        work = self._work(self._segments.before[UPDATE_ON_MEAN][:1])[self._device_indices[index]]
        return self._begin(index, round, inputs, state, work, alone=True)

    def combine(self, round: int, members: Sequence[int]) -> list[Event]:
        """Enqueues the step of some replicas on the mean of their gradients; others hand in zeros.

        Returns the last event of each of them.
        """
        for member in members:
            for event in self._copies.pop(member, ()):
                self._replicas[member].group.compute.wait(event)
        for device_index, model in enumerate(self._central):
            own = [n for n, device in enumerate(self._device_indices) if device == device_index]
            model.withhold([place for place, index in enumerate(own) if index not in members])
        self.go_on(round, self._segments.of(UPDATE_ON_MEAN)[1:], members)
        return [self._last[member] for member in members]

    def catch_up(self, index: int, source: int) -> None:
        """Enqueues a copy of weights and slots to a replica with no task in flight, from one that does not
        write them before `combine`."""
        target, giver = self._replicas[index], self._replicas[source]
        for event in self._copies.pop(index, ()):  # others may still read its former values
            target.group.compute.wait(event)
        self._copies.setdefault(source, []).append(target.copy_training_state(giver))

    def give_state(self, index: int, give: Callable[[Array], None]) -> None:
        """Gives weights and slots of a replica away, which does not write them before `combine`."""
        for array in self._replicas[index].training_state():
            give(array)

    def take_state(self, index: int, take: Callable[[Array], None]) -> None:
        """Fills weights and slots of a replica with no task in flight with those of another process's."""
        for event in self._copies.pop(index, ()):  # others may still read its former values
            event.synchronize()
        replica = self._replicas[index]
        for array in replica.training_state():
            take(array)
        replica.set_state({"status": 0})

    def evaluate(self, number: int, inputs: Sequence[BatchInputs], state: Mapping[str, Any]) -> None:
        """Enqueues a step of all replicas without averaging. number: result number of each replica's task."""
        self.run_executors(number, inputs, state)
        self.begin(number, inputs, state, self._segments.before[UPDATE])
        self.go_on(number, self._segments.behind[UPDATE])

    def synchronise(self, round: int) -> list[Event]:
        """Enqueues the averaging of `fcfs` after a round, all of whose tasks are enqueued; its events."""
        return self.go_on(round, self._segments.of(self._variants.averaging_after(round)))[0]

    def restart(self, round: int) -> None:
        """Enqueues w_i = z, u = 0 after a round and its averaging; no older z is read afterwards.

        Before the first averaging z is what it started from.
        """
        for variant in self._variants.restarts(round):
            self.go_on(round, self._segments.of(variant))

    def go_on(
        self, round: int, segments: Sequence[int], members: Sequence[int] | None = None
    ) -> tuple[list[Event], list[Event]]:
        """Enqueues further segments of all replicas, or of `members`, and of all devices.

        Returns the events of the last segment on each device, and of the last one of each replica.
        """
        members = range(len(self._replicas)) if members is None else members
        joined, updated = list[Event](), list[Event]()
        last = SegmentKind.REPLICA
        for segment in segments:
            before, last = last, self._segments.kinds[segment]
            kind = last
            if kind is SegmentKind.REPLICA:
                updated = []
                for index in members:
                    before_it = self._event_before(segment, self._device_indices[index])
                    self._last[index] = self._replicas[index].update(segment, round, before_it)
                    updated.append(self._last[index])
                continue
            if before is not SegmentKind.REPLICA:  # on the same stream, but for a transport
                waits = [[event] for event in joined] if self._transport is not None else NOTHING
            else:
                waits = [self._tasks_of(device_index, members) for device_index in range(len(self._central))]
            pairs = zip(self._central, waits, strict=True)
            joined = [model.launch(segment, round, events) for model, events in pairs]
            if kind is SegmentKind.EXCHANGE and self._transport is not None:
                crossed = self._transport.post(self._segments.exchanges.index(segment), joined)
                joined = [crossed] * len(joined)
            self._order += 1
            self._last_run[segment] = self._order, joined
        return joined, updated

    def _event_before(self, segment: int, device_index: int) -> Event | None:
        """Event of another stream that a replica's segment waits for, if there is one."""
        latest, before = 0, None
        for other in self._segments.conflicts(segment):
            order, events = self._last_run.get(other, NEVER)
            if order > latest:
                latest, before = order, events[device_index]
        return before

    def _tasks_of(self, device_index: int, members: Sequence[int]) -> list[Event]:
        last = (self._last[index] for index in members if self._device_indices[index] == device_index)
        return [event for event in last if event is not None]


class _Segments:
    """The segments of a step by their kinds, and which of them touch the same memory."""

    def __init__(self, executable: Executable):
        self._executable = executable
        self.kinds = [segment.kind for segment in executable.segments]
        self.exchanges = executable.exchange_segments
        self._conflicts: dict[int, list[int]] = {}  # by replicas' segment
        self.before: dict[str, Sequence[int]] = {}  # by variant, what replicas run up to the first exchange,
        self.behind: dict[str, Sequence[int]] = {}  # and what is run from there on
        for name, run in executable.variants.items():
            own = [self.kinds[segment] is SegmentKind.REPLICA for segment in run]
            first = own.index(False) if False in own else len(run)
            self.before[name], self.behind[name] = run[:first], run[first:]

    def of(self, variant: str) -> Sequence[int]:
        """All of a variant."""
        return self._executable.variants[variant]

    def conflicts(self, segment: int) -> Sequence[int]:
        """Segments of devices that conflict with a replica's: one writes memory that the other touches."""
        found = self._conflicts.get(segment)
        if found is None:
            segments = self._executable.segments
            reads = {ref for group in segments[segment].groups for ref in group.reads}
            if segments[segment].fetches:
                reads.update(self._executable.fetch_sources)
            writes = {ref for group in segments[segment].groups for ref in group.writes}
            if segment == 0 and isinstance(self._executable, DividedExecutable):  # made before it
                writes.update(self._executable.part.gradients.values())
            found = self._conflicts[segment] = []
            for number, other in enumerate(segments):
                if other.kind is not SegmentKind.REPLICA:
                    theirs = {ref for group in other.groups for ref in group.writes}
                    read = {ref for group in other.groups for ref in group.reads}
                    if _overlap(theirs, reads | writes) or _overlap(read, writes):
                        found.append(number)
        return found


def _overlap(first: Iterable[Ref], second: Iterable[Ref]) -> bool:
    """True if two sets of refs overlap in the memory that replicas share with their device."""
    return touch(*([ref for ref in refs if ref.region in SHARED] for refs in (first, second)))


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
