"""First come, first served on an engine: who takes what, and that the values follow from that alone."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, Stepper, Synchronisation, TaskResult, TrainingConfig
from scheduler.training.models.classifier_step import build_step
from tensorbow.data import make_synthetic
from tensorbow.devices import CpuDevice, Device
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import FUSE, Model, convolutional, fused, well
from tests.scheduler_rig.reference import FirstComeAveraging
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    gpu_devices,
    same_bits,
    within,
)

SYNCS: list[dict[str, Any]] = [
    {},
    {"tau": 3, "mu": 0.5},
    {"tau": 2, "staleness": 1},
    {"sync": "easgd", "tau": 4},
    {"sync": "none"},
]


def uneven_devices(*pauses_s: float) -> list[Device]:
    """CPU devices, on each of which every piece of work takes so much longer."""
    return [
        CpuDevice(f"/cpu:{index}", delay=lambda pause=pause: time.sleep(pause))
        for index, pause in enumerate(pauses_s)
    ]


def check_values(engine: Any, reference: FirstComeAveraging, round: int) -> None:
    for index, w in enumerate(reference.w):
        assert engine.learners.values.replica_values(index)["w"].tobytes() == w.tobytes()
    if engine.learners.averages:
        assert engine.learners.values.central_values(round)["w"].tobytes() == reference.z.tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("launch_ahead", [1, 3])
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("options", SYNCS, ids=str)
def test_the_values_follow_from_who_took_what(
    options: dict[str, Any], devices: int, per_device: int, launch_ahead: int
) -> None:
    model, k, rounds = well(), devices * per_device, 13
    results: list[TaskResult] = []
    options = {**options, "dispatch": "fcfs"}
    with engine_of(
        model, cpu_devices(devices, delays=3), per_device, launch_ahead=launch_ahead, **options
    ) as engine:
        source = Hesitant(model.batch, k)
        assert within(lambda: engine.run(source.open, 0, rounds, results.extend)) == rounds
        assert source.released == rounds * k
        assert [(r.round, r.batch_number) for r in results] == [
            (t, i) for t in range(rounds) for i in range(k)
        ]
        reference = FirstComeAveraging(model.initial["w"], k, engine.options, devices)
        reference.run(model.batch, [result.replica for result in results], 0)
        check_values(engine, reference, rounds)
        assert engine.round == rounds


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"tau": 8}, {"sync": "none"}, {"sync": "easgd", "tau": 8}], ids=str)
def test_a_fast_replica_takes_more(options: dict[str, Any]) -> None:
    """Replica 1 is on a device where everything takes 4 ms longer; by round_robin each takes half."""
    model, rounds = well(), 24
    for dispatch in ("fcfs", "round_robin"):
        results: list[TaskResult] = []
        devices = uneven_devices(0.0, 4e-3)
        with engine_of(model, devices, 1, launch_ahead=1, dispatch=dispatch, **options) as engine:
            source = Prepared(model.batch, 2)
            assert engine.run(source.open, 0, rounds, results.extend) == rounds
        taken = Counter(result.replica for result in results)
        assert sum(taken.values()) == 2 * rounds
        if dispatch == "round_robin":
            assert taken == {0: rounds, 1: rounds}
            assert all(result.batch_number == result.replica for result in results)
        else:
            assert taken[0] > 1.5 * taken[1] > 0, taken


def test_a_replica_that_stands_still_holds_up_nobody_until_the_averaging() -> None:
    """All but one batch of the first averaging period are trained while replica 1 is with its first."""
    model, tau = well(), 6
    goes_on, results = threading.Event(), []

    def stands() -> None:
        goes_on.wait(20)

    devices: list[Device] = [CpuDevice("/cpu:0"), CpuDevice("/cpu:1", delay=stands)]
    done = threading.Semaphore(0)
    with engine_of(model, devices, 1, launch_ahead=1, tau=tau, dispatch="fcfs") as engine:
        original = engine.learners.replicas[0].launch

        def launch(*arguments: Any) -> Any:
            event = original(*arguments)
            event.on_done(lambda event: done.release())
            return event

        engine.learners.replicas[0].launch = launch  # type: ignore[method-assign]
        source = Prepared(model.batch, 2)
        runner = threading.Thread(target=lambda: engine.run(source.open, 0, tau, results.extend))
        runner.start()
        for _ in range(2 * tau - 1):
            assert done.acquire(timeout=20), "it waits for replica 1"
        goes_on.set()
        runner.join(20)
        assert not runner.is_alive()
    assert [result.replica for result in results] == [0, 1, *[0] * (2 * tau - 2)]


@pytest.mark.slow
def test_averaging_restarts_between_two_rounds() -> None:
    model, results = well(), []
    schedule = tb.train.PiecewiseConstant([4, 7], [0.1, 0.1, 0.1])
    options = {"tau": 3, "staleness": 1, "mu": 0.5, "dispatch": "fcfs"}
    with engine_of(model, cpu_devices(1, delays=5), 3, schedule, **options) as engine:
        engine.run(Hesitant(model.batch, 3).open, 0, 12, results.extend)
        reference = FirstComeAveraging(model.initial["w"], 3, engine.options)
        reference.run(model.batch, [result.replica for result in results], 0, restarts_before=[5, 8])
        check_values(engine, reference, 12)


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_the_middle_of_an_averaging_period() -> None:
    model, results = well(), []
    options = {"tau": 4, "mu": 0.3, "dispatch": "fcfs"}
    with engine_of(model, cpu_devices(2, delays=6), 2, **options) as engine:
        assert engine.run(Hesitant(model.batch, 4).open, 0, 6, results.extend) == 6
        saved = engine.learners.values.state_arrays()
        central = engine.central_values()
    reference = FirstComeAveraging(model.initial["w"], 4, Synchronisation(**options), devices=2)
    reference.run(model.batch, [result.replica for result in results], 0)
    assert central["w"].tobytes() == reference.z.tobytes()
    results.clear()
    with engine_of(model, cpu_devices(2, delays=7), 2, **options) as engine:
        engine.learners.values.load_state_arrays(saved)
        assert engine.run(Hesitant(model.batch, 4).open, 6, 13, results.extend) == 13
        reference.run(model.batch, [result.replica for result in results], 6)
        check_values(engine, reference, 13)


def test_a_checkpoint_of_either_goes_on_by_the_other() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2, dispatch="fcfs") as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 4)
        saved = engine.learners.values.state_arrays()
    with engine_of(model, cpu_devices(1), 2) as engine:
        engine.learners.values.load_state_arrays(saved)
        assert same_bits(engine.learners.values.state_arrays(), saved)
        assert engine.run(Prepared(model.batch, 2).open, 4, 8) == 8


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"tau": 2}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
def test_the_number_of_replicas_changes(options: dict[str, Any], before: int, after: int) -> None:
    model, results = well(), []
    with engine_of(model, cpu_devices(1, delays=8), before, dispatch="fcfs", **options) as engine:
        engine.run(Hesitant(model.batch, before).open, 0, 5, results.extend)
        engine.resize(after)
        arrays = engine.learners.values.state_arrays()
        results.clear()
        assert engine.run(Hesitant(model.batch, after).open, 5, 11, results.extend) == 11
        reference = FirstComeAveraging(model.initial["w"], after, engine.options)
        reference.w = [arrays[f"replica{index}/w"] for index in range(after)]
        reference.v = [arrays[f"replica{index}/w/Momentum"] for index in range(after)]
        if engine.learners.averages:
            reference.z, reference.past = arrays["central0/w"], [arrays["central0/w"]]
        reference.run(model.batch, [result.replica for result in results], 5)
        check_values(engine, reference, 11)


@pytest.mark.slow
def test_a_batch_has_the_same_random_draws_whoever_takes_it() -> None:
    """The first round's losses, with dropout, on equal replicas that take other batches than their own."""
    model = convolutional(dropout=True)
    losses = {}
    for dispatch, pauses in (("round_robin", (0.0, 0.0)), ("fcfs", (5e-3, 0.0)), ("fcfs", (0.0, 5e-3))):
        results: list[TaskResult] = []
        devices = uneven_devices(*pauses)
        schedule = tb.train.Constant(1e-30)  # so that weights stay the same
        with engine_of(model, devices, 1, schedule, sync="none", dispatch=dispatch) as engine:
            engine.run(Prepared(model.batch, 2).open, 0, 9, results.extend)
        losses[dispatch, pauses] = [result.loss for result in results]
        if dispatch == "fcfs":
            assert any(result.replica != result.batch_number for result in results)
    expected, *others = losses.values()
    assert all(other == expected for other in others)
    assert len(set(expected)) == 18


