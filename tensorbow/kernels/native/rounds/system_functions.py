"""Functions of the operating system that native code calls: one that yields the processor, and the clock."""

from __future__ import annotations

import ctypes
import os
import sys

import llvmlite.binding as llvm

YIELD = "tensorbow_let_others_run"  # the C function that gives the processor to another thread
CLOCK = "tensorbow_clock"  # the C function clock_gettime
MONOTONIC = 1  # its number on Linux of the clock of `time.perf_counter`


def add_yield() -> bool:
    """Tells LLVM where the operating system's functions are; False where it has none that yields."""
    on_windows = os.name == "nt"
    library = ctypes.CDLL("kernel32" if on_windows else None)
    name = "SwitchToThread" if on_windows else "sched_yield"
    function = getattr(library, name, None)
    if has_clock():
        llvm.add_symbol(CLOCK, ctypes.cast(library.clock_gettime, ctypes.c_void_p).value)
    if function is not None:
        llvm.add_symbol(YIELD, ctypes.cast(function, ctypes.c_void_p).value)
    return function is not None


def has_clock() -> bool:
    """True where the code can read the clock of `time.perf_counter`, for traces: on Linux."""
    return sys.platform == "linux"
