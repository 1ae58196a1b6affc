"""Tensors filled from a few scalars: range, fill, and the rank of a tensor."""

from __future__ import annotations

from tensorbow.kernels.gpu.ops.broadcasting import prepare_broadcast, prepare_numbers
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.filling import Fill, Range, Rank

RANGE = (
    BLOCKS
    + """
extern "C" __global__ void range(const $T* start, const $T* delta, $T* result, $I size) {
    TB_FOR_EACH($I, i, size) result[i] = tb_add(tb_multiply(($T)i, *delta), *start);
}
"""
)


def _prepare_range(call: GpuCall) -> Enqueue:
    (start, _, delta), (result,) = call.inputs, call.outputs
    index = index_for(result.size)
    source = CudaSource.of("Range", RANGE, T=c_type(result.dtype), I=index.name)
    blocks = call.context.blocks(result.size)
    return call.context.launch(source, "range", blocks, BLOCK, start, delta, result, index.make(result.size))


gpu_kernel(Range, _prepare_range)
gpu_kernel(Fill, lambda call: prepare_broadcast(call.context, call.inputs[1], call.outputs[0]))
gpu_kernel(Rank, lambda call: prepare_numbers(call.context, [call.inputs[0].ndim], call.outputs[0]))
