"""A change between captured and fused replicas of a GPU: what stays, and what keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import LearningEngine, StepProgram, Synchronisation
from scheduler.engine.growing import grown
from scheduler.engine.stepper import Stepper
from scheduler.replicas.learners import Learners
from scheduler.replicas.resizing import made_again
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from tensorbow.kernels.gpu.backend import GpuBackend
from tensorbow.kernels.gpu.fused.memory import ReplicaMemory
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, logistic
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, gpu_devices, same_bits

pytestmark = needs_compiler


@pytest.fixture
def runtime() -> Iterator[EmulatedCuda]:
    with emulated_runtime() as runtime:
        yield runtime


def train(engine: LearningEngine, model: Model, start: int, stop: int) -> None:
    source = Prepared(model.batch, engine.learners.count)
    assert engine.run(source.open, start, stop) == stop


def kernels_of_a_round(engine: LearningEngine, model: Model, runtime: EmulatedCuda, round: int) -> int:
    """Kernels that the capture of a round takes: the first round after a change is not captured."""
    train(engine, model, round, round + 1)
    before = runtime.counts["launch"]
    train(engine, model, round + 1, round + 2)
    return runtime.counts["launch"] - before


@pytest.mark.slow
def test_the_bits_are_those_of_an_engine_made_so(runtime: EmulatedCuda) -> None:
    model = convolutional(dropout=True)
    with engine_of(model, gpu_devices(runtime, 1), 2, mu=0.5) as engine:
        train(engine, model, 0, 3)
        given = engine.learners.values.state_arrays()
        engine.fuse(True)
        assert same_bits(engine.learners.values.state_arrays(), given)
        train(engine, model, 3, 6)
        fused = engine.learners.values.state_arrays()
        engine.fuse(False)
        train(engine, model, 6, 8)
        captured = engine.learners.values.state_arrays()
        assert engine.options.replica_mode == "captured"
    starts = [("fused", given, 3, 6, fused), ("captured", fused, 6, 8, captured)]
    for mode, begins, start, stop, expected in starts:
        with engine_of(model, gpu_devices(runtime, 1), 2, mu=0.5, replica_mode=mode) as made:
            made.learners.values.load_state_arrays(begins)
            train(made, model, start, stop)
            assert same_bits(made.learners.values.state_arrays(), expected), mode


@pytest.mark.slow
def test_a_change_of_the_number_keeps_it(runtime: EmulatedCuda) -> None:
    model = convolutional(dropout=False)
    with engine_of(model, gpu_devices(runtime, 1), 1, sync="none") as engine:
        train(engine, model, 0, 1)
        engine.fuse(True)
        of_one = kernels_of_a_round(engine, model, runtime, 1)
        assert "\nreplica mode: fused, all replicas of a GPU in each kernel\n" in engine.explain()
        engine.resize(3)
        assert engine.options.fused
        assert kernels_of_a_round(engine, model, runtime, 3) == of_one
        with pytest.raises(ResourceExhaustedError):
            engine.resize(4096)
        assert (engine.options.fused, engine.learners.count) == (True, 3)
        engine.fuse(False)
        engine.resize(2)
        assert kernels_of_a_round(engine, model, runtime, 5) > of_one
        assert not engine.options.fused


@pytest.mark.slow
def test_a_change_that_fails_half_way_leaves_it(
    runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def made_once_refused(*arguments: Any, **options: Any) -> Learners:
        calls.append(options["per_device"])
        if len(calls) == 1:
            raise ResourceExhaustedError("somebody else took it")
        return made_again(*arguments, **options)

    model = logistic()
    monkeypatch.setattr("scheduler.engine.learning_engine.made_again", made_once_refused)
    with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
        engine.fuse(True)
        with pytest.raises(ResourceExhaustedError, match="somebody else took it"):
            engine.resize(3)
        assert calls == [(3,), (2,)]
        assert (engine.options.fused, engine.learners.count) == (True, 2)
        train(engine, model, 0, 2)


@pytest.mark.slow
def test_a_second_engine_keeps_it(runtime: EmulatedCuda) -> None:
    model = logistic()
    with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
        engine.fuse(True)
        stepper = Stepper(engine)
        stepper.step([model.batch(0, replica) for replica in range(2)])
        new = grown(stepper, [(model.program, model.shapes, 1)], {})
        with new.engine:
            assert new.engine.options.fused
            assert same_bits(new.engine.learners.values.state_arrays(), engine.learners.values.state_arrays())
        stepper.close()


def test_without_memory_for_it_nothing_has_changed(
    runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise ResourceExhaustedError("no room")

    model = logistic()
    with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(ReplicaMemory, "__init__", full)
            with pytest.raises(ResourceExhaustedError, match="no room"):
                engine.fuse(True)
        assert not engine.options.fused
        train(engine, model, 0, 2)
        engine.fuse(True)
        train(engine, model, 2, 4)
        assert np.isfinite(engine.learners.values.replica_values(1)["w"]).all()


@pytest.mark.slow
def test_a_further_step_that_cannot_be_fused_is_refused_and_the_first_goes_on(
    runtime: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = logistic()
    with model.program.graph.as_default():
        update = tb.train.GradientDescentOptimizer(0.1).minimize(model.program.loss)
    further = StepProgram(model.program.inputs, None, update)
    known = GpuBackend.why_not_fused
    states = []
    for refuses in (False, True):
        with engine_of(model, gpu_devices(runtime, 1), 2, replica_mode="fused") as engine:
            train(engine, model, 0, 2)
            number = engine.add_program(further, model.shapes)
            if refuses:
                (step,) = engine.executables_of(number)

                def why_not(backend: GpuBackend, asked: Any, variants: Any, step: Any = step) -> str:
                    return "it is the second" if asked is step else known(backend, asked, variants)

                monkeypatch.setattr(GpuBackend, "why_not_fused", why_not)
                with pytest.raises(UnimplementedError, match="cannot be fused: it is the second"):
                    engine.select(number)
            train(engine, model, 2, 4)
            engine.fuse(False)
            train(engine, model, 4, 6)
            states.append(engine.learners.values.state_arrays())
    assert same_bits(*states)


@pytest.mark.slow
def test_it_is_refused_with_the_reason_and_the_engine_goes_on(runtime: EmulatedCuda) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        with pytest.raises(InvalidArgumentError, match="'fused' is for replicas of one GPU each"):
            engine.fuse(True)
        train(engine, model, 0, 2)
        stepper = Stepper(engine, 2)
        stepper.step([model.batch(2, replica) for replica in range(2)])
        with pytest.raises(FailedPreconditionError, match="fuse: a run is going on"):
            engine.fuse(False)
        stepper.close()
    with engine_of(model, gpu_devices(runtime, 1), 2, dispatch="fcfs") as engine:
        with pytest.raises(UnimplementedError, match="cannot be fused: dispatch is 'fcfs'"):
            engine.fuse(True)
        assert engine.options == Synchronisation(dispatch="fcfs")
        assert (
            "\nreplica mode: each replica takes the next batch when it is free, and launches alone\n"
            in engine.explain()
        )
        train(engine, model, 0, 2)
