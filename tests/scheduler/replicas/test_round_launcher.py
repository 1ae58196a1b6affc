"""Whole steps in one launch, averaging included: the bits of the tasks that are several launches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import scheduler.replicas.learners
import tensorbow as tb
from scheduler import (
    DatasetBatches,
    LearningEngine,
    RoundResults,
    Stepper,
    StepProgram,
    Synchronisation,
    build_program,
    gathered,
)
from scheduler.replicas.launches import LaunchedRounds
from scheduler.replicas.thread_choice import ThreadChoice, Threads
from tensorbow.data import ImageDataset, make_synthetic
from tensorbow.devices import Event
from tensorbow.errors import InvalidArgumentError, NumericsError
from tensorbow.kernels import backends
from tensorbow.models import get_model
from tests.scheduler_rig.programs import convolutional, logistic, well
from tests.scheduler_rig.round_engines import engine_of, labelled, spoilt, trained
from tests.scheduler_rig.running import Hesitant, Prepared, cpu_devices, within

pytest.importorskip("llvmlite")

from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.rounds.exchange_pass import CHUNK

WAYS: list[dict[str, Any]] = [
    {},
    {"mu": 0.7},
    {"tau": 3, "mu": 0.5},
    {"sync": "easgd", "tau": 2},
    {"sync": "diloco", "tau": 3},
    {"sync": "diloco", "tau": 2, "staleness": 1},
    {"sync": "none"},
    {"sync": "ssgd"},
    {"staleness": 2, "tau": 2, "mu": 0.4},
    {"sync": "sma", "ssgd_from": 5, "staleness": 1},
]
DEVICES: list[int | list[int]] = [3, [2, 1]]  # three replicas on one device, or on two


pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has tasks be several launches from now on."""
    return lambda: monkeypatch.setattr(scheduler.replicas.learners, "round_launcher", lambda *given: None)


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize(
    ("replicas", "size"),
    [
        (1, CHUNK + 1),
        (2, 3 * CHUNK + 21),
        (5, CHUNK - 1),
        (3, 7),
        ([1, 1], CHUNK + 1),
        ([2, 1, 3], 2 * CHUNK + 5),
    ],
)
def test_the_bits_of_tasks_apart(
    apart: Callable[[], None], options: dict[str, Any], replicas: int | list[int], size: int
) -> None:
    model = well(size)
    joint = [trained(model, replicas, steps, 11, True, **options) for steps in (1, 4, 16)]
    apart()
    expected = trained(model, replicas, 1, 11, False, **options)
    assert all(each == expected for each in joint)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tb.float32, tb.float64])
def test_other_programs(apart: Callable[[], None], dtype: Any) -> None:
    models = [logistic(dtype), convolutional(dropout=True)]
    joint = [trained(model, 3, steps, 7, True, mu=0.3) for model in models for steps in (1, 3)]
    apart()
    expected = [trained(model, 3, 1, 7, False, mu=0.3) for model in models]
    assert joint == [each for each in expected for _ in range(2)]


@pytest.mark.slow
def test_many_times_the_same_bits() -> None:
    model = well(CHUNK + 5)
    first = trained(model, 4, 3, 20, True)
    for launch_ahead in (1, 2, 5) * 2:
        assert trained(model, 4, 3, 20, True, launch_ahead=launch_ahead) == first


def lenet(data: ImageDataset, replicas: int, steps: int, data_on_device: str) -> dict[str, bytes]:
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(get_model("lenet"), data, 0.9, 0.01, 1e-4)
    engine = LearningEngine(program, 4, cpu_devices(1), replicas, steps_per_launch=steps)
    with engine:
        engine.initialize()
        batches = DatasetBatches(data, 4, replicas, seed=1, steps_per_launch=steps)
        batches.keep_on_devices(engine.learners, data_on_device)
        within(lambda: engine.run(batches.open, 0, 9))
        return {name: a.tobytes() for name, a in engine.learners.values.state_arrays().items()}


@pytest.mark.slow
def test_lenet_on_a_data_set_over_the_end_of_epochs(apart: Callable[[], None]) -> None:
    """Its dense layer's gradient stands as factors, and its batches are made by native code."""
    data, _ = make_synthetic(37, 8)
    joint = [lenet(data, 2, steps, kept) for steps in (1, 4) for kept in ("never", "auto")]
    apart()
    expected = lenet(data, 2, 1, "never")
    assert all(each == expected for each in joint)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("steps", [1, 4])
