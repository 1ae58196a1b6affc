"""The learning engine: replicas and z on devices, driven by a pure state machine.

This is the thin shell around the machine: it enqueues what that says, on streams ordered by events, and
reports back what the events say. No host thread waits for a device while training, except the one that
takes events from a queue. Here is its life: made, given values, resized, closed. Its runs are in
`scheduler.engine.training_runs`, and what a message of a run leads to in `scheduler.engine.dispatch`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeAlias

from scheduler.averaging.all_reduce import AllReduce
from scheduler.averaging.synchronisation import AsSynchronisation, OnNan, Synchronisation
from scheduler.engine.results import EngineRun
from scheduler.engine.training_runs import TrainingRuns
from scheduler.replicas.device_plans import Compiled, most_steps
from scheduler.replicas.learners import Learners
from scheduler.replicas.replica_counts import ReplicaCounts, device_list
from scheduler.replicas.resizing import Resizing, made_again
from scheduler.replicas.step_program import AsProgram
from tensorbow.devices import AsDevices, opened
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import GraphKeys
from tensorbow.kinds import Count, Mapped, Positive, checked, instance, refuse, sequence, whole
from tensorbow.optimizers import Schedule, ScheduledBy
from tensorbow.program import Executable
from tensorbow.specs import Array, TensorSpec

AsSchedule: TypeAlias = Annotated[Schedule, instance(Schedule, expected="a schedule of tb.train")]
AsAllReduce: TypeAlias = Annotated[AllReduce, instance(AllReduce, expected="an all-reduce")]
Ahead: TypeAlias = Annotated[int, whole(1, 64)]
Steps: TypeAlias = Annotated[int, whole(1, 4096)]
_SPEC = instance(TensorSpec, expected="a tb.TensorSpec")
Specs: TypeAlias = Annotated[
    Sequence[TensorSpec], sequence(_SPEC, "a tb.TensorSpec for each input, in a list")
]
Shapes: TypeAlias = Annotated[
    int | Sequence[TensorSpec],
    whole(1, (1 << 31) - 1) | sequence(_SPEC, "a tb.TensorSpec for each input, in a list"),
]


class LearningEngine(TrainingRuns):
    """Trains k replicas of a step on one or several devices, kept together by averaging.

    The same seeds, replicas and devices give the same bits, run after run: batch n of a round goes to
    replica n, sums run in a fixed order, and each task reads exactly the z its round prescribes. With
    `Synchronisation(dispatch="fcfs")` a batch goes to the replica that is free first, and they do not.
    """

    @checked
    def __init__(
        self,
        program: AsProgram,
        shapes: Shapes,
        devices: AsDevices = ("/cpu:0",),
        replicas_per_device: ReplicaCounts = 2,
        synchronisation: AsSynchronisation | None = None,
        schedule: AsSchedule | None = None,
        *,
        launch_ahead: Ahead = 2,
        steps_per_launch: Steps | None = 1,
        on_nan: OnNan = "stop",
        all_reduce: AsAllReduce | None = None,
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
        self.schedule = schedule
        self.options = synchronisation or Synchronisation()
        self.round = 0  # rounds trained so far, by the count of `run`
        self.host_copy: tuple[int, dict[str, Array]] | None = None  # the last `central_values`, and its round
        self.launch_ahead = launch_ahead
        self.steps_per_launch = self._own_steps_per_launch = steps_per_launch or 1
        self.most_steps_per_launch = self._room_for_steps = most_steps(steps_per_launch)
        self.on_nan = on_nan
        self.skipped_updates = 0
        self._run: EngineRun | None = None  # that is going on
        self._changing = threading.RLock()  # owns `_run`, and all that runs work on while none is going on
        self._drained = True  # nothing of the last run is in flight
        self._stopping = False
        specs = program.specs(shapes) if isinstance(shapes, int) else shapes
        self._steps = [(program, list(specs))]
        self._compiled: Compiled = {}
        self._own_all_reduce = all_reduce
        self.learners = Learners(
            program,
            specs,
            [*map(opened, device_list(devices))],
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

    @checked
    def initialize(self, values: Mapped | None = None) -> None:
        """Gives every replica and z the same values, by default those of the variables' initialisers.

        Raises FailedPreconditionError while a run is going on.
        """
        with self._idle("initialize", or_settled=True):
            self.learners.initialize(self._steps[0][0].initial_values() if values is None else values)

    @checked
    def add_program(self, program: AsProgram, shapes: Specs) -> int:
        """Gives the replicas a further step over the same variables; its number for `select`.

        Raises InvalidArgumentError when the program has variables that the replicas have not,
        FailedPreconditionError while a run is going on, ResourceExhaustedError for memory.
        """
        with self._idle("add_program", or_settled=True):
            number = self.learners.add_program(program, shapes)
            self._steps.append((program, list(shapes)))
            return number

    def executable_of(self, number: int) -> Executable:
        """What a program has been compiled to, on the first replica's device."""
        return self.learners.replicas[0].executable_of(number)

    @checked
    def select(self, number: Count) -> None:
        """Chooses the step that is trained from now on; between runs, or by `Stepper.select`.

        Raises InvalidArgumentError for one that cannot do `steps_per_launch` steps in a launch, where that
        was not left to `set_steps_per_launch`; FailedPreconditionError while a run is going on.
        """
        if number >= len(self._steps):
            raise refuse("select", "number", f"of one of {len(self._steps)} programs", number)
        with self._idle("select", or_settled=True):
            self._select(number)

    def _select(self, number: int) -> None:
        self.learners.select(number)
        try:
            self._require_launches(self.learners)
        except InvalidArgumentError:
            self.learners.select(self.selected)
            raise
        self.selected = number
        self.most_steps_per_launch = 1 if self.learners.launcher is None else self._room_for_steps
        self.steps_per_launch = min(self.steps_per_launch, self.most_steps_per_launch)
        executable = self.learners.executable
        self._has_loss = self._steps[number][0].loss is not None
        self._counters = [f"counter:{name}" for name in executable.counters]
        self._rate = self.schedule if "learning_rate" in executable.scalars else None
        scheduled: list[ScheduledBy] = self._steps[number][0].graph.get_collection(GraphKeys.SCHEDULES)
        self._own_schedules = [own for own in scheduled if own.step.op.name in executable.writes]

    @checked
    def set_steps_per_launch(self, steps: Positive) -> None:
        """Changes the number between two runs, of an engine that was made with None.

        Raises InvalidArgumentError for a number out of 1 to `most_steps_per_launch`, FailedPreconditionError
        while a run is going on.
        """
        if not 1 <= steps <= self.most_steps_per_launch:
            raise InvalidArgumentError(
                f"steps_per_launch: expected 1 to {self.most_steps_per_launch} of this engine, got {steps}"
            )
        with self._idle("set_steps_per_launch", or_settled=True):
            self.steps_per_launch = steps

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
        if self._own_steps_per_launch > 1 and learners.launcher is None:
            raise InvalidArgumentError(
                f"steps_per_launch={self._own_steps_per_launch}: several steps in one launch need native "
                "code for all of the step, on CPU devices, with dispatch round_robin; give 1, or see "
                "`tensorbow explain`"
            )

    @checked
    def resize(
        self,
        replicas_per_device: ReplicaCounts,
        round: Count | None = None,
        schedule: AsSchedule | None = None,
        ssgd_from: Positive | None = None,
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
        with self._idle("resize"):
            self._resize(replicas_per_device, round, schedule, ssgd_from)

    def _resize(
        self,
        replicas_per_device: int | Sequence[int],
        round: int | None,
        schedule: Schedule | None,
        ssgd_from: int | None,
    ) -> None:
        if self._own_all_reduce is not None:
            raise FailedPreconditionError(
                "resize: this engine was given its all-reduce, which is connected for good; leave it out"
            )
        self._require_rate(schedule)
        self._require_values()
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
        with self._idle("close"):
            self.learners.close()

    def __enter__(self) -> LearningEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
