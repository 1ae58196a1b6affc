"""Tuning the number of replicas during training: Crossbow's auto-tuner (VLDB 2019, section 4)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scheduler.averaging.synchronisation import CAPTURED, FUSED
from scheduler.batches.positions import RoundPositions
from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.replica_tuner import Decision, Measure
from scheduler.engine.results import RoundResults
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.measures.tuning_result import TuningResult, mode_text
from scheduler.training.tuning.throughput_tuning import TuningOptions, limit_before_memory, modes_of
from scheduler.training.tuning.throughput_windows import ThroughputWindows
from tensorbow.data import BatchOrder
from tensorbow.errors import DataLossError
from tensorbow.training import Checkpoint
from tensorbow.training.checkpoints import MAXIMUM_ROUND

_LEAST_ROUNDS = 4  # per epoch, at the greatest count: with fewer, epochs would drop many batches
_LONGEST_SHARE = 0.5  # fraction of a run after which tuning ends with the best count so far


@dataclass
class TuningState:
    """State of the tuning that a checkpoint stores.

    counts: (first round, replicas per device from it on). windows: images per second, by replicas per device.
    decision: None before the decision. earlier: (batch size, counts) of the tunings before this one.
    seconds_before: seconds of training before this tuning. On GPUs: modes: (first round, mode from it on) of
    each change. captured: the decision on captured replicas, once fused ones are measured. fused_windows: as
    windows, which are then of captured replicas.
    """

    counts: list[tuple[int, int]]
    windows: dict[int, list[float]]
    decision: Decision | None
    earlier: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    seconds_before: float = 0.0
    modes: list[tuple[int, str]] = field(default_factory=list)
    captured: Decision | None = None
    fused_windows: dict[int, list[float]] = field(default_factory=dict)

    def reopened(self, round: int, seconds: float, batch_size: int) -> TuningState:
        """State of a new tuning that starts at a round with the current count. batch_size: the old one."""
        counts = [(round, self.counts[-1][1])]
        modes = [*self.modes, (round, CAPTURED)] if self.modes else []
        earlier = [*self.earlier, (batch_size, self.counts)]
        return TuningState(counts, {}, None, earlier, seconds, modes)

    def to_metadata(self) -> dict[str, Any]:
        """The state as JSON values."""
        decisions = {"decision": self.decision, "captured": self.captured}
        return {
            **vars(self),
            "windows": list(self.windows.items()),
            "fused_windows": list(self.fused_windows.items()),
            **{name: None if made is None else asdict(made) for name, made in decisions.items()},
        }

    @classmethod
    def from_metadata(cls, metadata: Any) -> TuningState:
        """Reads the state from a checkpoint's metadata. Raises DataLossError for invalid values."""
        try:
            round, metadata = metadata["round"], metadata["tuning"]
            counts = _counts(metadata["counts"])
            earlier = [(_count(size), _counts(former)) for size, former in metadata.get("earlier", [])]
            windows, fused = _windows(metadata["windows"]), _windows(metadata.get("fused_windows", []))
            decision = _decision(metadata["decision"], windows, fused)
            captured = _decision(metadata.get("captured"), windows, {})
            modes = [(_count(since), mode) for since, mode in metadata.get("modes", [])]
            seconds = metadata.get("seconds_before", 0.0)
            state = cls(counts, windows, decision, earlier, seconds, modes, captured, fused)
            if any(mode not in (CAPTURED, FUSED) for _, mode in modes):
                raise ValueError(f"modes are {CAPTURED} or {FUSED}")
            every = [*(change for _, former in earlier for change in former), *counts]
            rounds, sizes = [*(since for since, _ in every), _count(round)], [size for size, _ in earlier]
            if type(state.seconds_before) is not float or not 0 <= state.seconds_before < math.inf:
                raise ValueError(f"no seconds: {state.seconds_before!r:.40}")
            positive = all(count for _, count in every) and all(sizes) and 0 not in {*windows, *fused}
            if rounds[0] != 0 or rounds != sorted(rounds) or not positive:
                raise ValueError("rounds begin at 0 and do not fall, counts are positive")
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise DataLossError(f"it has no sound state of the auto-tuner: {str(error)[:80]}") from None
        return state


def _counts(values: Any) -> list[tuple[int, int]]:
    changes = [(_count(since), _count(count)) for since, count in values]
    if not changes:
        raise ValueError("there is a first count")
    return changes


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAXIMUM_ROUND:
        raise ValueError(f"no count: {value!r:.40}")
    return value


