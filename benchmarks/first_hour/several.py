"""Stage 7: several GPUs; with one GPU what can be tried there: NCCL with two ranks on it, virtual GPUs."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from replica_modes import Ways

from first_hour.bits import REPLICAS, ROUNDS
from first_hour.engines import split, state_of, training
from first_hour.gpus import opened, require_nccl, runtimes
from first_hour.host import TURNS, timed_rounds
from first_hour.probe import Bench
from first_hour.records import NotThereError, Recorder
from tensorbow.devices.cuda_runtime import CopyKind, CudaRuntime
from tensorbow.devices.nccl import NcclCommunicators

SEVERAL_RANKS = 23000  # first version of NCCL with several ranks on a GPU
TIMES = 20  # of an all-reduce that is timed
AGAINST_CPU = {"rtol": 1e-3, "atol": 1e-4}


def ranks() -> list[CudaRuntime]:
    """GPUs of two or more ranks: all GPUs, or the only one twice. Raises NotThereError."""
    found = runtimes()
    nccl = require_nccl()
    if len(found) > 1:
        return found
    version = nccl.get_version()
    if version < SEVERAL_RANKS:
        raise NotThereError(f"one GPU, and NCCL {version} refuses several ranks on it: NCCL 2.30 or newer")
    return found * 2


def nccl(recorder: Recorder, sizes: Sequence[int]) -> None:
    """Part: sums of NCCL against those of the CPU, and what an all-reduce takes, by size."""
    for size in sizes:
        recorder.check(f"all-reduce of {size:,} float32", partial(_all_reduce, size))


def _all_reduce(size: int) -> dict[str, Any]:
    used = ranks()
    communicators = NcclCommunicators([runtime.index for runtime in used])
    streams = [runtime.make_stream() for runtime in used]
    memory = [runtime.allocate(4 * size) for runtime in used]
    pinned = [runtime.allocate_pinned(4 * size) for runtime in used]
    generator = np.random.default_rng(size)
    vectors = [generator.normal(size=size).astype(np.float32) for _ in used]

    def views() -> list[np.ndarray]:
        return [np.frombuffer((ctypes.c_char * (4 * size)).from_address(a), np.float32) for a in pinned]

    for runtime, stream, address, page, vector in zip(used, streams, memory, pinned, vectors, strict=True):
        ctypes.memmove(page, vector.ctypes.data, 4 * size)
        runtime.copy(address, page, 4 * size, CopyKind.HOST_TO_DEVICE, stream)
        runtime.synchronize_stream(stream)
    communicators.all_reduce(memory, size, "float32", streams)
    for runtime, stream, address, page in zip(used, streams, memory, pinned, strict=True):
        runtime.copy(page, address, 4 * size, CopyKind.DEVICE_TO_HOST, stream)
        runtime.synchronize_stream(stream)
    sums = [view.copy() for view in views()]
    expected = np.sum([vector.astype(np.float64) for vector in vectors], axis=0)
    off = max(float(np.abs(one - expected).max()) for one in sums)
    alike = all(one.tobytes() == sums[0].tobytes() for one in sums)
    started = time.perf_counter()
    for _ in range(TIMES):
        communicators.all_reduce(memory, size, "float32", streams)
    host_us = 1e6 * (time.perf_counter() - started) / TIMES
    for runtime, stream in zip(used, streams, strict=True):
        runtime.synchronize_stream(stream)
    whole_us = 1e6 * (time.perf_counter() - started) / TIMES
    communicators.close()
    for runtime, stream, address, page in zip(used, streams, memory, pinned, strict=True):
        runtime.free(address)
        runtime.free_pinned(page)
        runtime.destroy_stream(stream)
    bound = len(used) * 2.0**-22 * float(np.abs(vectors).max()) * 2
    assert off <= bound, f"sums are off by {off:.3g}, expected at most {bound:.3g}"
    assert alike, "the GPUs have different sums"
    return {"ranks": len(used), "off": off, "host_us": round(host_us, 1), "us": round(whole_us, 1)}


def waits(recorder: Recorder) -> None:
    """Part: a stream of one GPU waits for an event of another."""

    def check() -> dict[str, Any]:
        with opened(2) as devices:
            first, second = (device.runtime for device in devices)
            with Bench(first) as one, Bench(second) as other:
                for _ in range(100):
                    event = first.make_event()
                    one.add()
                    first.record(event, one.stream)
                    second.wait(other.stream, event)
                    other.add()
                    first.destroy_event(event)
                second.synchronize_stream(other.stream)  # all that it waited for is over, too
                one.expect(100)
                other.expect(100)
        return {}

    recorder.check("a stream waits for another GPU's event", check)


def rates(recorder: Recorder, case: str, mode: str, most_s: float, sync: str) -> None:
    """Part: tasks per second against the number of GPUs."""
    for gpus in (1, 2, 4, 8):

        def check(gpus: int = gpus) -> dict[str, Any]:
            ways = Ways(mode)
            with opened(gpus) as devices, training(case, devices, 2, ways, sync) as trained:
                wall, _, process = min(timed_rounds(trained, ways, most_s) for _ in range(TURNS))
            tasks, (_, batch_size) = 2 * gpus, split(case)
            return {
                "gpus": gpus,
                "tasks_per_second": round(1e6 * tasks / wall),
                "images_per_second": round(1e6 * tasks * batch_size / wall),
                "process_us_per_task": round(process / tasks, 2),
            }

        recorder.check(f"{case}, 2 replicas on each of {gpus} GPUs, {sync}, {mode}", check)


def virtual(recorder: Recorder, case: str, mode: str) -> None:
    """Part: devices that share a GPU, summed on it, agree with as many CPU devices."""
    from ours import training_window

    def state(devices: Sequence[Any], **options: Any) -> dict[str, Any]:
        model, batch_size = split(case)
        with training_window(model, batch_size, REPLICAS // 2, devices=tuple(devices), **options) as trained:
            trained.run_rounds(ROUNDS)
            return state_of(trained)

    def check() -> dict[str, Any]:
        with opened(1, per_gpu=2) as devices, training(case, devices, REPLICAS // 2, Ways(mode)) as trained:
            trained.run_rounds(ROUNDS)
            found = state_of(trained)
        expected = state(("/cpu:0", "/cpu:1"))
        off = 0.0
        for name, value in expected.items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(found[name], value, err_msg=name, **AGAINST_CPU)
                off = max(off, float(np.abs(found[name] - value).max()))
        return {"apart": off}

    recorder.check(f"{case}, two virtual GPUs against two CPU devices, {mode}", check)
