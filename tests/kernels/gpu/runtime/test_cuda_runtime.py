"""Contract of every CUDA runtime, tested here on the emulated one and in `tests/gpu` on a real GPU."""

from __future__ import annotations

import ctypes
import gc
import threading
import time

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from tensorbow.kernels.gpu.runtime.program import CudaSource, ProgramCache
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler

SOURCE = CudaSource.of(
    "contract",
    """
    extern "C" __global__ void fill_in(int* y, int value, int n) { TB_FOR_EACH(int, i, n) y[i] = value + i; }
    extern "C" __global__ void add(double* y, double x, bool on) { if (on) *y += x; }
    extern "C" __global__ void slow(int* y, int n) { for (int i = 0; i < n; ++i) *(volatile int*)y = i; }
    """,
)


def memory(bench, *shape, dtype=np.int32):
    return bench.memory(TensorSpec(shape, as_dtype(dtype)))


def test_properties(runtime):
    properties = runtime.properties
    assert properties.name
    assert 50 <= properties.architecture < 1000
    assert properties.multiprocessors > 0
    assert 0 < properties.max_shared_nbytes <= 1 << 20
    free, total = runtime.memory_info()
    assert 0 < free <= total == pytest.approx(properties.memory_nbytes, rel=0.1)


def test_memory_that_is_not_there(runtime):
    with pytest.raises(ResourceExhaustedError, match=f"{1 << 50} bytes asked"):
        runtime.allocate(1 << 50)
    address = runtime.allocate(1 << 20)
    assert address % 256 == 0
    runtime.free(address)


def test_copies_there_and_back(runtime):
    stream, first, second = runtime.make_stream(), runtime.allocate(4000), runtime.allocate(4000)
    pinned = runtime.allocate_pinned(8000)
    host = np.frombuffer((ctypes.c_ubyte * 8000).from_address(pinned), np.int32)
    host[:1000] = np.arange(1000)
    runtime.copy(first, pinned, 4000, CopyKind.HOST_TO_DEVICE, stream)
    runtime.copy(second, first, 2000, CopyKind.DEVICE_TO_DEVICE, stream)
    runtime.fill(second + 2000, 1, 2000, stream)
    runtime.copy(pinned + 4000, second, 4000, CopyKind.DEVICE_TO_HOST, stream)
    runtime.synchronize_stream(stream)
    np.testing.assert_array_equal(host[1000:1500], np.arange(500))
    assert (host[1500:] == 0x01010101).all()
    runtime.destroy_stream(stream)
    runtime.free(first)
    runtime.free(second)
    runtime.free_pinned(pinned)


def test_kernels_and_their_arguments(runtime):
    with GpuBench(runtime) as bench:
        y, total = memory(bench, 1000), memory(bench, dtype=np.float64)
        bench.context.launch(SOURCE, "fill_in", (2, 1, 1), 128, y, np.int32(5), np.int32(1000))()
        np.testing.assert_array_equal(bench.download(y), np.arange(1000) + 5)
        bench.upload(np.array(1.0), total)
        for on in (True, False, True):
            bench.context.launch(SOURCE, "add", 1, 1, total, np.float64(1e-12), np.bool_(on))()
        assert bench.download(total) == 1 + 1e-12 + 1e-12


def test_errors_of_sources_and_modules(runtime):
    with pytest.raises(InvalidArgumentError, match=r"CUDA source bad does not compile(.|\n)*nonsense"):
        runtime.compile('extern "C" __global__ void f(int* y) { *y = nonsense; }', "bad")
    assert runtime.compiler
    programs = ProgramCache(runtime)
    with pytest.raises(NotFoundError, match="kernel missing: not in the module"):
        programs.function(SOURCE, "missing")
    programs.close()


def test_events_order_streams(runtime):
    with GpuBench(runtime) as first, GpuBench(runtime) as second:
        start, end = (runtime.make_event(timing=True) for _ in range(2))
        y = memory(first, 1)
        runtime.record(start, first.stream)
        first.context.launch(SOURCE, "slow", 1, 1, y, np.int32(10_000_000))()
        runtime.record(end, first.stream)
        runtime.wait(second.stream, end)
        second.context.launch(SOURCE, "fill_in", 1, 1, y, np.int32(-7), np.int32(1))()
        runtime.synchronize_stream(second.stream)
        assert runtime.is_done(end)
        runtime.synchronize_event(end)
        assert second.download(y)[0] == -7
        assert runtime.elapsed_ms(start, end) > 0
        for event in (start, end):
            runtime.destroy_event(event)


def test_a_graph_runs_what_was_captured(runtime):
    with GpuBench(runtime) as bench:
        total = memory(bench, dtype=np.float64)
        bench.upload(np.array(0.0), total)
        add = bench.context.launch(SOURCE, "add", 1, 1, total, np.float64(1), np.bool_(True))
        runtime.begin_capture(bench.stream)
        assert not gc.isenabled() or type(runtime).__name__ == "EmulatedCuda"
        add()
        add()
        graph = runtime.end_capture(bench.stream)
        assert gc.isenabled()
        assert bench.download(total) == 0
        for _ in range(3):
            runtime.launch_graph(graph, bench.stream)
        add()
        assert bench.download(total) == 7
        runtime.destroy_graph(graph)


def test_a_stream_is_usable_after_a_capture_that_failed(runtime):
    with GpuBench(runtime) as bench:
        total = memory(bench, dtype=np.float64)
        bench.upload(np.array(0.0), total)
        add = bench.context.launch(SOURCE, "add", 1, 1, total, np.float64(1), np.bool_(True))
        runtime.begin_capture(bench.stream)
        add()
        with pytest.raises(CudaError, match=r"(?i)capture"):
            runtime.synchronize_stream(bench.stream)
        with pytest.raises(CudaError, match=r"(?i)capture"):
            runtime.end_capture(bench.stream)
        add()
        assert bench.download(total) == 1


def test_a_thread_captures_while_another_works(runtime):
    stop, errors = threading.Event(), []

    def work():
        try:
            with GpuBench(runtime) as bench:
                y = memory(bench, 100)
                fill = bench.context.launch(SOURCE, "fill_in", 1, 32, y, np.int32(1), np.int32(100))
                while not stop.is_set():
                    fill()
                    runtime.free(runtime.allocate(1 << 16))
                    np.testing.assert_array_equal(bench.download(y), np.arange(100) + 1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    with GpuBench(runtime) as bench:
        total = memory(bench, dtype=np.float64)
        bench.upload(np.array(0.0), total)
        add = bench.context.launch(SOURCE, "add", 1, 1, total, np.float64(1), np.bool_(True))
        thread.start()
        for _ in range(20):
            runtime.begin_capture(bench.stream)
            add()
            time.sleep(1e-3)
            graph = runtime.end_capture(bench.stream)
            runtime.launch_graph(graph, bench.stream)
            runtime.synchronize_stream(bench.stream)
            runtime.destroy_graph(graph)
        stop.set()
        thread.join()
        assert not errors
        assert bench.download(total) == 20
