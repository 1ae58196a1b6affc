"""GPU streams, events and copies, over emulated CUDA: order, waits that CUDA cannot make, failures, ends."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorbow.devices import CpuDevice, GpuDevice, NullDevice
from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.emulated_cuda import EmulatedCuda


@pytest.fixture
def device(runtime: EmulatedCuda) -> Iterator[GpuDevice]:
    with GpuDevice("/gpu:0", runtime) as opened:
        yield opened


def boom() -> None:
    raise RuntimeError("boom")


def test_memory_is_copied_both_ways_and_never_viewed(device: GpuDevice) -> None:
    group = device.stream_group("replica")
    block = group.allocate(12 << 20)
    assert block is not None
    value = np.random.default_rng(0).normal(size=(1 << 20, 3)).astype(np.float32)  # more than the staging
    device.write(block.address, value)
    np.testing.assert_array_equal(device.read(block.address, value.shape, value.dtype), value)
    device.clear(block.address, value.nbytes // 2)
    half = device.read(block.address, (1 << 19, 3), np.float32)
    assert not half.any()
    strided = value[:100, ::2]
    device.write(block.address, strided)
    np.testing.assert_array_equal(device.read(block.address, (100, 2), np.float32), strided)
    with pytest.raises(UnimplementedError, match=r"got /gpu:0; copy with read\(\) and write\(\)"):
        device.view(block.address, (1,), np.float32)


def test_pinned_arrays_go_back_after_their_last_view(device: GpuDevice, runtime: Any) -> None:
    """The next allocation returns them, not the garbage collector, which may run during a capture."""
    before = runtime.counts["free_pinned"]
    array = device.host_array((3, 5), np.int64)
    view = array[1:]
    del array
    gc.collect()
    assert runtime.counts["free_pinned"] == before
    view[...] = 7
    stream = runtime.make_stream()
    runtime.begin_capture(stream)
    del view
    gc.collect()
    runtime.destroy_graph(runtime.end_capture(stream))
    runtime.destroy_stream(stream)
    assert runtime.counts["free_pinned"] == before
    last = device.host_array((0, 4), np.float32)
    assert last.shape == (0, 4)
    assert runtime.counts["free_pinned"] == before + 1
    device.close()
    del last
    gc.collect()
    assert runtime.counts["free_pinned"] == before + 2


@pytest.mark.slow
def test_random_streams_keep_the_order_that_events_give(opened: OpenedGpu) -> None:
    """Additions and doublings of one cell on many streams, ordered by events: the result tells the order."""
    for seed in range(20):
        rng = random.Random(seed)
        with (
            opened(delay=lambda: time.sleep(random.random() * 2e-4)) as runtime,
            GpuDevice("/gpu:0", runtime) as device,
        ):
            streams = [device.new_stream(f"stream {number}") for number in range(4)]
            group = device.stream_group("memory")
            block = group.allocate(256)
            assert block is not None
            cells = device.host_array((30,), np.int64)
            last: Any = None
            for number in range(30):
                cells[number] = number
                stream: Any = rng.choice(streams)
                if last is not None:
                    stream.wait(last)

                source = cells.ctypes.data + 8 * number
                ends = block.address, source, 8, CopyKind.HOST_TO_DEVICE, stream.handle
                stream.enqueue(partial(runtime.copy, *ends), label="copy")
                last = stream.record()
            last.synchronize(30)
            assert device.read(block.address, (), np.int64) == 29
            del cells


def test_a_wait_for_a_cpu_stream_puts_off_what_follows_and_blocks_nobody(device: GpuDevice) -> None:
    with CpuDevice() as cpu:
        gate, ran = threading.Event(), []
        slow, stream = cpu.new_stream("slow"), device.new_stream("compute")
        slow.enqueue(lambda: gate.wait(30), label="gate")
        stream.enqueue(lambda: ran.append("before"), label="before")
        stream.wait(slow.record())
        stream.enqueue(lambda: ran.append("after"), label="after")
        event = stream.record()
        other = device.new_stream("other")
        other.wait(event)  # of an event that CUDA does not know yet
        other.enqueue(lambda: ran.append("other"), label="other")
        last = other.record()
        assert ran == ["before"]
        assert not event.done()
        assert not last.done()
        with pytest.raises(TimeoutError):
            last.synchronize(0.01)
        with pytest.raises(FailedPreconditionError, match="expected a drained stream to reset"):
            stream.reset()
        gate.set()
        last.synchronize(30)
        assert ran == ["before", "after", "other"]
        assert event.done()


def test_calls_that_are_put_off_can_wait_again(device: GpuDevice) -> None:
    with CpuDevice() as cpu:
        gates = [threading.Event() for _ in range(3)]
        ran: list[int] = []
        stream = device.new_stream("compute")
        for number, gate in enumerate(gates):
            slow = cpu.new_stream(f"slow {number}")
            slow.enqueue(lambda gate=gate: gate.wait(30), label="gate")
            stream.wait(slow.record())
            stream.enqueue(lambda number=number: ran.append(number), label="work")
        event = stream.record()
        for gate in (gates[1], gates[2], gates[0]):
            assert ran == []
            gate.set()
        event.synchronize(30)
        assert ran == [0, 1, 2]


def test_a_cpu_stream_waits_for_a_gpu_event(device: GpuDevice, runtime: EmulatedCuda) -> None:
    gate = threading.Event()
    runtime.delay = lambda: gate.wait(30) and None
    with CpuDevice() as cpu:
        stream, host = device.new_stream("compute"), cpu.new_stream("host")
        group = device.stream_group("memory")
        block = group.allocate(256)
        assert block is not None
        stream.enqueue(lambda: runtime.fill(block.address, 0, 256, stream.handle), label="fill")  # type: ignore[attr-defined]
        seen: list[bool] = []
        host.wait(stream.record())
        host.enqueue(lambda: seen.append(gate.is_set()), label="look")
        done = host.record()
        assert not done.done()
        gate.set()
        done.synchronize(30)
        assert seen == [True]


def test_a_failure_skips_what_follows_and_spreads_to_who_waits(device: GpuDevice) -> None:
    failing, waiting, other = (device.new_stream(name) for name in ("failing", "waiting", "other"))
    ran: list[str] = []
    good = failing.record()
    failing.enqueue(boom, label="relu_3")
    failing.enqueue(lambda: ran.append("after"), label="after")
    bad = failing.record()
    waiting.wait(bad)
    waiting.enqueue(lambda: ran.append("waiting"), label="waiting")
    other.wait(good)
    other.enqueue(lambda: ran.append("other"), label="other")
    other.synchronize(10)
    good.synchronize(10)
    for stream in (failing, waiting):
        with pytest.raises(RuntimeError, match="boom"):
            stream.synchronize(10)
    assert ran == ["other"]
    with pytest.raises(RuntimeError, match="boom"):
        bad.synchronize(10)
    assert bad.error is failing.error is waiting.error
    if sys.version_info >= (3, 11):
        assert "raised by 'relu_3' on stream /gpu:0 failing" in bad.error.__notes__
    failing.reset()
    failing.enqueue(lambda: ran.append("again"), label="again")
    failing.synchronize(10)
    assert ran == ["other", "again"]


def test_closing_drains_and_gives_up_waits_that_only_the_program_could_end(device: GpuDevice) -> None:
    with NullDevice(hold=True) as null:
        held = null.new_stream("held").record()
        stream = device.new_stream("compute")
        ran: list[int] = []
        stream.enqueue(lambda: ran.append(1), label="one")
        stream.wait(held)
        stream.enqueue(lambda: ran.append(2), label="two")
        event = stream.record()
        stream.close()
        assert ran == [1]
        with pytest.raises(CancelledError, match="it closed while it waited"):
            event.synchronize(10)


def test_closing_waits_for_other_devices(device: GpuDevice) -> None:
    with CpuDevice() as cpu:
        gate, ran = threading.Event(), []
        slow, stream = cpu.new_stream("slow"), device.new_stream("compute")
        slow.enqueue(lambda: gate.wait(30), label="gate")
        stream.wait(slow.record())
        stream.enqueue(lambda: ran.append(1), label="one")
        threading.Timer(0.02, gate.set).start()
        stream.close()
        assert ran == [1]


def test_a_wait_for_another_gpu_stream_queries_nothing(device: GpuDevice, runtime: Any) -> None:
    first, second = device.new_stream("first"), device.new_stream("second")
    before = runtime.counts["is_done"], runtime.counts["wait"]
    second.wait(first.record())
    second.synchronize()
    assert (runtime.counts["is_done"], runtime.counts["wait"]) == (before[0], before[1] + 1)


def test_one_thread_completes_the_events_of_all_streams(device: GpuDevice, runtime: EmulatedCuda) -> None:
    """A stream that is at work for long holds up no other's callbacks."""
    gate = threading.Event()
    slow, *fast = (device.new_stream(str(number)) for number in range(5))
    runtime.enqueue(slow.handle, "launch", "long", lambda: gate.wait(30) and None)  # type: ignore[attr-defined]
    told: list[tuple[int, str]] = []
    ended = threading.Semaphore(0)

    def tell(number: int, _: Any) -> None:
        told.append((number, threading.current_thread().name))
        ended.release()

    for number, stream in enumerate([slow, *fast]):
        stream.record().on_done(partial(tell, number))
    assert all(ended.acquire(timeout=10) for _ in fast)
    assert sorted(told) == [(number, "tensorbow GPU events") for number in range(1, 5)]
    gate.set()
    assert ended.acquire(timeout=10)
    assert [t.name for t in threading.enumerate()].count("tensorbow GPU events") == 1


