"""Faults of tasks, averaging, sources, callbacks and numbers: no hang, a clear word, and all still usable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, Stepper, StepProgram, Synchronisation
from tensorbow.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    NumericsError,
)
from tests.scheduler_rig.programs import FUSE, Model, fused, logistic, well
from tests.scheduler_rig.reference import Sma, well_gradient
from tests.scheduler_rig.running import Hesitant, Prepared, cpu_devices, engine_of, same_bits, within

LAYOUTS = [(1, 1), (1, 3), (2, 2)]


def spoilt(model: Model, round: int, replica: int, number: float) -> Any:
    """The model's batches, one of which holds a number it should not."""

    def batch(t: int, i: int) -> tuple[Any, ...]:
        arrays = model.batch(t, i)
        if (t, i) == (round, replica):
            arrays[0][-1] = number
        return arrays

    return batch


def check_usable(engine: LearningEngine, model: Model, k: int, devices: int = 1, **options: Any) -> None:
    """Initialised anew, it gives the bits of an engine that nothing ever happened to."""
    engine.learners.values.initialize(model.initial)
    assert within(lambda: engine.run(Prepared(model.batch, k).open, 0, 6)) == 6
    reference = Sma(model.initial["w"], k, well_gradient, lambda t: 0.1, devices=devices, **options)
    reference.run(model.batch, 0, 6)
    for index in range(k):
        assert engine.learners.values.replica_values(index)["w"].tobytes() == reference.w[index].tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
