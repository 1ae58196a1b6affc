"""The number of replicas found while they train: Crossbow's auto-tuner at work (VLDB 2019, section 4)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from scheduler.config import TrainingConfig
from scheduler.task_result import TaskResult
from scheduler.throughput import TuningOptions, limit_before_memory
from scheduler.tuner import Decision, Measure, Measurement, ReplicaTuner
from scheduler.tuning_result import TuningResult
from scheduler.windows import ThroughputWindows
from tensorbow.errors import DataLossError
from tensorbow.training import Checkpoint
from tensorbow.training.checkpoints import MAXIMUM_ROUND

_LEAST_ROUNDS = 4  # of an epoch with the most replicas, since nothing is timed while z is evaluated


@dataclass
class TuningState:
    """What a checkpoint remembers of the tuning.

    counts: (round, replicas per device), from which on there are so many. windows: images per second, by
    replicas per device. decision: None while there is none.
    """

    counts: list[tuple[int, int]]
    windows: dict[int, list[float]]
    decision: Decision | None

    def to_metadata(self) -> dict[str, Any]:
        """As JSON."""
        decision = None if self.decision is None else asdict(self.decision)
        return {**vars(self), "windows": list(self.windows.items()), "decision": decision}

    @classmethod
    def from_metadata(cls, metadata: Any) -> TuningState:
        """The state in the metadata of a checkpoint. Raises DataLossError for what cannot be one."""
        try:
            round, metadata = metadata["round"], metadata["tuning"]
            counts = [(_count(since), _count(count)) for since, count in metadata["counts"]]
            windows = {_count(count): [_rate(rate) for rate in rates] for count, rates in metadata["windows"]}
            decision, values = None, metadata["decision"]
            if values is not None:
                decision = Decision(**values)
                _count(decision.replicas), _rate(decision.images_per_second)
                if decision.replicas not in windows or type(decision.reason) is not str:
                    raise ValueError("a decision is for a count that was measured, and has a reason")
            state = cls(counts, windows, decision)
            rounds = [*(since for since, _ in counts), _count(round)]
            if rounds[0] != 0 or rounds != sorted(rounds) or 0 in windows or not all(c for _, c in counts):
                raise ValueError("rounds begin at 0 and do not fall, counts are positive")
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise DataLossError(f"it has no sound state of the auto-tuner: {str(error)[:80]}") from None
        return state


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAXIMUM_ROUND:
        raise ValueError(f"no count: {value!r:.40}")
    return value


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise ValueError(f"no rate: {value!r:.40}")
    return float(value)


class OnlineTuning:
    """Says how many replicas per device a run should go on with, by windows of its own rounds.

    It begins with one. `current` is what the run trains with, `wanted` what it should; whoever trains brings
    every result, makes the change between two rounds, and says so. Once decided, it changes nothing more:
    another batch size begins another tuning. Timing decides when counts change, and which is chosen, so that
    two runs do not give the same bits; the rounds of all changes are kept, and with them a run could be
    repeated.
    """

    def __init__(
        self,
        config: TrainingConfig,
        batches: int,
        say: Callable[[str], None],
        save: Callable[[Mapping[str, Any]], None],
        state: TuningState | None = None,
    ):
        """batches: of an epoch. say: takes lines for people; save: takes all that is known, as JSON.

        state: of the checkpoint that the run goes on from. Raises InvalidArgumentError for too little data.
        """
        self._config, self._say, self._save = config, say, save
        self._options = TuningOptions()
        most, why = limit_before_memory(config, batches, self._options.max_replicas, _LEAST_ROUNDS)
        state = state or TuningState([(0, 1)], {}, None)
        self.counts = state.counts
        self.current = self.counts[-1][1]
        most = max(most, self.current, *state.windows)
        self.tuner = ReplicaTuner(most, self._options.threshold, self._options.windows, why_no_more=why)
        for count, rates in state.windows.items():
            for rate in rates:
                self.tuner.record(count, rate)
        self.decision = state.decision
        self.wanted = self.current
        self._windows = self._new_windows()
        if self.decision is not None:
            self.wanted = self.decision.replicas
        elif isinstance(step := self.tuner.next_step(), Measure):
            self.wanted = step.replicas if state.windows else self.current

    def _new_windows(self) -> ThroughputWindows:
        config, replicas = self._config, self.current * len(self._config.devices)
        return ThroughputWindows(replicas, config.batch_size, config.tau, self._options.window_seconds)

    @property
    def replica_counts(self) -> list[tuple[int, int]]:
        """(round, replicas on all devices), from which on there are or were so many."""
        devices = len(self._config.devices)
        return [(round, count * devices) for round, count in self.counts]

    def checkpoint(self) -> dict[str, Any]:
        """What a checkpoint is to remember, as JSON; while nothing is decided, what is known is saved."""
        if self.decision is None:
            self.save()
        windows = {m.replicas: list(m.windows) for m in self.tuner.measurements}
        return TuningState(self.counts, windows, self.decision).to_metadata()

    # Told ---------------------------------------------------------------------------------------

    def limit(self, fit: int, why: str) -> None:
        """No more than so many fit; why: what sets that."""
        if fit < self.tuner.most:
            self.tuner.limit(fit, why)

    def on_result(self, result: TaskResult) -> bool:
        """Takes a result, in the order of rounds and batches; whether another count is wanted by now."""
        if self.decision is None and self.wanted == self.current:
            rate = self._windows.add(result)
            if rate is not None:
                known = self.tuner.record(self.current, rate)
                self._decide()
                if self.wanted != self.current and self.decision is None:
                    self._say(f"{_per_device(self.current)}: {_rate_text(known)}; trying {self.wanted}")
        return self.wanted != self.current

    def pause(self) -> None:
        """The run stands still for a while, which is not to be timed."""
        self._windows.pause()

    def changed(self, round: int) -> None:
        """The count wanted is the current one, from this round on."""
        self.current = self.wanted
        self.counts = [*self.counts, (round, self.current)]
        self._windows = self._new_windows()
        self.save()

    def refused(self, reason: str) -> None:
        """There is no room for the count wanted, though there seemed to be: decides without it."""
        refused = self.wanted
        self._say(f"{_per_device(refused)} have no room: {reason}")
        if any(known.replicas == refused for known in self.tuner.measurements):
            here = next(known for known in self.tuner.measurements if known.replicas == self.current)
            why = f"there is no room any more for {refused}"
            self._settle(Decision(self.current, here.images_per_second, why, complete=False))
        else:
            self.tuner.limit(refused - 1, f"{refused} did not fit into memory beside all else")
            self._decide()

    def _decide(self) -> None:
        step = self.tuner.next_step()
        if isinstance(step, Decision):
            self._settle(step)
        else:
            self.wanted = step.replicas

    def _settle(self, decision: Decision) -> None:
        self.decision, self.wanted = decision, decision.replicas
        self._say(f"{_per_device(decision.replicas)} from now on: {decision.reason}")
        self.save()

    def save(self) -> None:
        """Writes down all that is known."""
        self._save(self.facts())

    # Known --------------------------------------------------------------------------------------

    def result(self, seconds: float, interrupted: bool) -> TuningResult | None:
        """What is known and chosen by now, seconds of training on; None before the first window has ended."""
        measurements = self.tuner.measurements
        if not measurements:
            return None
        decision = self.decision
        if decision is None:
            so_far = copy.deepcopy(self.tuner)
            so_far.end("training ended before this was sure")
            choice = so_far.next_step()
            assert isinstance(choice, Decision)
            decision = choice
        why = self.tuner.why_no_more
        return TuningResult(decision, measurements, self.tuner.most, why, seconds, interrupted)

    def facts(self) -> dict[str, Any]:
        """All of it as JSON: the decision and its evidence, and the changes so far."""
        result = self.result(0.0, interrupted=False)
        return {
            "decided": self.decision is not None,
            **({} if result is None else result.to_dict()),
            "batch_size": self._config.batch_size,
            "threshold": self.tuner.threshold,
            "changes": [{"round": round, "replicas_per_device": count} for round, count in self.counts],
        }


def tuning_of(
    config: TrainingConfig,
    batches: int,
    checkpoint: Checkpoint | None,
    say: Callable[[str], None],
    save: Callable[[Mapping[str, Any]], None],
) -> OnlineTuning | None:
    """The tuning of a run, or None where the number of replicas is given; see OnlineTuning.

    checkpoint: that the run goes on from. Raises DataLossError for one without a sound state of the tuning.
    """
    if not config.tunes:
        return None
    state = None
    if checkpoint is not None:
        try:
            state = TuningState.from_metadata(checkpoint.metadata)
        except DataLossError as error:
            raise DataLossError(f"{checkpoint.path}: {error}") from None
    return OnlineTuning(config, batches, say, save, state)


def _per_device(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'} per device"


def _rate_text(known: Measurement) -> str:
    return f"{known.images_per_second:,.0f} images/s"
