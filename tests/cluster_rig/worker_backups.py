"""Backup workers among the replicas of three workers, one of which is held up; the program of a test.

Two workers do a short part of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.engine.results import RoundResults
from scheduler.workers.find import worker_group
from tensorbow.errors import AbortedError, InvalidArgumentError, NumericsError
from tests.scheduler.engine.test_backup_workers import GATES, SIZE, held
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import PATIENCE_S, Hesitant, Prepared, cpu_devices

workers = worker_group()
RANK = workers.rank
COUNTS = [2, 1, 1] if workers.size == 3 else [1, 1]  # devices, and replicas, of each worker
FIRST, OWN, ALL = sum(COUNTS[:RANK]), COUNTS[RANK], sum(COUNTS)


def engine_of(model: Model, backup: int = 1) -> LearningEngine:
    options = Synchronisation("ssgd", backup=backup)
    engine = LearningEngine(model.program, model.shapes, cpu_devices(OWN), 1, options, workers=workers)
    engine.initialize(model.initial)
    return engine


def source_of(batch: Callable[[int, int], tuple[Any, ...]], hesitant: bool = False) -> Prepared:
    own = lambda round, replica: batch(round, FIRST + replica)  # noqa: E731
    return Hesitant(own, OWN, RANK) if hesitant else Prepared(own, OWN)


def members_of(told: list[RoundResults]) -> list[list[int]]:
    """The numbers of the replicas that stepped in each round, of all workers."""
    every = workers.all_gather([[FIRST + replica for replica in results.replicas] for results in told])
    return [
        sorted(replica for worker in of_round for replica in worker) for of_round in zip(*every, strict=True)
    ]


def expected(model: Model, members: list[list[int]]) -> tuple[Any, Any]:
    """Weights and velocity by the mean gradients of these replicas."""
    w, v = model.initial["w"], np.zeros(SIZE, np.float32)
    for round, replicas in enumerate(members):
        v = np.float32(0.9) * v + np.mean([w - model.batch(round, each)[0] for each in replicas], axis=0)
        w = w - np.float32(0.1) * v
    return w, v


def values_of(engine: LearningEngine) -> list[dict[str, Any]]:
    """Variables of all replicas of all workers."""
    own = [engine.learners.values.replica_values(index) for index in range(OWN)]
    return [values for worker in workers.all_gather(own) for values in worker]


def steps_take_the_first_gradients() -> None:
    """Worker 2 is held up until round 9 is done, and replica 0, of worker 0, from round 20 until 29 is."""
    model = held(lambda t, i: 1 if i == 3 and t < 10 else 2 if i == 0 and 20 <= t < 30 else 0)
    told = list[RoundResults]()

    def tell(results: RoundResults) -> None:
        told.append(results)
        if gate := {9: 1, 29: 2}.get(results.rounds.start):
            GATES[gate].set()

    with engine_of(model) as engine:
        source = source_of(model.batch, hesitant=True)
        assert engine.run(source.open, 0, 40, tell) == 40
        assert [results.rounds for results in told] == [range(t, t + 1) for t in range(40)]
        members = members_of(told)
        assert all(len({*each}) == ALL - 1 for each in members), members
        assert all(3 not in each for each in members[:10]), members
        assert all(0 not in each for each in members[20:30]), members
        w, v = expected(model, members)
        first, *others = values_of(engine)
        np.testing.assert_allclose(first["w"], w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(first["w/Momentum"], v, rtol=1e-5, atol=1e-6)
        assert all(each[name].tobytes() == first[name].tobytes() for each in others for name in first)
        assert engine.central_values()["w"].tobytes() == first["w"].tobytes()

        state = engine.learners.values.state_arrays()
        assert engine.run(source_of(model.batch).open, 40, 60, tell) == 60
        np.testing.assert_allclose(
            engine.central_values()["w"], expected(model, members_of(told))[0], rtol=1e-5, atol=1e-6
        )
    with engine_of(model) as engine:  # a checkpoint is gone on with
        engine.learners.values.load_state_arrays(state)
        again = engine.learners.values.state_arrays()
        assert all(again[name].tobytes() == value.tobytes() for name, value in state.items())
        del told[40:]
        assert engine.run(source_of(model.batch).open, 40, 60, tell) == 60
        np.testing.assert_allclose(
            engine.central_values()["w"], expected(model, members_of(told))[0], rtol=1e-5, atol=1e-6
        )
        assert len({values["w"].tobytes() for values in values_of(engine)}) == 1


def a_stop_of_one_ends_all() -> None:
    model = held(lambda t, i: 0)
    with engine_of(model, backup=2) as engine:
        stop = lambda results: engine.request_stop() if RANK == 1 and results.rounds.start == 5 else None  # noqa: E731
        ended = engine.run(source_of(model.batch).open, 0, 4000, stop)
        assert 6 <= ended < 4000
        assert len({*workers.all_gather(ended)}) == 1
        assert len({values["w"].tobytes() for values in values_of(engine)}) == 1
        assert engine.run(source_of(model.batch).open, ended, ended + 3) == ended + 3


def failed(engine: LearningEngine, model: Model, expected: type[BaseException], **more: Any) -> str:
    with pytest.raises(expected) as found:
        engine.run(more.pop("source", source_of(model.batch)).open, 0, 50, **more)
    return str(found.value)


class GoneError(Exception):
    pass


def a_failure_of_one_ends_all() -> None:
    model = held(lambda t, i: 0)

    def interrupt(results: RoundResults) -> None:
        if lost == RANK and results.rounds.start == 3:
            raise GoneError("by the caller")

    for lost in range(workers.size):
        with engine_of(model) as engine:
            said = failed(engine, model, GoneError if lost == RANK else AbortedError, on_results=interrupt)
            assert "GoneError: by the caller" in said or lost == RANK, said
            assert f"worker {lost} of 3" in said or lost == RANK, said
            engine.initialize(model.initial)
            assert engine.run(source_of(model.batch).open, 0, 4) == 4  # all may go on

    own = lambda round, replica: model.batch(round, FIRST + replica)  # noqa: E731
    missing = Hesitant(own, OWN, RANK, fail_at=(7, 0) if RANK == 1 else None)
    with engine_of(model) as engine:
        said = failed(engine, model, OSError if RANK == 1 else AbortedError, source=missing)
        assert "the disk is gone" in said, said

    spoilt = lambda t, i: (model.batch(t, i)[0] * (np.nan if t == 5 else 1), np.int32(0))  # noqa: E731
    with engine_of(model, backup=2) as engine:
        said = failed(engine, model, (NumericsError, AbortedError), source=source_of(spoilt))
        assert "not finite at step 5" in said, said


def differences_are_told() -> None:
    model = held(lambda t, i: 0)
    with engine_of(model) as engine, pytest.raises(InvalidArgumentError, match="rounds 0 to 4"):
        engine.run(source_of(model.batch).open, 0, 5 + RANK)


def too_many_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=f"expected fewer than the {ALL} replicas, got {ALL + 1};"):
        engine_of(held(lambda t, i: 0), backup=ALL + 1)


def a_late_replica_and_late_programs_hold_nobody_up() -> None:
    """The last replica is held up until round 3 is done; then each worker's program has the results of a
    round until the others are many rounds on."""
    model = held(lambda t, i: int(i == ALL - 1 and t < 4))
    late = {10 + 20 * worker: worker for worker in range(workers.size)}  # by round
    told = list[RoundResults]()

    def tell(results: RoundResults) -> None:
        told.append(results)
        round = results.rounds.start
        if round == 3:
            GATES[1].set()
        if late.get(round) == RANK:
            ends = time.monotonic() + PATIENCE_S
            for _ in range(workers.size - 1):
                while (found := workers.posted()) is None:
                    if time.monotonic() > ends:
                        raise TimeoutError(f"worker {RANK} is waited for in round {round}")
                    time.sleep(1e-3)
                assert found[1] == round
        if (before := late.get(round - 12, RANK)) != RANK:
            workers.post(before, round - 12)

    rounds = 20 * workers.size + 5
    with engine_of(model) as engine:
        assert engine.run(source_of(model.batch).open, 0, rounds, tell) == rounds
        members = members_of(told)
        assert all(ALL - 1 not in each for each in members[:4]), members
        assert all(len({*each}) == ALL - 1 for each in members), members
        w, v = expected(model, members)
        for values in values_of(engine):
            np.testing.assert_allclose(values["w"], w, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(values["w/Momentum"], v, rtol=1e-5, atol=1e-6)


def ends_while_others_compute() -> None:
    """At the end all wait for the late one, which goes on with what the others have."""
    model = held(lambda t, i: int((t, i) == (11, 2)))
    with engine_of(model, backup=2) as engine:
        timer = threading.Timer(0.2, GATES[1].set)
        timer.start()
        told = list[RoundResults]()
        assert engine.run(source_of(model.batch).open, 0, 12, told.append) == 12
        members = members_of(told)
        assert all(len(each) == ALL - 2 for each in members)
        assert len({values["w"].tobytes() for values in values_of(engine)}) == 1
        assert [later.rounds.start - earlier.rounds.start for earlier, later in pairwise(told)] == [1] * 11
        timer.join()


too_many_are_refused()
a_late_replica_and_late_programs_hold_nobody_up()
if workers.size == 3:
    steps_take_the_first_gradients()
    a_stop_of_one_ends_all()
    a_failure_of_one_ends_all()
    ends_while_others_compute()
    differences_are_told()
print(f"worker {RANK} is done")
