"""The native backend for an AArch64 machine: its target, and its code in emulated processors."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("llvmlite", reason="the native backend needs llvmlite")

import llvmlite.binding as llvm

from tensorbow.kernels import backends
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen import compiler, target, vector_math
from tensorbow.kernels.native.codegen.target import Target, target_of
from tensorbow.kernels.native.rounds.system_functions import CLOCK, YIELD
from tensorbow.program.stacks import GROW, grow
from tests.native_rig.aarch64_emulator import TURN, Processor, Provided, WildAccessError, is_memory
from tests.native_rig.aarch64_objects import CodeMemory, LoadedObject

from unicorn import Uc  # isort: skip
from unicorn import arm64_const as registers  # isort: skip

TRIPLE, PROCESSOR, FEATURES = "aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True, "lse": True}
TWO_NUMBERS = ("atan2", "pow", "fmod")  # what of the C library's functions takes two


def neon_target() -> Target:
    """Target of an AArch64 server processor."""
    return target_of(FEATURES, TRIPLE, PROCESSOR)


class EmulatedCode:
    """Replacement of `compiler.NativeCode` that runs emulated."""

    def __init__(self, code: bytes):
        self._functions = LoadedObject(code, _MEMORY, _PROVIDED).functions

    def address(self, name: str) -> int:
        """Address of a function."""
        return self._functions[name]

    def function(self, name: str) -> Callable[[int], int]:
        """Function by name, callable from any thread."""
        address = self.address(name)

        def call(argument: int) -> int:
            try:
                processor = _idle.pop()
            except IndexError:
                processor = Processor(_MEMORY, _PROVIDED)
            try:
                return processor.call(address, argument)
            finally:
                _idle.append(processor)

        return call


@contextmanager
def aarch64_machine() -> Iterator[None]:
    """Compiles for `neon_target` instead of this machine, and emulates the code, while the context lasts."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    link = compiler._linked

    def linked(code: bytes, of: Target) -> compiler.NativeCode | EmulatedCode:
        return EmulatedCode(code) if of.triple == TRIPLE else link(code, of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "_linked", linked)
        patch.setattr(target.llvm, "get_process_triple", lambda: TRIPLE)
        patch.setattr(target.llvm, "get_host_cpu_name", lambda: PROCESSOR)
        patch.setattr(target.llvm, "get_host_cpu_features", lambda: dict(FEATURES))
        target.host_target.cache_clear()
        patch.setitem(
            backends._backends, "cpu", NativeBackend()
        )  # else the first to ask makes one that stays
        try:
            yield
        finally:
            target.host_target.cache_clear()


def _numbers(name: str, letter: str, kind: type) -> Callable[[Uc], None]:
    """Function of the C library on numbers in the first S or D registers."""
    function = getattr(ctypes.CDLL(None), name)
    count = 2 if name.removesuffix("f") in TWO_NUMBERS or name in TWO_NUMBERS else 1
    places = [getattr(registers, f"UC_ARM64_REG_{letter}{number}") for number in range(count)]
    function.argtypes, function.restype = [kind] * count, kind
    word = ctypes.c_uint32 if kind is ctypes.c_float else ctypes.c_uint64

    def call(uc: Uc) -> None:
        values = [kind.from_buffer(word(uc.reg_read(place))) for place in places]
        uc.reg_write(places[0], word.from_buffer(kind(function(*values))).value)

    return call


def _bytes(name: str) -> Callable[[Uc], None]:
    """Function of two words and a byte count that returns the first word."""
    function = getattr(ctypes.CDLL(None), name)
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int if name == "memset" else ctypes.c_void_p,
        ctypes.c_size_t,
    ]

    def call(uc: Uc) -> None:
        first, second, count = (uc.reg_read(getattr(registers, f"UC_ARM64_REG_X{n}")) for n in range(3))
        for start in (first,) if name == "memset" else (first, second):
            if count and not is_memory(start, count):
                raise WildAccessError(f"{name} of {count} bytes at {start:#x}, where there is no such memory")
        function(first, second & 0xFF if name == "memset" else second, count)

    return call


def _let_others_run(uc: Uc) -> None:
    TURN.release()
    time.sleep(0)
    TURN.acquire()
    uc.reg_write(registers.UC_ARM64_REG_X0, 0)


def _clock(uc: Uc) -> None:
    function = ctypes.CDLL(None).clock_gettime
    number, into = (uc.reg_read(getattr(registers, f"UC_ARM64_REG_X{n}")) for n in range(2))
    if not is_memory(into, 16):
        raise WildAccessError(f"{CLOCK} at {into:#x}, where there is no such memory")
    function.argtypes = [ctypes.c_int, ctypes.c_void_p]
    uc.reg_write(registers.UC_ARM64_REG_X0, function(number, into))


def _grow_stack(uc: Uc) -> None:
    handle, nbytes = (uc.reg_read(getattr(registers, f"UC_ARM64_REG_X{n}")) for n in range(2))
    uc.reg_write(registers.UC_ARM64_REG_X0, grow(handle, nbytes))


_PROVIDED: Provided = {
    GROW: _grow_stack,
    CLOCK: _clock,
    YIELD: _let_others_run,
    **{name: _bytes(name) for name in ("memcpy", "memmove", "memset")},
    **{name: _numbers(name, "D", ctypes.c_double) for name in vector_math.LIBRARY},
    **{f"{name}f": _numbers(f"{name}f", "S", ctypes.c_float) for name in vector_math.LIBRARY},
}
_MEMORY = CodeMemory()
_idle: list[Processor] = []
