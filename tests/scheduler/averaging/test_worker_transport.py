"""Exchanges of a worker's GPUs with those of others by NCCL: enqueued, and 16 bits of each element."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from scheduler.averaging.gpu_transport import GpuTransport
from scheduler.averaging.joined_gpus import JoinedGpus
from scheduler.averaging.transport import DeviceExchange, FlatVector
from scheduler.averaging.worker_transport import WorkerTransport
from tensorbow.devices import GpuDevice
from tensorbow.devices.nccl import NcclRanks, nccl_id
from tensorbow.specs import float32
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler
SIZE = 5


@dataclass
class Meetings:
    """A worker without others; failed: by exchange, whether it told of a failure."""

    failed: list[bool] = field(default_factory=list)

    def begin_exchange(self, failed: bool = False) -> None:
        self.failed.append(failed)


@dataclass
class Alone:
    """A worker's GPU with one vector, and its exchange with itself."""

    device: GpuDevice
    vector: FlatVector
    meetings: Meetings
    transport: WorkerTransport

    def connect(self, halves: bool) -> None:
        self.transport.halves = halves
        self.transport.connect([[DeviceExchange([self.vector])]])

    def value(self) -> np.ndarray:
        return self.device.read(self.vector.address, (SIZE,), np.float32)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    with emulated_runtime() as runtime:
        EmulatedNccl([runtime]).show(monkeypatch)
        device = GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 24)
        group = device.stream_group("test")
        block = group.allocate(4 * SIZE, owner="test")
        assert block is not None
        vector, meetings = FlatVector(device, block.address, SIZE, float32), Meetings()
        joined = JoinedGpus(NcclRanks(0, 1, nccl_id()), lambda own: [own], lambda: None)
        local = GpuTransport([device], "test", joined=joined)
        transport = WorkerTransport(meetings, local, joined=True)  # type: ignore[arg-type]
        yield Alone(device, vector, meetings, transport)
        transport.close()
        group.close()
        device.close()


def test_an_exchange_is_enqueued_while_its_vector_is_still_computed(alone: Alone) -> None:
    alone.connect(halves=False)
    value, gate = np.linspace(-1, 1, SIZE, dtype=np.float32), threading.Event()
    alone.device.write(alone.vector.address, value)
    stream = alone.device.new_gpu_stream("computing", 0)
    alone.device.runtime.enqueue(stream.handle, "launch", "held", lambda: gate.wait(30))  # type: ignore[attr-defined]
    done = alone.transport.post(0, [stream.record()])
    assert not done.done()
    assert alone.meetings.failed == [False]
    gate.set()
    done.synchronize()
    assert alone.value().tobytes() == value.tobytes()
    stream.close()


def test_a_failure_that_is_known_is_told_instead(alone: Alone) -> None:
    def fail() -> None:
        raise ValueError("as the test asks")

    alone.connect(halves=False)
    stream = alone.device.new_gpu_stream("computing", 0)
    stream.enqueue(fail, label="fails")
    with pytest.raises(ValueError, match="as the test asks"):
        alone.transport.post(0, [stream.record()])
    assert alone.meetings.failed == [True]
    stream.reset()
    stream.close()
    gc.collect()  # the error's frames have the event


def test_halves_are_the_upper_bits_whatever_the_step_before_has_sent(alone: Alone) -> None:
    value = np.array([1.00390625, -3.14159274, 1e-40, np.inf, 65535.99], np.float32)
    upper = (value.view(np.uint32) & 0xFFFF0000).view(np.float32)
    stream = alone.device.new_gpu_stream("computing", 0)
    for halves in (True, False, True):
        alone.connect(halves)
        alone.device.write(alone.vector.address, value)
        alone.transport.post(0, [stream.record()]).synchronize()
        expected = upper if halves else value
        assert alone.value().tobytes() == expected.tobytes()
    stream.close()
