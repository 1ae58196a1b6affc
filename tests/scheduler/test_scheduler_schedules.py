"""Schedules given to optimisers: each counts its own updates; all ways of training give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import ReadyBatch, gathered
from tensorbow.errors import InvalidArgumentError

STEPS, FEATURES = 7, 3
START = np.linspace(-1, 1, FEATURES).astype(np.float32)
SCHEDULES = {
    "piecewise": lambda: tb.train.PiecewiseConstant([1, 4], [0.3, 0.2, 0.05]),
    "warm-up": lambda: tb.train.WarmUp(0.3, 5),
    "exponential": lambda: tb.train.ExponentialDecay(0.3, 2, 0.7),
    "cosine": lambda: tb.train.CosineDecay(0.3, 6, 0.1),
}


def batch(round: int, replica: int = 0) -> Any:
    return np.random.default_rng((round, replica)).normal(size=(4, FEATURES)).astype(np.float32)


class Batches:
    def __init__(self, replicas: int):
        self.replicas = replicas

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Batches:
        for round in range(start, stop):
            for replica in range(self.replicas):
                on_ready(ReadyBatch(replica, round, (batch(round, replica),), lambda: None))
        return self

    def close(self) -> None:
        """Nothing to end."""


def built(optimizer: Any, step: Any = None) -> tuple[Any, Any, Any]:
    """(x, loss, update) in the default graph."""
    x = tb.placeholder(tb.float32, [None, FEATURES], name="x")
    w = tb.Variable(START, name="w")
    loss = tb.reduce_mean(tb.square(w - x))
    return x, loss, optimizer.minimize(loss, global_step=step)


def program_of(optimizer: Any) -> tb.StepProgram:
    with tb.Graph().as_default():
        x, loss, update = built(optimizer)
        return tb.StepProgram((x,), loss, update)


def momentum(rate: Any) -> Any:
    return tb.train.MomentumOptimizer(rate, 0.9)


def in_a_session(rate: Any, counted: bool = True, **session_options: Any) -> dict[str, Any]:
    with tb.Graph().as_default():
        x, _, update = built(momentum(rate), None if counted else tb.train.create_global_step())
        with tb.Session(**session_options) as session:
            session.run(tb.global_variables_initializer())
            for round in range(STEPS):
                replicas = getattr(session, "num_replicas", 1)
                session.run(update, {x: np.concatenate([batch(round, i) for i in range(replicas)])})
            return {v.op.name: session.run(v) for v in tb.global_variables()}


def in_an_engine(
    rate: Any, schedule: Any = None, replicas: int = 1, synchronisation: Any = None, **more: Any
) -> dict[str, Any]:
    program = program_of(momentum(rate))
    source = Batches(replicas)
    run = gathered(source.open, more["steps_per_launch"]) if "steps_per_launch" in more else source.open
    with tb.LearningEngine(
        program, 4, replicas_per_device=replicas, synchronisation=synchronisation, schedule=schedule, **more
    ) as engine:
        engine.initialize()
        engine.run(run, 0, STEPS)
        return {**engine.learners.values.replica_values(0), **engine.central_values()}


def in_a_replicator(rate: Any, replicas: int = 1, **options: Any) -> dict[str, Any]:
    replicator = tb.MultiGpuReplicator(["/cpu:0"], replicas, **options)
    with replicator.context():
        optimizer = replicator.wrap_optimizer(momentum(rate))
        w = tb.Variable(START, name="w")

    def input_fn(replica_id: int) -> Any:
        return (batch(round, replica_id) for round in range(STEPS))

    def step(x: Any) -> Any:
        return optimizer.minimize(tb.reduce_mean(tb.square(w - x)))

    values: dict[str, Any] = {}
    for _ in replicator.train(step, input_fn, STEPS):
        values = replicator.replica_values(0, slots=True)
    return {**values, **replicator.central_values()}


def same(one: dict[str, Any], other: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_way_of_training_follows_a_schedule_to_the_same_bits(name):
    make = SCHEDULES[name]
    plain = in_a_session(make())
    assert plain["Momentum/iterations"] == STEPS
    w, v = START, np.zeros_like(START)
    for round in range(STEPS):
        v = np.float32(0.9) * v + 2 * (w - batch(round)).mean(0) / FEATURES
        w = w - np.float32(make()(round)) * v
    np.testing.assert_allclose(plain["w"], w, rtol=1e-5, atol=1e-6)
    both = ("w", "w/Momentum")
    same(plain, in_a_session(make(), counted=False), both)
    same(plain, in_a_session(make(), target="tensorbow", replicas_per_device=1), both)
    same(plain, in_an_engine(make()), (*both, "Momentum/iterations"))
    same(plain, in_an_engine(0.3, make()), both)  # as the trainer does it: the engine sets the rate by round
    same(plain, in_a_replicator(make()), ("w", "Momentum/iterations"))


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["sma", "ssgd"])
def test_averaging_restarts_where_a_counted_schedule_jumps(sync):
    make, options = SCHEDULES["piecewise"], {"sync": sync} if sync == "ssgd" else {"sync": sync, "mu": 0.5}
    synchronisation = tb.Synchronisation(**options)
    by_rounds = in_an_engine(0.3, make(), 3, synchronisation)
    same(by_rounds, in_an_engine(make(), None, 3, synchronisation), ("w", "w/Momentum"))
    same(by_rounds, in_a_replicator(make(), 3, **options), ("w",))
    session = {"target": "tensorbow", "replicas_per_device": 3, "synchronisation": synchronisation}
    same(by_rounds, in_a_session(make(), **session), ("w", "w/Momentum"))
    same(by_rounds, in_a_session(make(), counted=False, **session), ("w", "w/Momentum"))
    if sync == "sma":
        smooth = in_an_engine(0.3, tb.train.WarmUp(0.3, 1), 3, synchronisation)
        assert not np.array_equal(smooth["w"], by_rounds["w"])


@pytest.mark.slow
def test_several_rounds_in_a_launch_count_and_restart_as_one_by_one():
    pytest.importorskip("llvmlite")
    make, options = SCHEDULES["piecewise"], tb.Synchronisation("sma", mu=0.5)
    one_by_one = in_an_engine(make(), None, 3, options)
    launched = in_an_engine(make(), None, 3, options, steps_per_launch=2)
    same(one_by_one, launched, ("w", "w/Momentum", "Momentum/iterations"))


@pytest.mark.slow
def test_each_optimiser_counts_what_it_applies():
    """Two optimisers of one schedule, one of which is applied twice as often; a third has a global step."""
    with tb.Graph().as_default(), tb.Session() as session:
        schedule = tb.train.PiecewiseConstant([1], [1.0, 0.5])
        a, b, c = (tb.Variable(np.zeros(1, np.float32), name=name) for name in "abc")
        first, second, third = (tb.train.GradientDescentOptimizer(schedule, name=n) for n in ("A", "B", "C"))
        updates = [first.minimize(tb.reduce_sum(a)) for _ in range(2)]
        other = second.minimize(tb.reduce_sum(b))
        step = tb.Variable(1, trainable=False, name="step")
        stepped = third.minimize(tb.reduce_sum(c), global_step=step)
        assert [len(o.variables()) for o in (first, second, third)] == [1, 1, 0]
        session.run(tb.global_variables_initializer())
        for _ in range(2):
            session.run([updates[0], other, stepped])
            session.run(updates[1])
        counts = session.run([first.variables()[0], second.variables()[0], step])
        assert counts == [4, 2, 3]
        assert session.run([a, b, c]) == [-1 - 1 - 0.5 - 0.5, -1 - 1, -1 - 0.5]
        session.run([*updates, other])  # both updates of one optimiser in one run
        assert session.run(first.variables()[0]) == 6


def test_the_count_is_saved_and_restored(tmp_path):
    def program() -> tuple[Any, Any, Any]:
        x, _, update = built(momentum(SCHEDULES["warm-up"]()))
        return x, update, tb.train.Saver()

    whole = in_a_session(SCHEDULES["warm-up"]())
    with tb.Graph().as_default(), tb.Session() as session:
        x, update, saver = program()
        session.run(tb.global_variables_initializer())
        for round in range(3):
            session.run(update, {x: batch(round)})
        path = saver.save(session, tmp_path / "model")
    with tb.Graph().as_default(), tb.Session("tensorbow", replicas_per_device=1) as session:
        x, update, saver = program()
        saver.restore(session, path)
        for round in range(3, STEPS):
            session.run(update, {x: batch(round)})
        for name, value in whole.items():
            assert session.run(f"{name}:0").tobytes() == value.tobytes()


@pytest.mark.parametrize("count", [1, 3])
def test_an_engine_goes_on_with_the_count_of_its_state(count):
    """Averaging restarts behind the third step of this state, though the rounds begin anew."""
    program = program_of(momentum(SCHEDULES["piecewise"]()))
    options = tb.Synchronisation("sma", mu=0.5) if count > 1 else None
    whole = in_an_engine(SCHEDULES["piecewise"](), None, count, options)

    def engine() -> tb.LearningEngine:
        return tb.LearningEngine(program, 4, replicas_per_device=count, synchronisation=options)

    class Later(Batches):
        def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Any:
            def moved(ready: Any) -> None:
                on_ready(ReadyBatch(ready.batch_number, ready.launch - 2, ready.inputs, ready.release))

            return super().open(start + 2, stop + 2, moved, on_error)

    with engine() as first:
        first.initialize()
        first.run(Batches(count).open, 0, 2)
        state = first.learners.values.state_arrays()
    with engine() as second:
        second.learners.values.load_state_arrays(state)
        second.run(Later(count).open, 0, STEPS - 2)
        found = {**second.learners.values.replica_values(0), **second.central_values()}
    same(whole, found, ("w", "w/Momentum", "Momentum/iterations"))


def test_a_count_that_is_not_given_starts_at_zero():
    program = program_of(momentum(SCHEDULES["warm-up"]()))
    with tb.LearningEngine(program, 4, replicas_per_device=2) as engine:
        engine.initialize({"w": START, "Momentum/iterations": np.array(3)})
        assert engine.central_values()["Momentum/iterations"] == 3
        engine.initialize({"w": START})
        assert [engine.learners.values.replica_values(i)["Momentum/iterations"] for i in range(2)] == [0, 0]


def test_new_replicas_take_over_the_count():
    program = program_of(momentum(SCHEDULES["warm-up"]()))
    with tb.LearningEngine(program, 4, replicas_per_device=1) as engine:
        engine.initialize()
        engine.run(Batches(1).open, 0, 4)
        engine.resize(2)
        assert [engine.learners.values.replica_values(i)["Momentum/iterations"] for i in range(2)] == [4, 4]


def test_a_counted_schedule_before_the_first_run_lets_replicas_be_added():
    program = program_of(momentum(SCHEDULES["piecewise"]()))
    with tb.LearningEngine(program, 4, replicas_per_device=2) as engine:
        engine.initialize()
        engine.resize(3)
        assert engine.run(Batches(3).open, 0, 6) == 6


def test_clearing_slots_leaves_the_count_alone():
    program = program_of(momentum(SCHEDULES["piecewise"]()))
    options = tb.Synchronisation("sma", clear_velocity=True)
    with tb.LearningEngine(program, 4, replicas_per_device=2, synchronisation=options) as engine:
        engine.initialize()
        engine.run(Batches(2).open, 0, 3)
        engine.restart(3)
        values = engine.learners.values.replica_values(1)
    assert values["Momentum/iterations"] == 3
    assert not values["w/Momentum"].any()


def test_a_skipped_update_is_not_counted():
    program = program_of(momentum(SCHEDULES["warm-up"]()))

    class OneBad(Batches):
        def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> Any:
            def spoilt(ready: Any) -> None:
                x = ready.inputs[0] * (np.nan if ready.launch == 2 else 1)
                on_ready(ReadyBatch(ready.batch_number, ready.launch, (x,), ready.release))

            return super().open(start, stop, spoilt, on_error)

    with tb.LearningEngine(program, 4, replicas_per_device=1, on_nan="skip") as engine:
        engine.initialize()
        engine.run(OneBad(1).open, 0, STEPS)
        assert engine.skipped_updates == 1
        assert engine.central_values()["Momentum/iterations"] == STEPS - 1


@pytest.mark.slow
def test_a_count_that_is_assigned_moves_the_restart_of_averaging():
    """In the middle of training by `Session("tensorbow")`: rate and restart follow what the variable says."""
    options = {"replicas_per_device": 3, "synchronisation": tb.Synchronisation("sma", mu=0.5)}

    def trained(assigned: int | None, boundary: int) -> Any:
        with tb.Graph().as_default(), tb.Session("tensorbow", **options) as session:
            optimizer = momentum(tb.train.PiecewiseConstant([boundary], [0.3, 0.05]))
            x, _, update = built(optimizer)
            iterations = tb.global_variables()[-1]
            assert iterations.op.name == "Momentum/iterations"
            session.run(tb.global_variables_initializer())
            for round in range(STEPS):
                if round == 2 and assigned is not None:
                    iterations.load(assigned, session)
                session.run(update, {x: np.concatenate([batch(round, i) for i in range(3)])})
            return session.run("w:0")

    np.testing.assert_array_equal(trained(None, 3), trained(12, 13))
    assert not np.array_equal(trained(None, 3), trained(None, 13))


def test_two_rates_are_refused():
    schedule = SCHEDULES["piecewise"]()
    program = program_of(momentum(schedule))
    with pytest.raises(
        InvalidArgumentError, match=r"^schedule: the step's optimiser has a schedule of its own; "
    ):
        tb.LearningEngine(program, 4, schedule=tb.train.Constant(0.1))
    with tb.LearningEngine(program, 4, schedule=schedule) as engine, pytest.raises(InvalidArgumentError):
        engine.resize(3, schedule=tb.train.Constant(0.1))
    with tb.Graph().as_default():
        x, loss, update = built(momentum(tb.constant(0.1)))
        program = tb.StepProgram((x,), loss, update)
    with pytest.raises(
        InvalidArgumentError, match=r"has no learning rate that the engine sets; leave it out"
    ):
        tb.LearningEngine(program, 4, schedule=schedule)
