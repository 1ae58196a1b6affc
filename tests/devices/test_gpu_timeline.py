"""Spans of GPU streams, on the emulated runtime."""

from __future__ import annotations

import threading

import pytest

import tensorbow.devices.gpu_timeline as gpu_timeline
from tensorbow.devices import CpuDevice, GpuDevice
from tensorbow.errors import TensorBowError
from tensorbow.timeline import Tracer
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime

PATIENCE_S = 60


@pytest.fixture
def tracer():
    made = Tracer()
    yield made
    made.stop()


def enqueue(runtime, stream, label, run=lambda: None):
    stream.enqueue(lambda: runtime.enqueue(stream.handle, "launch", label, run), label=label)


def test_work_on_two_gpu_streams_overlaps_in_the_trace(runtime, tracer):
    started = [threading.Event(), threading.Event()]

    def meet(mine, other):
        started[mine].set()
        assert started[other].wait(PATIENCE_S)

    with GpuDevice("/gpu:0", runtime) as device:
        tracer.start()
        first, second = device.new_stream("first"), device.new_stream("second")
        enqueue(runtime, first, "left", lambda: meet(0, 1))
        enqueue(runtime, second, "right", lambda: meet(1, 0))
        enqueue(runtime, first, "after")
        tracer.stop()
    spans = {span.name: span for span in tracer.spans}
    left, right, after = spans["left"], spans["right"], spans["after"]
    assert max(left.start_s, right.start_s) < min(left.end_s, right.end_s)
    assert left.end_s <= after.start_s <= after.end_s
    assert (left.track.device, left.track.stream) == ("/gpu:0", "first")
    assert after.track is left.track is not right.track


def test_enqueueing_does_not_wait_and_the_gpu_wait_is_a_span(runtime, tracer, monkeypatch):
    monkeypatch.setattr(gpu_timeline, "SHORTEST_WAIT_S", 0.0)
    go = threading.Event()
    with GpuDevice("/gpu:0", runtime) as device:
        tracer.start()
        slow, waiting = device.new_stream("slow"), device.new_stream("waiting")
        enqueue(runtime, slow, "held up", lambda: go.wait(PATIENCE_S))
        waiting.wait(slow.record())
        enqueue(runtime, waiting, "after")
        enqueue(runtime, waiting, "last")
        assert tracer.spans == []  # all of it is enqueued, none of it has come through
        go.set()
        tracer.stop()
    spans = {span.name: span for span in tracer.spans}
    assert spans["wait for /gpu:0 slow"].category == "wait"
    assert spans["wait for /gpu:0 slow"].end_s <= spans["after"].start_s
    assert spans["after"].end_s <= spans["last"].start_s


def test_a_wait_that_was_none_is_left_out(runtime, tracer, monkeypatch):
    monkeypatch.setattr(gpu_timeline, "SHORTEST_WAIT_S", 1e6)
    held = threading.Event()
    with GpuDevice("/gpu:0", runtime) as device:
        tracer.start()
        first, second = device.new_stream("first"), device.new_stream("second")
        enqueue(runtime, first, "work", lambda: held.wait(PATIENCE_S))
        second.wait(first.record())
        held.set()
        tracer.stop()
    assert [span.name for span in tracer.spans] == ["work"]


def test_a_wait_for_another_kind_of_device_puts_spans_off_too(runtime, tracer):
    go = threading.Event()
    with CpuDevice() as host, GpuDevice("/gpu:0", runtime) as device:
        tracer.start()
        slow, stream = host.new_stream("slow"), device.new_stream("s")
        slow.enqueue(lambda: go.wait(PATIENCE_S), label="on the host")
        stream.wait(slow.record())
        enqueue(runtime, stream, "on the GPU")
        go.set()
        stream.synchronize()
        tracer.stop()
    spans = {span.name: span for span in tracer.spans}
    assert set(spans) == {"on the host", "on the GPU"}


def test_spans_are_resolved_in_batches_and_their_events_used_again(runtime, tracer, monkeypatch):
    monkeypatch.setattr(gpu_timeline, "BATCH", 4)
    with GpuDevice("/gpu:0", runtime) as device:
        stream = device.new_stream("s")
        tracer.start()
        for number in range(200):
            enqueue(runtime, stream, f"work {number}")
            runtime.synchronize_stream(stream.handle)
        made, early = runtime.counts["make_event"], len(tracer.spans)
        tracer.stop()
    assert early >= 196
    assert made < 20
    assert [span.name for span in tracer.spans] == [f"work {number}" for number in range(200)]
    assert all(a.end_s <= b.start_s for a, b in zip(tracer.spans, tracer.spans[1:], strict=False))


def test_a_new_base_is_taken_when_the_last_is_old(runtime, tracer, monkeypatch):
    monkeypatch.setattr(gpu_timeline, "BASE_LIFE_S", 0.0)
    with GpuDevice("/gpu:0", runtime) as device:
        stream = device.new_stream("s")
        tracer.start()
        streams = runtime.counts["make_stream"]
        for number in range(10):
            enqueue(runtime, stream, f"work {number}")
        assert runtime.counts["make_stream"] - streams == 10
        tracer.stop()
    assert len(tracer.spans) == 10
    assert all(a.end_s <= b.start_s for a, b in zip(tracer.spans, tracer.spans[1:], strict=False))


def test_off_makes_no_timing_events(runtime):
    with GpuDevice("/gpu:0", runtime) as device:
        stream = device.new_stream("s")
        for number in range(5):
            enqueue(runtime, stream, f"work {number}")
        runtime.synchronize_stream(stream.handle)
        assert runtime.counts["make_event"] == runtime.counts["record"] == runtime.counts["elapsed_ms"] == 0


@pytest.mark.parametrize("kind", ["make_event", "record", "make_stream", "synchronize_event"])
def test_a_failing_call_costs_spans_and_not_the_work(runtime, tracer, kind):
    ran = []
    with GpuDevice("/gpu:0", runtime) as device:
        stream = device.new_stream("s")
        tracer.start()
        runtime.fail_next(kind)
        for number in range(3):
            enqueue(runtime, stream, f"work {number}", lambda number=number: ran.append(number))
        runtime.synchronize_stream(stream.handle)
        tracer.stop()
        assert stream.error is None
    assert ran == [0, 1, 2]
    assert [span.name for span in tracer.spans] == ["work 1", "work 2"]


def test_work_that_cannot_be_enqueued_gives_its_events_back(runtime, tracer):
    def refuse():
        raise ValueError("no")

    with GpuDevice("/gpu:0", runtime) as device:
        stream = device.new_stream("s")
        tracer.start()
        stream.enqueue(refuse, label="bad")
        with pytest.raises(ValueError, match="no"):
            stream.synchronize()
        tracer.stop()
    assert tracer.spans == []  # and the fixture finds no event left


def test_a_gpu_that_is_lost_while_traced_lets_the_trace_end(tracer):
    with emulated_runtime() as good, GpuDevice("/gpu:1", good) as device:
        tracer.start()
        enqueue(good, device.new_stream("s"), "good")
        broken = EmulatedCuda()
        try:
            lost = GpuDevice("/gpu:0", broken)
            stream = lost.new_stream("s")
            enqueue(broken, stream, "fine")
            broken.fail_next("launch", sticky=True)
            enqueue(broken, stream, "the end")
            with pytest.raises(TensorBowError):
                stream.synchronize()
            tracer.stop()
            lost.close()
        finally:
            broken.close()
    assert "good" in {span.name for span in tracer.spans}
