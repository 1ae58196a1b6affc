"""Streams as threads, events as tokens in their queues, captures and graphs as lists of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from tensorbow.devices.cuda_runtime import CudaError


@dataclass(frozen=True)
class Work:
    """Unit of work of a stream. `run` raises CudaError on failure."""

    kind: str
    name: str
    run: Callable[[], None]


class Token:
    """Recording of an event: done when the stream has reached it."""

    def __init__(self, captured: bool = False) -> None:
        self.captured = captured
        self.at_s = 0.0
        self._done = threading.Event()

    def finish(self) -> None:
        self.at_s = time.perf_counter()
        self._done.set()

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        self._done.wait()


@dataclass
class Event:
    """token: of the last recording, None before the first."""

    timing: bool
    token: Token | None = None


@dataclass
class Capture:
    """Recording in progress."""

    thread: int
    works: list[Work] = field(default_factory=list)
    invalid: str = ""  # why nothing will come of it


class Graph:
    """Recorded work that can be launched. Launches of one graph run one after the other."""

    def __init__(self, works: list[Work]) -> None:
        self.works = tuple(works)
        self.pending = 0  # launches that have not ended
        self.running = threading.Lock()


class WorkerStream:
    """Thread that does work in first-in, first-out order, at its own pace."""

    def __init__(
        self, name: str, before: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        """before: called before each piece of work; failed: receives the error of failed work."""
        self.capture: Capture | None = None
        self._before, self._failed = before, failed
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._putting = threading.Lock()
        self._put = self._done = 0  # pieces of work; `_done` is the thread's
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        with self._putting:
            self._put += 1
            self._queue.put(work)

    def drain(self) -> None:
        """Returns when all work put so far is done."""
        if self._done == self._put:
            return
        token = Token()
        self.put(Work("drain", "", token.finish))
        token.wait()

    def end(self) -> None:
        """Ends the thread after the work put so far."""
        self._queue.put(None)

    def join(self) -> None:
        self._thread.join()

    def _loop(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                if work.kind not in ("drain", "record"):
                    self._before()
                work.run()
            except BaseException as error:
                self._failed(error)
            self._done += 1


def refused(call: str, status: str, reason: str) -> CudaError:
    """Error of a call that CUDA would refuse."""
    return CudaError(f"{call}: {reason} ({status})", status)
