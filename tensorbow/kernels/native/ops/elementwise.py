"""Native code of the ops in the table of scalar expressions: element-wise ops, updates, averaging.

Integers' division and powers stay with the reference kernels, which raise an error for 0 and for a negative
power.
"""

from __future__ import annotations

from tensorbow.kernels.native.ops.maps import lower_rule
from tensorbow.kernels.scalars.update_rules import UPDATE_RULES
from tensorbow.ops.activations import LeakyRelu, LeakyReluGrad
from tensorbow.ops.averaging import GradientMean, SmaClear, SmaCorrect, SmaDifference, SmaMove, SmaSum
from tensorbow.ops.control import Copy
from tensorbow.ops.definition import OPS
from tensorbow.ops.elementwise_table import ELEMENTWISE
from tensorbow.ops.nn import BiasAdd
from tensorbow.ops.selection import Cast, Select
from tensorbow.ops.state import Assign, AssignAdd, AssignSub

for _name, _row in ELEMENTWISE.items():
    _places = tuple((0, place) for place in range(len(_row.inputs))) if _row.result is None else ()
    lower_rule(OPS[_name], inplace=_places)
lower_rule(BiasAdd, inplace=((0, 0),))
lower_rule(LeakyRelu, inplace=((0, 0),))
lower_rule(LeakyReluGrad, inplace=((0, 0), (0, 1)))
lower_rule(Cast, inplace=((0, 0),))
lower_rule(Select, inplace=((0, 1), (0, 2)))
lower_rule(Copy)
for _definition in (Assign, AssignAdd, AssignSub, *UPDATE_RULES):
    lower_rule(_definition, pointwise=True)
for _definition in (GradientMean, SmaClear, SmaCorrect, SmaDifference, SmaSum):
    lower_rule(_definition)
lower_rule(SmaMove, inplace=((0, 0),))
