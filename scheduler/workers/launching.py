"""Starts the workers of a job by MPI, watches them, ends all when one fails, and starts them again."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from scheduler.workers.find import OPEN_MPI
from scheduler.workers.job_watch import NOBODY, START_S, Fault, JobWatch
from scheduler.workers.memory_of_mpi import shared_memory_of_mpi
from scheduler.workers.mpirun import AS_ROOT, Hosts, command_of
from scheduler.workers.watch_client import WATCH
from scheduler.workers.watch_server import WatchServer
from tensorbow.errors import FailedPreconditionError
from tensorbow.training import TERMINAL

END_S = 3.0  # for the workers to end when they are told
OVER_S = 30.0  # for MPI and mpirun when all programs have ended well
SOON_S = 1.0  # for mpirun when it is told, and for what it has printed

ATTEMPT = "TENSORBOW_ATTEMPT"  # environment variable of workers: 0, and with each restart one more
BAD_OPTION = 2  # exit status that a restart does not change
TOLD_S = 5.0  # after a signal was passed on, until people are told that a second one ends all at once
TICK_S = 0.05
RULE = b"-" * 60  # begins the lines around mpirun's own messages
OF_MPI = re.compile(rb"\x00*\[[^\]]*:\d+\] \*\*\* ")  # begins those of a worker's MPI, as "Socket closed"


@dataclass(frozen=True)
class Job:
    """Options of a job. mpirun: as `find_mpirun` says. more: further options of mpirun.

    watchdog_s, start_limit_s: limits of JobWatch. watch_port: of the WatchServer.

    program: the command of a worker; again: the words that a restart adds, given the run's folder.
    """

    workers: int
    hosts: Hosts
    mpirun: tuple[str, str]
    watchdog_s: float
    restarts: int
    program: Sequence[str]
    again: Callable[[str | None], Sequence[str]]
    more: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    start_limit_s: float = START_S
    watch_port: int = 0


class JobLaunch:
    """A job under way. `interrupt` may be called by a signal handler."""

    def __init__(self, job: Job, say: Callable[[str], None]):
        """say: prints a line for people."""
        self._job, self._say = job, say
        self._signals: list[int] = []
        self._told = 0  # signals that were passed on

    def interrupt(self, number: int) -> None:
        """Passes a signal on to all workers; the second one ends them at once, and so does the first one
        while some have not started."""
        self._signals.append(number)

    def run(self) -> int:
        """Runs the job to its end; returns its exit status.

        0 means that each worker has told that its program ended well, whatever mpirun's own status is.
        Raises FailedPreconditionError if mpirun cannot be started, or the watch's port is in use.
        """
        words, folder = list[str](), None
        for attempt in range(self._job.restarts + 1):
            fault, status, watch = self._attempt(attempt, words)
            if fault is not None:
                self._say(fault.text)
            if self._signals:
                return status or 128 + self._signals[0]
            if status in (0, BAD_OPTION):
                return status
            if attempt < self._job.restarts:
                folder = watch.folder or folder  # an attempt may end before it has told
                words = [*self._job.again(folder)]
                where = f", from the last checkpoint in {folder}" if folder else ""
                self._say(f"restart {attempt + 1} of {self._job.restarts}{where}")
        return status

    def _attempt(self, attempt: int, words: Sequence[str]) -> tuple[Fault | None, int, JobWatch]:
        job = self._job
        address = job.hosts.address() if job.hosts.slots else "127.0.0.1"
        server = WatchServer(job.workers, job.watchdog_s, address, job.start_limit_s, job.watch_port)
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        own = {WATCH: server.contact, ATTEMPT: str(attempt), TERMINAL: str(int(is_terminal))}
        environment = {**OPEN_MPI, **os.environ, **AS_ROOT, **job.environment, **own}
        program = [*job.program, *words]
        command = command_of(job.mpirun, job.workers, job.hosts, program, environment, job.more)
        with shared_memory_of_mpi(alone=not job.hosts.slots) as memory:
            return self._followed(server, command, {**memory, **environment})

    def _followed(
        self, server: WatchServer, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[Fault | None, int, JobWatch]:
        """Starts mpirun and follows the job to its end."""
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # the terminal's Ctrl-C comes here alone, and is passed on in order
            )
        except OSError as error:
            server.close()
            raise FailedPreconditionError(f"launch: cannot start {command[0]}: {error.strerror}") from error
        assert process.stderr is not None
        errors = _Errors(process.stderr)
        try:
            fault = self._watched(server, process)
            fault = fault or self._end_of(server.watch, process.returncode, errors)
            server.tell({"end": 1 if fault is None else fault.status})
        finally:
            _ended(process, server.watch)
            server.close()
            errors.join()
        status = server.watch.status
        if fault is not None and not self._signals:
            status = fault.status
        if fault is not None and fault.number == NOBODY:
            errors.show_notes()
        for number, shown in server.watch.last_words():
            for line in shown.splitlines():
                print(f"worker {number}: {line}" if number else line, file=sys.stderr, flush=True)
        return None if self._signals else fault, status or 0, server.watch

    def _watched(self, server: WatchServer, process: subprocess.Popen[bytes]) -> Fault | None:
        """Follows the job until it ends, has a fault, or is interrupted twice."""
        over: float | None = None  # since when
        told_s = math.inf
        while process.poll() is None:
            fault = server.step(TICK_S)
            if fault is not None:
                return fault
            if server.watch.status:
                return None  # all have ended of themselves, and wait for leave
            if server.watch.status == 0 and over is None:
                over = time.monotonic()
                server.tell({"bye": 1})  # all programs have ended well, and wait for each other
            if over is not None and time.monotonic() - over > OVER_S:
                self._say(
                    f"launch: all programs have ended well, but not mpirun within {OVER_S:g} s: ended it"
                )
                return None
            while self._told < len(self._signals):
                if self._told or not server.watch.all_have_started:
                    return None
                server.tell({"signal": self._signals[0]})
                self._told += 1
                told_s = time.monotonic()
            if self._told and told_s + TOLD_S < time.monotonic():
                self._say(
                    "launch: all workers are told to stop, and some still run; a second signal kills them"
                )
                told_s = math.inf
        for _ in range(3):
            server.step(0.0)  # last words
        return None

    def _end_of(self, watch: JobWatch, returned: int | None, errors: _Errors) -> Fault | None:
        """The fault of a job whose mpirun has ended, while some worker has not told that its program has."""
        if self._signals:
            return None
        if watch.status is not None:
            return watch.fault(time.monotonic())
        if returned is not None and returned < 0:
            step = max(worker.round for worker in watch.workers)
            return Fault(NOBODY, f"launch: mpirun was killed by {_signal_name(-returned)} at step {step}")
        if all(worker.heard is None for worker in watch.workers):
            if (number := errors.worker()) is not None:
                return Fault(number, f"worker {number} was killed or has crashed before it had started")
            return Fault(NOBODY, f"launch: mpirun ended with status {returned} before any worker had started")
        fault = watch.fault(time.monotonic() + watch.limit_s + 1e3)
        left = next(worker for worker in watch.workers if worker.status is None or worker.status)
        return fault or Fault(left.number, f"{left.name} has ended {left.where}, and has not said how")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _ended(process: subprocess.Popen[bytes], watch: JobWatch) -> None:
    """Waits for the end of mpirun and the workers, and enforces it."""
    if any(worker.heard is not None for worker in watch.workers):  # who have been told to end
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    if process.poll() is None:
        _kill_here(watch)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(SOON_S)
    if process.poll() != 0:  # else what a program has left behind on purpose goes on
        _kill_session(process.pid)
    process.wait()
    _kill_here(watch)


def _kill_session(session: int) -> None:
    """Kills mpirun and what it has started here to reach other machines: each ssh has a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    with suppress(OSError):  # without /proc each ssh ends by itself
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), signal.SIGKILL)


