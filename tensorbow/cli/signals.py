"""Handling of SIGINT, SIGTERM and SIGHUP: the first signal ends a run in order, with a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from tensorbow.launcher import ENDING, end_at_once

GRACE_S = 2.0  # seconds after a signal in which further ones are ignored as repetitions
SHOW_CURSOR = b"\x1b[?25h"
_IMPORTING = "<frozen importlib."  # start of the file name of functions that run during an import


class StopSignals:
    """Turns the first signal into a call of `on_stop` if there is one, others into KeyboardInterrupt.

    Signals within GRACE_S of the last are ignored: terminals and wrappers send several. During an import the
    process ends at once instead of raising: C extensions turn an exception there into ImportError, and other
    importers may ignore it. It also ends at once with `nothing_to_save`, when only output is pending.
    """

    def __init__(self) -> None:
        self._on_stop: Callable[[], None] | None = None
        self._last = -float("inf")
        self._number = signal.SIGINT
        self.nothing_to_save = False

    @property
    def status(self) -> int:
        """Exit status of an interrupted program, by the convention of shells: 130 after Ctrl-C."""
        return 128 + self._number

    @contextlib.contextmanager
    def installed(self, for_good: bool = False) -> Iterator[None]:
        """Context in which signals are handled; has no effect outside of the main thread.

        for_good: ignore signals afterwards, since the process is about to exit with its own status;
        otherwise the previous handlers are restored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in ENDING}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # ignored signals stay so: nohup, background jobs of scripts
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if for_good else handler)

    @contextlib.contextmanager
    def calling(self, on_stop: Callable[[], None]) -> Iterator[None]:
        """Context in which the first signal calls `on_stop` instead of raising."""
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
    """Shows the terminal's cursor again, which rich hides while it shows a bar or spinner."""
    if os.environ.get("TERM", "").lower() in ("", "dumb", "unknown"):
        return
    for handle in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(handle):
                os.write(handle, SHOW_CURSOR)
                return


def _imports(frame: FrameType | None) -> bool:
    """True if the code that a signal interrupted is part of an import."""
    while frame is not None and not frame.f_code.co_filename.startswith(_IMPORTING):
        frame = frame.f_back
    return frame is not None
