"""Steps of replicas whose forward and backward pass the dynamic executor runs."""

from __future__ import annotations

import gc
import json
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Stepper, StepProgram, gathered
from scheduler.replicas.dynamic.crossing_specs import inferred_specs
from scheduler.replicas.dynamic.divided_step import DividedExecutable
from scheduler.replicas.dynamic.division import divide, needs_executor
from scheduler.replicas.round_launcher import why_not_fused
from tensorbow.compiler.prune import prune
from tensorbow.devices import GpuDevice
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.gpu_rig.emulated_nccl import EmulatedNccl
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, dynamic, failing_at, layer, logistic, well
from tests.scheduler_rig.running import (
    Hesitant,
    Prepared,
    cpu_devices,
    engine_of,
    null_devices,
    same_bits,
    within,
)

ROUNDS = 7
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mu": 0.5, "tau": 2},
    {"staleness": 1, "mu": 0.4},
    {"ema": 0.9},
    {"sync": "ssgd"},
    {"ssgd_from": 3, "clear_velocity": True},
    {"sync": "easgd", "tau": 2},
    {"sync": "diloco", "tau": 2, "exchange_dtype": "bfloat16"},
    {"sync": "diloco", "tau": 3, "staleness": 1},
    {"sync": "none"},
]


def masked(function: Callable[..., Any] | None = None, **kinds: Any) -> Model:
    """Logistic regression whose loss is the mean over the examples that a mask keeps.

    function: of the errors [kept, 3], called as a function of the host that gives their weights.
    """
    initial = {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.float32, [None, 3], name="y")
        keep = tb.placeholder(tb.bool, [None], name="keep")
        w = tb.Variable(initial["w"], name="w")
        errors = tb.boolean_mask(tb.square(tb.sigmoid(tb.matmul(x, w)) - y), keep)
        if function is not None:
            weights = tb.py_func(function, [errors], tb.float32, name="weigh", **kinds)
            weights.set_shape([None, 3])
            errors = errors * tb.stop_gradient(weights)
        loss = tb.reduce_mean(errors)
        update = tb.train.MomentumOptimizer(0.3, 0.9).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((17, round, replica))
        keep = own.random(4) < 0.6
        keep[round % 4] = True
        return (own.normal(size=(4, 5)).astype(np.float32), own.random((4, 3)).astype(np.float32), keep)

    shapes = [
        tb.TensorSpec((4, 5), tb.float32),
        tb.TensorSpec((4, 3), tb.float32),
        tb.TensorSpec((4,), tb.bool),
    ]
    return Model(StepProgram((x, y, keep), loss, update, {}), shapes, initial, batch)


def by_weights(model: Model) -> Model:
    """What `masked` computes, planned: errors that the mask leaves out have weight 0."""
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.float32, [None, 3], name="y")
        keep = tb.placeholder(tb.bool, [None], name="keep")
        w = tb.Variable(model.initial["w"], name="w")
        errors = tb.square(tb.sigmoid(tb.matmul(x, w)) - y) * tb.expand_dims(tb.cast(keep, tb.float32), 1)
        loss = tb.reduce_sum(errors) / (3.0 * tb.reduce_sum(tb.cast(keep, tb.float32)))
        update = tb.train.MomentumOptimizer(0.3, 0.9).minimize(loss)
    return replace(model, program=StepProgram((x, y, keep), loss, update, {}))


def left(model: Model, devices: list[Any], per_device: int, rounds: int = ROUNDS, **options: Any) -> Any:
    """Losses by round and replica, and the state after the last round."""
    losses: dict[tuple[int, int], float] = {}

    def keep(results: Any) -> None:
        losses.update({(r.round, r.replica): r.loss for r in results})

    with engine_of(model, devices, per_device, **options) as engine:
        source = Hesitant(model.batch, engine.learners.count, seed=rounds, pause_s=5e-5)
        within(lambda: engine.run(source.open, 0, rounds, keep))
        return losses, engine.learners.values.state_arrays()