def _kill_here(watch: JobWatch) -> None:
    """Kills the workers of this machine that are left, also stopped ones."""
    for worker in watch.workers:
        if worker.process and worker.host == socket.gethostname():
            with suppress(OSError):
                if os.getsid(worker.process) != os.getsid(0) and _is_worker(worker.process):
                    os.kill(worker.process, signal.SIGKILL)


def _is_worker(process: int) -> bool:
    """True if the process still is a worker: its number may be another's by now."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return f"{WATCH}=".encode() in file.read()
    except OSError:
        return False


class _Errors:
    """Passes on stderr of a job, without mpirun's own notes, which repeat at length what the watch says."""

    def __init__(self, file: IO[bytes]):
        self._file, self._notes = file, b""
        self._thread = threading.Thread(target=self._pass_on, name="tensorbow-stderr", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        inside = False
        while line := self._file.readline():
            if line.startswith(RULE):
                inside = not inside
            if inside or line.startswith(RULE) or OF_MPI.match(line):
                self._notes += line
                continue
            with suppress(OSError, ValueError):
                sys.stderr.buffer.write(line)
                sys.stderr.flush()

    def join(self) -> None:
        """Waits for the end, for a while, and closes the file; one that others hold open closes later."""
        self._thread.join(SOON_S)
        if not self._thread.is_alive():
            self._file.close()

    def worker(self) -> int | None:
        """The worker that mpirun blames, if it names one."""
        self._thread.join(END_S)
        found = re.search(rb"\brank (\d{1,9})\b", self._notes)
        return None if found is None else int(found[1])

    def show_notes(self) -> None:
        """Prints what mpirun said, which explains why nothing has started."""
        with suppress(OSError, ValueError):
            sys.stderr.buffer.write(self._notes)
            sys.stderr.flush()
