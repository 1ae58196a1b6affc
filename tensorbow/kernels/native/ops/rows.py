"""Native code of the ops on a TensorArray's elements in compiled loops."""

from __future__ import annotations

import math

from llvmlite import ir

from tensorbow.kernels.native.codegen.affine_copy import copy, fill
from tensorbow.kernels.native.codegen.arithmetic import Arithmetic
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.index_checks import index_at
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import Accumulator, elements_of, scaled, strips, sums
from tensorbow.program.plan import Group, Ref
from tensorbow.program.rows import NewRows, RowAdd, RowRead, RowsWritten, RowWrite
from tensorbow.specs import bool_


def _row(emitter: Emitter, rows: Ref, at: Ref) -> tuple[ir.Value, ir.Value, int]:
    """Number of a row, the position of its first element, and how many it has; refuses what is no row."""
    (given,) = elements_of(emitter, at)
    number, b = index_at(emitter, given, 0), emitter.builder
    emitter.refuse_if(b.icmp_unsigned(">=", number, index(rows.shape[0])))
    inner = math.prod(rows.shape[1:])
    return number, scaled(emitter, number, inner), inner


def _is_written(emitter: Emitter, written: Ref, number: ir.Value) -> ir.Value:
    (flags,) = elements_of(emitter, written)
    flag = flags.load(number)
    return emitter.builder.icmp_unsigned("!=", flag, ir.Constant(flag.type, 0))


def _emit_new(emitter: Emitter, group: Group) -> None:
    (out,) = group.outputs
    fill(emitter, elements_of(emitter, out)[0], out.shape, 0)


def _emit_read(emitter: Emitter, group: Group) -> None:
    rows, at, *written = group.inputs
    number, first, inner = _row(emitter, rows, at)
    for flags in written:
        emitter.refuse_if(emitter.builder.not_(_is_written(emitter, flags, number)))
    target, source = elements_of(emitter, group.outputs[0], rows)
    copy(emitter, target, source, [(inner, (1, 1))], (0, first))


def _emit_write(emitter: Emitter, group: Group) -> None:
    rows, written, at, value = group.inputs
    number, first, inner = _row(emitter, rows, at)
    emitter.refuse_if(_is_written(emitter, written, number))
    target, source, flags = elements_of(emitter, rows, value, written)
    copy(emitter, target, source, [(inner, (1, 1))], (first, 0))
    flags.store(ir.Constant(flags.kind, 1), number)


def _emit_add(emitter: Emitter, group: Group) -> None:
    rows, at, value = group.inputs
    _, first, inner = _row(emitter, rows, at)
    target, source = elements_of(emitter, rows, value)
    arithmetic = Arithmetic(emitter, rows.dtype)

    def add(position: ir.Value, width: int) -> None:
        where = sums(emitter, first, position)
        target.store(arithmetic.add(target.load(where, width), source.load(position, width)), where)

    strips(emitter, inner, emitter.target.lanes(rows.dtype.size), add)


def _emit_check(emitter: Emitter, group: Group) -> None:
    written = group.inputs[1]
    missing = Accumulator(emitter, constant(ir.IntType(1), 0))
    with emitter.loop(math.prod(written.shape)) as at:
        there = _is_written(emitter, written, at)
        missing.set(emitter.builder.or_(missing.get(), emitter.builder.not_(there)))
    emitter.refuse_if(missing.get())


lower(NewRows, Lowering(_emit_new))
lower(RowRead, Lowering(_emit_read))
lower(RowWrite, Lowering(_emit_write))
lower(RowAdd, Lowering(_emit_add, takes=lambda node, target: node.outputs[0].dtype != bool_))
lower(RowsWritten, Lowering(_emit_check))
