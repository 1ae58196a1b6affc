"""Sparse gradients under S-SGD: the mean of all replicas' rows, as with a dense gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.errors import InvalidArgumentError, NumericsError
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of, gpu_devices

ROWS, ROUNDS = 7, 6
OPTIMIZERS = {
    "descent": lambda: tb.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: tb.train.AdagradOptimizer(0.1),
    "momentum": lambda: tb.train.MomentumOptimizer(0.1, 0.9),
    "adadelta": lambda: tb.train.AdadeltaOptimizer(0.5),
    "rms": lambda: tb.train.RMSPropOptimizer(0.01, momentum=0.5),
    "ftrl": lambda: tb.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "centred rms": lambda: tb.train.RMSPropOptimizer(0.01, centered=True),
}
LAYOUTS = [(1, 1), (1, 3), (2, 2)]  # devices, replicas on each


def batch(round: int, replica: int) -> tuple[Any, ...]:
    draw = np.random.default_rng((round, replica))
    return draw.integers(0, ROWS, 5), draw.normal(size=(5, 2)).astype(np.float32)


def model_of(optimizer: str, dense: bool, batches: Callable[[int, int], Any] = batch) -> Model:
    initial = {
        "table": np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32),
        "w": np.full((3, 2), 0.3, np.float32),
    }
    with tb.Graph().as_default():
        rows, y = tb.placeholder(tb.int64, [5], name="rows"), tb.placeholder(tb.float32, [5, 2], name="y")
        table, w = (tb.Variable(value, name=name) for name, value in initial.items())
        found = tb.gather(tb.identity(table) if dense else table, rows)
        loss = tb.reduce_mean(tb.square(tb.matmul(found, w) - y))
        update = OPTIMIZERS[optimizer]().minimize(loss)
    return Model(StepProgram((rows, y), loss, update), [rows.spec, y.spec], initial, batches)


def trained(model: Model, devices: list[Any], per_device: int, **options: Any) -> tuple[Any, Any]:
    """Losses by round, and the state at the end, of replicas that are equal."""
    results = list[Any]()
    count = len(devices) * per_device
    with engine_of(model, devices, per_device, sync="ssgd", **options) as engine:
        engine.run(Prepared(model.batch, count).open, 0, ROUNDS, results.extend)
        values = [engine.learners.values.replica_values(replica) for replica in range(count)]
    assert all(np.array_equal(values[0]["table"], other["table"]) for other in values)
    return [result.loss for result in results], values[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("devices", "per_device"), LAYOUTS)
@pytest.mark.sampled(1)
def test_sparse_gradients_are_averaged_as_dense_ones(devices: int, per_device: int, optimizer: str) -> None:
    """Optimisers that leave rows without a gradient alone differ from dense ones only there."""
    sparse, values = trained(model_of(optimizer, False), cpu_devices(devices), per_device)
    again, others = trained(model_of(optimizer, False), cpu_devices(devices, delays=3), per_device)
    assert sparse == again
    assert np.array_equal(values["table"], others["table"])
    if optimizer in ("descent", "adagrad"):
        dense, expected = trained(model_of(optimizer, True), cpu_devices(devices), per_device)
        np.testing.assert_allclose(sparse, dense, rtol=1e-5)
        np.testing.assert_allclose(values["table"], expected["table"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("optimizer", ["descent", "adagrad"])
def test_the_same_on_gpus(optimizer: str) -> None:
    expected, values = trained(model_of(optimizer, False), cpu_devices(2), 2)
    with emulated_runtime() as runtime:
        devices = gpu_devices(runtime, 2)
        losses, others = trained(model_of(optimizer, False), devices, 2)
        for device in devices:
            device.close()
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(others["table"], values["table"], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_resize_compiles_the_step_for_the_new_number() -> None:
    model = model_of("adagrad", False)
    with engine_of(model, cpu_devices(1), 2, sync="ssgd") as engine:
        engine.run(Prepared(batch, 2).open, 0, 3)
        engine.resize(3)
        engine.run(Prepared(batch, 3).open, 3, 6)
        values = [engine.learners.values.replica_values(replica)["table"] for replica in range(3)]
    assert all(np.array_equal(values[0], other) for other in values)


def test_rows_that_are_not_finite_stop_all_replicas() -> None:
    def bad(round: int, replica: int) -> tuple[Any, ...]:
        rows, y = batch(round, replica)
        return rows, np.full_like(y, np.nan) if (round, replica) == (3, 1) else y

    model = model_of("adagrad", False, bad)
    with engine_of(model, cpu_devices(2), 1, sync="ssgd") as engine:
        with pytest.raises(NumericsError, match=r"replica 1 .* at step 3"):
            engine.run(Prepared(bad, 2).open, 0, ROUNDS)
        values = [engine.learners.values.replica_values(replica)["table"] for replica in range(2)]
    assert np.isfinite(values[0]).all()
    assert np.array_equal(*values)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda table: tb.scatter_sub(table, [0, 1], 0.5), "expected rows and a vector .* got a scalar"),
        (lambda table: tb.scatter_sub(table, 1, np.ones(3, np.float32)), "got a scalar"),
        (
            lambda table: tb.scatter_update(table, [0], np.ones((1, 3), np.float32)),
            "without a gradient of its own",
        ),
    ],
)
def test_writes_of_rows_that_cannot_be_averaged_are_refused(write: Any, message: str) -> None:
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [3])
        table = tb.Variable(np.zeros((ROWS, 3), np.float32), name="table")
        loss = tb.reduce_sum(x)
        program = StepProgram((x,), loss, write(table).op)
    with (
        pytest.raises(InvalidArgumentError, match=rf"ssgd: Scatter.* {message}.*test_sparse_ssgd"),
        engine_of(Model(program, [x.spec], {}, batch), cpu_devices(1), 2, sync="ssgd"),
    ):
        pass


def test_an_op_of_a_users_that_is_no_sum_is_refused() -> None:
    """Whatever its inputs are called."""
    largest = tb.define_op(
        "TestScatterMax",
        spec=lambda inputs, attrs: inputs[0],
        gradient=tb.NOT_DIFFERENTIABLE,
        inputs=("ref", "indices", "updates"),
        kernel=lambda call: np.maximum.at(call.inputs[0], call.inputs[1], call.inputs[2]),
        alias=((0, 0),),
        writes=(0,),
        replace=True,
    )
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [2, 3])
        table = tb.Variable(np.zeros((ROWS, 3), np.float32), name="table")
        program = StepProgram((x,), tb.reduce_sum(x), largest(table, np.array([0, 1]), x).op)
    with (
        pytest.raises(InvalidArgumentError, match=r"ssgd: TestScatterMax .* without a gradient of its own"),
        engine_of(Model(program, [x.spec], {}, batch), cpu_devices(1), 2, sync="ssgd"),
    ):
        pass


def test_a_bad_row_is_skipped_by_all() -> None:
    def bad(round: int, replica: int) -> tuple[Any, ...]:
        rows, y = batch(round, replica)
        return rows, np.full_like(y, np.nan) if (round, replica) == (3, 1) else y

    model = model_of("momentum", False, bad)
    with engine_of(model, cpu_devices(2), 1, sync="ssgd", on_nan="skip") as engine:
        engine.run(Prepared(bad, 2).open, 0, ROUNDS)
        values = [engine.learners.values.replica_values(replica)["table"] for replica in range(2)]
        assert engine.skipped_updates == 2  # that of each replica
    assert np.isfinite(values[0]).all()
    assert np.array_equal(*values)
