"""Stage 3: how far replicas overlap on the GPU when the host is no limit.

The captured steps of k independent replicas are launched in a tight loop, each on its own stream, without
scheduler or batches; events around the whole give the GPU's time. If the host needs as long to launch as the
GPU to compute, the row says so: then the host was the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from replica_modes import TASKS, Ways

from first_hour.engines import captured_graphs, plans_of, split, training
from first_hour.gpus import opened
from first_hour.records import NotThereError, Recorder
from first_hour.steps import WARM_ROUNDS
from tensorbow.devices.cuda_runtime import CudaRuntime

TURNS = 3
BURST = 200  # launches
HOST_BOUND = 0.9  # share of the GPU's time that the host's launches took


def gpu_ms(runtime: CudaRuntime, streams: Sequence[int], work: Callable[[], None]) -> float:
    """Milliseconds on the GPU of work on these streams, from their common start to the last end."""
    start, end = (runtime.make_event(timing=True) for _ in range(2))
    joins = [runtime.make_event() for _ in streams[1:]]
    try:
        runtime.record(start, streams[0])
        for stream in streams[1:]:
            runtime.wait(stream, start)
        work()
        for stream, join in zip(streams[1:], joins, strict=True):
            runtime.record(join, stream)
            runtime.wait(streams[0], join)
        runtime.record(end, streams[0])
        runtime.synchronize_event(end)
        return runtime.elapsed_ms(start, end)
    finally:
        for event in (start, end, *joins):
            runtime.destroy_event(event)


def side_by_side(recorder: Recorder, case: str, counts: Sequence[int], loops: int) -> None:
    """Part: rates of k replicas' graphs side by side, for each k; in a process with its own connections."""
    for count in counts:

        def check(count: int = count) -> dict[str, Any]:
            with (
                opened() as (device,),
                training(case, [device], count, Ways(TASKS), "none") as trained,
            ):
                trained.run_rounds(WARM_ROUNDS)
                plans = plans_of(trained)
                steps = [(plan.stream, captured_graphs(plan)) for plan in plans]
                if not all(graphs for _, graphs in steps):
                    raise NotThereError("replicas have no graphs of their own in this mode")
                return measured(device.runtime, steps, case, loops)

        recorder.check(f"{case} x {count}", check)


def measured(
    runtime: CudaRuntime, steps: Sequence[tuple[int, Sequence[int]]], case: str, loops: int
) -> dict[str, Any]:
    """Figures of graphs launched in a tight loop. steps: stream and graphs of each replica.

    The host's time is that of a burst that fits into CUDA's queues: behind full ones a launch waits.
    """
    launch, streams, host_s = runtime.launch_graph, [stream for stream, _ in steps], 0.0

    def loop(times: int) -> None:
        nonlocal host_s
        started = time.perf_counter()
        for _ in range(times):
            for stream, graphs in steps:
                for graph in graphs:
                    launch(graph, stream)
        host_s = time.perf_counter() - started

    few = min(loops, max(1, BURST // sum(len(graphs) for _, graphs in steps)))
    gpu_ms(runtime, streams, lambda: loop(few))
    gpu_ms(runtime, streams, lambda: loop(few))
    host_ms = 1e3 * host_s / few * loops
    took_ms = min(gpu_ms(runtime, streams, lambda: loop(loops)) for _ in range(TURNS))
    tasks, (_, batch_size) = loops * len(steps), split(case)
    return {
        "us_per_round": round(1e3 * took_ms / loops, 2),
        "tasks_per_second": round(1e3 * tasks / took_ms) if took_ms else None,
        "images_per_second": round(1e3 * tasks * batch_size / took_ms) if took_ms else None,
        "host_us_per_task": round(1e3 * host_ms / tasks, 2),
        "host_bound": host_ms > HOST_BOUND * took_ms,
    }
