"""Fold: infer every shape from the feeds, and evaluate constant expressions at compile time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import Attrs, Kernel, NodeSpec, Operation, Tensor, blame
from tensorbow.ops.arrays import Reshape
from tensorbow.ops.broadcasting import BroadcastTo, SumTo
from tensorbow.ops.constant import Const
from tensorbow.ops.control import (
    Identity,
    NoOp,
    Placeholder,
    PlaceholderWithDefault,
    StepScalar,
    StopGradient,
)
from tensorbow.ops.definition import run_reference_kernel
from tensorbow.ops.selection import Cast
from tensorbow.ops.state import VariableReference
from tensorbow.program.nodes import Node, Program, Value, storage_of
from tensorbow.specs import Array, TensorSpec, as_dtype

LARGEST_EXTENTS = 1 << 60  # product of nonzero extents: byte counts then fit a signed 64-bit integer
LARGEST_FOLDED = 1 << 20  # bytes: larger results are cheaper to compute than to keep
MOST_FOLDED = 64 << 20  # bytes of all folded results, or of one op's scratch; beyond it only small ones fold
SMALL_FOLDED = 1 << 10  # bytes: always folded, since shapes may depend on it
DROPPED = (SumTo, BroadcastTo, Cast, Reshape, Identity, StopGradient)  # removed where they change nothing


def fold(
    ops: Sequence[Operation],
    fed: Mapping[Tensor, TensorSpec],
    fetched: Sequence[Tensor],
    targets: Collection[Operation] = (),
    devices: Mapping[Operation, str] | None = None,
    replicas: int = 1,
) -> Program:
    """Turns pruned operations into a program with fully known shapes.

    targets: operations that run even if nothing reads their results.
    devices: the device of each operation, for a step over several devices.
    replicas: how many take part in exchanges.

    Raises InvalidArgumentError for a placeholder that is not fed, or a shape that depends on data.
    """
    values: dict[Tensor, Value] = {
        tensor: Value(tensor.name, spec, feed=tensor.name)
        if spec.value is None
        else _constant(tensor.name, spec.value)
        for tensor, spec in fed.items()
    }
    nodes: list[Node] = []
    notes: list[str] = []
    ends: dict[Operation, tuple[Node, ...]] = {}
    folded = _Folded()
    for op in ops:
        made = len(nodes)
        if not op.outputs or any(t not in values for t in op.outputs) or _has_effect(op):
            # Otherwise it is fed, and occurs here as a target or a control input.
            _convert(op, values, nodes, notes, folded, replicas)
        if devices is not None:
            _set_order(op, nodes[made:], ends, devices[op])
    wanted = {op.name for op in targets}.union(c.name for op in ops for c in op.control_inputs)
    for node in nodes:
        node.is_target = node.name in wanted
    feeds = {tensor.name: values[tensor] for tensor, spec in fed.items() if spec.value is None}
    return Program(nodes, [values[t] for t in fetched], feeds, notes)


def _set_order(
    op: Operation, made: Sequence[Node], ends: dict[Operation, tuple[Node, ...]], device: str
) -> None:
    """Records device and control dependencies; an op without a node passes its dependencies on."""
    before = dict.fromkeys(node for other in op.control_inputs for node in ends.get(other, ()))
    if made:
        made[0].device, made[0].after = device, tuple(before)
        ends[op] = (made[0],)
    else:
        before.update(dict.fromkeys(node for t in op.inputs for node in ends.get(t.op, ())))
        ends[op] = tuple(before)


def _has_effect(op: Operation) -> bool:
    return bool(op.definition.stateful and op.definition.kernels)


class NeedsDynamicModeError(InvalidArgumentError):
    """Raised for a step that cannot be planned; the dynamic mode of a session may run it. why: in short."""

    def __init__(self, message: str, why: str = ""):
        super().__init__(message)
        self.why = why


@dataclass
class _Folded:
    """Count of the bytes of a program's folded results."""

    nbytes: int = 0

    def leaves_room(self, nbytes: int) -> bool:
        """True if results of this size may still be folded."""
        return nbytes <= SMALL_FOLDED or (nbytes <= LARGEST_FOLDED and self.nbytes + nbytes <= MOST_FOLDED)


def _convert(
    op: Operation,
    values: dict[Tensor, Value],
    nodes: list[Node],
    notes: list[str],
    folded: _Folded,
    replicas: int,
) -> None:
    definition = op.definition
    if definition is NoOp:
        return
    if definition.is_dynamic:
        raise NeedsDynamicModeError(
            f"{op.type} {op.name}: control flow and ops of the host run in the dynamic mode of tb.Session on "
            "one machine, not in steps of replicas, workers or clusters; unroll the loop in Python, use "
            f"tb.where for a condition, or fetch it by a session (made at {op.source})",
            f"{op.type} {op.name} is control flow or an op of the host (made at {op.source})",
        )
    if definition is Placeholder:
        raise InvalidArgumentError(
            f"placeholder {op.name} ({op.outputs[0].spec}) is needed but not fed; "
            f"add it to feed_dict (made at {op.source})"
        )
    if definition is Const:
        array: Array = op.attrs["value"]
        values[op.outputs[0]] = _constant(op.outputs[0].name, array)
        return
    if definition is VariableReference:
        values[op.outputs[0]] = Value(op.outputs[0].name, op.outputs[0].spec, variable=op)
        return
    if definition is PlaceholderWithDefault:
        values[op.outputs[0]] = values[op.inputs[0]]
        return
    if definition is StepScalar:
        values[op.outputs[0]] = Value(op.outputs[0].name, op.outputs[0].spec, scalar=op)
        return
    inputs = [values[t] for t in op.inputs]
    attrs = _attrs_for(op, replicas)
    specs = _infer(op, attrs, inputs)
    results = _try_fold(op, inputs, specs, folded)
    if results is not None:
        folded.nbytes += sum(result.nbytes for result in results)
        for tensor, result in zip(op.outputs, results, strict=True):
            values.setdefault(tensor, _constant(tensor.name, result))
        notes.append(f"{op.name}: folded to a constant")
        return
    if _changes_nothing(op, inputs, specs):
        values.setdefault(op.outputs[0], inputs[0])
        notes.append(f"{op.name}: dropped, its result equals {inputs[0].name}")
        return
    node = Node(op.name, definition, attrs, inputs, op.id, op.source)
    node.outputs = [
        Value(tensor.name, spec, node, index)
        for index, (tensor, spec) in enumerate(zip(op.outputs, specs, strict=True))
    ]
    for tensor, value in zip(op.outputs, node.outputs, strict=True):
        values.setdefault(tensor, value)  # a fed output keeps the fed value
    nodes.append(node)


