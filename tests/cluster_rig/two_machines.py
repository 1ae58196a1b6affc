"""Two machines on one: a network namespace beside this one, and the link between them, which can be cut.

The second machine is reached by ssh, where sshd is there, or by a program that stands in for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

PREFIX = f"10.77.{os.getpid() % 256}"  # another one in tests that run beside
HERE, THERE, NETWORK = f"{PREFIX}.1", f"{PREFIX}.2", f"{PREFIX}.0/24"
SPACE, LINK, FAR_LINK = f"tb{os.getpid()}", f"tbn{os.getpid()}", f"tbf{os.getpid()}"
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
exec ip netns exec {space} unshare --uts sh -c "hostname far; $*"
"""
SSH_AGENT = """#!/bin/sh
exec ssh -F {folder}/ssh_config "$@"
"""
SSH_CONFIG = """
Host *
  IdentityFile {folder}/key
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking accept-new
  BatchMode yes
"""
SSHD_CONFIG = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd.pid
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
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


def sshd(folder: Path) -> str:
    """Starts sshd on the second machine, which lets in a key of its own; text of the program that is ssh.

    Raises FileNotFoundError where there is no sshd.
    """
    server = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if server is None or shutil.which("ssh-keygen") is None:
        raise FileNotFoundError("no sshd: install openssh-server")
    for name in ("host_key", "key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, timeout=10)
    for name, text in (("ssh_config", SSH_CONFIG), ("sshd_config", SSHD_CONFIG)):
        (folder / name).write_text(text.format(folder=folder, address=THERE))
    Path("/run/sshd").mkdir(exist_ok=True)  # which sshd asks for
    start = f"hostname far; exec {server} -f {folder}/sshd_config -E {folder}/sshd.log"
    words = ["ip", "netns", "exec", SPACE, "unshare", "--uts", "sh", "-c", start]
    subprocess.run(words, check=True, timeout=10)
    return SSH_AGENT.format(folder=folder)


@contextlib.contextmanager
def two_machines(folder: Path, by_ssh: bool = False) -> Iterator[list[str]]:
    """Context with a second machine; words for `tensorbow launch` that start a worker on each.

    folder: for the program that is ssh, or stands in for it. Raises PermissionError or FileNotFoundError
    where network namespaces cannot be made, or there is no sshd.
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
        agent.write_text(sshd(folder) if by_ssh else AGENT.format(space=SPACE))
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
