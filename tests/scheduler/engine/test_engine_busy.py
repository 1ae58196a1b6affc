"""While a run is going on nobody changes what it works on: each call is refused in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from scheduler import LearningEngine, Stepper
from tensorbow.errors import FailedPreconditionError
from tests.scheduler_rig.programs import Model, logistic
from tests.scheduler_rig.running import PATIENCE_S, Prepared, cpu_devices, engine_of, same_bits, within

CHANGES: dict[str, Callable[[LearningEngine, Model], Any]] = {
    "initialize": lambda engine, model: engine.initialize(model.initial),
    "add_program": lambda engine, model: engine.add_program(model.program, model.shapes),
    "select": lambda engine, model: engine.select(0),
    "set_steps_per_launch": lambda engine, model: engine.set_steps_per_launch(1),
    "resize": lambda engine, model: engine.resize(3),
    "restart": lambda engine, model: engine.restart(1),
    "run": lambda engine, model: engine.run(Prepared(model.batch, 2).open, 0, 1),
    "close": lambda engine, model: engine.close(),
}
VALUES = ("initialize", "add_program", "select", "set_steps_per_launch")  # of a stepper that is settled, too


def refusals(engine: LearningEngine, model: Model) -> dict[str, str]:
    said = {}
    for name, change in CHANGES.items():
        with pytest.raises(FailedPreconditionError) as refused:
            change(engine, model)
        said[name] = str(refused.value)
    return said


def test_a_run_is_not_disturbed_from_its_own_thread_or_another() -> None:
    model, ends = logistic(), []
    for disturbed in (False, True):
        said: list[dict[str, str]] = []

        def disturb(results: Any, engine: LearningEngine, said: list[dict[str, str]] = said) -> None:
            said.append(refusals(engine, model))
            said.append(within(partial(refusals, engine, model)))

        with engine_of(model, cpu_devices(1), 2) as engine:
            on_results = partial(disturb, engine=engine) if disturbed else None
            within(partial(engine.run, Prepared(model.batch, 2).open, 0, 4, on_results))
            ends.append(engine.learners.values.state_arrays())
            assert len(said) == 8 * disturbed
            for each in said:
                for name, line in each.items():
                    assert line.startswith(
                        f"{name}: a run is going on; request_stop() it and wait for its end"
                    )
                    assert "\n" not in line
            for name, change in CHANGES.items():  # afterwards each does its work again
                if name != "resize":
                    change(engine, model)
    assert same_bits(*ends)


def test_a_stepper_is_left_in_peace_until_it_is_settled() -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        batch = partial(lambda round: [model.batch(round, replica) for replica in range(2)])
        with Stepper(engine) as stepper:
            for round in range(2):
                stepper.step(batch(round))
                assert refusals(engine, model).keys() == CHANGES.keys()
                stepper.settle()
                for name, change in CHANGES.items():
                    if name in VALUES:
                        change(engine, model)
                    else:
                        with pytest.raises(
                            FailedPreconditionError, match=f"{name}: a run is going on; .* step"
                        ):
                            change(engine, model)
            trained = engine.learners.values.state_arrays()
        fresh = model.initial
        assert all(trained[f"replica1/{name}"].tobytes() == fresh[name].tobytes() for name in model.initial)
        engine.restart(2)


def test_a_run_that_begins_meanwhile_waits_for_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        values, giving, go_on = engine.learners.values, threading.Event(), threading.Event()
        give = values.initialize

        def slow(given: Any) -> None:
            giving.set()
            assert go_on.wait(PATIENCE_S)
            give(given)

        begun: list[int] = []
        monkeypatch.setattr(values, "initialize", slow)
        initializing = threading.Thread(target=engine.initialize, args=(model.initial,))
        initializing.start()
        assert giving.wait(PATIENCE_S)
        source = Prepared(model.batch, 2)
        running = threading.Thread(
            target=engine.run, args=(source.open, 0, 2, lambda results: begun.append(initializing.is_alive()))
        )
        running.start()
        running.join(0.05)
        assert running.is_alive()
        assert not begun
        go_on.set()
        running.join(PATIENCE_S)
        initializing.join(PATIENCE_S)
        assert len(begun) == 2


@pytest.mark.parametrize("stepwise", [False, True])
def test_an_interrupt_as_a_run_begins_leaves_the_engine_free(
    stepwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        begin = engine.begin

        def interrupted(run: Any) -> None:
            begin(run)
            raise KeyboardInterrupt

        monkeypatch.setattr(engine, "begin", interrupted)
        batches = [model.batch(0, i) for i in range(2)]
        with pytest.raises(KeyboardInterrupt), Stepper(engine) if stepwise else nullcontext() as stepper:
            stepper.step(batches) if stepper else engine.run(Prepared(model.batch, 2).open, 0, 3)
        monkeypatch.undo()
        assert engine.run(Prepared(model.batch, 2).open, 0, 3) == 3


def test_after_an_interrupt_in_a_restart_the_next_call_waits_for_what_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        engine.run(Prepared(model.batch, 2).open, 0, 2)
        drain, waited = engine.learners.drain, list[str]()

        def interrupted() -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(engine.learners, "drain", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.restart(2)
        monkeypatch.setattr(engine.learners, "drain", lambda: waited.append("for it") or drain())
        engine.initialize(model.initial)
        assert waited == ["for it"]
