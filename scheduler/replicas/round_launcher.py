"""Rounds of all replicas as one launch, exchanges included, where the backend has round programs.

The tasks of a launch are enqueued together and end together: replicas meet within it. They are done by a
thread for each replica or core, or by one alone, whichever is faster (`thread_choice`); on GPUs one thread
enqueues all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from scheduler.averaging.round_variants import RoundVariants
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.averaging.transport import Transport
from scheduler.replicas.central import CentralModel
from scheduler.replicas.dynamic.divided_rounds import DividedRounds
from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.dynamic.kept_state import kept_state
from scheduler.replicas.launches import LaunchedRounds, Launcher
from scheduler.replicas.replica import Replica
from scheduler.replicas.thread_choice import SHORT, SHORT_OF_EXECUTORS, ThreadChoice, Threads
from tensorbow.data import BatchInputs, BatchRecipe, BatchRun, LaunchRecipes
from tensorbow.devices import Device, Event, usable_cores
from tensorbow.errors import InternalError, TensorBowError
from tensorbow.kernels import backend_for
from tensorbow.program import (
    BoundPlan,
    Executable,
    LaunchFeeds,
    Region,
    RoundLaunch,
    RoundProgram,
    RoundProgramSpec,
    WorkerExchange,
)
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT, OP, WAIT, StreamTrack, Tracer

MOST_ROUNDS = 4096  # of a launch


class ProgramLaunch(LaunchedRounds):
    """Launched by a round program of a backend."""

    def __init__(
        self,
        number: int,
        rounds: range,
        launch: RoundLaunch,
        threads: Threads,
        first: int,
        traced: tuple[Tracer, Sequence[StreamTrack]] | None,
    ):
        """threads: the ones chosen to run it. first: number of the first replica, in messages. traced: the
        tracer, and the rows of the replicas' streams."""
        super().__init__(number, rounds, launch.threads)
        self.launch, self.threads, self._first, self._traced = launch, threads, first, traced
        if traced is not None:
            launch.time_exchanges()

    @property
    def whole_rounds(self) -> int:
        """See LaunchedRounds.whole_rounds."""
        return self.launch.whole_rounds

    @property
    def is_whole(self) -> bool:
        """See LaunchedRounds.is_whole."""
        return self.launch.is_whole

    def run(self, thread: int) -> None:
        """Does a thread's part, on its stream."""
        try:
            self.launch.run(thread)
            if self._traced is not None:
                self._trace_exchanges(thread, *self._traced)
        except TensorBowError as error:
            replica, done = self.launch.at(thread)
            step = self.rounds.start + done
            raise type(error)(f"replica {self._first + replica} at step {step}: {error}") from error

    def _trace_exchanges(self, thread: int, tracer: Tracer, tracks: Sequence[StreamTrack]) -> None:
        """Adds a span for each exchange of a thread's part, and one before it for the wait for others."""
        track, waits = tracks[self.replicas[thread].start], len(self.replicas) > 1
        for index, name, arrived_s, all_arrived_s, ended_s in self.launch.exchange_times(thread):
            of_round = f"{name.removeprefix('update, ')}, round {self.rounds[index]}"
            if waits:
                tracer.add(track, f"wait before {of_round}", WAIT, arrived_s, all_arrived_s)
            tracer.add(track, of_round, OP, all_arrived_s, ended_s)


