"""Links of a session to the tasks of a cluster: connections, calls, and checks whether a task still lives."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tensorbow.cluster.cluster_spec import ClusterSpec
from tensorbow.cluster.connection import Connection, connect
from tensorbow.cluster.run_limit import LimitReachedError, TimeLimit
from tensorbow.cluster.server import task_here, token_for
from tensorbow.cluster.task import ClusterTask
from tensorbow.cluster.task_errors import named
from tensorbow.errors import DeadlineExceededError, InvalidArgumentError, TensorBowError, UnavailableError
from tensorbow.specs import Array

LOOK_S = 0.2  # between two looks whether a wait was cancelled
RECONNECT_S = 5.0  # for a further connection to a task that was there before
GRACE_S = 1.0  # after a run's time limit, for tasks to say what they waited for


class TaskLink:
    """A session's connections to one task. All methods are thread-safe.

    here: the task, if it is in this process. devices: its full device names.
    """

    def __init__(self, name: str, address: str, token: str | None, session: str, connect_s: float):
        """Connects; waits up to connect_s for the task's server. Raises UnavailableError."""
        self.name = name
        self._address = address
        self._token = token_for(address, token)
        self._hello = {"op": "hello", "purpose": "session", "session": session}
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False
        self.incarnation = ""
        first = self._connect(connect_s)
        self.incarnation = str(first.welcome["incarnation"])
        self.devices: list[str] = list(first.welcome["devices"])
        self.here: ClusterTask | None = task_here(self.incarnation)
        self._anchor = first  # only kept open: the task remembers the session's steps as long as it is

    def _connect(self, timeout_s: float) -> Connection:
        first = not self.incarnation
        connection = connect(
            self._address, self._token, self._hello, self.name or "the target", timeout_s, starts=first
        )
        welcome = connection.welcome
        if self.name and welcome["task"] != self.name:
            connection.close()
            raise InvalidArgumentError(
                f"expected {self.name} at {self._address}, got {welcome['task']}; give all processes the "
                "same ClusterSpec"
            )
        connection.peer = self.name = welcome["task"]
        if not first and self.incarnation != welcome["incarnation"]:
            connection.close()
            other = UnavailableError(
                f"{self.name} was started anew and has lost its variables; make a new session, and restore "
                "the last checkpoint"
            )
            raise named(other, self.name)
        return connection

    @property
    def cluster(self) -> dict[str, dict[int, str]]:
        """The task's cluster: addresses by job and number."""
        jobs = self._anchor.welcome["cluster"]
        return {job: {int(index): address for index, address in tasks.items()} for job, tasks in jobs.items()}

    def take(self) -> Connection:
        """A connection that nobody else uses. Raises UnavailableError."""
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.ended():
                    return connection
                connection.close()
        return self._connect(RECONNECT_S)

    def give(self, connection: Connection) -> None:
        """Gives a connection back that waits for no answer."""
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def call(self, header: Mapping[str, Any], check_s: float, arrays: Sequence[Array] = ()) -> dict[str, Any]:
        """Sends a request and returns the answer's header; raises the task's error, or UnavailableError."""
        connection = self.take()
        pending = Pending(check_s)
        try:
            connection.send(header, arrays)
            pending.add(self, connection)
            (found,) = pending.collect().values()
            return found[0]
        finally:
            pending.close()

    def ping(self, timeout_s: float) -> None:
        """Raises UnavailableError if the task does not answer in time."""
        connection = connect(self._address, self._token, self._hello, self.name, timeout_s)
        try:
            connection.set_timeout(timeout_s)
            connection.call({"op": "ping"})
            if connection.welcome["incarnation"] != self.incarnation:
                other = UnavailableError(f"{self.name} was started anew; make a new session")
                raise named(other, self.name)
        finally:
            connection.close()

    def close(self) -> None:
        """Closes all idle connections, and others when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in (self._anchor, *idle):
            connection.close()


Answer = tuple[dict[str, Any], "list[Array]"]


class Pending:
    """Requests that wait for answers; each task that takes long is asked whether it lives."""

    def __init__(self, check_s: float, limit: TimeLimit | None = None):
        """check_s: seconds of silence before a task is asked, and for its answer then.

        limit: of a run, which its tasks keep.
        """
        self._check_s = check_s
        self._limit = limit
        self._late: list[str] = []  # what tasks said that came to the limit
        self._given_up_s = None if limit is None else time.monotonic() + limit.left_s + GRACE_S
        self._waiting: dict[Connection, TaskLink] = {}
        self._asked: list[TaskLink] = []  # all tasks: a message from one to another may be lost
        self._answers: dict[str, Answer] = {}
        self._checked_s = time.monotonic()
        self._cancelled: TensorBowError | None = None

    def cancel(self, error: TensorBowError) -> None:
        """Lets the next look raise an error; thread-safe."""
        self._cancelled = error

    def raise_if_cancelled(self) -> None:
        """Raises the error of `cancel`, if it was called."""
        if self._cancelled is not None:
            raise self._cancelled

    def add(self, link: TaskLink, connection: Connection) -> None:
        """Adds a request that was sent."""
        self._waiting[connection] = link
        self._asked.append(link)

    def look(self, timeout_s: float = 0.0) -> None:
        """Takes the answers that have come; waits for at most so long. Raises the first error."""
        self.raise_if_cancelled()
        if self._given_up_s is not None and time.monotonic() > self._given_up_s:
            silent = [link.name for link in self._waiting.values()]
            raise self._too_late([f"{name} has not stopped yet" for name in silent])
        if not self._waiting:
            return
        poll = select.poll()
        by_number = {connection.fileno(): connection for connection in self._waiting}
        for number in by_number:
            poll.register(number, select.POLLIN)
        errors: list[TensorBowError] = []
        for number, _ in poll.poll(timeout_s * 1000):
            connection = by_number[number]
            try:
                answer = connection.result()
            except UnavailableError as error:
                if connection.ended():
                    raise
                errors.append(error)
            except TensorBowError as error:
                errors.append(error)
            else:
                link = self._waiting.pop(connection)
                link.give(connection)
                self._answers[link.name] = answer
                continue
            link = self._waiting.pop(connection)
            link.give(connection)
        if errors:  # they may be a consequence
            self.raise_if_cancelled()
        for each in errors:
            if not isinstance(each, LimitReachedError):
                raise each
            self._late.append(str(each))
        if time.monotonic() - self._checked_s > self._check_s:
            for link in self._asked:
                link.ping(self._check_s)
            self._checked_s = time.monotonic()

    def collect(self) -> dict[str, Answer]:
        """Waits for all answers, by task.

        Raises the first error; UnavailableError for a lost task; DeadlineExceededError at the run's limit.
        """
        while self._waiting:
            self.look(min(LOOK_S, self._check_s))
        if self._late:
            raise self._too_late(())
        return self._answers

    def _too_late(self, others: Sequence[str]) -> DeadlineExceededError:
        """The error of a run that has come to its limit. others: what is to be said of further tasks."""
        limit = self._limit
        said = "; ".join([*self._late, *others])
        what = "" if limit is None else f"{limit.option}={limit.milliseconds} "
        return DeadlineExceededError(
            f"run: it has taken longer than {what}and is given up: {said}; variables that it had written "
            "keep their new values"
        )

    def close(self) -> None:
        """Closes the connections that still wait: their tasks give the requests up."""
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()


class Links:
    """A session's links to all tasks of the target's cluster, made when they are first needed."""

    def __init__(self, address: str, token: str | None, session: str, connect_s: float, check_s: float):
        """address: of any task of the cluster; the others' are its."""
        self._token, self._session, self._connect_s = token, session, connect_s
        self.check_s = check_s
        self.home = TaskLink("", address, token, session, connect_s)
        self.cluster = ClusterSpec(self.home.cluster)
        self._addresses = self.cluster.tasks()
        self._lock = threading.RLock()
        self._links = {self.home.name: self.home}

    def tasks(self) -> list[str]:
        """The names of all tasks."""
        return list(self._addresses)

    def link(self, task: str) -> TaskLink:
        """The link to a task of the cluster. Raises UnavailableError."""
        with self._lock:
            if task not in self._links:
                self._links[task] = TaskLink(
                    task, self._addresses[task], self._token, self._session, self._connect_s
                )
            return self._links[task]

    def release(self, handles: Mapping[str, Sequence[str]]) -> None:
        """Has tasks forget steps, by task; those that are gone are left out."""
        for task, steps in handles.items():
            with suppress(TensorBowError):
                self.link(task).call({"op": "release", "steps": list(steps)}, self.check_s)

    def close(self) -> None:
        """Closes all connections; the tasks then forget the session's steps."""
        with self._lock:
            for link in self._links.values():
                link.close()
                if link.here is not None:
                    link.here.release_session(self._session)
