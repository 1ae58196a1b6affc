"""Maps: one pass over memory that computes each element by scalar expressions.

All results have the same shape; inputs broadcast to it. Axes that no input distinguishes are collapsed; the
last axis is walked in vectors, its rest in one narrower vector, the other axes in loops. Values that
depend only on single numbers are computed once, before the loops. Each element is read before it is written,
by the same instructions, so a result may share the memory of any input of its shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from llvmlite import ir

from tensorbow.errors import InternalError
from tensorbow.graph import NodeSpec, OpDef
from tensorbow.kernels.averaged_updates import KEYS, AveragedUpdate
from tensorbow.kernels.native.codegen.emitter import INT, Bounds, Emitter, constant, index, type_of
from tensorbow.kernels.native.codegen.kernel import NativeKernel
from tensorbow.kernels.native.codegen.llvm_form import INTEGERS_RAISE, register_type, to_llvm
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.scalars import FusedMap, Scalar, inputs_of, results_of
from tensorbow.kernels.scalars.collapsing import Mask, collapse
from tensorbow.kernels.scalars.expression import CONSTANT, INPUT, in_order, structure
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import DType, bool_


def emit_map(
    emitter: Emitter,
    name: str,
    results: Sequence[Scalar],
    inputs: Sequence[Ref],
    targets: Sequence[Ref],
    bounds: Bounds | None = None,
) -> None:
    """Writes each result to its target.

    inputs: numbered as the expressions' symbols; they broadcast to the targets' shape. bounds: the part to
    write if targets are flat; it begins and ends at multiples of a vector's lanes, or
    ends with the targets.
    Raises InternalError for targets that do not fit the expressions.
    """
    shape = targets[0].shape
    for result, target in zip(results, targets, strict=True):
        if target.shape != shape or result.dtype != target.dtype:
            raise InternalError(
                f"map {name}: a {result.dtype.name} result for {target.dtype.name}{list(target.shape)}; "
                f"expected every target to be of shape {list(shape)} and of its result's dtype"
            )
    if math.prod(shape):
        used = inputs_of(results)
        extents, masks = collapse(shape, [inputs[number].shape for number in used])
        read = {number: (inputs[number], mask) for number, mask in zip(used, masks, strict=True)}
        if bounds is not None and len(extents) != 1:
            raise InternalError(f"map {name}: a part of {list(extents)}; only flat arrays have parts")
        _Map(emitter, results, read, targets, extents).emit(bounds)


class _Map:
    """The code of one map under construction."""

    def __init__(
        self,
        emitter: Emitter,
        results: Sequence[Scalar],
        inputs: dict[int, tuple[Ref, Mask]],
        targets: Sequence[Ref],
        extents: Sequence[int],
    ):
        self._emitter = emitter
        self._results = results
        self._targets = targets
        self._extents = extents
        self._strides = {number: _strides(mask, extents) for number, (_, mask) in inputs.items()}
        self._dtypes = {number: ref.dtype for number, (ref, _) in inputs.items()}
        self._pointers = {number: emitter.address(ref) for number, (ref, _) in inputs.items()}
        self._ends = [emitter.address(target) for target in targets]
        self._nodes = list(in_order(results))
        self._varying: set[Scalar] = set()
        for node in self._nodes:
            own = node.operator == INPUT and any(self._strides[int(node.argument)])
            if own or any(operand in self._varying for operand in node.operands):
                self._varying.add(node)
        sizes = [node.dtype.size for node in (*self._varying, *results)]
        self._lanes = emitter.target.lanes(max(sizes))

    def emit(self, bounds: Bounds | None = None) -> None:
        """Emits the loops."""
        single = self._once()
        with ExitStack() as stack:
            loops = self._extents[:-1]
            coordinates = [stack.enter_context(self._emitter.loop(extent)) for extent in loops]
            starts = {
                number: self._position(strides, coordinates) for number, strides in self._strides.items()
            }
            target = self._position(_strides((True,) * len(self._extents), self._extents), coordinates)
            rows = single | self._row(starts)
            if bounds is None:
                self._walk(rows, starts, target)
            else:
                self._walk_part(rows, starts, target, bounds)

    def _walk_part(
        self,
        rows: dict[Scalar, ir.Value],
        starts: dict[int, ir.Value],
        target: ir.Value,
        bounds: Bounds,
    ) -> None:
        """Walks a part of a row; the rest after the last full vector belongs to the last part."""
        builder, (first, end) = self._emitter.builder, bounds
        full = self._extents[-1] // self._lanes * self._lanes
        in_part = builder.icmp_signed("<", end, index(full))
        with self._emitter.loop(builder.select(in_part, end, index(full)), first, self._lanes) as position:
            self._piece(rows, starts, target, position, self._lanes)
        if full < self._extents[-1]:
            with builder.if_then(builder.icmp_signed(">", end, index(full))):
                self._piece(rows, starts, target, index(full), self._extents[-1] - full)

    def _walk(self, rows: dict[Scalar, ir.Value], starts: dict[int, ir.Value], target: ir.Value) -> None:
        """Walks one row: full vectors, then the rest in a narrower vector."""
        extent, lanes = self._extents[-1], self._lanes
        full = extent // lanes * lanes
        if full == lanes:
            self._piece(rows, starts, target, index(0), lanes)
        elif full:
            with self._emitter.loop(full, step=lanes) as position:
                self._piece(rows, starts, target, position, lanes)
        if full < extent:
            self._piece(rows, starts, target, index(full), extent - full)

    def _once(self) -> dict[Scalar, ir.Value]:
        """Values common to all elements, on which other values depend."""
        wanted = {operand for node in self._varying for operand in node.operands} | set(self._results)
        common = [n for n in self._nodes if n in wanted - self._varying and n.operator != CONSTANT]
        known = {
            node: self._load(self._pointers[int(node.argument)], node.dtype, 1)
            for node in self._nodes
            if node.operator == INPUT and node not in self._varying
        }
        return dict(zip(common, to_llvm(self._emitter, common, known, 1), strict=True))

    def _row(self, starts: dict[int, ir.Value]) -> dict[Scalar, ir.Value]:
        """Values of the inputs that are constant along a row."""
        return {
            node: self._load(self._at(number, starts[number]), node.dtype, 1)
            for node, number in self._inputs()
            if not self._strides[number][-1]
        }

    def _inputs(self) -> list[tuple[Scalar, int]]:
        return [(n, int(n.argument)) for n in self._nodes if n.operator == INPUT and n in self._varying]

    def _piece(
        self,
        rows: dict[Scalar, ir.Value],
        starts: dict[int, ir.Value],
        target: ir.Value,
        position: ir.Value,
        lanes: int,
    ) -> None:
        """Emits `lanes` elements of a row."""
        emitter = self._emitter
        known = dict(rows) if lanes == 1 else {n: emitter.splat(v, lanes) for n, v in rows.items()}
        for node, number in self._inputs():
            if self._strides[number][-1]:
                element = emitter.builder.add(starts[number], position, flags=["nsw"])
                known[node] = self._load(self._at(number, element), node.dtype, lanes)
        values = to_llvm(emitter, self._results, known, lanes)
        element = emitter.builder.add(target, position, flags=["nsw"])
        for value, end, ref in zip(values, self._ends, self._targets, strict=True):
            if ref.dtype == bool_:
                byte = type_of(bool_)
                value = emitter.builder.zext(value, byte if lanes == 1 else ir.VectorType(byte, lanes))
            emitter.store(value, emitter.offset(end, type_of(ref.dtype), element), ref.dtype.size)

    def _at(self, number: int, position: ir.Value) -> ir.Value:
        return self._emitter.offset(self._pointers[number], type_of(self._dtypes[number]), position)

    def _load(self, pointer: ir.Value, dtype: DType, lanes: int) -> ir.Value:
        kind = type_of(dtype) if lanes == 1 else ir.VectorType(type_of(dtype), lanes)
        value = self._emitter.load(pointer, kind, dtype.size)
        if dtype == bool_:
            return self._emitter.builder.icmp_unsigned("!=", value, constant(kind, 0))
        assert value.type == register_type(dtype, lanes)
        return value

    def _position(self, strides: Sequence[int], coordinates: Sequence[ir.Value]) -> ir.Value:
        """Position of a row's first element."""
        position: ir.Value = ir.Constant(INT, 0)
        for stride, coordinate in zip(strides, coordinates, strict=False):
            if stride:
                step = self._emitter.builder.mul(coordinate, index(stride), flags=["nsw"])
                position = self._emitter.builder.add(position, step, flags=["nsw"])
        return position


