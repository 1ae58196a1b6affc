"""A `Stepper` does what `engine.run` does, to the bit, and leaves the engine usable when something fails."""

from __future__ import annotations

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Stepper, StepProgram
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NumericsError
from tests.scheduler_rig.programs import FUSE, convolutional, fused, logistic, well
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, same_bits, within

ROUNDS = 9


def batches(model, round, count):
    return [model.batch(round, replica) for replica in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("delays", [None, 5])
@pytest.mark.parametrize(
    ("devices", "per_device", "options"),
    [
        (1, 1, {}),
        (1, 3, {}),
        (2, 2, {"tau": 2}),
        (1, 2, {"staleness": 2, "mu": 0.3}),
        (2, 1, {"sync": "ssgd"}),
        (1, 2, {"ssgd_from": 4}),
        (1, 2, {"sync": "none"}),
        (1, 2, {"schedule": tb.train.PiecewiseConstant([3, 6], [0.1, 0.05, 0.01])}),
    ],
)
def test_the_same_bits_as_a_run(devices, per_device, options, delays):
    model, count = convolutional(dropout=True), devices * per_device
    with engine_of(model, cpu_devices(devices), per_device, **options) as engine:
        results = []
        within(lambda: engine.run(Prepared(model.batch, count).open, 0, ROUNDS, results.extend))
        expected, central = engine.learners.values.state_arrays(), engine.central_values()
    with engine_of(model, cpu_devices(devices, delays), per_device, **options) as engine:
        with Stepper(engine) as stepper:
            stepped = []
            for round in range(ROUNDS):
                stepped += stepper.step(batches(model, round, count))
        assert same_bits(engine.learners.values.state_arrays(), expected)
        assert same_bits(engine.central_values(), central)
    assert [(r.round, r.replica, r.loss) for r in stepped] == [(r.round, r.replica, r.loss) for r in results]


def test_settling_between_steps_changes_nothing():
    model = logistic()
    states = []
    for settles in (False, True):
        with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
            for round in range(6):
                stepper.step(batches(model, round, 2))
                if settles:
                    stepper.settle()
                    engine.central_values()
            stepper.settle()
            states.append(engine.learners.values.state_arrays())
    assert same_bits(*states)


def test_run_goes_on_where_a_stepper_stopped_and_the_other_way_round():
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 9)
        expected = engine.learners.values.state_arrays()
    with engine_of(model, cpu_devices(1), 2) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 3)
        with Stepper(engine, start=engine.round) as stepper:
            for round in range(3, 6):
                stepper.step(batches(model, round, 2))
            with pytest.raises(
                FailedPreconditionError, match=r"run: a run is going on; .* or close the stepper"
            ):
                engine.run(Prepared(model.batch, 2).open, 6, 9)
        assert engine.round == 6
        engine.run(Prepared(model.batch, 2).open, 6, 9)
        assert same_bits(engine.learners.values.state_arrays(), expected)


def test_inputs_that_do_not_fit_change_nothing():
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
        stepper.step(batches(model, 0, 2))
        stepper.settle()
        before = engine.learners.values.state_arrays()
        with pytest.raises(InvalidArgumentError, match=r"inputs for 2 replicas, .* got 3"):
            stepper.step(batches(model, 1, 3))
        with pytest.raises(
            InvalidArgumentError, match=r"replica 1: x:?0? must be float32\[7\].*got float32\[6\]"
        ):
            stepper.step([model.batch(1, 0), (np.zeros(6, np.float32),)])
        assert same_bits(engine.learners.values.state_arrays(), before)
        assert [result.round for result in stepper.step(batches(model, 1, 2))] == [1, 1]


def test_a_failed_op_is_raised_and_the_round_can_be_done_again():
    model = fused()
    with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
        stepper.step(batches(model, 0, 2))
        bad = np.full(7, FUSE, np.float32)
        with pytest.raises(InvalidArgumentError, match=r"replica 1 at step 1: .*the_fuse.*fuse has blown"):
            within(lambda: stepper.step([model.batch(1, 0), (bad,)]))
        assert [result.round for result in stepper.step(batches(model, 1, 2))] == [1, 1]


def test_a_loss_that_is_not_finite():
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
        bad = np.full(7, np.nan, np.float32)
        with pytest.raises(NumericsError, match="the loss of replica 0 is not finite at step 0"):
            stepper.step([(bad,), model.batch(0, 1)])
        assert np.isfinite(engine.central_values()["w"]).all()
        stepper.step(batches(model, 0, 2))


