"""Another number of replicas between two runs: what stays, what begins, and the bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import tensorbow as tb
from scheduler import LearningEngine, Stepper, StepProgram
from scheduler.replicas.resizing import origins
from tensorbow.data import BatchRun
from tests.program_rig.examples import given_few
from tests.scheduler_rig.programs import CLASSES, FEATURES, Model, convolutional, logistic, well
from tests.scheduler_rig.reference import Sma, logistic_gradient, well_gradient
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    flat,
    poison,
    same_bits,
    within,
)

NAMES = ["w", "b"]
SYNCS: list[dict[str, Any]] = [
    {},
    {"tau": 2, "mu": 0.5},
    {"staleness": 2},
    {"sync": "ssgd"},
    {"sync": "none"},
    {"ssgd_from": 4},
    {"sync": "easgd", "tau": 2},
    {"sync": "diloco", "tau": 2, "staleness": 1},
]


def train(engine: LearningEngine, model: Model, start: int, stop: int) -> None:
    source = Hesitant(model.batch, engine.learners.count, seed=start)
    assert engine.run(source.open, start, stop) == stop


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1], [3], [0, None, None]),
        ([3], [2], [0, 1]),
        ([1, 1], [2, 2], [0, None, 1, None]),
        ([2, 3], [1, 4], [0, 2, 3, 4, None]),
    ],
)
def test_the_first_replicas_of_each_device_stay(
    before: Sequence[int], after: Sequence[int], expected: list[int | None]
) -> None:
    assert origins(before, after) == expected


@pytest.mark.slow
@pytest.mark.parametrize("options", SYNCS, ids=str)
@pytest.mark.parametrize(
    ("devices", "before", "after"), [(1, 1, 3), (1, 3, 1), (1, 2, 3), (2, 1, 2), (2, (3, 1), (1, 2))]
)
def test_the_bits_of_an_engine_made_with_that_number(
    options: dict[str, Any], devices: int, before: Any, after: Any
) -> None:
    """Dropout, momentum and weight decay, on streams with random delays."""
    model = convolutional(dropout=True)
    with engine_of(model, cpu_devices(devices, delays=1), before, **options) as engine:
        train(engine, model, 0, 5)
        engine.resize(after)
        poison(engine)
        given = engine.learners.values.state_arrays()
        alpha = engine.learners.alpha
        train(engine, model, 5, 11)
        found = engine.learners.values.state_arrays()
    with engine_of(model, cpu_devices(devices, delays=2), after, **options) as other:
        assert alpha == other.learners.alpha
        other.learners.values.load_state_arrays(given)
        train(other, model, 5, 11)
        assert same_bits(other.learners.values.state_arrays(), found)


def names_of(arrays: dict[str, Any], owner: str) -> dict[str, Any]:
    return {name.split("/", 1)[1]: value for name, value in arrays.items() if name.startswith(f"{owner}/")}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"tau": 2, "mu": 0.5}, {"staleness": 2}], ids=str)
def test_what_stays_and_what_is_new(options: dict[str, Any]) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(2), 2, **options) as engine:
        train(engine, model, 0, 5)
        z, before = engine.central_values(), engine.learners.values.state_arrays()
        engine.resize((3, 1))
        after = engine.learners.values.state_arrays()
        assert same_bits(engine.central_values(), z)
        for new, old in ((0, 0), (1, 1), (3, 2)):
            assert same_bits(names_of(after, f"replica{new}"), names_of(before, f"replica{old}"))
        newcomer = names_of(after, "replica2")
        assert same_bits({name: newcomer[name] for name in z}, z)
        assert all(not newcomer[f"{name}/Momentum"].any() for name in NAMES)
        for owner in ("velocity", *(f"central{slot}" for slot in range(engine.learners.z_copies))):
            assert same_bits(names_of(after, owner), names_of(before, owner))
        assert np.any(before["replica3/w"] != z["w"])


def test_one_alone_is_z_and_several_begin_from_it() -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 3, mu=0.5) as engine:
        train(engine, model, 0, 5)
        z = engine.central_values()
        slots = names_of(engine.learners.values.state_arrays(), "replica0")["w/Momentum"]
        engine.resize(1)
        assert not engine.learners.central
        alone = engine.learners.values.replica_values(0)
        assert same_bits({name: alone[name] for name in NAMES}, {name: z[name] for name in NAMES})
        assert np.array_equal(alone["w/Momentum"], slots)
        train(engine, model, 5, 8)
        w = engine.learners.values.replica_values(0)
        engine.resize(2)
        state = engine.learners.values.state_arrays()
        assert np.array_equal(state["replica1/w"], w["w"])
        assert np.array_equal(state["central0/w"], w["w"])
        assert not state["velocity/w"].any()
        assert np.array_equal(state["replica0/w/Momentum"], w["w/Momentum"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"sync": "ssgd"}, {"ssgd_from": 2}], ids=str)
def test_replicas_that_step_on_the_mean_gradient_stay_equal(options: dict[str, Any]) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2, **options) as engine:
        train(engine, model, 0, 5)
        engine.resize(4)
        train(engine, model, 5, 9)
        engine.resize(3)
        train(engine, model, 9, 11)
        first, *others = (engine.learners.values.replica_values(index) for index in range(3))
        assert all(same_bits(first, other) for other in others)


def counting() -> Model:
    """As `well`, with a counter that is summed and a statistic that is averaged over the replicas."""
    model = well()
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [7], name="x")
        w = tb.Variable(model.initial["w"], name="w")
        steps = tb.Variable(np.int64(0), name="steps", trainable=False, combine="sum")
        mean = tb.Variable(np.zeros(7, np.float32), name="mean", trainable=False, combine="mean")
        loss = tb.reduce_sum(tb.square(w - x)) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        others = (tb.assign_add(steps, 1).op, tb.assign(mean, x).op)
    initial = {**model.initial, "steps": np.int64(0), "mean": np.zeros(7, np.float32)}
    return Model(StepProgram((x,), loss, update, {}, others), model.shapes, initial, model.batch)


def test_no_count_is_lost_and_statistics_follow() -> None:
    model = counting()
    with engine_of(model, cpu_devices(1), 3) as engine:
        train(engine, model, 0, 5)
        mean = engine.central_values()["mean"]
        engine.resize(4)
        assert engine.central_values()["steps"] == 15
        assert np.array_equal(engine.learners.values.replica_values(3)["mean"], mean)
        train(engine, model, 5, 6)
        mean = engine.central_values()["mean"]
        for count in (2, 1):
            engine.resize(count)
            assert engine.central_values()["steps"] == 19
        values = engine.central_values()
        assert np.array_equal(values["steps"], engine.learners.values.replica_values(0)["steps"])
        assert np.any(mean != 0)


def test_the_schedule_follows_in_the_same_instant() -> None:
    model = well(dtype=tb.float64)
    start = model.initial["w"]
    with engine_of(model, cpu_devices(1), 1, tb.train.Constant(0.1)) as engine:
        train(engine, model, 0, 4)
        engine.resize(2, schedule=tb.train.Constant(0.2))
        train(engine, model, 4, 9)
        reference = Sma(start, 1, well_gradient, lambda t: 0.1 if t < 4 else 0.2)
        reference.run(model.batch, 0, 4)
        reference.resize([0, None])
        reference.run(model.batch, 4, 9)
        compare(engine, reference, ["w"])


def test_averaging_restarts_where_the_new_schedule_jumps() -> None:
    """The change itself ends the epoch, so that no run ended where the rate jumps."""
    model = well(dtype=tb.float64)
    with engine_of(model, cpu_devices(1), 2, tb.train.PiecewiseConstant([9], [0.1, 0.01])) as engine:
        train(engine, model, 0, 5)
        z = engine.central_values()["w"]
        engine.resize(3, schedule=tb.train.PiecewiseConstant([4], [0.2, 0.02]))
        state = engine.learners.values.state_arrays()
        assert all(np.array_equal(state[f"replica{index}/w"], z) for index in range(3))
        assert state["replica0/w/Momentum"].any()


def compare(engine: LearningEngine, reference: Sma, names: list[str], round: int | None = None) -> None:
    def close(have: Any, want: Any) -> None:
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-11 * max(1.0, float(np.abs(want).max())))

    for index in range(reference.k):
        values = engine.learners.values.replica_values(index)
        close(flat(values, names), reference.w[index])
        close(flat(values, [f"{name}/Momentum" for name in names]), reference.v[index])
    close(flat(engine.central_values(round), names), reference.z if reference.k > 1 else reference.w[0])
    for model in engine.learners.central:
        close(flat(model.velocity(), names), reference.u if engine.options.mu else np.zeros_like(reference.u))


LOGISTIC = logistic()
DECAY = np.concatenate([np.full(FEATURES * CLASSES, 0.05), np.zeros(CLASSES)])


@pytest.mark.slow
@given_few(
    8,
    40,
    changes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=6),
    first=st.integers(1, 4),
    devices=st.integers(1, 2),
    tau=st.sampled_from([1, 2, 3]),
    staleness=st.integers(0, 2),
    mu=st.sampled_from([0.0, 0.6]),
    launch_ahead=st.integers(1, 3),
)
def test_random_changes_against_the_reference(
    changes: list[tuple[int, int]],
    first: int,
    devices: int,
    tau: int,
    staleness: int,
    mu: float,
    launch_ahead: int,
) -> None:
    """The reference is told the same changes; rounds of averaging may lie on either side of them."""
    options = {"tau": tau, "staleness": staleness, "mu": mu}
    schedule = tb.train.Constant(0.4)
    start = flat(LOGISTIC.initial, NAMES)
    with engine_of(
        LOGISTIC, cpu_devices(devices), first, schedule, launch_ahead=launch_ahead, **options
    ) as engine:
        gradient = logistic_gradient(FEATURES, CLASSES)
        reference = Sma(
            start, first * devices, gradient, lambda t: 0.4, decay=DECAY, devices=devices, **options
        )
        round, count = 0, first
        for after, rounds in changes:
            stop = round + rounds
            source = Prepared(LOGISTIC.batch, engine.learners.count)
            assert engine.run(source.open, round, stop) == stop
            assert source.released == rounds * engine.learners.count
            reference.run(LOGISTIC.batch, round, stop)
            compare(engine, reference, NAMES)
            engine.resize(after)
            reference.resize(origins([count] * devices, [after] * devices))
            compare(engine, reference, NAMES)
            assert engine.learners.count == after * devices == len(engine.learners.replicas)
            round, count = stop, after
        source = Prepared(LOGISTIC.batch, engine.learners.count)
        engine.run(source.open, round, round + 4)
        reference.run(LOGISTIC.batch, round, round + 4)
        compare(engine, reference, NAMES)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of replicas that each step is compiled for; 1 if it does not matter."""
    replicas, original = list[int](), StepProgram.compile

    def compile(self: StepProgram, *arguments: Any) -> Any:
        replicas.append(arguments[-1])
        return original(self, *arguments)

    monkeypatch.setattr(StepProgram, "compile", compile)
    return replicas


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"sync": "ssgd"}, {"staleness": 1, "mu": 0.5}], ids=str)
def test_a_resize_compiles_nothing_anew(compiled: list[int], options: dict[str, Any]) -> None:
    """The number of replicas and alpha are step scalars."""
    model = well()
    with engine_of(model, cpu_devices(2), (2, 1), **options) as engine:
        engine.run(Prepared(model.batch, 3).open, 0, 2)
        engine.resize((1, 3))
        engine.run(Prepared(model.batch, 4).open, 2, 4)
    assert compiled == [1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("exchange", "expected"), [(tb.all_sum, [1]), (tb.all_gather, [2, 3])], ids=["all_sum", "all_gather"]
)
def test_a_resize_compiles_a_step_anew_if_a_shape_has_the_number_of_replicas(
    compiled: list[int], exchange: Callable[[tb.Tensor], tb.Tensor], expected: list[int]
) -> None:
    model = well()
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [7], name="x")
        w = tb.Variable(model.initial["w"], name="w")
        loss = tb.reduce_sum(tb.square(w - x)) * 0.5
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        program = StepProgram((x,), loss, update, {"exchanged": exchange(x)})
    model = replace(model, program=program)
    results: list[Any] = []
    with engine_of(model, cpu_devices(1), 2) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 2, results.extend)
        engine.resize(3)
        engine.run(Prepared(model.batch, 3).open, 2, 4, results.extend)
    assert compiled == expected
    assert len(results) == 2 * 2 + 2 * 3
    for result in results:
        inputs = [model.batch(result.round, replica)[0] for replica in range(2 if result.round < 2 else 3)]
        rows = np.stack(inputs)
        value = rows.sum(0) if exchange is tb.all_sum else rows
        assert result.metrics[0].shape == value.shape
        np.testing.assert_allclose(result.metrics[0], value, rtol=1e-6, atol=1e-6)


def test_each_program_keeps_its_room_for_results() -> None:
    """A further program may have more rounds in a launch than the first one."""
    model, losses = well(), []
    for resized in (False, True):
        devices, schedule = cpu_devices(1), tb.train.Constant(0.1)
        more: dict[str, Any] = {"steps_per_launch": None, "room_for_steps": 1}
        engine = LearningEngine(model.program, model.shapes, devices, 2, schedule=schedule, **more)
        engine.initialize(model.initial)
        engine.select(engine.add_program(model.program, model.shapes, room_for_steps=8))
        if resized:
            engine.resize(3)
            engine.resize(2)
        runs = [BatchRun([model.batch(round, replica) for round in range(8)]) for replica in range(2)]
        with Stepper(engine) as stepper:
            losses.append(within(lambda run=stepper.step, given=runs: run(given, 8)).losses)
        engine.close()
    assert len(losses[0]) == 16
    assert losses[0] == losses[1]
