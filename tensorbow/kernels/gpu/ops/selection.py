"""GPU kernels of Cast and Select.

A float that its integer does not hold becomes what the hardware makes of it, there as on a host.
"""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.selection import Cast, Select

gpu_kernel(Cast, partial(prepare_rule, Cast), inplace=((0, 0),))
gpu_kernel(Select, partial(prepare_rule, Select), inplace=((0, 1), (0, 2)))
