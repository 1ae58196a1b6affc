from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_info

from tensorbow.devices import CpuDevice, Event, Stream
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    with CpuDevice() as opened:
        yield opened


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_work_runs_in_order_on_one_thread(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    seen: list[tuple[int, str]] = []
    for i in range(500):
        stream.enqueue(lambda i=i: seen.append((i, threading.current_thread().name)), label=f"work {i}")
    stream.synchronize(10)
    assert seen == [(i, "tensorbow /cpu:0 compute") for i in range(500)]


def test_enqueue_and_wait_do_not_block_the_host(device: CpuDevice) -> None:
    gate = threading.Event()
    first, second = device.new_stream("first"), device.new_stream("second")
    first.enqueue(gate.wait, label="gate")
    event = first.record()
    second.wait(event)
    after = second.record()
    with pytest.raises(TimeoutError, match=r"/cpu:0 second: not done after 0\.02 s"):
        after.synchronize(0.02)
    assert not event.done()
    with pytest.raises(FailedPreconditionError, match="pending"):
        _ = event.time_s
    gate.set()
    after.synchronize(10)
    assert event.time_s <= after.time_s


def test_streams_meet_only_at_events(device: CpuDevice) -> None:
    streams = [device.new_stream(f"stream {i}") for i in range(3)]
    order: list[str] = []
    for round_number in range(200):
        for i, stream in enumerate(streams):
            stream.enqueue(lambda i=i, r=round_number: order.append(f"{r}.{i}"), label="work")
            streams[(i + 1) % 3].wait(stream.record())
    for stream in streams:
        stream.synchronize(10)
    assert order == [f"{r}.{i}" for r in range(200) for i in range(3)]


def run_program(seed: int, streams: list[Stream], num_cells: int = 5, num_works: int = 30) -> list[int]:
    """Order-sensitive work on random streams, each conflict ordered by events; the cells at the end."""
    generator = random.Random(seed)
    cells = list(range(num_cells))
    last_write: dict[int, Event] = {}
    reads: dict[int, list[Event]] = {cell: [] for cell in range(num_cells)}
    for step in range(num_works):
        stream = generator.choice(streams)
        source, target = generator.sample(range(num_cells), 2)
        for event in (last_write.get(source), last_write.get(target), *reads[target]):
            if event is not None:
                stream.wait(event)

        def work(source: int = source, target: int = target, step: int = step) -> None:
            cells[target] = (31 * cells[target] + 7 * cells[source] + step) % 1_000_003

        stream.enqueue(work, label=f"work {step}")
        event = stream.record()
        reads[source].append(event)
        last_write[target], reads[target] = event, []
    for stream in streams:
        stream.synchronize(10)
    return cells


@pytest.mark.slow
def test_the_same_result_under_any_timing() -> None:
    jitter = random.Random(1)

    def delay() -> None:
        if jitter.random() < 0.5:
            time.sleep(jitter.random() * 4e-4)

    with CpuDevice("/cpu:0", delay=delay) as zero, CpuDevice("/cpu:1", delay=delay) as one:
        streams = [device.new_stream(name) for device in (zero, one) for name in ("a", "b")]
        for seed in range(10):
            expected = run_program(seed, streams[:1])
            for _ in range(10):
                assert run_program(seed, streams) == expected


def test_callbacks_may_enqueue_and_may_fail(device: CpuDevice, caplog: pytest.LogCaptureFixture) -> None:
    stream = device.new_stream("compute")
    gate, seen = threading.Event(), threading.Event()
    stream.enqueue(gate.wait, label="gate")
    event = stream.record()

    def fail(event: Event) -> None:
        raise ValueError("a bug in the callback")

    event.on_done(fail)
    event.on_done(lambda _: stream.enqueue(seen.set, label="follow-up"))
    gate.set()
    assert seen.wait(10)
    stream.synchronize(10)
    assert "a bug in the callback" in caplog.text
    assert "the event of /cpu:0 compute" in caplog.text


def test_a_timed_out_wait_leaves_nothing_behind(device: CpuDevice) -> None:
    gate = threading.Event()
    stream = device.new_stream("compute")
    stream.enqueue(gate.wait, label="gate")
    event = stream.record()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            event.synchronize(0.001)
    assert not event._callbacks
    gate.set()
    event.synchronize(10)


def test_many_threads_may_enqueue(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    counts = [0] * 4

    def feed(i: int) -> None:
        def add() -> None:
            counts[i] += 1

        for _ in range(300):
            stream.enqueue(add, label="add")
            stream.record()

    threads = [threading.Thread(target=feed, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.synchronize(10)
    assert counts == [300] * 4


def test_a_stream_cannot_wait_for_itself(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    stream.enqueue(stream.synchronize, label="synchronize")
    with pytest.raises(FailedPreconditionError, match="from another thread"):
        stream.synchronize(10)


def test_a_dropped_stream_drains_and_ends(device: CpuDevice) -> None:
    stream = device.new_stream("dropped")
    thread = stream._thread  # type: ignore[attr-defined]
    gate, seen = threading.Event(), threading.Event()
    stream.enqueue(gate.wait, label="gate")
    stream.enqueue(seen.set, label="last")
    event = stream.record()
    del stream
    gc.collect()
    gate.set()
    event.synchronize(10)
    assert seen.is_set()
    thread.join(10)
    assert not thread.is_alive()


def test_an_idle_stream_holds_nothing(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    gone = threading.Event()

    class Payload:
        def __del__(self) -> None:
            gone.set()

    payload = Payload()
    stream.enqueue(lambda payload=payload: None, label="work")
    del payload
    stream.synchronize(10)
    assert gone.wait(10)


def test_blas_has_one_thread_while_a_stream_is_open() -> None:
    before = blas_threads()
    with CpuDevice("/cpu:0") as zero, CpuDevice("/cpu:1") as one:
        zero.new_stream("a").close()
        assert blas_threads() == before
        streams = [zero.new_stream("a"), one.new_stream("b")]
        assert all(count == 1 for count in blas_threads())
        streams[0].close()
        assert all(count == 1 for count in blas_threads())
    assert blas_threads() == before


@pytest.mark.parametrize("name", ["/gpu:0", "/cpu:*", "/job:worker"])
def test_only_cpu_names(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a name such as '/cpu:0'"):
        CpuDevice(name)


def test_work_may_run_in_the_calling_thread_in_its_turn() -> None:
    with CpuDevice("/cpu:0") as device:
        stream = device.new_stream("s")
        seen: list[tuple[str, int]] = []

        def note(name: str) -> None:
            seen.append((name, threading.get_ident()))

        gate = threading.Event()
        stream.enqueue(gate.wait, label="gate")
        assert stream.run_here(lambda: note("early"), label="early") is None
        stream.enqueue(lambda: note("thread"), label="thread")
        gate.set()
        stream.synchronize()
        done = stream.run_here(lambda: note("here"), label="here")
        assert done is not None
        assert done.done()
        assert done.error is None
        assert [name for name, _ in seen] == ["thread", "here"]
        assert seen[1][1] == threading.get_ident() != seen[0][1]
        failed = stream.run_here(lambda: 1 // 0, label="division")
        assert failed is not None
        assert isinstance(failed.error, ZeroDivisionError)
        again = stream.run_here(lambda: note("skipped"), label="skipped")
        assert again is not None
        assert again.error is failed.error
        with pytest.raises(ZeroDivisionError):
            stream.synchronize()
        stream.reset()
        stream.close()
        assert stream.run_here(lambda: note("late"), label="late") is None
        assert len(seen) == 2


def test_work_in_two_threads_at_once_goes_in_turns() -> None:
    with CpuDevice("/cpu:0") as device:
        stream = device.new_stream("s")
        count, busy = [0], [0]

        def step() -> None:
            assert not busy[0]
            busy[0] = 1
            value = count[0]
            time.sleep(0)
            count[0] = value + 1
            busy[0] = 0

        here = 0
        for _ in range(2000):
            if stream.run_here(step, label="here") is not None:
                here += 1
            else:
                stream.enqueue(step, label="there")
            stream.enqueue(step, label="there")
        stream.synchronize()
        assert count[0] == 4000
        assert here
        stream.close()


def test_submitted_work_has_an_event(device: CpuDevice) -> None:
    stream = device.new_stream("compute")
    done: list[str] = []
    stream.enqueue(lambda: done.append("before"), label="work")
    event = stream.submit(lambda: done.append("submitted"), label="work")
    stream.enqueue(lambda: done.append("after"), label="work")
    event.synchronize(5)
    assert done[:2] == ["before", "submitted"]
    assert event.done()
    stream.synchronize(5)
    assert done == ["before", "submitted", "after"]


def test_submitted_work_that_fails_is_the_error_of_its_event_and_of_those_after(device: CpuDevice) -> None:
    stream = device.new_stream("compute")

    def fails() -> None:
        raise OSError("ill")

    events = [stream.submit(work, label="work") for work in (lambda: None, fails, lambda: None)]
    with pytest.raises(OSError, match="ill"):
        events[-1].synchronize(5)
    assert events[0].error is None
    assert [type(event.error) for event in events[1:]] == [OSError, OSError]
    with pytest.raises(OSError, match="ill"):
        stream.synchronize(5)
    stream.reset()
    stream.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        stream.submit(lambda: None, label="work")
