"""A session beside the replicas: fills the queues of a Replicator's graph, and draws inputs from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from tensorbow.compiler.prune import prune
from tensorbow.errors import CancelledError, OutOfRangeError
from tensorbow.graph import Graph, GraphKeys, Operation, Resources, Tensor
from tensorbow.nest import flatten
from tensorbow.ops.state import VariableReference
from tensorbow.queues import Coordinator, QueueRunner
from tensorbow.runtime import Session

GRACE_S = 10.0  # for threads to end


class HostSession:
    """A plain session on a Replicator's graph, made when something needs it; thread-safe.

    It shares queues, readers and tables with the steps of the replicas (`Graph.host_objects`). Variables that
    its ops read have values of their own, those of their initialisers.
    """

    def __init__(self, graph: Graph):
        if graph.host_objects is None:
            graph.host_objects = Resources()
        self._graph = graph
        self._lock = threading.RLock()
        self._begin()

    def _begin(self) -> None:
        self._session: Session | None = None
        self._coordinator = Coordinator()
        self._done: set[Any] = set()  # initialisers that have run, queue runners whose threads have begun

    def start(self) -> None:
        """Sets the values of tables, and starts the threads of queue runners, that are new."""
        with self._lock:
            tables = self._new(GraphKeys.TABLE_INITIALIZERS)
            runners: list[QueueRunner] = self._new(GraphKeys.QUEUE_RUNNERS)
            if not tables and not runners:
                return
            session = self._opened()
            fill = [op for runner in runners for op in runner.enqueue_ops]
            self._initialize([*tables, *fill])
            session.run(tables)
            self._done.update(tables, runners)
            for runner in runners:
                runner.create_threads(session, self._coordinator, daemon=True, start=True)

    def drawn(self, nest: Any) -> Iterator[Any]:
        """The values of the tensors in a nest, again and again, until their input ends."""
        return HostDraws(partial(self._draw, nest))

    def _draw(self, nest: Any) -> Any:
        """Raises StopIteration where the input has ended."""
        self.start()
        with self._lock:
            session = self._opened()
        try:
            return session.run(nest)
        except (OutOfRangeError, CancelledError):
            self.raise_error()
            raise StopIteration from None

    def raise_error(self) -> None:
        """Raises the error that has ended a queue runner's thread, if there is one."""
        self._coordinator.raise_requested_exception()

    def close(self) -> None:
        """Ends the threads, and frees queues and tables where there were any; idempotent."""
        with self._lock:
            session, coordinator = self._session, self._coordinator
            self._begin()
        if session is not None:
            coordinator.request_stop()
            with suppress(Exception):  # raised by the step that it has ended
                coordinator.join(stop_grace_period_secs=GRACE_S, ignore_live_threads=True)
            session.close()
            if self._graph.host_objects is not None:
                self._graph.host_objects.close()

    def _opened(self) -> Session:
        if self._session is None:
            self._session = Session(graph=self._graph)
        return self._session

    def _new(self, collection: str) -> list[Any]:
        return [each for each in self._graph.get_collection(collection) if each not in self._done]

    def _initialize(self, ops: list[Operation]) -> None:
        """Runs the initialisers of variables that operations need, once."""
        needed = {op for op in prune(ops, ()) if op.definition is VariableReference}
        if needed:
            known = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES)
            variables = [each for key in known for each in self._graph.get_collection(key)]
            new = [v.initializer for v in variables if v.op in needed and v.initializer not in self._done]
            self._opened().run(new)
            self._done.update(new)


class HostDraws:
    """Values of tensors that a session draws; goes on after an error, as that of a time limit."""

    def __init__(self, draw: Callable[[], Any]):
        self._draw = draw

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._draw()


def is_host_input(nest: Any) -> bool:
    """True for tensors that ops of the host with effects make, as queues do, without any variable."""
    tensors = [leaf for leaf in flatten(nest) if isinstance(leaf, Tensor)]
    ops = prune([tensor.op for tensor in tensors], ()) if tensors else []
    if any(op.definition is VariableReference for op in ops):
        return False
    return any(op.definition.host is not None and op.definition.stateful for op in ops)
