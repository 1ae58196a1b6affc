"""Target processor of generated code: this machine's or a reduced one, and the mechanisms used for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from tensorbow.kernels.native.codegen.switches import ALL, Switches
from tensorbow.specs import DType, float32

_WIDTHS = (("avx512f", 64, 32), ("avx2", 32, 16))  # feature, bytes per vector, registers
_BASE_WIDTHS = {"x86_64": (16, 16), "aarch64": (16, 32), "arm64": (16, 32)}  # SSE2 and NEON, always present
_LEAST_WIDTH = (16, 16)


@dataclass(frozen=True)
class Target:
    """A processor as LLVM names it, and the code made for it.

    features: as `+avx2,-avx512f`. compute: precision of products of float32, fp32 or bf16.
    """

    triple: str
    processor: str
    features: str
    vector_nbytes: int
    vector_registers: int
    switches: Switches = ALL
    compute: str = "fp32"

    @property
    def has_bfloat16(self) -> bool:
        """True if the processor multiplies and adds 16 pairs of bfloat16 in one instruction."""
        return self.vector_nbytes == 64 and "+avx512bf16" in self.features.split(",")

    def rounds(self, dtype: DType) -> bool:
        """True if products of this dtype round their operands to bfloat16."""
        return self.compute == "bf16" and dtype == float32

    def lanes(self, itemsize: int) -> int:
        """Elements of that many bytes in one vector."""
        return self.vector_nbytes // itemsize

    def __str__(self) -> str:
        return f"{self.triple} {self.processor} {self.features}"


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