@pytest.mark.parametrize(("devices", "per_device"), [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.sampled(2)
def test_the_executor_has_the_bits_of_the_plan(
    options: dict[str, Any], devices: int, per_device: int
) -> None:
    planned = left(well(), cpu_devices(devices), per_device, **options)
    found = left(dynamic(well()), cpu_devices(devices, delays=2), per_device, launch_ahead=3, **options)
    assert planned[0] == found[0]
    assert same_bits(planned[1], found[1])


@pytest.mark.parametrize("make", [logistic, lambda: convolutional(dropout=True)], ids=["logistic", "dropout"])
@pytest.mark.sampled(1)
def test_random_numbers_statistics_and_several_gradients_have_the_bits_of_the_plan(
    make: Callable[[], Model],
) -> None:
    planned = left(make(), cpu_devices(1), 2, sync="ssgd")
    found = left(dynamic(make()), cpu_devices(1, delays=1), 2, sync="ssgd")
    assert planned[0] == found[0]
    assert same_bits(planned[1], found[1])


@needs_compiler
@pytest.mark.parametrize("physical", [0, 1, 2])
def test_replicas_of_gpus_run_it_one_after_the_other(physical: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """physical: so many GPUs with a replica each; 1: two virtual ones; 0: one with two replicas."""
    calls: list[int] = []

    def weigh(errors: Any) -> Any:
        calls.append(0)
        if len(calls) == 8:  # replica 1's in round 3
            raise ValueError("no luck")
        return np.ones_like(errors)

    model, per_device = masked(weigh), 1 if physical else 2
    with ExitStack() as stack:
        runtimes = [stack.enter_context(emulated_runtime()) for _ in range(max(1, physical))]
        for index, runtime in enumerate(runtimes):
            runtime.index = index
        EmulatedNccl(runtimes).show(monkeypatch)

        def gpus() -> list[Any]:
            owners = runtimes if physical == 2 else runtimes * (physical + 1)
            return [GpuDevice(f"/gpu:{n}", each, limit_nbytes=1 << 27) for n, each in enumerate(owners)]

        found = in_launches(model, 1, 3, per_device, gpus())
        calls.clear()
        assert same_bits(found[1], in_launches(model, 3, 3, per_device, gpus())[1])
        calls.clear()
        with engine_of(model, gpus(), per_device, steps_per_launch=6) as engine:
            source = gathered(Prepared(model.batch, 2).open, 6)
            with pytest.raises(InvalidArgumentError, match=r"replica 1 at step 3: PyFunc weigh: .* no luck"):
                within(lambda: engine.run(source, 0, 6))
            assert engine.round == 3
            assert same_bits(found[1], engine.learners.values.state_arrays())
        gc.collect()  # the error's frames hold pinned memory
    planned = left(by_weights(model), cpu_devices(1), 2, rounds=3)
    assert found[0] == pytest.approx(planned[0], rel=1e-4)
    for name, value in planned[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-6)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"mu": 0.5, "tau": 3}, {"sync": "ssgd"}, {"staleness": 1}, {"sync": "none"}], ids=str
)
@pytest.mark.parametrize("physical", [1, 2])
def test_launches_of_several_gpus_have_the_bits_of_one_round_each(
    options: dict[str, Any], physical: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(physical)

    def delay() -> None:
        time.sleep(rng.random() * 6e-4 if rng.random() < 0.5 else 0)

    found = []
    for steps in (1, 3):
        with ExitStack() as stack:
            runtimes = [stack.enter_context(emulated_runtime(delay=delay)) for _ in range(physical)]
            for index, runtime in enumerate(runtimes):
                runtime.index = index
            EmulatedNccl(runtimes).show(monkeypatch)
            owners = runtimes if physical == 2 else runtimes * 2
            gpus = [GpuDevice(f"/gpu:{n}", each, limit_nbytes=1 << 27) for n, each in enumerate(owners)]
            schedule = tb.train.PiecewiseConstant([3, 5], [0.3, 0.2, 0.1])
            found.append(in_launches(masked(np.ones_like), steps, 8, 2, gpus, schedule=schedule, **options))
            gc.collect()  # bound regions hold pinned memory
    assert found[0][0] == found[1][0]
    assert same_bits(found[0][1], found[1][1])


@pytest.mark.parametrize("sync", ["sma", "ssgd"])
@pytest.mark.sampled(1)
def test_a_masked_loss_trains_as_one_with_weights(sync: str) -> None:
    model = masked()
    losses, state = left(model, cpu_devices(1, delays=5), 2, sync=sync)
    expected, of_weights = left(by_weights(model), cpu_devices(1), 2, sync=sync)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in of_weights.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-6)
    again = left(model, cpu_devices(2, delays=6), 1, sync=sync)
    assert losses == again[0]
    assert same_bits(
        {k: v for k, v in state.items() if "w" in k}, {k: v for k, v in again[1].items() if "w" in k}
    )


def test_a_run_goes_on_from_a_copy_of_its_state_with_equal_bits() -> None:
    model = masked(lambda errors: 1.0 + errors)
    whole = left(model, cpu_devices(1), 2, tau=2, mu=0.5)[1]
    with engine_of(model, cpu_devices(1), 2, tau=2, mu=0.5) as engine:
        within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 3))
        state = engine.learners.values.state_arrays()
    with engine_of(model, cpu_devices(1), 2, tau=2, mu=0.5) as engine:
        engine.learners.values.load_state_arrays(state)
        within(lambda: engine.run(Prepared(model.batch, 2).open, 3, ROUNDS))
        assert same_bits(whole, engine.learners.values.state_arrays())


