"""Pool of places, each of which trains one member after another, an epoch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from scheduler.averaging.synchronisation import FREEZE, Synchronisation
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.replicas.learners import Learners
from scheduler.replicas.step_program import StepProgram
from scheduler.sweeps.member_batches import MemberBatches
from scheduler.sweeps.members import Member, bound_options
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.schedule_choice import build_schedule
from scheduler.training.models.classifier_step import build_step
from scheduler.training.models.given_weights import given_weights, weights_key
from tensorbow.data import TrainingData
from tensorbow.devices import get_device
from tensorbow.errors import ResourceExhaustedError
from tensorbow.optimizers import Constant, Schedule
from tensorbow.specs import Array

LOSS = "loss"
LAUNCH_S = 1.0  # seconds of a launch, after which a request to stop is heard
KEPT_SEEDS = 32  # whose initial values are kept for further members
TIMED_ROUNDS = 3  # the first ones prepare what later ones use
Values = dict[str, Array]
OwnState = dict[str, list[list[Any]]]


class EpochResult(NamedTuple):
    """Means of a member's losses and metrics over the steps of an epoch, by name."""

    figures: dict[str, float]
    member: Member
    diverged: bool


@dataclass
class Place:
    """A member in its place, and the sums of loss and metrics in its current epoch, by name.

    diverged_at: the step whose loss or gradient was not finite, or None.
    """

    member: Member
    schedule: Schedule
    sums: dict[str, float] = field(default_factory=dict)
    diverged_at: int | None = None


def draws_in_steps(program: StepProgram) -> bool:
    """True if the training step itself draws random numbers, whose seeds are part of it."""
    return any(definition.random for definition in program.definitions)


