"""Server that all workers of a job report to, by TCP: in the process that started them, or in worker 0."""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import selectors
import socket
import time
from contextlib import suppress
from typing import Any

from scheduler.workers.job_watch import START_S, Fault, JobWatch
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.strict_json import parse_json

PORT = "TENSORBOW_WATCH_PORT"  # environment variable: its port in a job that `mpirun` has started
MOST_PORTS = 1 << 16
LINE_LIMIT = 1 << 18  # bytes of a message
MOST_VALUES = 1 << 15  # of a message, commas in its texts included
BEAT_S = 1.0  # longest time between two messages, in both directions


def own_port() -> int:
    """The port that TENSORBOW_WATCH_PORT says, 0 by default. Raises InvalidArgumentError for another text."""
    text = os.environ.get(PORT, "0")
    if not text.isdecimal() or len(text) > 5 or int(text) >= MOST_PORTS:
        raise InvalidArgumentError(f"{PORT}: expected a port, 0 for any, got {text!r:.40}")
    return int(text)


def beat_s(limit_s: float) -> float:
    """Seconds between two messages: shorter for a short limit."""
    return min(BEAT_S, limit_s / 4) if limit_s else BEAT_S


class WatchServer:
    """Hears the workers of a job, and tells them what to do. One thread calls `step`.

    It listens on one address of this machine. A connection counts for a worker when it brings the secret.
    """

    def __init__(
        self,
        size: int,
        limit_s: float,
        address: str = "127.0.0.1",
        start_limit_s: float = START_S,
        port: int = 0,
    ):
        """size: workers. limit_s, start_limit_s: see JobWatch; the job starts now. port: 0 for any.

        Raises FailedPreconditionError for an address that is not this machine's, or a port that is in use.
        """
        self.watch = JobWatch(size, limit_s, start_limit_s, time.monotonic())
        self._secret = secrets.token_hex(16)
        self._selector = selectors.DefaultSelector()
        try:
            self._listening = socket.create_server((address, port), backlog=size + 8)
        except OSError as error:
            raise FailedPreconditionError(
                f"the watch of the job cannot listen on {address}, port {port}: {error.strerror}; give "
                f"another port by --watch-port or {PORT}, or none"
            ) from error
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._connections: dict[socket.socket, _Connection] = {}
        self._beat_s, self._beaten = beat_s(limit_s), 0.0
        host, port = self._listening.getsockname()[:2]
        self.contact = f"{host}:{port}:{self._secret}:{limit_s:g}"  # for WatchClient

    def step(self, timeout_s: float) -> Fault | None:
        """Hears what comes within a time, and shows warnings; returns the job's fault, if it has one."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._listening:
                self._accept()
            else:
                self._read(self._connections[key.fileobj])  # type: ignore[index]  # no fileno is registered
        now = time.monotonic()
        if now - self._beaten >= self._beat_s:
            self._beaten = now
            self.tell({"beat": 1})
        fault = self.watch.fault(now)
        self._show_warnings(now if fault is None and self.watch.status is None else math.inf)
        return fault

    def _show_warnings(self, now: float) -> None:
        if lines := self.watch.warnings.due(now):
            with suppress(OSError):
                os.write(2, lines.encode())

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a message to all workers; those that cannot be reached are not waited for."""
        line = json.dumps(message).encode() + b"\n"
        for connection in [*self._connections.values()]:
            if connection.number is not None:
                with suppress(OSError):
                    connection.socket.send(line)

    def close(self) -> None:
        """Tells the workers that nobody watches any more, and closes; idempotent."""
        self.tell({"bye": 1})
        self._show_warnings(math.inf)
        for connection in [*self._connections.values()]:
            self._drop(connection)
        with suppress(KeyError):
            self._selector.unregister(self._listening)
        self._listening.close()
        self._selector.close()

    def _accept(self) -> None:
        with suppress(OSError):
            accepted, _ = self._listening.accept()
            accepted.setblocking(False)
            self._connections[accepted] = _Connection(accepted)
            self._selector.register(accepted, selectors.EVENT_READ)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(LINE_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, connection.rest = (connection.rest + data).split(b"\n")
        for line in lines:
            if not self._take(connection, line):
                data = b""
                break
        if not data or len(connection.rest) > LINE_LIMIT:
            if connection.number is not None:
                self.watch.lost(connection.number, time.monotonic())
                connection.number = None
                self.tell({"report": 1})
            self._drop(connection)

    def _take(self, connection: _Connection, line: bytes) -> bool:
        """Takes a line; False for one that is no message, or comes before the secret."""
        try:
            message = parse_json(line.decode(), MOST_VALUES)
            if connection.number is None:
                number, given = message["worker"], str(message["secret"])
                if not hmac.compare_digest(given.encode(), self._secret.encode()):
                    return False
                if type(number) is not int or not 0 <= number < len(self.watch.workers):
                    return False
                connection.number = number
            self.watch.heard(connection.number, message, time.monotonic())
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return True

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()


class _Connection:
    """A connection, and whose it is."""

    def __init__(self, accepted: socket.socket):
        self.socket = accepted
        self.number: int | None = None
        self.rest = b""
