"""Watch of a job that `mpirun` has started by itself: its server is a thread of worker 0.

A program that ends tells so before Python calls MPI_Finalize, which waits for all other workers: one that
leaves by `sys.exit` while they train on ends the job, as an exception does.
"""

from __future__ import annotations

import atexit
import math
import os
import socket
import sys
import threading
import time
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from scheduler.workers.group import WorkerGroup
from scheduler.workers.job_warnings import share_warnings
from scheduler.workers.joining import own_limit_s
from scheduler.workers.mpirun import Hosts
from scheduler.workers.watch_client import WATCH, WatchClient, close_clients, reason_of, traceback_of
from scheduler.workers.watch_server import WatchServer, own_port

TICK_S = 0.2


def watch(workers: WorkerGroup) -> None:
    """Watches the workers of a job that nobody watches yet; their exceptions and exits end it. Collective.

    Raises InvalidArgumentError for an unusable TENSORBOW_WATCHDOG or TENSORBOW_WATCH_PORT,
    FailedPreconditionError for a port that is in use.
    """
    if WATCH in os.environ:  # `tensorbow launch` watches
        return
    limit_s, port = own_limit_s(), own_port()
    hosts = workers.all_gather(socket.gethostname())
    contact = serving = None
    if workers.rank == 0:
        others = tuple((host, 1) for host in dict.fromkeys(hosts) if host != hosts[0])
        address = Hosts(others).address() if others else "127.0.0.1"
        server = WatchServer(workers.size, limit_s, address, port=port)
        serving = threading.Thread(target=_serve, args=(server,), name="tensorbow-job", daemon=True)
        serving.start()
        contact = server.contact
    contact, watcher = workers.broadcast((contact, f"worker 0 ({hosts[0]}, process {os.getpid()})"))
    client = WatchClient(contact, workers.rank, watcher)
    share_warnings(client.shows)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = partial(_end_job, client)
    ending = _Ending(client, serving)
    sys.exit = ending.exit
    atexit.register(ending.tell)


class _Ending:
    """The end of a worker's program; its status is that of the last `sys.exit`.

    Without one it is not known: Python has dropped a SystemExit that a program raises when it calls `atexit`,
    and tells its status to the operating system alone.
    """

    def __init__(self, client: WatchClient, serving: threading.Thread | None = None):
        """serving: the thread of the job's watch, in the worker that has it."""
        self._client, self._serving = client, serving
        self._process, self._exit = os.getpid(), sys.exit
        self._codes: list[object] = []

    def exit(self, code: Any = None, /) -> NoReturn:
        """`sys.exit`."""
        self._codes.append(0 if code is None else code)
        self._exit(code)

    def tell(self) -> None:
        """Reports the end, and waits for the others' while the watch goes on.

        Worker 0 waits for the watch, too: Python stops its thread, which may not have told all others yet
        that they may end, and MPI_Finalize would wait for those.
        """
        if os.getpid() != self._process:  # a forked process is no worker
            return
        if not self._client.is_closed:
            self._report()
        if self._serving is not None:
            self._serving.join()

    def _report(self) -> None:
        client, code = self._client, self._codes[-1] if self._codes else None
        error = getattr(sys, "last_value", None)  # of a program that has an excepthook of its own
        if isinstance(error, BaseException):
            client.fail(1, *reason_of(error))
        if code is None or isinstance(code, int):
            client.tell_end(None if code is None else int(code))
        else:
            client.tell_end(1, " ".join(f"{code}".split()))  # which Python has printed
        client.await_others()


def _serve(server: WatchServer) -> None:
    """Ends the job at its first fault."""
    limit_s, before = server.watch.limit_s or math.inf, time.monotonic()
    while True:
        fault = server.step(TICK_S)
        before, passed_s = time.monotonic(), time.monotonic() - before
        if fault is not None and passed_s > limit_s:
            os._exit(fault.status)  # this process was stopped: the others have said so, and ended
        if fault is not None or server.watch.status:
            lines = [shown for _, shown in server.watch.last_words()]
            lines += [] if fault is None else [f"tensorbow: {fault.text}\n"]
            os.write(2, "".join(lines).encode())
        status = server.watch.status if fault is None else fault.status
        if status == 0:
            server.close()
            return
        if status:
            close_clients()  # this process ends last, so that its messages reach the others
            server.tell({"end": status})
            server.step(TICK_S)
            os._exit(status)


def _end_job(
    client: WatchClient, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """`sys.excepthook` of a worker: its exception ends the job, in which others wait for it."""
    client.fail(1, *reason_of(error), traceback_of(error))
