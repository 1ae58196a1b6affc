"""Asynchronous messages between workers, beside collective calls, for runs with backup workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from scheduler.workers.group import WorkerGroup
from scheduler.workers.pulse import waiting
from tensorbow.errors import TensorBowError
from tensorbow.specs import Array

SHORTEST_REST_S, LONGEST_REST_S = 2e-5, 5e-4  # between two looks for a message

OnLetter = Callable[[int, Any], object]
"""(the sender's number, the message); called by the thread that listens. An error of MPI comes as a message
of this worker itself."""


class Letters:
    """Messages and vectors of one worker to another, in the order of sending for each pair of them.

    Messages belong to a conversation, as one run: what is left of an earlier one is dropped.
    """

    def __init__(self, workers: WorkerGroup):
        """workers: a group for letters alone."""
        self._workers = workers
        self._conversation = 0
        self._thread: threading.Thread | None = None
        self._listens = False

    def begin(self, on_letter: OnLetter, meanwhile: Callable[[], object]) -> None:
        """Begins a conversation, in which messages go to a function; all workers begin equally many.

        meanwhile: called before each look for a message, by the same thread.
        """
        self._conversation += 1
        self._listens = True
        self._thread = threading.Thread(
            target=self._listen, args=(on_letter, meanwhile), name="tensorbow-letters", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stops listening; idempotent."""
        self._listens = False
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def send(self, worker: int, message: Any) -> None:
        """Sends a message that can be pickled; returns at once."""
        self._workers.post(worker, (self._conversation, message))

    def send_vector(self, worker: int, array: Array) -> None:
        """Sends an array that lies in one piece to a worker that is about to take it."""
        with waiting():
            self._workers.give(worker, array)

    def take_vector(self, worker: int, array: Array) -> None:
        """Fills an array that lies in one piece with the next vector of a worker, which is about to send."""
        with waiting():
            self._workers.take(worker, array)

    def _listen(self, on_letter: OnLetter, meanwhile: Callable[[], object]) -> None:
        rest_s = SHORTEST_REST_S
        while self._listens:
            meanwhile()
            try:
                found = self._workers.posted()
            except TensorBowError as error:
                on_letter(self._workers.rank, error)
                return
            if found is None:
                time.sleep(rest_s)
                rest_s = min(2 * rest_s, LONGEST_REST_S)
                continue
            rest_s = SHORTEST_REST_S
            sender, (conversation, message) = found
            if conversation == self._conversation:
                on_letter(sender, message)
