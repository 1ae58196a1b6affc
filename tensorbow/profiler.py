"""`tb.profiler`: traces of the work on every stream."""

from tensorbow.timeline import Span, StreamTrack, Timeline, TraceCounter, Tracer, trace

__all__ = ["Span", "StreamTrack", "Timeline", "TraceCounter", "Tracer", "trace"]
