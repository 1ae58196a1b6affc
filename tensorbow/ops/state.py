"""Ops of variables: the reference to their storage, reads, and writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Kernel, KernelCall
from tensorbow.ops.definition import define_op
from tensorbow.specs import NUMBERS, NUMERIC, TensorSpec, compatible

COMBINE = ("sma", "mean", "sum", "first")  # combination of the replicas' values into the central model's
ROLES = ("weights", "slots", "statistics")


def _declared(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(attrs["shape"], attrs["dtype"])


def _variable(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    spec = _declared(inputs, attrs)
    for key, allowed in (("role", ROLES), ("combine", COMBINE)):
        if attrs[key] not in allowed:
            raise InvalidArgumentError(f"{key} must be {', '.join(allowed)}, got {attrs[key]!r:.60}")
    if not spec.is_static:
        raise InvalidArgumentError(f"a variable of {spec}: its shape must be fully known")
    if attrs["combine"] in ("sum", "mean") and spec.dtype not in NUMERIC:
        raise InvalidArgumentError(
            f"a variable of dtype {spec.dtype.name} has no {attrs['combine']} over replicas; use an integer "
            "dtype"
        )
    if attrs["combine"] == "mean" and not spec.dtype.is_floating:
        raise InvalidArgumentError(
            f"a variable of dtype {spec.dtype.name}: expected a floating dtype for the mean over replicas, "
            "which need not be whole; use tb.float32, or combine by sum or first"
        )
    return spec


def _reference(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def assigned_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    """The spec of a variable after an assignment. Raises InvalidArgumentError for a value that differs."""
    variable, value = inputs
    if variable.dtype != value.dtype or not compatible(variable.shape, value.shape):
        raise InvalidArgumentError(f"the variable is {variable}, the value is {value}; they must agree")
    return _reference(inputs, attrs)


def counted_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    """`assigned_spec` of a variable of numbers."""
    if inputs[0].dtype not in NUMBERS:
        raise InvalidArgumentError(f"a variable of dtype {inputs[0].dtype.name} cannot be added to")
    return assigned_spec(inputs, attrs)


def _assign(call: KernelCall) -> None:
    variable, value = call.inputs
    np.copyto(variable, value)


def _assign_add(call: KernelCall) -> None:
    variable, value = call.inputs
    np.add(variable, value, out=variable)


def _assign_sub(call: KernelCall) -> None:
    variable, value = call.inputs
    np.subtract(variable, value, out=variable)


VariableReference = define_op(
    "Variable",
    spec=_variable,
    gradient=NOT_DIFFERENTIABLE,
    attrs={
        "shape": REQUIRED,
        "dtype": REQUIRED,
        "role": "weights",  # the region it is in: weights, slots or statistics
        "decayed": False,  # weight decay applies to it
        "combine": "sma",
        "slot_of": "",  # slots: the variable it belongs to
        "slot_name": "",
        "container": "",  # the container of its storage, shared by name; "": the session's own
        "slot_value": 0.0,  # initial value of all elements, for slots that start anew
    },
    scoped=("slot_of",),
    stateful=True,
)
ReadVariable = define_op(
    "ReadVariable",
    spec=_reference,
    gradient=lambda op, g: [g],
    inputs=("variable",),
    alias=((0, 0),),
    doc="The variable's value at this point of the program; later writes do not change it.",
)
Assign = define_op(
    "Assign",
    spec=assigned_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    kernel=Kernel(run=_assign, pointwise=True),
    alias=((0, 0),),
    writes=(0,),
    ignores=(0,),
)
AssignAdd = define_op(
    "AssignAdd",
    spec=counted_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    kernel=Kernel(run=_assign_add, pointwise=True),
    alias=((0, 0),),
    writes=(0,),
)
AssignSub = define_op(
    "AssignSub",
    spec=counted_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    kernel=Kernel(run=_assign_sub, pointwise=True),
    alias=((0, 0),),
    writes=(0,),
)
