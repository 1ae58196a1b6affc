"""Batches made of a data set by native code, on the stream of the replica that trains on them.

On a CPU nothing needs to be copied to a device: the data set is read where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from tensorbow.devices import StreamGroup
from tensorbow.kernels.native.codegen.call_table import ACCEPTED, SIGNATURE
from tensorbow.kernels.native.codegen.compiler import NativeCode, compile_module
from tensorbow.kernels.native.codegen.emitter import INT, Emitter, constant, index
from tensorbow.kernels.native.codegen.target import Target
from tensorbow.kernels.native.rounds.words import bytes_on, load_pointer, load_word, word_at
from tensorbow.program.examples import PICK, ExampleArrays, KeptExamples, MakeBatch

MAKE = "make_batch"
PICKS, IMAGES, LABELS, COUNT, ALL_IMAGES, ALL_LABELS, WORDS = range(7)
FLOAT = ir.FloatType()
BYTE = ir.IntType(8)


class NativeExamples(KeptExamples):
    """A data set, and the function that makes batches of it."""

    def __init__(self, arrays: ExampleArrays, target: Target, folder: Path | None):
        """Its arrays are read as they are; they are copied only where they do not lie in one piece."""
        self._images = np.ascontiguousarray(arrays.images)
        self._labels = np.ascontiguousarray(arrays.labels, np.int64)
        shape = self._images.shape[1:]
        module = _module(shape, float(arrays.scale), float(arrays.shift), target)
        self.code: NativeCode = compile_module(module, target, folder)  # owns the function
        self._make = self.code.function(MAKE)

    @property
    def address(self) -> int:
        """Address of the function."""
        return self.code.address(MAKE)

    def words(self, batch_size: int, images: int, labels: int) -> ctypes.Array[ctypes.c_int64]:
        """Arguments of the function without the picks, which come first; see `batches`."""
        words = (ctypes.c_int64 * WORDS)()
        words[IMAGES], words[LABELS], words[COUNT] = images, labels, batch_size
        words[ALL_IMAGES], words[ALL_LABELS] = self._images.ctypes.data, self._labels.ctypes.data
        return words

    def batches(self, group: StreamGroup, batch_size: int, images: int, labels: int) -> MakeBatch:
        """See KeptExamples.batches."""
        words, make = self.words(batch_size, images, labels), self._make
        address = ctypes.addressof(words)

        def make_batch(picks: NDArray[Any]) -> None:
            words[PICKS] = picks.ctypes.data
            make(address)

        return make_batch

    def close(self) -> None:
        """The data set is its owner's."""


def _module(shape: Sequence[int], scale: float, shift: float, target: Target) -> ir.Module:
    module = ir.Module("batches")
    module.triple = target.triple
    function = ir.Function(module, SIGNATURE, MAKE)
    entry, start = (function.append_basic_block(name) for name in ("entry", "start"))
    b = ir.IRBuilder(start)
    words = function.args[0]
    e = Emitter(target, b, words)
    with e.loop(load_word(b, words, COUNT)) as place:
        _Example(e, words, shape, (scale, shift)).emit(place)
    b.ret(ACCEPTED)
    ir.IRBuilder(entry).branch(start)
    return module


class _Example:
    """One example of a batch, in the making."""

    def __init__(self, e: Emitter, words: ir.Value, shape: Sequence[int], affine: tuple[float, float]):
        self._e, self._words = e, words
        self._shape = height, width, channels = tuple(shape)
        self._pixels = height * width * channels
        self._affine = affine

    def emit(self, place: ir.Value) -> None:
        """The example at a place of the batch: label and picture."""
        b, words = self._e.builder, self._words
        pick = bytes_on(b, load_pointer(b, words, PICKS), b.mul(place, index(PICK.itemsize)))
        row = load_word(b, pick, 0)
        label = load_word(b, load_pointer(b, words, ALL_LABELS), row)
        b.store(label, word_at(b, load_pointer(b, words, LABELS), place))
        source = bytes_on(b, load_pointer(b, words, ALL_IMAGES), b.mul(row, index(self._pixels)))
        nbytes = self._pixels * np.dtype(np.float32).itemsize
        target = bytes_on(b, load_pointer(b, words, IMAGES), b.mul(place, index(nbytes)))
        down, right, mirrored = (self._field(pick, name) for name in ("down", "right", "mirrored"))
        moved = b.or_(b.or_(down, right), mirrored)
        with b.if_else(b.icmp_signed("!=", moved, index(0))) as (augmented, plain):
            with augmented:
                self._rows(source, target, (down, right), b.icmp_signed("!=", mirrored, index(0)))
            with plain:
                self._convert(source, target)

    def _field(self, pick: ir.Value, name: str) -> ir.Value:
        dtype, offset = PICK.fields[name][:2] if PICK.fields is not None else (np.dtype(np.int32), 0)
        b = self._e.builder
        kind = ir.IntType(8 * dtype.itemsize)
        return b.sext(b.load(bytes_on(b, pick, offset), typ=kind, align=dtype.itemsize), INT)

    def _rows(
        self, source: ir.Value, target: ir.Value, move: tuple[ir.Value, ir.Value], mirrored: ir.Value
    ) -> None:
        """A picture moved, and mirrored before that; where it is moved away from lie black pixels."""
        e, b = self._e, self._e.builder
        height, width, channels = self._shape
        down, right = move
        with e.loop(height) as y:
            from_y = b.sub(y, down)
            row_is_there = b.icmp_unsigned("<", from_y, index(height))
            with e.loop(width) as x:
                from_x = b.sub(x, right)
                is_there = b.and_(row_is_there, b.icmp_unsigned("<", from_x, index(width)))
                from_x = b.select(mirrored, b.sub(index(width - 1), from_x), from_x)
                pixel = b.add(b.mul(from_y, index(width)), from_x)
                first = b.mul(b.select(is_there, pixel, index(0)), index(channels))
                to = b.mul(b.add(b.mul(y, index(width)), x), index(channels))
                for channel in range(channels):
                    value = self._bytes(source, b.add(first, index(channel)), 1)
                    value = b.select(is_there, value, constant(BYTE, 0))
                    self._store(value, target, b.add(to, index(channel)), 1)

    def _convert(self, source: ir.Value, target: ir.Value) -> None:
        """A picture as it is."""
        lanes = self._e.target.lanes(np.dtype(np.float32).itemsize)
        whole = self._pixels // lanes * lanes
        if whole:
            with self._e.loop(whole, step=lanes) as place:
                self._store(self._bytes(source, place, lanes), target, place, lanes)
        if rest := self._pixels - whole:
            self._store(self._bytes(source, index(whole), rest), target, index(whole), rest)

    def _bytes(self, source: ir.Value, place: ir.Value, lanes: int) -> ir.Value:
        kind = BYTE if lanes == 1 else ir.VectorType(BYTE, lanes)
        return self._e.load(bytes_on(self._e.builder, source, place), kind, 1)

    def _store(self, pixels: ir.Value, target: ir.Value, place: ir.Value, lanes: int) -> None:
        """x * scale - shift, both steps rounded."""
        b, kind = self._e.builder, FLOAT if lanes == 1 else ir.VectorType(FLOAT, lanes)
        scale, shift = (constant(kind, number) for number in self._affine)
        value = b.fsub(b.fmul(b.uitofp(pixels, kind), scale), shift)
        self._e.store(value, self._e.offset(target, FLOAT, place), 4)
