"""Connections between the processes of a cluster: authenticated, carrying JSON headers and raw arrays.

A message is the length of its header, the header (JSON, with dtypes and shapes of the arrays), and the bytes
of the arrays, those of strings with their lengths. Nothing that arrives is executed or unpickled. Both sides
prove by HMAC-SHA256 over fresh random numbers that they know the token before anything else is read; what
follows is not encrypted.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tensorbow.cluster.cluster_spec import split_address
from tensorbow.cluster.string_messages import pack_strings, unpack_strings
from tensorbow.cluster.task_errors import named, of_entry, to_entry
from tensorbow.errors import (
    DataLossError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from tensorbow.runtime.long_wait import LongWait
from tensorbow.specs import DTYPES, Array, DType
from tensorbow.strict_json import parse_json

STRING = "string"  # in the place of a dtype
MAGIC = b"tensorbow-cluster-1\n"
TOKEN_VARIABLE = "TENSORBOW_CLUSTER_TOKEN"
NONCE_NBYTES = 32
MOST_HEADER = 1 << 26  # bytes
MOST_ARRAYS = 1 << 20  # of a message
MOST_VALUES = 1 << 23  # of a header
SMALL_NBYTES = 1 << 16  # arrays below are joined with the header
HANDSHAKE_S = 10.0
LINK_ERRORS = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
DEAD_LINK_S = 10  # unacknowledged bytes or probes for so long end a connection

Where = Callable[[int, Mapping[str, Any]], "Array | None"]


def token_of(token: str | None) -> str:
    """The given token, or that of the environment; "" for none."""
    return os.environ.get(TOKEN_VARIABLE, "") if token is None else token


class Connection:
    """One authenticated connection. One thread at a time sends, and one receives.

    peer: name of the other side, for messages. Errors of the other side and of the link are UnavailableError.
    """

    def __init__(self, sock: socket.socket, peer: str):
        self._sock = sock
        self.peer = peer
        self.welcome: dict[str, Any] = {}  # the other side's answer to the greeting
        sock.settimeout(None)
        _watch_link(sock)

    def fileno(self) -> int:
        """The socket's number, for `select`."""
        return self._sock.fileno()

    # Sending ----------------------------------------------------------------------------------

    def send(self, header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
        """Sends a message; large arrays are not copied. Raises UnavailableError."""
        described, payloads = [], list[Array]()
        for array in arrays:
            if array.dtype == object:
                payloads.append(pack_strings(array))
                described.append([STRING, array.shape, payloads[-1].nbytes])
            else:
                payloads.append(array)
                described.append([array.dtype.name, array.shape])
        text = json.dumps({**header, "arrays": described}).encode()
        pending = [len(text).to_bytes(4, "big"), text]
        try:
            for array in payloads:
                if not array.nbytes:
                    continue
                view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                if array.nbytes < SMALL_NBYTES:
                    pending.append(view.tobytes())
                else:
                    self._sock.sendall(b"".join(pending))
                    pending = []
                    self._sock.sendall(view)
            if pending:
                self._sock.sendall(b"".join(pending))
        except OSError as error:
            raise self._lost(error) from None

    def reply(self, header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
        """Sends a result."""
        self.send({"ok": header}, arrays)

    def reply_error(self, error: BaseException) -> None:
        """Sends an error, to be raised by the other side's `result`, see `to_entry`."""
        self.send({"error": to_entry(error)})

    # Receiving --------------------------------------------------------------------------------

    def receive(self, where: Where | None = None) -> tuple[dict[str, Any], list[Array]]:
        """The next message. where: gives, by number and header, the array to receive an array into, or None.

        Raises UnavailableError at the end of the connection, DataLossError for a message of another form.
        """
        length = int.from_bytes(self._exactly(4), "big")
        if length > MOST_HEADER:
            raise self._damaged(f"a header of {length:,} bytes; at most {MOST_HEADER:,} are read")
        try:
            header = parse_json(self._exactly(length).decode(), MOST_VALUES)
            specs = [_spec_of(*row) for row in header["arrays"]]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"no message of a cluster: {error!r:.200}") from None
        if len(specs) > MOST_ARRAYS:
            raise self._damaged(f"a message of {len(specs):,} arrays")
        arrays = []
        for number, (dtype, shape, nbytes) in enumerate(specs):
            if dtype is None:
                arrays.append(unpack_strings(bytes(self._exactly(nbytes)), shape))
                continue
            target = None if where is None else where(number, header)
            if target is None or target.shape != shape or target.dtype != dtype.as_numpy_dtype:
                target = np.empty(shape, dtype.as_numpy_dtype)
            if target.nbytes:
                self._fill(target.reshape(-1).view(np.uint8).data)
            arrays.append(target)
        return header, arrays

    def result(self) -> tuple[dict[str, Any], list[Array]]:
        """The next result; raises the error that the other side sent instead, with its task in front."""
        header, arrays = self.receive()
        if "error" in header:
            raise of_entry(header["error"], self.peer)
        return header["ok"], arrays

    def call(self, header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> dict[str, Any]:
        """Sends a message and returns the result's header."""
        self.send(header, arrays)
        return self.result()[0]

    def ended(self) -> bool:
        """True if the other side has closed the connection; reads nothing."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def cut(self) -> bool:
        """True if the link to the other side does not carry what was sent; reads nothing."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno in LINK_ERRORS
        return False

    def set_timeout(self, seconds: float | None) -> None:
        """Limits every later wait; None for no limit."""
        self._sock.settimeout(seconds)

    def close(self) -> None:
        """Closes the connection, also for a thread that waits in it; idempotent."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _exactly(self, nbytes: int) -> bytearray:
        buffer = bytearray(nbytes)
        self._fill(memoryview(buffer))
        return buffer

    def _fill(self, view: memoryview) -> None:
        try:
            while view:
                count = self._sock.recv_into(view)
                if not count:
                    raise ConnectionResetError("the connection ended")
                view = view[count:]
        except OSError as error:
            raise self._lost(error) from None

    def _damaged(self, what: str) -> DataLossError:
        return named(DataLossError(f"{self.peer}: {what}"), self.peer)

    def _lost(self, error: OSError) -> UnavailableError:
        reason = "it does not answer" if isinstance(error, TimeoutError) else str(error)
        lost = UnavailableError(
            f"{self.peer} is unavailable: {reason}; start it again, and make a new session that restores the "
            "last checkpoint"
        )
        return named(lost, self.peer)


def _spec_of(name: str, shape: Any, nbytes: int = 0) -> tuple[DType | None, tuple[int, ...], int]:
    """Dtype and shape of an array of a message; for strings None, the shape, and their bytes in it."""
    (checked,) = _extents([nbytes])
    return None if name == STRING else DTYPES[name], _extents(shape), checked


def _extents(shape: Any) -> tuple[int, ...]:
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"a shape {shape!r:.80}")
    return tuple(shape)


def _watch_link(sock: socket.socket) -> None:
    """Sends at once, and ends the connection when the other machine is gone without a word."""
    options = [(socket.IPPROTO_TCP, "TCP_NODELAY", 1), (socket.SOL_SOCKET, "SO_KEEPALIVE", 1)]
    options += [(socket.IPPROTO_TCP, "TCP_KEEPIDLE", 5), (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 3)]
    options += [
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_LINK_S * 1000),
    ]
    for level, name, value in options:
        if hasattr(socket, name):
            with suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)


# Greeting -----------------------------------------------------------------------------------------


def connect(
    address: str, token: str, hello: Mapping[str, Any], peer: str, timeout_s: float, *, starts: bool = False
) -> Connection:
    """Connects to a task; `welcome` of the connection is its answer.

    starts: its server may still have to be started, so it is tried again until the time is over.

    Raises UnavailableError if nothing answers, PermissionDeniedError for another token.
    """
    wait, pause_s = LongWait(timeout_s), 0.02
    while True:
        left = wait.left_s
        try:
            sock = socket.create_connection(split_address(address), timeout=max(left, 0.05))
            try:
                sock.settimeout(max(min(HANDSHAKE_S, left), 0.05))
                _prove_to_server(sock, token, f"{peer} at {address}")
                connection = Connection(sock, peer)
                connection.set_timeout(max(min(HANDSHAKE_S, left), 0.05))
                connection.welcome = connection.call(hello)
                connection.set_timeout(None)
                return connection
            except BaseException:
                sock.close()
                raise
        except (OSError, UnavailableError) as error:
            reason = " ".join(str(error).split())
            silent = f"{peer} at {address} does not answer ({reason}); start its tb.train.Server"
            if not starts or pause_s >= wait.left_s:
                remedy = ", and check that its address can be reached from here"
                raise named(UnavailableError(silent + remedy), peer) from None
            wait.tell(silent)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)


def accept(sock: socket.socket, token: str, peer: str) -> Connection:
    """The connection of an accepted socket, once the other side has proved that it knows the token.

    Raises PermissionDeniedError, UnavailableError, and OSError.
    """
    sock.settimeout(HANDSHAKE_S)
    nonce = os.urandom(NONCE_NBYTES)
    sock.sendall(MAGIC + nonce)
    answer = _bytes_of(sock, NONCE_NBYTES + hashlib.sha256().digest_size)
    theirs, proof = answer[:NONCE_NBYTES], answer[NONCE_NBYTES:]
    if not hmac.compare_digest(proof, _proof(token, b"client", nonce, theirs)):
        with suppress(OSError):
            sock.sendall(bytes(hashlib.sha256().digest_size))
        raise PermissionDeniedError("it knows another token")
    sock.sendall(_proof(token, b"server", nonce, theirs))
    return Connection(sock, peer)


def _prove_to_server(sock: socket.socket, token: str, peer: str) -> None:
    greeting = _bytes_of(sock, len(MAGIC) + NONCE_NBYTES)
    if not greeting.startswith(MAGIC):
        raise InvalidArgumentError(
            f"{peer}: expected a tb.train.Server of this version, got another kind of server; correct the "
            "address"
        )
    nonce, mine = greeting[len(MAGIC) :], os.urandom(NONCE_NBYTES)
    sock.sendall(mine + _proof(token, b"client", nonce, mine))
    proof = _bytes_of(sock, hashlib.sha256().digest_size)
    if not hmac.compare_digest(proof, _proof(token, b"server", nonce, mine)):
        raise PermissionDeniedError(
            f"{peer}: it knows another token; give all processes of the cluster the same token=, or set "
            f"{TOKEN_VARIABLE}"
        )


def _proof(token: str, role: bytes, nonce: bytes, mine: bytes) -> bytes:
    return hmac.digest(token.encode(), role + nonce + mine, "sha256")


def _bytes_of(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        more = sock.recv(nbytes - len(data))
        if not more:
            raise ConnectionResetError("the connection ended in its greeting")
        data += more
    return data
