"""Micro-kernel of all contractions: a tile of C in registers, A broadcast, rows of B as vectors.

    C[row, j] (+)= sum over k of A[row, k] * B[k, j]

Rows and k are walks through A with constant strides, k in several nested loops for convolutions, so
no matrix of windows is stored. Rows of B are contiguous. (Goto and van de Geijn, 2008; Heinecke
et al., 2016, for direct convolution.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.bfloat16 import PAIR, multiply_add_pairs
from tensorbow.kernels.native.products.quads import BYTE, multiply_add_quads
from tensorbow.specs import DType

UNROLLED = 96  # multiply-adds in the body of the innermost loop
LOADED = 36  # vectors of B in the body for a large tile: LLVM loads early, and more might spill
LATENCY = 8  # independent multiply-adds that keep a core busy
PAIR_LATENCY = 12  # same for those of pairs
SHARING = 8  # most steps that share elements of A
LANE = ir.IntType(32)
ARGUMENTS = (POINTER, POINTER, POINTER, INT)  # of a contraction: a, b, c, accumulate


@dataclass(frozen=True)
class Walk:
    """A loop of `count` steps with constant strides in A, B and C, in elements."""

    count: int
    a: int = 0
    b: int = 0
    c: int = 0


@dataclass(frozen=True)
class Tile:
    """A tile that one call of the micro-kernel computes.

    a, c: offset of each row in A and in C, in elements. sums: the loops over k, outermost first. pairs,
    quads: see `Contraction`.
    """

    dtype: DType
    a: tuple[int, ...]
    c: tuple[int, ...]
    columns: int
    sums: tuple[Walk, ...]
    pairs: bool = False
    quads: bool = False


def merged(loops: Sequence[Walk]) -> tuple[Walk, ...]:
    """The same walk in fewer loops: drops loops of one step, joins contiguous neighbours."""
    result: list[Walk] = []
    for loop in loops:
        if loop.count == 1:
            continue
        if result:
            last = result[-1]
            if (last.a, last.b, last.c) == tuple(loop.count * step for step in (loop.a, loop.b, loop.c)):
                result[-1] = Walk(last.count * loop.count, loop.a, loop.b, loop.c)
                continue
        result.append(loop)
    return tuple(result)


def shared_function(
    e: Emitter,
    key: object,
    arguments: Sequence[ir.Type],
    write: Callable[[Emitter, Sequence[ir.Value]], None],
) -> ir.Function:
    """A function of the module, emitted once per key, so that equal calls of a network share their code."""
    name = f"shared_{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}"
    known = e.module.globals.get(name)
    if isinstance(known, ir.Function):
        return known
    function = ir.Function(e.module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    write(e.of_function(builder), function.args)
    builder.ret_void()
    return function


def load_vector(e: Emitter, pointer: ir.Value, kind: ir.VectorType, size: int, lanes: int) -> ir.Value:
    """Loads the first `lanes` elements at a pointer, zeros after them; `size`: bytes of an element."""
    if lanes == kind.count:
        return e.load(pointer, kind, size)
    name = f"llvm.masked.load.v{kind.count}{_letters(kind)}.p0"
    known = e.module.globals.get(name)
    mask = ir.VectorType(ir.IntType(1), kind.count)
    if known is None:
        known = ir.Function(e.module, ir.FunctionType(kind, [POINTER, LANE, mask, kind]), name)
    return e.builder.call(
        known, [pointer, ir.Constant(LANE, size), _mask(kind, lanes), ir.Constant(kind, None)]
    )


def store_vector(e: Emitter, value: ir.Value, pointer: ir.Value, size: int, lanes: int) -> None:
    """Stores the first `lanes` elements of a vector."""
    kind = value.type
    if lanes == kind.count:
        e.store(value, pointer, size)
        return
    name = f"llvm.masked.store.v{kind.count}{_letters(kind)}.p0"
    known = e.module.globals.get(name)
    mask = ir.VectorType(ir.IntType(1), kind.count)
    if known is None:
        signature = ir.FunctionType(ir.VoidType(), [kind, POINTER, LANE, mask])
        known = ir.Function(e.module, signature, name)
    e.builder.call(known, [value, pointer, ir.Constant(LANE, size), _mask(kind, lanes)])


def _letters(kind: ir.VectorType) -> str:
    return {"float": "f32", "double": "f64"}.get(str(kind.element), str(kind.element))


def _mask(kind: ir.VectorType, lanes: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(1), kind.count), [i < lanes for i in range(kind.count)])


def micro_kernel(e: Emitter, tile: Tile) -> ir.Function:
    """The function (a, b, c, accumulate) of a tile; it adds to C if `accumulate` is not 0."""
    return shared_function(e, tile, ARGUMENTS, lambda inner, given: _TileWriter(inner, tile).write(*given))


class _TileWriter:
    """Emits a micro-kernel. Accumulators are listed row by row, and again for each of `copies`."""

    def __init__(self, e: Emitter, tile: Tile):
        self.e = e
        self.tile = tile
        self.element = type_of(tile.dtype)
        self.kind = e.vector_type(tile.dtype)
        self.lanes = [
            min(self.kind.count, tile.columns - first) for first in range(0, tile.columns, self.kind.count)
        ]
        self.operand = PAIR if tile.pairs else self.element
        self.step_of_a = BYTE if tile.quads else self.operand
        self.size = len(tile.a) * len(self.lanes)
        inner = tile.sums[-1] if tile.sums else Walk(1)
        shared = shared_steps(tile.a, inner, len(self.lanes), e.target)
        self.shares = shared > 1
        most = min(UNROLLED // self.size, 16)
        if self.size >= LATENCY:
            most = min(most, LOADED // len(self.lanes))
        self.unrolled = _unrolled(inner.count, shared if self.shares else most)
        self.copies = min(self.unrolled, -(-(PAIR_LATENCY if tile.pairs else LATENCY) // self.size))

    def write(self, a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
        total = self._started(c, accumulate)
        zero = ir.Constant(self.kind, None)
        total += [zero] * (self.size * (self.copies - 1))
        total = self._summed(self.tile.sums, (a, b), total)
        for copy in range(1, self.copies):
            for i in range(self.size):
                add = self.e.builder.add if self.tile.quads else self.e.builder.fadd
                total[i] = add(total[i], total[copy * self.size + i])
        for value, (pointer, lanes) in zip(total[: self.size], self._pointers(c), strict=True):
            store_vector(self.e, value, pointer, self.tile.dtype.size, lanes)

    def _pointers(self, c: ir.Value) -> list[tuple[ir.Value, int]]:
        """Pointer to each accumulator's vector in C, and the number of its valid elements."""
        return [
            (self.e.offset(c, self.element, row + number * self.kind.count), lanes)
            for row in self.tile.c
            for number, lanes in enumerate(self.lanes)
        ]

    def _started(self, c: ir.Value, accumulate: ir.Value) -> list[ir.Value]:
        builder = self.e.builder
        adding, start = (builder.append_basic_block(name) for name in ("adding", "sum"))
        before = builder.block
        builder.cbranch(builder.icmp_signed("==", accumulate, index(0)), start, adding)
        builder.position_at_end(adding)
        size = self.tile.dtype.size
        there = [load_vector(self.e, pointer, self.kind, size, lanes) for pointer, lanes in self._pointers(c)]
        builder.branch(start)
        builder.position_at_end(start)
        total, zero = [], ir.Constant(self.kind, None)
        for value in there:
            phi = builder.phi(self.kind)
            phi.add_incoming(zero, before)
            phi.add_incoming(value, adding)
            total.append(phi)
        return total

    def _summed(
        self, loops: Sequence[Walk], pointers: Sequence[ir.Value], total: list[ir.Value]
    ) -> list[ir.Value]:
        """Emits the sums. pointers: into A and into B."""
        if not loops:
            return self._steps(1, Walk(1), pointers, total)
        loop, inner = loops[0], loops[1:]
        unrolled = 1 if inner else self.unrolled
        rounds, rest = divmod(loop.count, unrolled)
        builder = self.e.builder
        before, body = builder.block, builder.append_basic_block("sum")
        builder.branch(body)
        builder.position_at_end(body)
        count, here = builder.phi(INT), [builder.phi(POINTER) for _ in pointers]
        sums = [builder.phi(self.kind) for _ in total]
        for phi, first in zip([count, *here, *sums], [index(0), *pointers, *total], strict=True):
            phi.add_incoming(first, before)
        if inner:
            after = self._summed(inner, here, list(sums))
        else:
            after = self._steps(unrolled, loop, here, list(sums))
        next_count = builder.add(count, index(1), flags=["nsw", "nuw"])
        there = [
            self.e.offset(pointer, kind, unrolled * step)
            for pointer, kind, step in zip(
                here, (self.step_of_a, self.operand), (loop.a, loop.b), strict=True
            )
        ]
        for phi, value in zip([count, *here, *sums], [next_count, *there, *after], strict=True):
            phi.add_incoming(value, builder.block)
        end = builder.append_basic_block("summed")
        builder.cbranch(builder.icmp_signed("<", next_count, index(rounds)), body, end)
        builder.position_at_end(end)
        return self._steps(rest, loop, there, after)

    def _steps(
        self, count: int, loop: Walk, pointers: Sequence[ir.Value], total: list[ir.Value]
    ) -> list[ir.Value]:
        """Emits `count` steps of k; an element of A that several of them need is broadcast once."""
        a, b = pointers
        e, size, width = self.e, self.tile.dtype.size, self.kind.count
        total, vector_of_b = list(total), ir.VectorType(self.operand, width)
        uses: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for step in range(count):
            for number, row in enumerate(self.tile.a):
                offset = step * loop.a + row
                uses.setdefault((offset, 0 if self.shares else step), []).append((step, number))
        vectors: dict[int, list[ir.Value]] = {}
        for offset, _ in sorted(uses) if self.shares else uses:
            align = 1 if self.tile.quads else size
            single = e.load(e.offset(a, self.step_of_a, offset), self.operand, align)
            factor = e.splat(single, width)
            for step, row in uses[offset, _]:
                if step not in vectors:
                    starts = (step * loop.b + number * width for number in range(len(self.lanes)))
                    vectors[step] = [
                        load_vector(e, e.offset(b, self.operand, start), vector_of_b, size, lanes)
                        for start, lanes in zip(starts, self.lanes, strict=True)
                    ]
                first = (step % self.copies) * self.size + row * len(self.lanes)
                for number, vector in enumerate(vectors[step], start=first):
                    total[number] = self._added(factor, vector, total[number])
        return total

    def _added(self, factor: ir.Value, vector: ir.Value, total: ir.Value) -> ir.Value:
        """A vector of the sum, plus an element of A times a vector of B."""
        if self.tile.quads:
            return multiply_add_quads(self.e, factor, vector, total)
        if self.tile.pairs:
            return multiply_add_pairs(self.e, factor, vector, total)
        return self.e.intrinsic("fmuladd", self.kind, factor, vector, total)


def shared_steps(rows: Sequence[int], inner: Walk, vectors: int, target: Target) -> int:
    """Neighbouring steps of the innermost loop that can share elements of A within the registers; else 1.

    rows: their offsets in A. vectors: of B, per step.
    """
    steps = min(inner.count, (target.vector_registers - 1) // vectors - len(rows), SHARING)
    return steps if steps > 1 and broadcasts(rows, inner.a, steps) < steps * len(rows) else 1


def broadcasts(rows: Sequence[int], step: int, count: int) -> int:
    """Number of distinct elements of A that `count` steps of `step` need."""
    return len({number * step + row for number in range(count) for row in rows})


def _unrolled(count: int, most: int) -> int:
    """Steps in the body of a loop of `count` steps, at most `most`."""
    most = max(1, min(count, most))
    even = [n for n in range(most, most // 2, -1) if count % n == 0]
    return even[0] if even else most
