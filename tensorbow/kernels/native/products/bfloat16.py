"""Operands of products in bfloat16: rounding, packing in pairs, and multiply-adds of pairs.

A pair is one word of 32 bits: two bfloat16 that are neighbours along the sum, the first in the low half.
AVX-512 BF16 multiplies and adds a vector of pairs in one instruction. Code for other processors rounds the
operands in the same way, and unpacks the halves for two float32 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, constant, lanes_of
from tensorbow.kernels.native.products.x86_instructions import x86_instruction

HALF, PAIR = ir.IntType(16), ir.IntType(32)
UPPER = 0xFFFF0000  # bits of a float32 that are its bfloat16
QUIET = 0x00400000  # bit that keeps a NaN one when its lower half goes


def multiply_add_pairs(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """c + a[0] * b[0] + a[1] * b[1] in every lane. a, b: pairs or vectors of them; c: float32."""
    builder, kind = e.builder, c.type
    if e.target.has_bfloat16 and lanes_of(kind) == e.target.lanes(4):
        return x86_instruction(e, "avx512bf16.dpbf16ps.512", kind, c, a, b)
    for first in (True, False):
        x, y = (
            builder.bitcast(
                builder.shl(v, constant(v.type, 16)) if first else builder.and_(v, constant(v.type, UPPER)),
                kind,
            )
            for v in (a, b)
        )
        c = e.intrinsic("fmuladd", kind, x, y, c)
    return c


def neighbours(e: Emitter, first: ir.Value, second: ir.Value) -> ir.Value:
    """A vector of pairs of neighbouring elements, of two vectors of float32 that follow each other."""
    return _halves(e, first, second, range(2 * first.type.count))


def across(e: Emitter, first: ir.Value, second: ir.Value) -> ir.Value:
    """A vector whose pairs consist of an element of each of two vectors of float32."""
    lanes = first.type.count
    return _halves(e, first, second, [lane + n for lane in range(lanes) for n in (0, lanes)])


def rounded(e: Emitter, value: ir.Value) -> ir.Value:
    """float32 rounded to bfloat16, still as float32; a scalar or a vector."""
    bits = _rounded_bits(e, value)
    return e.builder.bitcast(e.builder.and_(bits, constant(bits.type, UPPER)), value.type)


def _halves(e: Emitter, first: ir.Value, second: ir.Value, order: Sequence[int]) -> ir.Value:
    """Two vectors rounded to bfloat16, their halves in an order, as one vector of pairs."""
    b, lanes = e.builder, first.type.count
    if e.target.has_bfloat16:
        kind = ir.VectorType(HALF, 2 * lanes)
        low = high = x86_instruction(e, "avx512bf16.cvtne2ps2bf16.512", kind, second, first)
    else:
        shift, kind = constant(ir.VectorType(PAIR, lanes), 16), ir.VectorType(HALF, lanes)
        low, high = (b.trunc(b.lshr(_rounded_bits(e, v), shift), kind) for v in (first, second))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), 2 * lanes), list(order))
    return b.bitcast(b.shuffle_vector(low, high, mask), ir.VectorType(PAIR, lanes))


def _rounded_bits(e: Emitter, value: ir.Value) -> ir.Value:
    """Bits of float32 whose upper halves are rounded to nearest, ties to even; NaN stays NaN."""
    b = e.builder
    word = ir.VectorType(PAIR, value.type.count) if isinstance(value.type, ir.VectorType) else PAIR
    bits = b.bitcast(value, word)
    odd = b.and_(b.lshr(bits, constant(word, 16)), constant(word, 1))
    up = b.add(bits, b.add(odd, constant(word, 0x7FFF)))
    return b.select(b.fcmp_unordered("uno", value, value), b.or_(bits, constant(word, QUIET)), up)
