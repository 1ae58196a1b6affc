"""Critical sections: operations that no two steps run at the same time, guarded by a mutex."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorbow.errors import CancelledError, InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    HostCall,
    OnCancel,
    Operation,
    Tensor,
    control_dependencies,
    get_default_graph,
    name_scope,
)
from tensorbow.kinds import Name, Text, checked, refuse
from tensorbow.nest import flatten, pack
from tensorbow.ops.control import group, identity
from tensorbow.ops.definition import define_op
from tensorbow.queues.queue_ops import KEY, found, handle_of, shared_or_own
from tensorbow.queues.queues import SharedName, shared_attrs
from tensorbow.specs import Array, TensorSpec, int64

_handles = itertools.count(1 << 40)  # apart from those of queues


class Mutex:
    """A lock that one step at a time holds; those that wait get it in the order in which they came."""

    def __init__(self, label: str):
        self.handle = next(_handles)
        self.label = label
        self._guard = threading.Lock()
        self._waiting: deque[tuple[Callable[[], None], Callable[[BaseException], None]]] = deque()
        self._is_held = False
        self._is_closed = False

    def acquire(
        self, done: Callable[[], None], fail: Callable[[BaseException], None], on_cancel: OnCancel
    ) -> None:
        """Calls `done` as soon as the lock is free, and holds it then; `fail` if it is closed before.

        on_cancel: is told first how the call is taken back.
        """
        call = (done, fail)
        on_cancel(partial(self._take_back, call))
        with self._guard:
            closed, waits = self._is_closed, self._is_held
            if not closed and waits:
                self._waiting.append(call)
            elif not closed:
                self._is_held = True
        if closed:
            fail(CancelledError(f"{self.label} is closed"))
        elif not waits:
            done()

    def release(self) -> None:
        """Gives the lock to the call that has waited longest, or frees it."""
        with self._guard:
            following = self._waiting.popleft() if self._waiting else None
            self._is_held = following is not None
        if following is not None:
            following[0]()

    def close(self) -> None:
        """Ends the calls that wait, with CancelledError."""
        with self._guard:
            self._is_closed = True
            waiting, self._waiting = list(self._waiting), deque()
        for _, fail in waiting:
            fail(CancelledError(f"{self.label} is closed"))

    def _take_back(self, call: tuple[Callable[[], None], Callable[[BaseException], None]]) -> None:
        with self._guard:
            if call in self._waiting:
                self._waiting.remove(call)


class _Holding:
    """One time that a step holds a mutex; given back by the step's end at the latest."""

    def __init__(self, mutex: Mutex):
        self._mutex = mutex
        self._guard = threading.Lock()
        self._holds = False
        self._is_over = False

    def begin(self) -> bool:
        """Notes that the mutex is held; False if the step has ended meanwhile: then it is free again."""
        with self._guard:
            self._holds = True
            over = self._is_over
        if over:
            self.close()
        return not over

    def close(self) -> None:
        with self._guard:
            self._is_over = True
            holds, self._holds = self._holds, False
        if holds:
            self._mutex.release()


def _make(call: HostCall) -> list[Array]:
    label = f"critical section '{call.attrs['shared_name'] or call.name}'"
    return handle_of(call, shared_or_own(call, lambda: Mutex(label), ("Mutex",)))


def _lock(call: HostCall) -> None:
    mutex: Mutex = found(call, Mutex, "critical section")
    token = next(_handles)
    holding = call.step.get(("holding", token), lambda: _Holding(mutex))

    def held() -> None:
        if holding.begin():
            call.done([np.asarray(token, np.int64)])

    mutex.acquire(held, call.fail, call.on_cancel)


def _unlock(call: HostCall) -> list[Array]:
    def missing() -> Any:
        raise InvalidArgumentError(f"{int(call.inputs[0])} is no token of a lock that this step holds")

    call.step.get(("holding", int(call.inputs[0])), missing).close()
    return []


_SCALAR = TensorSpec((), int64)
MutexHandle = define_op(
    "Mutex",
    spec=lambda inputs, attrs: _SCALAR,
    gradient=NOT_DIFFERENTIABLE,
    attrs=KEY,
    host=_make,
    stateful=True,
    doc="A lock, as a handle.",
)
MutexLock = define_op(
    "MutexLock",
    spec=lambda inputs, attrs: _SCALAR,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("handle",),
    host=_lock,
    asynchronous=True,
    stateful=True,
    doc="Waits for a lock and takes it; gives a token. The end of the step frees it at the latest.",
)
MutexUnlock = define_op(
    "MutexUnlock",
    spec=lambda inputs, attrs: (),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("token",),
    host=_unlock,
    stateful=True,
    doc="Frees a lock that this step holds.",
)


class CriticalSection:
    """Runs functions so that no two steps, nor two parts of one, are in it at the same time.

    TensorFlow 1's `tf.contrib.framework.CriticalSection`, for the dynamic mode: for example reading, changing
    and writing a variable in several operations.
    """

    @checked
    def __init__(self, name: Text = "critical_section", shared_name: SharedName = None):
        """shared_name: sessions of the process share the section of that name and `tb.container`."""
        self._handle: Tensor = MutexHandle(**shared_attrs(shared_name), name=name)
        self._is_building = False

    @property
    def name(self) -> str:
        """The name of the operation that makes the section."""
        return self._handle.op.name

    @checked
    def execute(self, fn: Any, name: Name = None) -> Any:
        """Calls `fn()`, whose operations run alone in the section; returns its results behind them.

        fn: makes operations and returns a nest of tensors, or None. Returns tensors with these values, for
        None an operation. A step that fails, or is cancelled, leaves the section. Raises InvalidArgumentError
        for a section within itself, which would wait for itself.
        """
        if not callable(fn):
            raise refuse("execute", "fn", "a function", fn)
        if self._is_building:
            raise InvalidArgumentError(
                f"execute: section {self.name} is within itself and would wait for itself; use "
                "another section"
            )
        graph = get_default_graph()
        self._is_building = True
        try:
            with name_scope(name or "critical_section_execute"):
                token: Tensor = MutexLock(self._handle)
                first = len(graph.get_operations())
                with control_dependencies([token.op]):
                    results = fn()
                made = [op for op in graph.get_operations()[first:] if op.context is graph.context]
                with control_dependencies(made):
                    unlock: Operation = MutexUnlock(token)
                with control_dependencies([unlock]):
                    if results is None or isinstance(results, Operation):
                        return group(unlock)
                    return pack(results, map(identity, flatten(results)))
        finally:
            self._is_building = False
