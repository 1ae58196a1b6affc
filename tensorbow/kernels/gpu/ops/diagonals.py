"""GPU kernels of diagonals: read from matrices, or written into zero matrices."""

from __future__ import annotations

import numpy as np

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.ops.diagonals import MatrixDiag, MatrixDiagPart

PART = """
extern "C" __global__ void part(${T}* out, const ${T}* matrices, long long count, long long n) {
    TB_FOR_EACH(long long, i, count) out[i] = matrices[i * n + i % n];
}
"""
DIAG = """
extern "C" __global__ void diag(${T}* out, const ${T}* diagonal, long long count, long long n) {
    TB_FOR_EACH(long long, i, count) {
        long long row = i / n;  // of all matrices, one after another
        out[i] = i % n == row % n ? diagonal[row] : ${T}(0);
    }
}
"""


def _prepare(call: GpuCall, text: str, name: str) -> Enqueue:
    (source,), (out,) = call.inputs, call.outputs
    program = CudaSource.of(name, text, T=c_type(out.dtype))
    blocks, extent = call.context.blocks(out.size), np.int64(out.shape[-1])
    return call.context.launch(program, name, blocks, BLOCK, out, source, np.int64(out.size), extent)


gpu_kernel(MatrixDiagPart, lambda call: _prepare(call, PART, "part"))
gpu_kernel(MatrixDiag, lambda call: _prepare(call, DIAG, "diag"))
