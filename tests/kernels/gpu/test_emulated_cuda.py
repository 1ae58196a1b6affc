"""The emulated CUDA runtime keeps its promises and refuses what CUDA refuses."""

from __future__ import annotations

import ctypes
import gc
import random
import shutil
import threading
import time

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CopyKind, CudaError
from tensorbow.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from tensorbow.kernels.gpu.call import DeviceArray
from tensorbow.kernels.gpu.program import CudaSource
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig import cuda_compiler
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_memory import GUARD, host_array
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler

KERNELS = CudaSource.of(
    "rig",
    """
    extern "C" __global__ void scale(float* y, const float* x, float a, int n) {
        TB_FOR_EACH(int, i, n) y[i] = a * x[i];
    }
    extern "C" __global__ void add_one(int* y, const long long* status) { TB_PREDICATED(status); *y += 1; }
    extern "C" __global__ void __launch_bounds__(1024) total(float* y, const float* x, int n) {
        __shared__ float sums[32];
        float s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < blockDim.x / 32; ++i) s += sums[i];
            y[0] = s;
        }
    }
    extern "C" __global__ void reversed(int* y) {
        extern __shared__ int kept[];
        int n = blockDim.x * blockDim.y, i = threadIdx.y * blockDim.x + threadIdx.x;
        int first = kept[i];
        kept[i] = i + 100 * blockIdx.x;
        __syncthreads();
        y[blockIdx.x * n + i] = kept[n - 1 - i];
        y[gridDim.x * n + blockIdx.x * n + i] = first;
    }
    extern "C" __global__ void stale(int* y) {
        __shared__ int kept[4];
        y[blockIdx.x] = kept[1];
        __syncthreads();
        kept[1] = 7;
    }
    extern "C" __global__ void lanes(unsigned* y) {
        int t = threadIdx.x;
        y[t] = __shfl_down_sync(0xffffffffu, t, 1);
        y[64 + t] = __shfl_up_sync(0xffffffffu, t, 2);
        y[128 + t] = __shfl_sync(0xffffffffu, t, 3, 8);
        y[192 + t] = __ballot_sync(0xffffffffu, t % 3 == 0);
        y[256 + t] = __syncthreads_count(t % 2);
        y[320 + t] = __shfl_xor_sync(0xffffffffu, t, 8);
    }
    extern "C" __global__ void divergent(int* y) {
        if (threadIdx.x < 5) __syncthreads();
        else *y = __shfl_sync(0xffffffffu, 1, 0);
    }
    extern "C" __global__ void two_lines(int* y) {
        if (threadIdx.x < 32) __syncthreads();
        else
            __syncthreads();
    }
    extern "C" __global__ void early(int* y) {
        if (threadIdx.x >= 40) return;
        __syncthreads();
        atomicAdd(y, 1);
    }
    extern "C" __global__ void overrun(float* y, int n) { y[n] = 1; }
    extern "C" __global__ void nowhere(int* y) {
        __syncthreads();
        if (threadIdx.x == 3) *(int*)(size_t)blockIdx.x = 1;
    }
    extern "C" __global__ void divide(int* y) { *y = 100 / *y; }
    extern "C" __global__ void order(int* y, int* next) {
        y[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
    }
    extern "C" __global__ void wide(double* y, float4 v, long long n, bool on, unsigned char c) {
        *y = (double)v.x + v.y + v.z + v.w + n + on + c;
    }
    """,
)


@pytest.fixture
def runtime():
    with emulated_runtime() as made:
        yield made


@pytest.fixture
def bench(runtime):
    with GpuBench(runtime) as made:
        yield made


def array(bench, *shape, dtype=np.float32, values=None) -> DeviceArray:
    made = bench.memory(TensorSpec(shape, as_dtype(dtype)))
    if values is not None:
        bench.upload(np.asarray(values, dtype).reshape(shape), made)
    return made


def launch(bench, name, grid, block, *arguments, shared_nbytes=0):
    bench.context.launch(KERNELS, name, grid, block, *arguments, shared_nbytes=shared_nbytes)()


def broken(**options):
    """A runtime and a bench that need not be clean in the end."""
    runtime = EmulatedCuda(**options)
    return runtime, GpuBench(runtime)


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


