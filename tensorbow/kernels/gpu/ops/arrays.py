"""GPU kernels of `ops/arrays.py`: transpose and concat. Reshape and similar ops are views."""

from __future__ import annotations

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.source.split_and_concat import join
from tensorbow.kernels.gpu.source.strided_copy import phantom, strided_copy
from tensorbow.ops.arrays import ConcatV2, Transpose


def _transpose(call: GpuCall) -> Enqueue:
    (x,), (out,) = call.inputs, call.outputs
    return strided_copy(call.context, "Transpose", out, x, phantom(x).transpose(call.attrs["perm"]))


def _concat(call: GpuCall) -> Enqueue:
    (out,) = call.outputs
    return join(call.context, out, call.inputs, call.attrs["axis"] % out.ndim)


gpu_kernel(Transpose, _transpose)
gpu_kernel(ConcatV2, _concat)