class RoundLauncher(Launcher):
    """Launches whole rounds of all replicas, exchanges included."""

    most_rounds = MOST_ROUNDS

    def __init__(
        self,
        replicas: Sequence[Replica],
        program: RoundProgram,
        variants: RoundVariants,
        has_workers: bool = False,
    ):
        """has_workers: other processes have replicas, too."""
        self._replicas, self._program, self._has_workers = replicas, program, has_workers
        self.shares_central = program.shares_central
        self._variants = variants
        self._numbers = {name: number for number, name in enumerate(self._variants.names)}
        short_s = SHORT if replicas[0].executor is None else SHORT_OF_EXECUTORS
        alone, chooses = len(replicas) == 1, program.chooses_threads
        self._choice = ThreadChoice(alone=alone, short_s=short_s) if chooses else None
        self._streams = [replica.group.compute for replica in replicas]
        self._may_not_end = any(replica.may_not_end for replica in replicas)
        self._labels = [f"replica {replica.index} step" for replica in replicas]
        self._batch_plans: tuple[int, Sequence[BoundPlan]] = 0, ()  # batch size, and plans that make batches
        self._last: list[tuple[int, Event]] = []  # what was last enqueued, and on which replica's stream

    def connect(self) -> None:
        """See Launcher."""
        self._program.connect()

    def launch(
        self,
        number: int,
        rounds: range,
        inputs: Sequence[BatchInputs | BatchRun],
        state: Mapping[str, Any],
        when_ended: Callable[[LaunchedRounds], object],
        when_synchronised: Callable[[Event], object],
    ) -> int:
        """See Launcher. Returns 0: synchronisation is part of the tasks."""
        threads = Threads.ONE if self._choice is None else self._choice.choose(len(rounds))
        most_threads = usable_cores() if threads is Threads.EACH else 1
        variants = [self._numbers[self._variants.of(round)] for round in rounds]
        launch = self._program.launch(rounds.start, variants, self._feeds(inputs), state, most_threads)
        tracer = CURRENT.tracer
        traced = None if tracer is None else (tracer, [stream.track for stream in self._streams])
        tasks = ProgramLaunch(number, rounds, launch, threads, self._replicas[0].index, traced)
        try:
            events = self._enqueue(tasks)
        except BaseException:  # threads that are enqueued must not wait for those that are not
            self._program.stop()
            raise
        tasks.follow(events, when_ended, self._program.stop)
        return 0

    def _feeds(self, inputs: Sequence[BatchInputs | BatchRun]) -> LaunchFeeds:
        """Picks of a data set that the devices keep, or arrays."""
        if self._replicas[0].executor is not None:
            pairs = zip(self._replicas, inputs, strict=True)
            return LaunchFeeds([replica.batches(own) for replica, own in pairs])
        data = self._replicas[0].data
        if (
            not isinstance(inputs, LaunchRecipes)
            or data is None
            or data.dataset is not inputs.recipes.dataset
        ):
            pairs = zip(self._replicas, inputs, strict=True)
            return LaunchFeeds([replica.feeds_of(own) for replica, own in pairs])
        recipes, index = inputs.recipes, inputs.round_index
        if self._batch_plans[0] != recipes.batch_size:
            recipe = BatchRecipe.of(recipes, 0, 0)
            makers = [replica.batch_maker_for(recipe) for replica in self._replicas]
            self._batch_plans = recipes.batch_size, [maker.plan for maker in makers]
        if index is None:
            return LaunchFeeds((), self._batch_plans[1], recipes.picks_drawn_to(len(recipes)))
        return LaunchFeeds((), self._batch_plans[1], recipes.picks_drawn_to(index + 1), index)

    def _enqueue(self, tasks: ProgramLaunch) -> list[Event]:
        """The tasks of each thread on the stream of its first replica, behind what lies on others."""
        members, last, events = tasks.launch.threads, self._last, list[Event]()
        here = tasks.threads is Threads.CALLER or (self.caller_waits and len(self._streams) == 1)
        if here and not self._may_not_end:
            for _, event in last:
                if not event.done():  # after a change of threads, or a restart
                    with suppress(Exception):  # the stream has it too
                        event.synchronize()
            label = self._label(members[0], tasks.rounds)
            done = self._streams[0].run_here(partial(tasks.run, 0), label=label)
            if done is not None:
                self._last = [(0, done)]
                return [done]
        owners = [replicas.start for replicas in members]
        apart = [owner for owner, _ in last] != owners
        for thread, owner in enumerate(owners):
            stream = self._streams[owner]
            for other, event in last if apart else ():
                if other != owner:
                    stream.wait(event)
            label = self._label(members[thread], tasks.rounds)
            events.append(stream.submit(partial(tasks.run, thread), label=label))
        self._last = [*zip(owners, events, strict=True)]
        return events

    def _label(self, replicas: range, rounds: range) -> str:
        """Name of tasks in a trace, with their rounds."""
        name = self._labels[replicas.start] if len(replicas) == 1 else "step of all replicas"
        if CURRENT.tracer is None:
            return name
        if len(rounds) == 1:
            return f"{name}, round {rounds.start}"
        return f"{name}, rounds {rounds.start} to {rounds.stop - 1}"

    def ended(self, tasks: LaunchedRounds) -> None:
        """See Launcher: its time is for the choice of threads, and its inputs may go."""
        if not isinstance(tasks, ProgramLaunch):
            raise InternalError(f"launch {tasks.number} is not of this launcher")
        tasks.launch.let_go()
        if self._choice is not None and self._choice.tries:
            self._choice.ended(len(tasks.rounds), tasks.threads, max(tasks.times_s))

    @property
    def may_refuse(self) -> bool:
        """See Launcher. Rounds with dynamic parts undo themselves."""
        return self._replicas[0].executor is None and self._program.may_refuse

    @property
    def may_refuse_midway(self) -> bool:
        """See Launcher."""
        ranges, data = self._program.index_ranges, self._replicas[0].data
        if ranges is None or not self.may_refuse:
            return self.may_refuse
        return data is not None and not all(data.holds(*each) for each in ranges)

    @property
    def settled(self) -> bool:
        """See Launcher."""
        return self._choice is None or self._choice.settled

    @property
    def stopped(self) -> bool:
        """See Launcher: a launch has ended, or is to end, before its last round."""
        return self._program.stopped

    @property
    def ended_by_others(self) -> bool:
        """See Launcher."""
        return self._has_workers and self._program.stopped

    def fetched(self, replica: int, tasks: LaunchedRounds) -> list[Sequence[Any] | Array]:
        """See Launcher."""
        if not isinstance(tasks, ProgramLaunch):
            raise InternalError(f"launch {tasks.number} is not of this launcher")
        columns = self._program.fetched(replica, tasks.rounds.start, tasks.launch.done(replica))
        return [column.tolist() if column.ndim == 1 else column for column in columns]

    def reset(self) -> None:
        """See Launcher."""
        self._last = []
        if self._choice is not None:
            self._choice.pause()
        self._program.reset()
        self._batch_plans = 0, ()

    def close(self) -> None:
        """See Launcher."""
        self._program.close()


