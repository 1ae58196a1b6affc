"""Replicas with a part on each of several devices, whose forward and backward pass the executor runs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import Stepper, StepProgram
from tensorbow.devices import LaunchLog, find_races
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler.replicas.test_parted_replicas import OPTIONS, THREE, TWO, layered, trained
from tests.scheduler_rig.programs import Model, dynamic, failing_at
from tests.scheduler_rig.running import (
    Prepared,
    cpu_devices,
    engine_of,
    gpu_devices,
    null_devices,
    same_bits,
    within,
)


def steered(split: bool, kind: str = "cpu", function: Callable[..., Any] | None = None) -> Model:
    """A step with a loop of a data-dependent number of steps over two devices, a cond, a mask and unique.

    split: with parts, not on one device. function: of the errors that a mask keeps [kept, 2], gives weights.
    """
    rng = np.random.default_rng(3)

    def at(part: int) -> Any:
        return tb.device(f"/{kind}:{part}") if split else nullcontext()

    def weights(name: str, *shape: int) -> tb.Variable:
        return tb.Variable(rng.normal(size=shape).astype(np.float32) * 0.5, name=name)

    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [None, 5], name="x")
        y = tb.placeholder(tb.float32, [None, 2], name="y")
        count = tb.placeholder(tb.int32, [], name="count")
        with at(0):
            first, table = weights("first", 5, 4), weights("table", 6, 4)
            hidden = tb.matmul(x, first)
        with at(1):
            again, last = weights("again", 4, 4), weights("last", 4, 2)

        def body(i: Any, state: Any) -> Any:
            with at(0):
                state = tb.tanh(state)
            with at(1):
                return i + 1, tb.matmul(state, again)

        hidden = tb.while_loop(lambda i, state: i < count, body, [0, hidden])[1]
        with at(1):
            hidden = tb.cond(
                tb.reduce_sum(hidden) > 0.0, lambda: hidden * 0.5, lambda: tb.matmul(hidden, again)
            )
            errors = tb.square(tb.matmul(hidden, last) - y)
            kept = tb.boolean_mask(errors, tb.reduce_sum(errors, 1) > 0.5)
            if function is not None:
                factors = tb.py_func(function, [kept], tb.float32, name="weigh", stateful=False)
                factors.set_shape([None, 2])
                kept = kept * factors
        with at(0):
            ids, _ = tb.unique(tb.cast(tb.abs(x[:, 0] * 2.0), tb.int32))
            rows = tb.matmul(tb.one_hot(ids, 6), table)
            loss = tb.reduce_sum(kept) / 120.0 + tb.reduce_mean(tb.square(rows)) / 10.0
        loss.set_shape([])
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        program = StepProgram((x, y, count), loss, update, {"found": tb.size(ids)})
        initial = program.initial_values()

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        own = np.random.default_rng((17, round, replica))
        inputs, targets = own.normal(size=(6, 5)).astype(np.float32), own.normal(size=(6, 2))
        return inputs, targets.astype(np.float32), np.int32(own.integers(0, 5))

    specs = [
        tb.TensorSpec((6, 5), tb.float32),
        tb.TensorSpec((6, 2), tb.float32),
        tb.TensorSpec((), tb.int32),
    ]
    return Model(program, specs, initial, batch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("places", [TWO, THREE], ids=str)
def test_the_executor_has_the_bits_of_whole_replicas(
    kernels: str, options: dict[str, Any], places: Any
) -> None:
    parts = max(places) + 1
    whole = trained(layered(None), cpu_devices(2), 1, (1, 2), **options)
    apart = trained(dynamic(layered(places)), cpu_devices(2 * parts, delays=2), parts, (1, 2), **options)
    assert same_bits(whole[0], apart[0])
    assert whole[1] == apart[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loops_over_parts_and_shapes_of_data_have_the_bits_of_one_device(
    kernels: str, options: dict[str, Any]
) -> None:
    whole = trained(steered(False), cpu_devices(2), 1, (1, 2), **options)
    apart = trained(steered(True), cpu_devices(4, delays=2), 2, (1, 2), **options)
    assert same_bits(whole[0], apart[0])
    assert whole[1] == apart[1]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_races(options: dict[str, Any]) -> None:
    log, model = LaunchLog(), dynamic(layered(THREE, "null"))
    devices = null_devices(6, log)
    with engine_of(model, devices, 2, devices_per_replica=3, **{"launch_ahead": 3, **options}) as engine:
        within(lambda: engine.run(Prepared(model.batch, 4).open, 0, 6))
    assert find_races(log) == []


@pytest.mark.parametrize("options", [{}, {"sync": "ssgd"}], ids=str)
def test_a_failing_function_is_named_and_no_part_has_changed(options: dict[str, Any]) -> None:
    good = steered(True, function=np.ones_like)
    bad = steered(True, function=failing_at(6, ValueError("no luck")))  # in round 2
    states = []
    for model in (bad, good):
        devices = cpu_devices(4, delays=3)
        with (
            engine_of(model, devices, 1, devices_per_replica=2, **options) as engine,
            Stepper(engine) as stepper,
        ):
            for round in range(4):
                step = partial(stepper.step, [model.batch(round, replica) for replica in range(2)])
                if model is bad and round == 2:
                    words = r"replica \d at step 2: PyFunc\w* weigh: ValueError: no luck .*divided_parts"
                    with pytest.raises(InvalidArgumentError, match=words):
                        within(step)
                    assert engine.round == 2
                within(step)
            states.append(stepper.state().arrays)
    assert same_bits(*states)


def test_an_engine_ends_while_a_function_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.replicas.endless_loops.GRACE_S", 0.05)
    hangs, called = threading.Event(), threading.Event()

    def weigh(errors: Any) -> Any:
        called.set()
        hangs.wait(60)
        return np.ones_like(errors)

    model = steered(True, function=weigh)
    with engine_of(model, cpu_devices(2), 2, devices_per_replica=2) as engine:

        def interrupted(*given: Any) -> Any:
            called.wait(30)
            raise KeyboardInterrupt

        stepper = Stepper(engine)
        stepper._begun(1)
        assert stepper._run is not None
        stepper._run.next_message = interrupted  # type: ignore[method-assign]
        batches = [model.batch(0, replica) for replica in range(2)]
        with pytest.raises(KeyboardInterrupt):
            within(lambda: stepper.step(batches))
        hangs.set()
        assert len(within(lambda: stepper.step(batches)).losses) == 2
        stepper.close()


@pytest.mark.parametrize("sync", ["sma", "ssgd", "none"])
def test_a_loss_that_is_not_finite_stops_all_parts_and_is_named(sync: str) -> None:
    model = steered(True, function=lambda errors: np.full_like(errors, np.nan))
    with (
        engine_of(model, cpu_devices(4), 1, devices_per_replica=2, sync=sync) as engine,
        Stepper(engine) as stepper,
    ):
        before = stepper.state().arrays
        words = r"loss of replica \d is not finite at step 0; first NaN or infinite result: Add"
        with pytest.raises(NumericsError, match=words):
            within(lambda: stepper.step([model.batch(0, replica) for replica in range(2)]))
        assert same_bits(before, stepper.state().arrays)


def test_explain_says_what_runs_where_and_several_rounds_a_launch_are_refused() -> None:
    model = steered(True)
    with engine_of(model, cpu_devices(2), 2, devices_per_replica=2) as engine:
        text = engine.explain(0)
        assert "mode: dynamic: the forward and backward pass by each replica's executor" in text
        assert "why: " in text
    with (
        pytest.raises(InvalidArgumentError, match=r"steps_per_launch=4: .* give 1"),
        engine_of(model, cpu_devices(2), 2, devices_per_replica=2, steps_per_launch=4),
    ):
        pass


@needs_compiler
def test_groups_of_gpus_have_the_numbers_of_cpus() -> None:
    expected = trained(steered(True), cpu_devices(4), 2, rounds=3)
    with emulated_runtime() as runtime:
        found = trained(steered(True, "gpu"), gpu_devices(runtime, 4), 2, rounds=3)
        gc.collect()
    for name, value in expected[0].items():
        np.testing.assert_allclose(found[0][name], value, rtol=1e-3, atol=1e-5)