def test_restarts_come_between_launches(apart: Callable[[], None], steps: int) -> None:
    model, schedule = well(), tb.train.PiecewiseConstant([5, 6, 13], [0.1, 0.05, 0.02, 0.01])
    joint = trained(model, 2, steps, 17, True, schedule=schedule, mu=0.9)
    apart()
    assert joint == trained(model, 2, 1, 17, False, schedule=schedule, mu=0.9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tasks", [[(6, 1)], [(6, 0), (6, 1), (6, 2)], [(7, 2), (8, 0)]])
@pytest.mark.parametrize("sync", ["sma", "none"])
def test_a_nan_ends_the_launch_with_its_step(sync: str, tasks: list[tuple[int, int]]) -> None:
    model = well()
    # Without averaging a replica may come to its bad step before the others to theirs.
    first = tasks if sync == "none" else [min(tasks)]
    bad = "|".join(f"{replica} is not finite at step {round}" for round, replica in first)
    in_order = [(round, replica) for round in range(40) for replica in range(3)]
    source = gathered(Prepared(spoilt(model, *tasks), 3).open, 4)
    whole = gathered(Prepared(model.batch, 3).open, 4)
    for _ in range(4):
        told: list[tuple[int, int]] = []
        on_results = partial(_tell, told)
        with engine_of(model, 3, 4, sync=sync) as engine:
            with pytest.raises(NumericsError, match=rf"replica ({bad})"):
                within(partial(engine.run, source, 0, 40, on_results))
            assert told == in_order[: len(told)]
            assert len(told) <= max(tasks)[0] * 3 + max(tasks)[1]
            assert all(np.isfinite(a).all() for a in engine.learners.values.state_arrays().values())
            engine.learners.values.initialize(model.initial)
            assert within(partial(engine.run, whole, 0, 6)) == 6


def _tell(told: list[tuple[int, int]], results: RoundResults) -> None:
    told.extend((result.round, result.replica) for result in results)


def test_a_nan_can_be_skipped(apart: Callable[[], None]) -> None:
    model = well()

    def run(steps: int) -> dict[str, bytes]:
        with engine_of(model, 3, steps, on_nan="skip") as engine:
            prepared = Prepared(spoilt(model, (3, 1), (4, 1), (5, 2)), 3).open
            within(lambda: engine.run(prepared if steps == 1 else gathered(prepared, steps), 0, 10))
            assert engine.skipped_updates == 3
            return {name: a.tobytes() for name, a in engine.learners.values.state_arrays().items()}

    joint = [run(steps) for steps in (1, 4)]
    apart()
    assert joint == [run(1)] * 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("replicas", DEVICES)
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("sync", ["sma", "none"])
def test_input_that_an_op_refuses(
    monkeypatch: pytest.MonkeyPatch, replicas: int | list[int], steps: int, sync: str
) -> None:
    model = labelled()
    monkeypatch.setattr("scheduler.replicas.round_launcher.usable_cores", lambda: 3)
    with engine_of(model, replicas, steps, sync=sync) as engine:
        assert engine.learners.launches_rounds
        prepared = Prepared(model.batch, 3).open
        message = r"replica 1 at step 6: SparseSoftmax.* 9.*round_engines"
        with pytest.raises(InvalidArgumentError, match=message):
            within(lambda: engine.run(prepared if steps == 1 else gathered(prepared, steps), 0, 20))


def test_a_replica_that_does_not_come_lets_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of one stream fails before its launch begins."""
    model = well()
    for launch_ahead in (1, 3):
        with engine_of(model, 3, launch_ahead=launch_ahead) as engine:
            stream = engine.learners.replicas[2].group.compute
            submit, count = stream.submit, iter(range(10**6))

            def broken(work: Any, **given: Any) -> Event:
                def fails() -> None:
                    if next(count) == 5:  # noqa: B023
                        raise OSError("the thread is ill")
                    work()

                return submit(fails, **given)  # noqa: B023

            monkeypatch.setattr(stream, "submit", broken)
            monkeypatch.setattr("scheduler.replicas.round_launcher.usable_cores", lambda: 3)
            with pytest.raises(OSError, match="the thread is ill"):
                within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 30))
            monkeypatch.undo()
            monkeypatch.setitem(backends._backends, "cpu", NativeBackend())
            engine.learners.values.initialize(model.initial)
            assert within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 6)) == 6


@pytest.mark.parametrize("replicas", DEVICES)
def test_an_interrupt_between_two_replicas_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, replicas: int | list[int]
) -> None:
    model = well()
    monkeypatch.setattr("scheduler.replicas.round_launcher.usable_cores", lambda: 3)
    with engine_of(model, replicas) as engine:
        stream = engine.learners.replicas[1].group.compute
        monkeypatch.setattr(stream, "submit", lambda *given, **more: _interrupt())
        with pytest.raises(KeyboardInterrupt):
            within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 30))
        monkeypatch.undo()
        engine.learners.values.initialize(model.initial)


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_mean_that_is_not_finite_is_forgotten_by_the_next_run(on_nan: str) -> None:
    """Also where the next run averages gradients for the first time, as that one did."""
    model = well()
    with engine_of(model, 2, sync="ssgd", on_nan=on_nan) as engine:
        with pytest.raises(NumericsError) if on_nan == "stop" else nullcontext():
            within(lambda: engine.run(Prepared(spoilt(model, (0, 0)), 2).open, 0, 1))
        skipped = engine.skipped_updates
        assert within(lambda: engine.run(Prepared(model.batch, 2).open, 1, 2)) == 2
        assert engine.skipped_updates == skipped


def test_a_thread_that_tells_of_its_launch_after_the_next_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = cycle([Threads.EACH, Threads.CALLER])
    monkeypatch.setattr(ThreadChoice, "choose", lambda self, rounds: next(choices))
    follow = LaunchedRounds.follow

    def follow_late(self: LaunchedRounds, events: Any, call: Any, stop: Any = None) -> None:
        def tell(tasks: LaunchedRounds) -> None:
            if threading.current_thread().name.startswith("tensorbow"):  # not the caller's
                time.sleep(0.05)
            call(tasks)

        follow(self, events, tell, stop)

    monkeypatch.setattr(LaunchedRounds, "follow", follow_late)
    model, told = well(), list[int]()
    with engine_of(model, 2) as engine:
        source = Hesitant(model.batch, 2, pause_s=0.01)
        within(lambda: engine.run(source.open, 0, 6, lambda results: told.extend(results.rounds)))
    assert told == [*range(6)]


@pytest.mark.slow
def test_launches_ahead_of_slow_results_overwrite_none() -> None:
    """The ring of fetched values holds the rounds of all launches that are in flight."""
    model = well()
    expected, _ = trained(model, 2, 1, 40, True)
    results: list[tuple[int, int, float]] = []

    def note(told: RoundResults) -> None:
        time.sleep(0.01)  # long enough for the launches ahead to end
        results.extend((r.round, r.replica, r.loss) for r in told)

    with engine_of(model, 2, 4, launch_ahead=3) as engine:
        within(lambda: engine.run(gathered(Prepared(model.batch, 2).open, 4), 0, 40, note))
    assert results == expected


def test_a_stop_comes_between_launches() -> None:
    model = well()
    with engine_of(model, 2, 4) as engine:

        def stop(results: Any) -> None:
            if 5 in results.rounds:
                engine.request_stop()

        ended = within(lambda: engine.run(gathered(Prepared(model.batch, 2).open, 4), 2, 40, stop))
        assert (ended - 2) % 4 == 0
        assert 6 <= ended < 40
        assert within(lambda: engine.run(gathered(Prepared(model.batch, 2).open, 4), ended, 41)) == 41


def test_a_stepper_and_a_changing_number_of_replicas() -> None:
    model = well()
    with engine_of(model, 2) as engine:
        with Stepper(engine) as stepper:
            for round in range(4):
                stepper.step([model.batch(round, i) for i in range(2)])
        engine.resize(3)
        assert engine.learners.launches_rounds
        assert within(lambda: engine.run(Prepared(model.batch, 3).open, 4, 9)) == 9


@pytest.mark.parametrize(
    ("options", "devices"),
    [({"dispatch": "fcfs"}, 1)],
)
def test_where_launches_have_one_step(options: dict[str, Any], devices: int) -> None:
    model, kept_by = well(), Synchronisation(**options)
    with pytest.raises(InvalidArgumentError, match="steps_per_launch=4: several steps in one launch need"):
        LearningEngine(model.program, model.shapes, cpu_devices(devices), 2, kept_by, steps_per_launch=4)


def test_the_op_that_keeps_launches_at_one_step_is_named() -> None:
    with tb.Graph().as_default():
        x, n = tb.placeholder(tb.float32, [4, 3]), tb.placeholder(tb.int32, [4])
        w = tb.Variable(np.ones((3, 1), np.float32))
        whole = tb.cast(tb.floordiv(n, 2, name="whole"), tb.float32)
        loss = tb.reduce_mean(tb.reduce_sum(tb.matmul(x, w), axis=1) * whole)
        program = StepProgram((x, n), loss, tb.train.GradientDescentOptimizer(0.1).minimize(loss))
    with pytest.raises(InvalidArgumentError, match=r"round_robin \(FloorDiv whole has no native code"):
        LearningEngine(program, [x.spec, n.spec], cpu_devices(1), 2, steps_per_launch=4)


def test_batches_that_do_not_fit_the_launches() -> None:
    model = well()
    single = Prepared(model.batch, 2).open
    with engine_of(model, 2, 4) as engine, pytest.raises(InvalidArgumentError, match="a BatchRun of 4"):
        within(lambda: engine.run(single, 0, 8))
    with engine_of(model, 2) as engine, pytest.raises(InvalidArgumentError, match="got a BatchRun of 4"):
        within(lambda: engine.run(gathered(single, 4), 0, 8))
    with pytest.raises(
        InvalidArgumentError, match=r"expected steps_per_launch to be a whole number .*, got int 0"
    ):
        engine_of(model, 2, 0)
