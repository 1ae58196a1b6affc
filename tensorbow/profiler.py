"""`tb.profiler`: traces of the work on every stream."""

from tensorbow.timeline import Span, StepStats, StreamTrack, Timeline, TraceCounter, Tracer, trace

__all__ = ["Span", "StepStats", "StreamTrack", "Timeline", "TraceCounter", "Tracer", "trace"]
