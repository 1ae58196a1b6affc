"""Watch of a job that `mpirun` has started by itself: its server is a thread of worker 0."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from functools import partial
from types import TracebackType

from scheduler.workers.group import WorkerGroup
from scheduler.workers.mpirun import Hosts
from scheduler.workers.watch_client import WATCH, WatchClient, is_told, reason_of
from scheduler.workers.watch_server import WatchServer
from tensorbow.errors import InvalidArgumentError

LIMIT = "TENSORBOW_WATCHDOG"  # environment variable: seconds, as `tensorbow launch --watchdog`
USUAL_S = 300.0
TICK_S = 0.2
_own: list[WatchClient] = []  # of this process: one, in a job that nobody else watches


def watch(workers: WorkerGroup) -> None:
    """Watches the workers of a job that nobody watches yet; has their exceptions end it. Collective.

    Raises InvalidArgumentError for an unusable TENSORBOW_WATCHDOG.
    """
    if WATCH in os.environ:  # `tensorbow launch` watches
        return
    limit_s = _limit_s()
    hosts = workers.all_gather(socket.gethostname())
    contact = None
    if workers.rank == 0:
        others = tuple((host, 1) for host in dict.fromkeys(hosts) if host != hosts[0])
        server = WatchServer(workers.size, limit_s, Hosts(others).address() if others else "127.0.0.1")
        threading.Thread(target=_serve, args=(server,), name="tensorbow-job", daemon=True).start()
        contact = server.contact
    client = WatchClient(workers.broadcast(contact), workers.rank)
    _own.append(client)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = partial(_end_job, client)


def leave(status: int) -> None:
    """Ends this process with a status other than 0, with all others, if it watches its job by itself."""
    for client in _own:
        client.fail(status)


def _limit_s() -> float:
    text = os.environ.get(LIMIT, str(USUAL_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise InvalidArgumentError(f"{LIMIT}: expected seconds, 0 for no limit, got {text!r:.40}")
    return seconds


def _serve(server: WatchServer) -> None:
    """Ends the job at its first fault."""
    while True:
        fault = server.step(TICK_S)
        if fault is not None:
            os.write(2, f"tensorbow: {fault.text}\n".encode())
        status = server.watch.status if fault is None else fault.status
        if status:
            server.tell({"end": status})
            os._exit(status)


def _end_job(
    client: WatchClient, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """`sys.excepthook` of a worker: its exception ends the job, in which others wait for it."""
    if not is_told(error):
        traceback.print_exception(kind, error, trace)
    client.fail(1, *reason_of(error))
