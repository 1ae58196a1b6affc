"""GPU kernels of inverses and determinants: a block for each matrix, elimination with partial pivoting.

Computed in float64, whatever the dtype. A kernel cannot raise: the inverse of a singular matrix is NaN.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import NodeSpec
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.ops.linalg import MatrixDeterminant, MatrixInverse
from tensorbow.specs import TensorSpec, float64

MOST_BLOCKS = 1024  # each has a matrix of scratch; they take further matrices in turn

ELIMINATION = """
typedef $T T;
typedef long long I;

// The row with the largest element of a column, from `first` on; the first one of several. All threads of the
// block come here, and all get it.
__device__ I pivot_row(const double* work, I n, I width, I column, double* sizes, I* rows) {
    double size = -1;
    I row = column;
    for (I r = column + threadIdx.x; r < n; r += blockDim.x) {
        double here = fabs(work[r * width + column]);
        if (here > size) size = here, row = r;
    }
    __syncthreads();
    sizes[threadIdx.x] = size, rows[threadIdx.x] = row;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) {
            double other = sizes[threadIdx.x + half];
            I its_row = rows[threadIdx.x + half];
            if (other > sizes[threadIdx.x] || (other == sizes[threadIdx.x] && its_row < rows[threadIdx.x]))
                sizes[threadIdx.x] = other, rows[threadIdx.x] = its_row;
        }
    }
    __syncthreads();
    return rows[0];
}

__device__ void swap_rows(double* work, I width, I first, I one, I other) {
    for (I c = first + threadIdx.x; one != other && c < width; c += blockDim.x) {
        double kept = work[one * width + c];
        work[one * width + c] = work[other * width + c];
        work[other * width + c] = kept;
    }
    __syncthreads();
}

// Gauss and Jordan: [matrix | identity] becomes [identity | inverse]; columns that are done are not written.
extern "C" __global__ void inverse(const T* x, T* result, double* scratch, I matrices, I n, bool transposed) {
    __shared__ double sizes[$BLOCK];
    __shared__ I rows[$BLOCK];
    I width = 2 * n;
    double* work = scratch + blockIdx.x * n * width;
    for (I matrix = blockIdx.x; matrix < matrices; matrix += gridDim.x) {
        const T* source = x + matrix * n * n;
        for (I i = threadIdx.x; i < n * n; i += blockDim.x) {
            I r = i / n, c = i % n;
            work[r * width + c] = source[transposed ? c * n + r : i];
            work[r * width + n + c] = r == c;
        }
        __syncthreads();
        bool regular = true;
        for (I k = 0; k < n; ++k) {
            swap_rows(work, width, k, k, pivot_row(work, n, width, k, sizes, rows));
            double pivot = work[k * width + k];
            regular = regular && pivot != 0;
            for (I c = k + 1 + threadIdx.x; c < width; c += blockDim.x) work[k * width + c] /= pivot;
            __syncthreads();
            for (I i = threadIdx.x; i < n * (width - k - 1); i += blockDim.x) {
                I r = i / (width - k - 1), c = k + 1 + i % (width - k - 1);
                if (r != k) work[r * width + c] -= work[r * width + k] * work[k * width + c];
            }
            __syncthreads();
        }
        for (I i = threadIdx.x; i < n * n; i += blockDim.x)
            result[matrix * n * n + i] = regular ? (T)work[i / n * width + n + i % n] : (T)TB_NAN;
        __syncthreads();
    }
}

extern "C" __global__ void determinant(const T* x, T* result, double* scratch, I matrices, I n) {
    __shared__ double sizes[$BLOCK];
    __shared__ I rows[$BLOCK];
    double* work = scratch + blockIdx.x * n * n;
    for (I matrix = blockIdx.x; matrix < matrices; matrix += gridDim.x) {
        for (I i = threadIdx.x; i < n * n; i += blockDim.x) work[i] = x[matrix * n * n + i];
        __syncthreads();
        double product = 1;
        for (I k = 0; k < n && product != 0; ++k) {
            I row = pivot_row(work, n, n, k, sizes, rows);
            swap_rows(work, n, k, k, row);
            double pivot = work[k * n + k];
            product *= row == k ? pivot : -pivot;
            I left = n - k - 1;
            for (I i = threadIdx.x; i < left * left; i += blockDim.x) {
                I r = k + 1 + i / left, c = k + 1 + i % left;
                work[r * n + c] -= work[r * n + k] / pivot * work[k * n + c];
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) result[matrix] = (T)product;
        __syncthreads();
    }
}
"""


def _extents(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Number of matrices, number of blocks, extent of a matrix."""
    matrices = math.prod(shape[:-2])
    return matrices, min(matrices, MOST_BLOCKS), shape[-1]


def _inverse_scratch(node: NodeSpec) -> list[TensorSpec]:
    _, blocks, n = _extents(node.inputs[0].extents)
    return [TensorSpec((blocks, n, 2 * n), float64)]


def _determinant_scratch(node: NodeSpec) -> list[TensorSpec]:
    _, blocks, n = _extents(node.inputs[0].extents)
    return [TensorSpec((blocks, n, n), float64)]


def _launch(call: GpuCall, kernel: str, *more: np.generic) -> Enqueue:
    (x,), (result,), (scratch,) = call.inputs, call.outputs, call.scratch
    matrices, blocks, n = _extents(x.shape)
    source = CudaSource.of("linalg", ELIMINATION, T=c_type(x.dtype), BLOCK=str(BLOCK))
    sizes = np.int64(matrices), np.int64(n)
    return call.context.launch(source, kernel, blocks, BLOCK, x, result, scratch, *sizes, *more)


def _prepare_inverse(call: GpuCall) -> Enqueue:
    return _launch(call, "inverse", np.bool_(call.attrs["adjoint"]))


def _prepare_determinant(call: GpuCall) -> Enqueue:
    return _launch(call, "determinant")


gpu_kernel(MatrixInverse, _prepare_inverse, scratch=_inverse_scratch)
gpu_kernel(MatrixDeterminant, _prepare_determinant, scratch=_determinant_scratch)