@pytest.mark.slow
@needs_compiler
def test_a_gpu_takes_batches_beside_a_cpu() -> None:
    """It copies them from pinned memory, which therefore all are in."""
    data, _ = make_synthetic(train_examples=240, test_examples=60)
    config = TrainingConfig(model="logreg", dataset="synthetic", batch_size=8)
    program, shapes = build_step(config, data, 0.01)
    model = Model(program, shapes, program.initial_values(), lambda round, batch: ())
    results: list[TaskResult] = []
    with emulated_runtime() as runtime:
        devices = [*uneven_devices(2e-3), *gpu_devices(runtime, 1)]
        with engine_of(model, devices, 1, launch_ahead=1, sync="none", dispatch="fcfs") as engine:
            batches = DatasetBatches(data, 8, 2, seed=0)
            batches.keep_on_devices(engine.learners, "never")
            assert engine.run(batches.open, 0, 15, results.extend) == 15
        del batches
        gc.collect()  # pinned memory goes back
    assert any(result.replica == 1 and result.batch_number == 0 for result in results)
    assert np.mean([result.loss for result in results[-6:]]) < np.mean([r.loss for r in results[:6]])


# Ends -----------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"tau": 3}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize("after_s", [0.0, 0.003, 0.02])
def test_a_stop_at_any_moment_ends_with_a_round(options: dict[str, Any], after_s: float) -> None:
    model, results = well(), []
    with engine_of(model, cpu_devices(2, delays=3), 2, dispatch="fcfs", **options) as engine:
        timer = threading.Timer(after_s, engine.request_stop)
        timer.start()
        source = Hesitant(model.batch, 4, pause_s=1e-3)
        reached = within(lambda: engine.run(source.open, 0, 4000, results.extend))
        timer.join()
        assert 0 <= reached < 4000
        assert len(results) == 4 * reached
        reference = FirstComeAveraging(model.initial["w"], 4, engine.options, devices=2)
        reference.run(model.batch, [result.replica for result in results], 0)
        check_values(engine, reference, reached)


