"""Small kernels and shorthands for tests of the emulated runtime itself."""

from __future__ import annotations

import numpy as np

from tensorbow.kernels.gpu.call import DeviceArray
from tensorbow.kernels.gpu.program import CudaSource
from tensorbow.specs import TensorSpec, as_dtype
from tests.gpu_rig.emulated_cuda import EmulatedCuda
from tests.gpu_rig.gpu_kernels import GpuBench

KERNELS = CudaSource.of(
    "rig",
    """
    extern "C" __global__ void scale(float* y, const float* x, float a, int n) {
        TB_FOR_EACH(int, i, n) y[i] = a * x[i];
    }
    extern "C" __global__ void add_one(int* y, const long long* status) { TB_PREDICATED(status); *y += 1; }
    extern "C" __global__ void __launch_bounds__(1024) total(float* y, const float* x, int n) {
        __shared__ float sums[32];
        float s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
        for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = s;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < blockDim.x / 32; ++i) s += sums[i];
            y[0] = s;
        }
    }
    extern "C" __global__ void reversed(int* y) {
        extern __shared__ int kept[];
        int n = blockDim.x * blockDim.y, i = threadIdx.y * blockDim.x + threadIdx.x;
        int first = kept[i];
        kept[i] = i + 100 * blockIdx.x;
        __syncthreads();
        y[blockIdx.x * n + i] = kept[n - 1 - i];
        y[gridDim.x * n + blockIdx.x * n + i] = first;
    }
    extern "C" __global__ void stale(int* y) {
        __shared__ int kept[4];
        y[blockIdx.x] = kept[1];
        __syncthreads();
        kept[1] = 7;
    }
    extern "C" __global__ void lanes(unsigned* y) {
        int t = threadIdx.x;
        y[t] = __shfl_down_sync(0xffffffffu, t, 1);
        y[64 + t] = __shfl_up_sync(0xffffffffu, t, 2);
        y[128 + t] = __shfl_sync(0xffffffffu, t, 3, 8);
        y[192 + t] = __ballot_sync(0xffffffffu, t % 3 == 0);
        y[256 + t] = __syncthreads_count(t % 2);
        y[320 + t] = __shfl_xor_sync(0xffffffffu, t, 8);
    }
    extern "C" __global__ void divergent(int* y) {
        if (threadIdx.x < 5) __syncthreads();
        else *y = __shfl_sync(0xffffffffu, 1, 0);
    }
    extern "C" __global__ void two_lines(int* y) {
        if (threadIdx.x < 32) __syncthreads();
        else
            __syncthreads();
    }
    extern "C" __global__ void early(int* y) {
        if (threadIdx.x >= 40) return;
        __syncthreads();
        atomicAdd(y, 1);
    }
    extern "C" __global__ void overrun(float* y, int n) { y[n] = 1; }
    extern "C" __global__ void nowhere(int* y) {
        __syncthreads();
        if (threadIdx.x == 3) *(int*)(size_t)blockIdx.x = 1;
    }
    extern "C" __global__ void divide(int* y) { *y = 100 / *y; }
    extern "C" __global__ void order(int* y, int* next) {
        y[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
    }
    extern "C" __global__ void wide(double* y, float4 v, long long n, bool on, unsigned char c) {
        *y = (double)v.x + v.y + v.z + v.w + n + on + c;
    }
    """,
)


def array(bench, *shape, dtype=np.float32, values=None) -> DeviceArray:
    made = bench.memory(TensorSpec(shape, as_dtype(dtype)))
    if values is not None:
        bench.upload(np.asarray(values, dtype).reshape(shape), made)
    return made


def launch(bench, name, grid, block, *arguments, shared_nbytes=0):
    bench.context.launch(KERNELS, name, grid, block, *arguments, shared_nbytes=shared_nbytes)()


def broken(**options):
    """A runtime and a bench that need not be clean in the end."""
    runtime = EmulatedCuda(**options)
    return runtime, GpuBench(runtime)