# Kernels --------------------------------------------------------------------------------------------------


def test_arguments_are_read_before_launch_returns(runtime):
    runtime.delay = lambda: time.sleep(0.01)
    with GpuBench(runtime) as bench:
        x, y = array(bench, 4, values=[1, 2, 3, 4]), array(bench, 4)
        module = runtime.load_module(runtime.compile(KERNELS.text, "rig"))
        function = runtime.function(module, "scale")
        values = [ctypes.c_void_p(y.address), ctypes.c_void_p(x.address), ctypes.c_float(3), ctypes.c_int(4)]
        pointers = (ctypes.c_void_p * 4)(*[ctypes.addressof(v) for v in values])
        runtime.launch(function, (1, 1, 1), (32, 1, 1), 0, bench.stream, ctypes.addressof(pointers))
        for value in values:
            ctypes.memset(ctypes.addressof(value), 0, ctypes.sizeof(value))
        np.testing.assert_array_equal(bench.download(y), [3, 6, 9, 12])
        runtime.unload_module(module)
        with pytest.raises(CudaError, match="no function of a loaded module"):
            runtime.launch(function, (1, 1, 1), (32, 1, 1), 0, bench.stream, ctypes.addressof(pointers))


def test_arguments_of_all_sizes(bench):
    y = array(bench, dtype=np.float64)
    vector = np.array((1, 2, 3, 4), "f4,f4,f4,f4")
    launch(bench, "wide", 1, 1, y, vector, np.int64(2**40), np.bool_(True), np.uint8(200))
    assert bench.download(y) == 10 + 2**40 + 1 + 200


def test_a_sum_by_shuffles_and_shared_memory(bench):
    values = np.arange(1000, dtype=np.float32)
    x, y = array(bench, 1000, values=values), array(bench, 1)
    for block in (32, 64, 256, 1024):
        launch(bench, "total", 1, block, y, x, np.int32(1000))
        assert bench.download(y)[0] == values.sum()


def test_threads_meet_at_barriers_in_every_block(bench):
    y = array(bench, 2, 3, 64, dtype=np.int32)
    launch(bench, "reversed", 3, (16, 4), y, shared_nbytes=256)
    kept, first = bench.download(y)
    np.testing.assert_array_equal(kept, np.arange(64)[::-1] + 100 * np.arange(3)[:, None])
    assert (first == -1).all()  # shared memory holds garbage at first


def test_static_shared_memory_holds_garbage_at_first(bench):
    y = array(bench, 3, dtype=np.int32)
    launch(bench, "stale", 3, 1, y)
    assert (bench.download(y) == -1).all()


def test_what_lanes_see_of_each_other(bench):
    y = array(bench, 6, 64, dtype=np.int32)
    launch(bench, "lanes", 1, 40, y)
    down, up, broadcast, ballot, count, across = bench.download(y)[:, :40].astype(np.int64) & 0xFFFFFFFF
    t = np.arange(40)
    expected = np.where(t == 31, 31, t + 1)
    expected[39] = 0xFFFFFFFF  # there is no lane: undefined
    np.testing.assert_array_equal(down, expected)
    np.testing.assert_array_equal(up, np.where(t % 32 < 2, t, t - 2))
    np.testing.assert_array_equal(broadcast, t // 8 * 8 + 3)
    full, rest = (sum(1 << i for i in range(32) if n * 32 + i < 40 and (n * 32 + i) % 3 == 0) for n in (0, 1))
    np.testing.assert_array_equal(ballot, np.where(t < 32, full, rest))
    assert (count == 20).all()
    np.testing.assert_array_equal(across, np.where(t < 32, t ^ 8, 0xFFFFFFFF))


@pytest.mark.parametrize(("name", "line"), [("divergent", "__syncthreads"), ("two_lines", "__syncthreads")])
def test_waiting_in_vain_is_an_error(name, line):
    runtime, bench = broken()
    y = array(bench, 1, dtype=np.int32)
    launch(bench, name, 1, 64, y)
    with pytest.raises(CudaError, match=f"{name}: threads wait for each other in vain: thread 0 at {line}"):
        runtime.synchronize_stream(bench.stream)
    runtime.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", r"illegal access to memory at .* by thread \(3, 0, 0\) of block \(0, 0, 0\)"),
        ("divide", r"an integer was divided by zero .* by thread \(0, 0, 0\)"),
    ],
)
def test_a_kernel_that_faults_does_not_take_the_tests_with_it(name, words):
    for _ in range(2):
        runtime, bench = broken()
        y = array(bench, 1, dtype=np.int32, values=[0])
        launch(bench, name, 2, (4, 2), y)
        with pytest.raises(CudaError, match=f"kernel {name}: {words}") as caught:
            runtime.synchronize_stream(bench.stream)
        assert (caught.value.status, caught.value.sticky) == ("cudaErrorIllegalAddress", True)
        runtime.close()


