"""Powers of integers, which wrap around like products. Not in the element-wise table: backends
that generate code from its rows have floating powers only.
"""

from __future__ import annotations

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Kernel
from tensorbow.ops.definition import define_op
from tensorbow.ops.elementwise_table import Elementwise
from tensorbow.specs import INTEGERS, Array


def _power(x: Array, y: Array, out: Array) -> None:
    if y.size and y.min() < 0:
        raise InvalidArgumentError(
            "IntegerPow: integers to negative integer powers are no integers; cast to float by tb.cast"
        )
    np.power(x, y, out=out)


_ROW = Elementwise("IntegerPow", ("x", "y"), _power, INTEGERS, None)

IntegerPow = define_op(
    _ROW.name,
    spec=_ROW.spec,
    gradient=NOT_DIFFERENTIABLE,
    kernel=Kernel(run=_ROW.run, inplace=((0, 0), (0, 1))),
    inputs=_ROW.inputs,
    uniform_dtype=True,
    doc="x to the power of y, which must not be negative.",
)
