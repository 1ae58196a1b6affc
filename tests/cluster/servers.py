"""Clusters for tests: servers in this process, and in processes of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import tensorbow as tb

SERVE = """
import json, sys
import tensorbow as tb
cluster, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with tb.train.Server(cluster, job, task) as server:
    print("ready", flush=True)
    server.join()
"""


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def cluster_of(**tasks: int) -> dict[str, list[str]]:
    """Addresses for so many tasks of each job."""
    addresses = iter(free_addresses(sum(tasks.values())))
    return {job: [next(addresses) for _ in range(count)] for job, count in tasks.items()}


@contextmanager
def servers_here(**tasks: int) -> Iterator[dict[str, tb.train.Server]]:
    """Servers of a cluster in this process, by their names as `ps0`."""
    cluster = cluster_of(**tasks)
    with ExitStack() as stack:
        yield {
            f"{job}{index}": stack.enter_context(tb.train.Server(cluster, job, index))
            for job, count in tasks.items()
            for index in range(count)
        }


def start_process(cluster: Mapping[str, list[str]], job: str, task: int) -> subprocess.Popen[str]:
    """A process that serves one task; returns once it does."""
    process = begin_process(cluster, job, task)
    await_ready(process)
    return process


def begin_process(cluster: Mapping[str, list[str]], job: str, task: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVE, json.dumps(cluster), job, str(task)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def end(process: subprocess.Popen[str]) -> None:
    """Kills a process and waits for its end."""
    process.kill()
    process.communicate(timeout=20)