def test_threads_that_have_ended_are_not_waited_for(bench):
    y = array(bench, 1, dtype=np.int32, values=[0])
    launch(bench, "early", 2, 64, y)
    assert bench.download(y)[0] == 80


def test_blocks_and_threads_run_backwards(runtime):
    with GpuBench(runtime) as bench:
        for backwards in (False, True):
            runtime.backwards = backwards
            y, following = array(bench, 6, dtype=np.int32), array(bench, 1, dtype=np.int32, values=[0])
            launch(bench, "order", 2, 3, y, following)
            np.testing.assert_array_equal(bench.download(y), np.arange(6)[:: -1 if backwards else 1])


def test_launches_that_no_gpu_takes(bench):
    y = array(bench, 1, dtype=np.int32)
    for grid, block in (((1, 65536, 1), 1), (1, (1, 1, 65)), (1, 1025)):
        with pytest.raises((CudaError, InvalidArgumentError, Exception), match=r"grid|too large"):
            launch(bench, "early", grid, block, y)
    with pytest.raises(CudaError, match="bytes of shared memory"):
        launch(bench, "reversed", 1, 1, y, shared_nbytes=50_000)


def test_a_source_that_does_not_compile(runtime):
    with pytest.raises(
        InvalidArgumentError, match=r"CUDA source bad does not compile(.|\n)*bad:3:.*nonsense"
    ):
        runtime.compile('\n\nextern "C" __global__ void f(int* y) { *y = nonsense; }', "bad")
    with pytest.raises(InvalidArgumentError, match="no `extern"):
        runtime.compile("__device__ int f() { return 1; }", "empty")
    module = runtime.load_module(runtime.compile(KERNELS.text, "rig"))
    with pytest.raises(NotFoundError, match=r"kernel missing: .*it has: scale, add_one"):
        runtime.function(module, "missing")


def test_atomics_on_floats_do_not_exist(runtime):
    with pytest.raises(InvalidArgumentError, match="atomicAdd"):
        runtime.compile('extern "C" __global__ void f(float* y) { atomicAdd(y, 1.0f); }', "sum")


