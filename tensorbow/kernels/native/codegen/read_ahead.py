"""Prefetching of the next operands into the second-level cache while the present ones are used.

Multiplying a matrix that is in no near cache with few rows costs about as much to fetch as to compute.
Hardware prefetchers stop at the end of a page; one prefetch in each step of a sum
lets fetching and computing overlap. It changes no value, and reads nothing outside the matrix.
"""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.strips import Accumulator
from tensorbow.specs import DType

LINE = 64  # bytes of a cache line
_NUMBER = ir.IntType(32)


def prefetch(e: Emitter, pointer: ir.Value) -> None:
    """Prefetches the cache line at a pointer into the second-level cache, for reading."""
    name = "llvm.prefetch.p0"
    known = e.module.globals.get(name)
    if known is None:
        known = ir.Function(e.module, ir.FunctionType(ir.VoidType(), [POINTER, *[_NUMBER] * 3]), name)
    read, second_cache, data = (ir.Constant(_NUMBER, n) for n in (0, 2, 1))
    e.builder.call(known, [pointer, read, second_cache, data])


class ReadAhead:
    """A piece of memory divided among tiles: each prefetches as many of its lines as its sum has steps."""

    def __init__(self, e: Emitter, place: ir.Value, size: int, steps: int, dtype: DType):
        """size: elements of the piece, at least `steps` lines."""
        self._e, self._place, self._element = e, place, type_of(dtype)
        self._at_once = steps * (LINE // dtype.size)
        self._last = size - self._at_once
        self._position = Accumulator(e, index(0))

    def take(self) -> ir.Value:
        """Start of the next tile's share; the end of the piece once all is prefetched."""
        position = self._position.get()
        following = self._e.builder.add(position, index(self._at_once), flags=["nsw"])
        self._position.set(self._e.intrinsic("smin", INT, following, index(self._last)))
        return self._e.offset(self._place, self._element, position)
