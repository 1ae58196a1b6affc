"""Ops that control a graph: placeholders, identities, no-ops, groups, and per-step scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    REQUIRED,
    Attrs,
    Kernel,
    KernelCall,
    Operation,
    Tensor,
    control_dependencies,
    get_default_graph,
    graph_of,
)
from tensorbow.kinds import AsDType, Name, Number, Text, checked, refuse
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.definition import define_op, require_same_dtype
from tensorbow.specs import FLOATING, TensorShape, TensorSpec, bool_, compatible, float32

__all__ = [
    "group",
    "identity",
    "no_op",
    "placeholder",
    "placeholder_with_default",
    "step_scalar",
    "stop_gradient",
]

STEP_SCALARS = "step_scalars"  # the collection
# Keys of the STATE region that the library sets.
RESERVED_KEYS = ("status", "replica", "random_stream", "alpha", "mu", "share")


def _same(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, inputs[0].dtype, inputs[0].value)


def _least_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if any(x.shape not in (None, ()) for x in inputs):
        raise InvalidArgumentError(f"AtMost: expected two scalars, got {inputs[0]} and {inputs[1]}")
    return TensorSpec((), require_same_dtype("AtMost", inputs))


def _declared(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(attrs["shape"], attrs["dtype"])


Placeholder = define_op(
    "Placeholder",
    spec=_declared,
    gradient=NOT_DIFFERENTIABLE,
    attrs={"dtype": REQUIRED, "shape": None},
    strings=True,
)


def _declared_default(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (default,) = inputs
    if not compatible(attrs["shape"], default.shape):
        raise InvalidArgumentError(
            f"placeholder_with_default: expected a value of shape {TensorShape(attrs['shape'])}, "
            f"got {default}"
        )
    return TensorSpec(attrs["shape"], default.dtype)


PlaceholderWithDefault = define_op(
    "PlaceholderWithDefault",
    spec=_declared_default,
    gradient=lambda op, g: [g],
    inputs=("input",),
    attrs={"shape": None},
    alias=((0, 0),),
    strings=True,
)
Identity = define_op(
    "Identity", spec=_same, gradient=lambda op, g: [g], inputs=("input",), alias=((0, 0),), strings=True
)
StopGradient = define_op(
    "StopGradient", spec=_same, gradient=NOT_DIFFERENTIABLE, inputs=("input",), alias=((0, 0),), strings=True
)
CustomGradient = define_op(
    "CustomGradient",
    spec=lambda inputs, attrs: TensorSpec(inputs[0].shape, inputs[0].dtype),
    gradient=lambda op, g: [g, *[None] * (len(op.inputs) - 1)],
    inputs=("*inputs",),
    alias=((0, 0),),
    doc="The first input. Its gradient is that of a function's block; in an imported graph the computed one.",
)
Again = define_op(
    "Again",
    spec=_same,
    gradient=lambda op, g: [g],
    inputs=("input",),
    attrs={"use": REQUIRED},
    alias=((0, 0),),
    doc="The same value for ops that run again, which are not merged with those of another `use`.",
)
NoOp = define_op("NoOp", spec=lambda inputs, attrs: (), gradient=NOT_DIFFERENTIABLE, stateful=True)


def _step_scalar_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    key, default = attrs["key"], attrs["default"]
    if (
        not isinstance(key, str)
        or key in RESERVED_KEYS
        or ":" in key
        or not isinstance(default, (int, float))
    ):
        raise InvalidArgumentError(
            f"step scalar {key!r:.60}: the key is reserved, or the default is no number"
        )
    return TensorSpec((), attrs["dtype"])


StepScalar = define_op(
    "StepScalar",
    spec=_step_scalar_spec,
    gradient=NOT_DIFFERENTIABLE,
    attrs={"key": REQUIRED, "dtype": REQUIRED, "default": REQUIRED},
    stateful=True,
    doc="A scalar of the STATE region, set anew for each step by the code that launches it.",
)


def _copy(call: KernelCall) -> None:
    call.outputs[0][...] = call.inputs[0]


def _check_finite(call: KernelCall) -> None:
    if not np.isfinite(call.inputs[0], out=call.scratch[0]).all():
        call.state["status"][...] = 1


Copy = define_op(
    "Copy",
    spec=_same,
    gradient=lambda op, g: [g],
    inputs=("input",),
    kernel=Kernel(run=_copy),
    strings=True,
    doc="A copy with its own storage, added by the compiler.",
)
AtMost = define_op(
    "AtMost",
    spec=_least_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("needed", "most"),
    kernel=Kernel(run=lambda call: np.minimum(call.inputs[0], call.inputs[1], out=call.outputs[0])),
    uniform_dtype=True,
    why_cpu="the compiler has it computed as Minimum, or takes `most`",
    doc="Iterations that a loop needs, at most `most`; a device that cannot end it early takes `most`.",
)
CheckFinite = define_op(
    "CheckFinite",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input",),
    kernel=Kernel(run=_check_finite, scratch=lambda node: [TensorSpec(node.inputs[0].shape, bool_)]),
    state=("status",),
    sets_status=True,
    stateful=True,
    doc="Sets the sticky status when a value is NaN or infinite; updates are skipped while it is set.",
)


@checked
def placeholder(dtype: AsDType = float32, shape: StaticShape = None, name: Name = "Placeholder") -> Tensor:
    """A tensor that must be fed. A dimension None, or shape None, accepts any extent.

    The dtype is float32 by default, as in the listing of TensorFlow's white paper (figure 1).
    """
    return Placeholder.tensor(dtype=dtype, shape=shape, name=name)


@checked
def placeholder_with_default(input: Any, shape: StaticShape, name: Name = None) -> Tensor:
    """A tensor that may be fed with values of `shape`, and is `input` otherwise.

    Raises InvalidArgumentError if the shape of `input` is not compatible.
    """
    return PlaceholderWithDefault.tensor(input, shape=shape, name=name)


@checked
def identity(input: Any, name: Name = "Identity") -> Tensor:
    """The same value under another name; copies nothing."""
    return Identity.tensor(input, name=name)


@checked
def stop_gradient(input: Any, name: Name = "StopGradient") -> Tensor:
    """The same value; gradients do not flow through."""
    return StopGradient.tensor(input, name=name)


@checked
def no_op(name: Name = "NoOp") -> Operation:
    """An operation that does nothing, to attach control dependencies to."""
    result: Operation = NoOp(name=name)
    return result


@checked
def group(*inputs: Any, name: Name = "group_deps") -> Operation:
    """One operation that runs all `inputs` (operations, tensors, variables, or lists of them)."""
    flat = [y for x in inputs for y in (x if isinstance(x, (list, tuple)) else [x])]
    items = [x._as_graph_element() if hasattr(x, "_as_graph_element") else x for x in flat]
    for given, item in zip(flat, items, strict=True):
        if not isinstance(item, (Operation, Tensor)):
            raise refuse("group", "inputs", "operations, tensors, variables or lists of them", given)
    with graph_of(items).as_default(), control_dependencies(items):
        return no_op(name=name)


@checked
def step_scalar(key: Text, dtype: AsDType, default: Number, name: Name = None) -> Tensor:
    """A scalar in the STATE region, set anew for each step by the code that launches it.

    A plain `Session.run` uses `default`; the scheduler sets `learning_rate` by its schedule.
    Step scalars of one graph with the same key are one tensor.

    Raises InvalidArgumentError if the key exists with another dtype or default, if it is reserved,
    or if dtype is not floating.
    """
    if dtype not in FLOATING:
        raise InvalidArgumentError(f"step_scalar {key}: dtype must be floating, got {dtype.name}")
    if key in RESERVED_KEYS or ":" in key:
        raise InvalidArgumentError(
            f"step_scalar {key}: choose another key, without ':', that is not {', '.join(RESERVED_KEYS)}"
        )
    existing = find_step_scalar(key)
    if existing is not None:
        if existing.dtype != dtype or existing.op.attrs["default"] != default:
            raise InvalidArgumentError(
                f"step_scalar {key} exists as {existing.dtype.name} with default "
                f"{existing.op.attrs['default']:g}, got {dtype.name} and {default:g}; choose another key"
            )
        return existing
    with control_dependencies(None):
        result: Tensor = StepScalar(key=key, dtype=dtype, default=default, name=name or key)
    get_default_graph().add_to_collection(STEP_SCALARS, result)
    return result


def find_step_scalar(key: str) -> Tensor | None:
    """The step scalar of that key in the default graph, or None."""
    scalars: list[Tensor] = get_default_graph().get_collection(STEP_SCALARS)
    return next((tensor for tensor in scalars if tensor.op.attrs["key"] == key), None)
