"""A worker's side of the watch: a thread that reports to the server, and ends the process if that says so."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from scheduler.workers.job_watch import HANGS, KILLED, STOPPED
from scheduler.workers.pulse import PULSE
from scheduler.workers.watch_server import MOST_VALUES, beat_s
from tensorbow.errors import AbortedError, TensorBowError
from tensorbow.strict_json import parse_json

WATCH = "TENSORBOW_WATCH"  # environment variable: where the server of a launched job is
CONNECT_S = 30.0
LEAST_S = 0.05  # between two reports
GRACE_S = 5.0  # beyond the limit, until the server's own verdict must have come
LAST_S = 15.0  # longest time that a failed worker waits for the others
OTHERS_S = 0.02  # between two looks whether the others have ended, too
TURN_S, MOST_TURNS = 1.0, 4  # from one worker's line on the lost watch to the next one's
MOST_SHOWN = 8000  # characters of an error's traceback, and of a warning


E = TypeVar("E", bound=TensorBowError)

_clients: list[WatchClient] = []  # of this process: one, if its job is watched


def tell_folder(folder: str) -> None:
    """Tells the process that started the job where this run's checkpoints are, for a restart."""
    for client in _clients:
        client.tell(folder=folder)


def is_shown(warning: str) -> bool:
    """True if the watch of the job shows a warning of this process, see `WatchClient.shows`."""
    return any(client.shows(warning) for client in _clients)


def close_clients() -> None:
    """Ends the watch of this process, which goes on."""
    for client in _clients:
        client.close()


def leave_job(status: int, shown: str) -> None:
    """Ends this process with a status other than 0, with all others, if its job is watched.

    shown: line for people.
    """
    for client in _clients:
        client.fail(status, shown=shown)


