"""A dense layer's weight gradient computed where it is used: G = A^T B in registers, tile by tile.

With a small batch, A [rows, m] and B [rows, n] have few rows and are small, and G [m, n] is large. Writing,
checking and reading G costs three passes over memory for a few multiply-adds per element. So an
update computes the elements of G as it needs them, and a check bounds them by the largest of A and of B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Bounds, Emitter, constant, index, lanes_of, type_of
from tensorbow.kernels.native.codegen.llvm_form import to_llvm
from tensorbow.kernels.native.codegen.strips import (
    Accumulator,
    Elements,
    blocks,
    scaled,
    splat,
    strips,
    sums,
    vector_of,
)
from tensorbow.kernels.native.products import packing
from tensorbow.kernels.native.products.bfloat16 import PAIR, UPPER, multiply_add_pairs
from tensorbow.kernels.native.products.pair_packing import pack_columns
from tensorbow.kernels.scalars import Scalar
from tensorbow.kernels.scalars.expression import INPUT, in_order
from tensorbow.program.plan import Group, Ref
from tensorbow.specs import Array

ROWS = 4  # rows of a tile of G; columns of A in a panel
GRAIN_ROWS = 2 * ROWS  # rows in the unit of division of G
PANEL = 64  # columns of B in a panel, a multiple of a tile's
WRITTEN_OUT = 4  # products of an element that are unrolled

Visit = Callable[[Sequence[tuple[ir.Value, int, ir.Value]]], None]
"""Gets (position in G, width, elements) of each vector of a tile."""


@dataclass(frozen=True)
class ProductUpdate:
    """A map over the elements of G, one of whose inputs is G itself.

    results: per element, first those of the outputs numbered in `outputs`, then the new values of
    the inputs in `written`. gradient: the number of G among the inputs; the call has A there, and B as its
    last input.
    """

    results: tuple[Scalar, ...]
    gradient: int
    outputs: tuple[int, ...]
    written: tuple[int, ...]
    keys: tuple[str, ...]  # step scalars; their symbols follow the inputs'


def emit_factors(e: Emitter, group: Group) -> None:
    """Copies A and B to G's memory, as panels: some columns of all rows next to each other.

    Where products round to bfloat16, the panels have pairs of rows.

    In their original layout, rows a power of two apart would evict each other from the first-level cache.
    """
    for source, target, panel in zip(group.inputs, group.outputs, (ROWS, PANEL), strict=True):
        (rows, columns), element = source.shape, type_of(source.dtype)
        there, to, pairs = e.address(source), e.address(target), e.target.rounds(source.dtype)
        for width, j in packing.blocks(e, columns, panel):
            end = e.offset(to, element, scaled(e, j, target.shape[0]))
            begin = e.offset(there, element, j)
            if pairs:
                pack_columns(e, end, begin, rows, width, columns)
            else:
                packing.copy_rows(e, end, begin, rows, width, (width, columns), source.dtype)


def unpacked(left: Array, right: Array, pairs: bool = False) -> tuple[Array, Array]:
    """A and B, [rows, m] and [rows, n], from the panels that `emit_factors` has written.

    pairs: of pairs of rows; those of an odd number of rows end with zeros.
    """

    def matrix(panels: Array, width: int) -> Array:
        rows, columns = panels.shape
        ends = [rows * end for end in range(width, columns, width)]
        whole = np.hstack([panel.reshape(rows, -1) for panel in np.split(panels.ravel(), ends)])
        if not pairs:
            return whole
        bits = whole.view(np.uint32)
        halves = np.stack([bits << np.uint32(16), bits & np.uint32(UPPER)], axis=1)
        return halves.reshape(2 * rows, columns).view(np.float32)

    return matrix(left, ROWS), matrix(right, PANEL)


def emit_update(e: Emitter, group: Group, update: ProductUpdate, bounds: Bounds | None = None) -> None:
    """Emits the new values by tiles of G: of all rows, or of some, cut at multiples of GRAIN_ROWS."""
    *given, right = group.inputs
    left = given[update.gradient]
    scalars = dict(group.state)
    refs = [*given, *(scalars[key] for key in update.keys)]
    targets = [*(group.outputs[n] for n in update.outputs), *(given[n] for n in update.written)]
    inputs = [node for node in in_order(update.results) if node.operator == INPUT]
    singles: dict[Scalar, ir.Value] = {}
    arrays: dict[Scalar, Elements] = {}
    for node in inputs:
        ref = refs[int(node.argument)]
        if node.argument == update.gradient:
            continue
        elements = Elements(e, e.address(ref), ref.dtype)
        if ref.nbytes == ref.dtype.size:
            singles[node] = elements.load(0)
        else:
            arrays[node] = elements
    ends = [Elements(e, e.address(ref), ref.dtype) for ref in targets]

    def tile(vectors: Sequence[tuple[ir.Value, int, ir.Value]]) -> None:
        for position, width, value in vectors:
            known = {node: splat(e, single, width) for node, single in singles.items()}
            known |= {node: elements.load(position, width) for node, elements in arrays.items()}
            known |= {node: value for node in inputs if node.argument == update.gradient}
            results = to_llvm(e, update.results, known, width)
            for result, end in zip(results, ends, strict=True):
                end.store(result, position)

    _tiles(e, left, right, tile, bounds)


def emit_check(e: Emitter, group: Group) -> None:
    """Sets the status if an element of G is not finite.

    If the largest magnitudes of A and B and the number of rows exclude an overflow, no element is computed;
    otherwise all are.
    """
    left, right = group.inputs
    b, kind = e.builder, type_of(left.dtype)
    rows = left.shape[0] * (2 if e.target.rounds(left.dtype) else 1)
    most = float(np.finfo(left.dtype.as_numpy_dtype).max)
    bound = b.fmul(*(_largest(e, ref) for ref in (left, right)))
    with b.if_then(b.fcmp_unordered(">", bound, constant(kind, most / (2 * rows))), likely=False):
        word = ir.IntType(8 * left.dtype.size)
        worst = Accumulator(e, constant(word, 0))

        def tile(vectors: Sequence[tuple[ir.Value, int, ir.Value]]) -> None:
            for _, width, value in vectors:
                found = _magnitude(e, value, width)
                worst.set(e.intrinsic("umax", word, worst.get(), found))

        _tiles(e, left, right, tile)
        infinity = int(np.asarray(np.inf, left.dtype.as_numpy_dtype).view(f"u{left.dtype.size}"))
        with b.if_then(b.icmp_unsigned(">=", worst.get(), constant(word, infinity))):
            e.store(index(1), e.address(dict(group.state)["status"]), 8)


def _largest(e: Emitter, ref: Ref) -> ir.Value:
    """The largest magnitude of an array; infinite or NaN if one of its elements is."""
    word = ir.IntType(8 * ref.dtype.size)
    elements, lanes = Elements(e, e.address(ref), ref.dtype), e.target.lanes(ref.dtype.size)
    found = Accumulator(e, constant(word, 0))
    wide = Accumulator(e, constant(vector_of(word, lanes), 0))

    def piece(position: ir.Value, width: int) -> None:
        value = elements.load(position, width)
        for half in _halves(e, value) if e.target.rounds(ref.dtype) else [value]:
            if width == lanes:
                bits = _without_sign(e, half, width)
                wide.set(e.intrinsic("umax", wide.get().type, wide.get(), bits))
            else:
                found.set(e.intrinsic("umax", word, found.get(), _magnitude(e, half, width)))

    strips(e, ref.nbytes // ref.dtype.size, lanes, piece)
    worst = wide.get() if lanes == 1 else e.reduced("umax", wide.get())
    return e.builder.bitcast(e.intrinsic("umax", word, found.get(), worst), type_of(ref.dtype))


def _halves(e: Emitter, pairs: ir.Value) -> list[ir.Value]:
    """The second and the first halves of pairs that were loaded as float32, as float32."""
    b = e.builder
    bits = b.bitcast(pairs, _words(pairs.type))
    return [b.bitcast(half, pairs.type) for half in (bits, b.shl(bits, constant(bits.type, 16)))]


def _words(kind: ir.Type) -> ir.Type:
    """Pairs, as many as float32."""
    return vector_of(PAIR, lanes_of(kind))


def _without_sign(e: Emitter, value: ir.Value, width: int) -> ir.Value:
    kind = value.type.element if width > 1 else value.type
    bits = 64 if isinstance(kind, ir.DoubleType) else 32
    word = vector_of(ir.IntType(bits), width)
    return e.builder.and_(e.builder.bitcast(value, word), constant(word, (1 << (bits - 1)) - 1))


def _magnitude(e: Emitter, value: ir.Value, width: int) -> ir.Value:
    """The largest magnitude of a vector's elements, as an integer."""
    bits = _without_sign(e, value, width)
    return bits if width == 1 else e.reduced("umax", bits)


