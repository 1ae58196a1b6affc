"""Forked processes: a fork copies memory, but not the threads that work on it."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from tensorbow.errors import FailedPreconditionError

__all__ = ["ServedByThread", "forked", "tell_of_forks"]


class ServedByThread(Protocol):
    """An object that a thread works for."""

    def lose_thread(self) -> None:
        """Called in a forked process, which does not have the thread."""


_served: WeakSet[ServedByThread] = WeakSet()


def tell_of_forks(owner: ServedByThread) -> None:
    """Registers `owner.lose_thread()` to be called in every process forked while the owner lives."""
    _served.add(owner)


def forked(what: str) -> FailedPreconditionError:
    """The error of an object made before a fork and used after it."""
    return FailedPreconditionError(
        f"{what}: expected the process that made it, got one that was forked from it, without its threads; "
        "a session or replicator made before a fork cannot be used after it: make a new one"
    )


def _lose_threads() -> None:
    for owner in list(_served):
        owner.lose_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_threads)
