"""Every GPU kernel, launched once for several replicas, gives each of them what it gives one alone."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import UnimplementedError
from tensorbow.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tests.gpu_rig.counted import OpenedGpu
from tests.gpu_rig.fused_calls import fused_bench, run_fused
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.recording import gpu_samples
from tests.gpu_rig.runtimes import emulated_runtime, is_emulated, needs_compiler
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


@pytest.mark.slow
@each(SAMPLES, few=1)
def test_each_replica_gets_what_it_gets_alone(sample, opened: OpenedGpu) -> None:
    inputs = [np.asarray(a) for a in sample.inputs]
    both = [inputs, varied(inputs, sample.op), inputs]
    with opened() as runtime, fused_bench(runtime, len(both)) as bench:
        has_the_bits = is_emulated(runtime) and sample.op not in BY_LIBRARY
        fused = run_fused(bench, sample.op, both, sample.complete_attrs, sample.state)
    for arrays, result in zip(both, fused, strict=True):
        with opened() as runtime, GpuBench(runtime) as bench:
            alone = BoundGpuCall(bench, sample.op, arrays, sample.complete_attrs, sample.state).run()
        pairs = [
            *zip(result.outputs, alone.outputs, strict=True),
            *zip(result.written, alone.written, strict=True),
        ]
        for got, wanted in pairs:
            if wanted.dtype.kind == "f" and not has_the_bits:  # compilers join products and sums as they like
                largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6 * largest)
            else:
                assert same_bits(got, wanted)
        assert result.state == alone.state


@pytest.mark.slow
@each([s for s in SAMPLES if s.op.writes], few=1)
def test_a_set_status_holds_up_all_replicas(sample, opened: OpenedGpu) -> None:
    inputs = [np.asarray(a) for a in sample.inputs]
    with opened() as runtime, fused_bench(runtime, 2) as bench:
        results = run_fused(bench, sample.op, [inputs] * 2, sample.complete_attrs, sample.state, status=1)
    for result in results:
        for i, after in zip(sample.op.writes, result.written, strict=True):
            assert same_bits(after, inputs[i])


def test_products_of_replicas_at_equal_distances_are_one_strided_call():
    draw = np.random.default_rng(4)
    inputs = [[draw.normal(size=s).astype(np.float32) for s in ((5, 7), (7, 4))] for _ in range(3)]
    with emulated_runtime() as runtime, fused_bench(runtime, 3) as bench:
        results = run_fused(bench, MatMul, inputs, {}, unequal=False)
        counts = runtime.library("cublas").counts
        assert counts["cublasGemmStridedBatchedEx"] == runtime.counts["gemm"] == 1
    for (a, b), result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result.outputs[0], a @ b, rtol=1e-5, atol=1e-5)


def test_matrices_that_tensor_cores_would_misread_are_refused():
    """Addresses in a table are taken as aligned by cuBLAS; at equal distances it sees what they are."""
    draw = np.random.default_rng(6)
    three = [[draw.normal(size=s).astype(np.float32) for s in ((5, 8), (8, 4))] for _ in range(3)]
    with emulated_runtime() as runtime, fused_bench(runtime, 3, "tf32") as bench:
        assert len(run_fused(bench, MatMul, three, {})) == 3
        with pytest.raises(UnimplementedError, match=r"in tf32, .* must be aligned to 16 bytes"):
            run_fused(bench, MatMul, three, {}, offset=4)
        results = run_fused(bench, MatMul, three, {}, offset=4, unequal=False)
    for (a, b), result in zip(three, results, strict=True):
        np.testing.assert_allclose(result.outputs[0], a @ b, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("backwards", [False, True])
def test_products_of_replicas_at_unequal_distances_are_one_call(backwards):
    draw = np.random.default_rng(5)
    inputs = [[draw.normal(size=s).astype(np.float32) for s in ((3, 5, 7), (7, 4))] for _ in range(4)]
    with emulated_runtime(backwards=backwards) as runtime, fused_bench(runtime, 4) as bench:
        results = run_fused(bench, BatchMatMulV2, inputs, {})
        assert (runtime.counts["gemm"], runtime.counts["launch"]) == (1, 0)
        assert runtime.library("cublas").counts["cublasGemmBatchedEx"] == 1
    for (a, b), result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result.outputs[0], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("compute", "tolerance"), [("fp32", 5e-6), ("tf32", 1e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize(
    ("images", "filters", "parts"),
    [((2, 7, 6, 3), (3, 3, 3, 5), 1), ((3, 5, 4, 8), (1, 1, 8, 12), 1), ((3, 22, 17, 3), (3, 3, 3, 4), 2)],
)
def test_convolutions_of_replicas_in_every_precision(
    opened: OpenedGpu, images, filters, parts, compute, tolerance
) -> None:
    attrs = {"strides": (1, 1, 1, 1), "padding": "SAME", "dilations": (1, 1, 1, 1)}
    draw, shapes = np.random.default_rng(9), [np.array(shape, np.int32) for shape in (images, filters)]
    flow = (*images[:3], filters[3])
    x, w, g = ([draw.normal(size=s).astype(np.float32) for _ in range(3)] for s in (images, filters, flow))
    calls = [
        (Conv2D, [[x[n], w[n]] for n in range(3)]),
        (Conv2DBackpropInput, [[shapes[0], w[n], g[n]] for n in range(3)]),
        (Conv2DBackpropFilter, [[x[n], shapes[1], g[n]] for n in range(3)]),
    ]
    for op, inputs in calls:
        with opened() as runtime, fused_bench(runtime, 3, compute) as bench:
            results = run_fused(bench, op, inputs, attrs)
            launches = 2 if op is Conv2DBackpropFilter and parts > 1 else 1
            if is_emulated(runtime):
                assert runtime.counts["launch"] + runtime.counts["gemm"] == launches
        for own, result in zip(inputs, results, strict=True):
            (expected,) = run_reference_kernel(
                op, [a.astype(np.float64) if a.dtype.kind == "f" else a for a in own], attrs
            )
            largest = np.abs(expected).max()
            np.testing.assert_allclose(result.outputs[0], expected, rtol=0, atol=tolerance * largest)
