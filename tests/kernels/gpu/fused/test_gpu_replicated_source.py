"""Kernels rewritten for all replicas: declarations of every form, on an emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

from tensorbow.errors import InternalError, UnimplementedError
from tensorbow.kernels.gpu.fused.context import FusedContext
from tensorbow.kernels.gpu.fused.replicated_source import pointers_of, replicated
from tensorbow.kernels.gpu.runtime.call import DeviceArray
from tensorbow.kernels.gpu.runtime.context import POINTERS, PointerTable
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tests.gpu_rig.fused_calls import fused_bench
from tests.gpu_rig.runtimes import emulated_runtime, needs_compiler

REPLICAS = 3


def source(text: str) -> CudaSource:
    return CudaSource.of("test", text)


@pytest.fixture
def bench():
    with emulated_runtime() as runtime, fused_bench(runtime, REPLICAS) as made:
        yield made


class Given:
    """A replica's memory: 64 floats that tell replica and place, and 64 more for results."""

    def __init__(self, bench):
        self.bench = bench
        self.memory, self.bases = bench.memory(512)
        self.context = FusedContext(bench.plain, self.memory)
        for replica, base in enumerate(self.bases):
            bench.device.write(base, np.arange(64, dtype=np.float32) + 100 * replica)
        float32 = np.dtype(np.float32)
        self.x = DeviceArray(self.bases[0], (64,), float32)
        self.y = DeviceArray(self.bases[0] + 256, (64,), float32)

    def results(self, enqueue):
        enqueue()
        self.bench.synchronize()
        self.memory.close()
        return [self.bench.device.read(base + 256, (64,), np.float32) for base in self.bases]


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        'extern "C" __global__ void f(const float* x, float* y, int n) { COPY }',
        'extern "C" __global__ void __launch_bounds__(64) f(\n    const float* __restrict__ x,'
        " float *y, int n)\n{ /* __global__ void g( */ COPY }",
        'extern "C" __global__ __launch_bounds__(64) void f(const float* const x,'
        " float* const y, const int n)\n{ if (n == 0) return; COPY }  // __global__",
        "__device__ int where() { return blockIdx.x * blockDim.x + threadIdx.x; }\n"
        'extern "C" { __global__ void f(const float* x, float* y, int n) { y[where()] = x[where()]; } }',
    ],
    ids=["plain", "bounds behind", "bounds before", "block of C"],
)
def test_declarations(bench, text):
    given = Given(bench)
    text = text.replace("COPY", "TB_FOR_EACH(int, i, n) y[i] = x[i];")
    launch = given.context.launch(source(text), "f", 2, 32, given.x, given.y, np.int32(64))
    for replica, result in enumerate(given.results(launch)):
        np.testing.assert_array_equal(result, np.arange(64) + 100 * replica)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_kernel_sees_the_depth_of_one_replica(bench, depth):
    given = Given(bench)
    text = """
__device__ float layer() { return blockIdx.z + 10 * gridDim.z; }
extern "C" __global__ void f(float* y) {
    const dim3 size = dim3(gridDim.x, gridDim.y, gridDim.z);
    y[(blockIdx.z * size.y + blockIdx.y) * size.x + blockIdx.x] = layer();
}
"""
    results = given.results(given.context.launch(source(text), "f", (2, 3, depth), 1, given.y))
    for result in results:
        expected = np.repeat(np.arange(depth) + 10 * depth, 6)
        np.testing.assert_array_equal(result[: depth * 6], expected)
        assert np.isnan(result[depth * 6 :]).all()


@needs_compiler
def test_a_kernel_without_z_is_one_program_for_all_depths():
    text = 'extern "C" __global__ void f(float* y) { y[blockIdx.x + gridDim.y] = 0; }'
    assert replicated(source(text), 1).text == replicated(source(text), 2).text
    deep = text.replace("gridDim.y", "gridDim.z")
    assert replicated(source(deep), 1).text != replicated(source(deep), 2).text


@needs_compiler
def test_tables_of_pointers(bench):
    given = Given(bench)
    text = (
        POINTERS
        + """
extern "C" __global__ void f(TbPointers<const float, 4> from, float* y, TbPointers<float, 2> to) {
    if (from.at[3] == nullptr) to.at[1][threadIdx.x] = from.at[2][threadIdx.x] + y[threadIdx.x];
}
"""
    )
    pieces = [DeviceArray(given.x.address + 64 * n, (16,), given.x.dtype) for n in range(3)]
    ends = [DeviceArray(given.y.address + 64 * n, (16,), given.x.dtype) for n in range(2)]
    launch = given.context.launch(
        source(text), "f", 1, 16, PointerTable(tuple(pieces), 4), given.x, PointerTable(tuple(ends), 2)
    )
    for replica, result in enumerate(given.results(launch)):
        np.testing.assert_array_equal(result[16:32], np.arange(16) * 2 + 32 + 200 * replica)


def test_pointers_are_counted():
    text = 'extern "C" __global__ void f(int n, const A* a, TbAxes<int, 3> b, B * const c) {}'
    assert pointers_of("test", text, "f") == 2
    with pytest.raises(UnimplementedError, match=r"CUDA source test: expected .* void g"):
        pointers_of("test", text, "g")


@pytest.mark.parametrize(
    "text",
    [
        "template <class T> __global__ T f(T* y) { return 0; }",
        '#define KERNEL __global__ \\\n void\nextern "C" KERNEL f(float* y) {}',
        'extern "C" __global__ void f(float (*y)(int)) {}',
    ],
)
def test_kernels_that_are_not_declared_plainly_are_refused(text):
    with pytest.raises(UnimplementedError, match="CUDA source test: expected kernels declared as"):
        replicated(source(text), 1)


def test_variables_of_a_program_are_refused_unless_they_are_constant():
    kernel = 'extern "C" __global__ void f(float* y) {}'
    for text in ("static __device__ int n = 0;", "__device__ __managed__ float t[2] = {1, 2};"):
        with pytest.raises(UnimplementedError, match="expected no __device__ variables"):
            replicated(source(text + kernel), 1)
    declared = "static const __device__ float a[1] = {1}; __device__ constexpr int b = 2; __constant__ int c;"
    assert "b = 2" in replicated(source(declared + kernel), 1).text


@needs_compiler
def test_arguments_that_hold_addresses_are_refused(bench):
    given = Given(bench)
    text = 'struct P { int n; float* y; }; extern "C" __global__ void f(P p) { p.y[0] = 1; }'
    struct = np.zeros((), np.dtype([("n", "i4"), ("y", "u8")], align=True))
    struct["y"] = given.y.address
    with pytest.raises(UnimplementedError, match="an argument holds an address"):
        given.context.launch(source(text), "f", 1, 1, struct)
    with pytest.raises(UnimplementedError, match="it calls copy of the CUDA runtime itself"):
        given.context.runtime.copy(0, 0, 1, 1, 1)
    elsewhere = DeviceArray(given.bases[0] + (1 << 40), (64,), given.x.dtype)
    with pytest.raises(UnimplementedError, match=r"an array of 256 bytes at .* in no region"):
        given.context.launch(source(text), "f", 1, 1, elsewhere)
    kernel = 'extern "C" __global__ void f(const float* x, float* y) {}'
    with pytest.raises(InternalError, match="test f: its parameters are not these arguments"):
        given.context.launch(source(kernel), "f", 1, 1, given.x)
    given.memory.close()
