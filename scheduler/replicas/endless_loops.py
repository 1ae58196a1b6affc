"""Loops of replicas that count to no limit: an end to waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from scheduler.replicas.replica import Replica

GRACE_S = 1.0  # seconds that a loop has to end after an interrupt or a failure


@contextmanager
def loops_end(replicas: Sequence[Replica]) -> Iterator[None]:
    """Context of a wait for replicas: loops that may never end are stopped after `GRACE_S`."""
    endless = [replica for replica in replicas if replica.may_not_end]
    if not endless:
        yield
        return

    def stop() -> None:
        for replica in endless:
            replica.stop_loops()

    timer = threading.Timer(GRACE_S, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for replica in endless:
            replica.resume_loops()
