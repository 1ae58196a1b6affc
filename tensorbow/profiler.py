"""`tb.profiler`: what ran when, on which stream."""

from tensorbow.timeline import Span, StreamTrack, Timeline, TraceCounter, Tracer, trace

__all__ = ["Span", "StreamTrack", "Timeline", "TraceCounter", "Tracer", "trace"]
