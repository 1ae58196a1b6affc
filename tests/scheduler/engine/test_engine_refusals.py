"""An engine refuses what it cannot do, and stays as it was; it keeps nothing of runs that have ended."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="joint tasks need native code")

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, Synchronisation
from scheduler.training.models.classifier_step import build_program
from tensorbow.data import make_synthetic
from tensorbow.errors import InvalidArgumentError
from tensorbow.models import get_model
from tests.scheduler_rig.programs import well
from tests.scheduler_rig.round_engines import engine_of
from tests.scheduler_rig.running import Prepared, cpu_devices, within


@pytest.mark.sampled(1)
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("given", [2, 4])
def test_a_source_for_another_number_of_replicas(given: int, filled: bool) -> None:
    data, _ = make_synthetic(64, 8)
    with tb.Graph().as_default():
        program = build_program(get_model("logreg"), data, 0.9, 0.01, 0.0)
    batches = DatasetBatches(data, 4, given, seed=0)
    with LearningEngine(program, 4, cpu_devices(1), 3, Synchronisation()) as engine:
        engine.initialize()
        if not filled:
            batches.keep_on_devices(engine.learners, "always")
        with pytest.raises(InvalidArgumentError, match=f"{given} replicas, but the engine has 3; give"):
            within(partial(engine.run, batches.open, 0, 3))
        batches = DatasetBatches(data, 4, 3, seed=0)
        assert within(partial(engine.run, batches.open, 0, 3)) == 3


class Batch(np.ndarray):
    """An array that can be watched."""


@pytest.mark.slow
def test_batches_are_let_go_when_their_rounds_have_ended() -> None:
    """However much room for results there is."""
    model, replicas, rounds = well(), 2, 40
    watched: list[weakref.ref[Any]] = []

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        arrays = tuple(np.array(array).view(Batch) for array in model.batch(round, replica))
        watched.extend(weakref.ref(array) for array in arrays)
        return arrays

    with engine_of(model, replicas, None) as engine:
        within(partial(engine.run, Prepared(batch, replicas).open, 0, rounds))
        gc.collect()
        assert len(watched) >= rounds * replicas
        assert sum(reference() is not None for reference in watched) == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("then", ["run", "restart", "resize", "select"])
def test_what_an_interrupted_end_left_in_flight_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """An interrupt comes while the end of a run waits for tasks: nothing is set up before they are done."""
    model = well()
    with engine_of(model, 2, 1) as engine:
        learners, called = engine.learners, list[str]()
        calls = {name: getattr(learners, name) for name in ("drain", "prepare", "select")}

        def noted(name: str, *arguments: Any) -> Any:
            called.append(name)
            if called.count("drain") == 1 and name == "drain":
                raise KeyboardInterrupt
            return calls[name](*arguments)

        for name in calls:
            monkeypatch.setattr(learners, name, partial(noted, name))
        with pytest.raises(KeyboardInterrupt):
            within(partial(engine.run, Prepared(model.batch, 2).open, 0, 6))
        called[:] = ["drain"]  # the one that was interrupted
        within(
            {
                "run": partial(engine.run, Prepared(model.batch, 2).open, 6, 6),
                "restart": partial(engine.restart, 6),
                "resize": partial(engine.resize, 3),
                "select": partial(engine.select, 0),
            }[then]
        )
        assert called[:2] == ["drain", "drain"]
        assert len(called) > 2
