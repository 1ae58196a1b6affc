"""Streams, events, captures and graphs of the emulated runtime."""

from __future__ import annotations

import threading

from tensorbow.errors import TensorBowError
from tests.gpu_rig.emulated_calls import EVENTS, HANDLES, UNSUPPORTED, EmulatedCalls
from tests.gpu_rig.emulated_streams import Capture, Event, Graph, Token, Work, WorkerStream, refused


class EmulatedEvents(EmulatedCalls):
    """The part of the runtime that orders work."""

    def make_stream(self, priority: int = 0) -> int:
        """Starts a thread with a queue; the priority is logged and has no effect."""
        self._enter("make_stream", name=str(priority))
        handle = next(HANDLES)
        worker = WorkerStream(f"emulated stream {handle:#x}", self._before_work, self._work_failed)
        with self._lock:
            self._streams[handle] = worker
        return handle

    def destroy_stream(self, stream: int) -> None:
        """Ends the stream's thread after the enqueued work."""
        self._enter("destroy_stream", stream)
        with self._lock:
            worker = self._stream(stream, "destroy_stream")
            if worker.capture is not None:
                raise refused("destroy_stream", UNSUPPORTED, "the stream is being captured")
            del self._streams[stream]
        worker.end()

    def synchronize_stream(self, stream: int) -> None:
        """Waits for the enqueued work; raises its errors."""
        self._enter("synchronize_stream", stream)
        worker = self._not_capturing(stream, "synchronize_stream")
        worker.drain()
        self._raise_failure("synchronize_stream")

    def make_event(self, *, timing: bool = False) -> int:
        """Creates an event; before its first recording it counts as done."""
        self._enter("make_event")
        handle = next(HANDLES)
        with self._lock:
            EVENTS[handle] = Event(timing)
            self._events.add(handle)
        return handle

    def destroy_event(self, event: int) -> None:
        """Destroys an event; streams that wait for it still wait for its recording."""
        self._enter("destroy_event")
        with self._lock:
            self._event(event, "destroy_event")
            del EVENTS[event]
            self._events.discard(event)

    def record(self, event: int, stream: int) -> None:
        """Puts a token into the stream's queue; in a capture one that must not be queried from outside."""
        self._enter("record", stream, str(event))
        with self._lock:
            worker, known = self._stream(stream, "record"), self._event(event, "record")
            if event not in self._events:
                raise refused("record", "cudaErrorInvalidResourceHandle", "the event is of another GPU")
            if worker.capture is not None:
                known.token = Token(worker.capture, worker.capture.ends[worker])
                return
            token = known.token = Token()
            worker.put(Work("record", "", token.finish))

    def is_done(self, event: int) -> bool:
        """True if the last recording is done."""
        self._enter("is_done")
        token = self._uncaptured(event, "is_done")
        self._raise_failure("is_done")
        return token is None or token.is_done()

    def synchronize_event(self, event: int) -> None:
        """Waits for the last recording."""
        self._enter("synchronize_event")
        token = self._uncaptured(event, "synchronize_event")
        if token is not None:
            token.wait()
        self._raise_failure("synchronize_event")

    def elapsed_ms(self, start: int, end: int) -> float:
        """Milliseconds by the host's clock between the times at which the streams reached the events."""
        self._enter("elapsed_ms")
        tokens = [self._uncaptured(event, "elapsed_ms") for event in (start, end)]
        if not all(self._event(e, "elapsed_ms").timing for e in (start, end)) or None in tokens:
            raise refused(
                "elapsed_ms", "cudaErrorInvalidResourceHandle", "not recorded, or made without timing"
            )
        first, last = (t for t in tokens if t is not None)
        if not (first.is_done() and last.is_done()):
            raise refused("elapsed_ms", "cudaErrorNotReady", "an event is not done")
        return (last.at_s - first.at_s) * 1e3

    def wait(self, stream: int, event: int) -> None:
        """Makes the stream's thread wait for the event's last recording at the time of the call."""
        self._enter("wait", stream, str(event))
        with self._lock:
            worker, token = self._stream(stream, "wait"), self._event(event, "wait").token
            capture = None if token is None else token.capture
            goes_on = capture is not None and capture.origin.capture is capture
            if token is not None and capture is not None and goes_on and worker.capture in (None, capture):
                capture.join(worker, token)
                return
            if worker.capture is not None or capture is not None:
                if worker.capture is not None:
                    worker.capture.invalid = "a wait for an event outside the capture"
                raise refused(
                    "wait",
                    "cudaErrorStreamCaptureIsolation",
                    "the event and the stream are not captured together",
                )
            if token is not None:
                worker.put(Work("wait", "", token.wait))

    # Captures and graphs --------------------------------------------------------------------------------

    def begin_capture(self, stream: int) -> None:
        """Begins a capture of the calling thread."""
        self._enter("begin_capture", stream)
        with self._lock:
            worker = self._stream(stream, "begin_capture")
            if worker.capture is not None:
                worker.capture.invalid = "a second begin_capture"
                raise refused("begin_capture", "cudaErrorIllegalState", "the stream is being captured")
            worker.capture = Capture(threading.get_ident(), worker)
            worker.capture.ends[worker] = frozenset()

    def end_capture(self, stream: int) -> int:
        """Ends a capture, in the thread that began it; a capture that fails has ended all the same."""
        try:
            self._enter("end_capture", stream)
        except TensorBowError:
            worker = self._stream(stream, "end_capture")
            if worker.capture is not None:
                worker.capture.end()
            raise
        with self._lock:
            worker = self._stream(stream, "end_capture")
            capture = worker.capture
            if capture is None:
                raise refused("end_capture", "cudaErrorIllegalState", "the stream is not being captured")
            if capture.thread != threading.get_ident():
                raise refused("end_capture", "cudaErrorStreamCaptureWrongThread", "another thread began it")
            if capture.origin is not worker:
                raise refused("end_capture", "cudaErrorStreamCaptureUnmatched", "another stream began it")
            capture.end()
            if capture.invalid:
                raise refused("end_capture", "cudaErrorStreamCaptureInvalidated", capture.invalid)
            handle = next(HANDLES)
            self._graphs[handle] = Graph(capture.works, capture.before)
            return handle

    def launch_graph(self, graph: int, stream: int) -> None:
        """Enqueues the recorded work, in order."""
        self._enter("launch_graph", logged=False)
        with self._lock:
            known = self._graphs.get(graph)
            if known is None:
                raise refused("launch_graph", "cudaErrorInvalidValue", f"{graph:#x} is no graph")
            if self._stream(stream, "launch_graph").capture is not None:
                raise refused("launch_graph", UNSUPPORTED, "graphs within graphs are not emulated")
            known.pending += 1

        def run() -> None:
            try:
                with known.running:
                    for work in known.in_some_order():
                        self._before_work()
                        work.run()
            finally:
                with self._lock:
                    known.pending -= 1

        try:
            self.enqueue(stream, "launch_graph", f"{graph:#x}", run)
        except TensorBowError:
            known.pending -= 1
            raise

    def destroy_graph(self, graph: int) -> None:
        """Destroys a graph; refused while it runs."""
        self._enter("destroy_graph")
        with self._lock:
            known = self._graphs.get(graph)
            if known is None:
                raise refused("destroy_graph", "cudaErrorInvalidValue", f"{graph:#x} is no graph")
            if known.pending:
                raise refused("destroy_graph", "cudaErrorIllegalState", "the graph is running")
            del self._graphs[graph]

    def graph_works(self, graph: int) -> list[str]:
        """Recorded works: kinds and names."""
        return [f"{work.kind} {work.name}".strip() for work in self._graphs[graph].works]
