"""The emulated CUDA runtime keeps its promises and refuses what CUDA refuses."""

from __future__ import annotations

import gc
import random
import threading
import time

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import ResourceExhaustedError
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_memory import GUARD, host_array
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.rig_kernels import array, broken, launch
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler


# Memory and copies --------------------------------------------------------------------------------------


def test_memory_comes_aligned_and_poisoned(runtime):
    address = runtime.allocate(100)
    assert address % 256 == 0
    assert np.isnan(host_array(address, 100).view(np.float32)).all()
    free, total = runtime.memory_info()
    assert total - free == 100
    runtime.free(address)


def test_a_double_free_is_an_error(runtime):
    address = runtime.allocate(8)
    runtime.free(address)
    with pytest.raises(CudaError, match="is no device memory") as caught:
        runtime.free(address)
    assert caught.value.status == "cudaErrorInvalidValue"


def test_the_memory_limit(runtime):
    with emulated_runtime(memory_nbytes=1000) as small:
        first = small.allocate(900)
        with pytest.raises(ResourceExhaustedError, match="101 bytes asked, 100 of 1000 free"):
            small.allocate(101)
        small.free(first)
        small.free(small.allocate(1000))


@pytest.mark.parametrize("behind", [True, False])
def test_a_write_out_of_bounds_is_found_when_the_memory_is_freed(behind):
    runtime, bench = broken()
    y = array(bench, 8)
    launch(bench, "overrun", 1, 1, y, np.int32(8 if behind else -1))
    runtime.synchronize_stream(bench.stream)
    assert [block.address for block in runtime.damaged()] == [y.address]
    with pytest.raises(CudaError, match="outside the block of 32 bytes"):
        runtime.free(y.address)
    runtime.close()


def test_a_kernel_that_is_given_freed_memory_fails_for_good():
    runtime, bench = broken()
    x, y = array(bench, 4), array(bench, 4)
    runtime.free(x.address)
    launch(bench, "scale", 1, 32, y, x, np.float32(1), np.int32(4))
    with pytest.raises(CudaError, match=r"kernel scale: an argument points to .*not allocated") as caught:
        runtime.synchronize_stream(bench.stream)
    assert caught.value.status == "cudaErrorIllegalAddress"
    assert caught.value.sticky
    with pytest.raises(CudaError, match="allocate: after kernel scale"):
        runtime.allocate(4)
    runtime.close()


def test_copies_ask_for_pinned_memory_and_stay_within_blocks(runtime):
    stream, device, pinned = runtime.make_stream(), runtime.allocate(64), runtime.allocate_pinned(64)
    pageable = np.zeros(64, np.uint8)
    with pytest.raises(CudaError, match="not in allocated pinned host memory"):
        runtime.copy(device, pageable.ctypes.data, 64, CopyKind.HOST_TO_DEVICE, stream)
    with pytest.raises(CudaError, match="not in allocated device memory"):
        runtime.copy(pinned, pinned, 64, CopyKind.HOST_TO_DEVICE, stream)
    with pytest.raises(CudaError, match="leave the block of 64 bytes"):
        runtime.copy(pinned, device + 1, 64, CopyKind.DEVICE_TO_HOST, stream)
    with pytest.raises(CudaError, match="leave the block"):
        runtime.fill(device, 0, 65, stream)
    runtime.fill(device, 7, 64, stream)
    runtime.copy(pinned, device, 64, CopyKind.DEVICE_TO_HOST, stream)
    runtime.synchronize_stream(stream)
    assert (host_array(pinned, 64) == 7).all()
    runtime.free(device)
    runtime.free_pinned(pinned)
    runtime.destroy_stream(stream)


def test_a_free_waits_for_work_and_says_that_it_had_to(runtime):
    runtime.delay = lambda: time.sleep(0.05)
    with GpuBench(runtime) as bench:
        x, y = array(bench, 4, values=[1, 2, 3, 4]), array(bench, 4)
        launch(bench, "scale", 1, 32, y, x, np.float32(2), np.int32(4))
        bench._addresses.remove(y.address)
        runtime.free(y.address)
        assert runtime.waits_for_free == 1


# Streams and events ---------------------------------------------------------------------------------------


def test_a_stream_is_first_in_first_out_and_streams_are_concurrent(runtime):
    first, second = runtime.make_stream(), runtime.make_stream()
    gate, done = threading.Event(), []
    runtime.enqueue(first, "launch", "a", gate.wait)
    runtime.enqueue(first, "launch", "b", lambda: done.append("b"))
    runtime.enqueue(second, "launch", "c", lambda: done.append("c"))
    runtime.synchronize_stream(second)
    assert done == ["c"]
    gate.set()
    runtime.synchronize_stream(first)
    assert done == ["c", "b"]
    assert [call.name for call in runtime.log if call.kind == "launch" and call.stream == first] == ["a", "b"]
    assert runtime.counts["launch"] == 3
    runtime.destroy_stream(first)
    runtime.destroy_stream(second)


