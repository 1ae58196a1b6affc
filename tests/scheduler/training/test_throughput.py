"""Measured throughput: windows cut by completion times, limits, and what a run of the tuning tells."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

import scheduler.training.models.classifier_step
import scheduler.training.tuning.throughput_tuning
from scheduler import (
    Measurement,
    RoundResults,
    Synchronisation,
    ThroughputTuning,
    Trainer,
    TrainingConfig,
    TuningOptions,
)
from scheduler.engine.steps_choice import PIECE
from scheduler.training.models.classifier_step import build_engine
from scheduler.training.tuning.throughput_windows import ThroughputWindows
from tensorbow.data import load
from tensorbow.devices import CpuDevice
from tensorbow.errors import AbortedError, CancelledError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.optimizers import Constant
from tests.scheduler_rig.running import within
from tests.scheduler_rig.ticking_clock import TickingClock

KIB = 1024
QUICK = TuningOptions(max_replicas=2, threshold=0.9, windows=1, window_seconds=0.02)


@pytest.fixture
def small_data() -> None:
    """Keeps the full data set, whose size the limits depend on."""


def config(**options: Any) -> TrainingConfig:
    return TrainingConfig(model="logreg", dataset="synthetic", **options)


def rates(windows: ThroughputWindows, ends: list[tuple[float, ...]]) -> list[float | None]:
    """Throughput reported after each round, if any; ends: by round, the end of each replica's task."""
    return [
        windows.add(RoundResults(range(n, n + 1), range(len(times)), [0.0] * len(times), (), times))
        for n, times in enumerate(ends)
    ]


def begun(replicas: int, batch_size: int, tau: int, seconds: float, steps: int = 1) -> ThroughputWindows:
    windows = ThroughputWindows(replicas, batch_size, tau, seconds)
    windows.begin(steps, lambda: True, 0.0)
    return windows


def told_in(told: list[float | None]) -> list[int]:
    return [round for round, rate in enumerate(told) if rate is not None]


def test_a_window_begins_where_the_warming_up_ends() -> None:
    """One round a second, of 2 tasks of 8; the first rounds, slow, are discarded."""
    ends = [(9.0, 8.0), (18.0, 19.0), (29.0, 28.0), *((29.0 + n, 28.7 + n) for n in range(1, 10))]
    told = rates(begun(2, 8, 1, seconds=3.5), ends)
    assert told == [None] * 7 + [pytest.approx(16.0)] + [None] * 3 + [pytest.approx(16.0)]


