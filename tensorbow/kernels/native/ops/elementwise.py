"""Native code of the ops in the table of scalar expressions: element-wise ops, updates, averaging.

Integer division and powers are left to the reference kernels, which raise for 0 and for negative
powers.
"""

from __future__ import annotations

from tensorbow.kernels.native.ops.maps import lower_rule
from tensorbow.kernels.scalars import RULES, inplace_of

for _definition in RULES:
    lower_rule(_definition, inplace=inplace_of(_definition), pointwise=_definition.kernels["cpu"].pointwise)