def _strides(mask: Mask, extents: Sequence[int]) -> tuple[int, ...]:
    """Strides of an input, in elements; 0 for an axis that the input does not have."""
    strides, stride = [0] * len(extents), 1
    for axis in range(len(extents) - 1, -1, -1):
        if mask[axis]:
            strides[axis] = stride
            stride *= extents[axis]
    return tuple(strides)


def emit_rule(emitter: Emitter, group: Group, bounds: Bounds | None = None) -> None:
    """Emits the code of an op by its row in the table of scalar expressions."""
    definition = group.definition
    scalars = dict(group.state)
    refs = (*group.inputs, *(scalars[key] for key in definition.state))
    count = len(group.inputs)
    dtypes = [ref.dtype for ref in refs]
    results = results_of(definition, group.attrs, dtypes[:count], dtypes[count:])
    aliased = {output for output, _ in definition.alias}
    targets = [ref for number, ref in enumerate(group.outputs) if number not in aliased]
    targets += [group.inputs[number] for number in definition.writes]
    emit_map(emitter, group.name, results, refs, targets, bounds)


def lower_rule(
    definition: OpDef, *, inplace: tuple[tuple[int, int], ...] = (), pointwise: bool = False
) -> None:
    """Registers the native map of an op that is in the table of scalar expressions."""

    def takes(node: NodeSpec, target: Target) -> bool:
        return not raises(definition, node)

    lower(definition, Lowering(emit_rule, takes=takes, inplace=inplace, pointwise=pointwise))


