"""Ctrl-C, a polite kill and a closed terminal: the first ends the program in order, with a checkpoint."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

GRACE_S = 2.0  # signals that come so soon after one that counted mean the same wish

_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class StopSignals:
    """Turns signals into a call of `on_stop`, or else KeyboardInterrupt in the main thread.

    A further signal is ignored for a moment (terminals and wrappers send several); after that it raises
    KeyboardInterrupt, whatever `on_stop` is.
    """

    def __init__(self) -> None:
        self._on_stop: Callable[[], None] | None = None
        self._last = -float("inf")

    @contextlib.contextmanager
    def installed(self, for_good: bool = False) -> Iterator[None]:
        """Handles signals within the block; elsewhere than in the main thread it does nothing.

        for_good: afterwards they are ignored, since the process is about to end with its own status;
        else they are handled as before.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if number == signal.SIGINT or handler is not signal.SIG_IGN:  # nohup stays nohup
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
        self._last = now
        if on_stop is None:
            raise KeyboardInterrupt
        on_stop()
