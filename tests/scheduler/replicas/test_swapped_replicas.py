"""Replicas on a GPU with values in host memory: rounds as CUDA graphs, NaNs, and fusion refused.

An emulated one here; what takes `opened` runs in `tests/gpu` on the GPU of the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from scheduler.replicas.round_launcher import RoundLauncher
from tensorbow.errors import NumericsError, UnimplementedError
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, engine_of, gpu_devices, poison, same_bits

pytestmark = needs_compiler
BATCH, WIDTH = 48, 8


@pytest.fixture(autouse=True)
def small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values are swapped too."""
    monkeypatch.setattr("tensorbow.compiler.swap.LEAST_NBYTES", 1)


def model_with(swap: str) -> Model:
    """Dense layers with dropout: of each, a layer's results and a mask are kept for the gradient."""
    graph = tb.Graph()
    with graph.as_default():
        tb.set_random_seed(5)
        x = h = tb.placeholder(tb.float32, [None, WIDTH], name="x")
        for layer in range(5):
            start = np.random.default_rng(layer).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 3
            h = tb.nn.dropout(tb.tanh(tb.matmul(h, tb.Variable(start, name=f"w{layer}"))), rate=0.2)
        loss = tb.reduce_mean(tb.square(h))
        program = StepProgram((x,), loss, tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss), swap=swap)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        rng = np.random.default_rng((3, round, replica))
        return (rng.normal(size=(BATCH, WIDTH)).astype(np.float32),)

    shapes = [tb.TensorSpec((BATCH, WIDTH), tb.float32)]
    return Model(program, shapes, program.initial_values(), batch)


def trained(opened: OpenedGpu, swap: str, bad: bool = False, **options: Any) -> tuple[Any, ...]:
    """State after some rounds, the slab's bytes, and the error. bad: a batch has a NaN."""
    model, error = model_with(swap), ""

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        arrays = [np.array(array) for array in model.batch(round, replica)]
        if bad and (round, replica) == (3, 1):
            arrays[0].reshape(-1)[0] = np.nan
        return (*arrays,)

    with (
        opened() as runtime,
        engine_of(model, gpu_devices(runtime, 1), 2, replica_mode="captured", **options) as engine,
    ):
        poison(engine)
        assert isinstance(engine.learners.launcher, RoundLauncher)
        try:
            engine.run(Prepared(batch, 2).open, 0, 5)
        except NumericsError as caught:
            error = str(caught)
        step = engine.learners.replicas[0].own_step
        return engine.learners.values.state_arrays(), step.peak_nbytes, error


def test_captured_rounds_have_the_same_bits(opened: OpenedGpu) -> None:
    (state, peak, _), (again, smaller, _) = trained(opened, "never"), trained(opened, "smallest")
    assert same_bits(state, again)
    assert smaller < 0.8 * peak


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["ssgd", "none", "easgd"])
def test_other_synchronisers(opened: OpenedGpu, sync: str) -> None:
    (state, peak, _), (again, smaller, _) = (
        trained(opened, swap, sync=sync) for swap in ("never", "smallest")
    )
    assert same_bits(state, again)
    assert smaller < peak


@pytest.mark.slow
def test_a_nan_is_found_in_the_op_that_makes_it(opened: OpenedGpu) -> None:
    errors = [trained(opened, swap, bad=True)[2] for swap in ("never", "smallest")]
    assert "replica 1 is not finite at step 3" in errors[0]
    assert errors[0] == errors[1]


def test_such_replicas_are_not_fused() -> None:
    with (
        emulated_runtime() as runtime,
        pytest.raises(UnimplementedError, match=r"cannot be fused: SwapOut .*swapped to host memory"),
        engine_of(model_with("smallest"), gpu_devices(runtime, 1), 2, replica_mode="fused"),
    ):
        pass