def test_a_closed_stream_has_made_all_callbacks(device: GpuDevice) -> None:
    told: list[int] = []

    def tell(number: int, _: Any) -> None:
        time.sleep(2e-3)
        told.append(number)

    stream = device.new_stream("closing")
    for number in range(10):
        stream.record().on_done(partial(tell, number))
    stream.close()
    assert sorted(told) == [*range(10)]


def test_a_group_has_one_stream(device: GpuDevice, runtime: Any) -> None:
    """More streams than hardware queues would serialise the replicas."""
    before = runtime.counts["make_stream"]
    device.stream_group("replica 0")
    assert runtime.counts["make_stream"] == before + 1


def test_events_are_used_again(device: GpuDevice, runtime: Any) -> None:
    stream = device.new_stream("compute")
    for _ in range(200):
        stream.record().synchronize(10)
    for _ in range(200):
        stream.record()  # nobody asks
    stream.synchronize(10)
    gc.collect()
    stream.record().synchronize(10)
    assert runtime.counts["make_event"] < 10


def test_an_event_that_cannot_be_recorded_goes_back(device: GpuDevice, runtime: EmulatedCuda) -> None:
    """The fixture finds what is left open."""
    stream = device.new_stream("failing")
    runtime.fail_next("record")
    with pytest.raises(CudaError, match="injected"):
        stream.record().synchronize()
    stream.reset()


