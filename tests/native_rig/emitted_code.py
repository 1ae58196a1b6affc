"""Code written with an emitter and called on arrays; and a record of the cache lines that it prefetches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir

from tensorbow.kernels.native.codegen.compiler import compile_module
from tensorbow.kernels.native.codegen.emitter import INT, POINTER, Emitter, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.specs import Array

LINE = 64


def call_emitted(
    write: Callable[[Emitter, Sequence[ir.Value]], None], arrays: Sequence[Array], target: Target
) -> None:
    """Calls the code that write(emitter, addresses of the arrays) emits."""
    module = ir.Module("test")
    module.triple = target.triple
    function = ir.Function(module, ir.FunctionType(INT, [POINTER]), "run")
    emitter = Emitter(target, ir.IRBuilder(function.append_basic_block("entry")), function.args[0])
    builder = emitter.builder
    addresses = [
        builder.load(builder.gep(function.args[0], [index(i)], source_etype=POINTER), typ=POINTER)
        for i in range(len(arrays))
    ]
    write(emitter, addresses)
    builder.ret(index(-1))
    code = compile_module(module, target, None)
    bases = (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
    code.function("run")(ctypes.addressof(bases))


class AskedLines:
    """Replacement of `prefetch` that counts the requests for each cache line of an array.

    The array begins at a line, see `at_line`. Requests outside it count as `below` or `above`.
    """

    def __init__(self, array: Array):
        self._array = array
        self._size = -(-array.nbytes // LINE)
        self._counts = np.zeros(self._size + 2, np.int64)

    def __call__(self, e: Emitter, pointer: ir.Value) -> None:
        builder = e.builder
        distance = builder.sub(builder.ptrtoint(pointer, INT), index(self._array.ctypes.data))
        line = builder.add(builder.ashr(distance, index(6)), index(1))
        line = e.intrinsic("smin", INT, e.intrinsic("smax", INT, line, index(0)), index(self._size + 1))
        counts = builder.inttoptr(index(self._counts.ctypes.data), POINTER)
        place = e.offset(counts, INT, line)
        e.store(builder.add(e.load(place, INT, 8), index(1)), place, 8)

    @property
    def below(self) -> int:
        """Number of requests for lines before the array."""
        return int(self._counts[0])

    @property
    def above(self) -> int:
        """Number of requests for lines after the array."""
        return int(self._counts[-1])

    @property
    def inside(self) -> Array:
        """Number of requests for each line of the array."""
        return self._counts[1:-1]


def at_line(array: Array) -> Array:
    """Copy that begins at a cache line."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
