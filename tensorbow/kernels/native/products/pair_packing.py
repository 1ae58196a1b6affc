"""Packing of float32 operands into pairs of bfloat16 (`bfloat16`). An odd element is paired with 0.

Positions and extents of packed arrays count pairs, of 4 bytes.
"""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.affine_copy import transposed
from tensorbow.kernels.native.codegen.emitter import Emitter, index
from tensorbow.kernels.native.products.bfloat16 import PAIR, across, neighbours
from tensorbow.kernels.native.products.microkernel import load_vector, store_vector
from tensorbow.kernels.native.products.packing import blocks
from tensorbow.specs import float32

FLOAT = ir.FloatType()
SIZE = 4  # bytes of a float32, and of a pair


def pairs_of(count: int) -> int:
    """Number of pairs that hold so many elements."""
    return -(-count // 2)


def element_at(e: Emitter, pointer: ir.Value, position: ir.Value | int, step: int = 1) -> ir.Value:
    """The pointer `position` * `step` float32, or pairs, further."""
    moved = position * step if isinstance(position, int) else e.builder.mul(position, index(step))
    return e.offset(pointer, FLOAT, moved)


def _two(e: Emitter, source: ir.Value, count: int) -> tuple[ir.Value, ir.Value]:
    """The first `count` elements at a pointer as two vectors, zeros after them."""
    kind = e.vector_type(float32)
    lanes, zero = kind.count, ir.Constant(kind, None)
    first = load_vector(e, source, kind, SIZE, min(count, lanes))
    if count <= lanes:
        return first, zero
    return first, load_vector(e, element_at(e, source, lanes), kind, SIZE, count - lanes)


def pack_row(e: Emitter, to: ir.Value, source: ir.Value, count: int) -> None:
    """Packs `count` contiguous elements, each with the next."""
    lanes = e.target.lanes(SIZE)
    whole, rest = divmod(count, 2 * lanes)
    if whole:
        with e.loop(whole) as i:
            pairs = neighbours(e, *_two(e, element_at(e, source, i, 2 * lanes), 2 * lanes))
            e.store(pairs, element_at(e, to, i, lanes), SIZE)
    if rest:
        pairs = neighbours(e, *_two(e, element_at(e, source, whole * 2 * lanes), rest))
        store_vector(e, pairs, element_at(e, to, whole * lanes), SIZE, pairs_of(rest))


def pack_rows(e: Emitter, to: ir.Value, source: ir.Value, rows: int, columns: int) -> None:
    """Packs a matrix [rows, columns] along its rows: [rows, pairs of columns]."""
    if columns % 2 == 0:
        pack_row(e, to, source, rows * columns)
        return
    with e.loop(rows) as i:
        pack_row(e, element_at(e, to, i, pairs_of(columns)), element_at(e, source, i, columns), columns)


def pack_both(e: Emitter, to: ir.Value, first: ir.Value | None, second: ir.Value | None, count: int) -> None:
    """Packs each of `count` elements of a row with that of another; None stands for zeros."""
    kind = e.vector_type(float32)
    lanes, zero = kind.count, ir.Constant(kind, None)

    for width, i in blocks(e, count, lanes):
        x, y = (
            zero if row is None else load_vector(e, element_at(e, row, i), kind, SIZE, width)
            for row in (first, second)
        )
        store_vector(e, across(e, x, y), element_at(e, to, i), SIZE, width)


def pack_columns(
    e: Emitter, to: ir.Value, source: ir.Value, rows: int, columns: int, step: int | None = None
) -> None:
    """Packs a matrix [rows, columns] along its columns: [pairs of rows, columns].

    step: distance of the source's rows, by default `columns`.
    """
    step = columns if step is None else step
    if rows >= 2:
        with e.loop(rows // 2) as i:
            first = element_at(e, source, i, 2 * step)
            pack_both(e, element_at(e, to, i, columns), first, element_at(e, first, step), columns)
    if rows % 2:
        last = element_at(e, source, rows - 1, step)
        pack_both(e, element_at(e, to, rows // 2, columns), last, None, columns)


def pack_transposed(
    e: Emitter, to: ir.Value, source: ir.Value, rows: int, columns: int, step: int | None = None
) -> None:
    """Packs a matrix [rows, columns] along its rows, transposed: [pairs of columns, rows].

    step: distance of the source's rows, by default `columns`.
    """
    lanes, step = e.target.lanes(SIZE), columns if step is None else step
    zero = ir.Constant(ir.VectorType(PAIR, lanes), None)
    for high, i in blocks(e, rows, lanes):
        for wide, j in blocks(e, columns, 2 * lanes):
            corner = element_at(e, element_at(e, source, i, step), j)
            block = [neighbours(e, *_two(e, element_at(e, corner, n, step), wide)) for n in range(high)]
            block = transposed(e, [*block, *[zero] * (lanes - high)])
            first = element_at(e, element_at(e, to, e.builder.lshr(j, index(1)), rows), i)
            for n, row in enumerate(block[: pairs_of(wide)]):
                store_vector(e, row, element_at(e, first, n, rows), SIZE, high)
