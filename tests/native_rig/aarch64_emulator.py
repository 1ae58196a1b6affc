"""AArch64 code called in this process: an emulated processor that shares the process's memory.

Addresses are the same inside and outside, so arrays need no copies. Memory is mapped into the emulator when
the code first touches it; an access to unmapped memory raises WildAccessError. Several threads may be in
emulated code; only one of them runs at a time, until it ends or calls `sched_yield`, so that atomic
operations are atomic.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest

pytest.importorskip("unicorn", reason="AArch64 code runs in the emulator unicorn")
if not sys.platform.startswith("linux"):
    pytest.skip("the emulator finds this process's memory in /proc", allow_module_level=True)

import unicorn
from unicorn import Uc, UcError
from unicorn import arm64_const as registers

from tests.native_rig.aarch64_objects import CodeMemory

Provided: TypeAlias = "Mapping[str, Callable[[Uc], None]]"

STACK_NBYTES = 1 << 20
PIECE = 1 << 20  # bytes of memory that are shown at once: to show more takes longer
FLOATING_POINT_ON = 3 << 20  # of CPACR_EL1: nothing traps
SUPERVISOR_CALL = 2  # as QEMU counts exceptions
KEPT = [  # by every function, says the procedure call standard (AAPCS64, section 6.1)
    *(getattr(registers, f"UC_ARM64_REG_X{number}") for number in range(19, 30)),
    *(getattr(registers, f"UC_ARM64_REG_D{number}") for number in range(8, 16)),
]
MARK = 0x0123456789ABCDE0  # in the registers that are to be kept
TURN = threading.Lock()  # owned by the thread whose processor runs


class WildAccessError(Exception):
    """The code reads, writes or jumps to an unmapped address."""


class CallingConventionError(Exception):
    """The code changed a register that it must preserve."""


class Processor:
    """Emulated processor with a stack, used by one thread at a time."""

    def __init__(self, code: CodeMemory, provided: Provided):
        """provided: functions behind the stubs, by name; they read and write the processor's registers."""
        self._provided, self._stubs = provided, code.stubs
        self._uc = uc = Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        uc.ctl_set_cpu_model(registers.UC_CPU_ARM64_MAX)
        uc.reg_write(registers.UC_ARM64_REG_CPACR_EL1, FLOATING_POINT_ON)
        uc.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._show)
        uc.hook_add(unicorn.UC_HOOK_INTR, self._call_provided)
        uc.mem_map_ptr(code.start, len(code.bytes), unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC, code.start)
        self._stack = np.frombuffer(mmap.mmap(-1, STACK_NBYTES), np.uint8)
        stack = int(self._stack.ctypes.data)
        uc.mem_map_ptr(stack, STACK_NBYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE, stack)
        self._top = stack + STACK_NBYTES
        self._shown: list[tuple[int, int]] = []  # addresses and sizes, during a call
        self._wild = ""  # what the call wanted that there is not

    def call(self, function: int, argument: int) -> int:
        """Calls a function; returns its one word as a signed number.

        Raises WildAccessError, CallingConventionError, and the errors of provided functions.
        """
        self._wild = ""
        uc, end = self._uc, self._top - 16  # nothing is run there: the emulator stops before
        for register in KEPT:
            uc.reg_write(register, MARK)
        uc.reg_write(registers.UC_ARM64_REG_SP, end)
        uc.reg_write(registers.UC_ARM64_REG_X0, argument)
        uc.reg_write(registers.UC_ARM64_REG_LR, end)
        try:
            with TURN:
                uc.emu_start(function, end)
        except UcError as error:
            raise WildAccessError(f"the code wants {self._wild or error}") from error
        finally:
            for start, nbytes in self._shown:  # it may not be there when the next call comes
                uc.mem_unmap(start, nbytes)
            self._shown.clear()
        kept = [uc.reg_read(register) for register in KEPT]
        if kept != [MARK] * len(KEPT) or uc.reg_read(registers.UC_ARM64_REG_SP) != end:
            raise CallingConventionError(f"the function at {function:#x} changed registers that it must keep")
        return ctypes.c_int64(uc.reg_read(registers.UC_ARM64_REG_X0)).value

    def _show(self, uc: Uc, access: int, address: int, size: int, value: int, data: Any) -> bool:
        """Maps this process's memory around an address; False if there is none."""
        found = None if access == unicorn.UC_MEM_FETCH_UNMAPPED else _mapping_at(address)
        if found is None:
            self._wild = f"{size} bytes at {address:#x}, where there is no memory"
            return False
        start, end, rights = found
        start, end = max(start, address // PIECE * PIECE), min(end, (address // PIECE + 1) * PIECE)
        for first, last, _ in uc.mem_regions():  # code, stack and others may be its neighbours
            start, end = (max(start, last + 1), end) if last < address else (start, min(end, first))
        uc.mem_map_ptr(start, end - start, rights, start)
        self._shown.append((start, end - start))
        return True

    def _call_provided(self, uc: Uc, number: int, data: Any) -> None:
        at = uc.reg_read(registers.UC_ARM64_REG_PC)
        if number != SUPERVISOR_CALL or at not in self._stubs:
            raise WildAccessError(f"exception {number} at {at:#x}, where no function is called")
        self._provided[self._stubs[at]](uc)


def is_memory(start: int, nbytes: int) -> bool:
    """True if all of these bytes are mapped in this process."""
    end = start + nbytes
    while start < end:
        found = _mapping_at(start)
        if found is None:
            return False
        start = found[1]
    return True


def _mapping_at(address: int) -> tuple[int, int, int] | None:
    """Begin, end and access rights of this process's mapping around an address."""
    with open("/proc/self/maps") as lines:
        for line in lines:
            bounds, flags, *_ = line.split()
            start, end = (int(text, 16) for text in bounds.split("-"))
            if start <= address < end:
                rights = unicorn.UC_PROT_READ * (flags[0] == "r") | unicorn.UC_PROT_WRITE * (flags[1] == "w")
                return (start, end, rights) if rights else None
    return None
