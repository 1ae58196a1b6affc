"""GPU kernels of the ops in the table of scalar expressions: one map each.

A map that writes variables is skipped while the status is set. An integer divided by 0, or to a negative
power, gives 0, as no kernel can raise an error. A float that its integer does not hold becomes what the
hardware makes of it, there as on a host.
"""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.kernels.scalars import RULES, inplace_of

for _definition in RULES:
    _prepare, _pointwise = partial(prepare_rule, _definition), _definition.kernels["cpu"].pointwise
    gpu_kernel(_definition, _prepare, inplace=inplace_of(_definition), pointwise=_pointwise)