@pytest.mark.parametrize("launch_ahead", [1, 3])
def test_a_failing_op_is_named_with_the_users_line(devices: int, per_device: int, launch_ahead: int) -> None:
    model, k = fused(), devices * per_device
    with engine_of(model, cpu_devices(devices, delays=1), per_device, launch_ahead=launch_ahead) as engine:
        source = Hesitant(spoilt(model, 4, k - 1, FUSE), k)
        with pytest.raises(InvalidArgumentError) as caught:
            within(lambda: engine.run(source.open, 0, 50))
        text = str(caught.value)
        assert f"replica {k - 1} at step 4: TestFuse the_fuse: ValueError: the fuse has blown" in text
        assert "programs.py" in text
        assert source.closed == 1
        check_usable(engine, model, k, devices)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [{}, {"tau": 3}, {"sync": "none"}, {"sync": "ssgd"}, {"staleness": 1, "mu": 0.5}],
    ids=lambda options: "-".join(f"{name}={value}" for name, value in options.items()) or "sma",
)
@pytest.mark.parametrize(("failing", "copies_s"), [(0, 0.0), (7, 0.0), (7, 1e9)])
def test_after_a_failing_op_all_replicas_are_before_its_round(
    options: dict[str, Any], failing: int, copies_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """copies_s: seconds between copies of the state: one before each round, or one for the run."""
    monkeypatch.setattr("scheduler.engine.rollback.LEAST_S", copies_s)
    monkeypatch.setattr("scheduler.engine.rollback.COPIES", 0)
    model, states = fused(), []
    with engine_of(model, cpu_devices(2, delays=3), 2, launch_ahead=3, **options) as engine:
        given: list[int] = []
        source = Hesitant(spoilt(model, failing, 1, FUSE), 4)
        with pytest.raises(InvalidArgumentError, match=f"replica 1 at step {failing}: "):
            within(lambda: engine.run(source.open, 0, 50, lambda results: given.extend(results.rounds)))
        assert engine.round == failing
        assert given == [*range(failing)]
        states.append(engine.learners.values.state_arrays())
        within(lambda: engine.run(Prepared(model.batch, 4).open, failing, 10))
        states.append(engine.learners.values.state_arrays())
    with engine_of(model, cpu_devices(2), 2, **options) as engine:
        for state, (start, stop) in zip(states, [(0, failing), (failing, 10)], strict=True):
            within(lambda start=start, stop=stop: engine.run(Prepared(model.batch, 4).open, start, stop))
            assert same_bits(state, engine.learners.values.state_arrays())


def test_a_stepper_does_a_round_again_after_a_failing_op() -> None:
    model = fused()
    states = []
    for bad in (None, 5):
        with engine_of(model, cpu_devices(1), 3, sync="none") as engine, Stepper(engine) as stepper:
            for round in range(8):
                if round == bad:
                    batch = spoilt(model, round, 2, FUSE)
                    with pytest.raises(InvalidArgumentError, match="the fuse has blown"):
                        stepper.step([batch(round, replica) for replica in range(3)])
                stepper.step([model.batch(round, replica) for replica in range(3)])
            states.append(stepper.state().arrays)
    assert same_bits(*states)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.usefixtures("reference_kernels")  # with averaging on a stream of its own
def test_a_failing_averaging(devices: int, staleness: int) -> None:
    model, k = well(), 2 * devices
    with engine_of(model, cpu_devices(devices), 2, staleness=staleness) as engine:
        plan = engine.learners.central[-1]._binding.plan
        launches = iter(range(10**6))
        original = plan.launch

        def launch(segment: int, step: int = 0) -> None:
            if next(launches) == 5:
                raise OSError("the sums are wrong")
            original(segment, step)

        plan.launch = launch  # type: ignore[method-assign]
        with pytest.raises(OSError, match="the sums are wrong"):
            within(lambda: engine.run(Prepared(model.batch, k).open, 0, 50))
        check_usable(engine, model, k, devices, staleness=staleness)


def test_a_failing_all_reduce(monkeypatch: pytest.MonkeyPatch) -> None:
    model = well()
    monkeypatch.setattr("scheduler.replicas.learners.round_launcher", lambda *given: None)
    with engine_of(model, cpu_devices(2), 2) as engine:

        def broken(exchange: int) -> None:
            raise OSError("the wire is cut")

        monkeypatch.setattr(engine.learners._transport, "_exchange", broken)
        with pytest.raises(OSError, match="the wire is cut"):
            within(lambda: engine.run(Prepared(model.batch, 4).open, 0, 50))
        monkeypatch.undo()
        check_usable(engine, model, 4, 2)


def test_a_failing_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = well()
    schedule = tb.train.PiecewiseConstant([5], [0.1, 0.05])
    with engine_of(model, cpu_devices(1), 2, schedule) as engine:
        plan = engine.learners.replicas[1].binding.plan
        original = plan.launch

        def launch(segment: int, step: int = 0) -> None:
            if plan.executable.segments[segment].name == "restart 0":
                raise OSError("no way back")
            original(segment, step)

        monkeypatch.setattr(plan, "launch", launch)
        for stop in (6, 20):  # right at the end of a run, and in the middle of one
            engine.learners.values.initialize(model.initial)
            with pytest.raises(OSError, match="no way back"):
                within(lambda stop=stop: engine.run(Prepared(model.batch, 2).open, 0, stop))
        monkeypatch.undo()
        check_usable(engine, model, 2, restarts_before=[6])


@pytest.mark.parametrize("sync", ["sma", "none"])
def test_a_failing_source(sync: str) -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2, sync=sync) as engine:
        source = Hesitant(model.batch, 2, fail_at=(7, 1))
        with pytest.raises(OSError, match="the disk is gone"):
            within(lambda: engine.run(source.open, 0, 50))
        assert source.closed == 1
        if sync == "sma":
            check_usable(engine, model, 2)


def test_a_source_that_cannot_be_opened_or_closed() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine:

        def refuse(*arguments: Any) -> Any:
            raise OSError("no such disk")

        with pytest.raises(OSError, match="no such disk"):
            engine.run(refuse, 0, 5)

        source = Prepared(model.batch, 2)
        source.close = refuse  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no such disk"):
            engine.run(source.open, 0, 5)
        check_usable(engine, model, 2)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failing_callback(error: type[BaseException]) -> None:
    model = well()
    with engine_of(model, cpu_devices(2, delays=2), 2) as engine:

        def fail(results: Any) -> None:
            if 3 in results.rounds:
                raise error("enough")

        source = Prepared(model.batch, 4)
        with pytest.raises(error, match="enough"):
            within(lambda: engine.run(source.open, 0, 50, fail))
        assert source.closed == 1
        check_usable(engine, model, 4, 2)