def _constant(name: str, array: Array) -> Value:
    return Value(name, TensorSpec(array.shape, as_dtype(array.dtype), array), constant=array)


def _attrs_for(op: Operation, replicas: int) -> Attrs:
    """The attributes of an op in a step of so many replicas."""
    if not op.definition.exchange:
        return op.attrs
    if op.attrs.get("source", 0) >= replicas:
        raise InvalidArgumentError(
            f"{op.type} {op.name}: source {op.attrs['source']} is no replica: there are {replicas}, counted "
            f"from 0 (made at {op.source})"
        )
    return {**op.attrs, "replicas": replicas} if "replicas" in op.attrs else op.attrs


def _infer(op: Operation, attrs: Attrs, inputs: Sequence[Value]) -> tuple[TensorSpec, ...]:
    for index in op.definition.shape_inputs:
        if inputs[index].constant is None:
            raise NeedsDynamicModeError(
                f"{op.type} {op.name}: the shape argument {op.inputs[index].name} depends on data; planned "
                f"steps need it to be constant once the feeds' shapes are known (made at {op.source})",
                f"the shape argument {op.inputs[index].name} of {op.type} {op.name} depends on data",
            )
    try:
        specs = op.definition.infer([value.spec for value in inputs], attrs)
    except TensorBowError as error:
        raise type(error)(blame(op.type, op.name, error, op.source)) from None
    for tensor, spec in zip(op.outputs, specs, strict=True):
        if not spec.is_static:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: the shape of {tensor.name} is {spec} even with all feeds known; "
                f"shapes that depend on data are not supported (made at {op.source})"
            )
        if math.prod(extent or 1 for extent in spec.extents) > LARGEST_EXTENTS:  # even if another extent is 0
            raise InvalidArgumentError(
                f"{op.type} {op.name}: {tensor.name} would be {spec}, whose elements cannot be numbered by "
                f"64 bits; use smaller extents (made at {op.source})"
            )
    _check_writes(op, inputs)
    return specs


def _check_writes(op: Operation, inputs: Sequence[Value]) -> None:
    """Raises InvalidArgumentError if an op writes one variable through two of its inputs."""
    written = [storage_of(inputs[index]).variable for index in op.definition.writes]
    for number, variable in enumerate(written):
        if variable is not None and variable in written[:number]:
            raise InvalidArgumentError(
                f"{op.type} {op.name}: writes the variable {variable.name} twice; expected a variable of its "
                f"own for each of the inputs {list(op.definition.writes)} (made at {op.source})"
            )


def _try_fold(
    op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec], folded: _Folded
) -> tuple[Array, ...] | None:
    definition = op.definition
    if definition.stateful or definition.random or definition.exchange or not specs:
        return None
    if all(spec.value is not None for spec in specs):  # the spec rule alone gives the values
        return tuple(spec.value for spec in specs if spec.value is not None)
    arrays = [value.constant for value in inputs]
    if any(array is None for array in arrays) or not folded.leaves_room(sum(s.nbytes for s in specs)):
        return None
    kernel = definition.kernels.get("cpu")
    if kernel is None and not definition.is_view:
        return None
    with np.errstate(all="ignore"):
        try:
            if kernel is not None and _scratch_nbytes(kernel, op, inputs, specs) > MOST_FOLDED:
                return None
            return run_reference_kernel(definition, arrays, op.attrs)
        except TensorBowError as error:
            raise type(error)(blame(op.type, op.name, error, op.source)) from None
        except Exception as error:  # a user's kernel may raise anything
            raise InvalidArgumentError(blame(op.type, op.name, error, op.source)) from error


def _scratch_nbytes(
    kernel: Kernel, op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]
) -> int:
    node = NodeSpec(op.attrs, tuple(value.spec for value in inputs), tuple(specs))
    return sum(scratch.nbytes for scratch in kernel.scratch_specs(node))


def _changes_nothing(op: Operation, inputs: Sequence[Value], specs: Sequence[TensorSpec]) -> bool:
    """True if the result equals the first input: a reduction or broadcast to the same shape, a cast to the
    same dtype, a view with the same shape. Reads of variables are kept: when they happen matters.
    """
    if op.definition not in DROPPED:
        return False
    source = inputs[0]
    return source.variable is None and source.spec == specs[0]