def spoilt(model: Model, round: int, batch_number: int, number: float) -> Any:
    """The model's batches, one of which holds a number it should not."""

    def batch(t: int, i: int) -> tuple[Any, ...]:
        arrays = model.batch(t, i)
        if (t, i) == (round, batch_number):
            arrays[0][-1] = number
        return arrays

    return batch


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"tau": 4}, {"sync": "none"}], ids=str)
@pytest.mark.parametrize("launch_ahead", [1, 3])
def test_a_nan_stop_names_the_step_and_who_took_it(options: dict[str, Any], launch_ahead: int) -> None:
    """Everything from round 1 on goes to replica 0: replica 1 is still with its first batches."""
    model, results = well(), []
    devices = uneven_devices(0.0, 0.1)
    options = {**options, "launch_ahead": launch_ahead, "dispatch": "fcfs"}
    with engine_of(model, devices, 1, **options) as engine:
        source = Prepared(spoilt(model, 3, 1, 1e30), 2)
        with pytest.raises(NumericsError, match=r"loss of replica 0 is not finite at step 3; .*(Square|Sub)"):
            within(lambda: engine.run(source.open, 0, 40, results.extend))
        assert all((result.round, result.batch_number) < (3, 1) for result in results)
        engine.learners.values.initialize(model.initial)
        assert engine.run(Prepared(model.batch, 2).open, 0, 2) == 2


