"""GPU kernels of the greatest, the least and the product of rows by segment.

A thread makes one element of the result and reads the ids of all rows, so rows are taken in their order.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.ops.segments import SegmentMax, SegmentMin, SegmentProd, identity_of

SOURCE = """
extern "C" __global__ void segments(
    $T* out, const $T* data, const long long* ids, $T first,
    long long rows, long long inner, long long count) {
    TB_FOR_EACH(long long, i, count) {
        long long segment = i / inner, column = i - segment * inner;
        $T result = first;
        for (long long row = 0; row < rows; ++row)
            if (ids[row] == segment) {
                $T x = data[row * inner + column];
                result = $combined;
            }
        out[i] = result;
    }
}
"""
COMBINED = {
    SegmentMax: "x > result || x != x ? x : result",
    SegmentMin: "x < result || x != x ? x : result",
    SegmentProd: "($T)(result * x)",
}


def _register(definition: OpDef, combined: str) -> None:
    def prepare(call: GpuCall) -> Enqueue:
        (data, ids, _), (out,) = call.inputs, call.outputs
        kind = c_type(out.dtype)
        source = CudaSource.of(definition.name, SOURCE.replace("$combined", combined), T=kind)
        first = out.dtype.type(identity_of(definition.name, out.dtype))
        sizes = (np.int64(n) for n in (ids.size, math.prod(out.shape[1:]), out.size))
        blocks = call.context.blocks(out.size)
        return call.context.launch(source, "segments", blocks, BLOCK, out, data, ids, first, *sizes)

    gpu_kernel(definition, prepare)


for _definition, _combined in COMBINED.items():
    _register(_definition, _combined)