def test_a_window_is_of_whole_periods_of_averaging() -> None:
    told = rates(begun(1, 10, 6, seconds=0.1), [(1.0 + n,) for n in range(20)])
    assert told_in(told) == [12, 18]
    for tau in (1 << 40, 7):  # in launches of 3 rounds one of 7 periods, or many
        windows = begun(1, 10, tau, seconds=0.1, steps=3)
        told = rates(windows, [(1.0 + n // 3,) for n in range(120)])
        assert len(told_in(told)) >= 2
        assert {rate for rate in told if rate is not None} == {30.0}


def test_a_window_is_of_whole_launches() -> None:
    """Launches of 5 rounds, and one of 2 at the end of each 12: all end after as many seconds."""
    ends = [
        (12.0 * run + (5.0, 10.0, 12.0)[launch],)
        for run in range(9)
        for launch in (0,) * 5 + (1,) * 5 + (2,) * 2
    ]
    told = rates(begun(1, 10, 1, seconds=11.0, steps=5), ends)
    assert set(told) == {None, 10.0}
    assert [round % 12 in (0, 5, 10) for round in told_in(told)] == [True] * len(told_in(told))
    assert len(told_in(told)) >= 4


def test_between_two_runs_the_clock_stands_still() -> None:
    """Runs of one launch of three rounds, of three seconds each, and long pauses."""
    windows = ThroughputWindows(1, 10, 1, seconds=4.0)
    told: list[float | None] = []
    for run in range(16):
        windows.begin(3, lambda: True, 100.0 * run)
        told += rates(windows, [(100.0 * run + 3.0,)] * 3)
    assert {rate for rate in told if rate is not None} == {10.0}
    assert len(told_in(told)) == 3


def test_other_steps_begin_anew_and_launches_have_to_settle() -> None:
    ready: list[int] = []
    windows = ThroughputWindows(1, 10, 1, seconds=4.0)
    windows.begin(1, lambda: True, 0.0)
    assert told_in(rates(windows, [(1.0 + n,) for n in range(8)])) == []
    windows.begin(2, lambda: bool(ready), 8.0)
    assert told_in(rates(windows, [(9.0 + n // 2,) for n in range(24)])) == []
    ready.append(1)
    assert told_in(rates(windows, [(21.0 + n // 2,) for n in range(24)])) != []
    never = ThroughputWindows(1, 10, 1, seconds=4.0)
    never.begin(1, lambda: False, 0.0)
    assert told_in(rates(never, [(1.0 + n,) for n in range(60)]))[0] == 36, (
        "8 windows of warming up are enough"
    )


@pytest.mark.slow
def test_it_measures_at_the_steps_of_a_launch_that_training_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that shows 4 ms a round: five make a launch."""
    pytest.importorskip("llvmlite")
    readings = itertools.count(0.0, 4e-3 * PIECE)
    monkeypatch.setattr("scheduler.training.tuning.launch_pace.perf_counter", lambda: next(readings))
    tuning = ThroughputTuning(config(), QUICK)
    tuning.run()
    assert tuning.steps_per_launch == {(1, False): 5, (2, False): 5}
    for replicas, _ in tuning.steps_per_launch:
        with Trainer(config(replicas_per_device=replicas, epochs=8)) as trainer:
            trainer.train()
            assert trainer.engine.steps_per_launch == 5


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, pytest.param(64, marks=pytest.mark.slow)])
def test_given_steps_of_a_launch_are_measured_and_it_ends(steps: int) -> None:
    pytest.importorskip("llvmlite")
    tuning = ThroughputTuning(config(steps_per_launch=steps), QUICK)
    assert within(tuning.run).decision.complete
    assert tuning.steps_per_launch == {}


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_it_measures_what_training_does(sync: str) -> None:
    seen: list[Measurement] = []
    tuning = ThroughputTuning(config(sync=sync, devices=("cpu:0", "cpu:1"), tau=2), QUICK, seen.append)
    result = tuning.run()
    assert [m.replicas for m in result.measurements] == [1, 2]
    for index, known in enumerate(seen):
        told = [m.replicas for m in seen[: index + 1]].count(known.replicas)
        assert len(known.windows) == told
    assert result.decision.replicas in (1, 2)
    assert result.decision.complete
    assert not result.interrupted
    assert (result.most, result.why_no_more) == (2, "max_replicas")
    assert not [t for t in threading.enumerate() if "engine" in t.name]


@pytest.mark.slow
def test_the_dry_run_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as an engine takes, and not one more."""
    with CpuDevice(limit_nbytes=2500 * KIB) as device:
        train, _ = load("synthetic")
        monkeypatch.setattr(scheduler.training.tuning.throughput_tuning, "get_device", lambda name: device)
        monkeypatch.setattr(scheduler.training.models.classifier_step, "get_device", lambda name: device)
        tuning = ThroughputTuning(config(), TuningOptions(max_replicas=64))
        assert tuning.why_no_more == "more do not fit into the memory of cpu:0"
        assert 2 < tuning.most < 64
        build_engine(config(replicas_per_device=tuning.most), train, Constant(0.1), Synchronisation()).close()
        too_many = config(replicas_per_device=tuning.most + 1)
        with pytest.raises(ResourceExhaustedError, match=f"{tuning.most} fit in"):
            build_engine(too_many, train, Constant(0.1), Synchronisation())


@pytest.mark.slow
def test_data_and_alpha_set_limits_too() -> None:
    assert ThroughputTuning(config(batch_size=1500)).most == 2
    assert ThroughputTuning(config(batch_size=1500)).why_no_more == "the data set fills 2 batches"
    assert ThroughputTuning(config(batch_size=1500, devices=("cpu:0", "cpu:1"))).most == 1
    tuning = ThroughputTuning(config(alpha=0.4))
    assert (tuning.most, tuning.why_no_more) == (3, "alpha is 0.4")
    with pytest.raises(InvalidArgumentError, match="do not fill one batch of 5000"):
        ThroughputTuning(config(batch_size=5000))


@pytest.mark.slow
def test_time_and_stop_end_it_with_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TickingClock(1e-6)
    monkeypatch.setattr("scheduler.training.tuning.throughput_tuning.time", clock)

    def time_flies(measurement: Measurement) -> None:
        clock.now_s = 1.0

    options = TuningOptions(window_seconds=0.02, max_seconds=1.0, windows=10_000)
    result = ThroughputTuning(config(), options, time_flies).run()
    assert not result.decision.complete
    assert result.decision.reason.endswith("max_seconds 1 are over")
    assert not result.interrupted
    clock.now_s = 0.0
    with pytest.raises(AbortedError, match="before one window of logreg was measured: max_seconds"):
        ThroughputTuning(config(), TuningOptions(max_seconds=1e-6)).run()

    def stop(measurement: Measurement) -> None:
        stopped.request_stop()

    stopped = ThroughputTuning(config(), TuningOptions(window_seconds=0.02), stop)
    result = stopped.run()
    assert result.interrupted
    assert (result.decision.replicas, result.decision.complete) == (1, False)
    early = ThroughputTuning(config())
    early.request_stop()
    with pytest.raises(CancelledError, match="interrupted"):
        early.run()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_replicas": 0}, "max_replicas: expected a whole number from 1 to 4096, got 0"),
        ({"windows": 10**30}, "windows: expected a whole number from 1 to 1000000, got 10000000"),
        ({"threshold": 1.0}, r"threshold: expected a fraction in \(0, 1\), as 0.05, got 1"),
        (
            {"window_seconds": 0.0},
            "window_seconds: expected a positive number, from 1.2e-38 to 3.4e.38, got 0",
        ),
        (
            {"max_seconds": float("nan")},
            "max_seconds: expected a positive number, from 1.2e-38 to 3.4e.38, got nan",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        TuningOptions(**options)
