"""GPU kernels of the table of element-wise ops, and of integers' powers: one map each.

An integer divided by 0, or to a negative power, gives 0, as no kernel can raise an error.
"""

from __future__ import annotations

from functools import partial

from tensorbow.kernels.gpu.runtime.call import gpu_kernel
from tensorbow.kernels.gpu.source.maps import prepare_rule
from tensorbow.ops.definition import OPS
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.integer_power import IntegerPow

for _name, _row in ELEMENTWISE.items():
    _places = tuple((0, place) for place in range(len(_row.inputs))) if _row.result is None else ()
    gpu_kernel(OPS[_name], partial(prepare_rule, OPS[_name]), inplace=_places)
gpu_kernel(IntegerPow, partial(prepare_rule, IntegerPow), inplace=((0, 0), (0, 1)))
