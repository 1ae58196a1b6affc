"""Contractions of pairs on AMX: matrix registers of 16 rows of 64 bytes (Intel, 2020).

    C[16, 16] += A[16, 16 pairs] * B[16 pairs, 16]    in one instruction, `tdpbf16ps`

Two tiles of A and two of B are read for four of C, which stay in registers during the sum. Extents of tiles
are configured for a region of C at a time: all whole tiles, and what remains of its rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import POINTER, Emitter, index, type_of
from tensorbow.kernels.native.products.microkernel import ARGUMENTS, Walk, merged, shared_function
from tensorbow.specs import DType

if TYPE_CHECKING:
    from tensorbow.kernels.native.products.contraction import Contraction

SIDE = 16  # rows of a tile, and its words of 4 bytes
WORD = 4  # bytes
FIRST_A, FIRST_B = 4, 6  # numbers of registers; those of C begin at 0
CONFIGURATION = 64  # bytes: palette, then from 16 on bytes per row, from 48 on rows, of each register
FEWEST = 4  # pairs in a tile for which it pays
BYTE = ir.IntType(8)
PREFIX = "llvm.x86."  # of the names of instructions


@dataclass(frozen=True)
class TiledContraction:
    """A contraction of pairs; fields as in `Contraction`.

    rows: the last walk is cut into tiles. inner: innermost walk along the sum, of pairs that are neighbours
    in A, of which a tile has `depth`. sums: the walks around it.
    """

    dtype: DType
    rows: tuple[Walk, ...]
    columns: int
    sums: tuple[Walk, ...]
    passes: tuple[Walk, ...]
    inner: Walk
    depth: int

    @classmethod
    def of(cls, what: Contraction) -> TiledContraction | None:
        """The tiled form of a contraction of pairs; None where tiles do not fit it."""
        rows, sums = (merged(walks) or (Walk(1),) for walks in (what.rows, what.sums))
        *others, inner = sums
        depth = max(n for n in range(1, SIDE + 1) if inner.count % n == 0)
        if inner.a != 1 or depth < FEWEST:
            return None
        return cls(what.dtype, rows, what.columns, tuple(others), what.passes, inner, depth)

    def write(self, e: Emitter, arguments: Sequence[ir.Value]) -> None:
        """Emits the contraction. arguments: pointers to A, B and C, and `accumulate`."""
        *pointers, accumulate = arguments
        _Tiles(e, self).passes(self.passes, pointers, accumulate)


class _Tiles:
    def __init__(self, e: Emitter, what: TiledContraction):
        self.e = e
        self.what = what
        self.element = type_of(what.dtype)

    def passes(self, loops: Sequence[Walk], pointers: Sequence[ir.Value], accumulate: ir.Value) -> None:
        """Emits the loops around all."""
        if loops:
            with self.e.loop(loops[0].count) as i:
                there = self._moved(pointers, i, loops[0])
                self.passes(loops[1:], there, self.e.builder.or_(accumulate, i))
            return
        *outer, last = self.what.rows
        with self.e.builder.goto_entry_block():
            configuration = self.e.builder.alloca(ir.ArrayType(BYTE, CONFIGURATION))
        for height, first, count in _cut(last.count):
            for width, column, many in _cut(self.what.columns):
                self._configure(configuration, height, width)
                on_a, on_b, on_c = self._moved(pointers, index(first), last)
                here = [on_a, *(self.e.offset(p, self.element, column) for p in (on_b, on_c))]
                self._region(outer, here, (height, count), (width, many), accumulate)
        _instruction(self.e, "tilerelease")

    def _region(
        self,
        outer: Sequence[Walk],
        pointers: Sequence[ir.Value],
        rows: tuple[int, int],
        columns: tuple[int, int],
        accumulate: ir.Value,
    ) -> None:
        """Emits all tiles of one extent. rows, columns: of a tile, and number of tiles."""
        (height, count), (width, many) = rows, columns
        down, across = replace(self.what.rows[-1], count=count), Walk(many, b=1, c=1)
        for wide, panel in self._groups(pointers, across, width):
            for row in self._outer(outer, panel):
                for high, here in self._groups(row, down, height):
                    self.e.builder.call(self._kernel(height, width, high, wide), [*here, accumulate])

    def _outer(self, loops: Sequence[Walk], pointers: Sequence[ir.Value]) -> Iterator[Sequence[ir.Value]]:
        """Loops over walks: positions in A, B and C."""
        if not loops:
            yield pointers
            return
        with self.e.loop(loops[0].count) as i:
            yield from self._outer(loops[1:], self._moved(pointers, i, loops[0]))

    def _groups(
        self, pointers: Sequence[ir.Value], walk: Walk, extent: int
    ) -> Iterator[tuple[int, Sequence[ir.Value]]]:
        """Loops over two tiles at a time, then the last one: number of tiles, and their position."""
        pairs, rest = divmod(walk.count, 2)
        if pairs:
            with self.e.loop(pairs) as i:
                yield 2, self._moved(pointers, i, walk, 2 * extent)
        if rest:
            yield 1, self._moved(pointers, index(2 * pairs), walk, extent)

    def _moved(
        self, pointers: Sequence[ir.Value], position: ir.Value, walk: Walk, times: int = 1
    ) -> list[ir.Value]:
        steps = walk.a, walk.b, walk.c
        return [
            self.e.offset(p, self.element, self.e.builder.mul(position, index(step * times)))
            for p, step in zip(pointers, steps, strict=True)
        ]

    def _configure(self, memory: ir.Value, height: int, width: int) -> None:
        """Sets the extents of the registers: C [height, width], A [height, depth], B [depth, width]."""
        depth = self.what.depth
        extents = [(height, width)] * FIRST_A + [(height, depth)] * 2 + [(depth, width)] * 2
        content = [0] * CONFIGURATION
        content[0] = 1
        for number, (rows, words) in enumerate(extents):
            content[16 + 2 * number], content[48 + number] = words * WORD, rows
        value = ir.Constant(ir.ArrayType(BYTE, CONFIGURATION), content)
        self.e.store(value, memory, 1)
        _instruction(self.e, "ldtilecfg", memory)

    def _kernel(self, height: int, width: int, high: int, wide: int) -> ir.Function:
        """The function (a, b, c, accumulate) of high x wide tiles."""
        key = ("tiles", self.what, height, width, high, wide)

        def write(e: Emitter, arguments: Sequence[ir.Value]) -> None:
            _Tiles(e, self.what)._sum(arguments, (height, width), (high, wide))

        return shared_function(self.e, key, ARGUMENTS, write)

    def _sum(self, arguments: Sequence[ir.Value], extents: tuple[int, int], many: tuple[int, int]) -> None:
        (a, b, c, accumulate), (height, width), (high, wide) = arguments, extents, many
        e, row, inner = self.e, self.what.rows[-1], self.what.inner
        tiles = [(i, j) for i in range(high) for j in range(wide)]
        on_c = [e.offset(c, self.element, i * height * row.c + j * width) for i, j in tiles]
        with e.builder.if_else(e.builder.icmp_signed("==", accumulate, index(0))) as (anew, adding):
            with anew:
                for number in range(len(tiles)):
                    _instruction(e, "tilezero", _register(number))
            with adding:
                for number, pointer in enumerate(on_c):
                    _instruction(e, "tileloadd64", _register(number), pointer, index(row.c * WORD))
        for on_a, on_b, _ in self._outer((*self.what.sums, self._blocks), (a, b, c)):
            for i in range(high):
                there = e.offset(on_a, self.element, i * height * row.a)
                _instruction(e, "tileloadd64", _register(FIRST_A + i), there, index(row.a * WORD))
            for j in range(wide):
                there = e.offset(on_b, self.element, j * width)
                _instruction(e, "tileloadd64", _register(FIRST_B + j), there, index(inner.b * WORD))
            for number, (i, j) in enumerate(tiles):
                registers = number, FIRST_A + i, FIRST_B + j
                _instruction(e, "tdpbf16ps", *map(_register, registers))
        for number, pointer in enumerate(on_c):
            _instruction(e, "tilestored64", _register(number), pointer, index(row.c * WORD))

    @property
    def _blocks(self) -> Walk:
        """The walk over tiles along the sum."""
        inner, depth = self.what.inner, self.what.depth
        return Walk(inner.count // depth, depth, depth * inner.b)


def _cut(count: int) -> Iterator[tuple[int, int, int]]:
    """Regions along an axis: extent of the tiles, begin, number of tiles."""
    whole, rest = divmod(count, SIDE)
    if whole:
        yield SIDE, 0, whole
    if rest:
        yield rest, whole * SIDE, 1


def _register(number: int) -> ir.Constant:
    return ir.Constant(BYTE, number)


def _instruction(e: Emitter, name: str, *arguments: ir.Value) -> None:
    full = f"{PREFIX}{name}"
    known = e.module.globals.get(full)
    if known is None:
        kinds = [POINTER if isinstance(v.type, ir.PointerType) else v.type for v in arguments]
        known = ir.Function(e.module, ir.FunctionType(ir.VoidType(), kinds), full)
    e.builder.call(known, arguments)
