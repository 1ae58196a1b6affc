"""Ops of control flow (TensorFlow white paper, section 4.4): what `tb.cond` and `tb.while_loop` are made of.

The executor plays their part itself. A tensor is dead where the branch that makes it is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, Dims, TensorSpec, bool_


def require_condition(op: str, tensor: Tensor) -> None:
    """Raises InvalidArgumentError for a condition that is no bool scalar."""
    _scalar_condition(op, tensor.spec)


def _scalar_condition(op: str, spec: TensorSpec) -> None:
    if spec.dtype != bool_ or (spec.shape is not None and spec.shape != ()):
        raise InvalidArgumentError(
            f"{op}: the condition is {spec}, expected a bool scalar; use a comparison, tb.reduce_all or "
            "tb.reduce_any"
        )


def _switched(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    _scalar_condition("Switch", inputs[1])
    return [TensorSpec(inputs[0].shape, inputs[0].dtype)] * 2


def common_shape(shapes: Sequence[Dims | None]) -> Dims | None:
    """The static shape that fits all of them: an extent is known where all agree."""
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return None
    return tuple(a if all(s is not None and s[i] == a for s in shapes) else None for i, a in enumerate(first))


def _merged(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    dtypes = {spec.dtype for spec in inputs}
    if len(dtypes) != 1:
        raise InvalidArgumentError(
            f"Merge: inputs have dtypes {', '.join(s.dtype.name for s in inputs)}, expected one; use tb.cast"
        )
    return [TensorSpec(common_shape([spec.shape for spec in inputs]), inputs[0].dtype)]


def _passed(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    return TensorSpec(inputs[0].shape, inputs[0].dtype)


def _entered(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    constant = attrs["is_constant"]
    return TensorSpec(inputs[0].shape if constant else attrs["shape"], inputs[0].dtype)


def _condition(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    _scalar_condition("while_loop: cond", inputs[0])
    return TensorSpec((), bool_)


# `gradients` differentiates conds and loops as wholes, so their ops have no gradient of their own.
Switch = define_op(
    "Switch",
    spec=_switched,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("data", "pred"),
    attrs={"enters": False},  # True: it brings a tensor from outside into a branch
    flow="switch",
    strings=True,
    doc="Passes data to output 1 if pred, else to output 0; the other one is dead.",
)
Merge = define_op(
    "Merge",
    spec=_merged,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*inputs",),
    flow="merge",
    strings=True,
    doc="The first input that is not dead.",
)
Enter = define_op(
    "Enter",
    spec=_entered,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("data",),
    attrs={"frame_name": REQUIRED, "is_constant": False, "parallel_iterations": 10, "shape": None},
    scoped=("frame_name",),
    flow="enter",
    strings=True,
    doc="Passes data to the first iteration of a frame, or if constant to all.",
)
Exit = define_op(
    "Exit",
    spec=_passed,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("data",),
    flow="exit",
    strings=True,
    doc="Passes data from a frame's iteration to the frame around it.",
)
NextIteration = define_op(
    "NextIteration",
    spec=_passed,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("data",),
    flow="next_iteration",
    strings=True,
    doc="Passes data to the frame's next iteration.",
)
LoopCond = define_op(
    "LoopCond",
    spec=_condition,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("pred",),
    flow="loop_condition",
    doc="The condition of a loop.",
)


def _index(call: HostCall, first: int) -> tuple[int, ...]:
    return tuple(map(int, call.inputs[first:]))


def _push(call: HostCall) -> None:
    kept = call.step.get(call.name, dict)
    kept[_index(call, 1)] = call.inputs[0]


def _pop(call: HostCall) -> Array:
    attrs = call.attrs
    kept = call.step.get(attrs["push"], dict)
    found: Array | None
    if not attrs["or_zeros"]:
        found = kept.pop(_index(call, 0))
    else:
        found = kept.pop(_index(call, 1), None)
    return np.zeros(call.inputs[0].shape, call.inputs[0].dtype) if found is None else found


StackPush = define_op(
    "StackPush",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("value", "*index"),
    host=_push,
    keeps=True,
    stateful=True,
    doc="Keeps a value of a loop's iteration, by the numbers of the iterations around it, for the gradient.",
)
StackPop = define_op(
    "StackPop",
    spec=lambda inputs, attrs: TensorSpec(attrs["shape"], attrs["dtype"]),
    gradient=NOT_DIFFERENTIABLE,  # `gradients` hands it on to the loop that has kept the value
    inputs=("*index",),
    attrs={"push": REQUIRED, "shape": None, "dtype": REQUIRED, "or_zeros": False},
    host=_pop,
    keeps=True,
    scoped=("push",),
    stateful=True,
    doc="Takes back a value that StackPush keeps; with `or_zeros`, where there is none, zeros like input 0.",
)


def _at_most_one(call: HostCall) -> list[Array]:
    true = [str(number) for number, each in enumerate(call.inputs) if each]
    if len(true) > 1:
        raise InvalidArgumentError(
            f"case: conditions {', '.join(true)} are true at once, expected one; leave out exclusive=True to "
            "take the first"
        )
    return [np.asarray(True)]


RequireAtMostOne = define_op(
    "RequireAtMostOne",
    spec=lambda inputs, attrs: TensorSpec((), bool_),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*conditions",),
    host=_at_most_one,
    doc="True; fails if more than one condition is true.",
)