def test_the_cache_folder_may_go_away(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOW_TEST_CACHE", str(tmp_path / "cache"))
    source = 'extern "C" __global__ void f(int* y) { *y = 41; }'
    binary = runtime.compile(source, "f")
    assert list((tmp_path / "cache").iterdir())
    shutil.rmtree(tmp_path / "cache")
    assert runtime.compile(source, "f") == binary
    with GpuBench(runtime) as bench:
        shutil.rmtree(tmp_path / "cache")
        y = array(bench, 1, dtype=np.int32)
        bench.context.launch(CudaSource("f", source), "f", 1, 1, y)()
        assert bench.download(y)[0] == 41


def test_what_was_compiled_is_taken_from_the_cache(runtime, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOW_TEST_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void f(int* y) { *y = 42; }'
    binary = runtime.compile(source, "f")
    monkeypatch.setattr(cuda_compiler.subprocess, "run", None)
    assert runtime.compile(source, "f") == binary


# Captures and graphs ------------------------------------------------------------------------------------


def captured(bench, name, *arguments, times=1):
    enqueue = bench.context.launch(KERNELS, name, 1, 32 if name == "scale" else 1, *arguments)
    bench.runtime.begin_capture(bench.stream)
    for _ in range(times):
        enqueue()
    return bench.runtime.end_capture(bench.stream)


def test_a_capture_records_and_a_graph_runs_it_every_time(runtime, bench):
    y, status = array(bench, dtype=np.int32, values=0), array(bench, dtype=np.int64, values=0)
    graph = captured(bench, "add_one", y, status, times=3)
    assert bench.download(y) == 0
    assert runtime.graph_works(graph) == ["launch add_one"] * 3
    for _ in range(2):
        runtime.launch_graph(graph, bench.stream)
    assert bench.download(y) == 6
    bench.upload(np.array(1, np.int64), status)
    runtime.launch_graph(graph, bench.stream)
    assert bench.download(y) == 6
    assert runtime.counts["launch_graph"] == 3
    runtime.destroy_graph(graph)
    with pytest.raises(CudaError, match="is no graph"):
        runtime.launch_graph(graph, bench.stream)


FORBIDDEN = {
    "synchronize_stream": lambda r, s: r.synchronize_stream(s),
    "allocate": lambda r, s: r.allocate(4),
    "allocate_pinned": lambda r, s: r.allocate_pinned(4),
    "load_module": lambda r, s: r.load_module(b""),
    "begin_capture": lambda r, s: r.begin_capture(s),
}


@pytest.mark.parametrize("call", FORBIDDEN)
def test_what_ends_a_capture(runtime, call):
    stream = runtime.make_stream()
    runtime.begin_capture(stream)
    with pytest.raises(CudaError, match=r"cudaErrorStreamCaptureUnsupported|cudaErrorIllegalState"):
        FORBIDDEN[call](runtime, stream)
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureInvalidated"):
        runtime.enqueue(stream, "launch", "more", lambda: None)
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureInvalidated"):
        runtime.end_capture(stream)
    runtime.synchronize_stream(stream)  # usable again
    runtime.destroy_stream(stream)


def test_events_and_captures_keep_apart(runtime):
    stream, event = runtime.make_stream(), runtime.make_event()
    runtime.begin_capture(stream)
    runtime.record(event, stream)
    for ask in (runtime.is_done, runtime.synchronize_event):
        with pytest.raises(CudaError, match="cudaErrorCapturedEvent"):
            ask(event)
    runtime.destroy_graph(runtime.end_capture(stream))
    other = runtime.make_event()
    runtime.record(other, stream)
    runtime.begin_capture(stream)
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureIsolation"):
        runtime.wait(stream, other)
    with pytest.raises(CudaError, match="Invalidated"):
        runtime.end_capture(stream)
    runtime.destroy_event(event)
    runtime.destroy_event(other)
    runtime.destroy_stream(stream)


def test_a_capture_belongs_to_one_thread(runtime):
    stream, other, errors = runtime.make_stream(), runtime.make_stream(), []
    runtime.begin_capture(stream)

    def intrude():
        runtime.free(runtime.allocate(8))  # allowed: the mode is ThreadLocal
        runtime.enqueue(other, "launch", "elsewhere", lambda: None)
        runtime.synchronize_stream(other)
        for call in (
            lambda: runtime.end_capture(stream),
            lambda: runtime.enqueue(stream, "launch", "x", int),
        ):
            try:
                call()
            except CudaError as error:
                errors.append(error.status)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert errors == ["cudaErrorStreamCaptureWrongThread"] * 2
    with pytest.raises(CudaError, match="launch x of another thread"):
        runtime.end_capture(stream)
    runtime.destroy_stream(stream)
    runtime.destroy_stream(other)


def test_a_graph_must_not_be_destroyed_while_it_runs(runtime):
    stream, gate = runtime.make_stream(), threading.Event()
    runtime.begin_capture(stream)
    runtime.enqueue(stream, "launch", "a", gate.wait)
    graph = runtime.end_capture(stream)
    runtime.launch_graph(graph, stream)
    with pytest.raises(CudaError, match="the graph is running"):
        runtime.destroy_graph(graph)
    gate.set()
    runtime.synchronize_stream(stream)
    runtime.destroy_graph(graph)
    runtime.destroy_stream(stream)


def test_a_graph_with_freed_memory_fails():
    runtime, bench = broken()
    x, y = array(bench, 4), array(bench, 4)
    graph = captured(bench, "scale", y, x, np.float32(1), np.int32(4))
    runtime.free(x.address)
    runtime.launch_graph(graph, bench.stream)
    with pytest.raises(CudaError, match="not allocated"):
        runtime.synchronize_stream(bench.stream)
    runtime.close()


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
