"""Links of a task to the other tasks of its cluster, over which steps send values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tensorbow.cluster.connection import Connection, connect
from tensorbow.cluster.task_errors import named
from tensorbow.errors import UnavailableError
from tensorbow.specs import Array

CONNECT_S = 10.0  # to another task, in a step: its server was there when the session was made


class PeerLinks:
    """A task's connections to other tasks. All methods are thread-safe."""

    def __init__(self, name: str, addresses: Mapping[str, str], token: str):
        """name: of the task whose links these are. addresses: of all tasks, by name."""
        self._name, self._addresses, self._token = name, addresses, token
        self._lock = threading.Lock()  # guards the fields below
        self._idle: dict[tuple[str, str], list[Connection]] = {}  # by task and incarnation
        self._closed = False

    def send(self, task: str, incarnation: str, header: dict[str, Any], arrays: list[Array]) -> None:
        """Sends a message to another task, the same process of it that the session knows.

        Raises UnavailableError for one that cannot be reached, or was started anew.
        """
        connection = self._connection(task, incarnation)
        try:
            connection.send(header, arrays)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._idle.setdefault((task, incarnation), []).append(connection)
                return
        connection.close()

    def _connection(self, task: str, incarnation: str) -> Connection:
        """A connection that nobody else uses."""
        with self._lock:
            idle = self._idle.get((task, incarnation), [])
            while idle:
                connection = idle.pop()
                if not connection.ended():
                    return connection
                connection.close()
        hello = {"op": "hello", "purpose": "peer", "from": self._name}
        connection = connect(self._addresses[task], self._token, hello, task, CONNECT_S)
        if connection.welcome.get("incarnation") != incarnation:
            connection.close()
            raise named(UnavailableError(f"{task} was started anew; make a new session"), task)
        return connection

    def check(self) -> None:
        """Raises UnavailableError if a link to another task does not carry what was sent."""
        with self._lock:
            for (task, _), idle in self._idle.items():
                for connection in idle[:]:
                    if connection.cut():
                        idle.remove(connection)
                        connection.close()
                        raise UnavailableError(
                            f"the link from {self._name} to {task} is cut; restore it, and make a new "
                            "session that restores the last checkpoint"
                        )

    def close(self) -> None:
        """Closes all connections, also those in use once their message is sent; idempotent."""
        with self._lock:
            self._closed = True
            peers = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
        for connection in peers:
            connection.close()
