"""Cost of a contraction by its tile: multiply-adds, loads, stores and calls, counted in cycles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.products.microkernel import Walk, broadcasts, shared_steps
from tensorbow.specs import DType

CACHE_LINE = 64  # bytes
LARGE_TILE = 20  # accumulators; more leave no registers to load into early
SMALL_TILE = 8  # accumulators; a core has at most so many multiply-adds in flight
TILE_COST = 12  # cycles of a call of the micro-kernel beside its sum
STREAM_COST = 50  # same for an uncached B, and C in the second-level cache
STREAM_LOAD = 3.3  # cycles per cache line of such a B, which each tile loads from the second-level cache
STREAM_SHARE = 0.25  # share of that for a line of A: most loads overlap with other work
SHARING_COST = 1.03  # of steps that share elements of A: more registers in use, vectors of B further apart
KERNEL_COST = 0.01  # share of all cycles that an additional kernel to compile must save


@dataclass(frozen=True)
class Loops:
    """Loops around the micro-kernel, and in it."""

    dtype: DType
    rows: tuple[Walk, ...]
    sums: tuple[Walk, ...]


def cost_of(
    loops: Loops, columns: int, target: Target, tile: tuple[int, int, int], in_pass: int, streams: bool
) -> tuple[float, int]:
    """Cycles, and number of kinds of tiles.

    tile: its rows along the last two loops, its vectors of columns. in_pass: steps of the sum in one
    pass. streams: few rows use an uncached B.
    """
    height, width, vectors = tile
    lanes = target.lanes(loops.dtype.size)
    high, wide = loops.rows[-2:]
    steps = math.prod(loop.count for loop in loops.sums)
    inner = loops.sums[-1] if loops.sums else Walk(1)
    call, line = (STREAM_COST, STREAM_LOAD * loops.dtype.size / CACHE_LINE) if streams else (TILE_COST, 0)
    cycles, kinds = 0.0, 0
    for h, times in _parts(high.count, height):
        for w, more in _parts(wide.count, width):
            for v, many in _parts(-(-columns // lanes), vectors):
                kinds += 1
                size = h * w * v
                slower = 1.04 if size > LARGE_TILE else 1.1 if size <= SMALL_TILE else 1
                loads = _broadcasts(high.a, wide.a, h, w, inner, v, target) + v
                if loads < h * w + v:
                    slower *= SHARING_COST
                step = max(size / 2, loads / 2, line * lanes * v, 2.0) * slower
                step += STREAM_SHARE * line * h * w
                moves = (call + 1.5 * size) * -(-steps // max(min(steps, in_pass), 1))
                cycles += times * more * many * (step * steps + moves)
    cycles *= math.prod(loop.count for loop in loops.rows[:-2])
    return cycles * (1 + KERNEL_COST * kinds), kinds


def _parts(count: int, size: int) -> list[tuple[int, int]]:
    """Extents of the tiles along a loop, with the number of each."""
    return [(n, times) for n, times in ((size, count // size), (count % size, 1)) if n and times]


@cache
def _broadcasts(
    down: int, across: int, height: int, width: int, inner: Walk, vectors: int, target: Target
) -> float:
    """Elements of A that a tile loads for one step of its sum."""
    rows = [i * down + j * across for i in range(height) for j in range(width)]
    steps = shared_steps(rows, inner, vectors, target)
    return broadcasts(rows, inner.a, steps) / steps
