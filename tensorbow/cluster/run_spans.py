"""Spans of a run at a task: collected there, sent with its result, added to the traces of the session.

Clocks of machines differ, so a task sends times since it got the request, and the session counts them from
when it had sent it. A task's spans are early by the time that its request was on the way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from time import perf_counter

import numpy as np

from tensorbow.errors import DataLossError
from tensorbow.specs import Array
from tensorbow.strict_json import parse_json
from tensorbow.timeline import StreamTrack, Tracer

MOST_SPANS = 100_000  # of a task in one run; further ones are counted
MOST_VALUES = 32 * MOST_SPANS  # of a message of spans
ARRAYS = 4  # of a message of spans


class TaskSpans:
    """The spans of one run at one task; thread-safe. Times are of this process's `time.perf_counter`."""

    def __init__(self) -> None:
        self.began_s = perf_counter()
        self.tracer = Tracer(MOST_SPANS)
        self._tracks: dict[tuple[str, str], StreamTrack] = {}

    def track(self, device: str, stream: str) -> StreamTrack:
        """The row of a stream. device: its full name."""
        return self._tracks.setdefault((device, stream), StreamTrack(device, stream))

    def to_arrays(self) -> list[Array]:
        """The spans in a message, to be read by `TracesOfTasks.add`."""
        spans = list(self.tracer.spans)
        labels: dict[tuple[str, ...], int] = {}
        numbers = [
            labels.setdefault((s.track.device, s.track.stream, s.name, s.category, s.frame), len(labels))
            for s in spans
        ]
        iterations = [span.iteration for span in spans] if any(span.iteration for span in spans) else []
        about = {"dropped": self.tracer.dropped, "labels": [*labels], "iterations": iterations}
        return [
            np.frombuffer(json.dumps(about).encode(), np.uint8),
            np.array(numbers, np.int32),
            np.array([span.start_s - self.began_s for span in spans]),
            np.array([span.end_s - self.began_s for span in spans]),
        ]


class TracesOfTasks:
    """Adds the spans of tasks to the tracers of a session's runs; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, str], StreamTrack] = {}  # the same in all runs

    def add(self, tracers: Sequence[Tracer], arrays: Sequence[Array], sent_s: float) -> None:
        """Adds what `TaskSpans.to_arrays` gave. sent_s: when the request had been sent, by this process.

        Raises DataLossError for arrays of another form.
        """
        try:
            text, numbers, began, ended = arrays
            about = parse_json(text.tobytes().decode(), MOST_VALUES)
            labels = [(self._track(device, stream), *rest) for device, stream, *rest in about["labels"]]
            iterations = [tuple(map(int, each)) for each in about["iterations"]] or [()] * len(numbers)
            spans = [
                (*labels[number][:3], start_s + sent_s, end_s + sent_s, labels[number][3], iteration)
                for number, start_s, end_s, iteration in zip(
                    numbers.tolist(), began.tolist(), ended.tolist(), iterations, strict=True
                )
            ]
            dropped = int(about["dropped"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataLossError(f"run: no spans of a task: {error!r:.200}") from None
        for tracer in tracers:
            for span in spans:
                tracer.add(*span)
            tracer.dropped += dropped

    def _track(self, device: str, stream: str) -> StreamTrack:
        with self._lock:
            return self._tracks.setdefault((str(device), str(stream)), StreamTrack(str(device), str(stream)))
