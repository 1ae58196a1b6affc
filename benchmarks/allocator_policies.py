"""Best fit with coalescing against one driver call per tensor, on one trace of allocations and frees.

    python benchmarks/allocator_policies.py [--steps 40] [--tensors 60] [--driver-us 50] [--json FILE]

The trace is that of training steps: tensors of a few sizes are made on the way forward and freed on the
way back, some of another step's size in between, as a last, smaller batch makes them. The driver is
simulated: each of its calls takes `--driver-us` microseconds of waiting, about what cudaMalloc costs on an
idle device, and gives addresses without memory behind them. Of the best-fit allocator a run without driver
cost is shown, too: what its own bookkeeping takes.

Where there is a GPU, the same trace runs on it, with both allocators of a GPU device: cudaMalloc and cudaFree
for every tensor, on a GPU that has nothing else to do, against best fit (Budea 2019, figure 4.2).
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any

from allocators import Allocation, Allocator, BestFitAllocator, DriverAllocator, VirtualSource
from tensorbow.devices import GpuDevice, gpu_status
from tensorbow.devices.cuda_runtime import CudaRuntime

MIB = 1 << 20
WINDOWS = 5


class SlowSource(VirtualSource):
    """A source whose every call takes a while."""

    def __init__(self, driver_us: float) -> None:
        super().__init__()
        self._driver_s = driver_us * 1e-6

    def _wait(self) -> None:
        end = time.perf_counter() + self._driver_s
        while time.perf_counter() < end:
            pass

    def allocate(self, nbytes: int) -> int:
        self._wait()
        return super().allocate(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        self._wait()
        super().free(address, nbytes)


def sizes_of_steps(steps: int, tensors: int) -> list[list[int]]:
    """Byte counts of each step's tensors: one set of shapes, every eighth step with a smaller batch."""
    draw = random.Random(1)
    full = [draw.choice((4, 64, 256, 1024, 4096)) * 1024 + draw.randrange(1024) for _ in range(tensors)]
    return [[nbytes // 3 if step % 8 == 7 else nbytes for nbytes in full] for step in range(steps)]


def run_trace(allocator: Allocator, steps: list[list[int]]) -> float:
    """Runs the trace; the highest fragmentation that was seen at the turn of a step."""
    worst = 0.0
    for sizes in steps:
        blocks: list[Allocation | None] = []
        for place, nbytes in enumerate(sizes):
            blocks.append(allocator.allocate(nbytes, owner="step"))
            if place % 3 == 2:  # a temporary that dies on the way forward
                allocator.free(blocks.pop(-2))
        worst = max(worst, allocator.statistics().fragmentation)
        while blocks:
            allocator.free(blocks.pop())
    return worst


def measure(kind: type[Allocator], steps: list[list[int]], driver_us: float) -> dict[str, Any]:
    """Medians over some windows, each on an allocator of its own."""
    calls = 2 * sum(len(sizes) for sizes in steps)
    per_call_us: list[float] = []
    source_calls = peak_pool_nbytes = 0
    worst = 0.0
    for _ in range(WINDOWS):
        source = SlowSource(driver_us)
        allocator = kind(source, name="trace")
        start = time.perf_counter()
        worst = run_trace(allocator, steps)
        per_call_us.append((time.perf_counter() - start) * 1e6 / calls)
        source_calls = source.num_allocate_calls + source.num_free_calls
        peak_pool_nbytes = max(allocator.statistics().pool_nbytes, allocator.statistics().peak_nbytes)
        allocator.close()
    return {
        "allocator": kind.__name__,
        "driver_us": driver_us,
        "calls": calls,
        "source_calls": source_calls,
        "us_per_call": round(statistics.median(per_call_us), 3),
        "fragmentation": round(worst, 3),
        "pool_mib": round(peak_pool_nbytes / MIB, 1),
    }


class CountingRuntime:
    """A CUDA runtime that counts the calls of cudaMalloc and cudaFree."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += name in ("allocate", "free")
        return getattr(self._runtime, name)


def measure_on_gpu(runtime: CudaRuntime, allocator: str, steps: list[list[int]]) -> dict[str, Any]:
    """Medians over some windows, each on a stream group of its own."""
    calls = 2 * sum(len(sizes) for sizes in steps)
    per_call_us: list[float] = []
    driver_calls = peak_pool_nbytes = 0
    worst = 0.0
    counting = CountingRuntime(runtime)
    with GpuDevice("/gpu:0", counting, allocator=allocator) as device:  # type: ignore[arg-type]
        for window in range(WINDOWS):
            group = device.stream_group(f"window {window}")
            counting.calls = 0
            start = time.perf_counter()
            worst = run_trace(group.allocator, steps)
            per_call_us.append((time.perf_counter() - start) * 1e6 / calls)
            driver_calls = counting.calls
            statistics_now = group.allocator.statistics()
            peak_pool_nbytes = max(statistics_now.pool_nbytes, statistics_now.peak_nbytes)
            group.close()
    return {
        "allocator": allocator,
        "gpu": runtime.properties.name,
        "calls": calls,
        "source_calls": driver_calls,
        "us_per_call": round(statistics.median(per_call_us), 3),
        "fragmentation": round(worst, 3),
        "pool_mib": round(peak_pool_nbytes / MIB, 1),
    }


def show(rows: list[dict[str, Any]]) -> None:
    """The rows of one kind of source as a table, and the ratio of the last two."""
    print(
        f"{'allocator':<18}{'driver us':>10}{'source calls':>14}{'us per call':>13}"
        f"{'fragmentation':>15}{'pool MiB':>10}"
    )
    for row in rows:
        driver = f"{row['driver_us']:g}" if "driver_us" in row else "its own"
        print(
            f"{row['allocator']:<18}{driver:>10}{row['source_calls']:>14}"
            f"{row['us_per_call']:>13.2f}{row['fragmentation']:>15.3f}{row['pool_mib']:>10.1f}"
        )
    pooled, called = (row["us_per_call"] for row in rows[-2:])
    print(f"one driver call per tensor costs {called / pooled:.1f} x best fit")


def main() -> None:
    """Measures, prints the table, and writes the file if one is asked for."""
    parser = argparse.ArgumentParser(description="Best fit against one driver call per tensor.")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tensors", type=int, default=60, help="per step")
    parser.add_argument("--driver-us", type=float, default=50.0, help="what a call of the driver takes")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    steps = sizes_of_steps(options.steps, options.tensors)
    rows = [
        measure(BestFitAllocator, steps, 0.0),
        measure(BestFitAllocator, steps, options.driver_us),
        measure(DriverAllocator, steps, options.driver_us),
    ]
    print(f"{rows[0]['calls']} allocations and frees, medians of {WINDOWS} windows")
    show(rows)
    gpus = gpu_status()
    if gpus.runtimes:
        on_gpu = [measure_on_gpu(gpus.runtimes[0], allocator, steps) for allocator in ("bfc", "cuda_malloc")]
        print(f"\non {gpus.runtimes[0].properties.name}")
        show(on_gpu)
        rows += on_gpu
    else:
        print(f"not on a GPU: {gpus.problem}")
    if options.json is not None:
        document = {"python": platform.python_version(), "machine": platform.machine(), "rows": rows}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
