"""Stage 1: what the product assumes of CUDA and its libraries, one small check each; then the tests."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import gpus_are_emulated

from first_hour.gpus import opened, require_nccl, runtimes
from first_hour.records import NotThereError, Recorder
from tensorbow.devices.cuda_runtime import CopyKind, CudaError, CudaRuntime
from tensorbow.devices.nccl import NcclCommunicators

ADD = """extern "C" __global__ void add(float* y, float x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x;
}"""
FAR = 'extern "C" __global__ void far(float* y) { y[1ll << 40] = 1; }'
SIZE = 1 << 16
CAPTURES = 50
FEW = 3  # samples of an op, on the emulated GPU


class Bench:
    """A stream, an array of zeros on the GPU, pinned memory of its size, and a kernel that adds to it."""

    def __init__(self, runtime: CudaRuntime):
        self.runtime = runtime
        self.stream = runtime.make_stream()
        self.nbytes = 4 * SIZE
        self.memory, self.pinned = runtime.allocate(self.nbytes), runtime.allocate_pinned(self.nbytes)
        runtime.fill(self.memory, 0, self.nbytes, self.stream)
        self._module = runtime.load_module(runtime.compile(ADD, "probe"))
        self._function = runtime.function(self._module, "add")
        self._values = (ctypes.c_uint64(self.memory), ctypes.c_float(1), ctypes.c_int(SIZE))
        addresses = [ctypes.addressof(value) for value in self._values]
        self._arguments = (ctypes.c_void_p * len(addresses))(*addresses)

    def add(self, stream: int | None = None) -> None:
        """Enqueues one addition of 1 to every element."""
        where, arguments = self.stream if stream is None else stream, ctypes.addressof(self._arguments)
        self.runtime.launch(self._function, (SIZE // 256, 1, 1), (256, 1, 1), 0, where, arguments)

    def captured(self, work: Callable[[], None]) -> int:
        """Graph of the work."""
        self.runtime.begin_capture(self.stream)
        try:
            work()
        finally:
            graph = self.runtime.end_capture(self.stream)
        return graph

    def values(self) -> np.ndarray:
        """The array, copied to the host."""
        self.runtime.copy(self.pinned, self.memory, self.nbytes, CopyKind.DEVICE_TO_HOST, self.stream)
        self.runtime.synchronize_stream(self.stream)
        return np.frombuffer((ctypes.c_char * self.nbytes).from_address(self.pinned), np.float32).copy()

    def expect(self, value: float) -> None:
        """Raises AssertionError unless every element has the value."""
        found = self.values()
        assert (found == value).all(), f"expected {value} everywhere, got {found.min()} to {found.max()}"

    def close(self) -> None:
        runtime = self.runtime
        runtime.synchronize_stream(self.stream)
        runtime.unload_module(self._module)
        runtime.free(self.memory)
        runtime.free_pinned(self.pinned)
        runtime.destroy_stream(self.stream)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:  # else the context may be lost
            self.close()


def probe(recorder: Recorder) -> None:
    """Part: the checks below, in the order in which they build on one another."""
    with opened() as (device,):
        runtime = device.runtime
        for name, check in CHECKS.items():
            recorder.check(name, partial(check, runtime), most_s=30.0)


def compiles_and_launches(runtime: CudaRuntime) -> dict[str, Any]:
    """NVRTC, module, launch, copy."""
    started = time.perf_counter()
    with Bench(runtime) as bench:
        seconds = time.perf_counter() - started
        bench.add()
        bench.expect(1)
    return {"seconds_to_first_kernel": round(seconds, 3)}


def replays(runtime: CudaRuntime) -> dict[str, Any]:
    """A graph of ten launches, replayed ten times."""
    with Bench(runtime) as bench:
        graph = bench.captured(lambda: [bench.add() for _ in range(10)])  # type: ignore[arg-type,return-value]
        for _ in range(10):
            runtime.launch_graph(graph, bench.stream)
        bench.expect(100)
        runtime.destroy_graph(graph)
    return {}


def streams_wait_for_events(runtime: CudaRuntime) -> dict[str, Any]:
    """Two streams in turn on the same memory, ordered by events alone."""
    with Bench(runtime) as bench:
        other, events = runtime.make_stream(), [runtime.make_event() for _ in range(2)]
        for _ in range(100):
            for stream, waits, event in ((bench.stream, other, events[0]), (other, bench.stream, events[1])):
                bench.add(stream)
                runtime.record(event, stream)
                runtime.wait(waits, event)
        bench.expect(200)
        for event in events:
            runtime.destroy_event(event)
        runtime.destroy_stream(other)
    return {}


def times_with_events(runtime: CudaRuntime) -> dict[str, Any]:
    """Events with timing: microseconds of an empty graph's neighbourhood, and of a launch in a graph."""
    with Bench(runtime) as bench:
        graph = bench.captured(lambda: [bench.add() for _ in range(100)])  # type: ignore[arg-type,return-value]
        start, end = (runtime.make_event(timing=True) for _ in range(2))
        took = []
        for _ in range(5):
            runtime.record(start, bench.stream)
            runtime.launch_graph(graph, bench.stream)
            runtime.record(end, bench.stream)
            runtime.synchronize_event(end)
            took.append(runtime.elapsed_ms(start, end))
        bench.expect(500)
        runtime.destroy_graph(graph)
        for event in (start, end):
            runtime.destroy_event(event)
    assert min(took) >= 0
    return {"us_per_kernel_in_a_graph": round(10 * min(took), 3)}


