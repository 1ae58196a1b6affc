"""Mistakes that a CPU would forgive and a GPU does not: the emulated GPU refuses them."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.emulated_cuda import MOST_PARAMETER_NBYTES, EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler

SOURCE = CudaSource.of(
    "mistakes",
    """
    struct Large { char bytes[$LARGE]; };
    extern "C" __global__ void scale(float* y) {
        float4 four = *(float4*)y;
        four.x *= 2;
        *(float4*)y = four;
    }
    extern "C" __global__ void scale_together(float* y) {
        __shared__ float shared[8];
        shared[threadIdx.x] = y[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) *(float4*)y = *(float4*)(shared + 1);
    }
    extern "C" __global__ void take(Large large, int more) {}
    """,
    LARGE=str(MOST_PARAMETER_NBYTES - 8),
)


@pytest.fixture
def bench() -> Iterator[GpuBench]:
    """Of a GPU that a test may break."""
    runtime = EmulatedCuda()
    yield GpuBench(runtime)
    runtime.close()


def floats(bench: GpuBench, size: int) -> DeviceArray:
    return bench.memory(TensorSpec((size,), as_dtype(np.float32)))


def run(bench: GpuBench, kernel: str, *arguments: Any, threads: int = 1) -> None:
    bench.context.launch(SOURCE, kernel, 1, threads, *arguments)()
    bench.runtime.synchronize_stream(bench.stream)


def test_a_vector_lies_at_a_multiple_of_its_size(bench: GpuBench) -> None:
    y = floats(bench, 8)
    bench.upload(np.arange(8, dtype=np.float32), y)
    run(bench, "scale", DeviceArray(y.address + 16, (4,), y.dtype))
    assert bench.download(y).tolist() == [0, 1, 2, 3, 8, 5, 6, 7]
    with pytest.raises(CudaError, match="kernel scale: misaligned access to memory") as caught:
        run(bench, "scale", DeviceArray(y.address + 4, (4,), y.dtype))
    assert caught.value.status == "cudaErrorMisalignedAddress"
    assert caught.value.sticky


def test_so_does_one_in_shared_memory(bench: GpuBench) -> None:
    with pytest.raises(CudaError, match="kernel scale_together: misaligned access to memory"):
        run(bench, "scale_together", floats(bench, 8), threads=8)


def test_parameters_of_a_kernel_have_4_kilobytes(bench: GpuBench) -> None:
    large = (ctypes.c_char * (MOST_PARAMETER_NBYTES - 8))()
    run(bench, "take", large, np.int32(0))
    too_large = CudaSource("mistakes", SOURCE.text.replace(str(MOST_PARAMETER_NBYTES - 8), "4096"))
    launch = bench.context.launch(too_large, "take", 1, 1, (ctypes.c_char * 4096)(), np.int32(0))
    with pytest.raises(CudaError, match="take: more than 4096 bytes of parameters"):
        launch()


def queries(runtime: EmulatedCuda) -> dict[str, Callable[[], object]]:
    start, end = (runtime.make_event(timing=True) for _ in range(2))
    stream = runtime.make_stream()
    runtime.record(start, stream)
    runtime.record(end, stream)
    runtime.synchronize_stream(stream)
    return {
        "is_done": lambda: runtime.is_done(start),
        "synchronize_event": lambda: runtime.synchronize_event(start),
        "elapsed_ms": lambda: runtime.elapsed_ms(start, end),
        "memory_info": runtime.memory_info,
    }


@pytest.mark.parametrize("query", ["is_done", "synchronize_event", "elapsed_ms", "memory_info"])
def test_a_thread_that_captures_asks_nothing(bench: GpuBench, query: str) -> None:
    runtime = bench.runtime
    assert isinstance(runtime, EmulatedCuda)
    ask = queries(runtime)[query]
    runtime.begin_capture(bench.stream)
    other = threading.Thread(target=ask)
    other.start()
    other.join()
    runtime.destroy_graph(runtime.end_capture(bench.stream))
    runtime.begin_capture(bench.stream)
    with pytest.raises(CudaError, match=f"{query}.*this thread captures a stream"):
        ask()
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureInvalidated"):
        runtime.end_capture(bench.stream)


def test_a_kernel_reaches_its_own_gpu(bench: GpuBench) -> None:
    other = EmulatedCuda()
    there = DeviceArray(other.allocate(64), (16,), np.dtype(np.float32))
    with pytest.raises(CudaError, match="which is not allocated on this GPU"):
        run(bench, "scale", there)
    other.close()


def test_a_librarys_call_needs_its_gpu_to_be_current(bench: GpuBench) -> None:
    blas, handle = bench.runtime.library("cublas"), ctypes.c_void_p()
    other = EmulatedCuda()
    other.make_current()
    assert blas.cublasCreate_v2(ctypes.byref(handle)) == blas.unusable
    bench.runtime.make_current()
    assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
    assert blas.cublasDestroy_v2(handle) == 0
    other.close()


def test_a_streams_work_may_drop_memory_of_a_closed_device(bench: GpuBench) -> None:
    """The garbage collector drops it in any thread; a stream that waited would wait for itself."""
    runtime = bench.runtime
    pinned = runtime.allocate_pinned(64)
    runtime.enqueue(bench.stream, "kernel", "drops", lambda: runtime.free_pinned(pinned))
    runtime.synchronize_stream(bench.stream)
    assert runtime.counts["free_pinned"] == 1


def test_no_garbage_is_collected_during_a_capture(bench: GpuBench) -> None:
    """Collected pinned memory of closed devices would be freed in it; also where the capture never ends."""
    runtime, was_on = bench.runtime, gc.isenabled()
    runtime.begin_capture(bench.stream)
    assert not gc.isenabled()
    runtime.destroy_graph(runtime.end_capture(bench.stream))
    assert gc.isenabled() is was_on
    runtime.begin_capture(bench.stream)
    runtime.close()
    assert gc.isenabled() is was_on
