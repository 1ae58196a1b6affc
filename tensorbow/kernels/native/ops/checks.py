"""Native code of CheckNumerics and Assert: a call that fails is refused, and its reference kernel raises."""

from __future__ import annotations

import math

from llvmlite import ir

from tensorbow.kernels.native.codegen.affine_copy import copy
from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.kernels.native.codegen.strips import Accumulator, elements_of
from tensorbow.kernels.native.ops.finite_check import largest_magnitude_is_infinite
from tensorbow.ops.checks import AssertOp, CheckNumerics
from tensorbow.program.plan import Group


def _emit_check_numerics(emitter: Emitter, group: Group) -> None:
    (x,), (out,) = group.inputs, group.outputs
    size = math.prod(x.shape)
    if not size:
        return
    bounds = index(0), index(size)
    emitter.refuse_if(largest_magnitude_is_infinite(emitter, emitter.address(x), x.dtype, bounds))
    target, source = elements_of(emitter, out, x)
    copy(emitter, target, source, [(size, (1, 1))], (index(0), index(0)))


def _emit_assert(emitter: Emitter, group: Group) -> None:
    condition, b = group.inputs[0], emitter.builder
    (given,) = elements_of(emitter, condition)
    fails = Accumulator(emitter, constant(ir.IntType(1), 0))
    with emitter.loop(math.prod(condition.shape)) as at:
        value = given.load(at)
        fails.set(b.or_(fails.get(), b.icmp_unsigned("==", value, ir.Constant(value.type, 0))))
    emitter.refuse_if(fails.get())


lower(CheckNumerics, Lowering(_emit_check_numerics))
lower(AssertOp, Lowering(_emit_assert))