def raises(definition: OpDef, node: NodeSpec) -> bool:
    """True if an op may raise for its data: integer division by 0, negative integer powers."""
    inputs = [spec.dtype for spec in node.inputs]
    if not any(dtype.is_integer for dtype in inputs) or definition.state:
        return False
    results = results_of(definition, node.attrs, inputs, ())
    operations = [part for part in in_order(results) if part.operator in INTEGERS_RAISE]
    return any(part.dtype.is_integer for part in operations)


def fused_kernel(fused: FusedMap) -> NativeKernel:
    """The kernel of a unit of maps without an assignment."""

    def emit(emitter: Emitter, group: Group) -> None:
        emit_map(emitter, fused.name, [fused.result], group.inputs, group.outputs)

    return NativeKernel(emit=emit, form=("fused", structure([fused.result])))


def averaged_kernel(averaged: AveragedUpdate) -> NativeKernel:
    """The kernel of an update merged with the averaging around it."""

    def emit(emitter: Emitter, group: Group, bounds: Bounds | None = None) -> None:
        scalars = dict(group.state)
        refs = (*group.inputs, *(scalars[key] for key in KEYS))
        targets = (*group.outputs, *(group.inputs[number] for number in averaged.written))
        emit_map(emitter, averaged.name, averaged.results, refs, targets, bounds)

    form = ("averaged", structure(averaged.results), averaged.written)
    return NativeKernel(emit=emit, form=form, pointwise=True, emit_part=emit)
