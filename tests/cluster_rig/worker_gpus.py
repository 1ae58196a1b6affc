"""Replicas on the emulated GPUs of two workers beside those of one process; the program of a test."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

import tensorbow as tb
from scheduler import LearningEngine, Synchronisation
from scheduler.workers.shared_memory import EXCHANGE
from tensorbow.devices import GpuDevice
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.scheduler_rig.programs import logistic
from tests.scheduler_rig.running import Prepared, gpu_devices

workers, model = tb.worker_group(), logistic(tb.float32)


def trained(first: int, gpus: int, devices: list[Any] | None = None, **options: Any) -> dict[str, Any]:
    devices = devices or gpu_devices(EmulatedCuda(), gpus)
    engine = LearningEngine(model.program, model.shapes, devices, 1, **options)
    with engine:
        engine.initialize(model.initial)
        source = Prepared(lambda round, replica: model.batch(round, first + replica), gpus)
        engine.run(source.open, 0, 4)
        return {**engine.central_values(), **engine.learners.values.state_arrays()}


def apart(count: int) -> tuple[EmulatedNccl, list[Any]]:
    """NCCL, and so many GPUs of this worker, the first of which is two devices."""
    runtimes = [EmulatedCuda() for _ in range(count)]
    for number, runtime in enumerate(runtimes):
        runtime.index = number
        runtime.properties = replace(runtime.properties, pci_bus_id=f"{workers.rank}{number}:00.0")
    nccl = EmulatedNccl(runtimes)
    nccl.show()
    limit = runtimes[0].properties.memory_nbytes // 8
    homes = [runtimes[0], *runtimes]
    return nccl, [GpuDevice(f"/gpu:{n}", home, limit_nbytes=limit) for n, home in enumerate(homes)]


for sync in ("sma", "ssgd") if workers.size == 2 else ():
    options = Synchronisation(sync)
    alone = trained(0, 2 * workers.size, synchronisation=options)
    together = trained(2 * workers.rank, 2, synchronisation=options, workers=workers)
    for name, value in together.items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-6, atol=1e-6, err_msg=f"{sync} {name}")
    for count in (1, 2):
        nccl, devices = apart(count)
        replicas = len(devices)
        alone = trained(0, replicas * workers.size, synchronisation=options)
        joined = trained(replicas * workers.rank, replicas, devices, synchronisation=options, workers=workers)
        for name, value in joined.items():
            np.testing.assert_allclose(value, alone[name], rtol=1e-6, atol=1e-6, err_msg=f"{sync} {name}")
        assert {kind for kind, *_ in nccl.posted} == {"all-reduce"}, nccl.posted
        assert [len(clique.gpus) for clique in nccl.joined.values()] == [count]
        assert nccl.ended == {"destroy": count, "abort": 0}
        assert not nccl.made  # none that joins this worker's GPUs alone
    os.environ[EXCHANGE] = "mpi"
    nccl, devices = apart(1)
    trained(2 * workers.rank, 2, devices, synchronisation=options, workers=workers)
    assert not nccl.posted  # through the memory of the hosts
    del os.environ[EXCHANGE]

# Halves of what is exchanged: the bits of MPI's way, whose workers' sums are those of one GPU each.
halves = Synchronisation("diloco", tau=2, exchange_dtype="bfloat16", staleness=1)
for count in (1, 2) if workers.size == 2 else (1,):
    nccl, devices = apart(count)
    first, replicas = len(devices) * workers.rank, len(devices)
    joined = trained(first, replicas, devices, synchronisation=halves, workers=workers)
    kinds = {kind for kind, *_ in nccl.posted}
    of_workers = {"all-gather"} if workers.size <= 3 else {"all-gather", "all-to-all"}
    assert kinds == of_workers | ({"all-reduce", "broadcast"} if count > 1 else set()), kinds
    assert {name for kind, _, name in nccl.posted if kind in of_workers} == {"uint8"}
    assert len(nccl.joined) == count
    os.environ[EXCHANGE] = "mpi"
    nccl, devices = apart(count)
    by_mpi = trained(first, replicas, devices, synchronisation=halves, workers=workers)
    assert {kind for kind, *_ in nccl.posted} <= {"all-reduce", "broadcast"}  # between this worker's GPUs
    assert bool(nccl.posted) == (count > 1)
    del os.environ[EXCHANGE]
    assert joined.keys() == by_mpi.keys()
    for name, value in joined.items():
        assert value.tobytes() == by_mpi[name].tobytes(), (count, name)
print(f"worker {workers.rank} is done")