class MemberPool:
    """Replicas of one compiled step that train independent members, each with the bits of its run alone.

    Members come and go between epochs; places without one do nothing.
    """

    def __init__(
        self, config: TrainingConfig, dataset: TrainingData, places: int, say: Callable[[str], None]
    ):
        """config: of any of the members. places: at most so many, and fewer where memory does not suffice.

        Raises ResourceExhaustedError if there is no memory for one replica on each device.
        """
        self._config, self._dataset = config, dataset
        self._engine = self._made(places, say)
        try:
            self._begin(say)
        except BaseException:
            self.close()
            raise

    def _begin(self, say: Callable[[str], None]) -> None:
        config, learners = self._config, self._learners
        self.places: list[Place | None] = [None] * learners.count
        self._shifts = [0] * learners.count  # by place, the rounds of its member less the engine's
        self._round = self.offset = 0  # of the engine, and of all members in their epochs
        self._batches = MemberBatches(
            self._dataset, config.batch_size, learners.count, config.launch_ahead + 1
        )
        order = self._batches.order(config.seed)
        self.rounds_per_epoch = order.rounds_per_epoch
        if notice := order.keep_on_devices(learners, config.data_on_device):
            say(notice)
        self._batches.steps_per_launch = self._engine.steps_per_launch
        self._chooses = self._config.steps_per_launch is None and self._engine.most_steps_per_launch > 1
        self._timed = not self._chooses
        self._slot_names = {op.name for op in learners.layout.variables if op.attrs["role"] == "slots"}
        self._counters = [f"counter:{name}" for name in learners.executable.counters]
        self._initial: dict[Any, Values] = {}  # by seed and given weights
        self._engine.initialize(self._initial_values(config))  # also places that stay empty need values

    def _made(self, places: int, say: Callable[[str], None]) -> LearningEngine:
        config, devices = self._config, [get_device(name) for name in self._config.devices]
        program, specs = build_step(config, self._dataset, 1.0, bound_options(config))
        self._names = [LOSS, *program.metrics]
        while True:
            counts = [places // len(devices) + (i < places % len(devices)) for i in range(len(devices))]
            on = [device for device, count in zip(devices, counts, strict=True) if count]
            try:
                return LearningEngine(
                    program,
                    specs,
                    on,
                    [count for count in counts if count],
                    Synchronisation("none", replica_mode=config.replica_mode),
                    launch_ahead=config.launch_ahead,
                    steps_per_launch=config.steps_per_launch,
                    on_nan=FREEZE,
                    seeds=[0] * places,  # the stream of a replica alone
                )
            except ResourceExhaustedError:
                if places == 1:
                    raise
                places = -(-places // 2)
                say(f"memory does not suffice for all places; trying {places}")

    @property
    def _learners(self) -> Learners:
        assert isinstance(self._engine.learners, Learners)
        return self._engine.learners

    @property
    def members(self) -> list[Member]:
        """The members in the places."""
        return [place.member for place in self.places if place is not None]

    @property
    def free(self) -> int:
        """Number of places without a member."""
        return self.places.count(None)

    @property
    def steps_per_launch(self) -> int:
        """Steps of each member in a launch."""
        return self._engine.steps_per_launch

    # Members come and go --------------------------------------------------------------------------

    def add(self, member: Member, values: Mapping[str, Array] | None = None) -> Place:
        """Gives a member the first free place, between two epochs.

        values: of all its variables, of a checkpoint; by default the initial ones.
        """
        index = self.places.index(None)
        values = self._initial_values(member.config) if values is None else values
        self._learners.values.initialize_replica(index, values)
        positions = self._batches.order(member.seed).positions
        of_numbers = self._dataset.numbers is not None
        schedule = build_schedule(member.config, 1, positions, of_numbers)
        place = self.places[index] = Place(member, schedule)
        return place

    def remove(self, member: Member) -> None:
        """Frees the place of a member."""
        self.places[self._index(member)] = None

    def _index(self, member: Member) -> int:
        return next(i for i, place in enumerate(self.places) if place is not None and place.member is member)

    def _initial_values(self, config: TrainingConfig) -> Values:
        key = config.seed, weights_key(config)
        values = self._initial.get(key)
        if values is None:
            while len(self._initial) >= KEPT_SEEDS:
                del self._initial[next(iter(self._initial))]
            program, _ = build_step(config, self._dataset, 1.0)
            given = given_weights(config, program.graph)
            values = self._initial[key] = {
                **program.initial_values(),
                **({} if given is None else given.values),
            }
        return values

    def values(self, member: Member) -> Values:
        """Variables of a member's model, without the optimiser's."""
        values = self._engine.learners.values.replica_values(self._index(member))
        return {name: value for name, value in values.items() if name not in self._slot_names}

    def all_values(self, member: Member) -> Values:
        """All variables of a member, from which it can go on later."""
        return dict(self._engine.learners.values.replica_values(self._index(member)))

    def state(self) -> tuple[Values, dict[str, Any]]:
        """All variables of all members, by member's number and name, and what `load` needs beside them."""
        arrays: Values = {}
        places: dict[str, Any] = {}
        for index, place in enumerate(self.places):
            if place is not None:
                number = place.member.number
                for name, value in self._engine.learners.values.replica_values(index).items():
                    arrays[f"{number}/{name}"] = value
                places[str(number)] = [place.sums, place.diverged_at]
        return arrays, {"offset": self.offset, "places": places}

    def load(self, members: Sequence[Member], arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
        """Takes the members and values of `state`."""
        own: dict[int, Values] = {}
        for key, value in arrays.items():
            number, _, name = key.partition("/")
            own.setdefault(int(number), {})[name] = value
        for member in members:
            place = self.add(member, own[member.number])
            place.sums, place.diverged_at = state["places"][str(member.number)]
        self.offset = state["offset"]

    # Training -------------------------------------------------------------------------------------

    def train(self, until: int | None = None) -> bool:
        """Trains all members to the end of their epoch; False if a stop was requested before.

        until: the round of the epoch to end before, instead of the epoch's end.
        """
        self._place()
        start = self._round
        first = start - self.offset
        stop = first + (self.rounds_per_epoch if until is None else until)
        if not self._timed and start < stop:
            self._choose_steps(min(stop, start + TIMED_ROUNDS))
        if self._round < stop:
            self._run(stop)
        self.offset = self._round - first
        for index, place in enumerate(self.places):
            if place is not None:
                frozen = self._engine.frozen.get(index)
                if frozen is not None and place.diverged_at is None:
                    place.diverged_at = frozen + self._shifts[index]
                place.member.rounds = self._round + self._shifts[index]
        return self.offset == self.rounds_per_epoch

    def _choose_steps(self, stop: int) -> None:
        """Times the first rounds, one by one; from then on launches take about `LAUNCH_S`."""
        while self._round < stop:
            began = time.perf_counter()
            self._round = self._engine.run(self._batches.open, self._round, self._round + 1, self._sum)
            seconds = time.perf_counter() - began
        self._set_steps(seconds)
        self._timed = True

    def _run(self, stop: int) -> None:
        """Trains to a round; corrects the number of steps if launches took at most half or at least twice
        `LAUNCH_S`.

        Rounds of a long launch are shorter than single ones, since weights stay in the caches.
        """
        start, began = self._round, time.perf_counter()
        self._round = self._engine.run(self._batches.open, start, stop, self._sum)
        rounds, seconds = self._round - start, time.perf_counter() - began
        if self._chooses and rounds >= self._engine.steps_per_launch:
            now, best = self._engine.steps_per_launch, self._steps_for(seconds / rounds)
            if not now / 2 < best < 2 * now:
                self._set_steps(seconds / rounds)

    def _steps_for(self, round_s: float) -> int:
        """Steps of a launch of about `LAUNCH_S`, of which there is a whole number in an epoch."""
        most = min(self._engine.most_steps_per_launch, self.rounds_per_epoch, max(1, int(LAUNCH_S / round_s)))
        launches = -(-self.rounds_per_epoch // most)
        return -(-self.rounds_per_epoch // launches)

    def _set_steps(self, round_s: float) -> None:
        steps = self._steps_for(round_s)
        self._engine.set_steps_per_launch(steps)
        self._batches.steps_per_launch = steps

    def end_epoch(self) -> list[EpochResult]:
        """Ends an epoch: returns the means of each member, by number, and clears the sums."""
        self.offset, results = 0, []
        for place in self.places:
            if place is None:
                continue
            member, steps = place.member, self.rounds_per_epoch
            if place.diverged_at is not None:
                member.rounds, steps = place.diverged_at, place.diverged_at - member.epochs * steps
            figures = {name: total / max(1, steps) for name, total in place.sums.items()}
            diverged = place.diverged_at is not None
            results.append(EpochResult(figures, member, diverged))
            member.epochs += not diverged
            place.sums = {}
        return sorted(results, key=lambda result: result.member.number)

    def request_stop(self) -> None:
        """Ends `train` after the current launch; callable from a signal handler."""
        self._engine.request_stop()

    def _place(self) -> None:
        """Tells engine and batches which member is where, and how far it is."""
        someone = next(place for place in self.places if place is not None)
        occupied = [place or someone for place in self.places]
        self._shifts = [place.member.rounds - self._round for place in occupied]
        seeds = [place.member.seed for place in occupied]
        self._batches.place([*zip(seeds, self._shifts, strict=True)])
        for place, replica in zip(self.places, self._learners.replicas, strict=True):
            if place is not None:
                config = place.member.config
                numbers = {name: getattr(config, name) for name in bound_options(config)}
                replica.set_state({"learning_rate": place.schedule(place.member.rounds), **numbers})
        idle = [i for i, place in enumerate(self.places) if place is None or place.diverged_at is not None]
        self._engine.freeze(dict.fromkeys(idle, self._round))
        changing = any(not isinstance(place.schedule, Constant) for place in occupied)
        self._engine.outcomes.own_states = (
            partial(self._own_states, occupied, changing) if changing or self._counters else None
        )

    def _own_states(self, occupied: Sequence[Place], changing: bool, rounds: range) -> OwnState:
        """Step scalars that follow each member's own rounds."""
        own = [range(rounds.start + shift, rounds.stop + shift) for shift in self._shifts]
        state = {key: [[*row] for row in own] for key in self._counters}
        if changing:
            pairs = zip(occupied, own, strict=True)
            state["learning_rate"] = [[place.schedule(round) for round in row] for place, row in pairs]
        return state

    def _sum(self, results: RoundResults) -> None:
        """Adds losses and metrics in the order of rounds."""
        shape, frozen = (len(results.rounds), len(self.places)), self._engine.frozen
        every = results.losses, *results.metrics
        columns = [np.reshape(np.asarray(each, np.float64), shape) for each in every]
        for index, place in enumerate(self.places):
            if place is not None:
                done = max(0, frozen.get(index, results.rounds.stop) - results.rounds.start)
                for name, column in zip(self._names, columns, strict=True):
                    place.sums[name] = reduce(add, column[:done, index].tolist(), place.sums.get(name, 0.0))

    def close(self) -> None:
        """Closes the engine; idempotent."""
        self._engine.close()