def test_a_device_that_closes_under_a_run() -> None:
    model = well()
    devices = cpu_devices(2, delays=3)
    with engine_of(model, devices, 2) as engine:

        def close(results: Any) -> None:
            if 3 in results.rounds:
                devices[1].close(drain=False)

        with pytest.raises((FailedPreconditionError, CancelledError)):
            within(lambda: engine.run(Prepared(model.batch, 4).open, 0, 50, close))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((), r"expected 1 arrays \(x:0\), got 0"),
        ((np.zeros(6, np.float32),), r"x:0 must be float32\[7\].*got float32\[6\]"),
        ((np.zeros((), np.float32),), r"got float32\[\]"),  # would broadcast over the input
        ((np.zeros(7),), r"got float64\[7\]"),
    ],
)
def test_a_batch_that_does_not_fit(arrays: tuple[Any, ...], message: str) -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine:
        source = Prepared(lambda t, i: arrays if t == 2 else model.batch(t, i), 2)
        with pytest.raises(InvalidArgumentError, match=message):
            within(lambda: engine.run(source.open, 0, 9))
        check_usable(engine, model, 2)


# Losses that are not finite -------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("launch_ahead", [1, 4])
def test_a_nan_stops_and_leaves_its_replica_as_it_was(number: float, launch_ahead: int) -> None:
    model = well()
    options = {"launch_ahead": launch_ahead, "sync": "none"}
    with engine_of(model, cpu_devices(1, delays=5), 3, **options) as engine:
        results: list[Any] = []
        source = Prepared(spoilt(model, 6, 1, number), 3)
        with pytest.raises(NumericsError, match=r"replica 1 is not finite at step 6") as caught:
            within(lambda: engine.run(source.open, 0, 40, results.extend))
        said = str(caught.value)
        assert "first NaN or infinite result: " in said
        assert "Square" in said or "Sub" in said
        assert "programs.py" in said
        assert "lower the learning rate (0.1), or skip such updates" in said
        in_batch = not np.isfinite(number)  # of a large one only the square is infinite
        assert ("its batch has NaN or infinite values already, in x; first" in said) == in_batch
        assert ("mend the data, lower" in said) == in_batch
        told = [(r.round, r.replica) for r in results]
        in_order = [(t, i) for t in range(6) for i in range(3)] + [(6, 0)]
        assert told == in_order[: len(told)]  # and nothing after the bad one
        alone = Sma(model.initial["w"], 1, well_gradient, lambda t: 0.1)
        alone.run(lambda t, _: model.batch(t, 1), 0, 6)
        values = engine.learners.values.replica_values(1)
        assert values["w"].tobytes() == alone.w[0].tobytes()
        assert values["w/Momentum"].tobytes() == alone.v[0].tobytes()
        assert all(np.isfinite(engine.learners.values.replica_values(i)["w"]).all() for i in range(3))


@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 4), (2, 2)])
def test_after_a_nan_everything_is_usable(devices: int, per_device: int) -> None:
    model, k = well(), devices * per_device
    with engine_of(model, cpu_devices(devices), per_device, launch_ahead=3) as engine:
        everywhere = Prepared(lambda t, i: (model.batch(t, i)[0] + (np.float32(1e30) if t == 3 else 0),), k)
        with pytest.raises(NumericsError, match=r"at step 3.*learning rate \(0\.1\)"):
            within(lambda: engine.run(everywhere.open, 0, 40))
        assert all(np.isfinite(a).all() for a in engine.learners.values.state_arrays().values())
        check_usable(engine, model, k, devices)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize(("tau", "staleness"), [(1, 0), (2, 1)])
