"""Exchanges of workers through memory that they share, beside those by MPI; the program of a test.

The argument says what is compared: whole sums, or halves. Without native code all exchanges are by MPI.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, StepProgram, Synchronisation
from scheduler.workers import lockstep
from scheduler.workers import shared_memory as sharing
from scheduler.workers.find import worker_group
from scheduler.workers.group import WorkerGroup
from scheduler.workers.mpi import MOST_GATHERED, MpiWorkers
from scheduler.workers.shared_memory import EXCHANGE, SharedPages, may_share_memory, shared_memory
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from tests.scheduler.engine.test_backup_workers import GATES, Held
from tests.scheduler_rig.programs import Model, layer, well
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


def trained(
    alone: bool = False,
    rounds: int = ROUNDS,
    shares: bool | None = None,
    model: Model | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """shares: whether all workers have to have one z. model: by default one large vector."""
    model = model or well(SIZE)
    devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
    more = {} if alone else {"workers": workers}
    batches = Prepared(
        lambda round, replica: model.batch(round, replica + (0 if alone else FIRST)), len(devices)
    )
    chosen = Synchronisation(**options or {"mu": 0.5})
    with LearningEngine(model.program, model.shapes, devices, 1, chosen, **more) as engine:
        assert engine.learners.launches_rounds is NATIVE, engine.learners.called_apart()
        if shares is not None:
            assert has_one_z(engine) is shares, options
        engine.initialize(model.initial)
        assert engine.run(batches.open, 0, rounds) == rounds
        z = {} if chosen.sync == "none" else engine.central_values()
        return {**z, **engine.learners.values.state_arrays()}


def has_one_z(engine: LearningEngine) -> bool:
    """True if what one worker writes into z all have; z is 0 before and behind that."""
    if not engine.learners.central:
        return False
    model = engine.learners.central[0]
    z = model.device.view(model.pages[0], (1,), np.float32)
    workers.barrier()
    if RANK == 1:
        z[0] = 5
    workers.barrier()
    found = workers.all_gather(float(z[0]))
    workers.barrier()
    z[0] = 0
    workers.barrier()
    assert found[1] == 5
    return len({*found}) == 1


def all_have_one_z() -> None:
    """With every way of averaging that has a z; its bits are those of one process."""
    every: list[tuple[dict[str, Any], bool]] = [
        ({"mu": 0.5, "tau": 2, "ema": 0.9}, True),
        ({"staleness": 2, "mu": 0.5}, True),
        ({"sync": "easgd"}, True),
        ({"sync": "diloco", "tau": 2, "staleness": 1}, True),
        ({"ssgd_from": 3, "mu": 0.5}, False),
        ({"sync": "ssgd", "ema": 0.9}, False),
    ]
    for options, shares in every:
        together = trained(shares=shares and NATIVE, **options)
        alone = trained(alone=True, **options)
        assert all(together[name].tobytes() == alone[name].tobytes() for name in together), options
    product = layer(36, 1100)  # chunks of eight rows are larger than a block
    together, alone = trained(shares=NATIVE, model=product), trained(alone=True, model=product)
    assert all(together[name].tobytes() == alone[name].tobytes() for name in together)


def z_is_apart_for_a_step_without_native_code() -> None:
    """Between steps of an engine of which only some have native code: bits of one process."""
    with tb.Graph().as_default():
        initial = {"w": well(SIZE).initial["w"]}
        x = tb.placeholder(tb.float32, [SIZE], name="x")
        w = tb.Variable(initial["w"], name="w")
        optimizer = tb.train.MomentumOptimizer(0.1, 0.9)
        programs = []
        for value in (x, Held(x, tb.constant(0))):
            loss = tb.reduce_sum(tb.square(w - value)) * 0.5
            programs.append(StepProgram((x,), loss, optimizer.minimize(loss), {}))
    GATES[0].set()
    shapes, found = [tb.TensorSpec((SIZE,), tb.float32)], []
    for alone in (False, True):
        devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
        first = 0 if alone else FIRST
        batches = Prepared(lambda t, i, first=first: well(SIZE).batch(t, first + i), len(devices))
        more = {} if alone else {"workers": workers}
        with LearningEngine(programs[0], shapes, devices, 1, Synchronisation(mu=0.5), **more) as engine:
            assert engine.add_program(programs[1], shapes) == 1
            engine.initialize(initial)
            for number, select in enumerate((0, 1, 0, 1)):
                engine.select(select)
                assert engine.learners.launches_rounds is (NATIVE and not select)
                assert engine.run(batches.open, 3 * number, 3 * number + 3) == 3 * number + 3
            found.append({**engine.central_values(), **engine.learners.values.state_arrays()})
    together, alone_values = found
    for name, value in together.items():  # by segments, workers sum by MPI
        np.testing.assert_allclose(value, alone_values[name], rtol=1e-6, atol=1e-6, err_msg=name)


def pages_are_shared_or_not_at_all() -> None:
    """Where one worker cannot, all keep what they had."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    own = np.frombuffer(memory, np.uint8)
    own[:] = RANK + 1

    def refused(address: int, nbytes: int, flags: int, file: int = -1) -> None:
        if flags & mmap.MAP_SHARED:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        lay_over(address, nbytes, flags, file)

    lay_over = sharing._lay_over
    with pytest.MonkeyPatch.context() as patch:
        if RANK == 2:
            patch.setattr(sharing, "_lay_over", refused)
        with pytest.raises(ResourceExhaustedError, match=r"worker 2 of 3.*Cannot allocate memory"):
            SharedPages(workers, [own.ctypes.data], own.size)
    workers.barrier()
    own[0] = 10 + RANK
    workers.barrier()
    assert own[0] == 10 + RANK
    pages = SharedPages(workers, [own.ctypes.data], own.size)
    assert (own[0], own[-1]) == (10, 1)
    workers.barrier()
    if RANK == 1:
        own[-1] = 77
    workers.barrier()
    assert own[-1] == 77
    pages.end()
    workers.barrier()
    own[:] = RANK
    workers.barrier()
    assert (own == RANK).all()


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
    pages_are_shared_or_not_at_all()
    all_have_one_z()
    z_is_apart_for_a_step_without_native_code()
    together, alone = trained(), trained(alone=True)
    assert all(together[name].tobytes() == alone[name].tobytes() for name in together)
    os.environ[EXCHANGE] = "mpi"
    for name, value in trained().items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-6, atol=1e-6, err_msg=name)
print(f"worker {RANK} is done")