def test_explain_says_which_op_decides_the_mode_and_what_runs_in_order() -> None:
    with engine_of(masked(np.ones_like), cpu_devices(1), 2) as engine:
        text = engine.explain()
    assert "mode: dynamic: the forward and backward pass by each replica's executor" in text
    assert re.search(r"why: \w+ [\w/]+ is control flow or an op of the host \(made at .*test_divided", text)
    assert re.search(r"order: one replica after the other, as PyFunc weigh has effects \(made at", text)
    assert "the dynamic part of a replica:" in text
    assert "host     weigh" in text
    with engine_of(masked(np.ones_like, stateful=False), cpu_devices(1), 2) as engine:
        assert "order: " not in engine.explain()
    with engine_of(well(), cpu_devices(1), 2) as engine:
        assert "mode: planned" in engine.explain()
        assert not isinstance(engine.executables_of(0)[0], DividedExecutable)


def test_functions_with_effects_are_called_replica_by_replica() -> None:
    calls: list[bytes] = []

    def weigh(errors: Any) -> Any:
        time.sleep(0.002 * (len(calls) % 2))
        calls.append(errors.tobytes())
        return np.ones_like(errors)

    model, orders = masked(weigh), []
    for _ in range(2):
        calls.clear()
        left(model, cpu_devices(2, delays=4), 2, rounds=3, launch_ahead=2)
        orders.append([*calls])
    assert len(orders[0]) == 12
    assert orders[0] == orders[1]


@pytest.mark.parametrize("options", [{}, {"sync": "none"}, {"sync": "ssgd"}], ids=str)
@pytest.mark.sampled(1)
def test_a_failing_function_is_named_and_no_replica_has_changed(options: dict[str, Any]) -> None:
    good = masked(np.ones_like)
    bad = masked(failing_at(6, ValueError("no luck")))  # replica 1's in round 2
    states = []
    with engine_of(bad, cpu_devices(1, delays=3), 2, **options) as engine, Stepper(engine) as stepper:
        for round in range(4):
            batches = [bad.batch(round, replica) for replica in range(2)]
            step = partial(stepper.step, batches)
            if round == 2:
                with pytest.raises(InvalidArgumentError) as caught:
                    within(step)
                text = str(caught.value)
                assert text.startswith("replica 1 at step 2: PyFunc weigh: ValueError: no luck")
                assert "test_divided_steps.py" in text
            within(step)
        states.append(stepper.state().arrays)
    with engine_of(good, cpu_devices(1), 2, **options) as engine, Stepper(engine) as stepper:
        for round in range(4):
            stepper.step([good.batch(round, replica) for replica in range(2)])
        states.append(stepper.state().arrays)
    assert same_bits(*states)


def test_a_replica_that_waits_ends_when_another_fails() -> None:
    hangs = threading.Event()

    def weigh(errors: Any) -> Any:
        if errors.shape[0] == 4:
            raise RuntimeError("all kept")
        hangs.wait(60)
        return np.ones_like(errors)

    model = masked(weigh, stateful=False)
    batches = [model.batch(0, replica) for replica in range(2)]
    for number, keep in enumerate(([True, False, False, True], [True] * 4)):
        batches[number][2][:] = keep
    with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
        with pytest.raises(InvalidArgumentError, match=r"replica 1 at step 0: PyFunc\w* weigh: .*all kept"):
            within(lambda: stepper.step(batches))
        hangs.set()
        batches[1][2][:] = [True, False, True, False]
        assert len(within(lambda: stepper.step(batches)).losses) == 2


