"""The learning engine: replicas and z on devices, driven by a pure state machine.

This is the thin shell around the machine: it enqueues what that says, on streams ordered by events, and
reports back what the events say. No host thread waits for a device while training, except the one that
takes events from a queue. Here is its life: made, given values, resized, closed. Its runs are in
`scheduler.training_runs`, and what a message of a run leads to in `scheduler.dispatch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from scheduler.collectives import AllReduce
from scheduler.learners import Learners
from scheduler.options import Synchronisation, check_on_nan
from scheduler.plans import Compiled, most_steps
from scheduler.resizing import Resizing, made_again
from scheduler.step import StepProgram
from scheduler.training_runs import TrainingRuns
from tensorbow.devices import Device, get_device
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import GraphKeys
from tensorbow.kernels import Executable
from tensorbow.optimizers import Schedule, ScheduledBy
from tensorbow.specs import Array, TensorSpec


class LearningEngine(TrainingRuns):
    """Trains k replicas of a step on one or several devices, kept together by averaging.

    The same seeds, replicas and devices give the same bits, run after run: batch n of a round goes to
    replica n, sums run in a fixed order, and each task reads exactly the z its round prescribes. With
    `Synchronisation(dispatch="fcfs")` a batch goes to the replica that is free first, and they do not.
    """

    def __init__(
        self,
        program: StepProgram,
        shapes: int | Sequence[TensorSpec],
        devices: Sequence[str | Device] = ("/cpu:0",),
        replicas_per_device: int | Sequence[int] = 2,
        synchronisation: Synchronisation | None = None,
        schedule: Schedule | None = None,
        *,
        launch_ahead: int = 2,
        steps_per_launch: int | None = 1,
        on_nan: str = "stop",
        all_reduce: AllReduce | None = None,
    ):
        """shapes: batch_size of one replica, or the specs of the program's inputs.

        replicas_per_device: one count for all devices, or one for each; batch n of a round goes to replica n,
        which are counted device by device.

        schedule: the learning rate by round; None leaves it to what the optimiser was made with: a number, or
        a schedule, which counts by itself.
        on_nan: `stop`, or `skip` the update and go on.
        steps_per_launch: rounds that a replica does in one launch, averaging included, where steps are so
        short that launches are what they cost. The bits stay the same. The source then gives a `BatchRun` for
        each launch (`DatasetBatches(steps_per_launch=...)`, or `gathered`), and a run stops between launches.
        None begins with 1, and leaves it to `set_steps_per_launch`.
        Raises InvalidArgumentError for options out of range, ResourceExhaustedError for memory.
        """
        for name, number in (("launch_ahead", launch_ahead), ("steps_per_launch", steps_per_launch)):
            if number is not None and number < 1:
                raise InvalidArgumentError(f"{name}: expected at least 1, got {number}")
        self.schedule = schedule
        self.options = synchronisation or Synchronisation()
        self.round = 0  # rounds trained so far, by the count of `run`
        self.host_copy: tuple[int, dict[str, Array]] | None = None  # the last `central_values`, and its round
        self.launch_ahead = launch_ahead
        self.steps_per_launch = self._own_steps_per_launch = steps_per_launch or 1
        self.most_steps_per_launch = self._room_for_steps = most_steps(steps_per_launch)
        self.on_nan = check_on_nan(on_nan)
        self.skipped_updates = 0
        self._inbox: SimpleQueue[Any] | None = None  # of the run that is going on
        self._drained = True  # nothing of the last run is in flight
        self._stopping = False
        specs = program.specs(shapes) if isinstance(shapes, int) else shapes
        self._steps = [(program, list(specs))]
        self._compiled: Compiled = {}
        self._own_all_reduce = all_reduce
        self.learners = Learners(
            program,
            specs,
            [device if isinstance(device, Device) else get_device(device) for device in devices],
            replicas_per_device,
            self.options,
            results=(launch_ahead + 1) * self.most_steps_per_launch,
            all_reduce=all_reduce,
            compiled=self._compiled,
        )
        self._skipped_in_a_row = [0] * self.learners.count
        self._own_schedules: list[ScheduledBy] = []  # of the selected step's optimisers
        self._ahead: list[int] = []  # of the round, by own schedule: its count
        self.selected = 0
        try:
            self.select(0)
            self._require_rate(schedule)
        except BaseException:
            self.learners.close()
            raise

    def initialize(self, values: Mapping[str, Array] | None = None) -> None:
        """Gives every replica and z the same values, by default those of the variables' initialisers."""
        self.learners.initialize(self._steps[0][0].initial_values() if values is None else values)

    def add_program(self, program: StepProgram, shapes: Sequence[TensorSpec]) -> int:
        """Gives the replicas a further step over the same variables; its number for `select`.

        Raises InvalidArgumentError when the program has variables that the replicas have not,
        ResourceExhaustedError for memory.
        """
        number = self.learners.add_program(program, shapes)
        self._steps.append((program, list(shapes)))
        return number

    def executable_of(self, number: int) -> Executable:
        """What a program has been compiled to, on the first replica's device."""
        return self.learners.replicas[0].executable_of(number)

    def select(self, number: int) -> None:
        """Chooses the step that is trained from now on; between runs, or by `Stepper.select`.

        Raises InvalidArgumentError for one that cannot do `steps_per_launch` steps in a launch, where that
        was not left to `set_steps_per_launch`.
        """
        self._drain()
        self.learners.select(number)
        try:
            self._require_launches(self.learners)
        except InvalidArgumentError:
            self.learners.select(self.selected)
            raise
        self.selected = number
        self.most_steps_per_launch = 1 if self.learners.joint is None else self._room_for_steps
        self.steps_per_launch = min(self.steps_per_launch, self.most_steps_per_launch)
        executable = self.learners.executable
        self._has_loss = self._steps[number][0].loss is not None
        self._counters = [f"counter:{name}" for name in executable.counters]
        self._rate = self.schedule if "learning_rate" in executable.scalars else None
        scheduled: list[ScheduledBy] = self._steps[number][0].graph.get_collection(GraphKeys.SCHEDULES)
        self._own_schedules = [own for own in scheduled if own.step.op.name in executable.writes]

    def _require_rate(self, schedule: Schedule | None) -> None:
        """Raises InvalidArgumentError for a schedule of rounds that the selected step would not follow."""
        own = [scheduled.schedule for scheduled in self._own_schedules]
        if schedule is None or "learning_rate" in self.learners.executable.scalars or schedule in own:
            return
        has = "a schedule of its own" if own else "no learning rate that the engine sets"
        raise InvalidArgumentError(
            f"schedule: the step's optimiser has {has}; leave it out, or make the optimiser with a number"
        )

    def _require_launches(self, learners: Learners) -> None:
        """Raises InvalidArgumentError where several steps in a launch are asked for, and cannot be."""
        if self._own_steps_per_launch > 1 and learners.joint is None:
            raise InvalidArgumentError(
                f"steps_per_launch={self._own_steps_per_launch}: several steps in one launch need native "
                "code for all of the step, on one CPU device, with sma, easgd or none, round_robin and "
                "staleness 0; give 1, or see `tensorbow explain`"
            )

    def resize(
        self,
        replicas_per_device: int | Sequence[int],
        round: int | None = None,
        schedule: Schedule | None = None,
        ssgd_from: int | None = None,
    ) -> None:
        """Goes on with another number of replicas, between two runs (Crossbow, VLDB 2019, section 4).

        Those that stay keep their values: of each device the first. New ones start from z, with fresh
        optimiser slots; what the replicas that go have summed stays in replica 0. z and u stay; alpha,
        corrections and sums follow. One replica alone goes on from z, as its model. Rounds on the mean
        gradient need equal replicas: there new ones get the optimiser slots of the others. Where nothing
        keeps replicas together, new ones start from replica 0. Random ops draw by number of replica, which
        counts over devices. The bits are those of an engine made with that number and given these values.

        round: where the last run ended, by default by the count of `run`. schedule, ssgd_from: take the place
        of those before, since they count rounds, of which more replicas make fewer.
        Raises FailedPreconditionError while a run is going on, before `initialize`, or with an all-reduce of
        the caller's; InvalidArgumentError for an alpha that is not stable with so many, or a schedule that
        the step does not follow; ResourceExhaustedError when they do not fit. The engine is then as it was.
        """
        if self._inbox is not None:
            raise FailedPreconditionError("resize: a run is going on; request_stop() it first")
        if self._own_all_reduce is not None:
            raise FailedPreconditionError(
                "resize: this engine was given its all-reduce, which is connected for good; leave it out"
            )
        self._require_rate(schedule)
        self._require_values()
        self._drain()
        self.learners.prepare()
        round = self.round if round is None else round
        options = self.options if ssgd_from is None else replace(self.options, ssgd_from=ssgd_from)
        jumped, old = self._restarts_before(round), self.learners
        change = Resizing(old, replicas_per_device, options, round)
        again = partial(made_again, old, self._steps, self.selected, self._compiled)
        dataset, kept = old.release_data()
        old.close()
        try:
            self.learners = again(change.per_device, options, change.values)
            self._require_launches(self.learners)
            if dataset is not None:
                self.learners.keep_data(dataset, kept)
        except BaseException:
            self.learners.close()
            self.learners = again(old.per_device, self.options, change.values_before)
            if dataset is not None:
                self.learners.keep_data(dataset, kept)
            raise
        skipped, self._skipped_in_a_row = self._skipped_in_a_row, [0] * self.learners.count
        for index, origin in enumerate(change.origins):
            self._skipped_in_a_row[index] = 0 if origin is None else skipped[origin]
        self.options, self.schedule = options, schedule or self.schedule
        self.select(self.selected)
        self.follow_counts(round)
        if self._restarts_before(round) and not jumped:
            self.restart(round)

    def close(self) -> None:
        """Closes all streams and gives all memory back; idempotent.

        Raises FailedPreconditionError while a run is going on in another thread.
        """
        if self._inbox is not None:
            raise FailedPreconditionError("close: a run is going on; request_stop() it and wait for its end")
        self.learners.close()

    def __enter__(self) -> LearningEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
