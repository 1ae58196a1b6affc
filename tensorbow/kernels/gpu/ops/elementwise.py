"""GPU kernels of the ops in the table of scalar expressions, one map each.

A map that writes variables is skipped while the status is set. Integer division by 0, and negative integer
powers, give 0, as kernels cannot raise. A float out of the range of the integer it is cast to gives a
hardware-dependent value, as on the host.
"""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.kernels.scalars import RULES, inplace_of

for _definition in RULES:
    _prepare, _pointwise = partial(prepare_rule, _definition), _definition.kernels["cpu"].pointwise
    gpu_kernel(_definition, _prepare, inplace=inplace_of(_definition), pointwise=_pointwise)
