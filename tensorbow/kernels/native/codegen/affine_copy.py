"""Copy between two arrays in nested loops with known strides: the template of all data movement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import Emitter, constant, index
from tensorbow.kernels.native.codegen.strips import Elements, Loop, nest, scaled, splat, strips, sums

LARGEST_SQUARE = 16  # largest square of lanes transposed in registers


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def copy(
    emitter: Emitter,
    target: Elements,
    source: Elements,
    loops: Sequence[Loop],
    starts: Sequence[ir.Value | int] = (0, 0),
) -> None:
    """Copies elements; strides and starts are pairs (target, source)."""
    joined = _joined(loops)
    if any(extent == 0 for extent, _ in joined):
        return
    *outer, (extent, inner) = joined or [(1, (1, 1))]
    crossing = next((loop for loop in outer if loop[1][1] == 1), None)
    if inner[0] == 1 and inner[1] not in (0, 1) and crossing is not None:
        rest = [loop for loop in outer if loop is not crossing]
        with nest(emitter, rest, starts) as (to, begin):
            _transpose(emitter, target, source, crossing, (extent, inner), to, begin)
        return
    with nest(emitter, outer, starts) as (to, begin):
        if inner == (1, 1):
            _copy_row(emitter, target, source, extent, to, begin)
        elif inner == (1, 0):
            _repeat(emitter, target, source.load(begin), extent, to)
        else:
            with nest(emitter, [(extent, inner)], [to, begin]) as (target_at, source_at):
                target.store(source.load(source_at), target_at)


def fill(emitter: Emitter, target: Elements, shape: Sequence[int], value: float) -> None:
    """Sets a whole array to a number."""
    _repeat(emitter, target, constant(target.kind, value), math.prod(shape), index(0))


def _joined(loops: Sequence[Loop]) -> list[Loop]:
    """The loops without extents of 1; neighbours that are contiguous in both arrays are joined."""
    result: list[Loop] = []
    for extent, strides in loops:
        if extent == 1:
            continue
        if result and result[-1][1] == tuple(stride * extent for stride in strides):
            result[-1] = (result[-1][0] * extent, strides)
        else:
            result.append((extent, strides))
    return result


def _copy_row(
    emitter: Emitter, target: Elements, source: Elements, extent: int, to: ir.Value, begin: ir.Value
) -> None:
    def copy_strip(at: ir.Value, width: int) -> None:
        target.store(source.load(sums(emitter, begin, at), width), sums(emitter, to, at))

    strips(emitter, extent, emitter.target.lanes(target.dtype.size), copy_strip)


def _repeat(emitter: Emitter, target: Elements, value: ir.Value, extent: int, to: ir.Value) -> None:
    def store(at: ir.Value, width: int) -> None:
        target.store(splat(emitter, value, width), sums(emitter, to, at))

    strips(emitter, extent, emitter.target.lanes(target.dtype.size), store)


def _transpose(
    emitter: Emitter,
    target: Elements,
    source: Elements,
    across: Loop,
    along: Loop,
    to: ir.Value,
    begin: ir.Value,
) -> None:
    """Copies between an axis contiguous in the source, `across`, and one contiguous in the target, `along`.

    Squares are transposed in registers, so that whole vectors are read and written; the rest is read in
    vectors and stored lane by lane.
    """
    (extent, (apart, _)), (length, (_, stride)) = across, along
    side = min(emitter.target.lanes(target.dtype.size), LARGEST_SQUARE)
    whole = length // side * side

    def square(at: ir.Value) -> None:
        with emitter.loop(whole, step=side) as first:
            source_at = sums(emitter, begin, at, scaled(emitter, first, stride))
            rows = [source.load(sums(emitter, source_at, row * stride), side) for row in range(side)]
            target_at = sums(emitter, to, first, scaled(emitter, at, apart))
            for column, vector in enumerate(transposed(emitter, rows)):
                target.store(vector, sums(emitter, target_at, column * apart))

    def columns(at: ir.Value, width: int) -> None:
        done = whole if width == side else 0
        if done:
            square(at)
        first = sums(emitter, to, scaled(emitter, at, apart), done)
        rest = (length - done, along[1])
        with nest(emitter, [rest], [first, sums(emitter, begin, at, done * stride)]) as (
            target_at,
            source_at,
        ):
            _store_apart(emitter, target, source.load(source_at, width), target_at, apart)

    strips(emitter, extent, side, columns)


def transposed(emitter: Emitter, rows: list[ir.Value]) -> list[ir.Value]:
    """A square of vectors transposed in registers, by exchanging ever smaller blocks across the diagonal."""
    side = len(rows)
    distance = side // 2
    while distance:
        low = [lane + side - distance if lane & distance else lane for lane in range(side)]
        high = [lane + side if lane & distance else lane + distance for lane in range(side)]
        for row in range(side):
            if not row & distance:
                pair = rows[row], rows[row + distance]
                rows[row], rows[row + distance] = (_picked(emitter, *pair, order) for order in (low, high))
        distance //= 2
    return rows


def _picked(emitter: Emitter, a: ir.Value, b: ir.Value, order: Sequence[int]) -> ir.Value:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
    return emitter.builder.shuffle_vector(a, b, mask)


def _store_apart(
    emitter: Emitter, target: Elements, vector: ir.Value, position: ir.Value, apart: int
) -> None:
    """Stores the lanes of a vector `apart` elements from each other, the first at a position."""
    if not isinstance(vector.type, ir.VectorType):
        target.store(vector, position)
        return
    for lane in range(vector.type.count):
        value = emitter.builder.extract_element(vector, ir.Constant(ir.IntType(32), lane))
        target.store(value, sums(emitter, position, lane * apart))
