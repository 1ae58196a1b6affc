"""Native code of gather and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from tensorbow.kernels.native.codegen.affine_copy import copy, fill
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.index_checks import index_at, refuse_outside
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import elements_of, nest, scaled, strips, sums
from tensorbow.ops.indexing import NO_ROW, GatherGrad, GatherV2
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import bool_


@contextmanager
def _rows(emitter: Emitter, group: Group, array: Ref) -> Iterator[tuple[ir.Value, ir.Value, int, ir.Value]]:
    """A loop over the indices, for all outer elements of an array; refuses indices out of range.

    Gives the position in the array of the row that an index selects, the row's position among the gathered
    rows, the elements of a row, and the index itself, which is -1 for an unused row.
    """
    indices = group.inputs[1]
    (given,) = elements_of(emitter, indices)
    axis, count = group.attrs["axis"] % len(array.shape), math.prod(indices.shape)
    outer, extent = math.prod(array.shape[:axis]), array.shape[axis]
    inner = math.prod(array.shape[axis + 1 :])
    refuse_outside(emitter, given, count, extent, least=NO_ROW if group.attrs["allow_unused"] else 0)
    if group.definition is GatherGrad:
        fill(emitter, elements_of(emitter, array)[0], array.shape, 0)
    loops = [(outer, (extent * inner, count * inner, 0)), (count, (0, inner, 1))]
    with nest(emitter, loops, [0, 0, 0]) as (first, gathered, number):
        row = index_at(emitter, given, number)
        yield sums(emitter, first, scaled(emitter, row, inner)), gathered, inner, row


def _emit(emitter: Emitter, group: Group) -> None:
    params, (out,) = group.inputs[0], group.outputs
    target, source = elements_of(emitter, out, params)
    with _rows(emitter, group, params) as (row, gathered, inner, number):
        if not group.attrs["allow_unused"]:
            copy(emitter, target, source, [(inner, (1, 1))], (gathered, row))
            return
        with emitter.builder.if_else(_is_used(emitter, number), likely=True) as (used, unused):
            with used:
                copy(emitter, target, source, [(inner, (1, 1))], (gathered, row))
            with unused, emitter.loop(inner) as at:
                target.store(constant(target.kind, 0), sums(emitter, gathered, at))


def _is_used(emitter: Emitter, number: ir.Value) -> ir.Value:
    return emitter.builder.icmp_signed(">=", number, index(0))


def _emit_grad(emitter: Emitter, group: Group) -> None:
    """Adds one row after the other: equal indices add up in a fixed order."""
    gradient, (out,) = group.inputs[0], group.outputs
    target, source = elements_of(emitter, out, gradient)
    arithmetic = Arithmetic(emitter, out.dtype)
    with _rows(emitter, group, out) as (row, gathered, inner, number):

        def add(at: ir.Value, width: int) -> None:
            position = sums(emitter, row, at)
            value = source.load(sums(emitter, gathered, at), width)
            target.store(arithmetic.add(target.load(position, width), value), position)

        lanes = emitter.target.lanes(out.dtype.size)
        if not group.attrs["allow_unused"]:
            strips(emitter, inner, lanes, add)
            return
        with emitter.builder.if_then(_is_used(emitter, number), likely=True):
            strips(emitter, inner, lanes, add)


lower(GatherV2, Lowering(_emit))
lower(GatherGrad, Lowering(_emit_grad, takes=lambda node, target: node.outputs[0].dtype != bool_))
