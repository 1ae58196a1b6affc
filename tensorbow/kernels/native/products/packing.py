"""Copies that contractions use instead of their operands: framed images, transposed matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.affine_copy import transposed
from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.products.microkernel import load_vector, store_vector
from tensorbow.specs import DType

LANE = ir.IntType(32)


def fill_zero(e: Emitter, to: ir.Value, count: int, dtype: DType) -> None:
    """Writes zeros into `count` elements."""
    kind, element = e.vector_type(dtype), type_of(dtype)
    whole, rest = divmod(count, kind.count)
    zero = ir.Constant(kind, None)
    if whole:
        with e.loop(whole * kind.count, step=kind.count) as i:
            e.store(zero, e.offset(to, element, i), dtype.size)
    if rest:
        store_vector(e, zero, e.offset(to, element, whole * kind.count), dtype.size, rest)


def copy_row(e: Emitter, to: ir.Value, source: ir.Value, count: int, dtype: DType) -> None:
    """Copies `count` contiguous elements; source and target do not overlap."""
    kind, element = e.vector_type(dtype), type_of(dtype)
    whole, rest = divmod(count, kind.count)
    if whole:
        with e.loop(whole * kind.count, step=kind.count) as i:
            e.store(
                e.load(e.offset(source, element, i), kind, dtype.size), e.offset(to, element, i), dtype.size
            )
    if rest:
        first = whole * kind.count
        value = load_vector(e, e.offset(source, element, first), kind, dtype.size, rest)
        store_vector(e, value, e.offset(to, element, first), dtype.size, rest)


def copy_rows(
    e: Emitter, to: ir.Value, source: ir.Value, rows: int, count: int, steps: tuple[int, int], dtype: DType
) -> None:
    """Copies `rows` rows of `count` elements; steps: strides of rows (to, source), in elements."""
    if steps == (count, count):
        copy_row(e, to, source, rows * count, dtype)
        return
    element = type_of(dtype)
    with e.loop(rows) as i:
        at = [e.builder.mul(i, index(step)) for step in steps]
        copy_row(e, e.offset(to, element, at[0]), e.offset(source, element, at[1]), count, dtype)


def transpose(
    e: Emitter,
    to: ir.Value,
    source: ir.Value,
    rows: int,
    columns: int,
    dtype: DType,
    steps: tuple[int, int] | None = None,
) -> None:
    """Transposes a matrix [rows, columns], in square blocks of a vector's extent.

    steps: strides of rows (to, source), in elements; by default contiguous.
    """
    lanes, element = e.target.lanes(dtype.size), type_of(dtype)
    down, across = steps or (rows, columns)

    def block(i: ir.Value, j: ir.Value, high: int, wide: int) -> None:
        on_source = e.offset(source, element, e.builder.add(e.builder.mul(i, index(across)), j))
        on_to = e.offset(to, element, e.builder.add(e.builder.mul(j, index(down)), i))
        _transpose_block(e, (on_to, down), (on_source, across), high, wide, dtype)

    for high, i in blocks(e, rows, lanes):
        for wide, j in blocks(e, columns, lanes):
            block(i, j, high, wide)


def blocks(e: Emitter, count: int, size: int) -> Iterator[tuple[int, ir.Value]]:
    """Loops over the blocks along an axis: extent of a block, and its begin."""
    whole, rest = count - count % size, count % size
    if whole:
        with e.loop(whole, step=size) as i:
            yield size, i
    if rest:
        yield rest, index(whole)


def _transpose_block(
    e: Emitter, to: tuple[ir.Value, int], source: tuple[ir.Value, int], rows: int, columns: int, dtype: DType
) -> None:
    """Transposes a block of at most one vector's extent in registers.

    to, source: begin, and stride of rows in elements.
    """
    kind, element = e.vector_type(dtype), type_of(dtype)
    zero = ir.Constant(kind, None)
    block = [
        load_vector(e, e.offset(source[0], element, i * source[1]), kind, dtype.size, columns)
        if i < rows
        else zero
        for i in range(kind.count)
    ]
    for i, row in enumerate(transposed(e, block)[:columns]):
        store_vector(e, row, e.offset(to[0], element, i * to[1]), dtype.size, rows)


def shuffle(e: Emitter, first: ir.Value, second: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """A vector of selected lanes of two vectors; lanes of the second are numbered after the first's."""
    return e.builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(LANE, len(lanes)), list(lanes)))
