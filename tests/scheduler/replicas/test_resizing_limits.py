"""Another number of replicas: further steps, memory, failures, GPUs, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, LearningEngine, Stepper, StepProgram, TrainingConfig
from scheduler.training.models.classifier_step import build_step
from tensorbow.data import make_synthetic
from tensorbow.devices import CpuDevice, GpuDevice
from tensorbow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NumericsError,
    ResourceExhaustedError,
)
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, convolutional, logistic, well
from tests.scheduler_rig.running import Hesitant, Prepared, cpu_devices, engine_of, same_bits, within


def train(engine: LearningEngine, model: Model, start: int, stop: int) -> None:
    source = Hesitant(model.batch, engine.learners.count, seed=start)
    assert engine.run(source.open, start, stop) == stop


@pytest.mark.slow
def test_further_steps_and_the_chosen_one_stay() -> None:
    model = logistic()
    graph = model.program.graph
    with graph.as_default():
        x, y = model.program.inputs
        update = tb.train.GradientDescentOptimizer(0.1).minimize(model.program.loss)
    further = StepProgram((x, y), None, update)
    with engine_of(model, cpu_devices(1), 1) as engine:
        number = engine.add_program(further, model.shapes)
        engine.select(number)
        train(engine, model, 0, 3)
        engine.resize(2)
        train(engine, model, 3, 5)
        assert not engine.learners.values.replica_values(0)["w/Momentum"].any()
        engine.select(0)
        train(engine, model, 5, 7)
        assert engine.learners.values.replica_values(1)["w/Momentum"].any()


@pytest.mark.slow
def test_replicas_that_share_a_batch_have_other_shapes_after_it() -> None:
    model = logistic()
    halves = [tb.TensorSpec((spec.extents[0] // 2, *spec.extents[1:]), spec.dtype) for spec in model.shapes]
    with engine_of(model, cpu_devices(1), 1) as engine:
        train(engine, model, 0, 2)
        with pytest.raises(InvalidArgumentError, match="shapes to be for each of 1 programs, the specs"):
            engine.resize(2, shapes=[])
        with pytest.raises(InvalidArgumentError, match="shapes: expected one for each of 2 inputs, got 1"):
            engine.resize(2, shapes=[halves[:1]])
        with Stepper(engine, 2) as stepper:
            stepper.step([model.batch(0, 0)])
        engine.resize(2, 3, shapes=[halves])
        rows = halves[0].extents[0]
        with Stepper(engine, 3) as stepper:
            batch = model.batch(1, 0)
            stepper.step([[a[:rows] for a in batch], [a[rows:] for a in batch]])
            with pytest.raises(InvalidArgumentError):
                stepper.step([batch, batch])
        engine.resize(1, 4, shapes=[model.shapes])
        train(engine, model, 4, 6)


@pytest.mark.slow
def test_too_many_are_refused_and_nothing_has_changed() -> None:
    model = well(size=4096)
    device = CpuDevice("/cpu:0", limit_nbytes=600_000)
    with engine_of(model, [device], 2) as engine:
        train(engine, model, 0, 3)
        before, held = engine.learners.values.state_arrays(), device.memory.held_nbytes
        learners = engine.learners
        with pytest.raises(
            ResourceExhaustedError, match=r"40 replicas do not fit on /cpu:0: \d+ fit"
        ) as info:
            engine.resize(40)
        assert engine.learners is learners
        assert same_bits(engine.learners.values.state_arrays(), before)
        assert device.memory.held_nbytes == held
        fit = int(str(info.value).split(": ")[1].split()[0])
        assert fit > 2
        engine.resize(fit)
        train(engine, model, 3, 5)
        with pytest.raises(ResourceExhaustedError, match=f"{fit + 1} replicas do not .*: {fit} fit"):
            engine.resize(fit + 1)


def test_when_building_fails_the_old_ones_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 2) as engine:
        train(engine, model, 0, 3)
        before = engine.learners.values.state_arrays()
        load = type(engine.learners.values).load_state_arrays

        def fails(values: Any, arrays: Any) -> None:
            if len(arrays) > len(before):
                raise ResourceExhaustedError("somebody else took it")
            load(values, arrays)

        monkeypatch.setattr(type(engine.learners.values), "load_state_arrays", fails)
        with pytest.raises(ResourceExhaustedError, match="somebody else"):
            engine.resize(3)
        assert same_bits(engine.learners.values.state_arrays(), before)
        train(engine, model, 3, 5)

        def bad(round: int, replica: int) -> tuple[Any, ...]:
            x, y = model.batch(round, replica)
            return np.full_like(x, np.nan), y

        with pytest.raises(NumericsError, match=r"is not finite at step 5; its batch has NaN"):
            within(lambda: engine.run(Prepared(bad, 2).open, 5, 7))


def test_what_is_refused() -> None:
    model = logistic()
    with engine_of(model, cpu_devices(1), 1, alpha=0.6) as engine:
        train(engine, model, 0, 1)
        with pytest.raises(InvalidArgumentError, match=r"alpha: expected 0 < alpha < 0.5 for 3 replicas"):
            engine.resize(3)
        with pytest.raises(
            InvalidArgumentError,
            match=r"LearningEngine.resize: expected replicas_per_device to be a whole number of at least 1",
        ):
            engine.resize(0)
        engine.resize(2)
        stepper = Stepper(engine, 1)
        stepper.step([model.batch(1, index) for index in range(2)])
        with pytest.raises(FailedPreconditionError, match="resize: a run is going on"):
            engine.resize(1)
        stepper.close()
    engine = LearningEngine(model.program, model.shapes, cpu_devices(1))
    with engine, pytest.raises(FailedPreconditionError, match=r"engine.initialize\(\) first"):
        engine.resize(1)
    with pytest.raises(FailedPreconditionError, match="closed"):
        engine.resize(1)


@pytest.mark.slow
@needs_compiler
def test_on_gpus_as_on_cpus() -> None:
    model = convolutional(dropout=True)

    def trained(devices: list[Any]) -> dict[str, Any]:
        with engine_of(model, devices, 1, mu=0.5) as engine:
            train(engine, model, 0, 3)
            for count, stop in ((3, 6), (2, 8), (1, 9), (2, 11)):
                engine.resize(count)
                train(engine, model, engine.round, stop)
            return engine.learners.values.state_arrays()

    expected = trained(cpu_devices(2))
    with emulated_runtime() as runtime:
        limit = runtime.properties.memory_nbytes // 8
        found = trained([GpuDevice(f"/gpu:{index}", runtime, limit_nbytes=limit) for index in range(2)])
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("kept", ["always", "never"])
def test_data_kept_on_a_gpu_follow(kept: str) -> None:
    data, _ = make_synthetic(train_examples=320, test_examples=20)
    config = TrainingConfig(model="logreg", dataset="synthetic")
    program, specs = build_step(config, data, 0.05)

    def trained(device: Any, kept: str) -> dict[str, Any]:
        batches = DatasetBatches(data, config.batch_size, 1, seed=3)
        engine = LearningEngine(program, specs, [device], 1)
        with engine:
            assert not batches.keep_on_devices(engine.learners, kept)
            engine.initialize()
            engine.run(batches.open, 0, 5)
            for count, stop in ((3, 9), (2, 12)):
                held = device.memory.held_nbytes - engine.learners.held_nbytes(device)
                engine.resize(count)
                batches.resize(engine.round, engine.learners)
                assert device.memory.held_nbytes - engine.learners.held_nbytes(device) == held
                engine.run(batches.open, engine.round, stop)
            found = engine.learners.values.state_arrays()
        assert device.memory.held_nbytes == 0
        return found

    (cpu,) = cpu_devices(1)
    expected = trained(cpu, "never")
    cpu.close()
    with emulated_runtime() as runtime:
        limit = runtime.properties.memory_nbytes // 8
        device = GpuDevice("/gpu:0", runtime, limit_nbytes=limit)
        found = trained(device, kept)
        device.close()
        gc.collect()  # pinned batches
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=2e-6, err_msg=name)
