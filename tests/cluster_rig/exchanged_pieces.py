"""Sums that two workers exchange piece by piece, beside Allreduce of whole vectors; the program of a test."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.replicas import round_launcher
from scheduler.replicas.round_launcher import Threads
from scheduler.workers.find import worker_group
from scheduler.workers.shared_memory import EXCHANGE
from tensorbow.kernels.native.rounds.pieces import PIECE_NBYTES, PIECE_SLOTS
from tensorbow.program import NativeCall
from tensorbow.specs import float32
from tests.scheduler_rig.programs import layer, logistic, well
from tests.scheduler_rig.running import Prepared, cpu_devices

workers = worker_group()
RANK, COUNTS = workers.rank, [2, 1]  # devices of each worker
ROUNDS = 9
LARGE = PIECE_NBYTES // 4 * (PIECE_SLOTS + 1) + 5003  # more pieces than memory has room for, the last in part
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mu": 0.5, "tau": 2, "ema": 0.9},
    {"mu": 0.5, "staleness": 1},
    {"sync": "easgd"},
    {"sync": "ssgd"},  # with a check of the sum
    {"ssgd_from": 4, "mu": 0.5},
    {"sync": "diloco", "tau": 2},
]


def called(call: NativeCall) -> None:
    address, *arguments = call
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * len(arguments))(address)
    assert function(*arguments) == 0


def vectors_are_swapped_again_and_again() -> None:
    group = workers.duplicate(by_streams=True)
    for size in (280_003, 1, 0):
        own, theirs = (np.zeros(size, np.uint8) for _ in range(2))
        begin, end = group.native_swap(own.ctypes.data, theirs.ctypes.data, size)
        for number in range(3):
            drawn = [np.random.default_rng([number, rank]) for rank in range(2)]
            sent = [generator.integers(0, 256, size, np.uint8) for generator in drawn]
            own[:] = sent[RANK]
            called(begin)
            called(end)
            assert (theirs == sent[1 - RANK]).all()
            assert (own == sent[RANK]).all()
        ((requests, *_),) = group._swaps.values()
        assert all(requests)
        group.end_swap(begin)
        assert not any(requests)  # they are MPI's null request
        assert not group._swaps


def trained(model: Any, exchange: str, alone: bool = False, **options: Any) -> dict[str, np.ndarray]:
    os.environ[EXCHANGE] = exchange
    devices = cpu_devices(sum(COUNTS) if alone else COUNTS[RANK])
    first, more = (0, {}) if alone else (sum(COUNTS[:RANK]), {"workers": workers})
    batches = Prepared(lambda round, replica: model.batch(round, first + replica), len(devices))
    chosen = Synchronisation(**options)
    with LearningEngine(model.program, model.shapes, devices, 1, chosen, **more) as engine:
        assert engine.learners.launches_rounds, engine.learners.called_apart()
        if not alone:
            code = engine.learners.launcher._program._code
            pieces = [len(phase.pieces.parts) for phases in code.phases for phase in phases if phase.name]
            expected = PIECES[MODELS.index(model)]
            assert pieces == [expected if exchange == "mpi" else 0] * len(pieces), pieces
            assert pieces
        engine.initialize(model.initial)
        assert engine.run(batches.open, 0, ROUNDS) == ROUNDS
        values = {**engine.central_values(), **engine.learners.values.state_arrays()}
        result = {name: np.array(value) for name, value in values.items()}
        if not alone:
            swaps, count = engine.lockstep.exchanges._swaps, sum(pieces)
            assert len(swaps) == count
            engine.resize(2)  # which makes the launcher again
            assert len(swaps) == count
    assert alone or not swaps  # nothing stays
    return result


# One large vector; several small ones; a layer of which chunks of eight rows are larger than a piece.
MODELS = [well(LARGE), logistic(float32), layer(36, 1100)]
PIECES = [-(-4 * LARGE // PIECE_NBYTES), 1, 5]


def bits_are_those_of_whole_vectors() -> None:
    """With one thread and with one for each device; near those of one process, whose sums are of three."""
    for model, most in zip(MODELS, (5, None, 1), strict=True):
        for options in OPTIONS[:most]:
            whole = trained(model, "allreduce", **options)
            alone = trained(model, "mpi", alone=True, **options)
            for threads in (Threads.ONE, Threads.EACH):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(round_launcher.ThreadChoice, "choose", lambda _, rounds, t=threads: t)
                    patch.setattr(round_launcher, "usable_cores", lambda: 2)
                    pieces = trained(model, "mpi", **options)
                for name, value in pieces.items():
                    assert value.tobytes() == whole[name].tobytes(), (options, threads, name)
                    np.testing.assert_allclose(value, alone[name], rtol=1e-6, atol=1e-6, err_msg=name)
            z = [{name: value.tobytes() for name, value in pieces.items() if name == "w"}]
            assert len({*map(str, workers.all_gather(z))}) == 1


vectors_are_swapped_again_and_again()
bits_are_those_of_whole_vectors()
print(f"worker {RANK} is done")
