"""Every GPU kernel, launched once for several replicas, gives each of them what it gives one replica alone."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tests.gpu_rig.fused_calls import fused_bench, run_fused
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.recording import gpu_samples
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler
from tests.ops_contract.collection import each
from tests.ops_contract.harness import same_bits

pytestmark = needs_compiler
EXCHANGES = ("AllSum", "AllGather", "Broadcast")  # run once per device, never fused
SAMPLES = [s for s in gpu_samples() if s.op.name not in EXCHANGES and not s.large]
BY_LIBRARY = (Conv2D, Conv2DBackpropInput, Conv2DBackpropFilter, MatMul, BatchMatMulV2)


def varied(inputs, op):
    """Inputs of the same shapes with other numbers, where shape and meaning allow it."""
    made = []
    for i, array in enumerate(inputs):
        numbers = array.dtype.kind == "f" and array.ndim and i not in op.shape_inputs
        made.append(np.ascontiguousarray(np.flip(array)) if numbers else np.asarray(array))
    return made


@each(SAMPLES, few=1)
def test_each_replica_gets_what_it_gets_alone(sample):
    inputs = [np.asarray(a) for a in sample.inputs]
    both = [inputs, varied(inputs, sample.op), inputs]
    with emulated_runtime() as runtime, fused_bench(runtime, len(both)) as bench:
        fused = run_fused(bench, sample.op, both, sample.complete_attrs, sample.state)
    for arrays, result in zip(both, fused, strict=True):
        with emulated_runtime() as runtime, GpuBench(runtime) as bench:
            alone = BoundGpuCall(bench, sample.op, arrays, sample.complete_attrs, sample.state).run()
        pairs = [
            *zip(result.outputs, alone.outputs, strict=True),
            *zip(result.written, alone.written, strict=True),
        ]
        for got, wanted in pairs:
            if sample.op in BY_LIBRARY and wanted.dtype.kind == "f":
                largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * largest)
            else:
                assert same_bits(got, wanted)
        assert result.state == alone.state


@each([s for s in SAMPLES if s.op.writes], few=1)
def test_a_set_status_holds_up_all_replicas(sample):
    inputs = [np.asarray(a) for a in sample.inputs]
    with emulated_runtime() as runtime, fused_bench(runtime, 2) as bench:
        results = run_fused(bench, sample.op, [inputs] * 2, sample.complete_attrs, sample.state, status=1)
    for result in results:
        for i, after in zip(sample.op.writes, result.written, strict=True):
            assert same_bits(after, inputs[i])


@pytest.mark.parametrize("backwards", [False, True])
def test_products_of_replicas_at_unequal_distances_are_one_call(backwards):
    draw = np.random.default_rng(5)
    inputs = [[draw.normal(size=s).astype(np.float32) for s in ((3, 5, 7), (7, 4))] for _ in range(4)]
    with emulated_runtime(backwards=backwards) as runtime, fused_bench(runtime, 4) as bench:
        results = run_fused(bench, BatchMatMulV2, inputs, {})
        assert (runtime.counts["gemm"], runtime.counts["launch"]) == (1, 0)
    for (a, b), result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result.outputs[0], a @ b, rtol=1e-5, atol=1e-5)
