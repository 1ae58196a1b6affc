"""Calls that the engine enqueues on null devices are ordered, and the checker finds a missing wait."""

from __future__ import annotations

from typing import Any

import pytest

import tensorbow as tb
from scheduler.averaging.transport import InProcessTransport
from scheduler.replicas.central import CentralModel
from scheduler.replicas.replica import Replica
from tensorbow.devices import Event, LaunchLog, Stream, find_races
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    complete_while,
    engine_of,
    null_devices,
)

MODEL = logistic()
RESTARTS = tb.train.PiecewiseConstant([1, 4, 5], [0.4, 0.3, 0.2, 0.1])


def log_of_a_run(devices: int, per_device: int, seed: int = 0, **options: Any) -> LaunchLog:
    log = LaunchLog()
    with engine_of(MODEL, null_devices(devices, log), per_device, RESTARTS, **options) as engine:
        source = Hesitant(MODEL.batch, devices * per_device, seed=seed, pause_s=0)
        assert engine.run(source.open, 0, 9) == 9
    return log


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (4, 2)])
@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("launch_ahead", [1, 3])
@pytest.mark.parametrize("dispatch", ["round_robin", "fcfs"])
def test_no_races(
    devices: int, per_device: int, tau: int, staleness: int, launch_ahead: int, dispatch: str
) -> None:
    options = {"tau": tau, "staleness": staleness, "launch_ahead": launch_ahead, "dispatch": dispatch}
    log = log_of_a_run(devices, per_device, **options)
    assert len(log.launches()) >= 9 * devices * per_device * 2
    assert find_races(log) == []


def test_two_runs_are_ordered_by_the_host_in_between() -> None:
    log = LaunchLog()
    with engine_of(MODEL, null_devices(2, log), 2, staleness=1) as engine:
        source = Prepared(MODEL.batch, 4)
        engine.run(source.open, 0, 3)
        engine.restart(3)
        engine.run(source.open, 3, 7)
    assert find_races(log) == []


def test_the_gradient_of_the_next_task_is_enqueued_before_anything_waits_for_z() -> None:
    log = log_of_a_run(1, 2)
    own = [r for r in log.records() if r.stream.name.endswith("replica 0")]
    kinds = [(r.kind, r.label.removeprefix("replica 0 ")) for r in own]
    second = kinds.index(("launch", "gradient"), 1)
    waits = [index for index, (kind, _) in enumerate(kinds) if kind == "wait"]
    assert waits[0] > second
    assert kinds[second + 1][0] == "wait"
    assert kinds[second + 2] == ("launch", "update, averaging 0")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("devices", "tau", "staleness"), [(1, 1, 0), (1, 2, 1), (2, 1, 1), (2, 1, 0)])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dispatch", ["round_robin", "fcfs"])
def test_held_events_completed_in_any_order(
    devices: int, tau: int, staleness: int, seed: int, dispatch: str
) -> None:
    log = LaunchLog()
    held = null_devices(devices, log, hold=True)
    options = {"tau": tau, "staleness": staleness, "launch_ahead": 3, "dispatch": dispatch}
    with engine_of(MODEL, held, 2, RESTARTS, **options) as engine:
        source = Hesitant(MODEL.batch, 2 * devices, seed=seed, pause_s=0)
        assert complete_while(lambda: engine.run(source.open, 0, 12), held, seed) == 12
    assert find_races(log) == []


def test_a_held_task_that_fails_ends_the_run() -> None:
    held = null_devices(2, LaunchLog(), hold=True)
    with engine_of(MODEL, held, 2) as engine:
        source = Prepared(MODEL.batch, 4)
        with pytest.raises(OSError, match="the device fell off"):
            complete_while(lambda: engine.run(source.open, 0, 9), held, 1, fail_after=7)
        assert complete_while(lambda: engine.run(source.open, 0, 9), held, 2) == 9


# Planted faults -------------------------------------------------------------------------------


def without_waits(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """Lets a method enqueue as ever, but none of the waits it asks for."""
    original = getattr(owner, method)

    def careless(self: Any, *args: Any, **kwargs: Any) -> Any:
        streams: list[Stream] = [getattr(self, "_stream", None) or self.group.compute]
        for stream in streams:
            stream.wait = lambda event: None  # type: ignore[method-assign]
        try:
            return original(self, *args, **kwargs)
        finally:
            for stream in streams:
                del stream.wait

    monkeypatch.setattr(owner, method, careless)


@pytest.mark.parametrize(
    ("owner", "method", "pair"),
    [
        (Replica, "launch", {"mirrored", "replica"}),  # z is read while it moves
        (CentralModel, "launch", {"exchange of", "replica"}),  # corrections are summed while written
        (CentralModel, "launch", {"mirrored", "between devices"}),
        (InProcessTransport, "post", {"exchange of", "between devices"}),
        (Replica, "update", {"restart"}),  # z is copied while it moves
    ],
)
def test_a_missing_wait_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, pair: set[str]
) -> None:
    without_waits(monkeypatch, owner, method)
    options = {"dispatch": "fcfs"} if method == "update" else {"staleness": 1}  # else after a pause
    races = find_races(log_of_a_run(2, 2, **options))
    assert races
    found = [{race.earlier.label, race.later.label} for race in races]
    assert any(all(any(word in label for label in labels) for word in pair) for labels in found), found[:5]


def test_a_missing_wait_of_averaging_apart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `fcfs`, z is then read while it moves."""
    without_waits(monkeypatch, Replica, "update")
    races = find_races(log_of_a_run(2, 2, dispatch="fcfs"))
    found = [{race.earlier.label, race.later.label} for race in races]
    moved = "averaging 0: mirrored of"
    assert any(any(moved in a for a in pair) and any("replica" in a for a in pair) for pair in found), found


def test_a_wait_for_the_z_before_last_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Replica.launch

    def late(self: Replica, round: int, inputs: Any, state: Any, segments: Any, *rest: Any) -> Event:
        *before, (last, after) = segments
        stale = getattr(self, "_stale", None)
        self._stale = after  # type: ignore[attr-defined]
        return launch(self, round, inputs, state, [*before, (last, stale)], *rest)

    monkeypatch.setattr(Replica, "launch", late)
    log = LaunchLog()
    with engine_of(MODEL, null_devices(1, log), 2) as engine:
        engine.run(Prepared(MODEL.batch, 2).open, 0, 6)
    assert find_races(log)
