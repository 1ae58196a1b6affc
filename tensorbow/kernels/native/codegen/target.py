"""Target processor of generated code: this machine's or a reduced one, and the mechanisms used for it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from tensorbow.kernels.native.codegen.switches import ALL, Switches
from tensorbow.specs import DType, float32

_WIDTHS = (("avx512f", 64, 32), ("avx2", 32, 16))  # feature, bytes per vector, registers
_BASE_WIDTHS = {"x86_64": (16, 16), "aarch64": (16, 32), "arm64": (16, 32)}  # SSE2 and NEON, always present
_LEAST_WIDTH = (16, 16)
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # x86-64's system call, and ours


@dataclass(frozen=True)
class Target:
    """A processor as LLVM names it, and the code made for it.

    features: as `+avx2,-avx512f`. compute: precision of products of float32, fp32 or bf16. tiles: uses the
    matrix registers of AMX for bf16.
    """

    triple: str
    processor: str
    features: str
    vector_nbytes: int
    vector_registers: int
    switches: Switches = ALL
    compute: str = "fp32"
    tiles: bool = False

    @property
    def has_bfloat16(self) -> bool:
        """True if the processor multiplies and adds 16 pairs of bfloat16 in one instruction."""
        return self.vector_nbytes == 64 and "+avx512bf16" in self.features.split(",")

    @property
    def has_quads(self) -> bool:
        """True if the processor multiplies and adds 16 quads of bytes in one instruction."""
        return self.vector_nbytes == 64 and "+avx512vnni" in self.features.split(",")

    @property
    def multiplies_pairs(self) -> bool:
        """True if the processor multiplies and adds pairs of 16 bits in full vectors."""
        if not self.triple.startswith("x86_64"):
            return False
        return self.vector_nbytes < 64 or "+avx512bw" in self.features.split(",")

    def rounds(self, dtype: DType) -> bool:
        """True if products of this dtype round their operands to bfloat16."""
        return self.compute == "bf16" and dtype == float32

    def lanes(self, itemsize: int) -> int:
        """Elements of that many bytes in one vector."""
        return self.vector_nbytes // itemsize

    def __str__(self) -> str:
        return f"{self.triple} {self.processor} {self.features}"


def may_use_tiles(target: Target, ask: Callable[[], bool] | None = None) -> bool:
    """True if the processor has AMX for bfloat16, and the operating system lets this process use it.

    ask(): asks for that; by default Linux.
    """
    has = {"+amx-tile", "+amx-bf16"} <= set(target.features.split(",")) and target.has_bfloat16
    return has and (ask or _ask_linux)()


def _ask_linux() -> bool:
    """Asks for the state of the matrix registers, of all threads of this process."""
    if not sys.platform.startswith("linux"):
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "syscall", None)
    return call is not None and call(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


@cache
def host_target() -> Target:
    """This machine."""
    return target_of(dict(llvm.get_host_cpu_features()))


def target_of(features: dict[str, bool], triple: str | None = None, processor: str | None = None) -> Target:
    """A processor with these features, by LLVM's names, switched on or off; by default this machine's."""
    triple = triple or llvm.get_process_triple()
    text = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    base = _BASE_WIDTHS.get(triple.partition("-")[0], _LEAST_WIDTH)
    width = next(((nbytes, count) for name, nbytes, count in _WIDTHS if features.get(name)), base)
    return Target(triple, processor or llvm.get_host_cpu_name(), text, *width)
