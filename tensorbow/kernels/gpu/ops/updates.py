"""GPU kernels of gradient descent and momentum: one pass over variable, slot and gradient."""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.updates import ApplyGradientDescent, ApplyMomentum

for _definition in (ApplyGradientDescent, ApplyMomentum):
    gpu_kernel(_definition, partial(prepare_rule, _definition), pointwise=True)