def test_a_nan_can_be_skipped() -> None:
    model, losses = well(), []
    options = {"on_nan": "skip", "tau": 2, "dispatch": "fcfs"}
    with engine_of(model, cpu_devices(1, delays=4), 3, **options) as engine:
        source = Prepared(spoilt(model, 5, 2, np.nan), 3)
        assert (
            within(lambda: engine.run(source.open, 0, 12, lambda results: losses.extend(results.losses)))
            == 12
        )
        assert engine.skipped_updates == 1
        assert [index for index, loss in enumerate(losses) if np.isnan(loss)] == [5 * 3 + 2]
        assert np.isfinite(engine.central_values()["w"]).all()


@pytest.mark.slow
def test_a_failing_op_names_the_step_and_who_took_it() -> None:
    model, devices = fused(), uneven_devices(0.0, 0.1)
    with engine_of(model, devices, 1, launch_ahead=2, tau=20, dispatch="fcfs") as engine:
        source = Prepared(spoilt(model, 4, 1, FUSE), 2)
        with pytest.raises(InvalidArgumentError, match="replica 0 at step 4: TestFuse the_fuse: ValueError"):
            within(lambda: engine.run(source.open, 0, 50))
        assert source.closed == 1
        engine.learners.values.initialize(model.initial)
        assert engine.run(Prepared(model.batch, 2).open, 0, 2) == 2


@pytest.mark.parametrize("options", [{"tau": 2}, {"sync": "none"}], ids=str)
def test_a_failing_source(options: dict[str, Any]) -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2, dispatch="fcfs", **options) as engine:
        source = Hesitant(model.batch, 2, fail_at=(7, 1))
        with pytest.raises(OSError, match="the disk is gone"):
            within(lambda: engine.run(source.open, 0, 50))


def test_a_failing_averaging() -> None:
    model = well()
    with engine_of(model, cpu_devices(1, delays=2), 2, tau=2, dispatch="fcfs") as engine:
        plan = engine.learners.replicas[1].binding.plan
        original = plan.launch

        def launch(segment: int, step: int = 0) -> None:
            if plan.executable.segments[segment].name == "averaging 0":
                raise OSError("the pull is broken")
            original(segment, step)

        plan.launch = launch  # type: ignore[method-assign]
        with pytest.raises(OSError, match="the pull is broken"):
            within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 50))


# Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"sync": "ssgd"}, {"ssgd_from": 3}], ids=str)
def test_it_does_not_go_with_steps_on_the_mean_gradient(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"dispatch: expected round_robin with ssgd.* got 'fcfs'"):
        Synchronisation(dispatch="fcfs", **options)


def test_it_is_refused_where_every_replica_is_brought_a_batch() -> None:
    options = Synchronisation(dispatch="fcfs")
    with pytest.raises(InvalidArgumentError, match="round_robin for a TensorBowSession, which waits"):
        tb.TensorBowSession(graph=tb.Graph(), synchronisation=options)
    model = well()
    inputs = [model.batch(0, replica) for replica in range(2)]
    with (
        engine_of(model, cpu_devices(1), 2, dispatch="fcfs") as engine,
        Stepper(engine) as stepper,
        pytest.raises(
            InvalidArgumentError, match=r"dispatch: expected round_robin for a stepper's step.*got 'fcfs'"
        ),
    ):
        stepper.step(inputs)
    with (
        engine_of(model, cpu_devices(1), 2) as engine,
        Stepper(engine) as stepper,
        pytest.raises(
            InvalidArgumentError, match="give: expected dispatch fcfs, or backup workers, got 'round_robin'"
        ),
    ):
        stepper.give(inputs)
    with pytest.raises(InvalidArgumentError, match="dispatch: expected one of round_robin, fcfs, got 'lifo'"):
        Synchronisation(dispatch="lifo")