class WatchClient:
    """Connection of worker `number` to the server at `contact`. `close` it before a good end."""

    def __init__(self, contact: str, number: int, watcher: str = ""):
        """watcher: name of the worker that has the server, for messages, if one has.

        Raises OSError if the server cannot be reached.
        """
        host, port, secret, limit = contact.rsplit(":", 3)
        self.number, self._limit_s, self._watcher = number, float(limit), watcher
        self._socket = socket.create_connection((host, int(port)), CONNECT_S)
        self._socket.settimeout(CONNECT_S)
        self._sending = threading.RLock()  # what Python collects or a signal calls meanwhile may warn
        self._process, self._parent = os.getpid(), os.getppid()
        self._is_closed = self._has_told_status = False
        about = {"worker": number, "secret": secret, "host": socket.gethostname(), "process": os.getpid()}
        self.tell(**about)
        _clients.append(self)
        threading.Thread(target=self._report, name="tensorbow-watch", daemon=True).start()
        threading.Thread(target=self._listen, name="tensorbow-orders", daemon=True).start()

    @property
    def is_closed(self) -> bool:
        """True after the end of the watch."""
        return self._is_closed

    def tell(self, **message: Any) -> bool:
        """Sends a message; False for one that cannot be sent, which the server misses.

        After a status no others are sent: with one that it has not read, TCP would drop the server's answer.
        """
        with self._sending, suppress(OSError):
            if self._has_told_status and "status" not in message:
                return True
            self._has_told_status |= "status" in message
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            return True
        return False

    def shows(self, warning: str) -> bool:
        """Tells the watch of a warning; True if that shows it, False if this process is to show it itself.

        The watch shows those of other workers than 0, each once. At the end of the program nobody listens.
        """
        if self._is_closed or self._has_told_status or os.getpid() != self._process:  # or in a forked process
            return False
        return self.tell(warning=warning[:MOST_SHOWN]) and self.number > 0

    def fail(self, status: int, reason: str = "", follows: int = 0, shown: str = "") -> NoReturn:
        """Reports that the program has failed, and ends the process when all others have, or are told to.

        reason, follows, shown: see Watched; whoever watches shows what several workers have in common once.
        """
        if len(shown) > MOST_SHOWN:
            shown = f"...{shown[-MOST_SHOWN:]}"
        about = {"reason": reason[:MOST_SHOWN], "follows": follows, "shown": shown}
        if not self.tell(status=status, round=PULSE.round, doing=PULSE.doing, **about):
            sys.stderr.write(shown)
        time.sleep(LAST_S)
        _end(status)

    def tell_end(self, left: int | None = 0, reason: str = "") -> None:
        """Reports that the program has ended, by which the job has not failed if no other worker needs it.

        left, reason: see Watched.
        """
        about = {"left": left, "reason": reason[:MOST_SHOWN]}
        self.tell(status=0, round=PULSE.round, waits=False, doing=PULSE.doing, **about)

    def await_others(self) -> None:
        """Waits until whoever watches says that all programs have ended well; it ends this process else."""
        while not self._is_closed:
            time.sleep(OTHERS_S)

    def close(self) -> None:
        """Ends the watch; the process goes on."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.close()

    def _report(self) -> None:
        seen, moved = PULSE.moved, time.monotonic()
        while not self._is_closed:
            PULSE.settled.clear()
            now, state = time.monotonic(), PULSE.moved
            if state != seen:
                seen, moved = state, now
            still_s = round(now - moved, 2)
            doing_s = round(now - PULSE.doing_since, 2) if PULSE.doing else 0.0
            waits = PULSE.waits_for_others
            self.tell(round=PULSE.round, waits=waits, still_s=still_s, doing=PULSE.doing, doing_s=doing_s)
            if os.getppid() != self._parent:
                self._give_up("what started it is gone")
            time.sleep(LEAST_S)
            PULSE.settled.wait(beat_s(self._limit_s))

    def _listen(self) -> None:
        limit = self._limit_s + GRACE_S if self._limit_s else None
        self._socket.settimeout(limit)
        rest = b""
        while not self._is_closed:
            try:
                data = self._socket.recv(1 << 12)
            except TimeoutError:
                quiet = f"nothing heard of the job's watch for {limit:g} s: a host or link is down"
                self._give_up(quiet, HANGS)
            except OSError:
                data = b""
            if not data and not self._is_closed:
                self._give_up("the process that watches the job is gone", KILLED)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._obey(parse_json(line.decode(), MOST_VALUES))

    def _obey(self, message: dict[str, Any]) -> None:
        if "signal" in message:
            os.kill(os.getpid(), message["signal"])
        if "report" in message:
            self.tell(round=PULSE.round)
        if "end" in message:
            _end(message["end"])
        if "bye" in message:
            self._is_closed = True

    def _give_up(self, reason: str, of_watcher: str = "") -> None:
        """Ends this process with a line. of_watcher: what has become of a worker that has the server."""
        if self._is_closed:
            return
        at = f"at step {PULSE.round}"
        text = f"worker {self.number} ({socket.gethostname()}, process {os.getpid()}) ends {at}: {reason}"
        if self._watcher and of_watcher:
            text = f"{self._watcher} {of_watcher} {at}"
            if of_watcher == HANGS:
                text += f": nothing heard for {self._limit_s + GRACE_S:g} s; {STOPPED}"
            if not self.number:  # it was stopped itself, and the others have said so
                _end(1)
            time.sleep(min(self.number - 1, MOST_TURNS) * TURN_S)  # MPI ends the others when one has said it
        with suppress(OSError):
            os.write(2, f"tensorbow: {text}\n".encode())
        _end(1)


def reason_of(error: BaseException) -> tuple[str, int]:
    """An exception as one line, and whether it follows on one of another worker, see Watched."""
    follows = 2 if is_told(error) else int(isinstance(error, AbortedError))
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": "), follows


def traceback_of(error: BaseException, skipped: Sequence[str] = ()) -> str:
    """The traceback of a program's exception; nothing for one of another worker.

    skipped: files whose frames it does not begin with.
    """
    if is_told(error):
        return ""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in skipped:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)


def told_error(kind: type[E], text: str) -> E:
    """The error of another worker, which that one shows to people."""
    error = kind(text)
    error.is_told = True  # type: ignore[attr-defined]
    return error


def is_told(error: BaseException) -> bool:
    """True for an error of another worker, which shows it by itself."""
    return bool(getattr(error, "is_told", False))


def _end(status: int) -> NoReturn:
    """Ends the process at once: a job whose worker exits with a status other than 0 is ended by MPI."""
    for file in (sys.stdout, sys.stderr):
        with suppress(Exception):
            file.flush()
    os._exit(status or 1)
