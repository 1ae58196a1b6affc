"""Tasks as whole steps in one launch each, averaging included, where the backend of the one device has that.

A replica that averages waits for the others within its task. So the tasks of a round that averages are
enqueued together, with the round's synchronisation, and end with it. Or one stream does the tasks of all in
turn, where that is faster (`scheduler.one_thread`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from scheduler.averaging import averaging_segment
from scheduler.central import CentralModel
from scheduler.one_thread import OneThread
from scheduler.options import Synchronisation
from scheduler.replica import Replica
from tensorbow.data import BatchInputs
from tensorbow.devices import Event
from tensorbow.errors import TensorBowError
from tensorbow.kernels import JointAveraging, JointLaunch, JointSteps, Region, backend_for
from tensorbow.specs import Array


class _Launch(NamedTuple):
    """A launch of a replica, its first round, and how many it has."""

    launch: JointLaunch
    first: int
    rounds: int


class JointTasks:
    """The tasks of all replicas of a device."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        steps: JointSteps,
        averages: Callable[[range], Sequence[bool]],
        one_thread: OneThread | None,
    ):
        """averages: of each of some rounds, whether averaging follows it. one_thread: None where it is not
        to do the tasks of all: where some rounds do not average, or there is one replica.
        """
        self._replicas, self._steps, self._averages = replicas, steps, averages
        self.runs_here = False  # whether who launches may as well do the work, for it waits anyway
        self._one_thread = one_thread
        self._waiting: dict[int, _Launch] = {}  # by replica
        self._running: dict[tuple[int, int], JointLaunch] = {}  # by replica and first round
        self._own: dict[int, Event] = {}  # of replicas but the first: what was last enqueued on their streams
        self._together: Event | None = None  # the last task of all replicas, on the first one's stream

    def launch(
        self,
        index: int,
        rounds: range,
        inputs: Sequence[BatchInputs],
        state: Mapping[str, Any],
        meets: bool,
        keeps: bool = False,
    ) -> Event | None:
        """Enqueues tasks of a replica, one for each round, or has them wait for `meet`.

        keeps: whether `fetched` will be asked for them.
        state: step scalars, one or one for each round; with a status the steps go on whatever it becomes.
        """
        averages = self._averages(rounds)
        launch = self._steps.launch(
            index, rounds.start, averages, self._replicas[index].joint_inputs(inputs), state
        )
        if keeps:
            self._running[index, rounds.start] = launch
        waiting = _Launch(launch, rounds.start, len(rounds))
        if not meets:
            return self._enqueue(index, waiting)
        self._waiting[index] = waiting
        return None

    def meet(self) -> list[Event]:
        """Enqueues the tasks of all replicas; an event of each."""
        waiting, self._waiting = self._waiting, {}
        choice, rounds = self._one_thread, waiting[0].rounds
        together = choice is not None and choice.is_better(rounds)
        try:
            events = (
                [self._enqueue_together(waiting)] * len(waiting)
                if together
                else [self._enqueue(index, waiting[index]) for index in range(len(self._replicas))]
            )
        except BaseException:  # who is enqueued must not wait for who is not
            self._steps.stop()
            raise
        if choice is not None:
            events[0].on_done(lambda event: choice.ended(rounds, together, event.time_s))
        for event in events[:1] if together else events:
            event.on_done(self._let_go)
        return events

    def _let_go(self, event: Event) -> None:
        if event.error is not None:
            self._steps.stop()

    def _enqueue(self, index: int, waiting: _Launch) -> Event:
        launch, first, _ = waiting

        def run() -> None:
            try:
                launch()
            except TensorBowError as error:
                raise type(error)(f"replica {index}, step {first + launch.done}: {error}") from error

        stream = self._replicas[index].group.compute
        label = f"replica {index} step"
        if self.runs_here and len(self._replicas) == 1 and (done := stream.run_here(run, label=label)):
            return done
        if index and self._together is not None:
            stream.wait(self._together)
        event = stream.submit(run, label=label)
        if index and self._one_thread is not None:
            self._own[index] = event
        return event

    def _enqueue_together(self, waiting: Mapping[int, _Launch]) -> Event:
        launches = [waiting[index].launch for index in range(len(self._replicas))]
        rounds, first = self._steps.rounds(launches), waiting[0].first

        def run() -> None:
            try:
                rounds()
            except TensorBowError as error:
                at = rounds.at
                raise type(error)(f"replica {at}, step {first + launches[at].done}: {error}") from error

        stream = self._replicas[0].group.compute
        for event in self._own.values():
            stream.wait(event)
        self._own.clear()
        self._together = stream.submit(run, label="step of all replicas")
        return self._together

    def enqueued(self, index: int, event: Event) -> None:
        """Takes note of other work on a replica's stream, that the tasks come after."""
        if index and self._one_thread is not None:
            self._own[index] = event

    def fetched(self, index: int, rounds: range) -> list[Array]:
        """What a replica's tasks of one launch have fetched, as far as they were done: [tasks, ...] each."""
        return self._steps.fetched(index, rounds.start, self._running.pop((index, rounds.start)).done)

    def reset(self) -> None:
        """Before and after a run, when nothing is in flight."""
        self._waiting.clear()
        self._running.clear()
        self._own.clear()
        self._together = None
        if self._one_thread is not None:
            self._one_thread.pause()
        self._steps.reset()


def joint_tasks(
    replicas: Sequence[Replica],
    central: Sequence[CentralModel],
    options: Synchronisation,
    averages: Callable[[range], Sequence[bool]],
) -> JointTasks | None:
    """Joint tasks of replicas that are all on one device; None where these cannot be."""
    count = len(replicas)
    if len({replica.device.name for replica in replicas}) > 1 or options.first_come or options.staleness:
        return None
    if options.aggregates(count):
        return None
    averaging = None
    if options.averages(count):
        bases = [central[0].bases.get(region, 0) for region in Region]
        averaging = JointAveraging(averaging_segment(0), bases, bool(options.mu))
    backend = backend_for(replicas[0].device)
    steps = backend.join([replica.binding.plan for replica in replicas], averaging)
    if steps is None:
        return None
    one_thread = OneThread() if averaging is not None and count > 1 and options.tau == 1 else None
    return JointTasks(replicas, steps, averages, one_thread)
