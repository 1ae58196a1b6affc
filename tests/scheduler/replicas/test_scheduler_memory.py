"""Memory: given back by close and by failed constructions; what does not fit says how much would."""

from __future__ import annotations

import gc
import re
import threading
from typing import Any

import pytest

import scheduler.replicas.device_plans
import scheduler.replicas.learners
import tensorbow as tb
from scheduler import LearningEngine, Synchronisation
from scheduler.replicas.central import CentralModel
from scheduler.replicas.memory import remedy_for, require_room
from tensorbow.devices import CpuDevice, NullDevice
from tensorbow.errors import ResourceExhaustedError
from tensorbow.runtime import Container
from tests.scheduler_rig.programs import convolutional
from tests.scheduler_rig.running import Prepared, cpu_devices

MODEL = convolutional(dropout=False)
MIB = 1 << 20


def build(devices: list[Any], per_device: int, **options: Any) -> LearningEngine:
    rate = tb.train.Constant(0.1)
    return LearningEngine(MODEL.program, MODEL.shapes, devices, per_device, Synchronisation(**options), rate)


def open_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "engine" in thread.name}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_close_gives_back_memory_streams_and_names(devices: int) -> None:
    opened = cpu_devices(devices)
    before = open_threads()
    engine = build(opened, 2, staleness=1)
    engine.learners.values.initialize(MODEL.initial)
    engine.run(Prepared(MODEL.batch, 2 * devices).open, 0, 5)
    assert all(device.memory.held_nbytes for device in opened)
    assert len(open_threads() - before) == 3 * devices + (devices > 1)
    engine.close()
    engine.close()
    for device in opened:
        assert device.memory.held_nbytes == 0
        assert device.memory.partitions == {}
        device.close()
    assert open_threads() == before


@pytest.mark.slow
def test_a_step_allocates_nothing() -> None:
    (device,) = cpu_devices(1)
    with build([device], 2) as engine:
        engine.learners.values.initialize(MODEL.initial)
        source = Prepared(MODEL.batch, 2)
        groups = [owner.group for owner in (*engine.learners.replicas, *engine.learners.central)]
        before = [group.allocator.statistics() for group in groups]
        engine.run(source.open, 0, 10)
        assert [group.allocator.statistics() for group in groups] == before
    device.close()


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["replica", "z", "transport", "connect"])
def test_an_error_while_building_closes_what_was_opened(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    opened = cpu_devices(2)
    before = open_threads()

    def broken(*arguments: Any, **options: Any) -> Any:
        raise OSError("out of luck")

    if fails == "replica":
        monkeypatch.setattr("scheduler.replicas.replica.Container.grow", grow_twice(broken))
    elif fails == "z":
        monkeypatch.setattr("scheduler.replicas.central.Binding.__init__", broken)
    elif fails == "transport":
        monkeypatch.setattr(scheduler.replicas.learners, "transport_for", broken)
    else:
        monkeypatch.setattr(CentralModel, "crossings", broken)
    with pytest.raises(OSError, match="out of luck"):
        build(opened, 2)
    for device in opened:
        assert device.memory.held_nbytes == 0
        assert device.memory.partitions == {}
        device.close()
    gc.collect()
    assert open_threads() == before


def grow_twice(broken: Any) -> Any:
    """`Container.grow` that works for two replicas and fails for the third."""
    original = Container.grow
    calls: list[int] = []

    def grow(self: Any, variables: Any) -> bool:
        calls.append(1)
        if len(calls) > 2:
            broken()
        return original(self, variables)

    return grow


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "none"])
@pytest.mark.parametrize("kind", ["cpu", "null"])
def test_replicas_that_do_not_fit_say_how_many_do(kind: str, sync: str) -> None:
    make: Any = CpuDevice if kind == "cpu" else NullDevice
    with make(f"/{kind}:0", limit_nbytes=160 * 1024) as device:
        with pytest.raises(ResourceExhaustedError) as caught:
            build([device], 90, sync=sync)
        text = str(caught.value)
        pattern = rf"90 replicas do not fit on /{kind}:0: (\d+) fit in the 160.* ask for at most (\d+)"
        found = re.search(pattern, text)
        assert found, text
        fit = int(found[1])
        assert 2 < fit < 90
        assert found[2] == found[1]
        assert device.memory.held_nbytes == 0
        build([device], fit, sync=sync).close()
        with pytest.raises(ResourceExhaustedError, match=f"{fit + 1} replicas do not fit"):
            build([device], fit + 1, sync=sync)
        assert device.memory.held_nbytes == 0


def test_what_others_hold_counts_and_none_may_fit() -> None:
    with CpuDevice(limit_nbytes=9 * MIB) as device:
        build([device], 2).close()
        group = device.stream_group("other")
        group.allocate(9 * MIB - 2048)
        with pytest.raises(ResourceExhaustedError, match=r"0 fit in the .* free of 9.*; use a smaller model"):
            build([device], 2)
        group.close()
        build([device], 2).close()


@pytest.mark.parametrize(
    ("fewer", "variables", "remedy"),
    [
        ("at most 3", 100, "ask for at most 3, or for smaller batches"),
        ("", 100, "ask for smaller batches"),
        ("at most 3", 101, "the variables alone take 101 B; ask for at most 3"),
        ("", 101, "the variables alone take 101 B; use a smaller model, or more free memory"),
    ],
)
def test_smaller_batches_are_a_remedy_only_where_variables_fit(
    fewer: str, variables: int, remedy: str
) -> None:
    assert remedy_for(fewer, variables, 100).removeprefix("with any batch size ") == remedy


@pytest.mark.slow
def test_cpu_devices_share_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = cpu_devices(3)
    with build(devices, 2) as engine:
        held = sum(device.memory.held_nbytes for device in devices)
        assert sum(plans.nbytes(2) for plans in engine.learners._plans) == held
    monkeypatch.setattr(scheduler.replicas.device_plans, "available_memory_nbytes", lambda: held)
    build(devices, 2).close()
    monkeypatch.setattr(scheduler.replicas.device_plans, "available_memory_nbytes", lambda: held - 1)
    with pytest.raises(ResourceExhaustedError, match=r"6 replicas on 3 CPU devices need .* are free on this"):
        build(devices, 2)
    assert all(device.memory.held_nbytes == 0 for device in devices)
    build(devices[:1], 2).close()
    for device in devices:
        device.close()


def test_the_dry_run_is_what_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    original = require_room

    def spy(device: Any, replicas: int, blocks: Any, central: Any, *nbytes: int) -> None:
        asked.append([*central(replicas), *(list(blocks) * replicas)])
        original(device, replicas, blocks, central, *nbytes)

    monkeypatch.setattr(scheduler.replicas.device_plans, "require_room", spy)
    for options in ({"staleness": 1}, {"sync": "none"}):
        (device,) = cpu_devices(1)
        with build([device], 3, **options) as engine:
            owners = [*engine.learners.central, *engine.learners.replicas]
            statistics = [owner.group.allocator.statistics() for owner in owners]
            assert sum(s.num_allocations for s in statistics) == len(asked[-1])
            assert sum(s.requested_nbytes for s in statistics) == sum(max(n, 1) for n in asked[-1])
        device.close()
