"""Tasks as whole steps in one launch each, averaging included, where the backend of the one device has that.

The tasks of a round are enqueued together and end together: a replica that averages waits for the others
within its task. Or one thread does the tasks of all, where that is faster (`thread_choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from scheduler.averaging.sma_segments import averaging_segment
from scheduler.averaging.synchronisation import Synchronisation
from scheduler.replicas.central import CentralModel
from scheduler.replicas.replica import Replica
from scheduler.replicas.thread_choice import ThreadChoice, Threads
from tensorbow.data import AllInputs, BatchRecipe, RoundInputs
from tensorbow.devices import Event
from tensorbow.errors import AbortedError, TensorBowError
from tensorbow.kernels import backend_for
from tensorbow.program import JointAveraging, JointInputs, JointLaunch, JointSteps, MadeBatches, Region
from tensorbow.specs import Array
from tensorbow.timeline import CURRENT


class JointRounds:
    """The tasks of all replicas in some rounds, as one launch; `events` has an event of each replica's."""

    def __init__(self, number: int, rounds: range, launch: JointLaunch, threads: Threads):
        """number: what the launch is called by who asked for it."""
        self.number, self.rounds, self.threads = number, rounds, threads
        self.events: Sequence[Event] = ()
        self._different: Sequence[Event] = ()  # of these: one, where one thread does the tasks of all
        self._launch = launch

    def run(self, replica: int) -> None:
        """Runs the tasks of a replica, on its stream."""
        try:
            self._launch.run(replica)
        except TensorBowError as error:
            raise self._named(error, replica) from error

    def run_all(self) -> None:
        """Runs the tasks of all."""
        try:
            self._launch.run_all()
        except TensorBowError as error:
            raise self._named(error, self._launch.at) from error

    def _named(self, error: TensorBowError, replica: int) -> TensorBowError:
        step = self.rounds.start + self._launch.done(replica)
        return type(error)(f"replica {replica}, step {step}: {error}")

    def follow(
        self, events: Sequence[Event], call: Callable[[JointRounds], object], stop: Callable[[], object]
    ) -> None:
        """Takes the events; has `call` be called at the end of the last task, `stop` at one that failed."""
        self.events = events
        self._different = different = events[:1] if events[0] is events[-1] else events
        ended = count(1)

        def one_ended(event: Event) -> None:
            if event.error is not None:
                stop()
            if next(ended) == len(different):
                call(self)

        for event in different:
            event.on_done(one_ended)

    def forget(self) -> None:
        """Holds the events no more, whose error holds the frames of `run`, and with them this object."""
        self.events = self._different = ()

    def let_go(self) -> None:
        """Holds the inputs no more, after the end."""
        self._launch.let_go()

    def done(self, replica: int) -> int:
        """How many of a replica's tasks were done, where one has set its status."""
        return self._launch.done(replica)

    @property
    def error(self) -> BaseException | None:
        """What went wrong, if anything did: not that which only follows on another replica's error."""
        if len(self._different) == 1:
            return self._different[0].error
        errors = [error for event in self._different if (error := event.error) is not None]
        return next((e for e in errors if not isinstance(e, AbortedError)), errors[0]) if errors else None

    @property
    def times_s(self) -> Sequence[float]:
        """By replica, when its tasks ended, by `time.perf_counter`."""
        if len(self._different) == 1:
            return [self._different[0].time_s] * len(self.events)
        return [event.time_s for event in self._different]


