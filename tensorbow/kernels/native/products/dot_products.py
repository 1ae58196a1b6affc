"""Products of few rows with the transpose of a matrix, which is read once, in its own layout.

    C[i, j] = sum over k of A[i, k] * B[j, k]

Vectors lie along k; lanes are added up at the end, several sums at a time. The next rows of an
uncached B are prefetched: otherwise the product would alternate between waiting for memory and computing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.read_ahead import LINE, prefetch
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.contraction import FAR
from tensorbow.kernels.native.products.microkernel import load_vector, shared_function
from tensorbow.kernels.native.products.packing import shuffle
from tensorbow.specs import DType


@dataclass(frozen=True)
class DotProducts:
    """A [rows, inner], B [columns, inner], C [rows, columns]."""

    dtype: DType
    rows: int
    columns: int
    inner: int


def dot_products(e: Emitter, what: DotProducts) -> ir.Function:
    """The function (a, b, c)."""
    return shared_function(
        e,
        what,
        (POINTER, POINTER, POINTER),
        lambda inner, arguments: _Writer(inner, what).write(*arguments),
    )


def tile_of(target: Target, what: DotProducts) -> tuple[int, int]:
    """Rows of A and of B in a tile, whose sums fit the registers.

    If A has so few rows that each row of B is read only once, they are one tile; otherwise tiles are even.
    """
    many, lanes = target.vector_registers >= 32, target.lanes(what.dtype.size)
    most = 6 if many and lanes <= 4 else 4
    high = what.rows if what.rows <= (8 if many else 6) else -(-what.rows // -(-what.rows // most))
    return high, min((target.vector_registers - 1) // (high + 1), lanes)


@dataclass(frozen=True)
class _Ahead:
    """`rows` rows of B from a place on, to be prefetched."""

    place: ir.Value
    rows: int


class _Writer:
    def __init__(self, e: Emitter, what: DotProducts):
        self.e = e
        self.what = what
        self.element = type_of(what.dtype)
        self.kind = e.vector_type(what.dtype)
        self.tile = tile_of(e.target, what)
        is_far = what.columns * what.inner * what.dtype.size > FAR
        self.reads_ahead = is_far and e.target.switches.read_ahead

    def write(self, a: ir.Value, b: ir.Value, c: ir.Value) -> None:
        """Emits the product. The loop over rows of B is outside: a few of them stay in the first-level cache.

        It runs from the last rows to the first: after a layer's forward pass, which reads the matrix in
        ascending order, a cache holds the last rows.
        """
        what = self.what
        for columns, j in self._walk_back(what.columns, self.tile[1]):
            for rows, i, ahead in self._row_groups(self._following(b, j, columns)):
                self._tile(
                    (rows, columns),
                    self._on(a, i, what.inner),
                    self._on(b, j, what.inner),
                    self.e.offset(self._on(c, i, what.columns), self.element, j),
                    ahead,
                )

    def _following(self, b: ir.Value, j: ir.Value, columns: int) -> ir.Value | None:
        """The rows of B after those of a tile from j on, if they are to be prefetched.

        After the last rows it is these themselves, which are near.
        """
        if not self.reads_ahead or self.what.rows <= self.tile[0] or columns < self.tile[1]:
            return None
        builder = self.e.builder
        before = builder.sub(j, index(self.tile[1]), flags=["nsw"])
        is_last = builder.icmp_signed("<", before, index(0))
        return self._on(b, builder.select(is_last, j, before), self.what.inner)

    def _row_groups(self, following: ir.Value | None) -> Iterator[tuple[int, ir.Value, _Ahead | None]]:
        """A loop over the rows of A, per kind of tile: their number, the first, the rows to prefetch.

        While the first tile is multiplied, the present rows of B enter the first-level cache. Later tiles
        prefetch a part of the following rows each.
        """
        size, columns = self.tile
        many, rest = divmod(self.what.rows, size)
        if following is None:
            yield from ((rows, i, None) for rows, i in self._walk(0, self.what.rows))
            return
        each = -(-columns // (-(-self.what.rows // size) - 1))  # rows of B per tile
        parts = -(-columns // each)

        def part(number: ir.Value) -> _Ahead:
            """A tile's share of the rows, clipped at the last row."""
            first = self.e.builder.mul(number, index(each), flags=["nsw"])
            last = index(columns - each)
            is_inside = self.e.builder.icmp_signed("<", first, last)
            start = self.e.builder.select(is_inside, first, last)
            return _Ahead(self._on(following, start, self.what.inner), each)

        yield size, index(0), None
        whole = min(many - 1, parts)
        if whole:
            with self.e.loop(whole) as number:
                i = self.e.builder.mul(self.e.builder.add(number, index(1)), index(size), flags=["nsw"])
                yield size, i, part(number)
        yield from ((rows, i, None) for rows, i in self._walk((1 + whole) * size, many * size))
        if rest:
            yield rest, index(many * size), part(index(whole)) if whole < parts else None

    def _walk(self, start: int, stop: int) -> Iterator[tuple[int, ir.Value]]:
        """A loop from `start` on, which is the begin of a whole tile."""
        size = self.tile[0]
        whole = start + (stop - start) // size * size
        if start < whole:
            with self.e.loop(whole, start, size) as i:
                yield size, i
        if whole < stop:
            yield stop - whole, index(whole)

    def _walk_back(self, count: int, size: int) -> Iterator[tuple[int, ir.Value]]:
        many, rest = divmod(count, size)
        if rest:
            yield rest, index(many * size)
        if many:
            with self.e.loop(many * size, step=size) as i:
                yield size, self.e.builder.sub(index((many - 1) * size), i, flags=["nsw"])

    def _on(self, pointer: ir.Value, position: ir.Value, step: int) -> ir.Value:
        return self.e.offset(pointer, self.element, self.e.builder.mul(position, index(step)))

    def _tile(
        self, extents: tuple[int, int], a: ir.Value, b: ir.Value, c: ir.Value, ahead: _Ahead | None
    ) -> None:
        """Emits the sums of rows x columns pairs."""
        e, builder, lanes = self.e, self.e.builder, self.kind.count
        rows, columns = extents
        whole, rest = divmod(self.what.inner, lanes)
        zero = ir.Constant(self.kind, None)
        total: list[ir.Value] = [zero] * (rows * columns)
        if whole:
            before, body = builder.block, builder.append_basic_block("dot")
            builder.branch(body)
            builder.position_at_end(body)
            k = builder.phi(INT)
            sums = [builder.phi(self.kind) for _ in total]
            if ahead is not None:
                self._read_ahead(ahead, k)
            after = self._step(
                rows, columns, e.offset(a, self.element, k), e.offset(b, self.element, k), lanes, sums
            )
            following = builder.add(k, index(lanes), flags=["nsw", "nuw"])
            for phi, first, last in zip([k, *sums], [index(0), *total], [following, *after], strict=True):
                phi.add_incoming(first, before)
                phi.add_incoming(last, builder.block)
            end = builder.append_basic_block("dots")
            builder.cbranch(builder.icmp_signed("<", following, index(whole * lanes)), body, end)
            builder.position_at_end(end)
            total = after
        if rest:
            on_a, on_b = (e.offset(place, self.element, whole * lanes) for place in (a, b))
            total = self._step(rows, columns, on_a, on_b, rest, total)
        self._store(rows, columns, total, c)

    def _read_ahead(self, ahead: _Ahead, k: ir.Value) -> None:
        """Prefetches as much of the rows, in address order, as corresponds to the vector at k of one row."""
        line, at_once = LINE // self.what.dtype.size, self.kind.count * ahead.rows
        place = self._on(ahead.place, k, ahead.rows)
        for position in range(0, at_once, line):
            prefetch(self.e, self.e.offset(place, self.element, position))

    def _step(
        self, rows: int, columns: int, a: ir.Value, b: ir.Value, lanes: int, total: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Adds the products of one vector of every row; `total` is row by row."""

        def row(base: ir.Value, number: int) -> ir.Value:
            place = self.e.offset(base, self.element, number * self.what.inner)
            return load_vector(self.e, place, self.kind, self.what.dtype.size, lanes)

        right = [row(b, j) for j in range(columns)]
        result = []
        for i in range(rows):
            left = row(a, i)
            for j in range(columns):
                sum_there = total[i * columns + j]
                result.append(self.e.intrinsic("fmuladd", self.kind, left, right[j], sum_there))
        return result

    def _store(self, rows: int, columns: int, total: Sequence[ir.Value], c: ir.Value) -> None:
        """Adds up lanes, of as many sums at a time as a vector has lanes, and stores them row by row."""
        wide = 1 << (columns - 1).bit_length()
        zero = ir.Constant(self.kind, None)
        line: list[ir.Value] = []
        for i in range(rows):
            line += [*total[i * columns : (i + 1) * columns], *([zero] * (wide - columns))]
        at_once = self.kind.count
        for first in range(0, len(line), at_once):
            group = line[first : first + at_once]
            sums = self._added([*group, *([zero] * (at_once - len(group)))])
            for start in range(0, len(group), wide):
                row = shuffle(self.e, sums, sums, range(start, start + columns))
                place = self.e.offset(c, self.element, (first + start) // wide * self.what.columns)
                self.e.store(row, place, self.what.dtype.size)

    def _added(self, vectors: list[ir.Value]) -> ir.Value:
        """A vector whose lane i is the sum of the lanes of vector i."""
        lanes = self.kind.count
        parts = 1  # partial sums of that many sums share a vector
        while len(vectors) > 1:
            width = lanes // parts  # lanes per sum
            half = width // 2
            keep = [part * width + lane for part in range(parts) for lane in range(half)]
            low = [*keep, *(lanes + lane for lane in keep)]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [
                self.e.builder.fadd(
                    shuffle(self.e, x, y, low), shuffle(self.e, x, y, [lane + half for lane in low])
                )
                for x, y in pairs
            ]
            parts *= 2
        return vectors[0]
