"""Captures and graphs of the emulated runtime: what CUDA records, and what ends a recording."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensorbow.devices.cuda_runtime import CudaError
from tests.gpu_rig.rig_kernels import KERNELS, array, broken
from tests.gpu_rig.runtimes import needs_compiler

pytestmark = needs_compiler


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
