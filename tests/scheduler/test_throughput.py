"""Measured throughput: windows cut by completion times, limits, and what a run of the tuning tells."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import scheduler.classifier
import scheduler.throughput
from scheduler import (
    Measurement,
    Synchronisation,
    TaskResult,
    ThroughputTuning,
    TrainingConfig,
    TuningOptions,
)
from scheduler.classifier import build_engine
from scheduler.windows import ThroughputWindows
from tensorbow.data import load
from tensorbow.devices import CpuDevice
from tensorbow.errors import AbortedError, CancelledError, InvalidArgumentError, ResourceExhaustedError
from tensorbow.optimizers import Constant

KIB = 1024
QUICK = TuningOptions(max_replicas=2, windows=1, window_seconds=0.02)


def config(**options: Any) -> TrainingConfig:
    return TrainingConfig(model="logreg", dataset="synthetic", **options)


def rates(windows: ThroughputWindows, ends: list[tuple[float, ...]]) -> list[float | None]:
    """What each round tells; ends: by round, when each replica's task ended."""
    told = []
    for round, times in enumerate(ends):
        for replica, time_s in enumerate(times):
            rate = windows.add(TaskResult(replica, round, 0.0, (), time_s, replica))
            assert rate is None or replica == len(times) - 1
        told.append(rate)
    return told


def test_a_window_begins_where_the_warming_up_ends() -> None:
    """One round a second, of 2 tasks of 8; the first rounds, slow, are discarded."""
    windows = ThroughputWindows(2, 8, 1, seconds=3.5)
    ends = [
        (0.0, 9.0),
        (19.0, 18.0),
        (28.0, 29.0),
        (38.0, 39.0),
        *((39.0 + n, 38.7 + n) for n in range(1, 9)),
    ]
    assert rates(windows, ends) == [None] * 7 + [pytest.approx(16.0)] + [None] * 3 + [pytest.approx(16.0)]


def test_a_window_is_of_whole_periods_of_averaging() -> None:
    windows = ThroughputWindows(1, 10, 6, seconds=0.1)
    told = rates(windows, [(float(n),) for n in range(20)])
    assert [round for round, rate in enumerate(told) if rate is not None] == [12, 18]
    rare = ThroughputWindows(1, 10, 1 << 40, seconds=0.1)
    assert any(rate is not None for rate in rates(rare, [(float(n),) for n in range(20)]))


def test_pauses_are_not_timed() -> None:
    """Three rounds of one second between two pauses, of which the first of each three counts for nothing."""
    windows = ThroughputWindows(1, 10, 1, seconds=4.0)
    rates_told, now = [], 0.0
    for _ in range(6):
        for _ in range(3):
            now += 1.0
            rates_told.append(windows.add(TaskResult(0, 0, 0.0, (), now, 0)))
        windows.pause()
        windows.pause()
        now += 100.0
    assert [index for index, rate in enumerate(rates_told) if rate is not None] == [11, 17]
    assert rates_told[11] == rates_told[17] == pytest.approx(10.0)


@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_it_measures_what_training_does(sync: str) -> None:
    seen: list[Measurement] = []
    tuning = ThroughputTuning(config(sync=sync, devices=("cpu:0", "cpu:1"), tau=2), QUICK, seen.append)
    result = tuning.run()
    assert [m.replicas for m in result.measurements] == [1, 2]
    for place, known in enumerate(seen):
        told = [m.replicas for m in seen[: place + 1]].count(known.replicas)
        assert len(known.windows) == told
    assert result.decision.replicas in (1, 2)
    assert result.decision.complete
    assert not result.interrupted
    assert (result.most, result.why_no_more) == (2, "max_replicas")
    assert not [t for t in threading.enumerate() if "engine" in t.name]


def test_the_dry_run_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as an engine takes, and not one more."""
    with CpuDevice(limit_nbytes=2500 * KIB) as device:
        train, _ = load("synthetic")
        monkeypatch.setattr(scheduler.throughput, "get_device", lambda name: device)
        monkeypatch.setattr(scheduler.classifier, "get_device", lambda name: device)
        tuning = ThroughputTuning(config(), TuningOptions(max_replicas=64))
        assert tuning.why_no_more == "more do not fit into the memory of cpu:0"
        assert 2 < tuning.most < 64
        build_engine(config(replicas_per_device=tuning.most), train, Constant(0.1), Synchronisation()).close()
        too_many = config(replicas_per_device=tuning.most + 1)
        with pytest.raises(ResourceExhaustedError, match=f"{tuning.most} fit in"):
            build_engine(too_many, train, Constant(0.1), Synchronisation())


def test_data_and_alpha_set_limits_too() -> None:
    assert ThroughputTuning(config(batch_size=1500)).most == 2
    assert ThroughputTuning(config(batch_size=1500)).why_no_more == "the data set fills 2 batches"
    assert ThroughputTuning(config(batch_size=1500, devices=("cpu:0", "cpu:1"))).most == 1
    tuning = ThroughputTuning(config(alpha=0.4))
    assert (tuning.most, tuning.why_no_more) == (3, "alpha is 0.4")
    with pytest.raises(InvalidArgumentError, match="do not fill one batch of 5000"):
        ThroughputTuning(config(batch_size=5000))


def test_time_and_stop_end_it_with_what_is_known() -> None:
    tuning = ThroughputTuning(config(), TuningOptions(window_seconds=0.02, max_seconds=1.0, windows=10_000))
    result = tuning.run()
    assert not result.decision.complete
    assert result.decision.reason.endswith("max_seconds 1 are over")
    assert not result.interrupted
    with pytest.raises(AbortedError, match="before one window of logreg was measured: max_seconds"):
        ThroughputTuning(config(), TuningOptions(max_seconds=0.001)).run()

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
        ({"max_replicas": 0}, "max_replicas: expected an integer of at least 1, got 0"),
        ({"windows": 0}, "windows: expected an integer"),
        ({"threshold": 1.0}, r"threshold: expected a fraction in \(0, 1\), as 0.05, got 1"),
        ({"window_seconds": 0.0}, "window_seconds: expected a positive number, got 0"),
        ({"max_seconds": float("nan")}, "max_seconds: expected a positive number, got nan"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        TuningOptions(**options)
