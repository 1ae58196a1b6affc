"""Checkpoints of a folder as another program writes them, for one that evaluates beside the training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from tensorbow.checkpoint_files import latest_checkpoint
from tensorbow.kinds import FUNCTION, AsPath, NonNegative, checked, optional

BETWEEN_LOOKS_S = 1.0
TimedOut = Annotated["Callable[[], Any] | None", optional(FUNCTION)]


@checked
def checkpoints_iterator(
    checkpoint_dir: AsPath,
    min_interval_secs: NonNegative = 0.0,
    timeout: NonNegative | None = None,
    timeout_fn: TimedOut = None,
) -> Iterator[str]:
    """Paths of a folder's newest checkpoints: the one that is there, and each that is there when asked next.

    min_interval_secs: at least so long from one path to the next. timeout: how many seconds to wait for a
    newer checkpoint, by default without end; then the iterator ends, unless `timeout_fn()`, if given, is
    false: then it waits again.
    """
    return _checkpoints(checkpoint_dir, min_interval_secs, timeout, timeout_fn)


def _checkpoints(
    folder: AsPath, interval_s: float, timeout_s: float | None, is_over: Callable[[], Any] | None
) -> Iterator[str]:
    known: str | None = None
    while True:
        newer = _newer(folder, known, timeout_s)
        if newer is None:
            if is_over is None or is_over():
                return
            continue
        began_s, known = time.monotonic(), newer
        yield newer
        time.sleep(max(0.0, began_s + interval_s - time.monotonic()))


def _newer(folder: AsPath, known: str | None, timeout_s: float | None) -> str | None:
    """The newest checkpoint, once it is another one than the known one; None after the timeout."""
    end_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        found = latest_checkpoint(folder)
        if found is not None and found != known:
            return found
        left_s = BETWEEN_LOOKS_S if end_s is None else end_s - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(left_s, BETWEEN_LOOKS_S))