def test_a_nan_can_be_skipped(devices: int, per_device: int, tau: int, staleness: int) -> None:
    model, k = well(), devices * per_device
    options: dict[str, Any] = {"tau": tau, "staleness": staleness}
    with engine_of(model, cpu_devices(devices, delays=4), per_device, on_nan="skip", **options) as engine:
        losses: list[float] = []
        source = Prepared(spoilt(model, 5, k - 1, np.nan), k)
        assert (
            within(lambda: engine.run(source.open, 0, 12, lambda results: losses.extend(results.losses)))
            == 12
        )
        assert engine.skipped_updates == 1
        assert [index for index, loss in enumerate(losses) if np.isnan(loss)] == [5 * k + k - 1]
        reference = Sma(
            model.initial["w"],
            k,
            well_gradient,
            lambda t: 0.1,
            devices=devices,
            skips=[(5, k - 1)],
            **options,
        )
        reference.run(model.batch, 0, 12)
        for index in range(k):
            assert engine.learners.values.replica_values(index)["w"].tobytes() == reference.w[index].tobytes()


# Wrong use ------------------------------------------------------------------------------------


def test_a_run_before_the_variables_have_values() -> None:
    model = well()
    with engine_of(model, cpu_devices(1), 1) as engine:
        fresh = LearningEngine(
            model.program, model.shapes, engine.learners.devices, 1, engine.options, engine.schedule
        )
        with fresh, pytest.raises(FailedPreconditionError, match=r"without a value: w"):
            fresh.run(Prepared(model.batch, 1).open, 0, 1)
        with pytest.raises(FailedPreconditionError, match="closed"):
            fresh.run(Prepared(model.batch, 1).open, 0, 1)


def test_initial_values_that_do_not_fit_change_nothing() -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        before = engine.learners.values.state_arrays()
        for values, message in (
            ({"w": model.initial["w"]}, "no value for b"),
            ({**model.initial, "b": np.zeros(9)}, r"b: expected shape \[3\]"),
            ({"w": model.initial["w"], "bias": np.zeros(3)}, "no variable bias; it has b, w"),
        ):
            with pytest.raises((InvalidArgumentError, NotFoundError), match=message):
                engine.learners.values.initialize(values)
        assert same_bits(engine.learners.values.state_arrays(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"per_device": 0},
            "expected replicas_per_device to be a whole number of at least 1, or one .*, got int 0",
        ),
        ({"launch_ahead": 0}, "expected launch_ahead to be a whole number from 1 to 64, got int 0"),
        (
            {"on_nan": "cry"},
            "LearningEngine: expected on_nan to be 'stop' or 'skip' or 'freeze', got str 'cry'",
        ),
        ({"shapes": []}, "expected one for each of 1 inputs, got 0"),
        ({"shapes": [tb.TensorSpec((8,), tb.float32)]}, r"input x:0 is .*float32.*got"),
        ({"shapes": [tb.TensorSpec((7,), tb.float64)]}, r"input x:0"),
        ({"devices": []}, "devices: expected at least one"),
        ({"devices": 2}, "devices: expected different ones"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    model = well()
    device = cpu_devices(1)[0]
    per_device, shapes = options.pop("per_device", 1), options.pop("shapes", model.shapes)
    devices = options.pop("devices", [device])
    devices = [device, device] if devices == 2 else devices
    with device, pytest.raises(InvalidArgumentError, match=message):
        within(
            lambda: LearningEngine(
                model.program,
                shapes,
                devices,
                per_device,
                Synchronisation(),
                tb.train.Constant(0.1),
                **options,
            )
        )


def test_a_program_that_is_no_step() -> None:
    good = well().program
    with good.graph.as_default():
        vector = tb.identity(good.inputs[0])
        whole = tb.cast(good.loss, tb.int64)
    for parts, message in (
        ({"loss": vector}, "must be a scalar"),
        ({"loss": whole}, "must be floating"),
        ({"update": logistic().program.update}, "not of the graph of"),
        ({"inputs": good.loss, "loss": good.inputs}, r"expected inputs to be a tuple of placeholders"),
        (
            {"loss": good.inputs},
            r"expected loss to be a tensor or None, got .*give StepProgram\(inputs, loss, update\)",
        ),
    ):
        fields = {"inputs": good.inputs, "loss": good.loss, "update": good.update, "metrics": {}, **parts}
        with pytest.raises(InvalidArgumentError, match=message):
            StepProgram(**fields)
