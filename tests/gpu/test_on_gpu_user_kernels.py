"""Kernels of users' own ops on the GPU of this machine: CUDA source as on the emulated one, and real CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorbow as tb
from scheduler import StepProgram
from tensorbow.devices import GpuDevice
from tests.gpu_rig.counted import CountedCuda, of_any_gpu
from tests.gpu_rig.runtimes import is_emulated, real_runtime
from tests.kernels.gpu import test_gpu_user_kernels as shared
from tests.scheduler_rig.programs import Model
from tests.scheduler_rig.running import Prepared, cpu_devices, engine_of

RUNTIME = real_runtime()

pytestmark = pytest.mark.usefixtures("ops_of_the_test")
globals().update(of_any_gpu(shared))


def test_cupy_functions_train_with_memory_of_their_replicas_partitions(runtime: CountedCuda) -> None:
    if is_emulated(RUNTIME):
        pytest.skip("CuPy is not emulated")
    import cupy

    addresses: list[int] = []

    def cube(call: Any) -> None:
        square = call.inputs[0] * call.inputs[0]  # a temporary of CuPy's
        addresses.append(square.data.ptr)
        cupy.multiply(square, call.inputs[0], out=call.outputs[0])

    op = tb.define_op(
        "CupyCube",
        inputs=("x",),
        spec=lambda inputs, attrs: inputs[0],
        kernel=lambda call: np.power(call.inputs[0], 3, out=call.outputs[0]),
        gradient=lambda node, g: [g * 3.0 * tb.square(node.inputs[0])],
    )
    tb.register_kernel(op, "gpu", tb.CupyKernel(cube))
    initial = {"w": np.full((5, 3), 0.1, np.float32)}
    with tb.Graph().as_default():
        x = tb.placeholder(tb.float32, [4, 5], name="x")
        w = tb.Variable(initial["w"], name="w")
        loss = tb.reduce_mean(tb.square(op(tb.matmul(x, w)) - 1.0))
        update = tb.train.MomentumOptimizer(0.01, 0.9).minimize(loss)

    def batch(round: int, replica: int) -> tuple[Any, ...]:
        return (np.random.default_rng((round, replica)).normal(size=(4, 5)).astype(np.float32),)

    model = Model(StepProgram((x,), loss, update, {}), [tb.TensorSpec((4, 5), tb.float32)], initial, batch)
    found = []
    for device in (*cpu_devices(1), GpuDevice("/gpu:0", runtime)):
        with engine_of(model, [device], 2, tb.train.Constant(0.01)) as engine:
            engine.run(Prepared(batch, 2).open, 0, 8)
            found.append(engine.central_values()["w"])
            allocators = [replica.group.allocator for replica in engine.learners.replicas]
            owners = {tuple(a.owns(address) for a in allocators) for address in addresses}
            del allocators
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert owners == {(False, True), (True, False)}
