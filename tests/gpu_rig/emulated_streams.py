"""Streams as threads, events as tokens in their queues, captures and graphs as lists of work."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from tensorbow.devices.cuda_runtime import CudaError
from tests.gpu_rig.garbage import COLLECTOR


@dataclass(frozen=True)
class Work:
    """Unit of work of a stream. `run` raises CudaError on failure."""

    kind: str
    name: str
    run: Callable[[], None]


class Token:
    """Recording of an event: done when the stream has reached it; in a capture the works that lie before."""

    def __init__(self, capture: Capture | None = None, before: frozenset[int] = frozenset()) -> None:
        self.capture, self.before = capture, before
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


@dataclass(eq=False)
class Capture:
    """Recording in progress, of the stream that began it and of those that have waited for its events."""

    thread: int
    origin: WorkerStream
    works: list[Work] = field(default_factory=list)
    before: list[frozenset[int]] = field(default_factory=list)  # by work, those that it follows at once
    ends: dict[WorkerStream, frozenset[int]] = field(default_factory=dict)  # by stream, its last works
    invalid: str = ""  # why nothing will come of it

    def __post_init__(self) -> None:
        COLLECTOR.rest()

    def add(self, stream: WorkerStream, work: Work) -> None:
        """Records work of a stream."""
        self.before.append(self.ends[stream])
        self.ends[stream] = frozenset({len(self.works)})
        self.works.append(work)

    def join(self, stream: WorkerStream, token: Token) -> None:
        """Has a stream go on behind a recorded event."""
        stream.capture = self
        self.ends[stream] = self.ends.get(stream, frozenset()) | token.before

    def end(self) -> None:
        """Ends it. Work that the first stream does not follow makes the capture invalid."""
        followed, left = set[int](), [*self.ends[self.origin]]
        while left:
            work = left.pop()
            if work not in followed:
                followed.add(work)
                left += self.before[work]
        if len(followed) < len(self.works):
            self.invalid = self.invalid or "work on another stream that the first does not wait for"
        self.leave()

    def leave(self) -> None:
        """Lets all streams go, whatever was recorded."""
        for stream in self.ends:
            stream.capture = None
        COLLECTOR.go_on()


class Graph:
    """Recorded work that can be launched. Launches of one graph run one after the other."""

    def __init__(self, works: list[Work], before: list[frozenset[int]]) -> None:
        self.works, self.before = tuple(works), before
        self._order = random.Random(len(works))  # other orders show waits that are missing
        self.pending = 0  # launches that have not ended
        self.running = threading.Lock()

    def in_some_order(self) -> Iterator[Work]:
        """All work, in an order that is allowed, another one at each launch."""
        left = [len(before) for before in self.before]
        after: list[list[int]] = [[] for _ in self.works]
        for number, before in enumerate(self.before):
            for other in before:
                after[other].append(number)
        ready = [number for number, count in enumerate(left) if not count]
        while ready:
            number = ready.pop(self._order.randrange(len(ready)))
            yield self.works[number]
            for other in after[number]:
                left[other] -= 1
                if not left[other]:
                    ready.append(other)


class _StreamThread(threading.Thread):
    """Thread of a stream."""


def in_stream() -> bool:
    """True if the caller is the thread of a stream, which must not wait for streams: for its own for ever."""
    return isinstance(threading.current_thread(), _StreamThread)


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
        self._thread = _StreamThread(target=self._loop, name=name, daemon=True)
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