def captures_beside_other_threads(runtime: CudaRuntime) -> dict[str, Any]:
    """Captures in this thread while another one launches, allocates, frees and waits."""
    stop, wrong, turns = threading.Event(), list[BaseException](), [0]

    def other() -> None:
        try:
            with Bench(runtime) as bench:
                while not stop.is_set():
                    bench.add()
                    runtime.free(runtime.allocate(1 << 20))
                    runtime.synchronize_stream(bench.stream)
                    turns[0] += 1
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=other)
    with Bench(runtime) as bench:
        thread.start()
        try:
            for _ in range(3 if gpus_are_emulated() else CAPTURES):
                graph = bench.captured(bench.add)
                runtime.launch_graph(graph, bench.stream)
                runtime.synchronize_stream(bench.stream)
                runtime.destroy_graph(graph)
        finally:
            stop.set()
            thread.join()
        bench.expect(3 if gpus_are_emulated() else CAPTURES)
    if wrong:
        raise wrong[0]
    return {"turns_of_the_other_thread": turns[0]}


def library_in_a_graph(runtime: CudaRuntime, op: str) -> dict[str, Any]:
    """Samples of an op that a library computes: single calls and a graph give the same bits."""
    from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
    from tests.gpu_rig.recording import gpu_samples

    samples = [sample for sample in gpu_samples() if sample.op.name == op]
    if not samples:
        raise NotThereError(f"no op {op} with a kernel for GPUs")
    for sample in samples[:FEW] if gpus_are_emulated() else samples:
        with GpuBench(runtime) as bench:
            call = BoundGpuCall(bench, sample.op, sample.inputs, sample.complete_attrs, sample.state)
            (eager,) = call.run().outputs
            (captured,) = call.run(captured=True).outputs
            assert captured.tobytes() == eager.tobytes(), f"{sample.id}: a graph gives other bits"
    return {"samples": len(samples)}


def memory_is_counted(runtime: CudaRuntime) -> dict[str, Any]:
    """Free memory falls by what is allocated and rises again."""
    nbytes = 64 << 20
    before, total = runtime.memory_info()
    address = runtime.allocate(nbytes)
    during, _ = runtime.memory_info()
    runtime.free(address)
    assert before - during >= nbytes, f"{before - during} bytes less, expected at least {nbytes}"
    return {"free_gib": round(before / 2**30, 2), "total_gib": round(total / 2**30, 2)}


CHECKS: dict[str, Callable[[CudaRuntime], dict[str, Any]]] = {
    "compile, launch, copy": compiles_and_launches,
    "memory is counted": memory_is_counted,
    "a graph replays": replays,
    "streams wait for events": streams_wait_for_events,
    "events measure time": times_with_events,
    "captures beside other threads": captures_beside_other_threads,
    "cuBLAS in a graph": partial(library_in_a_graph, op="MatMul"),
    "cuBLAS, strided batches, in a graph": partial(library_in_a_graph, op="BatchMatMulV2"),
    "cuDNN in a graph": partial(library_in_a_graph, op="Conv2D"),
    "cuDNN, gradient of the filter, in a graph": partial(library_in_a_graph, op="Conv2DBackpropFilter"),
}


def nccl_of_one_rank(recorder: Recorder) -> None:
    """Part: an all-reduce of one rank keeps the vector."""

    def check() -> dict[str, Any]:
        with opened() as (device,), Bench(device.runtime) as bench:
            require_nccl()
            communicators = NcclCommunicators([device.runtime.index])
            bench.add()
            communicators.all_reduce([bench.memory], SIZE, "float32", [bench.stream])
            bench.expect(1)
            communicators.close()
        return {}

    recorder.check("all-reduce of one rank", check)


def lost_context(recorder: Recorder) -> None:
    """Part: a write outside of all memory is reported as sticky. Nothing can be released after it."""

    def check() -> dict[str, Any]:
        runtime = runtimes()[0]
        module = runtime.load_module(runtime.compile(FAR, "far"))
        function, stream = runtime.function(module, "far"), runtime.make_stream()
        value = ctypes.c_uint64(64)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        try:
            runtime.launch(function, (1, 1, 1), (1, 1, 1), 0, stream, ctypes.addressof(arguments))
            runtime.synchronize_stream(stream)
        except CudaError as error:
            if not error.sticky:
                raise AssertionError(f"{error.status} is not known as sticky: {error}") from error
            return {"status": error.status}
        raise AssertionError("a write outside of all memory was not reported")

    recorder.check("is reported as sticky", check, most_s=30.0)