def test_a_stream_that_nobody_holds_ends(device: GpuDevice, runtime: Any) -> None:
    streams = runtime.counts["destroy_stream"]
    stream = device.new_stream("forgotten")
    told: list[Any] = []
    stream.record().on_done(told.append)
    del stream
    gc.collect()
    assert runtime.counts["destroy_stream"] == streams + 1
    deadline = time.monotonic() + 10
    while not told and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert len(told) == 1


def test_some_of_what_is_free_is_left_to_cuda_itself(runtime: EmulatedCuda) -> None:
    taken = runtime.allocate(1 << 20)
    free, _ = runtime.memory_info()
    with GpuDevice("/gpu:0", runtime) as device:
        assert 0.90 * free < device.memory.limit_nbytes < 0.96 * free
    runtime.free(taken)


def test_out_of_memory_says_who_asked_and_what_is_free(runtime: EmulatedCuda) -> None:
    with GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 20) as device:
        group = device.stream_group("replica 0")
        with pytest.raises(ResourceExhaustedError, match=r"replica 0.*2\.0 MiB"):
            group.allocate(2 << 20, owner="slab")
        assert group.allocate(1 << 19) is not None
        runtime.fail_next("allocate_pinned")
        with pytest.raises(ResourceExhaustedError, match="allocate_pinned"):
            device.host_array((10,), np.float32)


def test_a_sticky_error_reaches_who_waits_and_everything_still_closes() -> None:
    with GpuDevice("/gpu:0", EmulatedCuda()) as device:
        runtime = device.runtime
        assert isinstance(runtime, EmulatedCuda)
        group = device.stream_group("replica 0")
        block = group.allocate(256)
        assert block is not None
        runtime.fail_next("fill", "cudaErrorIllegalAddress", sticky=True)
        stream: Any = group.compute
        stream.enqueue(lambda: runtime.fill(block.address, 0, 256, stream.handle), label="fill")
        told: list[Any] = []
        event = stream.record()
        event.on_done(told.append)
        with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
            stream.synchronize(10)
        with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
            event.synchronize(10)
        with pytest.raises(CudaError):
            device.read(block.address, (1,), np.float32)
    runtime.close()


@pytest.mark.parametrize("name", ["/cpu:0", "/gpu:*", "/job:worker"])
def test_a_gpu_device_needs_a_gpu_name(runtime: Any, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a name such as '/gpu:0'"):
        GpuDevice(name, runtime)


def test_its_row_names_gpu_and_capability(device: GpuDevice) -> None:
    row = device.describe()
    assert row["name"] == "/device:GPU:0"
    assert row["kind"] == "gpu"
    major, minor = divmod(device.runtime.properties.architecture, 10)
    assert f"compute capability {major}.{minor}" in row["description"]
