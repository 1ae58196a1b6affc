"""Memory that a compilation keeps in the process."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

from tensorbow.kernels.native.codegen import compiler
from tensorbow.kernels.native.codegen.target import host_target

KIB = 1 << 10
COMPILATIONS = 60


def resident_nbytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def compile_one(number: int) -> None:
    fields = ", ".join(["i64"] * (number + 2))  # a type and constants that no other module has
    text = f"""
    @table{number} = internal constant {{ {fields} }} zeroinitializer
    define i64 @answer(i8* %x) {{
        ret i64 {number * 1_000_003}
    }}
    """
    with compiler._optimized(text, host_target()) as (machine, module):
        code = compiler._linked(bytes(machine.emit_object(module)), host_target())
    assert code.function("answer")(0) == number * 1_000_003


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and calls glibc")
def test_a_compilation_leaves_next_to_nothing() -> None:
    """It kept some 50 KiB: llvmlite does not free passes, and its global context keeps everything it saw."""
    for number in range(20):
        compile_one(number)
    before = resident_nbytes()
    for number in range(20, 20 + COMPILATIONS):
        compile_one(number)
    assert resident_nbytes() - before < COMPILATIONS * 20 * KIB
