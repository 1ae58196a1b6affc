"""Products of matrices and of stacks of them: by cuBLAS, those of integers by a kernel, against the CPU's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tensorbow.kernels.gpu.ops.matmul  # noqa: F401 - registers the kernels
from tensorbow.kernels.gpu.runtime import cublas
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tests.gpu_rig.gpu_kernels import BoundGpuCall, GpuBench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def bench() -> Iterator[GpuBench]:
    with emulated_runtime() as runtime, GpuBench(runtime) as made:
        yield made


def values(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "i":
        return draw.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    return draw.standard_normal(shape).astype(dtype)


def calls_of(bench: GpuBench, op, inputs, attrs=None) -> list[str]:
    """Work enqueued by one step; asserts the CPU's result."""
    (expected,) = run_reference_kernel(op, inputs, attrs)
    call = BoundGpuCall(bench, op, inputs, attrs)
    call.reset()
    bench.runtime.synchronize_stream(bench.stream)
    bench.runtime.log.clear()
    call.enqueue()
    bench.runtime.synchronize_stream(bench.stream)
    taken = [entry.kind for entry in bench.runtime.log if entry.kind in ("gemm", "launch", "fill")]
    (actual,) = call.result().outputs
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(actual, expected)
    (again,) = call.run(captured=True).outputs
    assert again.tobytes() == actual.tobytes()
    bench.free_arrays()
    return taken


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products_of_matrices(bench, dtype, transpose_a, transpose_b):
    for rows, inner, columns in [(3, 5, 7), (1, 33, 1), (18, 1, 17), (40, 37, 35)]:
        a = values(*((inner, rows) if transpose_a else (rows, inner)), dtype=dtype)
        b = values(*((columns, inner) if transpose_b else (inner, columns)), dtype=dtype)
        attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        taken = calls_of(bench, MatMul, [a, b], attrs)
        assert taken == ["gemm" if a.dtype.kind == "f" else "launch"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(
    ("lead_x", "lead_y", "count"),
    [
        ((), (), 1),
        ((5,), (5,), 1),
        ((5,), (), 1),
        ((1,), (5,), 1),
        ((2, 3), (2, 3), 1),  # joined
        ((2, 3), (1, 1), 1),
        ((3,), (2, 3), 2),
        ((2, 1, 4), (3, 1), 6),
        ((7, 1), (1, 2), 2),  # the longer axis is one call's
        ((1, 3, 1, 2), (4, 1, 5, 2), 24),
    ],
)
def test_leading_axes_broadcast(bench, dtype, lead_x, lead_y, count):
    for adj_x, adj_y in ((False, False), (True, False), (False, True), (True, True)):
        x = values(*lead_x, *((5, 3) if adj_x else (3, 5)), dtype=dtype)
        y = values(*lead_y, *((4, 5) if adj_y else (5, 4)), dtype=dtype)
        taken = calls_of(bench, BatchMatMulV2, [x, y], {"adj_x": adj_x, "adj_y": adj_y})
        assert taken == (["gemm"] * count if dtype == "float32" else ["launch"])


@pytest.mark.slow
def test_more_matrices_than_one_call_takes(bench):
    many = cublas.MAXIMUM_BATCH + 5
    assert calls_of(bench, BatchMatMulV2, [values(many, 1, 2), values(many, 2, 1)]) == ["gemm", "gemm"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_without_elements(bench, dtype):
    def empty(*shape: int) -> np.ndarray:
        return np.zeros(shape, dtype)

    assert calls_of(bench, MatMul, [empty(3, 0), empty(0, 4)]) == ["fill" if dtype != "int32" else "launch"]
    assert calls_of(bench, MatMul, [empty(0, 3), empty(3, 4)]) == []
    assert calls_of(bench, MatMul, [empty(4, 3), empty(3, 0)]) == []
    assert calls_of(bench, BatchMatMulV2, [empty(0, 4, 3), empty(3, 2)]) == []


@pytest.mark.parametrize(("compute", "bits"), [("fp32", 23), ("tf32", 10), ("bf16", 7)])
def test_compute_says_how_many_bits_are_read(compute, bits):
    """1 + 2^-bits is read as it is, one bit further down is lost."""
    one = np.ones((1, 1), np.float32)
    with emulated_runtime() as runtime, GpuBench(runtime, compute) as bench:
        for lost, expected in ((bits, 2.0**-bits), (bits + 2, 0.0)):
            x = np.array([[1 + 2.0**-lost]], np.float32)
            if bits == 23 and expected == 0:
                continue
            (product,) = BoundGpuCall(bench, MatMul, [x, one]).run().outputs
            assert product.item() - 1 == expected
        wide = np.array([[1 + 2.0**-40]])
        (product,) = BoundGpuCall(bench, MatMul, [wide, one.astype(np.float64)]).run().outputs
        assert product.item() - 1 == 2.0**-40  # float64 stays float64
