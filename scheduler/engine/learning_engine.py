"""The learning engine: replicas and z on devices, and the runs that train them.

It enqueues what can be enqueued, on streams ordered by events, and is told by the events what has ended. No
host thread waits for a device while training, except the one that takes messages from a queue. What happens
between a run's beginning and its end is in `runs`, `round_run`, `task_run` and `backup_run`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from scheduler.averaging.synchronisation import FREEZE, AsSynchronisation, OnNanAlone, Synchronisation
from scheduler.batches.sources import BatchSource, DatasetBatches, OpenSource
from scheduler.engine.backup_run import BackupRun
from scheduler.engine.engine_arguments import (
    Ahead,
    AsSchedule,
    AsTransport,
    AsWorkers,
    Shapes,
    ShapesOfAll,
    Specs,
    Steps,
)
from scheduler.engine.learners_choice import lockstep_of, made_learners
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.restarts import Restarts
from scheduler.engine.rollback import Rollback, rollback_for
from scheduler.engine.round_run import RoundRun
from scheduler.engine.runs import EngineRun, OnResults
from scheduler.engine.task_run import TaskRun
from scheduler.engine.undoing import undo
from scheduler.replicas.device_plans import MOST_STEPS, Compiled, results_kept
from scheduler.replicas.parted_learners import PartedLearners
from scheduler.replicas.replica_counts import ReplicaCounts, device_list
from scheduler.replicas.replica_seeds import Seeds, initial_values_of, seeds_for
from scheduler.replicas.resizing import Resizing, made_again
from scheduler.replicas.step_program import AsProgram, StepProgram
from scheduler.replicas.step_summary import explained
from scheduler.workers.pulse import PULSE
from tensorbow.devices import AsDevices, opened
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    TensorBowError,
    UnimplementedError,
    raise_if_any,
)
from tensorbow.kinds import (
    Count,
    Flag,
    Function,
    Mapped,
    Positive,
    checked,
    refuse,
)
from tensorbow.optimizers import Schedule
from tensorbow.program import Executable
from tensorbow.specs import Array, TensorSpec


class LearningEngine:
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
        on_nan: OnNanAlone = "stop",
        transport: AsTransport | None = None,
        seeds: Seeds | None = None,
        devices_per_replica: Positive = 1,
        room_for_steps: Steps = MOST_STEPS,
        workers: AsWorkers | None = None,
    ):
        """shapes: batch_size of one replica, or the specs of the program's inputs.

        replicas_per_device: one count for all devices, or one for each; batch n of a round goes to replica n,
        which are counted device by device.

        schedule: the learning rate by round; None leaves it to what the optimiser was made with: a number, or
        a schedule, which counts by itself.
        on_nan: `stop`, `skip` the update and go on, or `freeze`, with sync `none`: the replica writes nothing
        from that step on, and others go on; `frozen` has it.
        steps_per_launch: rounds that a replica does in one launch, averaging included, where steps are so
        short that launches are what they cost. The bits stay the same. The source then gives a `BatchRun` for
        each launch (`DatasetBatches(steps_per_launch=...)`, or `gathered`), and a run stops between launches.
        None begins with 1, and leaves it to `set_steps_per_launch`, of at most `room_for_steps`: the results
        of so many are kept.
        seeds: one for each replica, with sync `none`: of its initial values and random ops. Replica i has the
        bits of an engine with one replica and the i-th seed.
        devices_per_replica: with several, replicas have a part on each of so many devices: the first ones
        belong to the first group of replicas, and so on, and `replicas_per_device` counts those of a group.
        The step's ops are placed by the names of the first group's devices. Such an engine is not resized.
        workers: the processes of a job, as `tb.worker_group()` gives them, whose replicas all average
        together (MultiWorkerReplicator: TF-Replicator, 2019, section 3.1). Each makes an engine of the same
        program and options, with its own devices, and makes the same calls in the same order; replicas are
        counted worker by worker. z starts as worker 0's. A run ends on all workers at the same launch: where
        one fails, the others raise AbortedError that names it.
        Raises InvalidArgumentError for options out of range, ResourceExhaustedError for memory.
        """
        self.schedule = schedule
        options = synchronisation or Synchronisation()
        self._given_mode = options.replica_mode
        groups = len(device_list(devices)) // devices_per_replica
        self.seeds = seeds_for(seeds, options, replicas_per_device, groups)
        self.round = 0  # rounds trained so far, by the count of `run`
        self.host_copy: tuple[int, dict[str, Array]] | None = None  # the last `central_values`, and its round
        self.launch_ahead = launch_ahead
        self.steps_per_launch = self._own_steps_per_launch = steps_per_launch or 1
        self._rooms = [steps_per_launch or room_for_steps]  # by program, rounds of a launch whose results fit
        self.most_steps_per_launch = self._rooms[0]
        self._run: EngineRun | None = None  # that is going on
        self._changing = threading.RLock()  # owns `_run`, and all that runs work on while none is going on
        self._drained = True  # nothing of the last run is in flight
        self._stopping = False
        specs = program.specs(shapes) if isinstance(shapes, int) else shapes
        self._steps = [(program, list(specs))]
        self._compiled: Compiled = {}
        self._given_transport = transport
        self.devices_per_replica = devices_per_replica
        self.workers = workers
        self.lockstep = lockstep_of(workers, options, devices_per_replica, transport, schedule)
        try:
            self.learners = made_learners(
                program,
                specs,
                [*map(opened, device_list(devices))],
                replicas_per_device,
                options,
                devices_per_replica,
                transport,
                self.lockstep,
                results=results_kept(launch_ahead, self._rooms[0]),
                compiled=self._compiled,
                random_streams=self.seeds,
            )
            try:
                self._complete(on_nan)
            except BaseException:
                self.learners.close()
                raise
        except BaseException as error:
            if self.lockstep is not None:
                self.lockstep.close(error)  # others wait for this worker where they meet next
            raise

    def _complete(self, on_nan: OnNanAlone) -> None:
        """Makes what follows from the learners. Raises InvalidArgumentError for options they do not allow."""
        learners, (program, _) = self.learners, self._steps[0]
        if on_nan == FREEZE and (
            learners.synchronises or program.exchange_ops or learners.options.first_come
        ):
            raise InvalidArgumentError(
                "on_nan: expected stop or skip where replicas meet, got freeze, which is for independent "
                "replicas; add sync 'none', dispatch 'round_robin', and leave collectives out"
            )
        self.outcomes = StepOutcomes(learners, on_nan)
        self._restarts = Restarts()
        self.selected = 0
        self.select(0)
        self._restarts.require_followed(self.schedule)

    @property
    def options(self) -> Synchronisation:
        """Options of the averaging, with the `replica_mode` of now."""
        return self.learners.options

    @property
    def given_options(self) -> Synchronisation:
        """Options of the averaging, with the `replica_mode` that the engine was made with."""
        return replace(self.learners.options, replica_mode=self._given_mode)

    @property
    def program(self) -> StepProgram:
        """The step that is selected."""
        return self._steps[self.selected][0]

    @property
    def on_nan(self) -> str:
        """Reaction to a loss or gradient that is not finite: `stop`, `skip` or `freeze`."""
        return self.outcomes.on_nan

    @property
    def frozen(self) -> dict[int, int]:
        """Replicas that write nothing any more, with `on_nan` `freeze`: by number the round from which on."""
        return dict(self.outcomes.frozen)

    def freeze(self, rounds: Mapping[int, int]) -> None:
        """Freezes these replicas, by number the round from which on, and no other, between two runs.

        Raises FailedPreconditionError while a run is going on.
        """
        with self._idle("freeze", or_settled=True):
            self.outcomes.frozen = dict(rounds)

    @property
    def skipped_updates(self) -> int:
        """Updates skipped so far because a loss or gradient was not finite."""
        return self.outcomes.skipped_updates

    @checked
    def initialize(self, values: Mapped | None = None, known: Mapped | None = None) -> None:
        """Gives every replica and z the same values, by default those of the variables' initialisers, which
        draw with each replica's seed, if it has one. Of several workers, those that worker 0 gives.

        known: values of some variables, instead. Raises NotFoundError or InvalidArgumentError for values that
        do not fit, FailedPreconditionError while a run is going on.
        """
        with self._idle("initialize", or_settled=True):
            self.outcomes.frozen.clear()
            starts = initial_values_of(self._steps[0][0], self.seeds) if values is None else [values]
            if known is not None:
                starts = [{**start, **known} for start in starts]
            self.learners.values.initialize(*self.of_worker_0(starts))

    def of_worker_0(self, starts: Sequence[Mapped]) -> Sequence[Mapped]:
        """Initial values that worker 0 gives, of replicas without seeds; collective."""
        if self.lockstep is None or self.seeds is not None:
            return starts
        found: Sequence[Mapped] = self.lockstep.broadcast("initial values", starts)
        return found

    @checked
    def add_program(self, program: AsProgram, shapes: Specs, room_for_steps: Steps | None = None) -> int:
        """Gives the replicas a further step over the same variables; its number for `select`.

        room_for_steps: rounds of a launch whose results are kept; by default as of the first program.
        Raises InvalidArgumentError when the program has variables that the replicas have not,
        FailedPreconditionError while a run is going on, ResourceExhaustedError for memory.
        """
        with self._idle("add_program", or_settled=True):
            room = room_for_steps or self._rooms[0]
            number = self.learners.add_program(program, shapes, results_kept(self.launch_ahead, room))
            self._steps.append((program, list(shapes)))
            self._rooms.append(room)
            return number

    def executables_of(self, number: int) -> tuple[Executable, ...]:
        """Compiled form of a program for each of the first replica's devices."""
        return self.learners.replicas[0].executables_of(number)

    @checked
    def explain(self, number: Count = 0) -> str:
        """Explains a program: replicas, synchronisation, memory, kernel calls, exchanges, and then the parts
        of a replica and of a device, as `Session.explain` does. number: of the program, as for `select`.

        Raises InvalidArgumentError for one that is not there.
        """
        self._require_program("explain", number)
        results = results_kept(self.launch_ahead, self._rooms[number])
        return explained(self.learners, number, results)

    @checked
    def select(self, number: Count) -> None:
        """Chooses the step that is trained from now on; between runs, or by `Stepper.select`.

        Raises InvalidArgumentError for one that cannot do `steps_per_launch` steps in a launch, where that
        was not left to `set_steps_per_launch`; UnimplementedError for one whose replicas cannot be fused,
        where they are to be; FailedPreconditionError while a run is going on. The former step stays chosen.
        """
        self._require_program("select", number)
        with self._idle("select", or_settled=True):
            self._select(number)

    def _require_program(self, call: str, number: int) -> None:
        if number >= len(self._steps):
            raise refuse(call, "number", f"of one of {len(self._steps)} programs", number)

    def _select(self, number: int) -> None:
        try:
            self.learners.select(number)
            self.require_launches(self._own_steps_per_launch)
        except TensorBowError:
            self.learners.select(self.selected)
            raise
        self.selected = number
        self.most_steps_per_launch = min(self._rooms[number], self.learners.launcher.most_rounds)
        self.steps_per_launch = min(self.steps_per_launch, self.most_steps_per_launch)
        self._follow()
        self.outcomes.freeze()

    def _follow(self) -> None:
        """Tells all that depends on the learners, the selected step and the schedule."""
        for follower in (self.outcomes, self._restarts):
            follower.follow(self.learners, self.program, self.schedule)

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

    def require_launches(self, steps: int) -> None:
        """Raises InvalidArgumentError if a launch of the selected step cannot have this number of rounds."""
        learners = self.learners
        if steps > learners.launcher.most_rounds:
            slow = learners.called_apart()
            reason = f" ({slow[0]}{f', and {len(slow) - 1} more' if slow[1:] else ''})" if slow else ""
            raise InvalidArgumentError(
                f"steps_per_launch={steps}: several steps in one launch need native code for all of the "
                f"step, or for what of it is planned, on CPU devices, or kernels that can be captured, on "
                f"GPUs, with dispatch round_robin{reason}; give 1"
            )

    @checked
    def resize(
        self,
        replicas_per_device: ReplicaCounts,
        round: Count | None = None,
        schedule: AsSchedule | None = None,
        ssgd_from: Positive | None = None,
        shapes: ShapesOfAll | None = None,
    ) -> None:
        """Goes on with another number of replicas, between two runs (Crossbow, VLDB 2019, section 4).

        Those that stay keep their values: of each device the first. New ones start from z, with fresh
        optimiser slots; what the replicas that go have summed stays in replica 0. z and u stay; alpha,
        corrections and sums follow. One replica alone goes on from z, as its model. Rounds on the mean
        gradient need equal replicas: there new ones get the optimiser slots of the others. Where nothing
        keeps replicas together, new ones start from replica 0. Random ops draw by number of replica, which
        counts over devices. The bits are those of an engine made with that number and given these values.

        round: where the last run ended, by default by the count of `run`. schedule, ssgd_from: replace those
        before, since they count rounds, of which more replicas make fewer. shapes: by program, the specs of
        its inputs from now on, where more replicas share one batch.
        Several workers change together, each to a number of its own; what does not fit on one goes for all.
        Raises FailedPreconditionError while a run is going on, before `initialize`, or with a transport of
        the caller's; InvalidArgumentError for an alpha that is not stable with so many, or a schedule that
        the step does not follow; ResourceExhaustedError when they do not fit. The engine is then as it was.
        What else fails on one of several workers ends the engines of all: the others raise AbortedError.
        """
        with self._idle("resize"):
            self._resize(replicas_per_device, round, schedule, ssgd_from, shapes)

    def _resize(
        self,
        replicas_per_device: int | Sequence[int],
        round: int | None,
        schedule: Schedule | None,
        ssgd_from: int | None,
        shapes: Sequence[Sequence[TensorSpec]] | None,
    ) -> None:
        if self._given_transport is not None:
            raise FailedPreconditionError(
                "resize: this engine was given its transport, which is connected for good; leave it out"
            )
        if self.seeds is not None:
            raise FailedPreconditionError("resize: replicas with seeds stay as many; leave seeds out")
        if isinstance(self.learners, PartedLearners):
            raise FailedPreconditionError("resize: replicas with several devices each stay as many")
        if shapes is not None and len(shapes) != len(self._steps):
            expected = f"for each of {len(self._steps)} programs, the specs of its inputs"
            raise refuse("resize", "shapes", expected, shapes)
        specs = shapes or [own for _, own in self._steps]
        steps = [(program, [*new]) for (program, _), new in zip(self._steps, specs, strict=True)]
        self._restarts.require_followed(schedule)
        round = self.round if round is None else round
        self._make_ready(round)
        options = self.options if ssgd_from is None else replace(self.options, ssgd_from=ssgd_from)
        jumped, old = self._restarts.due_before(round), self.learners
        change = Resizing(old, replicas_per_device, options, round, steps[0][1])
        results = [results_kept(self.launch_ahead, room) for room in self._rooms]
        again = partial(made_again, old, selected=self.selected, results=results, compiled=self._compiled)
        kept = old.release_data()
        old.close()
        try:
            self.learners = again(steps, per_device=change.per_device, options=options, values=change.values)
            self.require_launches(self._own_steps_per_launch)
            if kept:
                self.learners.keep_data(kept)
        except BaseException as error:
            self.learners.close()
            if self.lockstep is not None:  # the others go on, or wait for this worker
                lockstep, self.lockstep = self.lockstep, None
                for data in kept:
                    data.close()
                lockstep.close(error)
                raise
            try:
                before = change.values_before
                self.learners = again(
                    self._steps, per_device=old.per_device, options=old.options, values=before
                )
                self._follow()
            except BaseException:
                for data in kept:
                    data.close()
                raise
            if kept:
                self.learners.keep_data(kept)
            raise
        self._steps = steps
        self.outcomes.resize(change.origins)
        self.schedule = schedule or self.schedule
        self.select(self.selected)
        self._restarts.follow_counts(round)
        if self._restarts.due_before(round) and not jumped:
            self.restart(round)

    @checked
    def fuse(self, fused: Flag, required: Flag = True) -> None:
        """Goes on with each kernel of a GPU computing all its replicas, or with the replicas side by side,
        between two runs; `replica_mode` of `Synchronisation`. The numbers differ by rounding. Replicas of
        further steps that cannot be fused run side by side, unless the engine was made with mode `fused`.

        required: False if that goes for the selected step, too.
        Raises UnimplementedError with the reason for a selected step whose replicas cannot be fused,
        InvalidArgumentError on other devices, ResourceExhaustedError for memory, FailedPreconditionError
        while a run is going on. The engine is then as it was.
        """
        with self._idle("fuse"):
            if isinstance(self.learners, PartedLearners):
                raise UnimplementedError("fuse: replicas with several devices each run side by side")
            self.learners.fuse(fused, required)
            self._follow()

    @checked
    def run(
        self,
        open_source: Function,
        start: Count,
        stop: Count,
        on_results: Function | None = None,
    ) -> int:
        """Trains rounds `start` to `stop` - 1; returns the round it ended before.

        on_results is called in this thread, in the order of rounds, when all tasks of a launch's rounds have
        ended. When `run` returns nothing is in flight. It returns early after `request_stop`, with all
        replicas at the same round.
        Raises NumericsError for the first loss or gradient that is not finite (unless `on_nan` is `skip`);
        that replica has written nothing from there on, and all have ended at the same round. Raises the error
        of a failed op, of the batch source or of `on_results`. After a failed op, or a label or index that
        is out of range, all replicas and z are as before its round, which is `round`: where some had gone on,
        the rounds since a copy of the state are done again. Where native code refuses another number that it
        has computed from arrays, all begin `round` anew from z, as new replicas do: the error says so. With
        `fcfs`, `none`, or several workers, and where a GPU is lost, replicas may be some rounds apart, and
        `round` an earlier one: the error says so; go on from a checkpoint. Raises AbortedError where another
        worker has failed.
        """
        source = getattr(open_source, "__self__", None)
        if isinstance(source, DatasetBatches) and source.replicas != self.learners.count:
            raise InvalidArgumentError(
                f"run: a source of batches for {source.replicas} replicas, but the engine has "
                f"{self.learners.count}; give the source the same number"
            )
        ended = start
        try:
            while True:
                end = self._restart_or_stop(ended, stop)
                ended, is_to_stop = self._run_stretch(open_source, ended, end, on_results)
                if self.options.in_lockstep and start < ended == end and self._restarts.due_before(end):
                    self.restart(end)
                if is_to_stop or ended == stop:
                    return ended
        finally:
            if self._run is None:  # else another thread's run, which `request_stop` has asked to end
                self._stopping = False

    def _restart_or_stop(self, start: int, stop: int) -> int:
        """Round before which a run from `start` ends: `stop`, or in lockstep one where averaging restarts."""
        if not self._restarts.are_possible or not self.options.in_lockstep:
            return stop
        with self._idle("run"):
            self._make_ready(start)
        return self._restarts.next_after(start, stop)

    def _run_stretch(
        self,
        open_source: OpenSource,
        start: int,
        stop: int,
        on_results: OnResults | None,
    ) -> tuple[int, bool]:
        """Trains rounds; the round before which it ended, and whether that is on request."""
        rollback = rollback_for(self.learners, self.outcomes, self.lockstep is not None)
        run = self.new_run(start, stop, on_results, rollback)
        source: BatchSource | None = None
        try:
            self.begin(run)
            if self._stopping:
                run.inbox.put(None)
            run.advance()
            if run.finished_at is None:
                source = open_source(start, stop, run.inbox.put, run.inbox.put)
            while run.finished_at is None:
                run.take_all(run.next_message(), lambda: self._stopping)
        except BaseException as error:
            run.broken_off = f"{type(error).__name__}: {error}"
            raise
        finally:
            try:
                if source is not None:
                    source.close()
            finally:
                self.end(run)
        self.raise_error(run)
        self.round = run.finished_at
        return self.round, run.stopping if self.lockstep is not None else self._stopping

    # The pieces of a run, for `run` and for `Stepper`

    def begin(self, run: EngineRun) -> None:
        """Begins a run; nothing is launched yet. `end` must follow, also where this was interrupted.

        Raises FailedPreconditionError while another is going on, or for variables without a value.
        """
        with self._idle("run"):
            self._make_ready(run.start)
            self._run = run
            self.learners.in_run = True

    def new_run(
        self, start: int, stop: int, on_results: OnResults | None, rollback: Rollback | None
    ) -> EngineRun:
        """A run of rounds `start` to `stop` - 1, for `begin`. rollback: for rounds in lockstep."""
        given = self.learners, self.outcomes, start, stop, self.launch_ahead, on_results
        if self.options.first_come:
            return TaskRun(*given, self._restarts.due_before)
        if self.options.backup:
            return BackupRun(*given, self.lockstep)
        return RoundRun(*given, self.steps_per_launch, rollback, self.lockstep)

    def go_on(self, run: EngineRun, round: int) -> None:
        """Before `round` of a run that was settled: values may have been set."""
        with self._changing:
            run.settled = False
            self._restarts.follow_counts(round)

    @contextmanager
    def _idle(self, call: str, *, or_settled: bool = False) -> Iterator[None]:
        """Nothing is in flight and no run begins, while the caller changes what runs work on.

        or_settled: a stepper may have the engine, if it is settled.
        Raises FailedPreconditionError while a run is going on.
        """
        with self._changing:
            run = self._run
            if run is not None and not (or_settled and run.settled):
                raise FailedPreconditionError(
                    f"{call}: a run is going on; request_stop() it and wait for its end, or "
                    f"{'settle' if or_settled else 'close'} the stepper"
                )
            self._drain()
            yield

    def _make_ready(self, round: int) -> None:
        """Before rounds from `round` on. Raises as `begin`."""
        self._require_values()
        self.learners.prepare()
        self.outcomes.freeze()
        self._restarts.follow_counts(round)

    def _require_values(self) -> None:
        for replica in self.learners.replicas:
            missing = sorted(replica.own_step.reads_first - replica.container.initialized)
            if missing:
                raise FailedPreconditionError(
                    f"variables without a value: {', '.join(missing[:3])}"
                    f"{' and more' if len(missing) > 3 else ''}; call engine.initialize() first"
                )

    def end(self, run: EngineRun) -> None:
        """Waits until nothing is in flight and lets the engine go; a stream's error is kept in `run`.

        Nothing happens for a run that has not begun.
        """
        with self._changing:
            if self._run is not run:
                return
            self._run, self._drained = None, False
            run.keep_error(self.learners.drain())
            self._drained, self.learners.in_run = True, False
            PULSE.settle()
            run.part()
        while not run.inbox.empty():  # launches, which know the replicas' memory
            run.inbox.get()

    def _drain(self) -> None:
        """Waits for tasks of a run whose end was interrupted."""
        if not self._drained:
            self.learners.drain()
            self._drained = True

    def raise_error(self, run: EngineRun) -> None:
        """Raises what went wrong in a run that is ended, if anything did; a failed op is undone before."""
        try:
            if run.is_bad:
                raise run.numerics_error()
            if isinstance(run.error, CudaError) and run.error.sticky:
                raise self._with_host_copy(run.error) from run.error
            if isinstance(run, RoundRun) and run.broken_at is not None:
                whole = undo(run, run.broken_at, self.learners, self.outcomes, self.begin, self.end)
                self.round = self.round if whole is None else whole
            raise_if_any(run.error)
        finally:
            run.error = None  # see raise_if_any

    def request_stop(self) -> None:
        """Ends `run` at the next round that all replicas reach; callable from any thread or handler.

        Between two runs it ends the next one before its first round. A `Stepper` does as its caller says.
        """
        self._stopping = True
        run = self._run
        if run is not None:
            run.inbox.put(None)  # wakes it, wherever in the queue

    def restart(self, round: int) -> None:
        """Restarts averaging before `round`, where the last run ended: w_i = z, u = 0 (Crossbow, section 3).

        Raises FailedPreconditionError while a run is going on; it restarts by itself at the boundaries
        of a piecewise schedule.
        """
        with self._idle("restart"):
            self._restart(round)

    def _restart(self, round: int) -> None:
        self.learners.prepare()
        if self.learners.averages:
            self._drained = False
            self.learners.tasks.restart(round - 1)
            raise_if_any(self.learners.drain())
            self._drained = True

    def rounds_before_restart(self, round: int, most: int) -> int:
        """Rounds that a launch may have from `round` on, at most `most`: averaging restarts before launches
        alone.
        """
        if not self._restarts.are_possible:
            return most
        self._restarts.follow_counts(round)
        return self._restarts.next_after(round, round + most) - round

    def restart_if_due(self, round: int, settle: Callable[[], None]) -> None:
        """Restarts averaging of a stepper, after `settle()`, if the schedule restarts it before `round`."""
        if self._restarts.due_before(round):
            settle()
            with self._idle("restart", or_settled=True):
                self._restart(round)

    # Values, and the end

    @checked
    def central_values(self, round: Count | None = None) -> dict[str, Array]:
        """The variables of the central model as the last run left them, by name; kept as `host_copy`.

        round: the rounds trained, where not all of them were by `run`.
        Raises CudaError when the GPU is lost, saying which round the last copy is of.
        """
        round = self.round if round is None else round
        try:
            values = self.learners.values.central_values(round)
        except CudaError as error:
            raise self._with_host_copy(error) from error
        self.host_copy = round, values
        return values

    @checked
    def ema_values(self, round: Count | None = None) -> dict[str, Array]:
        """`central_values`, with the weights of the moving average of z that the option `ema` keeps.

        Raises FailedPreconditionError without the option.
        """
        return self.learners.values.ema_values(self.round if round is None else round)

    def _with_host_copy(self, error: CudaError) -> CudaError:
        """The error of a lost GPU, and what is left of the central model."""
        kept = "there is no copy of the central model on the host"
        if self.host_copy is not None:
            kept = f"the last copy of the central model on the host is of step {self.host_copy[0]}"
        return CudaError(f"{error}; {kept}", error.status, error.sticky)

    def close(self) -> None:
        """Closes all streams and gives all memory back; idempotent.

        Several workers meet here; where one closes its engine alone, others get AbortedError in what they do
        next. Raises FailedPreconditionError while a run is going on in another thread.
        """
        with self._idle("close"):
            self._close(None)

    def _close(self, error: BaseException | None) -> None:
        lockstep, self.lockstep = self.lockstep, None
        try:
            if lockstep is not None:
                lockstep.close(error)  # first: none waits for this worker where the rest fails
        finally:
            with self._idle("close"):
                try:
                    self.learners.close()
                finally:
                    if lockstep is not None:
                        lockstep.free()

    def __enter__(self) -> LearningEngine:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close(error)
