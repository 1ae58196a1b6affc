"""Variables in host memory: of strings, or of a shape that an assignment may change; in the dynamic mode.

A session has their values by the name of the operation; a task of a cluster shares them between sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, Graph, HostCall, Operation, Resources, Tensor
from tensorbow.ops.control import PlaceholderWithDefault
from tensorbow.ops.definition import define_op
from tensorbow.ops.state import (
    Assign,
    AssignAdd,
    AssignSub,
    ReadVariable,
    VariableReference,
    assigned_spec,
    counted_spec,
)
from tensorbow.specs import Array, TensorSpec, bool_, compatible, render_dims


class HostValue:
    """The value of a variable in host memory: an array that nobody writes, or None before the first one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.array: Array | None = None

    def close(self) -> None:
        """Forgets the value."""
        self.array = None

    def read(self, name: str) -> Array:
        """The value. Raises FailedPreconditionError if there is none."""
        array = self.array
        if array is None:
            raise FailedPreconditionError(
                f"variables without a value: {name}; run tb.global_variables_initializer() first, or restore "
                "a checkpoint"
            )
        return array


def host_value(resources: Resources, name: str) -> HostValue:
    """The value of a variable, by the name of its operation."""
    found: HostValue
    if resources.named is not None:
        found = resources.named.get("", name, HostValue, ("HostVariable",))
    else:
        found = resources.own(("variable", name), HostValue)
    return found


def _of(call: HostCall) -> HostValue:
    return host_value(call.resources, call.op.inputs[0].op.name)


def _read(call: HostCall) -> list[Array]:
    return [_of(call).read(call.op.inputs[0].op.name)]


def _has_value(call: HostCall) -> Array:
    return np.asarray(_of(call).array is not None)


def _assign(call: HostCall) -> list[Array]:
    spec, value = call.op.inputs[0].spec, call.inputs[1]
    if not compatible(spec.shape, value.shape):
        raise InvalidArgumentError(
            f"the variable is {spec}, the value is {render_dims(value.shape)}; they must agree, except for a "
            "variable with validate_shape=False"
        )
    kept, held = np.array(value), _of(call)
    with held.lock:  # an addition in another step is before it or after it
        held.array = kept
    return [kept]


def _combining(function: Callable[[Array, Array], Array]) -> Callable[[HostCall], list[Array]]:
    def host(call: HostCall) -> list[Array]:
        held, value = _of(call), call.inputs[1]
        with held.lock:
            old = held.read(call.op.inputs[0].op.name)
            if old.shape != value.shape:
                raise InvalidArgumentError(
                    f"the variable is {render_dims(old.shape)}, the value is {render_dims(value.shape)}; "
                    "they must agree"
                )
            held.array = np.asarray(function(old, value))
            return [held.array]

    return host


def _declared(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(attrs["shape"], attrs["dtype"])


def _reference(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _in_steps_only(call: HostCall) -> Any:
    raise InvalidArgumentError(f"variable {call.name}: its operation computes nothing; read the variable")


HostVariable = define_op(
    "HostVariable",
    spec=_declared,
    gradient=NOT_DIFFERENTIABLE,
    attrs={"shape": REQUIRED, "dtype": REQUIRED},
    host=_in_steps_only,
    stateful=True,
    strings=True,
    doc="A variable in host memory. shape: None if it is not known, or changes.",
)
ReadHostVariable = define_op(
    "ReadHostVariable",
    spec=_reference,
    gradient=lambda op, g: [g],
    inputs=("variable",),
    host=_read,
    stateful=True,
    strings=True,
    doc="The variable's value at this point of the program.",
)
AssignHostVariable = define_op(
    "AssignHostVariable",
    spec=assigned_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    host=_assign,
    writes=(0,),
    strings=True,
)
AssignAddHostVariable = define_op(
    "AssignAddHostVariable",
    spec=counted_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    host=_combining(np.add),
    writes=(0,),
)
AssignSubHostVariable = define_op(
    "AssignSubHostVariable",
    spec=counted_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("ref", "value"),
    host=_combining(np.subtract),
    writes=(0,),
)
HostVariableIsInitialized = define_op(
    "HostVariableIsInitialized",
    spec=lambda inputs, attrs: TensorSpec((), bool_),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("variable",),
    host=_has_value,
    stateful=True,
    strings=True,
    doc="True if the variable has a value.",
)
ON_HOST = {
    ReadVariable: ReadHostVariable,
    Assign: AssignHostVariable,
    AssignAdd: AssignAddHostVariable,
    AssignSub: AssignSubHostVariable,
}
"""Ops of variables on devices, and what does the same for one in host memory."""

VARIABLES = (VariableReference, HostVariable)


def host_assigns(graph: Graph, values: Mapping[str, Any]) -> tuple[list[Operation], dict[Tensor, Any]]:
    """The initialisers of those variables that are in host memory, and feeds by which they set these values.

    values: by the names of variables, others, too.
    """
    ops: list[Operation] = []
    feeds: dict[Tensor, Any] = {}
    for name, value in values.items():
        variable = graph.known_operation(name)
        if variable is None or variable.definition is not HostVariable:
            continue
        for op in variable.outputs[0].consumers():
            if op.definition is AssignHostVariable and op.inputs[1].op.definition is PlaceholderWithDefault:
                ops.append(op)
                feeds[op.inputs[1]] = value
                break
    return ops, feeds
