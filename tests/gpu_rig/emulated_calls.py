"""Common part of all calls of the emulated runtime: sticky errors, injected faults, the log."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorbow.devices.cuda_runtime import CudaError, CudaRuntime, GpuProperties
from tensorbow.errors import ResourceExhaustedError
from tests.gpu_rig.cuda_compiler import HostKernel
from tests.gpu_rig.emulated_memory import MEMORY, Block
from tests.gpu_rig.emulated_streams import Event, Graph, Token, Work, WorkerStream, refused

HANDLES = itertools.count(0x7E50_0001)
EVENTS: dict[int, Event] = {}  # of all runtimes: a stream may wait for another GPU's event
UNSUPPORTED = "cudaErrorStreamCaptureUnsupported"
QUERIES = {"is_done", "synchronize_event", "elapsed_ms", "memory_info"}  # forbidden while the thread captures
CURRENT = threading.local()  # `gpu`: the one that is current in this thread


class LoggedCall(NamedTuple):
    """A call of the runtime. stream: 0 for calls that have none."""

    kind: str
    stream: int
    name: str


@dataclass
class _Fault:
    error: CudaError | ResourceExhaustedError
    after: int
    asynchronous: bool


class EmulatedCalls(CudaRuntime):
    """State of an emulated GPU, and the parts that its calls share."""

    def __init__(
        self,
        *,
        memory_nbytes: int = 1 << 30,
        multiprocessors: int = 4,
        architecture: int = 80,
        delay: Callable[[], None] | None = None,
        backwards: bool = False,
        nhwc: bool = True,
    ):
        """delay: called by a stream's thread before each piece of work, to disturb the timing.

        backwards: blocks, and threads between barriers, run in reverse order. nhwc: whether the emulated
        cuDNN takes NHWC tensors, or says that it does not support them.
        """
        self.properties = GpuProperties(
            "Emulated GPU", architecture, multiprocessors, memory_nbytes, 48 << 10
        )
        self.delay, self.backwards, self.nhwc = delay, backwards, nhwc
        self.log: deque[LoggedCall] = deque(maxlen=200_000)
        self.counts: Counter[str] = Counter()
        self.waits_for_free = 0  # calls of `free` while work was under way: a GPU would come to a halt
        self._lock = threading.RLock()
        self._streams: dict[int, WorkerStream] = {}
        self._events: set[int] = set()
        self._modules: dict[int, dict[str, HostKernel]] = {}
        self._functions: dict[int, tuple[int, HostKernel]] = {}
        self._graphs: dict[int, Graph] = {}
        self._faults: dict[str, list[_Fault]] = {}
        self._failure: CudaError | None = None
        self._pending = 0
        self._libraries: dict[str, Any] = {}

    # What tests ask and arrange ---------------------------------------------------------------------------

    def fail_next(
        self,
        kind: str,
        status: str = "cudaErrorUnknown",
        *,
        sticky: bool = False,
        after: int = 0,
        asynchronous: bool | None = None,
    ) -> None:
        """Makes a coming call fail. kind: the method's name; after: number of calls that succeed before.

        asynchronous: the call returns and its work fails on the stream (the default for sticky errors).
        """
        error: CudaError | ResourceExhaustedError = CudaError(f"{kind}: {status} (injected)", status, sticky)
        if kind in ("allocate", "allocate_pinned") or status == "cudaErrorMemoryAllocation":
            error = ResourceExhaustedError(f"{kind}: cudaErrorMemoryAllocation (injected)")
        enqueued = kind in ("launch", "launch_graph", "copy", "fill")
        later = enqueued and (sticky if asynchronous is None else asynchronous)
        self._faults.setdefault(kind, []).append(_Fault(error, after, later))

    def check_clean(self) -> None:
        """Raises AssertionError when streams, events, graphs or memory are left, or memory was overrun."""
        left = {
            "streams": len(self._streams),
            "events": len(self._events),
            "graphs": len(self._graphs),
            "device blocks": len(MEMORY.live(self, False)),
            "pinned blocks": len(MEMORY.live(self, True)),
        }
        assert not any(left.values()), f"left open: {left}"

    def damaged(self) -> list[Block]:
        """Live blocks whose guards were overwritten."""
        return MEMORY.damaged(self)

    def close(self) -> None:
        """Ends all threads and forgets all memory, whatever the state."""
        with self._lock:
            streams, self._streams = list(self._streams.values()), {}
            for event in self._events:
                EVENTS.pop(event, None)
            self._events.clear()
        for stream in streams:
            if stream.capture is not None:
                stream.capture.leave()
            stream.end()
        for stream in streams:
            stream.join()
        MEMORY.release(self)

    def enqueue(self, stream: int, kind: str, name: str, run: Callable[[], None]) -> None:
        """Puts work on a stream, or into its capture; the emulated libraries use it too."""
        self._enter(kind, logged=False)
        with self._lock:
            worker = self._stream(stream, kind)
            self.log.append(LoggedCall(kind, stream, name))
            self.counts[kind] += 1
            fault = self._fault(kind)
            if fault is not None:
                if not fault.asynchronous:
                    self._note(fault.error)
                    raise fault.error
                run = _raising(fault.error)
            capture = worker.capture
            if capture is not None:
                if capture.thread != threading.get_ident():
                    capture.invalid = f"{kind} {name} of another thread"
                    raise refused(
                        kind, "cudaErrorStreamCaptureWrongThread", "another thread captures the stream"
                    )
                if capture.invalid:
                    raise refused(kind, "cudaErrorStreamCaptureInvalidated", capture.invalid)
                capture.add(worker, Work(kind, name, run))
                return
            self._pending += 1
            worker.put(Work(kind, name, self._guarded(run)))

    def is_capturing(self, stream: int) -> bool:
        """True if work enqueued on the stream is recorded."""
        return self._stream(stream, "is_capturing").capture is not None

    def _enter(
        self, call: str, stream: int = 0, name: str = "", unsafe: bool = False, logged: bool = True
    ) -> None:
        """Starts a call: makes this GPU current, raises sticky and injected errors, refuses calls forbidden
        during a capture.
        """
        CURRENT.gpu = self
        with self._lock:
            if self._failure is not None and self._failure.sticky:
                raise CudaError(f"{call}: after {self._failure}", self._failure.status, sticky=True)
            if not logged:  # `enqueue` does the rest
                return
            self.log.append(LoggedCall(call, stream, name))
            self.counts[call] += 1
            fault = self._fault(call)
            if fault is not None:
                self._note(fault.error)
                raise fault.error
            if unsafe or call in QUERIES:
                for worker in self._streams.values():
                    if worker.capture is not None and worker.capture.thread == threading.get_ident():
                        worker.capture.invalid = f"{call} by the capturing thread"
                        raise refused(call, UNSUPPORTED, "this thread captures a stream")

    def _fault(self, kind: str) -> _Fault | None:
        """Injected fault that is due."""
        for fault in self._faults.get(kind, []):
            if fault.after == 0:
                self._faults[kind].remove(fault)
                return fault
            fault.after -= 1
        return None

    def _note(self, error: BaseException) -> None:
        if isinstance(error, CudaError) and error.sticky:
            self._failure = error

    def _stream(self, stream: int, call: str) -> WorkerStream:
        worker = self._streams.get(stream)
        if worker is None:
            raise refused(call, "cudaErrorInvalidResourceHandle", f"{stream:#x} is no stream of this GPU")
        return worker

    def _event(self, event: int, call: str) -> Event:
        known = EVENTS.get(event)
        if known is None:
            raise refused(call, "cudaErrorInvalidResourceHandle", f"{event:#x} is no event")
        return known

    def _not_capturing(self, stream: int, call: str) -> WorkerStream:
        worker = self._stream(stream, call)
        if worker.capture is not None:
            worker.capture.invalid = f"{call} of the captured stream"
            raise refused(call, UNSUPPORTED, "the stream is being captured")
        return worker

    def _uncaptured(self, event: int, call: str) -> Token | None:
        token = self._event(event, call).token
        if token is not None and token.capture is not None:
            raise refused(call, "cudaErrorCapturedEvent", "the event was recorded in a capture")
        return token

    def _guarded(self, run: Callable[[], None]) -> Callable[[], None]:
        """Work that does nothing after a sticky error, and is counted as pending."""

        def guarded() -> None:
            try:
                if self._failure is None or not self._failure.sticky:
                    run()
            finally:
                with self._lock:
                    self._pending -= 1

        return guarded

    def _before_work(self) -> None:
        if self.delay is not None:
            self.delay()

    def _work_failed(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                is_cuda = isinstance(error, CudaError)
                self._failure = (
                    error if is_cuda else CudaError(f"{type(error).__name__}: {error}", "emulator", True)
                )

    def _raise_failure(self, call: str) -> None:
        with self._lock:
            failure = self._failure
            if failure is not None:
                if not failure.sticky:
                    self._failure = None
                raise CudaError(f"{call}: {failure}", failure.status, failure.sticky)


def _raising(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run
