"""Exchanges of workers through memory that they share, beside those by MPI; the program of a test.

The argument says what is compared: whole sums, or halves. Without native code all exchanges are by MPI.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.workers import lockstep
from scheduler.workers.find import worker_group
from scheduler.workers.group import WorkerGroup
from scheduler.workers.mpi import MOST_GATHERED, MpiWorkers
from scheduler.workers.shared_memory import EXCHANGE, may_share_memory, shared_memory
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, cpu_devices

workers = worker_group()
RANK, COUNTS = workers.rank, [2, 1, 1, 1][: workers.size]  # devices of each worker
NATIVE = os.environ["TENSORBOW_CPU"] == "native"
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


def trained(alone: bool = False, rounds: int = ROUNDS, **options: Any) -> dict[str, np.ndarray]:
    model = well(SIZE)
    devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
    more = {} if alone else {"workers": workers}
    batches = Prepared(
        lambda round, replica: model.batch(round, replica + (0 if alone else FIRST)), len(devices)
    )
    chosen = Synchronisation(**options or {"mu": 0.5})
    with LearningEngine(model.program, model.shapes, devices, 1, chosen, **more) as engine:
        assert engine.learners.launches_rounds is NATIVE, engine.learners.called_apart()
        engine.initialize(model.initial)
        assert engine.run(batches.open, 0, rounds) == rounds
        z = {} if chosen.sync == "none" else engine.central_values()
        return {**z, **engine.learners.values.state_arrays()}


def sent_nbytes(patch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each vector that this worker sends by MPI, or has others read, from now on."""
    sent, called = list[int](), MpiWorkers._called

    def noted(group: MpiWorkers, function: str, *arguments: Any) -> Any:
        if function in ("Allgather", "Alltoall", "Iallgather", "Ialltoall"):
            sent.append(arguments[0][0].nbytes)
        return called(group, function, *arguments)

    def shared(group: WorkerGroup, nbytes: int) -> Sequence[np.ndarray]:
        sent.append(nbytes)
        return shared_memory(group, nbytes)

    patch.setattr(MpiWorkers, "_called", noted)
    patch.setattr(lockstep, "shared_memory", shared)
    return sent


def halves_are_sent() -> None:
    """16 bits of each element go to others, by memory and by MPI, with equal bits and a bounded error."""
    tau = 3
    options = {"sync": "diloco", "tau": tau, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    start = well(SIZE).initial["w"]
    found, nbytes = dict[str, np.ndarray](), dict[str, int]()
    for exchange in ("shared", "mpi") if NATIVE else ("mpi",):
        os.environ[EXCHANGE] = exchange
        with pytest.MonkeyPatch.context() as patch:
            sent = sent_nbytes(patch)
            found[exchange] = trained(rounds=tau, **options, exchange_dtype="bfloat16")["w"]
            nbytes[exchange] = max(sent) if exchange == "shared" else sum(sent)
    # Among many workers, each also sends its part of the sums, in full.
    sums_nbytes = 0 if workers.size <= MOST_GATHERED else 4 * -(-SIZE // workers.size)
    assert 2 * SIZE <= nbytes["mpi"] - sums_nbytes < 2.1 * SIZE, nbytes
    if NATIVE:
        assert 2 * SIZE <= nbytes["shared"] < 2.1 * SIZE, nbytes
        assert found["shared"].tobytes() == found["mpi"].tobytes()
    exact = trained(rounds=tau, **options)["w"]
    apart = trained(rounds=tau, sync="none")
    moved = sum(abs(value - start) for name, value in apart.items() if name.endswith("/w"))
    moved = np.asarray(moved, np.float32)
    workers.all_sum(moved)
    error = abs(found["mpi"] - exact)
    # Cut off once of each replica's progress, and once of a worker's sum.
    assert (error <= 2 * 2.0**-7 * moved / sum(COUNTS) + 1e-6).all(), error.max()
    assert error.any()
    del os.environ[EXCHANGE]


if sys.argv[1] == "halves":
    halves_are_sent()
else:
    parts_are_shared()
    choices_are_kept()
    together, alone = trained(), trained(alone=True)
    assert all(together[name].tobytes() == alone[name].tobytes() for name in together)
    os.environ[EXCHANGE] = "mpi"
    for name, value in trained().items():
        np.testing.assert_allclose(value, alone[name], rtol=2e-6, atol=2e-6, err_msg=name)
print(f"worker {RANK} is done")
