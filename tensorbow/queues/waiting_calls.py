"""Calls that wait for the state of an object of the process: of accumulators, barriers and staging areas."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from tensorbow.errors import CancelledError
from tensorbow.graph import NOT_DIFFERENTIABLE, HostCall, OpDef
from tensorbow.ops.definition import define_op

Later: TypeAlias = "Callable[[], None]"
Attempt: TypeAlias = "Callable[[], Later | None]"  # what to do without the lock, or None: it has to wait
Fail: TypeAlias = "Callable[[BaseException], None]"
_handles = itertools.count(1 << 41)  # apart from those of queues and critical sections


class WaitingCalls:
    """The lock of an object, and the calls that wait for a change of it, in the order in which they came.

    An attempt runs with the lock; what it returns runs without it, in the thread that made the change. All
    methods return at once.
    """

    def __init__(self, label: str):
        self.handle = next(_handles)
        self.label = label
        self._lock = threading.Lock()
        self._waiting: list[tuple[Attempt, Fail]] = []
        self._is_closed = False

    def call(self, attempt: Attempt, call: HostCall) -> None:
        """Makes an attempt now and after each change, until it succeeds.

        Errors that it raises go to `fail` of the op's call.
        """
        entry = (attempt, call.fail)
        call.on_cancel(partial(self._take_back, entry))
        with self._lock:
            if self._is_closed:
                later: list[Later] = [partial(call.fail, self._closed())]
            else:
                self._waiting.append(entry)
                later = self._serve()
        for function in later:
            function()

    def close(self) -> None:
        """Ends the calls that wait, with CancelledError; called when its session is closed."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
        for _, fail in waiting:
            fail(self._closed())

    def _closed(self) -> CancelledError:
        return CancelledError(f"{self.label} is closed")

    def _take_back(self, entry: tuple[Attempt, Fail]) -> None:
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _serve(self) -> list[Later]:
        """Attempts until none succeeds: each success may let another one succeed."""
        found: list[Later] = []
        moved = True
        while moved:
            moved = False
            for entry in list(self._waiting):
                attempt, fail = entry
                try:
                    later = attempt()
                except Exception as error:
                    later = partial(fail, error)
                if later is not None:
                    self._waiting.remove(entry)
                    found.append(later)
                    moved = True
        return found


def define_object_op(
    name: str, host: Any, doc: str, *inputs: str, spec: Any = lambda inputs, attrs: (), **more: Any
) -> OpDef:
    """Defines an op that reads or changes an object of the process: stateful, without a gradient.

    host, doc, spec, more: see define_op; by default it has no outputs.
    """
    return define_op(
        name, spec=spec, gradient=NOT_DIFFERENTIABLE, host=host, inputs=inputs, stateful=True, doc=doc, **more
    )
