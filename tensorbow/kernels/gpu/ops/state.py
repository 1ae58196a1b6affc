"""GPU kernels of the ops that write variables: one map each, skipped while the status is set."""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.state import Assign, AssignAdd, AssignSub

for _definition in (Assign, AssignAdd, AssignSub):
    gpu_kernel(_definition, partial(prepare_rule, _definition), pointwise=True)
