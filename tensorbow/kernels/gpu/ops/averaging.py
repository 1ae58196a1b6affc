"""GPU kernels of synchronous model averaging: one pass over flat vectors each."""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.ops.control import prepare_finite_check
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.averaging import (
    GradientCheck,
    GradientMean,
    SmaClear,
    SmaCorrect,
    SmaDifference,
    SmaMove,
    SmaSum,
)

for _definition in (GradientMean, SmaClear, SmaCorrect, SmaDifference, SmaSum):
    gpu_kernel(_definition, partial(prepare_rule, _definition))
gpu_kernel(SmaMove, partial(prepare_rule, SmaMove), inplace=((0, 0),))


def _check_gradient(call: GpuCall) -> Enqueue:
    return prepare_finite_check(call, call.inputs[0], call.state["status"])


gpu_kernel(GradientCheck, _check_gradient)
