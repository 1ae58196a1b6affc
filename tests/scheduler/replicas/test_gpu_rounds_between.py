"""Rounds as CUDA graphs beside what other streams do, and what they leave when something fails."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import DatasetBatches, StepProgram
from tensorbow.data import make_synthetic
from tensorbow.errors import NumericsError, ResourceExhaustedError, UnimplementedError
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel
from tensorbow.ops.definition import define_op
from tests.gpu_rig.gpu_models import classifier
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model, well
from tests.scheduler_rig.running import Prepared, engine_of, gpu_devices

pytestmark = needs_compiler
Alone = define_op(
    "TestAlone",
    spec=lambda inputs, attrs: inputs[0],
    gradient=NOT_DIFFERENTIABLE,
    inputs=("x",),
    kernel=Kernel(run=lambda call: None),
)
COPY = """
extern "C" __global__ void copy(const float* x, float* y, int n) { TB_FOR_EACH(int, i, n) y[i] = x[i]; }
"""
tb.register_kernel(Alone, "gpu", tb.CudaKernel(COPY, "copy", capturable=False))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["captured", "fused"])
def test_rounds_begin_behind_what_clears_statuses_on_other_streams(mode: str) -> None:
    """A round that is captured runs on one stream; statuses are cleared on those of replicas and z."""
    model, slow, is_bad = well(), set[str](), [True]

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        array = np.array(model.batch(round, replica)[0])
        array[0] = np.nan if is_bad[0] and (round, replica) == (6, 0) else array[0]
        return (array,)

    def delay() -> None:
        time.sleep(0.03 if threading.current_thread().name in slow else 0)

    with (
        emulated_runtime(delay=delay) as runtime,
        engine_of(model, gpu_devices(runtime, 1), 2, replica_mode=mode) as engine,
    ):
        source = Prepared(batch, 2)
        with pytest.raises(NumericsError, match="replica 0 is not finite at step 6"):
            engine.run(source.open, 0, 12)
        is_bad[0] = False
        learners = engine.learners
        others = [learners.replicas[1].group.compute, learners.central[0].group.compute]
        slow |= {f"emulated stream {stream.handle:#x}" for stream in others}  # type: ignore[attr-defined]
        assert engine.run(source.open, 7, 12) == 12


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["captured", "fused"])
def test_a_batch_is_made_once_in_a_round(mode: str) -> None:
    """Also where replicas meet within the round."""
    data, _ = make_synthetic(37, 8)
    model = classifier("lenet", batch_size=4)
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2, sync="ssgd", replica_mode=mode) as engine:
            batches = DatasetBatches(data, 4, 2, seed=1)
            batches.keep_on_devices(engine.learners, "always")
            engine.run(batches.open, 0, 1)
        kernels = [call.name for call in runtime.log if call.kind == "launch"]
    assert kernels.count("make_batch") == (1 if mode == "fused" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("refused", range(3))
def test_no_memory_before_a_launch_leaves_the_rounds_usable(refused: int) -> None:
    """Whichever allocation it is: of rows of scalars and picks, of fused batches, of the list of copies."""
    data, _ = make_synthetic(37, 8)
    model = classifier("lenet", batch_size=4)
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2, replica_mode="fused") as engine:
            batches = DatasetBatches(data, 4, 2, seed=1)
            batches.keep_on_devices(engine.learners, "always")
            group, numbers = engine.learners.replicas[0].group, itertools.count()
            allocate = group.allocate

            def refusing(nbytes: int, **options: Any) -> Any:
                if next(numbers) == refused:
                    raise ResourceExhaustedError("no room")
                return allocate(nbytes, **options)

            group.allocate = refusing  # type: ignore[method-assign]
            with pytest.raises(ResourceExhaustedError, match="no room"):
                engine.run(batches.open, 0, 2)
            assert engine.run(batches.open, 0, 2) == 2
            del group.allocate
        gc.collect()  # the error held pinned memory


@pytest.mark.slow
def test_no_memory_for_another_replica_mode_leaves_the_engine_usable() -> None:
    model = well()
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2) as engine:
            source, learners = Prepared(model.batch, 2), engine.learners
            engine.run(source.open, 0, 4)
            allocator = learners.replicas[0].group.allocator
            before = allocator.statistics().in_use_nbytes
            runtime.fail_next("make_event", "cudaErrorMemoryAllocation")
            with pytest.raises(ResourceExhaustedError):
                learners.fuse(True)
            assert not learners.options.fused
            assert allocator.statistics().in_use_nbytes <= before
            assert engine.run(source.open, 4, 8) == 8
            learners.fuse(True)
            assert engine.run(source.open, 8, 12) == 12
        gc.collect()  # the error held pinned memory


def with_evaluation() -> tuple[Model, StepProgram, StepProgram]:
    """`well`, an evaluation and another training step, both with a kernel that cannot be captured."""
    model = well()
    graph = tb.Graph()
    with graph.as_default():
        x = tb.placeholder(tb.float32, [7], name="x")
        w = tb.Variable(model.initial["w"], name="w")
        optimizer = tb.train.MomentumOptimizer(0.1, 0.9)
        loss, other = (tb.reduce_sum(tb.square(w - each)) * 0.5 for each in (x, Alone(x)))
        update, second, nothing = optimizer.minimize(loss), optimizer.minimize(other), tb.no_op()
    trained = Model(StepProgram((x,), loss, update, {}), model.shapes, model.initial, model.batch)
    return trained, StepProgram((x,), other, nothing, {}), StepProgram((x,), other, second, {})


@pytest.mark.slow
def test_only_steps_that_train_must_be_fused() -> None:
    """One that cannot be fused is not selected: the step before is."""
    model, evaluation, second = with_evaluation()
    with emulated_runtime() as runtime:
        with engine_of(model, gpu_devices(runtime, 1), 2, replica_mode="fused") as engine:
            source, learners = Prepared(model.batch, 2), engine.learners
            engine.run(source.open, 0, 2)
            engine.add_program(evaluation, model.shapes)
            engine.add_program(second, model.shapes)
            engine.select(1)
            assert not learners.launches_rounds
            with pytest.raises(UnimplementedError, match="cannot be fused: TestAlone"):
                engine.select(2)
            engine.select(0)
            with pytest.raises(UnimplementedError, match="cannot be fused: TestAlone"):
                engine.select(2)
            assert engine.selected == 0
            assert engine.run(source.open, 2, 4) == 4
            assert learners.launches_rounds
        gc.collect()  # the error held pinned memory


@pytest.mark.slow
def test_one_replica_needs_no_fused_step() -> None:
    """Alone it moves the average itself, which several replicas must not do in one kernel."""
    model = well()
    with (
        emulated_runtime() as runtime,
        engine_of(model, gpu_devices(runtime, 1), 1, replica_mode="fused", ema=0.9) as engine,
    ):
        assert engine.run(Prepared(model.batch, 1).open, 0, 3) == 3
        engine.resize(2, 3)
        assert engine.run(Prepared(model.batch, 2).open, 3, 6) == 6
