"""Default graphs and sessions of a thread: those entered by `with`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tensorbow.errors import FailedPreconditionError
from tensorbow.kinds import refuse


class _Stack(threading.local):
    """One stack per thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.making = 0  # functions that are being made

    @contextmanager
    def entered(self, item: Any) -> Iterator[None]:
        """Context in which `item` is in the stack; contexts may end in any order."""
        self.stack.append(item)
        try:
            yield
        finally:
            for index in reversed(range(len(self.stack))):
                if self.stack[index] is item:
                    del self.stack[index]
                    break


default_graphs = _Stack()
_sessions = _Stack()


def get_default_session() -> Any:
    """The innermost session entered by `with` in this thread, or None."""
    return _sessions.stack[-1] if _sessions.stack else None


def default_session(session: Any) -> AbstractContextManager[None]:
    """Makes a session the default of `eval` and `run` in this thread."""
    return _sessions.entered(session)


def require_session(session: Any, what: str) -> Any:
    """The given session, else the default session.

    Raises FailedPreconditionError if there is none, InvalidArgumentError for an object that is no session.
    """
    runner = session if session is not None else get_default_session()
    if session is not None and (isinstance(session, type) or not hasattr(session, "load_variables")):
        raise refuse(what, "session", "a session or None", session)
    if runner is None:
        raise FailedPreconditionError(f"{what}: no session; use `with tb.Session():` or give session=")
    return runner
