"""An op that tells whether a variable has a value in the session that runs it."""

from __future__ import annotations

import numpy as np

from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, HostCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, bool_


def _has_value(call: HostCall) -> Array:
    return np.asarray(call.resources.has_value(call.attrs["variable"], call.attrs["container"]))


IsVariableInitialized = define_op(
    "IsVariableInitialized",
    spec=lambda inputs, attrs: TensorSpec((), bool_),
    gradient=NOT_DIFFERENTIABLE,
    attrs={"variable": REQUIRED, "container": ""},
    host=_has_value,
    stateful=True,
    doc="True if the variable of that name has a value, on the device of the op.",
)