def _windows(values: Any) -> dict[int, list[float]]:
    return {_count(count): [_rate(rate) for rate in rates] for count, rates in values}


def _decision(values: Any, windows: dict[int, list[float]], fused: dict[int, list[float]]) -> Decision | None:
    if values is None:
        return None
    decision = Decision(**values)
    _count(decision.replicas), _rate(decision.images_per_second)
    measured = fused if decision.mode == FUSED else windows
    if decision.replicas not in measured or type(decision.reason) is not str:
        raise ValueError("a decision is for a count that was measured, and has a reason")
    return decision


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError(f"no rate: {value!r:.40}")
    return float(value)


class OnlineTuning:
    """Chooses the number of replicas per device of a run, from the throughput of the run's own rounds.

    It starts with one. `current` is the count that the run trains with, `wanted` the one it should change to.
    On GPUs it starts with captured replicas, and goes on with fused ones from the count that was chosen;
    `mode` and `wanted_mode` are None elsewhere. The trainer passes every result to `on_results`, makes the
    change between two rounds, and calls `changed`. After the decision count and mode stay. If half of the run
    is over before the tuner is sure, it decides from the windows so far. A new batch size starts a new tuning
    with the current count. Not reproducible: the counts and the rounds of their changes depend on timing. The
    changes are recorded.
    """

    def __init__(
        self,
        config: TrainingConfig,
        batches: int,
        say: Callable[[str], None],
        save: Callable[[Mapping[str, Any]], None],
        share_done: Callable[[int, float, int], float],
        state: TuningState | None = None,
        workers: int = 1,
        unit: str = "examples",
    ):
        """batches: batches per epoch. say: prints a line. save: writes `facts()`. workers: of the job, each
        with the config's devices.

        share_done: (round, seconds trained before it, later round) -> fraction of the run from the first
        round to its end that is over at the later one. state: from the checkpoint, if the run is resumed.
        unit: name of what throughput counts. Raises InvalidArgumentError for too little data.
        """
        self._config, self._say, self._save, self._share_done = config, say, save, share_done
        self._unit = unit
        self._options, self._devices = TuningOptions(), workers * len(config.devices)
        most = self._options.max_replicas
        most, why = limit_before_memory(config, batches, most, _LEAST_ROUNDS, workers)
        state = state or TuningState([(0, 1)], {}, None)
        self.counts, self.earlier, self._seconds_before = state.counts, state.earlier, state.seconds_before
        self.current = self.counts[-1][1]
        most, modes = max(most, self.current, *state.windows, *state.fused_windows), modes_of(config)
        self.tuner = ModeTuner(
            modes,
            most,
            self._options.threshold,
            self._options.windows,
            why_no_more=why,
            start=self.counts[0][1],
            goes_on=True,
            unit=unit,
        )
        self._replay(state)
        self.modes = state.modes
        former = self.modes[-1][1] if self.modes else CAPTURED
        self.mode = former if former in modes else modes[0]
        self.decision = self._decision_of(state)
        self.wanted, self.wanted_mode = self.current, self.mode
        self._windows = self._new_windows()
        step = self.decision or self.tuner.next_step()
        if self.decision is not None or (isinstance(step, Measure) and self.tuner.measurements):
            self.wanted, self.wanted_mode = step.replicas, step.mode

    def _replay(self, state: TuningState) -> None:
        """Tells the tuner the windows of a checkpoint."""
        for mode in self.tuner.modes:
            for count, rates in (state.fused_windows if mode == FUSED else state.windows).items():
                for rate in rates:
                    self.tuner.record(count, rate)
            if state.captured is None:
                return
            if self.tuner.has_more:
                self.tuner.decide(state.captured)

    def _decision_of(self, state: TuningState) -> Decision | None:
        """The decision of a checkpoint, if it is sure, and for a mode that this run may have."""
        decision, modes = state.decision, self.tuner.modes
        if decision is None or not decision.complete:
            return None
        if decision.mode is None and CAPTURED in modes:  # from a version without modes
            decision = replace(decision, mode=CAPTURED)
        return decision if decision.mode in modes else None

    def _new_windows(self) -> ThroughputWindows:
        config, replicas = self._config, self.current * self._devices
        return ThroughputWindows(replicas, config.batch_size, config.tau, self._options.window_seconds)

    @property
    def replica_counts(self) -> list[tuple[int, int]]:
        """(first round, replicas on all devices from it on), for all changes so far."""
        return [(round, count * self._devices) for round, count in self.counts]

    def checkpoint(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON values; before the decision, also saves the facts."""
        if self.decision is None:
            self.save()
        tuner = self.tuner
        fused, windows = (
            {m.replicas: list(m.windows) for m in tuner.measurements if (m.mode == FUSED) is of_fused}
            for of_fused in (True, False)
        )
        captured = tuner.decisions[0] if tuner.decisions and len(tuner.modes) > 1 else None
        before = self.earlier, self._seconds_before
        return TuningState(
            self.counts, windows, self.decision, *before, self.modes, captured, fused
        ).to_metadata()

    def earlier_positions(self, examples: int) -> tuple[RoundPositions, int] | None:
        """Positions of the rounds with earlier batch sizes, and the first round with this one; or None."""
        devices, before = self._devices, None
        starts = [counts[0][0] for counts in (*(counts for _, counts in self.earlier), self.counts)]
        for (size, counts), ended in zip(self.earlier, starts[1:], strict=True):
            (_, first), *changes = [(round, count * devices) for round, count in counts]
            order = BatchOrder(examples, size, self._config.seed)
            before = RoundPositions(order, first, changes, before), ended
        return before

    def say_where(self, round: int, positions: RoundPositions) -> None:
        """Prints a line if the batch size is new in this round."""
        if self.earlier and self.counts == [(round, self.current)] and not self.tuner.measurements:
            (epoch, number), size = positions.at(round), self._config.batch_size
            self._say(
                f"batch size {self.earlier[-1][0]} before, {size} from now on: tuning begins anew with "
                f"{_per_device(self.current)}, at example {number * size:,} of epoch {epoch + 1}"
            )

    # Events -------------------------------------------------------------------------------------

    def limit(self, fit: int, why: str) -> None:
        """Lowers the greatest count to try to `fit`; why: the reason."""
        if fit < self.tuner.current.most:
            self.tuner.current.limit(fit, why)

    def leave_out_fused(self, why: str) -> None:
        """Measures no fused replicas, before any are; why: the reason."""
        if self.tuner.has_more:
            self.tuner.leave_out(why)

    def follow(self, wanted: int, mode: str | None) -> None:
        """Wants what worker 0, which measures, does."""
        self.wanted, self.wanted_mode = wanted, mode

    @property
    def wants_change(self) -> bool:
        """True if the run should go on with another count or mode."""
        return (self.wanted, self.wanted_mode) != (self.current, self.mode)

    def begin_run(self, steps_per_launch: int, settled: Callable[[], bool]) -> None:
        """Called before each run of the engine; see ThroughputWindows.begin."""
        self._windows.begin(steps_per_launch, settled)

    def on_results(self, results: RoundResults) -> bool:
        """Adds results, in the order of rounds; returns whether another count or mode is wanted."""
        if self.decision is None and not self.wants_change:
            rate = self._windows.add(results)
            if rate is not None:
                known = self.tuner.record(self.current, rate)
                if not self.end_in_time(results.rounds[-1]):
                    self._decide()
                if self.wants_change and self.decision is None:
                    other = "" if self.wanted_mode == self.mode else mode_text(self.wanted_mode)
                    here = _per_device(self.current, self.mode)
                    rate = f"{known.images_per_second:,.0f} {self._unit}/s"
                    self._say(f"{here}: {rate}; trying {self.wanted}{other}")
        return self.wants_change

    def end_in_time(self, round: int) -> bool:
        """Decides for the best count so far if half of the run is over; returns whether it has decided.

        After a quarter of the run fused replicas have their turn.
        """
        if self.decision is None and self.tuner.measurements:
            share = self._share_done(self.counts[0][0], self._seconds_before, round)
            if share >= _LONGEST_SHARE:
                self.tuner.end("half of the run was over before this was sure: it takes a longer one")
                self._decide()
            elif self.tuner.has_more and share >= _LONGEST_SHARE / 2:
                self.tuner.end_mode("a quarter of the run was over")
                self._decide()
        return self.decision is not None

    def changed(self, round: int) -> None:
        """Records that the run trains with the wanted count from this round on."""
        self.current = self.wanted
        self.counts = [*self.counts, (round, self.current)]
        self._begin_anew()

    def changed_mode(self, round: int) -> None:
        """Records that the run trains with the wanted mode from this round on."""
        self.mode = self.wanted_mode
        if self.mode is not None:
            self.modes = [*self.modes, (round, self.mode)]
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._windows = self._new_windows()
        self.save()

    def refused(self, reason: str) -> None:
        """Continues without the wanted count, for which memory did not suffice."""
        refused, here = self.wanted, (self.current, self.mode)
        self._say(f"{_per_device(refused, self.mode)} have no room: {reason}")
        if self.decision is not None or refused in {
            known.replicas for known in self.tuner.current.measurements
        }:
            known = next(known for known in self.tuner.measurements if (known.replicas, known.mode) == here)
            why = f"there is no room any more for {refused}"
            self._settle(Decision(self.current, known.images_per_second, why, complete=False, mode=self.mode))
        else:
            self.tuner.current.limit(refused - 1, f"{refused} did not fit into memory beside all else")
            self._decide()

    def not_fused(self, reason: str) -> None:
        """Continues without fused replicas, which cannot be had."""
        self._say(f"replicas are not fused: {reason}")
        self.tuner.leave_out(reason)
        self.wanted_mode = self.mode
        self._decide()

    def _decide(self) -> None:
        step = self.tuner.next_step()
        if isinstance(step, Decision):
            self._settle(step)
        else:
            self.wanted, self.wanted_mode = step.replicas, step.mode

    def _settle(self, decision: Decision) -> None:
        self.decision, self.wanted, self.wanted_mode = decision, decision.replicas, decision.mode
        self._say(f"{_per_device(decision.replicas, decision.mode)} from now on: {decision.reason}")
        result = self.result(0.0, interrupted=False)
        for doubt in () if result is None else result.doubts:
            self._say(f"warning: {doubt}")
        self.save()

    def save(self) -> None:
        """Writes `facts()`."""
        self._save(self.facts())

    # Results ------------------------------------------------------------------------------------

    def result(self, seconds: float, interrupted: bool) -> TuningResult | None:
        """Result so far, after `seconds` of training; None before the first window has ended."""
        measurements = self.tuner.measurements
        if not measurements:
            return None
        decision = self.decision
        if decision is None:
            so_far = copy.deepcopy(self.tuner)
            so_far.end("training ended before this was sure: it takes a longer run")
            choice = so_far.next_step()
            assert isinstance(choice, Decision)
            decision = choice
        most, why = self.tuner.current.most, self.tuner.current.why_no_more
        left_out = self.tuner.left_out
        return TuningResult(decision, measurements, most, why, seconds, interrupted, left_out, self._unit)

    def facts(self) -> dict[str, Any]:
        """Decision, measurements and changes so far, as JSON values."""
        result = self.result(0.0, interrupted=False)
        return {
            "decided": self.decision is not None,
            **({} if result is None else result.to_dict()),
            "batch_size": self._config.batch_size,
            "threshold": self.tuner.threshold,
            "changes": _as_facts(self.counts),
            **({"mode_changes": _as_facts(self.modes, "replica_mode")} if self.modes else {}),
            "earlier": [{"batch_size": size, "changes": _as_facts(former)} for size, former in self.earlier],
        }


def tuning_of(
    config: TrainingConfig,
    batches: int,
    checkpoint: Checkpoint | None,
    say: Callable[[str], None],
    save: Callable[[Mapping[str, Any]], None],
    share_done: Callable[[int, float, int], float],
    workers: int = 1,
    unit: str = "examples",
) -> OnlineTuning | None:
    """Creates the tuning of a run; None if the number of replicas is given. See OnlineTuning.

    checkpoint: of a resumed run, and of as many workers. Raises DataLossError if its tuning state is missing
    or invalid.
    """
    if not config.tunes:
        return None
    state = None
    if checkpoint is not None:
        try:
            state = TuningState.from_metadata(checkpoint.metadata)
        except DataLossError as error:
            raise DataLossError(f"{checkpoint.path}: {error}") from None
        before = checkpoint.metadata["config"]["batch_size"]
        if before != config.batch_size:
            past = checkpoint.metadata["round"], checkpoint.metadata["seconds"]
            state = state.reopened(*past, before)
    return OnlineTuning(config, batches, say, save, share_done, state, workers, unit)


def _as_facts(changes: Sequence[tuple[int, Any]], what: str = "replicas_per_device") -> list[dict[str, Any]]:
    return [{"round": round, what: value} for round, value in changes]


def _per_device(count: int, mode: str | None = None) -> str:
    return f"{count}{mode_text(mode)} replica{'' if count == 1 else 's'} per device"
