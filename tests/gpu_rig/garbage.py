"""Times at which no garbage may be collected: it would free the pinned memory of closed devices."""

from __future__ import annotations

import gc
import threading


class Collector:
    """The garbage collector, off while anybody asks for it.

    During a capture, as by the runtime of a real GPU: no thread that captures may free memory. And while the
    table of emulated memory is locked, which a thread that frees memory locks, too.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rests, self._was_on = 0, True

    def rest(self) -> None:
        """Turns it off, until as many calls of `go_on`."""
        with self._lock:
            if not self._rests:
                self._was_on = gc.isenabled()
                gc.disable()
            self._rests += 1

    def go_on(self) -> None:
        """Turns it on again at the last of these calls."""
        with self._lock:
            self._rests -= 1
            if not self._rests and self._was_on:
                gc.enable()

    def __enter__(self) -> None:
        self.rest()

    def __exit__(self, *_: object) -> None:
        self.go_on()


COLLECTOR = Collector()
