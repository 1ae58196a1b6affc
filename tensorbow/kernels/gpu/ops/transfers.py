"""GPU kernels of lossy transfers: the upper 16 bits of float32."""

from __future__ import annotations

import numpy as np

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.ops.transfers import Narrow16, Widen16

NARROW = """
extern "C" __global__ void narrow(unsigned short* out, const unsigned int* bits, long long count) {
    TB_FOR_EACH(long long, i, count) out[i] = (unsigned short)(bits[i] >> 16);
}
"""
WIDEN = """
extern "C" __global__ void widen(unsigned int* out, const unsigned short* halves, long long count) {
    TB_FOR_EACH(long long, i, count) out[i] = (unsigned int)halves[i] << 16;
}
"""


def _prepare(call: GpuCall, text: str, name: str, count: int) -> Enqueue:
    (source,), (out,) = call.inputs, call.outputs
    program = CudaSource.of(name, text)
    return call.context.launch(program, name, call.context.blocks(count), BLOCK, out, source, np.int64(count))


gpu_kernel(Narrow16, lambda call: _prepare(call, NARROW, "narrow", call.inputs[0].size))
gpu_kernel(Widen16, lambda call: _prepare(call, WIDEN, "widen", call.outputs[0].size))
