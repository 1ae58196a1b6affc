"""Replays the graphs of several replicas of LeNet in a tight loop, batches of 4, not averaged.

python -m tests.gpu_rig.overlapping_graphs REPLICAS

Prints rounds per second by the GPU's clock, and microseconds of the host per launch: where a round's launches
take the host as long as the round takes the GPU, the host is what was measured.
"""

from __future__ import annotations

import sys
import time

from tensorbow.devices import GpuDevice
from tensorbow.devices.cuda_runtime import CudaRuntime
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.scheduler_rig.running import Prepared, engine_of

WARM_ROUNDS = 3


def main(replicas: int) -> None:
    """Prints the two figures as the last words."""
    runtime = real_runtime()
    rounds = 3 if is_emulated(runtime) else 1000
    model = classifier("lenet", batch_size=4)
    batch = model.batch(0, 0)
    launches: list[tuple[int, int]] = []
    launch = runtime.launch_graph

    def recorded(graph: int, stream: int) -> None:
        launches.append((graph, stream))
        launch(graph, stream)

    with engine_of(model, [GpuDevice("/gpu:0", runtime)], replicas, sync="none") as engine:
        source = Prepared(lambda round, replica: batch, replicas)
        engine.run(source.open, 0, WARM_ROUNDS)
        runtime.launch_graph = recorded  # type: ignore[method-assign]
        engine.run(source.open, WARM_ROUNDS, WARM_ROUNDS + 1)
        runtime.launch_graph = launch  # type: ignore[method-assign]
        if not launches:
            raise AssertionError("a round launched no graph")
        print(*measured(runtime, launches, rounds))


def measured(runtime: CudaRuntime, launches: list[tuple[int, int]], rounds: int) -> tuple[float, float]:
    """Rounds per second on the GPU, and microseconds of the host per launch."""
    first, *others = dict.fromkeys(stream for _, stream in launches)
    start, end = (runtime.make_event(timing=True) for _ in range(2))
    ended = [runtime.make_event() for _ in others]
    runtime.record(start, first)
    for stream in others:
        runtime.wait(stream, start)
    launch, began_s = runtime.launch_graph, time.perf_counter()
    for _ in range(rounds):
        for graph, stream in launches:
            launch(graph, stream)
    host_us = (time.perf_counter() - began_s) * 1e6 / rounds / len(launches)
    for stream, event in zip(others, ended, strict=True):
        runtime.record(event, stream)
        runtime.wait(first, event)
    runtime.record(end, first)
    runtime.synchronize_event(end)
    rate = rounds / runtime.elapsed_ms(start, end) * 1e3
    for event in (start, end, *ended):
        runtime.destroy_event(event)
    return rate, host_us


if __name__ == "__main__":
    main(int(sys.argv[1]))
