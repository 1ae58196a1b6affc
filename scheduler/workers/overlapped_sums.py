"""Sums over workers that are exchanged while native code goes on: by a thread of their own, in order.

The thread asks MPI now and then whether a sum is there, and sleeps in between, so that the cores are left to
those who compute; MPI itself would look for it all the time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from tensorbow.errors import InvalidArgumentError, TensorBowError
from tensorbow.program import CALL_ARGUMENTS, NativeCall

OVERLAP = "TENSORBOW_OVERLAP"  # "never": wait for each sum at once; "always": short ones, too, on one machine
OVERLAP_NBYTES = 1 << 18  # shorter sums are over before another thread has begun them
OVERLAP_WORKERS = 16  # more wait at once; benchmarks/scaling_model.py: looks gain up to 8 to 16
NATIVE_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * CALL_ARGUMENTS)


def overlap_choice() -> str:
    """The value of TENSORBOW_OVERLAP. Raises InvalidArgumentError for one that does not exist."""
    choice = os.environ.get(OVERLAP, "")
    if choice not in ("", "never", "always"):
        raise InvalidArgumentError(
            f"{OVERLAP}: expected never or always, got {choice!r:.40}; unset it, and sums of 256 KiB or more "
            "are exchanged between machines while the next rounds run"
        )
    return choice


class OverlappedSums:
    """A thread that exchanges sums, one after the other, and the native calls that begin and await them."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Sequence[Callable[[], None]], SimpleQueue[int]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None
        self._kept: list[object] = []  # native code calls these

    def calls(self, sums: Sequence[Callable[[], None]]) -> tuple[NativeCall, NativeCall]:
        """The call that begins to exchange some sums, and the one that waits for their end; 0 for success.

        Waiting again gives the same: a worker that learns of another's failure after it has waited, and
        before it has used the sums, waits once more when it settles.
        """
        ended: SimpleQueue[int] = SimpleQueue()
        results: list[int] = []  # of the last sums, once they have ended

        def begin(*_: int) -> int:
            results.clear()
            self._asked.put((sums, ended))
            return 0

        def wait(*_: int) -> int:
            if not results:
                results.append(ended.get())
            return results[0]

        if self._thread is None:
            self._thread = threading.Thread(target=self._exchange, name="tensorbow-sums", daemon=True)
            self._thread.start()
        made = [NATIVE_SIGNATURE(function) for function in (begin, wait)]
        self._kept += made
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in made]
        begins, waits = ((address, *[0] * CALL_ARGUMENTS) for address in addresses)
        return begins, waits

    def _exchange(self) -> None:
        while (asked := self._asked.get()) is not None:
            sums, ended = asked
            failed = 0
            try:
                for each in sums:
                    each()
            except TensorBowError:  # who waits tells that other workers have failed
                failed = 1
            ended.put(failed)

    def close(self) -> None:
        """Ends the thread, when all that was begun has ended."""
        if self._thread is not None:
            self._asked.put(None)
            self._ending, self._thread = self._thread, None

    def join(self) -> None:
        """Waits for the end after `close`."""
        if self._ending is not None:
            self._ending.join()
