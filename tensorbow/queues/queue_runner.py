"""QueueRunner: threads that fill a queue (TensorFlow 1's tf.train.QueueRunner)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

from tensorbow import errors
from tensorbow.errors import (
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    TensorBowError,
)
from tensorbow.graph import (
    GraphKeys,
    Operation,
    Tensor,
    get_default_graph,
    get_default_session,
    register_collection_item,
)
from tensorbow.kinds import Flag, Text, checked, instance, optional, refuse
from tensorbow.queues.coordinator import Coordinator
from tensorbow.queues.queues import QueueBase, queue_of_handle

AsCoordinator: TypeAlias = Annotated[Any, optional(instance(Coordinator, expected="a tb.train.Coordinator"))]
AsQueue: TypeAlias = Annotated[Any, instance(QueueBase, expected="a queue")]


class QueueRunner:
    """Enqueue operations of a queue; each is run by a thread, again and again, until the input ends."""

    @checked
    def __init__(
        self,
        queue: AsQueue,
        enqueue_ops: Any,
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: Any = None,
    ):
        """enqueue_ops: a list; an operation that is there twice has two threads.

        close_op, cancel_op: run when the last thread ends, and when the coordinator stops; by default they
        close the queue, the second one with its pending enqueues. queue_closed_exception_types: errors that
        say that the input has ended; by default OutOfRangeError and CancelledError.
        """
        if not isinstance(enqueue_ops, (list, tuple)) or not enqueue_ops:
            raise refuse("QueueRunner", "enqueue_ops", "a list of operations, at least one", enqueue_ops)
        ended = queue_closed_exception_types
        if ended is None:
            ended = OutOfRangeError, CancelledError
        are_types = isinstance(ended, (list, tuple)) and all(
            isinstance(each, type) and issubclass(each, BaseException) for each in ended
        )
        if not are_types:
            raise refuse("QueueRunner", "queue_closed_exception_types", "a list of classes of errors", ended)
        self._queue = queue
        self._enqueue_ops = list(enqueue_ops)
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        self._ended: tuple[type[BaseException], ...] = tuple(ended) or (OutOfRangeError, CancelledError)
        self._lock = threading.Lock()
        self._running: dict[int, int] = {}  # threads that run, by the id of their session
        self._errors: list[BaseException] = []

    def _parts(self) -> dict[str, Any] | None:
        """Names of the operations and errors that `_restored` needs; None for errors of other libraries."""
        ended = [each.__name__ for each in self._ended]
        if any(
            getattr(errors, name, None) is not each for name, each in zip(ended, self._ended, strict=True)
        ):
            return None
        return {
            "queue": self._queue.queue_ref.name,
            "names": self._queue.names,
            "enqueue": [each.name for each in self._enqueue_ops],
            "close": self._close_op.name,
            "cancel": self._cancel_op.name,
            "ended": ended,
        }

    @classmethod
    def _restored(cls, content: Any, lookup: Callable[[str], Operation | Tensor]) -> QueueRunner:
        """A queue runner of a GraphDef, from imported operations. Raises InvalidArgumentError."""
        keys = {"queue", "names", "enqueue", "close", "cancel", "ended"}
        if not isinstance(content, dict) or set(content) != keys:
            raise InvalidArgumentError(f"a queue runner is {', '.join(sorted(keys))}")
        names, enqueue, ended = content["names"], content["enqueue"], content["ended"]
        queue_ref = lookup(content["queue"])
        kinds = [getattr(errors, str(each), None) for each in ended] if isinstance(ended, list) else []
        if (
            not isinstance(queue_ref, Tensor)
            or not isinstance(enqueue, list)
            or not (
                names is None or (isinstance(names, list) and all(isinstance(each, str) for each in names))
            )
            or not kinds
            or not all(isinstance(kind, type) and issubclass(kind, TensorBowError) for kind in kinds)
        ):
            raise InvalidArgumentError("a queue runner of another queue, operations, names or errors")
        queue = queue_of_handle(queue_ref, names)
        close, cancel = lookup(content["close"]), lookup(content["cancel"])
        return cls(queue, [lookup(each) for each in enqueue], close, cancel, kinds)

    @property
    def name(self) -> str:
        """The name of the queue."""
        name: str = self._queue.name
        return name

    @property
    def queue(self) -> QueueBase:
        """The queue that is filled."""
        queue: QueueBase = self._queue
        return queue

    @property
    def enqueue_ops(self) -> list[Operation]:
        """The operations that fill it."""
        return list(self._enqueue_ops)

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """Errors of threads without a coordinator."""
        with self._lock:
            return list(self._errors)

    @checked
    def create_threads(
        self, sess: Any, coord: AsCoordinator = None, daemon: Flag = False, start: Flag = False
    ) -> list[threading.Thread]:
        """The threads that run the operations in `sess`, and with `coord` one that ends them.

        Errors go to the coordinator, or without one to `exceptions_raised`. A session that has threads of
        this runner gets no others.
        """
        if not hasattr(sess, "run"):
            raise refuse("create_threads", "sess", "a session", sess)
        with self._lock:
            if self._running.get(id(sess), 0) > 0:
                return []
            self._running[id(sess)] = len(self._enqueue_ops)
        threads = [
            threading.Thread(target=self._run, args=(sess, op, coord), name=f"{self.name}-{number}")
            for number, op in enumerate(self._enqueue_ops)
        ]
        if coord is not None:
            threads.append(
                threading.Thread(target=self._cancel_on_stop, args=(sess, coord), name=f"{self.name}-stop")
            )
        for thread in threads:
            thread.daemon = daemon
            if coord is not None:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads

    def _run(self, sess: Any, op: Operation, coord: Coordinator | None) -> None:
        try:
            while coord is None or not coord.should_stop():
                sess.run(op)
        except self._ended:
            pass
        except BaseException as error:
            if not (isinstance(error, FailedPreconditionError) and getattr(sess, "closed", False)):
                if coord is not None:
                    coord.request_stop(error)
                else:
                    with self._lock:
                        self._errors.append(error)
        finally:
            with self._lock:
                self._running[id(sess)] -= 1
                last = not self._running[id(sess)]
                if last:
                    del self._running[id(sess)]
            if last:
                self._end(sess, self._close_op)

    def _cancel_on_stop(self, sess: Any, coord: Coordinator) -> None:
        coord.wait_for_stop()
        self._end(sess, self._cancel_op)

    def _end(self, sess: Any, op: Operation) -> None:
        """Closes the queue; a closed session has closed it already."""
        with contextlib.suppress(CancelledError, FailedPreconditionError):
            sess.run(op)


register_collection_item("queue_runner", QueueRunner, QueueRunner._parts, QueueRunner._restored)


@checked
def add_queue_runner(
    qr: Annotated[Any, instance(QueueRunner, expected="a tb.train.QueueRunner")],
    collection: Text = GraphKeys.QUEUE_RUNNERS,
) -> None:
    """Adds a queue runner to a collection of the graph, from which `start_queue_runners` starts it."""
    get_default_graph().add_to_collection(collection, qr)


@checked
def start_queue_runners(
    sess: Any = None,
    coord: AsCoordinator = None,
    daemon: Flag = True,
    start: Flag = True,
    collection: Text = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Starts the threads of all queue runners of the session's graph and returns them.

    sess: by default the default session. Raises InvalidArgumentError without a session.
    """
    session = get_default_session() if sess is None else sess
    if session is None or not hasattr(session, "graph"):
        raise InvalidArgumentError(
            "start_queue_runners: there is no session; pass sess=, or call it inside `with session:`"
        )
    runners: Sequence[QueueRunner] = session.graph.get_collection(collection)
    return [
        thread
        for runner in runners
        for thread in runner.create_threads(session, coord=coord, daemon=daemon, start=start)
    ]
