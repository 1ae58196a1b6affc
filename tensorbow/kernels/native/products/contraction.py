"""Contractions: loops over tiles of the micro-kernel, in a cache-friendly order.

    C[rows, columns] (+)= sum over k of A[rows, k] * B[k, columns]

Rows and k are walks through A with constant strides, which covers matrix products and all passes of
convolutions. The sum is cut into passes if the part of B that a tile needs exceeds the first-level cache;
tiles and order are chosen for each shape by a count of multiply-adds, loads and stores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, index, type_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.matrix_tiles import TiledContraction
from tensorbow.kernels.native.products.microkernel import (
    ARGUMENTS,
    Tile,
    Walk,
    merged,
    micro_kernel,
    shared_function,
)
from tensorbow.kernels.native.products.quads import BYTE
from tensorbow.kernels.native.products.tile_costs import CACHE_LINE, Loops, cost_of
from tensorbow.specs import DType

NEAR = 24 << 10  # bytes of B per tile: most of a first-level cache of 32 KiB
FAR = 512 << 10  # bytes that stay in a second-level cache, beside other data
FEW_ROWS = 64  # rows of A at most for which loading an uncached B takes most of the time
STREAMS = 32  # rows of such a B read side by side: as many streams as processors prefetch
MORE_STREAMS = 64  # if sums of wide vectors are short compared with the moves of C, and several tiles use B


@dataclass(frozen=True)
class Contraction:
    """Extents and strides of a contraction, in elements.

    rows: walks through A and C; sums: through A and B; outermost first. passes: further loops around all,
    which add up. Columns of B and C are contiguous. pairs: an element of A and of B is a pair of bfloat16,
    neighbours along the sum (`bfloat16`); C is float32. quads: an element of A and of B is four integers of 8
    bits (`quads`), and strides in A count bytes; C is int32.
    """

    dtype: DType
    rows: tuple[Walk, ...]
    columns: int
    sums: tuple[Walk, ...]
    passes: tuple[Walk, ...] = ()
    pairs: bool = False
    quads: bool = False


@dataclass(frozen=True)
class Blocking:
    """Loop structure of a contraction.

    rows: the loops over them, at least two. height, width: rows of a tile along the last two; vectors: its
    columns. passes: loops over sums, outside the tiles. columns_outside: the loop over columns is
    outside that over rows. limit: most steps of a pass.
    """

    rows: tuple[Walk, ...]
    passes: tuple[Walk, ...]
    sums: tuple[Walk, ...]
    height: int
    width: int
    vectors: int
    columns_outside: bool
    limit: int


@cache
def blocking_of(what: Contraction, target: Target) -> Blocking:
    """The cheapest blocking of a contraction, by its count of cycles."""
    lanes = target.lanes(what.dtype.size)
    vectors = -(-what.columns // lanes)
    count, steps = (math.prod(loop.count for loop in walks) for walks in (what.rows, what.sums))
    is_far = steps * what.columns * what.dtype.size > FAR
    streams = is_far and count <= FEW_ROWS

    def in_pass(vectors: int) -> int:
        return STREAMS if streams else NEAR // (vectors * lanes * what.dtype.size)

    _, _, loops, height, width, vectors = min(
        (
            (*cost_of(loops, what.columns, target, (h, w, v), in_pass(v), streams), loops, h, w, v)
            for loops in _orders(what)
            for v in range(1, min(vectors, target.vector_registers // 3) + 1)
            for w in range(1, min(loops.rows[-1].count, target.vector_registers // v) + 1)
            for h in range(1, min(loops.rows[-2].count, (target.vector_registers - v - 1) // (w * v)) + 1)
        ),
        key=lambda found: found[:2],
    )
    is_short = streams and target.vector_nbytes >= CACHE_LINE and count > height * width
    limit = MORE_STREAMS if is_short else in_pass(vectors)
    passes, sums = cut(loops.sums, limit)
    outside = is_far or count <= steps or what.columns <= vectors * lanes
    passes = (*what.passes, *passes)
    return Blocking(loops.rows, passes, sums, height, width, vectors, outside, limit)


def _orders(what: Contraction) -> list[Loops]:
    """Loop orders: as few loops as possible; or an innermost one along which neighbouring rows share A."""
    orders = [Loops(what.dtype, _padded(merged(what.rows)), merged(what.sums))]
    rows = _padded([loop for loop in what.rows if loop.count > 1])
    for number, loop in enumerate(what.sums):
        if loop.count > 1 and any(row.count > 1 and loop.a and row.a % loop.a == 0 for row in rows[-2:]):
            others = merged([*what.sums[:number], *what.sums[number + 1 :]])
            orders.append(Loops(what.dtype, rows, (*others, loop)))
    return orders


def cut(sums: Sequence[Walk], limit: int) -> tuple[tuple[Walk, ...], tuple[Walk, ...]]:
    """Outer loops that leave inner ones of at most `limit` steps in all, as equal as the extents allow."""
    total = math.prod(loop.count for loop in sums)
    outer: list[Walk] = []
    inner = list(sums)
    while total > limit and inner:
        first = inner.pop(0)
        rest = total // first.count
        parts = next((n for n in divisors(first.count) if total // n <= limit), first.count)
        step = first.count // parts
        outer.append(Walk(parts, first.a * step, first.b * step, first.c * step))
        if step > 1:
            inner.insert(0, replace(first, count=step))
        total = rest * step
    return tuple(outer), tuple(inner)


def divisors(count: int) -> list[int]:
    """Divisors of a positive number, ascending."""
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    return small + [count // n for n in reversed(small) if n * n != count]


def _padded(rows: Sequence[Walk]) -> tuple[Walk, ...]:
    return (*([Walk(1)] * (2 - len(rows))), *rows)


def contraction(e: Emitter, what: Contraction) -> ir.Function:
    """The function (a, b, c, accumulate) of a contraction; it adds to C if `accumulate` is not 0."""
    if what.pairs and e.target.tiles:
        tiled = TiledContraction.of(what)
        if tiled is not None:
            return shared_function(e, tiled, ARGUMENTS, tiled.write)
    blocking = blocking_of(what, e.target)
    split = split_of(what, blocking)

    def write(inner: Emitter, arguments: Sequence[ir.Value]) -> None:
        *pointers, accumulate = arguments
        here = _Here(*pointers)
        if split is None:
            _Nest(inner, what, blocking).write(here, accumulate)
            return
        whole, rest = (_Nest(inner, part, blocking_of(part, inner.target)) for part in split)
        whole.write(here, accumulate)
        rest.write(whole.behind(here), index(1))

    return shared_function(e, (what, blocking), ARGUMENTS, write)


def split_of(what: Contraction, blocking: Blocking) -> tuple[Contraction, Contraction] | None:
    """The sum in two parts, if it cannot be cut into equal passes near the limit."""
    steps = math.prod(loop.count for loop in blocking.sums)
    if len(blocking.passes) == len(what.passes) or 2 * steps > blocking.limit:
        return None
    first, *others = what.sums
    in_pass = blocking.limit // math.prod(loop.count for loop in others)
    rest = first.count % in_pass if in_pass else 0
    if not 0 < rest < first.count:
        return None
    counts = first.count - rest, rest
    whole, last = (replace(what, sums=(replace(first, count=n), *others)) for n in counts)
    return whole, last


@dataclass(frozen=True)
class _Here:
    """Positions in A, B and C."""

    a: ir.Value
    b: ir.Value
    c: ir.Value


class _Nest:
    """Emits the loops around the micro-kernels."""

    def __init__(self, e: Emitter, what: Contraction, blocking: Blocking):
        self.e = e
        self.what = what
        self.blocking = blocking
        self.element = type_of(what.dtype)
        self.step_of_a = BYTE if what.quads else self.element
        self.rows = blocking.rows
        self.wide = blocking.vectors * e.target.lanes(what.dtype.size)

    def write(self, here: _Here, accumulate: ir.Value) -> None:
        self._passes(self.blocking.passes, here, accumulate)

    def behind(self, here: _Here) -> _Here:
        """Position at which the outermost sum continues."""
        first = self.what.sums[0]
        return self._moved(here, index(1), first, first.count)

    def _passes(self, loops: Sequence[Walk], here: _Here, accumulate: ir.Value) -> None:
        if not loops:
            self._tiles(here, accumulate)
            return
        with self.e.loop(loops[0].count) as i:
            there = self._moved(here, i, loops[0])
            self._passes(loops[1:], there, self.e.builder.or_(accumulate, i))

    def _tiles(self, here: _Here, accumulate: ir.Value) -> None:
        def tile(extents: tuple[int, int], row: _Here, columns: int, at: ir.Value) -> None:
            kernel = micro_kernel(self.e, self._tile(extents, columns))
            b, c = (self._on(pointer, at, 1, self.element) for pointer in (row.b, row.c))
            self.e.builder.call(kernel, [row.a, b, c, accumulate])

        if self.blocking.columns_outside:
            for columns, at in self._panels():
                for extents, row in self._row_loops(self.rows[:-2], here):
                    tile(extents, row, columns, at)
        else:
            for extents, row in self._row_loops(self.rows[:-2], here):
                for columns, at in self._panels():
                    tile(extents, row, columns, at)

    def _on(self, pointer: ir.Value, position: ir.Value, step: int, kind: ir.Type) -> ir.Value:
        """The pointer `position` * `step` elements of a type further."""
        if not step:
            return pointer
        return self.e.offset(pointer, kind, self.e.builder.mul(position, index(step)))

    def _moved(self, here: _Here, position: ir.Value, walk: Walk, times: int = 1) -> _Here:
        """Positions `position` * `times` steps of a walk further."""
        kind = self.element
        steps = ((here.a, walk.a, self.step_of_a), (here.b, walk.b, kind), (here.c, walk.c, kind))
        return _Here(*(self._on(pointer, position, times * step, of) for pointer, step, of in steps))

    def _panels(self) -> Iterator[tuple[int, ir.Value]]:
        """A loop over the panels of each kind: columns of a panel, and its first."""
        many, rest = divmod(self.what.columns, self.wide)
        if many:
            with self.e.loop(many) as i:
                yield self.wide, self.e.builder.mul(i, index(self.wide))
        if rest:
            yield rest, index(many * self.wide)

    def _row_loops(self, outer: Sequence[Walk], here: _Here) -> Iterator[tuple[tuple[int, int], _Here]]:
        """A loop over the tiles of each kind: extents of a tile, and its position."""
        if outer:
            with self.e.loop(outer[0].count) as i:
                yield from self._row_loops(outer[1:], self._moved(here, i, outer[0]))
            return
        high, wide = self.rows[-2:]
        for height, row in self._along(high, self.blocking.height, here):
            for width, tile in self._along(wide, self.blocking.width, row):
                yield (height, width), tile

    def _along(self, loop: Walk, size: int, here: _Here) -> Iterator[tuple[int, _Here]]:
        many, rest = divmod(loop.count, size)
        if many > 1:
            with self.e.loop(many) as i:
                yield size, self._moved(here, i, loop, size)
        elif many:
            yield size, here
        if rest:
            yield rest, self._moved(here, index(many), loop, size)

    def _tile(self, extents: tuple[int, int], columns: int) -> Tile:
        high, wide = self.rows[-2:]
        rows = [(i, j) for i in range(extents[0]) for j in range(extents[1])]
        return Tile(
            self.what.dtype,
            tuple(i * high.a + j * wide.a for i, j in rows),
            tuple(i * high.c + j * wide.c for i, j in rows),
            columns,
            self.blocking.sums,
            self.what.pairs,
            self.what.quads,
        )