def test_events_order_streams_and_measure(runtime):
    first, second, start, event = (
        runtime.make_stream(),
        runtime.make_stream(),
        *(runtime.make_event(timing=True) for _ in range(2)),
    )
    gate, done = threading.Event(), []
    assert runtime.is_done(event)
    runtime.record(start, first)
    runtime.enqueue(first, "launch", "a", lambda: (gate.wait(), time.sleep(0.002), done.append("a")))
    runtime.record(event, first)
    runtime.wait(second, event)
    runtime.enqueue(second, "launch", "b", lambda: done.append("b"))
    assert not runtime.is_done(event)
    with pytest.raises(CudaError, match="cudaErrorNotReady"):
        runtime.elapsed_ms(start, event)
    gate.set()
    runtime.synchronize_event(event)
    assert done[0] == "a"
    assert runtime.elapsed_ms(start, event) >= 2
    runtime.synchronize_stream(second)
    assert done == ["a", "b"]
    for each in (start, event):
        runtime.destroy_event(each)
    for each in (first, second):
        runtime.destroy_stream(each)
    with pytest.raises(CudaError, match="is no event"):
        runtime.is_done(event)


def test_a_stream_waits_for_another_gpus_event(runtime):
    with emulated_runtime() as other:
        here, there, event = runtime.make_stream(), other.make_stream(), other.make_event()
        gate, done = threading.Event(), []
        other.enqueue(there, "launch", "a", lambda: (gate.wait(), done.append("a")))
        other.record(event, there)
        runtime.wait(here, event)
        runtime.enqueue(here, "launch", "b", lambda: done.append("b"))
        with pytest.raises(CudaError, match="of another GPU"):
            runtime.record(event, here)
        gate.set()
        runtime.synchronize_stream(here)
        assert done == ["a", "b"]
        runtime.destroy_stream(here)
        other.destroy_stream(there)
        other.destroy_event(event)


def test_a_destroyed_stream_finishes_its_work(runtime):
    stream, done = runtime.make_stream(), threading.Event()
    runtime.enqueue(stream, "launch", "a", lambda: (time.sleep(0.01), done.set()))
    runtime.destroy_stream(stream)
    assert done.wait(5)
    with pytest.raises(CudaError, match="is no stream"):
        runtime.synchronize_stream(stream)


# Faults -------------------------------------------------------------------------------------------------


def test_an_injected_fault_comes_once_and_in_its_turn(runtime):
    stream = runtime.make_stream()
    runtime.fail_next("launch", "cudaErrorLaunchOutOfResources", after=1)
    runtime.enqueue(stream, "launch", "a", lambda: None)
    with pytest.raises(CudaError, match="injected") as caught:
        runtime.enqueue(stream, "launch", "b", lambda: None)
    assert (caught.value.status, caught.value.sticky) == ("cudaErrorLaunchOutOfResources", False)
    runtime.enqueue(stream, "launch", "c", lambda: None)
    runtime.fail_next("allocate", after=1)
    address = runtime.allocate(4)
    with pytest.raises(ResourceExhaustedError):
        runtime.allocate(4)
    runtime.free(address)
    runtime.synchronize_stream(stream)
    runtime.destroy_stream(stream)


def test_a_sticky_fault_shows_in_every_later_call_and_stops_the_work():
    runtime = EmulatedCuda()
    stream, done, event = runtime.make_stream(), [], runtime.make_event()
    gate = threading.Event()
    runtime.fail_next("launch", "cudaErrorIllegalAddress", sticky=True)
    runtime.enqueue(stream, "copy", "first", gate.wait)
    runtime.enqueue(stream, "launch", "a", lambda: None)  # enqueued: no error yet
    runtime.enqueue(stream, "launch", "b", lambda: done.append("b"))
    runtime.record(event, stream)
    gate.set()
    with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
        runtime.synchronize_event(event)
    for call in (
        runtime.memory_info,
        runtime.make_stream,
        lambda: runtime.enqueue(stream, "launch", "c", int),
    ):
        with pytest.raises(CudaError) as caught:
            call()
        assert caught.value.sticky
    assert done == []
    runtime.close()


def test_random_delays_change_the_timing_and_not_the_order():
    generator = random.Random(3)
    with emulated_runtime(delay=lambda: time.sleep(generator.random() * 1e-3)) as runtime:
        streams, done = [runtime.make_stream() for _ in range(3)], []
        for n in range(20):
            for stream in streams:
                runtime.enqueue(stream, "launch", str(n), lambda s=stream, n=n: done.append((s, n)))
        for stream in streams:
            runtime.synchronize_stream(stream)
            assert [n for s, n in done if s == stream] == list(range(20))
            runtime.destroy_stream(stream)
        assert done != sorted(done, key=lambda each: each[1])


def test_what_is_left_open_is_named():
    runtime = EmulatedCuda()
    runtime.make_stream()
    runtime.allocate(GUARD)
    with pytest.raises(AssertionError, match=r"'streams': 1, .*'device blocks': 1"):
        runtime.check_clean()
    before = threading.active_count()
    runtime.close()
    del runtime
    gc.collect()
    assert threading.active_count() < before
