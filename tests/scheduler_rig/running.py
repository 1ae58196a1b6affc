"""Engines on devices of their own, sources of batches, and a guard against deadlock."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import LearningEngine, ReadyBatch, Synchronisation
from tensorbow.devices import CpuDevice, Device, GpuDevice, LaunchLog, NullDevice
from tensorbow.devices.cuda_runtime import CudaRuntime
from tests.scheduler_rig.programs import Model

PATIENCE_S = 30.0


class Prepared:
    """Source that has every batch from the start and delivers all of them at once."""

    def __init__(self, batch: Callable[[int, int], tuple[Any, ...]], replicas: int) -> None:
        self.batch, self.replicas = batch, replicas
        self.released = 0
        self.closed = 0

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Prepared:
        for round in range(start, stop):
            for replica in range(self.replicas):
                on_ready(ReadyBatch(replica, round, self.batch(round, replica), self._release))
        return self

    def _release(self) -> None:
        self.released += 1

    def close(self) -> None:
        self.closed += 1


class Hesitant(Prepared):
    """Source with a thread: interleaves the replicas' batches at random, with pauses; it may fail."""

    def __init__(
        self,
        batch: Callable[[int, int], tuple[Any, ...]],
        replicas: int,
        seed: int = 0,
        fail_at: tuple[int, int] | None = None,
        pause_s: float = 2e-4,
    ) -> None:
        super().__init__(batch, replicas)
        self.seed, self.fail_at, self.pause_s = seed, fail_at, pause_s

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Hesitant:
        self._ending = False
        self._thread = threading.Thread(target=self._run, args=(start, stop, on_ready, on_error), daemon=True)
        self._thread.start()
        return self

    def _run(self, start: int, stop: int, on_ready: Any, on_error: Any) -> None:
        rng = random.Random(self.seed)
        left = [start] * self.replicas
        while not self._ending and (open_ := [i for i, t in enumerate(left) if t < stop]):
            replica = rng.choice(open_)
            if (left[replica], replica) == self.fail_at:
                on_error(OSError("the disk is gone"))
                return
            arrays = self.batch(left[replica], replica)
            on_ready(ReadyBatch(replica, left[replica], arrays, self._release))
            left[replica] += 1
            time.sleep(rng.random() * self.pause_s)

    def close(self) -> None:
        super().close()
        self._ending = True
        self._thread.join()


def cpu_devices(count: int, delays: int | None = None) -> list[Device]:
    """CPU devices, with random delays on their streams when `delays` is a seed."""
    devices: list[Device] = []
    for index in range(count):
        rng = random.Random(f"{delays}/{index}")

        def delay(rng: random.Random = rng) -> None:
            time.sleep(rng.random() * 6e-4 if rng.random() < 0.5 else 0)

        devices.append(CpuDevice(f"/cpu:{index}", delay=None if delays is None else delay))
    return devices


def gpu_devices(runtime: CudaRuntime, count: int) -> list[Device]:
    """Devices that share one GPU."""
    limit = runtime.properties.memory_nbytes // 8
    return [GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=limit) for index in range(count)]


def null_devices(count: int, log: LaunchLog | None, hold: bool = False) -> list[Any]:
    """Null devices that share a log."""
    shared = LaunchLog() if log is None else log
    return [NullDevice(f"/null:{index}", log=shared, hold=hold) for index in range(count)]


@contextmanager
def engine_of(
    model: Model, devices: list[Any], per_device: Any, schedule: Any = None, **options: Any
) -> Iterator[LearningEngine]:
    """Initialised engine on devices that are closed afterwards; then all memory must be returned.

    Takes options of `Synchronisation` and of `LearningEngine`. schedule: by default a constant rate; False
    for that of the step's own optimisers.
    """
    engine_options = {
        k: options.pop(k)
        for k in ("launch_ahead", "on_nan", "transport", "steps_per_launch", "devices_per_replica")
        if k in options
    }
    synchronisation = Synchronisation(**options)
    schedule = tb.train.Constant(0.1) if schedule is None else schedule or None
    engine = None
    try:
        engine = LearningEngine(
            model.program, model.shapes, devices, per_device, synchronisation, schedule, **engine_options
        )
        engine.learners.values.initialize(model.initial)
        with engine:
            yield engine
        assert [device.memory.held_nbytes for device in devices] == [0] * len(devices)
    finally:
        if engine is not None:
            engine.close()
        for device in devices:
            device.close(drain=False)


def within(work: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Result or error of `work`; fails if it takes longer than the limit."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"it hangs: not over after {seconds} s"
    if errors:
        raise errors[0]
    return results[0]


def complete_while(
    work: Callable[[], Any], devices: list[Any], seed: int, fail_after: int | None = None
) -> Any:
    """Completes held events in a random legal order until `work` has ended; its result or error."""
    rng = random.Random(seed)
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    completed = 0
    deadline = time.monotonic() + PATIENCE_S
    while thread.is_alive():
        assert time.monotonic() < deadline, "it hangs"
        choices = [(d, event) for d in devices for event in d.completable()]
        if not choices:
            thread.join(1e-4)
            continue
        device, event = rng.choice(choices)
        completed += 1
        device.complete(event, error=OSError("the device fell off") if completed == fail_after else None)
    if errors:
        raise errors[0]
    return results[0]


def flat(values: dict[str, Any], names: list[str]) -> Any:
    """Variables concatenated to one vector."""
    return np.concatenate([np.ravel(values[name]) for name in names])


def same_bits(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """True if two checkpoints are equal to the last bit."""
    return left.keys() == right.keys() and all(left[k].tobytes() == right[k].tobytes() for k in left)


def poison(engine: LearningEngine) -> None:
    """Fills all memory that no step may rely on with NaN: slabs, gradients, corrections, results."""
    for replica in engine.learners.replicas:
        executable = replica.own_step
        for region, base in replica.binding.bases.items():
            if region.name in ("SLAB", "GRADIENTS", "INPUT") and region not in executable.exchange_inputs:
                _fill(replica.device, base, executable.region_nbytes.get(region, 0))
    for model in engine.learners.central:
        for region, base in model.bases.items():
            if region.name in ("RESULTS", "EXCHANGE", "GRADIENTS"):
                _fill(model.device, base, model._binding.executable.region_nbytes.get(region, 0))


def _fill(device: Any, base: int, nbytes: int) -> None:
    if nbytes:
        device.write(base, np.full(nbytes, 0xFF, np.uint8))  # every float of it is NaN
