"""Stage 4: the host's time, per call of CUDA and per round, and the modes of replicas against one another."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ours import Training
from replica_modes import Ways

from first_hour.engines import split, training
from first_hour.gpus import opened
from first_hour.probe import Bench
from first_hour.records import Recorder
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime

CHUNKS = 20  # of a loop of calls, of which the median counts
MODEST = 200  # calls in flight before the loop waits, so that the queue of the driver is not full
WARM_ROUNDS = 6
COUNTED_ROUNDS, MOST_COUNTED = 16, 4  # rounds, and replicas, of which calls are counted
TURNS = 3


def calls(recorder: Recorder, number: int) -> None:
    """Part: microseconds of the host for each call that a round may make, in a tight loop."""
    with opened() as (device,):
        runtime = device.runtime
        with Bench(runtime) as bench:
            event, other = runtime.make_event(), runtime.make_stream()
            graph = bench.captured(bench.add)
            long = bench.captured(lambda: _times(bench.add, 30))
            nothing, stream = 16, bench.stream
            runtime.record(event, stream)
            loops: dict[str, Callable[[], object]] = {
                "launch a kernel": bench.add,
                "launch a graph of 1 kernel": lambda: runtime.launch_graph(graph, stream),
                "launch a graph of 30 kernels": lambda: runtime.launch_graph(long, stream),
                "record an event": lambda: runtime.record(event, stream),
                "query an event": lambda: runtime.is_done(event),
                "let a stream wait": lambda: runtime.wait(other, event),
                "copy 16 bytes to the GPU": lambda: runtime.copy(
                    bench.memory, bench.pinned, nothing, CopyKind.HOST_TO_DEVICE, stream
                ),
                "copy 16 bytes from the GPU": lambda: runtime.copy(
                    bench.pinned, bench.memory, nothing, CopyKind.DEVICE_TO_HOST, stream
                ),
                "fill 16 bytes": lambda: runtime.fill(bench.memory, 0, nothing, stream),
                "make and destroy an event": lambda: runtime.destroy_event(runtime.make_event()),
                "wait for an idle stream": lambda: runtime.synchronize_stream(stream),
                "make the GPU current": runtime.make_current,
            }
            for name, call in loops.items():
                recorder.check(name, lambda call=call: _per_call(runtime, stream, call, number))  # type: ignore[misc]
            for made in (graph, long):
                runtime.destroy_graph(made)
            runtime.synchronize_stream(other)
            runtime.destroy_stream(other)
            runtime.destroy_event(event)


def _times(call: Callable[[], object], number: int) -> None:
    for _ in range(number):
        call()


def _per_call(runtime: CudaRuntime, stream: int, call: Callable[[], object], number: int) -> dict[str, Any]:
    chunk, taken = max(1, min(MODEST, number // CHUNKS)), []
    for _ in range(CHUNKS):
        runtime.synchronize_stream(stream)
        started = time.perf_counter_ns()
        _times(call, chunk)
        taken.append((time.perf_counter_ns() - started) / 1e3 / chunk)
    runtime.synchronize_stream(stream)
    return {"us": round(statistics.median(taken), 3)}


def _counting(counts: Counter[str], name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        counts[name] += 1
        return usual(*arguments, **options)

    return call


@contextmanager
def counted(runtime: CudaRuntime) -> Iterator[Counter[str]]:
    """Counts the calls of a runtime, by name, while the context lasts."""
    counts: Counter[str] = Counter()
    names = [name for name, member in vars(CudaRuntime).items() if name[0] != "_" and callable(member)]
    for name in names:
        setattr(runtime, name, _counting(counts, name, getattr(runtime, name)))
    try:
        yield counts
    finally:
        for name in names:
            delattr(runtime, name)  # uncovers the method of the class


def timed_rounds(trained: Training, ways: Ways, most_s: float) -> tuple[float, float, float]:
    """Microseconds of a round: wall time, this thread's and the process's. most_s: of all rounds, about."""
    few = WARM_ROUNDS * ways.rounds_per_launch
    started = time.perf_counter()
    trained.run_rounds(few)
    rate = few / (time.perf_counter() - started)
    number = ways.rounds_per_launch * max(4, int(rate * most_s / ways.rounds_per_launch))
    marks = time.perf_counter(), time.thread_time(), time.process_time()
    trained.run_rounds(number)
    now = time.perf_counter(), time.thread_time(), time.process_time()
    wall, driver, process = (1e6 * (b - a) / number for a, b in zip(marks, now, strict=True))
    return wall, driver, process


def calls_of_rounds(case: str, replicas: int, ways: Ways, sync: str, number: int) -> dict[str, float]:
    """Calls of a runtime in a round, by name, of an engine of its own: counting them takes time, too."""
    with (
        opened() as (device,),
        counted(device.runtime) as calls_made,
        training(case, [device], replicas, ways, sync) as trained,
    ):
        trained.run_rounds(WARM_ROUNDS * ways.rounds_per_launch)
        before = Counter(calls_made)
        trained.run_rounds(number)
        made = calls_made - before
    return {name: round(count / number, 2) for name, count in sorted(made.items())}


def rounds(
    recorder: Recorder,
    case: str,
    mode: str,
    counts: Sequence[int],
    rounds_per_launch: Sequence[int],
    sync: str,
    most_s: float,
) -> None:
    """Part: a mode's time of a round, the host's, and calls, by numbers of replicas and rounds a launch."""
    for count in counts:
        for steps in rounds_per_launch:
            ways = Ways(mode, steps)
            if ways.missing:
                continue

            def check(count: int = count, ways: Ways = ways) -> dict[str, Any]:
                with opened() as (device,), training(case, [device], count, ways, sync) as trained:
                    wall, driver, process = min(timed_rounds(trained, ways, most_s) for _ in range(TURNS))
                calls_made: dict[str, float] = {}
                if count <= MOST_COUNTED:  # that tells how they grow
                    few = max(COUNTED_ROUNDS, 2 * ways.rounds_per_launch)
                    calls_made = calls_of_rounds(case, count, ways, sync, few)
                _, batch_size = split(case)
                return {
                    "replicas": count,
                    "mode": ways.title,
                    "images_per_second": round(1e6 * count * batch_size / wall),
                    "us_per_round": round(wall, 2),
                    "driver_thread_us_per_round": round(driver, 2),
                    "process_us_per_round": round(process, 2),
                    "driver_thread_us_per_round_and_replica": round(driver / count, 2),
                    "calls_per_round": calls_made,
                }

            recorder.check(f"{case} x {count}, {sync}, {ways.title}", check, needs_s=3.0)
