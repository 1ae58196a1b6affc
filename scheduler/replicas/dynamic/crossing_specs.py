"""Shapes of what the dynamic executor hands to a plan: they have to be known before a step runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tensorbow.control_flow.contexts import LoopContext
from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.graph import Operation, Tensor, is_free
from tensorbow.specs import TensorSpec, compatible


def crossing_specs(
    wanted: Sequence[Tensor],
    planned: Collection[Operation],
    known: Mapping[Tensor, TensorSpec],
    rows: Mapping[Tensor, tuple[int, ...]],
) -> dict[Tensor, TensorSpec]:
    """The spec of each wanted tensor, which `planned` ops read.

    known: see `inferred_specs`. rows: shapes by `HandedRows`. A gradient has the shape of the
    variable that it updates.
    Raises InvalidArgumentError for a shape that depends on data, and for strings.
    """
    variables = _shapes_of_gradients(planned)
    specs: dict[Tensor, TensorSpec] = {}
    for tensor in wanted:
        if tensor.dtype.is_string:
            raise InvalidArgumentError(
                f"{tensor.name}: replicas report and exchange numbers, got strings; fetch it by a "
                f"session, or leave it out (made at {tensor.op.source})"
            )
        spec = known.get(tensor, tensor.spec)
        if tensor in rows:
            spec = TensorSpec(rows[tensor], tensor.dtype)
        if not spec.is_static and tensor in variables:
            spec = TensorSpec(variables[tensor], tensor.dtype)
        if not spec.is_static and any(op.definition.row_update and tensor in op.inputs for op in planned):
            raise InvalidArgumentError(
                f"{tensor.op.type} {tensor.name}: how many rows of a variable it updates depends on data, "
                f"{spec}, but replicas update by arrays of one shape; look up the rows of all indices, and "
                f"leave out of the loss what should not count (made at {tensor.op.source})"
            )
        if not spec.is_static:
            raise InvalidArgumentError(
                f"{tensor.op.type} {tensor.name}: its shape depends on data, {spec}, but what replicas "
                "report, exchange and update by has one shape; reduce it, pad it, or give its shape "
                f"by set_shape (made at {tensor.op.source})"
            )
        specs[tensor] = TensorSpec(spec.shape, spec.dtype)
    return specs


def inferred_specs(ops: Sequence[Operation], fed: Mapping[Tensor, TensorSpec]) -> dict[Tensor, TensorSpec]:
    """The specs of what ops outside of loops make, as far as they follow from those of the inputs.

    fed: the specs of the inputs.
    """
    known: dict[Tensor, TensorSpec] = dict(fed)
    for op in ops:
        chain = op.context.chain() if op.context is not None else ()
        if is_free(op) or op.definition.flow or any(isinstance(each, LoopContext) for each in chain):
            continue
        try:
            found = op.definition.infer([known.get(tensor, tensor.spec) for tensor in op.inputs], op.attrs)
        except TensorBowError:  # the executor raises it, with what the op got
            continue
        for tensor, spec in zip(op.outputs, found, strict=True):
            known[tensor] = _joined(spec, tensor.spec)
    return known


def _joined(first: TensorSpec, second: TensorSpec) -> TensorSpec:
    """The spec that has the extents known from either of two specs of a tensor."""
    if first.shape is None or second.shape is None or not compatible(first.shape, second.shape):
        return second if first.shape is None else first
    dims = tuple(b if a is None else a for a, b in zip(first.shape, second.shape, strict=True))
    return TensorSpec(dims, first.dtype, first.value if first.value is not None else second.value)


def _shapes_of_gradients(ops: Collection[Operation]) -> dict[Tensor, tuple[int | None, ...] | None]:
    """By gradient that an op updates a variable by, the variable's shape."""
    found: dict[Tensor, tuple[int | None, ...] | None] = {}
    for op in ops:
        if op.definition.update is not None:
            variable, gradient = op.definition.update
            found[op.inputs[gradient]] = op.inputs[variable].spec.shape
    return found
