"""Tasks as whole steps in one launch each, averaging included, where the backend of the one device has that.

A replica that averages waits for the others within its task. So the tasks of a round that averages are
enqueued together, with the round's synchronisation, and end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduler.averaging import averaging_segment
from scheduler.central import CentralModel
from scheduler.options import Synchronisation
from scheduler.replica import Replica
from tensorbow.data import BatchInputs
from tensorbow.devices import Event
from tensorbow.errors import TensorBowError
from tensorbow.kernels import JointAveraging, JointLaunch, JointSteps, Region, backend_for
from tensorbow.specs import Array


class JointTasks:
    """The tasks of all replicas of a device."""

    def __init__(self, replicas: Sequence[Replica], steps: JointSteps, averages: Callable[[int], bool]):
        """averages: whether averaging follows a round."""
        self._replicas, self._steps, self._averages = replicas, steps, averages
        self.runs_here = False  # whether who launches may as well do the work, for it waits anyway
        self._waiting: dict[int, tuple[JointLaunch, int]] = {}  # by replica, with the first round
        self._running: dict[tuple[int, int], JointLaunch] = {}  # by replica and first round

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
        averages = [self._averages(round) for round in rounds]
        launch = self._steps.launch(
            index, rounds.start, averages, self._replicas[index].joint_inputs(inputs), state
        )
        if keeps:
            self._running[index, rounds.start] = launch
        if not meets:
            return self._enqueue(index, launch, rounds.start)
        self._waiting[index] = launch, rounds.start
        return None

    def meet(self) -> list[Event]:
        """Enqueues the tasks of all replicas; an event of each."""
        waiting, self._waiting = self._waiting, {}
        try:
            events = [self._enqueue(index, *waiting[index]) for index in range(len(self._replicas))]
        except BaseException:  # who is enqueued must not wait for who is not
            self._steps.stop()
            raise
        for event in events:
            event.on_done(self._let_go)
        return events

    def _let_go(self, event: Event) -> None:
        if event.error is not None:
            self._steps.stop()

    def _enqueue(self, index: int, launch: JointLaunch, first: int) -> Event:
        def run() -> None:
            try:
                launch()
            except TensorBowError as error:
                raise type(error)(f"replica {index}, step {first + launch.done}: {error}") from error

        stream = self._replicas[index].group.compute
        label = f"replica {index} step"
        if self.runs_here and len(self._replicas) == 1 and (done := stream.run_here(run, label=label)):
            return done
        stream.enqueue(run, label=label)
        return stream.record()

    def fetched(self, index: int, rounds: range) -> list[Array]:
        """What a replica's tasks of one launch have fetched, as far as they were done: [tasks, ...] each."""
        return self._steps.fetched(index, rounds.start, self._running.pop((index, rounds.start)).done)

    def reset(self) -> None:
        """Before and after a run, when nothing is in flight."""
        self._waiting.clear()
        self._running.clear()
        self._steps.reset()


def joint_tasks(
    replicas: Sequence[Replica],
    central: Sequence[CentralModel],
    options: Synchronisation,
    averages: Callable[[int], bool],
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
    return None if steps is None else JointTasks(replicas, steps, averages)