def _vectors(registers: int) -> int:
    """Vectors of columns in a tile. Long pieces of few rows read the arrays in few streams."""
    return 4 if registers >= 32 else 2


def _tiles(e: Emitter, left: Ref, right: Ref, visit: Visit, bounds: Bounds | None = None) -> None:
    """Emits visit(...) for all tiles of A^T B. An element's products are added in the order of rows.

    The tiles of GRAIN_ROWS rows follow one another by columns: a panel of B is in the first-level cache then.
    """
    (_, m), (_, n) = left.shape, right.shape
    lanes = e.target.lanes(left.dtype.size)
    whole = m // ROWS * ROWS

    def rows(high: int, first: ir.Value, end: ir.Value) -> None:
        def piece(j: ir.Value, widths: Sequence[int]) -> None:
            with e.loop(end, first, high) as i:
                visit(_tile(e, left, right, (i, high), (j, widths)))

        blocks(e, n, lanes, piece, _vectors(e.target.vector_registers))

    first, end = (
        [index(0), index(m)] if bounds is None else [e.builder.udiv(each, index(n)) for each in bounds]
    )
    last = _least(e, end, index(whole))
    with e.loop(last, first, GRAIN_ROWS) as i:
        rows(ROWS, i, _least(e, e.builder.add(i, index(GRAIN_ROWS), flags=["nsw"]), last))
    if m > whole:
        with e.builder.if_then(e.builder.icmp_signed(">", end, index(whole))):
            rows(m - whole, index(whole), index(m))


