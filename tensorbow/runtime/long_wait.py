"""Waits for other processes: how long they may take, and a line in the log for those that take long."""

from __future__ import annotations

import logging
import math
import time

TOLD_S = 5.0  # a wait is told of after this time

_logger = logging.getLogger("tensorbow.runtime")


class LongWait:
    """Time since the wait began; `tell` says once, after TOLD_S, what is waited for."""

    def __init__(self, limit_s: float):
        self._limit_s, self._begin = limit_s, time.monotonic()
        self._is_told = False

    @property
    def left_s(self) -> float:
        """Seconds that are left; negative when the limit is over."""
        return self._begin + self._limit_s - time.monotonic()

    def tell(self, what: str) -> None:
        """Logs what is waited for, if the wait takes long and nobody has been told."""
        if not self._is_told and self._limit_s - self.left_s >= TOLD_S:
            self._is_told = True
            limit = "" if math.isinf(self._limit_s) else f" up to {self._limit_s:g} s"
            _logger.warning("%s; this process waits%s for it", what, limit)
