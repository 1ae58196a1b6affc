"""Integer data used as indices: loaded as 64-bit indices, and refused if out of range."""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, Emitter, constant, index
from tensorbow.kernels.native.codegen.strips import Accumulator, Elements, scaled
from tensorbow.specs import uint8


def index_at(emitter: Emitter, array: Elements, at: ir.Value | int) -> ir.Value:
    """An element of an array of integers, as an index."""
    value = array.load(at)
    if array.kind == INT:
        return value
    return emitter.builder.zext(value, INT) if array.dtype == uint8 else emitter.builder.sext(value, INT)


def refuse_outside(
    emitter: Emitter, array: Elements, count: int, extent: int, stride: int = 1, least: int = 0
) -> None:
    """Refuses the call unless `count` elements of an array, `stride` apart, are in [least, extent)."""
    builder = emitter.builder
    wrong = Accumulator(emitter, constant(ir.IntType(1), 0))
    with emitter.loop(count) as at:
        number = index_at(emitter, array, scaled(emitter, at, stride))
        if least:
            number = builder.sub(number, index(least))
        outside = builder.icmp_unsigned(">=", number, index(extent - least))
        wrong.set(builder.or_(wrong.get(), outside))  # unsigned comparison: negative ones are huge
    emitter.refuse_if(wrong.get())
