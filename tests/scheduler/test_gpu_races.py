"""Calls that the engine enqueues on GPU streams are ordered, by the reads and writes of the bound plans."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.averaging.gpu_transport import GpuTransport
from scheduler.replicas.central import CentralModel
from scheduler.replicas.replica import Replica
from tensorbow.devices import LaunchLog, Race, find_races
from tensorbow.devices.gpu_events import GpuEvent
from tensorbow.devices.gpu_stream import GpuStream
from tensorbow.kernels.gpu.backend import GpuBackend
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import convolutional
from tests.scheduler_rig.running import Hesitant, engine_of, gpu_devices

pytestmark = needs_compiler
MODEL = convolutional(dropout=True)
ROUNDS = 7


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LaunchLog:
    """All that GPU streams are told, as a null device keeps it, where steps are launched by segment."""
    monkeypatch.setattr(GpuBackend, "round_program", lambda *_: None)
    log = LaunchLog()
    enqueue, record, wait = GpuStream.enqueue, GpuStream.record, GpuStream.wait
    drain = GpuStream.synchronize

    def enqueued(self: GpuStream, work: Any, *, label: str, reads: Any = (), writes: Any = ()) -> None:
        log.append((self, "launch", label, reads, writes, None))
        enqueue(self, work, label=label, reads=reads, writes=writes)

    def recorded(self: GpuStream) -> GpuEvent:
        event = record(self)
        log.append((self, "record", "", (), (), event))
        return event

    def waited(self: GpuStream, event: Any) -> None:
        log.append((self, "wait", "", (), (), event))
        wait(self, event)

    def drained(self: GpuStream, timeout: float | None = None) -> None:
        drain(self, timeout)
        log.append((self, "synchronize", "", (), (), None))

    monkeypatch.setattr(GpuStream, "enqueue", enqueued)
    monkeypatch.setattr(GpuStream, "record", recorded)
    monkeypatch.setattr(GpuStream, "wait", waited)
    monkeypatch.setattr(GpuStream, "synchronize", drained)
    return log


def races_of_a_run(
    log: LaunchLog, devices: int, per_device: int, **options: Any
) -> tuple[list[str], list[Race]]:
    """The labels of all launches, and the races."""
    with emulated_runtime() as runtime:
        with engine_of(MODEL, gpu_devices(runtime, devices), per_device, **options) as engine:
            source = Hesitant(MODEL.batch, devices * per_device, pause_s=0)
            assert engine.run(source.open, 0, ROUNDS) == ROUNDS
        labels, races = log.labels(), find_races(log)
        log.clear()  # the events go back
    return labels, races


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"tau": 2}, {"staleness": 1}, {"sync": "ssgd"}, {"dispatch": "fcfs"}], ids=str
)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 3), (2, 2)])
def test_no_races(log: LaunchLog, devices: int, per_device: int, options: dict[str, Any]) -> None:
    labels, races = races_of_a_run(log, devices, per_device, launch_ahead=3, **options)
    assert len(labels) >= 2 * ROUNDS * devices * per_device
    assert races == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "method", "words"),
    [
        (CentralModel, "launch", ("exchange of", "replica")),
        (CentralModel, "launch", ("mirrored", "virtual GPUs")),
        (GpuTransport, "post", ("exchange of", "virtual GPUs")),
        (Replica, "launch", ("mirrored", "replica")),
    ],
)
def test_a_missing_wait_is_found(
    monkeypatch: pytest.MonkeyPatch, log: LaunchLog, owner: type, method: str, words: tuple[str, str]
) -> None:
    original = getattr(owner, method)

    def hasty(self: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(GpuStream, "wait", lambda stream, event: None)
            return original(self, *arguments)

    monkeypatch.setattr(owner, method, hasty)
    _, races = races_of_a_run(log, 2, 2)
    found = [{race.earlier.label, race.later.label} for race in races]
    assert any(all(any(word in label for label in pair) for word in words) for pair in found), found[:5]
