"""Spans of a dynamic step that is traced: what ran, in which frame and iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeAlias

from tensorbow.timeline import StreamTrack, Tracer

Tell: TypeAlias = Callable[[str, str, float, float], None]
"""Takes a span: name, category, begin and end in seconds of `time.perf_counter`."""


class StepSpans:
    """Adds the spans of one step to tracers, in a row of their own."""

    def __init__(self, tracers: Sequence[Tracer], track: StreamTrack):
        self._tracers = tracers
        self._track = track

    def teller(self, frame: str, iteration: tuple[int, ...]) -> Tell:
        """A function that adds spans of a frame's iteration; "" and () outside loops."""

        def tell(name: str, category: str, began_s: float, ended_s: float) -> None:
            for tracer in self._tracers:
                tracer.add(self._track, name, category, began_s, ended_s, frame, iteration)

        return tell


class TimedCalls:
    """Runs calls one by one, and tells the span of each."""

    def __init__(self, tell: Tell, category: str):
        self._tell, self._category = tell, category

    def run(self, name: str, call: Callable[[], None]) -> None:
        """Runs a call; one that raises is told too."""
        began_s = perf_counter()
        try:
            call()
        finally:
            self._tell(name, self._category, began_s, perf_counter())
