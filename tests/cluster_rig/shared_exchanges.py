"""Exchanges of three workers through memory that they share, beside those by MPI; the program of a test."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.workers.find import worker_group
from scheduler.workers.shared_memory import EXCHANGE, may_share_memory, shared_memory
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, cpu_devices

workers = worker_group()
RANK, COUNTS = workers.rank, [2, 1, 1]  # devices of each worker
FIRST, ROUNDS = sum(COUNTS[:RANK]), 7
SIZE = 100_003  # several blocks for each thread, the last one in part


def parts_are_shared() -> None:
    memory = shared_memory(workers, 5000)
    assert [(each.size, each.any()) for each in memory] == [(5000, False)] * 3
    workers.barrier()
    memory[RANK][:] = RANK + 1
    workers.barrier()
    assert [each[-1] for each in memory] == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        memory[RANK - 1][0] = 9
    workers.barrier()


def refused(expected: type[Exception], choice: str) -> str:
    os.environ[EXCHANGE] = choice
    with pytest.raises(expected) as found:
        may_share_memory(workers)
    return str(found.value)


def choices_are_kept() -> None:
    assert may_share_memory(workers)
    assert "got '', 'mpi', ''" in refused(InvalidArgumentError, "mpi" if RANK == 1 else "")
    assert "got 'often'" in refused(InvalidArgumentError, "often")
    os.environ[EXCHANGE] = "mpi"
    assert not may_share_memory(workers)

    def no_memory(file: int, start: int, nbytes: int) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        if RANK == 1:
            patch.setattr(os, "posix_fallocate", no_memory)
        told = [refused(FailedPreconditionError, "shared")]
        with pytest.raises(ResourceExhaustedError) as found:
            shared_memory(workers, 5000)
        for said in (*told, str(found.value)):
            assert "worker 1 of 3" in said, said
            assert "No space left" in said, said
        del os.environ[EXCHANGE]
        assert not may_share_memory(workers)


def trained(alone: bool) -> dict[str, np.ndarray]:
    model = well(SIZE)
    devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
    more = {} if alone else {"workers": workers}
    batches = Prepared(
        lambda round, replica: model.batch(round, replica + (0 if alone else FIRST)), len(devices)
    )
    with LearningEngine(model.program, model.shapes, devices, 1, Synchronisation(mu=0.5), **more) as engine:
        engine.initialize(model.initial)
        assert engine.run(batches.open, 0, ROUNDS) == ROUNDS
        return {**engine.central_values(), **engine.learners.values.state_arrays()}


parts_are_shared()
choices_are_kept()
together, alone = trained(False), trained(True)
assert all(together[name].tobytes() == alone[name].tobytes() for name in together)
os.environ[EXCHANGE] = "mpi"
for name, value in trained(False).items():
    np.testing.assert_allclose(value, alone[name], rtol=2e-6, atol=2e-6, err_msg=name)
print(f"worker {RANK} is done")
