"""The number of rounds of a launch, from the time that rounds take on a made-up clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.engine.steps_choice import PIECE, PIECES
from scheduler.training.tuning.launch_pace import LaunchPace
from tests.scheduler_rig.ticking_clock import TickingClock

MOST, CHOICE_S = 64, 1e-6


class TimedEngine:
    """Stands in for an engine whose rounds take known times, and no time apart from them."""

    most_steps_per_launch = MOST

    def __init__(self, clock: TickingClock, *round_seconds: float) -> None:
        """round_seconds: of a round of the first run, the second and so on; the last holds for all others."""
        self.clock, self.round_seconds = clock, round_seconds
        self.learners, self.options = SimpleNamespace(count=2), SimpleNamespace(fused=False)
        self.steps_per_launch = 1
        self.runs: list[tuple[int, int]] = []

    def set_steps_per_launch(self, steps: int) -> None:
        assert 1 <= steps <= self.most_steps_per_launch
        self.steps_per_launch = steps

    def run(self, open_source: Any, start: int, stop: int, on_results: Any) -> int:
        seconds = self.round_seconds[min(len(self.runs), len(self.round_seconds) - 1)]
        self.runs.append((start, stop))
        self.clock.now_s += seconds * (stop - start)
        return stop


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TickingClock:
    clock = TickingClock(CHOICE_S)
    monkeypatch.setattr("scheduler.training.tuning.launch_pace.perf_counter", clock.perf_counter)
    return clock


def steps_for(clock: TickingClock, *round_seconds: float) -> int:
    """The number found for such rounds, which the engine and its batches have."""
    engine: Any = TimedEngine(clock, *round_seconds)
    batches: Any = SimpleNamespace(open=None, steps_per_launch=1)
    pace = LaunchPace(engine, batches, chooses=True)
    assert pace.run(0, PIECE * PIECES + 1, lambda results: None) == PIECE * PIECES + 1
    assert len(engine.runs) == PIECES + 1
    assert batches.steps_per_launch == engine.steps_per_launch
    return int(engine.steps_per_launch)


@pytest.mark.parametrize("round_ms", [0.32, 0.5, 1, 2.4, 5, 7, 9, 13, 14, 19, 25])
def test_a_launch_takes_some_20_ms(clock: TickingClock, round_ms: float) -> None:
    assert 10 <= steps_for(clock, round_ms / 1e3) * round_ms <= 30


@pytest.mark.parametrize(("round_ms", "steps"), [(0.001, MOST), (0.2, MOST), (45, 1), (3000, 1)])
def test_between_one_round_and_the_most(clock: TickingClock, round_ms: float, steps: int) -> None:
    assert steps_for(clock, round_ms / 1e3) == steps


def test_the_first_measurement_does_not_count_and_of_others_the_fastest(clock: TickingClock) -> None:
    assert steps_for(clock, 1e-4, 0.09, 0.002, 0.05) == 10
