"""GPU kernel of orthonormal columns: one block, classical Gram-Schmidt with every projection made twice.

Computed in float64, whatever the dtype. Twice is enough for columns as orthogonal as a QR's (Giraud, Langou
and Rozloznik, 2005). Linearly dependent columns give NaN or noise.
"""

from __future__ import annotations

import numpy as np

from tensorbow.graph import NodeSpec
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel, in_order
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS, WARP
from tensorbow.ops.orthogonal import Orthonormal
from tensorbow.specs import TensorSpec, float64

ORTHONORMAL = (
    BLOCKS
    + """
typedef $T T;
typedef long long I;

// `columns` has a line for each column; `parts`: a column's projections on the ones before.
extern "C" __global__ void orthonormal(
    const T* x, T* result, double* columns, double* parts, I rows, I count
) {
    __shared__ double shared[$WARPS];
    I lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (I j = 0; j < count; ++j) {
        double* own = columns + j * rows;
        for (I r = threadIdx.x; r < rows; r += blockDim.x) own[r] = x[r * count + j];
        for (int turn = 0; turn < 2; ++turn) {
            __syncthreads();
            for (I i = warp; i < j; i += $WARPS) {
                double part = 0;
                for (I r = lane; r < rows; r += 32) part += columns[i * rows + r] * own[r];
                part = tb_reduce_warp(TbAdd(), part);
                if (lane == 0) parts[i] = part;
            }
            __syncthreads();
            for (I r = threadIdx.x; r < rows; r += blockDim.x) {
                double left = own[r];
                for (I i = 0; i < j; ++i) left -= parts[i] * columns[i * rows + r];
                own[r] = left;
            }
        }
        double square = 0;
        for (I r = threadIdx.x; r < rows; r += blockDim.x) square += own[r] * own[r];
        double length = sqrt(tb_reduce_row(TbAdd(), square, shared));
        for (I r = threadIdx.x; r < rows; r += blockDim.x) {
            own[r] /= length;
            result[r * count + j] = (T)own[r];
        }
    }
}
"""
)


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    rows, count = node.inputs[0].extents
    return [TensorSpec((count, rows), float64), TensorSpec((count,), float64)]


def _prepare(call: GpuCall) -> Enqueue:
    (x,), (result,) = call.inputs, call.outputs
    if not x.size:
        return in_order()
    source = CudaSource.of("Orthonormal", ORTHONORMAL, T=c_type(x.dtype), WARPS=str(BLOCK // WARP))
    rows, count = map(np.int64, x.shape)
    return call.context.launch(source, "orthonormal", 1, BLOCK, x, result, *call.scratch, rows, count)


gpu_kernel(Orthonormal, _prepare, scratch=_scratch)
