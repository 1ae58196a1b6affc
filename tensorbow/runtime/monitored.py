"""A session for training loops: initialises, runs hooks, ends when the input does (TensorFlow 1's names)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from tensorbow.graph import Graph, get_default_graph
from tensorbow.runtime.global_step import get_global_step
from tensorbow.runtime.session import Session
from tensorbow.variables import Variable, global_variables_initializer


@dataclass
class SessionRunContext:
    """One call of `MonitoredSession.run`, for the hooks."""

    session: Session
    fetches: Any
    feed_dict: Mapping[Any, Any] | None
    stop_requested: bool = field(default=False, init=False)

    def request_stop(self) -> None:
        """The loop ends: `should_stop()` is true from now on."""
        self.stop_requested = True


class SessionRunHook:
    """What a loop calls around its steps; every method does nothing here."""

    def begin(self) -> None:
        """Before the session is made; the graph may still grow."""

    def after_create_session(self, session: Session) -> None:
        """The session is there, its variables are initialised."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """Before each `run`."""

    def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
        """After each `run`, with its results."""

    def end(self, session: Session) -> None:
        """At the end of a loop that no error has ended."""


class StopAtStepHook(SessionRunHook):
    """Ends the loop `num_steps` after its begin, or at `last_step` of the global step, as TensorFlow's hook.

    Where the graph has a global step (`get_global_step`), `num_steps` is counted by it, from the value it has
    when the session is made; else every call of `run` counts. It is looked at after each run, so that a loop
    that begins at its last step still does one.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None):
        """Raises InvalidArgumentError unless one of both is given, a whole number of at least 1."""
        if num_steps is None and last_step is None:
            raise InvalidArgumentError("StopAtStepHook: One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise InvalidArgumentError(
                f"StopAtStepHook: Only one of num_steps or last_step can be specified, "
                f"got {num_steps!r} and {last_step!r}"
            )
        given = last_step if num_steps is None else num_steps
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            raise InvalidArgumentError(f"StopAtStepHook: expected at least 1 step, got {given!r}")
        self._num_steps = num_steps
        self._last_step = last_step
        self._global_step: Variable | None = None
        self._stop_at = 0
        self._done = 0

    def begin(self) -> None:
        """Finds the global step. Raises FailedPreconditionError where `last_step` finds none."""
        self._global_step = get_global_step()
        if self._global_step is None and self._last_step is not None:
            raise FailedPreconditionError(
                "StopAtStepHook: Global step should be created to use last_step: "
                "tb.train.get_or_create_global_step(), given to minimize; or use num_steps"
            )

    def after_create_session(self, session: Session) -> None:
        """Starts to count."""
        self._done = 0
        if self._last_step is not None:
            self._stop_at = self._last_step
        elif self._num_steps is not None:
            self._stop_at = self._num_steps + self._reached(session)

    def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
        """Counts the run."""
        self._done += 1
        if self._reached(run_context.session) >= self._stop_at:
            run_context.request_stop()

    def _reached(self, session: Session) -> int:
        """The step now."""
        return self._done if self._global_step is None else int(session.run(self._global_step))


class MonitoredSession:
    """A session whose variables are initialised, and that ends with the input.

        with tb.train.MonitoredSession(hooks=[tb.train.StopAtStepHook(100)]) as session:
            while not session.should_stop():
                session.run(train_op)

    An OutOfRangeError, the end of the input, leaves the `with` block and goes no further; all other errors
    do. It is the default session meanwhile.
    """

    def __init__(
        self,
        hooks: Iterable[SessionRunHook] = (),
        *,
        target: str = "",
        graph: Graph | None = None,
        **options: Any,
    ):
        """A session over the graph (the default graph); options are those of `tb.Session`."""
        self.graph = graph if graph is not None else get_default_graph()
        self._hooks = list(hooks)
        self._stopping = False
        self._callbacks: list[Callable[[], None]] = []
        self._stack = ExitStack()
        with self.graph.as_default():
            for hook in self._hooks:
                hook.begin()
            initializer = global_variables_initializer()
        self._session: Session | None = Session(target, self.graph, **options)
        try:
            self._session.run(initializer)
            for hook in self._hooks:
                hook.after_create_session(self._session)
        except BaseException:
            self.close()
            raise

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """As `tb.Session.run`, with the hooks around it. Raises OutOfRangeError when the input has ended."""
        session = self._open()
        context = SessionRunContext(session, fetches, feed_dict)
        for hook in self._hooks:
            hook.before_run(context)
        try:
            values = session.run(fetches, feed_dict)
        except OutOfRangeError:
            self._stopping = True
            raise
        for hook in self._hooks:
            hook.after_run(context, values)
        self._stopping = self._stopping or context.stop_requested
        return values

    def should_stop(self) -> bool:
        """Whether a hook, the end of the input, or `close` has ended the loop."""
        return self._stopping or self._session is None

    def load_variables(self, values: Mapping[str, Any]) -> None:
        """As `tb.Session.load_variables`."""
        self._open().load_variables(values)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Has something called before the session closes, however it ends."""
        self._open()
        self._callbacks.append(callback)

    def _open(self) -> Session:
        if self._session is None:
            raise FailedPreconditionError("the monitored session is closed; make a new one")
        return self._session

    def close(self) -> None:
        """Calls what is to be called and closes the session; idempotent."""
        session, self._session = self._session, None
        with ExitStack() as stack:
            if session is not None:
                stack.callback(session.close)
            for callback in self._callbacks:
                stack.callback(callback)
            self._callbacks = []

    def __enter__(self) -> MonitoredSession:
        self._stack.enter_context(self._open().as_default())
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        self._stack.close()
        ends_well = kind is None or issubclass(kind, OutOfRangeError)
        try:
            if ends_well and self._session is not None:
                for hook in self._hooks:
                    hook.end(self._session)
        finally:
            self.close()
        return ends_well and kind is not None
