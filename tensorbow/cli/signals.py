"""Ctrl-C, a polite kill and a closed terminal: the first ends the program in order, with a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from tensorbow.launcher import ENDING, end_at_once

GRACE_S = 2.0  # signals that come so soon after one that counted mean the same wish
SHOW_CURSOR = b"\x1b[?25h"
_IMPORTING = "<frozen importlib."  # the file of functions that are at work during an import


class StopSignals:
    """Turns signals into a call of `on_stop`, or else KeyboardInterrupt in the main thread.

    A further signal is ignored for a moment (terminals and wrappers send several); after that it raises
    KeyboardInterrupt, whatever `on_stop` is. During an import the process ends at once instead: what is
    raised there becomes ImportError in C extensions, or another default of who imports. So it does when there
    is `nothing_to_save` any more, but output may wait for its reader.
    """

    def __init__(self) -> None:
        self._on_stop: Callable[[], None] | None = None
        self._last = -float("inf")
        self._number = signal.SIGINT
        self.nothing_to_save = False

    @property
    def status(self) -> int:
        """The exit status of a program that was interrupted, as shells count: 130 after Ctrl-C."""
        return 128 + self._number

    @contextlib.contextmanager
    def installed(self, for_good: bool = False) -> Iterator[None]:
        """Handles signals within the block; elsewhere than in the main thread it does nothing.

        for_good: afterwards they are ignored, since the process is about to end with its own status;
        else they are handled as before.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in ENDING}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # of nohup, or of a script's background job
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if for_good else handler)

    @contextlib.contextmanager
    def calling(self, on_stop: Callable[[], None]) -> Iterator[None]:
        """Within the block the first signal calls `on_stop` instead of raising."""
        self._on_stop = on_stop
        try:
            yield
        finally:
            self._on_stop = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last < GRACE_S:
            return
        on_stop, self._on_stop = self._on_stop, None
        self._last, self._number = now, signal.Signals(number)
        if on_stop is not None:
            on_stop()
        elif self.nothing_to_save or _imports(frame):
            _show_cursor()
            end_at_once(number)
        else:
            raise KeyboardInterrupt


def _show_cursor() -> None:
    """Gives a terminal its cursor back, which a bar or spinner of rich hides while it is shown."""
    if os.environ.get("TERM", "").lower() in ("", "dumb", "unknown"):
        return
    for handle in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(handle):
                os.write(handle, SHOW_CURSOR)
                return


def _imports(frame: FrameType | None) -> bool:
    """Whether an import is at work where a signal came."""
    while frame is not None and not frame.f_code.co_filename.startswith(_IMPORTING):
        frame = frame.f_back
    return frame is not None
