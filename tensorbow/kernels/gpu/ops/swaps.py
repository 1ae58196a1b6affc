"""GPU kernels of swaps: copies on copy streams, and waits of the compute stream for them."""

from __future__ import annotations

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.host_copies import BACK, OUT, HostCopies
from tensorbow.program.swaps import AwaitSwapIn, AwaitSwapOut, SwapIn, SwapOut


def _swap_out(call: GpuCall) -> Enqueue:
    return call.context.library(HostCopies).copy(OUT, call.inputs[0], call.outputs[0])


def _swap_in(call: GpuCall) -> Enqueue:
    return call.context.library(HostCopies).copy(BACK, call.outputs[0], call.inputs[0])


gpu_kernel(SwapOut, _swap_out)
gpu_kernel(AwaitSwapOut, lambda call: call.context.library(HostCopies).wait(OUT, call.inputs[1]))
gpu_kernel(SwapIn, _swap_in)
gpu_kernel(AwaitSwapIn, lambda call: call.context.library(HostCopies).wait(BACK, call.inputs[1]))
