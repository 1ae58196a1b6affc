"""GPU kernels of row-wise sparse updates by Adadelta and RMSProp."""

from __future__ import annotations

from tensorbow.graph import OpDef
from tensorbow.kernels.gpu.ops.sparse_updates import prepare_row_update
from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.ops.sparse_adaptive_updates import (
    SparseApplyAdadelta,
    SparseApplyCenteredRMSProp,
    SparseApplyRMSProp,
)

ADADELTA = """
        accum = accum * rho + gradient * gradient * (1 - rho);
        T move = gradient / tb_sqrt(accum + epsilon) * tb_sqrt(accum_update + epsilon);
        accum_update = accum_update * rho + move * move * (1 - rho);
        var -= move * learning_rate;
"""
RMS_PROP = """
        rms += (gradient * gradient - rms) * (1 - rho);
        momentum_slot = momentum_slot * momentum + gradient * learning_rate / tb_sqrt(rms + epsilon);
        var -= momentum_slot;
"""
CENTERED_RMS_PROP = """
        mg += (gradient - mg) * (1 - rho);
        rms += (gradient * gradient - rms) * (1 - rho);
        T variance = rms - mg * mg + epsilon;
        momentum_slot = momentum_slot * momentum + gradient * learning_rate / tb_sqrt(variance);
        var -= momentum_slot;
"""


def _register(definition: OpDef, update: str) -> None:
    def prepare(call: GpuCall) -> Enqueue:
        return prepare_row_update(call, definition, update)

    gpu_kernel(definition, prepare)


_register(SparseApplyAdadelta, ADADELTA)
_register(SparseApplyRMSProp, RMS_PROP)
_register(SparseApplyCenteredRMSProp, CENTERED_RMS_PROP)
