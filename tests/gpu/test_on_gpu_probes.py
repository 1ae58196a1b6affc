"""Checks on this machine's GPU of assumptions made without one; some are only measured.

Figures are printed (`pytest -s`), not asserted: they depend on the GPU and on its other load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tensorbow.devices.nccl import NcclCommunicators
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.recording import gpu_samples
from tests.gpu_rig.runtimes import is_emulated, real_runtime

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = real_runtime()
BUSY = CudaSource.of(
    "probe", 'extern "C" __global__ void busy(float* y, float x, int n) { TB_FOR_EACH(int, i, n) y[i] += x; }'
)
LIBRARY_OPS = ("MatMul", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


@pytest.mark.parametrize("name", LIBRARY_OPS)
def test_libraries_are_captured_and_replay_the_same_bits(name: str) -> None:
    """cuBLAS with a workspace of its own and cuDNN's C API: the graph gives what single calls give."""
    samples = [sample for sample in gpu_samples() if sample.op.name == name]
    assert samples
    for sample in samples:
        with GpuBench(RUNTIME) as bench:
            call = BoundGpuCall(bench, sample.op, sample.inputs, sample.complete_attrs, sample.state)
            (eager,) = call.run().outputs
            assert call.capturable
            for _ in range(3):
                (captured,) = call.run(captured=True).outputs
                assert captured.tobytes() == eager.tobytes(), sample.id


def test_other_threads_launch_allocate_and_free_during_captures() -> None:
    stop, wrong, turns = threading.Event(), [], [0, 0]
    under_way = threading.Barrier(3)

    def other(number: int) -> None:
        try:
            with GpuBench(RUNTIME) as bench:
                y = bench.memory(TensorSpec((4096,), as_dtype(np.float32)))
                bench.upload(np.zeros(4096, np.float32), y)
                launch = bench.context.launch(BUSY, "busy", 8, 256, y, np.float32(1), np.int32(4096))
                while not stop.is_set():
                    launch()
                    RUNTIME.free(RUNTIME.allocate(1 << 20))
                    RUNTIME.synchronize_stream(bench.stream)
                    turns[number] += 1
                    if turns[number] == 1:
                        under_way.wait(60)
                assert (bench.download(y) == turns[number]).all()
        except BaseException as error:
            wrong.append(error)
            under_way.abort()

    threads = [threading.Thread(target=other, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        under_way.wait(60)
        sample = next(s for s in gpu_samples() if s.op.name == "MatMul" and s.large)
        with GpuBench(RUNTIME) as bench:
            call = BoundGpuCall(bench, sample.op, sample.inputs, sample.complete_attrs)
            (eager,) = call.run().outputs
            for _ in range(5 if is_emulated(RUNTIME) else 50):
                (captured,) = call.run(captured=True).outputs
                assert captured.tobytes() == eager.tobytes()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert min(turns) > 1


def test_nccl_of_one_rank_keeps_the_vector() -> None:
    if is_emulated(RUNTIME):
        pytest.skip("NCCL is not emulated")
    communicators = NcclCommunicators([RUNTIME.index])
    try:
        with GpuBench(RUNTIME) as bench:
            values = np.random.default_rng(0).normal(size=1 << 20).astype(np.float32)
            vector = bench.memory(TensorSpec(values.shape, as_dtype(np.float32)))
            bench.upload(values, vector)
            for _ in range(3):
                communicators.all_reduce([vector.address], values.size, "float32", [bench.stream])
            np.testing.assert_array_equal(bench.download(vector), values)
    finally:
        communicators.close()


def rounds_per_second(replicas: int, connections: int) -> tuple[float, float]:
    """Rounds per second of replicas of LeNet side by side, and microseconds of the host per launch.

    In a process with so many hardware queues.
    """
    command = [sys.executable, "-m", "tests.gpu_rig.overlapping_graphs", str(replicas)]
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": str(connections)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rate, host_us = map(float, done.stdout.split()[-2:])
    return rate, host_us


def test_how_far_replicas_overlap() -> None:
    started = time.perf_counter()
    counts = (1, 2) if is_emulated(RUNTIME) else (1, 2, 4, 8, 16)
    for connections in (8, 32):
        alone, _ = rounds_per_second(1, connections)
        for replicas in counts:
            found, host_us = rounds_per_second(replicas, connections)
            print(
                f"\nCUDA_DEVICE_MAX_CONNECTIONS={connections}: {replicas} x LeNet b=4: {found:.0f} rounds/s, "
                f"{found * replicas / alone:.2f} times the tasks/s of one replica; "
                f"host {host_us:.1f} us per launch",
                end="",
            )
            assert found > 0
    print(f"\nin {time.perf_counter() - started:.0f} s")
