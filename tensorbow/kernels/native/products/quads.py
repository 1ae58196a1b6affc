"""Multiply-adds of quads: four unsigned bytes times four signed ones, added to a sum of 32 bits.

A quad is one word of 32 bits: four integers that are neighbours along the sum, the first in the lowest byte.
AVX-512 VNNI multiplies and adds a vector of quads in one instruction. Other code widens them to 16 bits, in
which x86-64 multiplies and adds pairs, or to 32. Sums wrap around, in the same way everywhere.
"""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, constant, lanes_of
from tensorbow.kernels.native.products.x86_instructions import x86_instruction

BYTE, HALF, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)
PAIR_ADDS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}  # by words in a vector


def multiply_add_quads(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """c + the products of a's unsigned bytes with b's signed ones, in every lane of vectors of words."""
    if e.target.has_quads and lanes_of(c.type) == e.target.lanes(4):
        return x86_instruction(e, "avx512.vpdpbusd.512", c.type, c, a, b)
    if e.target.multiplies_pairs and lanes_of(c.type) == e.target.lanes(4):
        return _by_pairs(e, a, b, c)
    builder = e.builder
    for place in range(0, 32, 8):
        x = builder.and_(builder.lshr(a, constant(a.type, place)), constant(a.type, 0xFF))
        y = builder.ashr(builder.shl(b, constant(b.type, 24 - place)), constant(b.type, 24))
        c = builder.add(c, builder.mul(x, y))
    return c


def _by_pairs(e: Emitter, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Bytes of even and of odd places, widened to 16 bits and multiplied in pairs, which cannot overflow."""
    builder, count = e.builder, lanes_of(c.type)
    kind = ir.VectorType(HALF, 2 * count)
    x, y = builder.bitcast(a, kind), builder.bitcast(b, kind)
    byte = constant(kind, 8)
    for left, right in (
        (builder.and_(x, constant(kind, 0xFF)), builder.ashr(builder.shl(y, byte), byte)),
        (builder.lshr(x, byte), builder.ashr(y, byte)),
    ):
        c = builder.add(c, x86_instruction(e, PAIR_ADDS[count], c.type, left, right))
    return c
