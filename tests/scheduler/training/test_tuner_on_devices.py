"""The tuner of a run on simulated devices, told what engines tell it: rounds, by the times at which they end.

A device has a drawn throughput curve; its rounds take as long as that says, and differ: by a drift of the
machine, from round to round, by spells in which something else runs, and in the first launches with another
number of replicas. Right is a choice within one replica of the smallest count whose true throughput is within
the threshold of the greatest; beside it stands how much of the greatest throughput the choice has.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

import scheduler.training.tuning.throughput_windows
from scheduler import RoundResults, TrainingConfig
from scheduler.training.tuning.auto import OnlineTuning
from scheduler.training.tuning.throughput_tuning import TuningOptions
from tests.scheduler.decisions.test_tuner_curves import SHAPES, curve

BATCH, LONGEST = 16, 100_000  # rounds, by which it has to have decided
THRESHOLD = TuningOptions().threshold


class SimulatedDevice:
    """Rounds of however many replicas, on a clock of its own."""

    def __init__(self, rng: random.Random, noise: float):
        shape = rng.choice(SHAPES)
        true = curve(rng, shape)[: TuningOptions().max_replicas]
        rounds_per_second = rng.uniform(20, 200) / max(value / count for count, value in enumerate(true, 1))
        self.true = [BATCH * value * rounds_per_second for value in true]  # images/s, by count
        self.steps = rng.choice([1, 1, 4])  # rounds of a launch
        self._rng, self._noise = rng, noise
        self.now, self._drift, self._busy = 0.0, 0.0, 0
        self._cold = 0  # launches until it goes at its speed

    def changed(self) -> None:
        """Another number of replicas: new memory, empty queues."""
        self._cold = 3

    def launch(self, round: int, replicas: int) -> RoundResults:
        """The next rounds; their tasks end by and by."""
        rng = self._rng
        self._drift = 0.98 * self._drift + rng.gauss(0, self._noise * 0.2)
        if not self._busy and rng.random() < 1e-3:
            self._busy = rng.randint(1, 20)
        seconds = self.steps * replicas * BATCH / self.true[replicas - 1]
        seconds *= max(0.05, 1 + self._drift + rng.gauss(0, 2 * self._noise))
        seconds *= (2 if self._busy else 1) * (3 if self._cold else 1)
        self._busy, self._cold = max(0, self._busy - 1), max(0, self._cold - 1)
        times_s = [self.now + seconds * rng.uniform(0.9, 1) for _ in range(replicas - 1)]
        self.now += seconds
        tasks = replicas * self.steps
        rounds = range(round, round + self.steps)
        return RoundResults(rounds, range(replicas), [0.0] * tasks, ([0] * tasks,), [*times_s, self.now])


def tuned(seed: str, noise: float, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[float], int]:
    """The count that is chosen, the true throughputs, and how many windows that took."""
    device = SimulatedDevice(random.Random(seed), noise)
    monkeypatch.setattr(
        scheduler.training.tuning.throughput_windows, "time", SimpleNamespace(perf_counter=lambda: device.now)
    )
    config = TrainingConfig(
        model="logreg", dataset="synthetic", batch_size=BATCH, replicas_per_device="auto", epochs=1000
    )
    tuning = OnlineTuning(config, 1 << 20, lambda line: None, lambda facts: None, lambda *rounds: 0.0)
    tuning.limit(len(device.true), "more are not drawn")
    round = 0
    tuning.begin_run(device.steps, lambda: True)
    while tuning.decision is None or tuning.wanted != tuning.current:
        results = device.launch(round, tuning.current)
        round = results.rounds.stop
        if tuning.on_results(results):
            tuning.changed(round)
            device.changed()
            tuning.begin_run(device.steps, lambda: True)
        assert round < LONGEST, seed
    return tuning.current, device.true, sum(len(m.windows) for m in tuning.tuner.measurements)


def shares(draws: range, noise: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Shares of choices within one replica of the best, and with nine tenths of the greatest throughput."""
    right = fast = 0
    for draw in draws:
        drawn = random.Random(f"noise {draw}").uniform(*noise)
        chosen, true, _ = tuned(f"device {draw}", drawn, monkeypatch)
        line = max(true) * (1 - THRESHOLD)
        best = next(count for count, value in enumerate(true, 1) if value >= line)
        right += abs(chosen - best) <= 1
        fast += true[chosen - 1] >= 0.9 * max(true)
    return right / len(draws), fast / len(draws)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draws", "noise"),
    [
        (range(40), (0.0, 0.05)),
        pytest.param(range(100), (0.0, 0.05), marks=pytest.mark.slow),
        pytest.param(range(100, 500), (0.0, 0.02), marks=pytest.mark.slow),
        pytest.param(range(500, 900), (0.02, 0.05), marks=pytest.mark.slow),
    ],
)
def test_in_95_of_100(draws: range, noise: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    right, fast = shares(draws, noise, monkeypatch)
    assert right >= 0.95
    assert fast >= 0.95
