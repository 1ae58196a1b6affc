from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from tensorbow.devices import Access, CpuDevice, LaunchLog, NullDevice
from tensorbow.errors import CancelledError, FailedPreconditionError, InvalidArgumentError


def fail_if_called() -> None:
    raise AssertionError("the null device computes nothing")


def test_the_log_has_everything_in_order() -> None:
    log = LaunchLog()
    zero, one = NullDevice("/gpu:0", log=log), NullDevice("/gpu:1", log=log)
    first, second = zero.new_stream("first"), one.new_stream("second")
    reads, writes = (Access(256, 16),), (Access(512, 32),)
    first.enqueue(fail_if_called, label="forward", reads=reads, writes=writes)
    event = first.record()
    second.wait(event)
    second.enqueue(fail_if_called, label="reduce")
    second.synchronize()
    event.synchronize()
    assert [(r.stream, r.kind, r.label, r.event) for r in log] == [
        (first, "launch", "forward", None),
        (first, "record", "", event),
        (second, "wait", "", event),
        (second, "launch", "reduce", None),
        (second, "synchronize", "", None),
        (first, "synchronize", "", event),
    ]
    assert log.labels() == ["forward", "reduce"]
    assert (log.launches()[0].reads, log.launches()[0].writes) == (reads, writes)
    assert str(log.records()[0]) == "/gpu:0 first: launch 'forward'"
    assert len(log) == 6
    log.clear()
    assert len(log) == 0


def test_a_bounded_log_keeps_the_newest() -> None:
    stream = NullDevice(log=(log := LaunchLog(2))).new_stream("compute")
    for label in "abc":
        stream.enqueue(fail_if_called, label=label)
    assert log.labels() == ["b", "c"]


def test_events_are_done_at_once() -> None:
    stream = NullDevice().new_stream("compute")
    assert stream.record().done()


def test_addresses_are_made_up_and_views_are_scratch() -> None:
    device = NullDevice()
    group = device.stream_group("replica 0")
    block = group.allocate(1 << 30)
    assert block is not None
    view = device.view(block.address, (3, 4), np.float32)
    view[...] = 1
    assert not device.view(block.address, (3, 4), np.float32).any()


def test_held_events_complete_in_any_order_that_streams_allow() -> None:
    device = NullDevice(hold=True)
    first, second = device.new_stream("first"), device.new_stream("second")
    a, b = first.record(), first.record()
    second.wait(b)
    c = second.record()
    d = first.record()
    assert device.pending() == [a, b, c, d]
    assert device.completable() == [a]
    for event, before in ((b, a), (d, a), (c, b)):
        with pytest.raises(FailedPreconditionError, match=r"complete <NullEvent of .* pending> first"):
            device.complete(event)
        assert not before.done()
    device.complete(a, b)
    assert device.completable() == [c, d]
    device.complete(d)
    device.complete(c)
    assert device.pending() == []
    with pytest.raises(FailedPreconditionError, match="expected a pending event"):
        device.complete(a)
    with pytest.raises(InvalidArgumentError, match="expected an event of /null:0"):
        device.complete(NullDevice("/null:1", hold=True).new_stream("compute").record())


def test_completing_everything() -> None:
    device = NullDevice(hold=True)
    streams = [device.new_stream(f"stream {i}") for i in range(3)]
    events = []
    for i in range(30):
        if events:
            streams[i % 3].wait(events[-1])
        events.append(streams[i % 3].record())
    order: list[object] = []
    for event in events:
        event.on_done(order.append)
    device.complete()
    assert order == events
    with pytest.raises(InvalidArgumentError, match="name the event"):
        device.complete(error=ValueError())


def test_random_completion_reaches_the_end() -> None:
    generator = random.Random(0)
    for _ in range(50):
        devices = [NullDevice(f"/null:{i}", hold=True) for i in range(2)]
        streams = [device.new_stream(name) for device in devices for name in "ab"]
        events = [streams[0].record()]
        for _ in range(40):
            stream = generator.choice(streams)
            stream.wait(generator.choice(events))
            events.append(stream.record())
        while ready := [event for device in devices for event in device.completable()]:
            event = generator.choice(ready)
            event.stream.device.complete(event)
        assert all(event.done() for event in events)


def test_failing_on_purpose_spreads_like_on_a_device() -> None:
    device = NullDevice(hold=True)
    failing, waiting = device.new_stream("failing"), device.new_stream("waiting")
    good, bad, later = failing.record(), failing.record(), failing.record()
    waiting.wait(bad)
    after = waiting.record()
    error = ValueError("the work failed")
    device.complete(good)
    device.complete(bad, error=error)
    with pytest.raises(FailedPreconditionError, match="drained"):
        failing.reset()
    device.complete()
    assert (good.error, bad.error, later.error, after.error) == (None, error, error, error)
    for stream in (failing, waiting):
        with pytest.raises(ValueError, match="the work failed"):
            stream.synchronize()
        stream.reset()
        assert stream.error is None


def test_synchronize_sleeps_until_the_test_completes() -> None:
    device = NullDevice(hold=True)
    stream = device.new_stream("compute")
    event = stream.record()
    with pytest.raises(TimeoutError):
        stream.synchronize(0.01)
    with pytest.raises(TimeoutError):
        event.synchronize(0.01)
    threading.Timer(0.01, device.complete).start()
    stream.synchronize(10)
    assert event.done()


def test_closing_cancels_held_events() -> None:
    device = NullDevice(hold=True)
    stream = device.new_stream("compute")
    events = [stream.record() for _ in range(3)]
    device.close()
    assert all(isinstance(event.error, CancelledError) for event in events)
    with pytest.raises(CancelledError, match="/null:0 compute was closed"):
        events[0].synchronize()


def test_an_unfinished_event_of_another_device_holds_up_a_null_stream() -> None:
    gate = threading.Event()
    with CpuDevice() as cpu:
        worker = cpu.new_stream("worker")
        worker.enqueue(gate.wait, label="gate")
        stream = NullDevice().new_stream("compute")
        stream.wait(worker.record())
        events = [stream.record() for _ in range(3)]
        order: list[object] = []
        for event in events:
            event.on_done(order.append)
        events[0].on_done(lambda _: events.append(stream.record()))
        assert not any(event.done() for event in events)
        gate.set()
        stream.synchronize(10)
        events[2].synchronize(10)
        assert order == events[:3]
        stream.synchronize(10)
        assert events[3].done()
        assert stream.record().done()


def test_a_null_device_needs_a_full_name() -> None:
    with pytest.raises(InvalidArgumentError, match="null device"):
        NullDevice("/null:*")
