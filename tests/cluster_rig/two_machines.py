"""Two machines on one: a network namespace beside this one, and the link between them, which can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE, THERE, NETWORK = "10.77.31.1", "10.77.31.2", "10.77.31.0/24"
SPACE, LINK, FAR_LINK = f"tb{os.getpid()}", f"tbn{os.getpid()}", f"tbf{os.getpid()}"
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
exec ip netns exec {space} unshare --uts sh -c "hostname far; $*"
"""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10, text=True).stdout


def cut() -> None:
    """Cuts the link."""
    ip("link", "set", LINK, "down")


def shape(megabits: float | None) -> None:
    """Lets the link pass so many megabits per second in each direction; None: as many as it can.

    Raises PermissionError where the kernel has no token buckets."""
    for place, link in (((), LINK), (("-n", SPACE), FAR_LINK)):
        rate = (
            ("tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "500ms")
            if megabits
            else ("pfifo",)
        )
        command = ["tc", *place, "qdisc", "replace", "dev", link, "root", *rate]
        done = subprocess.run(command, capture_output=True, timeout=10, text=True)
        if done.returncode:
            raise PermissionError(f"no shaped link: {done.stderr}")


@contextlib.contextmanager
def two_machines(folder: Path) -> Iterator[list[str]]:
    """Context with a second machine; words for `tensorbow launch` that start a worker on each.

    folder: for the program that stands in for ssh. Raises PermissionError or FileNotFoundError where network
    namespaces cannot be made.
    """
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "unshare", "hostname"))):
        raise PermissionError("network namespaces need root, ip, tc and unshare")
    try:
        ip("netns", "add", SPACE)
        ip("link", "add", LINK, "type", "veth", "peer", "name", FAR_LINK, "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", LINK)
        ip("link", "set", LINK, "up")
        for words in (("addr", "add", f"{THERE}/24", "dev", FAR_LINK), ("link", "set", FAR_LINK, "up")):
            ip("-n", SPACE, *words)
        ip("-n", SPACE, "link", "set", "lo", "up")
        agent = folder / "agent"
        agent.write_text(AGENT.format(space=SPACE))
        agent.chmod(0o755)
        options = ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", NETWORK]
        options += ["--mca", "btl_tcp_if_include", NETWORK]
        yield ["--hosts", f"{HERE}:1,{THERE}:1", *(f"--mpi-option={word}" for word in options)]
    except subprocess.CalledProcessError as error:
        raise PermissionError(f"no network namespace: {error.stderr}") from error
    finally:
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            for process in ip("netns", "pids", SPACE).split():  # MPI's helper outlives a cut link
                os.kill(int(process), signal.SIGKILL)
        for words in (("netns", "del", SPACE), ("link", "del", LINK)):
            with contextlib.suppress(subprocess.CalledProcessError, OSError):
                ip(*words)
