"""Emulation of AMX: eight matrix registers, and functions that generated code calls for the instructions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import llvmlite.binding as llvm
import numpy as np
import pytest

from tensorbow.kernels.native.products import matrix_tiles
from tensorbow.specs import Array

PREFIX = "emulated."
BYTE, ADDRESS, STRIDE = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
ARGUMENTS = {
    "ldtilecfg": (ADDRESS,),
    "tilerelease": (),
    "tilezero": (BYTE,),
    "tileloadd64": (BYTE, ADDRESS, STRIDE),
    "tilestored64": (BYTE, ADDRESS, STRIDE),
    "tdpbf16ps": (BYTE, BYTE, BYTE),
}


@dataclass
class MatrixRegisters:
    """Registers by number, as words [rows, words]; faults that a processor would raise; counts of calls."""

    tiles: dict[int, Array] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def ldtilecfg(self, address: int) -> None:
        content = np.array((BYTE * 64).from_address(address))
        row_nbytes, rows = content[16:48].view(np.uint16), content[48:]
        if content[0] != 1 or content[1:16].any() or rows[8:].any() or row_nbytes[8:].any():
            self.faults.append("palette, or reserved bytes")
        if rows.max() > 16 or row_nbytes.max() > 64 or (row_nbytes % 4).any():
            self.faults.append(f"extents {rows} {row_nbytes}")
        self.tiles = {n: np.zeros((rows[n], row_nbytes[n] // 4), np.uint32) for n in range(8) if rows[n]}

    def tilerelease(self) -> None:
        self.tiles = {}

    def tilezero(self, number: int) -> None:
        self.tiles[number][...] = 0

    def tileloadd64(self, number: int, address: int, stride: int) -> None:
        for n, row in enumerate(self.tiles[number]):
            row[...] = (ctypes.c_uint32 * len(row)).from_address(address + n * stride)

    def tilestored64(self, number: int, address: int, stride: int) -> None:
        for n, row in enumerate(self.tiles[number]):
            (ctypes.c_uint32 * len(row)).from_address(address + n * stride)[:] = row.tolist()

    def tdpbf16ps(self, c: int, a: int, b: int) -> None:
        total, left, right = (self.tiles[number] for number in (c, a, b))
        if (left.shape[0], right.shape[1], left.shape[1]) != (*total.shape, right.shape[0]):
            self.faults.append(f"tdpbf16ps {total.shape} {left.shape} {right.shape}")
            return
        sums = total.view(np.float32)
        for shift in (16, 0):
            x, y = ((v << np.uint32(shift) & np.uint32(0xFFFF0000)).view(np.float32) for v in (left, right))
            sums += x @ y


@contextmanager
def matrix_registers() -> Iterator[MatrixRegisters]:
    """Code emitted while the context lasts uses emulated registers, and must run within it."""
    registers, alive = MatrixRegisters(), []
    for name, kinds in ARGUMENTS.items():

        def call(*arguments: int, name: str = name) -> None:
            registers.counts[name] = registers.counts.get(name, 0) + 1
            try:
                getattr(registers, name)(*arguments)
            except Exception as error:  # a callback cannot raise
                registers.faults.append(f"{name}{arguments}: {error!r}")

        alive.append(ctypes.CFUNCTYPE(None, *kinds)(call))
        llvm.add_symbol(PREFIX + name, ctypes.cast(alive[-1], ctypes.c_void_p).value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_tiles, "PREFIX", PREFIX)
        yield registers
    assert not registers.faults, registers.faults[:3]
    assert not registers.tiles, "the registers are not released"
