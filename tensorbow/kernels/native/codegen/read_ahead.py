"""Reading ahead: what comes next is brought into the second cache while the present part is computed with.

A matrix that is in no near cache, times few rows, costs about as much to fetch as to multiply. Processors
fetch the rest of a page whose first lines are read, and stop where it ends; asking for one line with each
step of a sum makes both go on at once. It changes no value, and asks for nothing outside the matrix.
"""

from __future__ import annotations

from llvmlite import ir

from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index, type_of
from tensorbow.kernels.native.codegen.strips import Accumulator
from tensorbow.specs import DType

LINE = 64  # bytes of a cache line
_NUMBER = ir.IntType(32)


def prefetch(e: Emitter, pointer: ir.Value) -> None:
    """Asks for the cache line at a pointer to be brought into the second cache, for reading."""
    name = "llvm.prefetch.p0"
    known = e.module.globals.get(name)
    if known is None:
        known = ir.Function(e.module, ir.FunctionType(ir.VoidType(), [POINTER, *[_NUMBER] * 3]), name)
    read, second_cache, data = (ir.Constant(_NUMBER, n) for n in (0, 2, 1))
    e.builder.call(known, [pointer, read, second_cache, data])


class ReadAhead:
    """A piece of memory, shared out to tiles: each asks for as many lines of it as its sum has steps."""

    def __init__(self, e: Emitter, place: ir.Value, size: int, steps: int, dtype: DType):
        """size: elements of the piece, at least `steps` lines."""
        self._e, self._place, self._element = e, place, type_of(dtype)
        self._at_once = steps * (LINE // dtype.size)
        self._last = size - self._at_once
        self._position = Accumulator(e, index(0))

    def take(self) -> ir.Value:
        """Where the next tile begins to ask; when all has been asked for, its end again."""
        position = self._position.get()
        following = self._e.builder.add(position, index(self._at_once), flags=["nsw"])
        self._position.set(self._e.intrinsic("smin", INT, following, index(self._last)))
        return self._e.offset(self._place, self._element, position)
