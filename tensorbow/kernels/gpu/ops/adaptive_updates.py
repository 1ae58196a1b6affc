"""GPU kernels of Adagrad, Adadelta, RMSProp and Adam: one pass over variable, slots and gradient."""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.adaptive_updates import (
    ApplyAdadelta,
    ApplyAdagrad,
    ApplyAdam,
    ApplyCenteredRMSProp,
    ApplyRMSProp,
)

for _definition in (ApplyAdagrad, ApplyAdadelta, ApplyRMSProp, ApplyCenteredRMSProp, ApplyAdam):
    gpu_kernel(_definition, partial(prepare_rule, _definition), pointwise=True)