def _least(e: Emitter, first: ir.Value, second: ir.Value) -> ir.Value:
    return e.builder.select(e.builder.icmp_signed("<", first, second), first, second)


def _tile(
    e: Emitter, left: Ref, right: Ref, rows: tuple[ir.Value, int], columns: tuple[ir.Value, Sequence[int]]
) -> list[tuple[ir.Value, int, ir.Value]]:
    """The elements of G in some rows and vectors of columns: (first, count), (first, widths)."""
    (i, high), (j, widths) = rows, columns
    count, n = right.shape
    a, b = (Elements(e, e.address(ref), ref.dtype) for ref in (left, right))
    panel_of_a = scaled(e, i, count)
    in_panel = e.builder.urem(j, index(PANEL))
    before = e.builder.sub(j, in_panel, flags=["nsw"])
    width_of_b = index(PANEL)
    if n % PANEL:
        is_whole = e.builder.icmp_signed("<", before, index(n // PANEL * PANEL))
        width_of_b = e.builder.select(is_whole, width_of_b, index(n % PANEL))
    panel_of_b = sums(e, scaled(e, before, count), in_panel)
    starts = [sum(widths[:number]) for number in range(len(widths))]
    zeros = [constant(vector_of(a.kind, width), 0.0) for width in widths]
    totals = [[Accumulator(e, zero) for zero in zeros] for _ in range(high)]

    def multiply_add(x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        if not e.target.rounds(left.dtype):
            return e.intrinsic("fmuladd", z.type, x, y, z)
        first, second = (e.builder.bitcast(v, _words(v.type)) for v in (x, y))
        return multiply_add_pairs(e, first, second, z)

    def step(k: ir.Value) -> None:
        on_a = sums(e, panel_of_a, scaled(e, k, high))
        on_b = sums(e, panel_of_b, e.builder.mul(k, width_of_b, flags=["nsw"]))
        vectors = [b.load(sums(e, on_b, s), w) for s, w in zip(starts, widths, strict=True)]
        for r, line in enumerate(totals):
            factor = a.load(sums(e, on_a, r))
            for total, vector, width in zip(line, vectors, widths, strict=True):
                broadcast = splat(e, factor, width)
                total.set(multiply_add(broadcast, vector, total.get()))

    at_once = next(c for c in range(min(count, WRITTEN_OUT), 0, -1) if count % c == 0)
    if count == at_once:
        for k in range(count):
            step(index(k))
    else:
        with e.loop(count, step=at_once) as k:
            for more in range(at_once):
                step(sums(e, k, more))
    result = []
    for r, line in enumerate(totals):
        first = sums(e, scaled(e, sums(e, i, r), n), j)
        for total, start, width in zip(line, starts, widths, strict=True):
            result.append((sums(e, first, start), width, total.get()))
    return result
