"""Errors of streams in this process."""

from __future__ import annotations

from tensorbow.errors import FailedPreconditionError, ResourceExhaustedError

__all__ = ["closed_stream", "no_thread", "not_drained", "own_thread"]


def closed_stream(title: str, label: str) -> FailedPreconditionError:
    """Error of work, or of an event if there is no label, enqueued after `close`."""
    return FailedPreconditionError(
        f"stream {title}: expected an open stream for {label or 'an event'!r}, got a closed one; "
        "enqueue before close(), or make a new stream"
    )


def no_thread(title: str, error: RuntimeError) -> ResourceExhaustedError:
    """Error of a stream for which the operating system gives no thread."""
    return ResourceExhaustedError(
        f"stream {title}: expected a new thread from the operating system, got {error}; "
        "close streams that are not needed"
    )


def own_thread(title: str) -> FailedPreconditionError:
    """Error of a stream that would wait for itself."""
    return FailedPreconditionError(
        f"stream {title}: expected synchronize() from another thread, got its own, which "
        "would wait for itself; wait where the work was enqueued"
    )


def not_drained(title: str, left: int) -> FailedPreconditionError:
    """Error of `reset` while that many items are left."""
    return FailedPreconditionError(
        f"stream {title}: expected a drained stream to reset, got {left} items to go; "
        "call synchronize() before reset()"
    )
