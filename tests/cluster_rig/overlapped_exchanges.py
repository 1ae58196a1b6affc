"""Exchanges of workers by MPI that end later, beside those that are waited for; the program of a test."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from scheduler import LearningEngine, Synchronisation
from scheduler.replicas.round_launcher import ProgramLaunch
from scheduler.workers import overlapped_sums
from scheduler.workers.find import worker_group
from scheduler.workers.mpi import MpiWorkers
from scheduler.workers.overlapped_sums import OVERLAP, OVERLAP_NBYTES
from scheduler.workers.shared_memory import EXCHANGE
from tests.cluster_rig.two_machines import network_of_its_own
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.running import Prepared, cpu_devices

os.environ[EXCHANGE] = "mpi"
workers = worker_group()
RANK = workers.rank
ROUNDS, SIZE = 11, OVERLAP_NBYTES // 4 + 3
# By options, the number of exchanges that may be under way.
CASES: list[tuple[dict[str, Any], int]] = [
    ({}, 1),
    ({"tau": 3, "mu": 0.5, "ema": 0.9}, 1),
    ({"staleness": 1}, 2),
    ({"staleness": 2, "tau": 2, "mu": 0.5}, 3),
    ({"sync": "easgd", "tau": 2}, 1),
    ({"sync": "diloco", "tau": 2}, 0),  # replicas go on from the new z
    ({"sync": "diloco", "tau": 2, "staleness": 1}, 1),
    ({"sync": "diloco", "tau": 2, "staleness": 1, "exchange_dtype": "bfloat16"}, 1),
    ({"sync": "ssgd"}, 0),
]


def engine_of(options: dict[str, Any], size: int = SIZE) -> tuple[LearningEngine, Prepared]:
    model, first = well(size), 2 * RANK
    batches = Prepared(lambda round, replica: model.batch(round, first + replica), 2)
    chosen = Synchronisation(**options)
    engine = LearningEngine(model.program, model.shapes, cpu_devices(1), 2, chosen, workers=workers)
    engine.initialize(model.initial)
    return engine, batches


def under_way(engine: LearningEngine) -> int:
    """How many exchanges may be under way, as the native code of an engine has it."""
    variants = engine.learners.launcher._program._code.phases
    kinds = [number for number, phases in enumerate(variants) if phases[0].ends is not None]
    if not kinds:
        return 0
    back = [
        (place - kinds.index(variants[number][0].ends)) % len(kinds) for place, number in enumerate(kinds)
    ]
    assert len(set(back)) == 1
    return back[0] or len(kinds)


def trained(
    options: dict[str, Any], expected: int, stops: tuple[int, ...] = (ROUNDS,)
) -> dict[str, np.ndarray]:
    engine, batches = engine_of(options)
    with engine:
        assert under_way(engine) == expected, (options, under_way(engine))
        at = 0
        for stop in stops:
            at = engine.run(batches.open, at, stop)
            z = engine.central_values()
        values = {**z, **engine.learners.values.state_arrays()}
        return {name: np.array(value) for name, value in values.items()}


def require_equal(
    got: dict[str, np.ndarray], expected: dict[str, np.ndarray], same_sums: bool = True
) -> None:
    """Equal bits; of three workers and more, MPI may add in another order where it is not waited for."""
    assert got.keys() == expected.keys()
    for name, value in got.items():
        if same_sums or workers.size == 2:
            assert value.tobytes() == expected[name].tobytes(), name
        else:
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def bits_are_equal() -> None:
    for options, expected in CASES:
        os.environ[OVERLAP] = "never"
        waited_for = trained(options, 0)
        os.environ[OVERLAP] = "always"
        overlapped = trained(options, expected)
        require_equal(overlapped, waited_for, same_sums=not expected)
        require_equal(trained(options, expected, (3, 4, 8, ROUNDS)), overlapped)
    del os.environ[OVERLAP]
    trained({}, 0)  # no link joins the workers
    with network_of_its_own() if RANK == 1 else nullcontext(True) as is_apart:
        joined = all(workers.all_gather(is_apart))  # by a link, as far as they can see
        for size, expected in ((SIZE, int(joined)), (5, 0)):  # too few bytes
            engine, _ = engine_of({}, size)
            with engine:
                assert under_way(engine) == expected


def rounds_go_on_meanwhile() -> None:
    """A round is computed after the exchange of the one before has begun, and before it ends.

    Each exchange takes a while; a round comes to its own exchange before that, and then waits for it.
    """
    ended, arrived, went_on = list[float](), dict[int, float](), dict[int, float]()
    slow, run = MpiWorkers.all_sum_patiently, ProgramLaunch.run

    def sleeping(group: MpiWorkers, array: np.ndarray, halves: bool = False) -> None:
        time.sleep(0.3)
        slow(group, array, halves)
        ended.append(time.perf_counter())

    def timed(launch: ProgramLaunch, thread: int) -> None:
        launch.launch.time_exchanges()
        run(launch, thread)
        for index, _, arrived_s, all_arrived_s, _ in launch.launch.exchange_times(thread):
            arrived[launch.rounds[index]] = arrived_s
            went_on[launch.rounds[index]] = all_arrived_s

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MpiWorkers, "all_sum_patiently", sleeping)
        patch.setattr(ProgramLaunch, "run", timed)
        for options, tau, most in (
            ({}, 1, 1),
            ({"staleness": 1}, 1, 2),
            ({"sync": "diloco", "tau": 2, "staleness": 1}, 2, 1),
        ):
            for each in (ended, arrived, went_on):
                each.clear()
            engine, batches = engine_of(options)
            with engine:
                engine.run(batches.open, 0, 4 * tau)
            rounds = sorted(arrived)
            assert rounds == [tau * (number + 1) - 1 for number in range(4)]
            for number, round in enumerate(rounds[most:]):
                assert arrived[round] < ended[number] < went_on[round], (options, arrived, ended, went_on)
            assert len(ended) == 4  # the last ones when the run ends


def a_failure_is_told() -> None:
    """Other workers learn that one fails while an exchange is under way."""
    engine, batches = engine_of({})

    def fail(results: Any) -> None:
        if RANK == 1 and results.rounds[0] >= 5:
            raise ValueError("of the program")

    with pytest.raises(Exception, match="of the program"), engine:
        engine.run(batches.open, 0, 60, on_results=fail)


def choices_are_checked() -> None:
    os.environ[OVERLAP] = "often"
    with pytest.raises(Exception, match="expected never or always, got 'often'"):
        overlapped_sums.overlap_choice()
    del os.environ[OVERLAP]


choices_are_checked()
bits_are_equal()
os.environ[OVERLAP] = "always"
rounds_go_on_meanwhile()
a_failure_is_told()
print(f"worker {RANK} is done")
