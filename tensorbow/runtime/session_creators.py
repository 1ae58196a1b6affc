"""Creators of a monitored session's sessions, which give variables values or wait for them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import GraphKeys, Operation, get_default_graph
from tensorbow.ops.control import group
from tensorbow.runtime.long_wait import LongWait
from tensorbow.runtime.session import Session
from tensorbow.variables import (
    global_variables,
    global_variables_initializer,
    local_variables,
    local_variables_initializer,
)

PAUSE_S = 0.2  # between two looks whether the cluster is back, or the chief has initialised the variables


class SessionCreator(ABC):
    """Makes the sessions of a MonitoredSession, whose variables have values: one, and one after each fault.

    target: of the sessions. max_wait_secs: how long it waits for a chief, or for tasks that have failed.
    """

    target: str = ""
    max_wait_secs: float = 7200.0

    @abstractmethod
    def create_session(self) -> Session:
        """A new session over the default graph, which is complete by now."""


class PlainSessionCreator(SessionCreator):
    """Initialises all variables, or waits for the chief to do so."""

    def __init__(self, target: str, is_chief: bool, max_wait_secs: float, options: Mapping[str, Any]):
        self.target, self.max_wait_secs = target, max_wait_secs
        self._is_chief, self._options = is_chief, options
        self._initializers: list[Operation] | None = None

    def create_session(self) -> Session:
        """A new session. Raises FailedPreconditionError if the chief gives no values in time."""
        if self._initializers is None:
            local = local_initializer()
            self._initializers = [global_variables_initializer()] if self._is_chief else []
            self._initializers += [] if local is None else [local]
        session = Session(self.target, get_default_graph(), **self._options)
        try:
            if not self._is_chief:
                await_variables(session, self.max_wait_secs)
            for initializer in self._initializers:
                session.run(initializer)
        except BaseException:
            session.close()
            raise
        return session


def local_initializer() -> Operation | None:
    """Initialises local variables and lookup tables of the default graph; None if there are none."""
    tables = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(local_variables_initializer(), *tables) if tables or local_variables() else None


def await_variables(session: Session, max_wait_secs: float) -> None:
    """Waits until the chief of a cluster has given all global variables values.

    Raises FailedPreconditionError if it does not in time, InvalidArgumentError without a cluster.
    """
    without_value = getattr(session, "without_value", None)
    if without_value is None:
        raise InvalidArgumentError(
            "MonitoredSession: is_chief=False needs the target of a tb.train.Server, whose chief "
            "initialises the variables; leave it out"
        )
    with session.graph.as_default():
        variables = [variable.op for variable in global_variables()]
    wait = LongWait(max_wait_secs)
    while missing := without_value(variables):
        names = ", ".join(missing[:3])
        wait.tell(f"MonitoredSession: the chief has not initialised {names}; start the chief")
        if wait.left_s < 0:
            raise FailedPreconditionError(
                f"MonitoredSession: waited {max_wait_secs:g} s for the chief to initialise "
                f"{names}; start the chief, with the same ClusterSpec and graph, or give max_wait_secs"
            )
        time.sleep(PAUSE_S)