def test_a_request_to_stop_is_for_the_next_run():
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine:
        with Stepper(engine) as stepper:
            stepper.step(batches(model, 0, 2))
            engine.request_stop()
            stepper.step(batches(model, 1, 2))
            stepper.settle()
            assert [result.round for result in stepper.step(batches(model, 2, 2))] == [2, 2]
        assert engine.run(Prepared(model.batch, 2).open, 3, 6) == 3
        assert engine.run(Prepared(model.batch, 2).open, 3, 6) == 6


def test_a_closed_stepper_says_so():
    model = well()
    with engine_of(model, cpu_devices(1), 1) as engine:
        stepper = Stepper(engine)
        stepper.close()
        stepper.close()
        with pytest.raises(FailedPreconditionError, match="stepper is closed"):
            stepper.step(batches(model, 0, 1))


def test_a_stepper_of_a_closed_engine_says_so():
    model = well()
    with engine_of(model, cpu_devices(1), 2) as engine:
        stepper = Stepper(engine)
        stepper.close()
    with pytest.raises(FailedPreconditionError, match="stepper is closed"):
        stepper.step(batches(model, 0, 2))


@pytest.mark.slow
def test_two_programs_over_the_same_replicas():
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [None, 3], name="x")
        w = tb.Variable(np.ones(3, np.float32), name="w")
        loss = tb.reduce_mean(tb.square(x - w))
        optimizer = tb.train.GradientDescentOptimizer(0.1)
        first = StepProgram((x,), loss, optimizer.minimize(loss), {})
        second = StepProgram((x,), None, optimizer.minimize(-loss), {"rows": x})
    initial = {"w": np.ones(3, np.float32)}
    for sync in ("sma", "ssgd"):
        device = cpu_devices(1)[0]
        engine = tb.LearningEngine(first, 4, [device], 2, tb.Synchronisation(sync))
        try:
            number = engine.add_program(second, second.specs(2))
            engine.initialize(initial)
            with Stepper(engine) as stepper:
                four, two = np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32)
                losses = [result.loss for result in stepper.step([(four,)] * 2)]
                assert losses == [1.0, 1.0]
                stepper.settle()
                after = engine.learners.values.replica_values(1)["w"]
                stepper.select(number)
                rows = [result.metrics[0].shape for result in stepper.step([(two,)] * 2)]
                assert rows == [(2, 3)] * 2
                stepper.settle()
                assert (engine.learners.values.replica_values(1)["w"] > after).all()
        finally:
            engine.close()
            assert device.memory.held_nbytes == 0
            device.close()


def test_a_program_with_new_variables_is_refused():
    model = well()
    with engine_of(model, cpu_devices(1), 1) as engine:
        with model.program.graph.as_default():
            tb.Variable(0.0, name="late")
        with pytest.raises(InvalidArgumentError, match="no room for variables made after them: late"):
            engine.add_program(model.program, model.shapes)


# What was wrong with an engine's own words ------------------------------------------------------------


def test_batches_for_more_replicas_than_there_are():
    model = well()
    with (
        engine_of(model, cpu_devices(1), 2) as engine,
        pytest.raises(InvalidArgumentError, match="for replica 2, but the engine has 2 replicas, 0 to 1"),
    ):
        within(lambda: engine.run(Prepared(model.batch, 3).open, 0, 2))


def test_no_values_yet_names_the_engines_remedy():
    model = well()
    device = cpu_devices(1)[0]
    try:
        with (
            tb.LearningEngine(model.program, model.shapes, [device], 1) as engine,
            pytest.raises(FailedPreconditionError, match=r"call engine\.initialize\(\) first"),
        ):
            engine.run(Prepared(model.batch, 1).open, 0, 1)
    finally:
        device.close()


def test_a_program_says_what_is_missing():
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2], name="x")
        y = tb.placeholder(tb.float32, [2], name="y")
        loss = tb.reduce_sum(tb.square(tb.Variable(np.ones(2, np.float32)) * x - y))
        update = tb.train.GradientDescentOptimizer(0.1).minimize(loss)
        with pytest.raises(InvalidArgumentError, match=r"what optimizer\.minimize\(loss\) returns"):
            StepProgram((x, y), loss, None)
        with pytest.raises(InvalidArgumentError, match="placeholder y, which is not among its inputs"):
            StepProgram((x,), loss, update)