def test_an_engine_ends_while_a_function_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interrupt, which leaves a round behind that waits."""
    monkeypatch.setattr("scheduler.replicas.endless_loops.GRACE_S", 0.05)
    hangs, called = threading.Event(), threading.Event()

    def weigh(errors: Any) -> Any:
        called.set()
        hangs.wait(60)
        return np.ones_like(errors)

    model = masked(weigh)
    with engine_of(model, cpu_devices(1), 2) as engine:

        def interrupted(*given: Any) -> Any:
            called.wait(30)
            raise KeyboardInterrupt

        stepper = Stepper(engine)
        stepper._begun(1)
        assert stepper._run is not None
        stepper._run.next_message = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            within(lambda: stepper.step([model.batch(0, replica) for replica in range(2)]))
        hangs.set()
        within(lambda: stepper.step([model.batch(0, replica) for replica in range(2)]))
        stepper.close()


def test_a_value_that_is_not_finite_is_named() -> None:
    def weigh(errors: Any) -> Any:
        return np.full_like(errors, np.nan)

    model = masked(weigh)
    with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
        before = stepper.state().arrays
        with pytest.raises(
            NumericsError,
            match=r"loss of replica \d is not finite at step 0; first NaN or infinite result: Mean",
        ):
            stepper.step([model.batch(0, replica) for replica in range(2)])
        assert same_bits(before, stepper.state().arrays)


@pytest.mark.parametrize("mode", ["auto", "dynamic"])
def test_both_modes_check_the_loss_that_a_program_names_and_gradients_alone_without(mode: str) -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [3], name="x")
        w = tb.Variable(np.ones(3, np.float32), name="w")
        loss = tb.reduce_sum(w * x) + tb.stop_gradient(tb.log(x[0]))
        named, unnamed = (StepProgram((x,), each, sgd(loss), {}, mode=mode) for each in (loss, None))
    bad = (np.array([-1, 2, 3], np.float32),)  # its gradient is finite
    for program in (named, unnamed):
        model = Model(program, [tb.TensorSpec((3,), tb.float32)], {"w": np.ones(3)}, lambda *at: ())
        with engine_of(model, cpu_devices(1), 2) as engine, Stepper(engine) as stepper:
            if program is named:
                with pytest.raises(NumericsError, match="the loss of replica 0 is not finite at step 0"):
                    stepper.step([bad, bad])
            else:
                stepper.step([bad, bad])
            stepper.settle()
            moved = engine.learners.values.replica_values(0)["w"] != 1
            assert moved.all() == (program is unnamed)


def test_counters_are_not_written_where_the_loss_is_not_finite() -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [3], name="x")
        w = tb.Variable(np.ones(3, np.float32), name="w")
        seen = tb.Variable(np.int64(0), trainable=False, name="seen")
        loss = tb.reduce_sum(tb.boolean_mask(w * x, x > -9.0))
        counted = tb.assign_add(seen, 1)
        update = tb.group(tb.train.GradientDescentOptimizer(0.1).minimize(loss), counted)
    model = Model(
        StepProgram((x,), loss, update, {}),
        [tb.TensorSpec((3,), tb.float32)],
        {"w": np.ones(3), "seen": 0},
        lambda *at: (),
    )
    with engine_of(model, cpu_devices(1), 2, on_nan="skip") as engine, Stepper(engine) as stepper:
        fine, bad = np.ones(3, np.float32), np.array([1, np.inf, 1], np.float32)
        for batch in (fine, bad, fine):
            stepper.step([(batch,), (fine,)])
        stepper.settle()
        counts = [int(engine.learners.values.replica_values(index)["seen"]) for index in range(2)]
    assert counts == [2, 3]


def test_first_come_first_served_and_backup_workers() -> None:
    model = masked(np.ones_like, stateful=False)
    for options in ({"dispatch": "fcfs", "tau": 2}, {"sync": "ssgd", "backup": 1}):
        losses, state = left(model, cpu_devices(1), 3, **options)
        assert len(losses) >= ROUNDS * 2
        assert all(np.isfinite(value).all() for value in state.values() if value.dtype.kind == "f")


def test_the_null_device_runs_them() -> None:
    model = masked(np.ones_like)
    devices = null_devices(1, None)
    with engine_of(model, devices, 2) as engine:
        within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 3))


def refused(build: Callable[[], tuple[Any, Any]], words: str, **options: Any) -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        w = tb.Variable(np.ones(2, np.float32), name="w")
        loss, update, metrics = build(x, w)
        program = StepProgram((x,), loss, update, metrics)
        with pytest.raises(InvalidArgumentError, match=words):
            tb.LearningEngine(program, [tb.TensorSpec((4, 2), tb.float32)], ["/cpu:0"], 2, **options)


def sgd(loss: Any) -> Any:
    return tb.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_what_cannot_be_divided_is_refused_with_the_op_and_the_line() -> None:
    def after_update(x: Any, w: Any) -> Any:
        loss = tb.reduce_mean(x * w)
        update = sgd(loss)
        with tb.control_dependencies([update]):
            told = tb.py_func(lambda w: w.sum(), [tb.identity(w)], tb.float32, name="tell")
        told.set_shape([])
        return loss, tb.group(update, told.op), {}

    def behind_an_exchange(x: Any, w: Any) -> Any:
        mean = tb.all_sum(tb.reduce_mean(x, 0), name="meet") / 2.0
        loss = tb.reduce_sum(tb.boolean_mask(mean * w, mean > 0.0))
        return loss, sgd(loss), {}

    def reports_rows(x: Any, w: Any) -> Any:
        rows = tb.boolean_mask(x * w, x[:, 0] > 0.0, name="rows")
        loss = tb.reduce_mean(rows)
        return loss, sgd(loss), {"rows": rows}

    refused(
        after_update, r"PyFunc tell: a step of replicas runs it .* it needs \w+ .*, which writes a weight"
    )
    refused(behind_an_exchange, r"but it needs AllSum meet .*, which is an exchange, in which replicas meet")
    refused(reports_rows, r"rows/\w+:0: its shape depends on data, float32\[\?, 2\]")


def in_launches(
    model: Model,
    steps: int,
    rounds: int = ROUNDS,
    per_device: int = 2,
    devices: list[Any] | None = None,
    **options: Any,
) -> Any:
    """As `left`, with so many rounds of a launch, and by default a CPU device."""
    losses: dict[tuple[int, int], float] = {}
    devices = devices or cpu_devices(1)
    with engine_of(model, devices, per_device, steps_per_launch=steps, **options) as engine:
        source = Prepared(model.batch, engine.learners.count).open
        source = source if steps == 1 else gathered(source, steps)

        def keep(results: Any) -> None:
            losses.update({(r.round, r.replica): r.loss for r in results})

        within(lambda: engine.run(source, 0, rounds, keep))
        return losses, engine.learners.values.state_arrays()


@pytest.mark.parametrize(
    "options", [{}, {"mu": 0.5, "tau": 3}, {"sync": "ssgd"}, {"staleness": 1}, {"sync": "none"}], ids=str
)
@pytest.mark.sampled(2)
def test_several_rounds_of_a_launch_have_the_bits_of_one_each(options: dict[str, Any]) -> None:
    waits = masked(np.ones_like, stateful=False)  # a thread for each replica, more than there are cores
    for per_device, model in ((1, masked()), (2, masked()), (5, waits)):
        one = left(model, cpu_devices(1), per_device, **options)
        several = in_launches(model, 3, per_device=per_device, **options)
        assert one[0] == several[0]
        assert same_bits(one[1], several[1])


def test_functions_are_called_in_the_order_of_rounds_and_replicas_whatever_the_launch() -> None:
    orders = []
    for steps in (1, 4):
        calls: list[bytes] = []

        def weigh(errors: Any, calls: list[bytes] = calls) -> Any:
            calls.append(errors.tobytes())
            return np.ones_like(errors)

        in_launches(masked(weigh), steps, per_device=3)
        orders.append(calls)
    assert len(orders[0]) == 3 * ROUNDS
    assert orders[0] == orders[1]


def test_a_function_that_fails_within_a_launch_leaves_the_rounds_before() -> None:
    seen: list[int] = []
    bad, good = masked(failing_at(10, ValueError("no luck"))), masked(np.ones_like)  # replica 1's in round 4
    with engine_of(bad, cpu_devices(1), 2, steps_per_launch=6) as engine:
        source = gathered(Prepared(bad.batch, 2).open, 6)
        with pytest.raises(
            InvalidArgumentError, match=r"^replica 1 at step 4: PyFunc weigh: ValueError: no luck"
        ):
            within(lambda: engine.run(source, 0, 12, lambda results: seen.extend(results.rounds)))
        assert (seen, engine.round) == ([0, 1, 2, 3], 4)
        state = engine.learners.values.state_arrays()
        within(lambda: engine.run(source, engine.round, 6))
        whole = engine.learners.values.state_arrays()
    assert same_bits(state, left(good, cpu_devices(1), 2, rounds=4)[1])
    assert same_bits(whole, left(good, cpu_devices(1), 2, rounds=6)[1])


def test_a_loss_that_is_not_finite_ends_a_launch_at_its_round() -> None:
    def weigh(errors: Any) -> Any:
        calls.append(0)
        return np.full_like(errors, np.nan if len(calls) == 6 else 1)  # replica 1's in round 2

    calls: list[int] = []
    model = masked(weigh)
    words = "the loss of replica 1 is not finite at step 2; first NaN or infinite result: Mean"
    with engine_of(model, cpu_devices(1), 2, steps_per_launch=6) as engine:
        with pytest.raises(NumericsError, match=words):
            within(lambda: engine.run(gathered(Prepared(model.batch, 2).open, 6), 0, 12))
        assert len(calls) <= 8  # no round behind the next


def test_fused_replicas_are_refused_with_the_reason() -> None:
    model = masked(np.ones_like)
    step = tb.LearningEngine(model.program, model.shapes, ["/cpu:0"], 2)
    with step as engine:
        why = why_not_fused(engine.executables_of(0)[0], engine.learners.devices[0], tb.Synchronisation(), 2)
    assert "each runs its own by the dynamic executor" in why


def test_a_shape_that_changes_between_steps_is_refused_when_it_does() -> None:
    def rows(x: Any) -> Any:
        return x if x[0, 0] > 0 else x[:1]

    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2, 2], name="x")
        w = tb.Variable(np.ones(2, np.float32), name="w")
        loss = tb.reduce_mean(x * w)
        made = tb.py_func(rows, [x], tb.float32, name="some")
        made.set_shape([2, 2])
        program = StepProgram((x,), loss, sgd(loss), {"made": made})
    with tb.LearningEngine(program, [tb.TensorSpec((2, 2), tb.float32)], ["/cpu:0"], 2) as engine:
        engine.initialize()
        with Stepper(engine) as stepper:
            ones = (np.ones((2, 2), np.float32),)
            stepper.step([ones, ones])
            with pytest.raises(
                InvalidArgumentError, match=r"replica 1 at step 1: PyFunc some.*\[1, 2\].*\[2, 2\]"
            ):
                stepper.step([ones, (-ones[0],)])


def test_loops_of_the_host_and_counters_of_random_numbers_in_them() -> None:
    """A loop that only the executor runs draws other numbers in each iteration, the same in each run."""

    def made() -> Model:
        with tb.Graph().as_default():
            tb.set_random_seed(5)
            x = tb.placeholder(tb.float32, [3], name="x")
            w = tb.Variable(np.ones(3, np.float32), name="w")

            def body(i: Any, h: Any) -> Any:
                kept = tb.boolean_mask(h, h > -100.0)
                kept.set_shape([3])
                return i + 1, kept * w + tb.random_normal([3])

            _, h = tb.while_loop(lambda i, h: i < tb.cast(x[0], tb.int32), body, [0, x])
            loss = tb.reduce_mean(tb.square(h))
            update = sgd(loss)
        batch = lambda round, replica: (np.array([2 + replica, 1, 1], np.float32),)  # noqa: E731
        return Model(
            StepProgram((x,), loss, update, {}), [tb.TensorSpec((3,), tb.float32)], {"w": np.ones(3)}, batch
        )

    first, again = (left(made(), cpu_devices(1, delays=seed), 2, rounds=3) for seed in (1, 2))
    assert first[0] == again[0]
    assert same_bits(first[1], again[1])


def adversaries() -> Model:
    """Two optimisers, the second of a loss that reads what the first has written; clipped gradients."""
    initial = {"d": np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), "g": np.ones((2, 3), np.float32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 2], name="x")
        steps = tb.train.get_or_create_global_step()
        d, g = (tb.Variable(initial[name], name=name) for name in ("d", "g"))
        made = tb.tanh(tb.matmul(x, g))
        loss = tb.reduce_mean(tb.square(tb.matmul(made, d) - x))
        optimizer = tb.train.MomentumOptimizer(0.1, 0.9)
        pairs = optimizer.compute_gradients(loss, [d])
        clipped, _ = tb.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
        first = optimizer.apply_gradients([*zip(clipped, [d], strict=True)], global_step=steps)
        with tb.control_dependencies([first]):
            other = tb.reduce_mean(tb.square(tb.matmul(tb.tanh(tb.matmul(x, g)), d.read_value())))
        second = tb.train.AdamOptimizer(0.05).minimize(other, var_list=[g])
        with tb.control_dependencies([second]):
            told = tb.identity(loss)
        program = StepProgram((x,), None, tb.group(first, second), {"told": told, "other": other})

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((19, round, replica)).normal(size=(4, 2)).astype(np.float32),)

    return Model(program, [tb.TensorSpec((4, 2), tb.float32)], {**initial, "global_step": 0}, batch)


@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
@pytest.mark.sampled(1)
def test_several_optimisers_have_the_bits_of_the_plan(sync: str) -> None:
    planned, found = (
        left(each, cpu_devices(1), 2, rounds=4, sync=sync, schedule=False)
        for each in (adversaries(), dynamic(adversaries()))
    )
    assert same_bits(planned[1], found[1])


def test_exchanges_and_writes_stay_planned_and_only_what_they_read_crosses() -> None:
    for model in (adversaries(), masked(np.ones_like), logistic()):
        program = model.program
        targets = [program.update, *(tensor.op for tensor in program.fetches)]
        needed = prune(targets, program.inputs)
        division = divide(needed, program.inputs, program.fetches, [program.update], ())
        written = {op for op in needed if op.definition.writes}
        assert written
        assert written <= division.planned
        assert not any(needs_executor(op) for op in division.planned)
        assert division.planned.isdisjoint(division.dynamic)
        read = {tensor for op in division.planned for tensor in op.inputs}
        assert {*division.crossing} == {t for op in division.dynamic for t in op.outputs if t in read}


@pytest.mark.parametrize("shape", [(33, 9), (300, 150)])
def test_a_gradient_that_is_a_product_of_smaller_factors_is_planned(shape: tuple[int, int]) -> None:
    """Updates of the larger one multiply the factors, in both modes."""
    model = layer(*shape)
    program = model.program
    needed = prune([program.update, program.loss.op], program.inputs)
    fed = dict(zip(program.inputs, model.shapes, strict=True))
    division = divide(needed, fed, [program.loss], [program.update], (), inferred_specs(needed, fed))
    products = [op for op in needed if op.type == "MatMul"]
    assert [op in division.planned for op in products] == [False, True]
    assert shape not in [tensor.spec.shape for tensor in division.crossing]
    planned = left(model, cpu_devices(1), 2, rounds=4)
    found = left(dynamic(model), cpu_devices(1, delays=1), 2, rounds=4, launch_ahead=2)
    assert planned[0] == found[0]
    assert same_bits(planned[1], found[1])


@needs_compiler
def test_a_gpu_makes_a_gradient_of_the_factors_that_cross() -> None:
    model = layer(33, 9)
    with emulated_runtime() as runtime:
        found = in_launches(dynamic(model), 2, 3, 2, [GpuDevice("/gpu:0", runtime, limit_nbytes=1 << 27)])
        gc.collect()
    planned = left(model, cpu_devices(1), 2, rounds=3)
    assert found[0] == pytest.approx(planned[0], rel=1e-4)
    for name, value in planned[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-3, atol=1e-5)


def test_gradients_of_loops_that_only_the_executor_runs() -> None:
    def made(masks: bool) -> Model:
        with tb.Graph().as_default():
            x = tb.placeholder(tb.float32, [3], name="x")
            w = tb.Variable(np.full(3, 0.9, np.float32), name="w")

            def body(i: Any, h: Any) -> Any:
                h = tb.tanh(h * w)
                if masks:
                    h = tb.boolean_mask(h, h > -100.0)  # keeps all
                    h.set_shape([3])
                return i + 1, h

            _, h = tb.while_loop(lambda i, h: i < tb.cast(x[0], tb.int32), body, [0, x])
            loss = tb.reduce_mean(tb.square(h))
            program = StepProgram((x,), loss, sgd(loss), {})

        def batch(round: int, replica: int) -> tuple[Any, ...]:
            return (np.array([1 + round + replica, -1, 2], np.float32),)

        return Model(program, [tb.TensorSpec((3,), tb.float32)], {"w": np.full(3, 0.9)}, batch)

    planned, found = (left(made(masks), cpu_devices(1), 2, rounds=3) for masks in (False, True))
    assert found[0] == pytest.approx(planned[0], rel=1e-5)
    for name, value in planned[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-5)


def test_a_trace_has_the_dynamic_parts_and_their_ops(tmp_path: Path) -> None:
    model = masked(np.ones_like)
    with engine_of(model, cpu_devices(1), 2) as engine, tb.profiler.trace(tmp_path / "trace.json"):
        within(lambda: engine.run(Prepared(model.batch, 2).open, 0, 2))
    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"replica 0 dynamic part", "replica 1 dynamic part", "PyFunc weigh"} <= names


@pytest.mark.slow
def test_regions_of_many_shapes_are_dropped_and_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> Model:
        model = masked()
        with tb.Graph().as_default():
            x, y = (
                tb.placeholder(tb.float32, [None, 5], name="x"),
                tb.placeholder(tb.float32, [None, 3], name="y"),
            )
            keep = tb.placeholder(tb.bool, [None], name="keep")
            w = tb.Variable(model.initial["w"], name="w")
            kept = tb.boolean_mask(x, keep)
            loss = tb.reduce_mean(tb.square(tb.matmul(kept, w) - tb.boolean_mask(y, keep)))
            program = StepProgram((x, y, keep), loss, sgd(loss), {})
        return replace(model, program=program)

    monkeypatch.setattr("tensorbow.executor.region.MOST_SMALL_OPS", 0)  # no NumPy calls instead
    found = []
    for most in (64, 1):
        monkeypatch.setattr("scheduler.replicas.dynamic.executor_part.COMPILED", most)
        monkeypatch.setattr("scheduler.replicas.dynamic.replica_regions.COMPILED", most)
        found.append(left(made(), cpu_devices(1), 2))
    assert found[0][0] == found[1][0]
    assert same_bits(found[0][1], found[1][1])


def test_a_function_that_needs_a_counter_has_each_replicas_own() -> None:
    """The executor writes it then, before the planned part reads it."""
    seen: list[int] = []

    def weigh(count: Any) -> Any:
        seen.append(int(count))
        return np.float32(1 / count)

    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [3], name="x")
        w = tb.Variable(np.ones(3, np.float32), name="w")
        count = tb.Variable(np.int32(0), trainable=False, name="count")
        step = tb.assign_add(count, tb.cast(x[0], tb.int32))
        weight = tb.py_func(weigh, [step], tb.float32)
        weight.set_shape([])
        loss = tb.reduce_sum(tb.square(w * x)) * weight
        program = StepProgram((x,), loss, sgd(loss), {"twice": step * 2})
    model = Model(program, [tb.TensorSpec((3,), tb.float32)], {"w": np.ones(3), "count": 0}, lambda *at: ())
    with engine_of(model, cpu_devices(1, delays=1), 2) as engine, Stepper(engine) as stepper:
        batches = [(np.full(3, replica + 1, np.float32),) for replica in range(2)]
        found = [stepper.step(batches).metrics[0] for _ in range(3)]
        stepper.settle()
        counts = [int(engine.learners.values.replica_values(index)["count"]) for index in range(2)]
    assert seen == [1, 2, 2, 4, 3, 6]
    assert counts == [3, 6]
    np.testing.assert_array_equal(found, [[2, 4], [4, 8], [6, 12]])


def counting(weigh: Callable[..., Any], native: bool = True) -> Model:
    """A mean over what a mask keeps. The executor counts the steps in one variable, and the planned part
    counts in another, in which it looks labels up; not native: it counts labels, by a call without native
    code."""
    initial = {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), "seen": np.zeros(4, np.int32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        labels = tb.placeholder(tb.int32, [None], name="labels")
        w = tb.Variable(initial["w"], name="w")
        seen = tb.Variable(initial["seen"], trainable=False, name="seen")
        steps = tb.Variable(np.float32(0), trainable=False, name="steps")
        weight = tb.py_func(weigh, [tb.assign_add(steps, 1.0), labels], tb.float32, stateful=False)
        weight.set_shape([])
        loss = tb.reduce_mean(tb.boolean_mask(tb.sigmoid(tb.matmul(x, w)), x[:, 0] > -9.0)) * weight
        update = tb.train.MomentumOptimizer(0.3, 0.9).minimize(loss)
        if native:
            counted = tb.gather(tb.assign_add(seen, tb.ones([4], tb.int32)), labels)
        else:
            counted = tb.scatter_add(seen, labels, tb.ones_like(labels))
        program = StepProgram((x, labels), loss, update, {"seen": tb.reduce_sum(counted)})

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((23, round, replica))
        return own.normal(size=(4, 5)).astype(np.float32), own.integers(0, 4, 4).astype(np.int32)

    shapes = [tb.TensorSpec((4, 5), tb.float32), tb.TensorSpec((4,), tb.int32)]
    return Model(program, shapes, {**initial, "steps": np.float32(0)}, batch)


@pytest.mark.parametrize(
    "options", [{}, {"sync": "ssgd"}, {"sync": "none"}, {"mu": 0.5, "ema": 0.9}], ids=str
)
@pytest.mark.parametrize("steps", [4, 1, None])
@pytest.mark.sampled(2)
def test_all_replicas_are_before_the_round_in_which_an_op_fails(
    steps: int | None, options: dict[str, Any]
) -> None:
    """The op is of the planned or the dynamic part; the round is a launch's first, a middle or its last."""

    def weigh(step: Any, labels: Any) -> Any:
        if labels[1] == -1:
            raise ValueError("no luck")
        return np.float32(1 / step)

    model, steps = counting(weigh, native=steps is not None), steps or 1
    with engine_of(model, cpu_devices(1), 3, steps_per_launch=steps, **options) as engine:
        values, whole = engine.learners.values, dict[int, Any]()

        def run(start: int, stop: int, batch: Any = model.batch) -> None:
            source = Prepared(batch, 3).open
            within(lambda: engine.run(source if steps == 1 else gathered(source, steps), start, stop))

        for round in range(4, 8):
            values.initialize(model.initial)
            run(0, round)
            whole[round] = values.state_arrays()
        run(7, 12)
        whole[12] = values.state_arrays()
        for label, words in ((9, r"(Gather|ScatterAdd).* = 9 is not in"), (-1, "PyFunc.* no luck")):
            for failing in ((4, 0), (5, 1), (7, 0), (7, 2)):

                def batch(round: int, replica: int, bad: Any = (*failing, label)) -> tuple[Any, ...]:
                    x, labels = model.batch(round, replica)
                    if (round, replica) == bad[:2]:
                        labels[1] = bad[2]
                    return x, labels

                values.initialize(model.initial)
                round, replica = failing
                with pytest.raises(
                    InvalidArgumentError, match=rf"^replica {replica} at step {round}: {words}"
                ):
                    run(0, 12, batch)
                assert engine.round == round
                assert same_bits(values.state_arrays(), whole[round])
                run(round, 12)
                assert same_bits(values.state_arrays(), whole[12])
