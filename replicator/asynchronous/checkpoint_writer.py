"""Checkpoints of a parameter shard, written by a thread of their own while pushes go on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tensorbow.specs import Array
from tensorbow.training import RollingCheckpoints


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time: a slow disk holds up no worker.

    A checkpoint that is given while another is written replaces one that still waits, so the newest state is
    on disk at most one write later.
    """

    def __init__(self, checkpoints: RollingCheckpoints):
        self._checkpoints = checkpoints
        self._changed = threading.Condition()
        self._next: tuple[int, Mapping[str, Array], Mapping[str, Any]] | None = None
        self._error: Exception | None = None
        self._closing = False
        self._thread: threading.Thread | None = None  # from the first checkpoint on

    def write(self, round: int, arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
        """Has a checkpoint written; the arrays must not change any more.

        Raises the error of an earlier checkpoint that could not be written, once.
        """
        with self._changed:
            self._raise_error()
            self._next = round, arrays, metadata
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="tensorbow shard checkpoints", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Writes the checkpoint that waits, and ends the thread. Idempotent. Raises as `write`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._closing)
                if self._next is None:
                    return
                (round, arrays, metadata), self._next = self._next, None
            try:
                self._checkpoints.save(round, arrays, metadata)
            except Exception as error:  # told by the next call
                with self._changed:
                    self._error = error
