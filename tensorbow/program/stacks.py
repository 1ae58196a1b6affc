"""Stacks: memory for what the iterations of compiled loops keep for their gradients (white paper, 4.4).

A stack's frames lie one after the other in memory that grows as they come. Its words, its handle, lie in the
region CONTROL of a bound plan, and so does the word by which a running loop is stopped.
"""

from __future__ import annotations

import ctypes
import threading
from enum import IntEnum

import numpy as np

from tensorbow.specs import Array

ALIGNMENT = 64  # bytes, of a frame and of a handle
STOP_OFFSET = 0  # bytes, of the word in CONTROL that stops loops if it is not 0


class HandleWord(IntEnum):
    """Words of a stack."""

    ADDRESS = 0  # of the first frame
    NBYTES = 1  # that there is room for
    USED = 2  # frames, of all runs of its loop in this step
    WORDS = 3


_BUFFERS: dict[int, Array] = {}  # memory of the stacks, by the address of the handle
_LOCK = threading.Lock()  # guards the table


def grow(address: int, nbytes: int) -> int:
    """Makes room for so many bytes in the stack whose handle is at an address, with twice as many in reserve.

    Returns 1, or 0 where there is no memory. Frames keep their contents; the handle gets their new address.
    """
    words = words_at(address, HandleWord.WORDS)
    try:
        fresh = np.empty(2 * nbytes + ALIGNMENT, np.uint8)
    except MemoryError:
        return 0
    start = -fresh.ctypes.data % ALIGNMENT
    kept = int(words[HandleWord.NBYTES])
    if kept:
        ctypes.memmove(fresh.ctypes.data + start, int(words[HandleWord.ADDRESS]), min(kept, nbytes))
    with _LOCK:
        _BUFFERS[address] = fresh
    words[HandleWord.ADDRESS], words[HandleWord.NBYTES] = fresh.ctypes.data + start, 2 * nbytes
    return 1


def release(address: int, nbytes: int) -> None:
    """Frees the memory of all stacks whose handles lie in a range of addresses."""
    with _LOCK:
        for handle in [each for each in _BUFFERS if address <= each < address + nbytes]:
            del _BUFFERS[handle]


def words_at(address: int, count: int) -> Array:
    """Words at an address, as an array that can be written."""
    words: Array = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
    return words


GROW = "tensorbow_grow_stack"  # `grow` as native code calls it
GROW_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
GROW_CALLBACK = GROW_TYPE(grow)


def frame_at(handle: Array, position: int, nbytes: int, make: bool) -> Array:
    """The bytes of a frame. handle: the words. make: makes room for it. Raises MemoryError."""
    address = handle.ctypes.data
    words = words_at(address, HandleWord.WORDS)
    end = (position + 1) * nbytes
    if make and end > words[HandleWord.NBYTES] and not grow(address, end):
        raise MemoryError(f"no memory for {end} bytes of a stack")
    start = int(words[HandleWord.ADDRESS]) + position * nbytes
    frame: Array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(start))
    return frame
