"""Native code of CheckFinite and GradientCheck, by the largest magnitude as an integer.

The bits of a non-finite number without its sign are a greater integer than those of any finite number.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, Bounds, Emitter, constant, index, type_of
from tensorbow.kernels.native.codegen.lowering import Lowering, lower
from tensorbow.ops.averaging import GradientCheck
from tensorbow.ops.control import CheckFinite
from tensorbow.program.plan import Group
from tensorbow.specs import DType

VECTORS = 4  # side by side


def _emit(emitter: Emitter, group: Group) -> None:
    """Sets the status if a value is NaN or infinite; otherwise leaves it unchanged."""
    values = group.inputs[0]
    size, dtype = math.prod(values.shape), values.dtype
    if not size or not dtype.is_floating:
        return
    b, kind = emitter.builder, type_of(dtype)
    word = ir.IntType(8 * dtype.size)
    infinity = int(np.asarray(np.inf, dtype.as_numpy_dtype).view(f"u{dtype.size}"))
    lanes = VECTORS * emitter.target.lanes(dtype.size)
    pointer, full = emitter.address(values), size // lanes * lanes
    found = []
    for width, start, stop in ((lanes, 0, full), (size - full, full, size)):
        if start < stop:
            vector = ir.VectorType(word, width)
            with b.goto_entry_block():
                slot = b.alloca(vector)
            emitter.store(constant(vector, 0), slot, dtype.size)
            with emitter.loop(stop, start=start, step=width) as position:
                bits = emitter.load(emitter.offset(pointer, kind, position), vector, dtype.size)
                magnitude = b.and_(bits, constant(vector, (1 << (8 * dtype.size - 1)) - 1))
                largest = emitter.load(slot, vector, dtype.size)
                emitter.store(emitter.intrinsic("umax", vector, largest, magnitude), slot, dtype.size)
            found.append(emitter.reduced("umax", emitter.load(slot, vector, dtype.size)))
    worst = found[0] if len(found) == 1 else emitter.intrinsic("umax", word, *found)
    with b.if_then(b.icmp_unsigned(">=", worst, constant(word, infinity))):
        status = dict(group.state)["status"]
        emitter.store(index(1), emitter.address(status), INT.width // 8)


def largest_magnitude_is_infinite(
    emitter: Emitter, pointer: ir.Value, dtype: DType, bounds: Bounds
) -> ir.Value:
    """True if one of the elements from the first bound to before the second is NaN or infinite."""
    b, kind, word = emitter.builder, type_of(dtype), ir.IntType(8 * dtype.size)
    infinity = int(np.asarray(np.inf, dtype.as_numpy_dtype).view(f"u{dtype.size}"))
    lanes = VECTORS * emitter.target.lanes(dtype.size)
    first, end = bounds
    whole = b.add(first, b.mul(b.udiv(b.sub(end, first), index(lanes)), index(lanes)))
    found = []
    for width, start, stop in ((lanes, first, whole), (1, whole, end)):
        part = word if width == 1 else ir.VectorType(word, width)
        with b.goto_entry_block():
            slot = b.alloca(part)
        emitter.store(constant(part, 0), slot, dtype.size)
        with emitter.loop(stop, start, step=width) as position:
            bits = emitter.load(emitter.offset(pointer, kind, position), part, dtype.size)
            magnitude = b.and_(bits, constant(part, (1 << (8 * dtype.size - 1)) - 1))
            largest = emitter.load(slot, part, dtype.size)
            emitter.store(emitter.intrinsic("umax", part, largest, magnitude), slot, dtype.size)
        last = emitter.load(slot, part, dtype.size)
        found.append(last if width == 1 else emitter.reduced("umax", last))
    return b.icmp_unsigned(">=", emitter.intrinsic("umax", word, *found), constant(word, infinity))


for _definition in (CheckFinite, GradientCheck):
    lower(_definition, Lowering(_emit))