class JointTasks:
    """The tasks of all replicas of a device."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        steps: JointSteps,
        tau: int,
    ):
        """tau: averaging follows every round whose number, counted from 1, it divides; 0 for none."""
        self._replicas, self._steps, self._tau = replicas, steps, tau
        self.runs_here = False  # whether who launches may as well do the work, for it waits anyway
        self._choice = ThreadChoice(alone=len(replicas) == 1)
        self._streams = [replica.group.compute for replica in replicas]
        self._labels = [f"replica {replica.index} step" for replica in replicas]
        self._made: MadeBatches | None = None  # how batches are made of recipes
        self._last: list[Event] = []  # by replica, what was last enqueued for it
        self._by_one: Event | None = None  # among these, if it is on the first replica's stream

    def launch(
        self,
        number: int,
        rounds: range,
        inputs: AllInputs,
        state: Mapping[str, Any],
        when_ended: Callable[[JointRounds], object],
    ) -> None:
        """Enqueues the tasks of all replicas in some rounds.

        inputs: of one round, or runs of batches. state: step scalars, one or one for each round;
        with a status the steps go on whatever it becomes. when_ended: called from any thread.
        """
        launch = self._steps.launch(rounds.start, self._averages_in(rounds), self._inputs(inputs), state)
        threads = self._choice.way(len(rounds))
        tasks = JointRounds(number, rounds, launch, threads)
        try:
            self._last = (self._enqueue_each if threads is Threads.EACH else self._enqueue_one)(tasks)
        except BaseException:  # who is enqueued must not wait for who is not
            self._steps.stop()
            raise
        tasks.follow(self._last, when_ended, self._steps.stop)

    def _averages_in(self, rounds: range) -> Sequence[bool]:
        """Of each of these rounds, whether averaging follows it."""
        if self._tau <= 1:
            return [self._tau == 1] * len(rounds)
        return [(round + 1) % self._tau == 0 for round in rounds]

    def _inputs(self, inputs: AllInputs) -> JointInputs:
        if not isinstance(inputs, RoundInputs):
            each = zip(self._replicas, inputs, strict=True)
            return JointInputs([replica.joint_feeds(batch) for replica, batch in each])
        recipes, place, data = inputs.recipes, inputs.place, self._replicas[0].data
        if data is None or data.dataset is not recipes.dataset:
            return JointInputs([replica.joint_feeds(inputs.of(replica.index)) for replica in self._replicas])
        made, batch_size = self._made, recipes.batch_size
        if made is None or made.examples is not data.examples or made.batch_size != batch_size:
            recipe = BatchRecipe.of(recipes, 0, 0)
            targets = [replica.targets(recipe) for replica in self._replicas]
            made = self._made = MadeBatches(data.examples, batch_size, targets)
        if place is None:
            return JointInputs((), made, recipes.picks_before(len(recipes)))
        return JointInputs((), made, recipes.picks_before(place + 1), place)

    def _enqueue_each(self, tasks: JointRounds) -> list[Event]:
        if self.runs_here and len(self._streams) == 1:
            label = _label(self._labels[0], tasks.rounds)
            done = self._streams[0].run_here(partial(tasks.run, 0), label=label)
            if done is not None:
                return [done]
        if self._by_one is not None:
            for stream in self._streams[1:]:
                stream.wait(self._by_one)
            self._by_one = None
        return [
            stream.submit(partial(tasks.run, index), label=_label(self._labels[index], tasks.rounds))
            for index, stream in enumerate(self._streams)
        ]

    def _enqueue_one(self, tasks: JointRounds) -> list[Event]:
        stream, label, done = self._streams[0], _label("step of all replicas", tasks.rounds), None
        if tasks.threads is Threads.CALLER:
            for event in self._last:
                if not event.done():  # after a change of way, or a restart
                    with suppress(Exception):  # the stream has it too
                        event.synchronize()
            done = stream.run_here(tasks.run_all, label=label)
        if done is None:
            for event in self._last[1:]:
                if event is not self._by_one:
                    stream.wait(event)
            done = stream.submit(tasks.run_all, label=label)
        self._by_one = done
        return [done] * len(self._streams)

    def ended(self, tasks: JointRounds) -> None:
        """Takes note of the end of a launch: for the choice of threads, and its inputs may go."""
        tasks.let_go()
        if self._choice.tries:
            self._choice.ended(len(tasks.rounds), tasks.threads, max(tasks.times_s))

    def enqueued(self, index: int, event: Event) -> None:
        """Takes note of other work on a replica's stream, that the tasks come after."""
        self._last = [*self._last] or [event] * len(self._streams)
        self._last[index] = event

    @property
    def settled(self) -> bool:
        """Whether it is known which threads do launches like the last one."""
        return self._choice.settled

    @property
    def last(self) -> Sequence[Event]:
        """What was last enqueued for the replicas."""
        return self._last

    @property
    def stopped(self) -> bool:
        """Whether a launch has ended, or is to end, before its last step: some status may be set."""
        return self._steps.stopped

    def fetched(self, index: int, tasks: JointRounds) -> list[Array]:
        """What a replica's tasks of a launch have fetched, as far as they were done: [tasks, ...] each."""
        return self._steps.fetched(index, tasks.rounds.start, tasks.done(index))

    def reset(self) -> None:
        """Before and after a run, when nothing is in flight."""
        self._last, self._by_one = [], None
        self._choice.pause()
        self._steps.reset()


def _label(name: str, rounds: range) -> str:
    """What a trace calls tasks: it says of which rounds they are."""
    if CURRENT.tracer is None:
        return name
    if len(rounds) == 1:
        return f"{name}, round {rounds.start}"
    return f"{name}, rounds {rounds.start} to {rounds.stop - 1}"


def joint_tasks(
    replicas: Sequence[Replica],
    central: Sequence[CentralModel],
    options: Synchronisation,
) -> JointTasks | None:
    """Joint tasks of replicas that are all on one device; None where these cannot be."""
    count = len(replicas)
    if len({replica.device.name for replica in replicas}) > 1 or options.first_come or options.staleness:
        return None
    if options.aggregates(count):
        return None
    averaging, tau = None, 0
    if options.averages(count):
        tau = options.tau
        bases = [central[0].bases.get(region, 0) for region in Region]
        averaging = JointAveraging(averaging_segment(0), bases, bool(options.mu))
    backend = backend_for(replicas[0].device)
    steps = backend.join([replica.binding.plan for replica in replicas], averaging)
    if steps is None:
        return None
    return JointTasks(replicas, steps, tau)
