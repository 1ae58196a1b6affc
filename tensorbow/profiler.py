"""`tb.profiler`: what ran when, on which stream."""

from tensorbow.tracing import Span, StreamTrack, Timeline, TraceCounter, Tracer, trace

__all__ = ["Span", "StreamTrack", "Timeline", "TraceCounter", "Tracer", "trace"]
