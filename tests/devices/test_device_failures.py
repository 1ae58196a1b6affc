"""Failed and closing CPU streams: nothing runs on garbage, nobody waits in vain."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from tensorbow.devices import CpuDevice, Event, NullDevice
from tensorbow.errors import CancelledError, FailedPreconditionError


class BoomError(Exception):
    pass


def boom() -> None:
    raise BoomError("boom")


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice() as opened:
        yield opened


def test_later_work_is_skipped_and_later_events_carry_the_error(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    ran: list[str] = []
    stream.enqueue(lambda: ran.append("before"), label="before")
    good = stream.record()
    stream.enqueue(boom, label="relu_3")
    stream.enqueue(lambda: ran.append("after"), label="after")
    bad = stream.record()
    with pytest.raises(BoomError):
        stream.synchronize(10)
    with pytest.raises(BoomError):
        bad.synchronize(10)
    good.synchronize(10)
    assert ran == ["before"]
    assert good.error is None
    assert bad.error is stream.error
    if sys.version_info >= (3, 11):
        assert "raised by 'relu_3' on stream /cpu:0 compute" in stream.error.__notes__


def test_a_failure_spreads_to_streams_that_wait_for_it_and_no_further(device: CpuDevice) -> None:
    names = ("failing", "waiting", "waiting for that", "other")
    failing, waiting, second, other = (device.new_stream(name) for name in names)
    ran: list[str] = []
    before = failing.record()
    failing.enqueue(boom, label="boom")
    waiting.wait(failing.record())
    waiting.enqueue(lambda: ran.append("waiting"), label="garbage")
    second.wait(waiting.record())
    second.enqueue(lambda: ran.append("second"), label="garbage")
    other.wait(before)
    other.enqueue(lambda: ran.append("other"), label="fine")
    for stream in (waiting, second):
        with pytest.raises(BoomError):
            stream.synchronize(10)
        assert stream.error is failing.error
    other.synchronize(10)
    assert ran == ["other"]


def test_waiting_for_an_event_that_failed_long_ago(device: CpuDevice) -> None:
    failing, waiting = device.new_stream("failing"), device.new_stream("waiting")
    failing.enqueue(boom, label="boom")
    event = failing.record()
    with pytest.raises(BoomError):
        event.synchronize(10)
    waiting.wait(event)
    with pytest.raises(BoomError):
        waiting.synchronize(10)


def test_reset_after_draining(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    ran: list[int] = []
    for i in range(50):
        stream.enqueue(boom, label="boom")
        with pytest.raises(BoomError):
            stream.synchronize(10)
        stream.reset()
        stream.enqueue(lambda i=i: ran.append(i), label="work")
        stream.synchronize(10)
    assert ran == list(range(50))


def test_reset_is_refused_while_work_is_left(device: CpuDevice) -> None:
    gate = threading.Event()
    stream = device.new_stream("compute")
    stream.enqueue(gate.wait, label="gate")
    with pytest.raises(FailedPreconditionError, match=r"expected a drained stream to reset, got 1 items"):
        stream.reset()
    gate.set()


def test_a_failing_delay_is_a_failure_of_the_work() -> None:
    with CpuDevice(delay=boom) as device:
        stream = device.new_stream("compute")
        stream.enqueue(lambda: None, label="work")
        with pytest.raises(BoomError):
            stream.synchronize(10)


def test_close_drains_and_does_not_raise(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    ran: list[int] = []
    for i in range(100):
        stream.enqueue(lambda i=i: ran.append(i), label="work")
    stream.enqueue(boom, label="boom")
    event = stream.record()
    stream.close()
    assert ran == list(range(100))
    assert isinstance(event.error, BoomError)
    with pytest.raises(BoomError):
        stream.synchronize()


def test_close_without_draining_cancels_what_has_not_started(device: CpuDevice) -> None:
    stream, waiting = device.new_stream("compute"), device.new_stream("waiting")
    started, gate = threading.Event(), threading.Event()
    ran: list[str] = []

    def block() -> None:
        started.set()
        gate.wait()

    stream.enqueue(block, label="block")
    stream.enqueue(lambda: ran.append("late"), label="late")
    event = stream.record()
    waiting.wait(event)
    after = waiting.record()
    assert started.wait(10)
    stream.begin_close(drain=False)
    gate.set()
    for cancelled in (event, after):
        with pytest.raises(CancelledError, match="/cpu:0 compute: work was given up"):
            cancelled.synchronize(10)
    stream.close()
    assert not ran


@pytest.mark.parametrize("drain", [True, False])
def test_close_does_not_wait_for_what_only_the_program_completes(device: CpuDevice, drain: bool) -> None:
    with NullDevice(hold=True) as held:
        never = held.new_stream("never").record()
        stream, second = device.new_stream("compute"), device.new_stream("second")
        ran: list[str] = []
        stream.wait(never)
        stream.enqueue(lambda: ran.append("garbage"), label="garbage")
        event = stream.record()
        second.wait(event)
        with pytest.raises(TimeoutError):
            second.synchronize(0.02)
        device.close(drain=drain)
        assert isinstance(event.error, CancelledError)
        assert isinstance(second.error, CancelledError)
        assert not ran
        assert not never.done()


def test_closing_the_other_device_breaks_the_wait(device: CpuDevice) -> None:
    held = NullDevice(hold=True)
    stream = device.new_stream("compute")
    stream.wait(held.new_stream("never").record())
    threading.Timer(0.02, held.close).start()
    with pytest.raises(CancelledError, match="/null:0 never was closed"):
        stream.synchronize(10)


def test_closing_streams_that_wait_for_each_other_in_both_orders() -> None:
    for turn in (1, -1):
        device = CpuDevice()
        streams = [device.new_stream(f"stream {i}") for i in range(4)]
        events: list[Event] = []
        for i in range(400):
            stream = streams[i % 4]
            if events:
                stream.wait(events[-1])
            stream.enqueue(lambda: None, label="work")
            events.append(stream.record())
        for stream in streams[::turn]:
            stream.close()
        assert all(event.done() and event.error is None for event in events)
        device.close()


def test_close_from_a_stream_thread_does_not_join(device: CpuDevice) -> None:
    first, second = device.new_stream("first"), device.new_stream("second")
    first.enqueue(second.close, label="close second")
    second.enqueue(first.close, label="close first")
    first.enqueue(first.close, label="close itself")
    device.close()
    assert first.closed
    assert second.closed


@pytest.mark.slow
def test_closing_while_others_enqueue_loses_no_event() -> None:
    for _ in range(20):
        device = CpuDevice()
        stream = device.new_stream("compute")
        events: list[Event] = []

        def feed(stream=stream, events=events) -> None:  # type: ignore[no-untyped-def]
            try:
                while True:
                    events.append(stream.record())
            except FailedPreconditionError:
                pass

        threads = [threading.Thread(target=feed) for _ in range(2)]
        for thread in threads:
            thread.start()
        device.close()
        for thread in threads:
            thread.join(10)
        assert all(event.done() for event in events)


def test_leaving_a_device_by_an_error_does_not_drain() -> None:
    gate = threading.Event()
    ran: list[str] = []
    with pytest.raises(BoomError), CpuDevice() as device:  # noqa: PT012
        stream = device.new_stream("compute")
        stream.enqueue(gate.wait, label="gate")
        stream.enqueue(lambda: ran.append("late"), label="late")
        threading.Timer(0.02, gate.set).start()
        raise BoomError
    assert not ran