def _nothing() -> None:
    """Calls of native code have ended when they return."""


def why_not_fused(step: Executable, device: Device, options: Synchronisation, replicas: int) -> str:
    """Reason why replicas of a step cannot be fused on a device, as far as that is known before it is bound;
    empty if there is none. replicas: on all devices.
    """
    if isinstance(step, DividedExecutable):
        return f"each runs its own by the dynamic executor, as {step.part.reason}"
    if not options.in_lockstep:
        return f"dispatch is {options.dispatch!r}" if options.first_come else "there are backup workers"
    return backend_for(device).why_not_fused(step, RoundVariants(options, replicas).names)


def round_launcher(
    replicas: Sequence[Replica],
    central: Sequence[CentralModel],
    options: Synchronisation,
    transport: Transport | None,
    workers: WorkerExchange | None = None,
) -> RoundLauncher | None:
    """The launcher of replicas, which go by device; None where their backend cannot launch whole rounds.

    transport: between several devices, where replicas meet. workers: where those of other processes do.
    Raises UnimplementedError for a step whose replicas cannot be fused, where the options say so.
    """
    if not options.in_lockstep:
        return None
    names = [str(replica.device.name) for replica in replicas]
    variants = RoundVariants(options, len(replicas) if workers is None else sum(workers.counts))
    rounds = RoundProgramSpec(
        replicas[0].step,
        variants.names,
        [[model.bases.get(region, 0) for region in Region] for model in central],
        [names.count(name) for name in dict.fromkeys(names)],
        [model.plan for model in central],
        None if transport is None else transport.post,
        options.fused,
        workers,
    )
    plans = [replica.binding.plan for replica in replicas]
    program = backend_for(replicas[0].device).round_program(plans, rounds)
    executors = [replica.executor for replica in replicas if replica.executor is not None]
    if program is not None and isinstance(rounds.step, DividedExecutable):
        run = [replica.run_dynamic_part for replica in replicas]
        kept = kept_state(
            rounds.step,
            replicas[0].layout,
            [(replica.device, replica.binding.bases) for replica in replicas],
            [(model.device, model.bases) for model in central],
            program.may_refuse,
        )
        on_gpu = replicas[0].device.kind == "gpu"
        await_planned = replicas[0].group.compute.synchronize if on_gpu else _nothing
        program = DividedRounds(
            program, rounds.step.state, rounds.step.part, executors, run, kept, await_planned
        )
    return None if program is None else RoundLauncher(replicas, program, variants, workers is not None)
