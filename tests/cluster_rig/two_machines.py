"""Two machines on one: a network namespace beside this one, and the link between them, which can be cut.

The second machine is reached by ssh, where sshd is there, or by a program that stands in for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = f"10.77.{os.getpid() % 256}"  # another one in tests that run beside
HERE, THERE, NETWORK = f"{PREFIX}.1", f"{PREFIX}.2", f"{PREFIX}.0/24"
LINK, FAR_LINK = f"tbn{os.getpid()}", f"tbf{os.getpid()}"
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
shift
TMPDIR={folder}/far exec {inside} sh -c "$*"
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
SetEnv TMPDIR={folder}/far
"""


CLONE_NEWNET = 0x40000000  # of Linux


@contextlib.contextmanager
def network_of_its_own() -> Iterator[bool]:
    """Context in which the calling thread is in another network namespace; False where it may not.

    Connections that it has stay.
    """
    library = ctypes.CDLL(None)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        is_apart = library.unshare(CLONE_NEWNET) == 0
        try:
            yield is_apart
        finally:
            if is_apart:
                assert library.setns(before, CLONE_NEWNET) == 0
    finally:
        os.close(before)


class FarMachine:
    """Namespaces of network, host name and processes; all that runs there ends with this process, however
    that ends, and the link with it.
    """

    def __init__(self) -> None:
        """Raises PermissionError where they cannot be made."""
        if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "unshare", "nsenter", "setpriv"))):
            raise PermissionError("network namespaces need root, ip, tc and util-linux")
        spaces = ["unshare", "--net", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                *spaces,
                "sh",
                "-c",
                "hostname far; echo; exec sleep infinity",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not self._process.stdout.readline():
            raise PermissionError(f"no network namespace: {self._process.stderr.read().decode()}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._first = children.read_text().strip()  # its process 1
        self.inside = ["nsenter", "-t", self._first, "--net", "--uts", "--pid", "--mount"]
        # Whoever kills nsenter, which waits, kills what it has started there, too.
        self.inside_until_killed = [*self.inside, "setpriv", "--pdeathsig", "KILL"]

    def join(self) -> None:
        """Makes the link between this machine and that one."""
        ip("link", "add", LINK, "type", "veth", "peer", "name", FAR_LINK, "netns", self._first)
        ip("addr", "add", f"{HERE}/24", "dev", LINK)
        ip("link", "set", LINK, "up")
        for words in (
            ("addr", "add", f"{THERE}/24", "dev", FAR_LINK),
            ("link", "set", FAR_LINK, "up"),
            ("link", "set", "lo", "up"),
        ):
            run([*self.inside, "ip", *words])

    def end(self) -> None:
        """Ends all that runs there; the link goes, too."""
        self._process.kill()
        self._process.communicate()
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            ip("link", "del", LINK)  # else it goes when the system has seen that nobody is there


def run(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, timeout=30, text=True).stdout


def ip(*words: str) -> str:
    return run(["ip", *words])


def cut() -> None:
    """Cuts the link."""
    ip("link", "set", LINK, "down")


def shape(megabits: float | None, far: FarMachine) -> None:
    """Lets the link pass so many megabits per second in each direction; None: as many as it can.

    Raises PermissionError where the kernel has no token buckets."""
    for place, link in (([], LINK), (far.inside, FAR_LINK)):
        rate = (
            ("tbf", "rate", f"{megabits}mbit", "burst", "64kb", "latency", "500ms")
            if megabits
            else ("pfifo",)
        )
        command = [*place, "tc", "qdisc", "replace", "dev", link, "root", *rate]
        done = subprocess.run(command, capture_output=True, timeout=30, text=True)
        if done.returncode:
            raise PermissionError(f"no shaped link: {done.stderr}")


def sshd(folder: Path, far: FarMachine) -> str:
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
    start = [server, "-f", f"{folder}/sshd_config", "-E", f"{folder}/sshd.log"]
    subprocess.run([*far.inside, *start], check=True, timeout=10)
    return SSH_AGENT.format(folder=folder)


@dataclass(frozen=True)
class TwoMachines:
    """words: for `tensorbow launch`, to start a worker on each."""

    far: FarMachine
    words: list[str]


@contextlib.contextmanager
def two_machines(folder: Path, by_ssh: bool = False) -> Iterator[TwoMachines]:
    """Context with a second machine.

    folder: for the program that is ssh, or stands in for it. Raises PermissionError or FileNotFoundError
    where network namespaces cannot be made, or there is no sshd.
    """
    far = FarMachine()
    try:
        far.join()
        (folder / "far").mkdir()  # MPI's helper names its files by its process number, which is small there
        agent = folder / "agent"
        agent.write_text(
            sshd(folder, far) if by_ssh else AGENT.format(inside=" ".join(far.inside), folder=folder)
        )
        agent.chmod(0o755)
        options = ["--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", NETWORK]
        options += ["--mca", "btl_tcp_if_include", NETWORK]
        words = ["--hosts", f"{HERE}:1,{THERE}:1", *(f"--mpi-option={word}" for word in options)]
        yield TwoMachines(far, words)
    except subprocess.CalledProcessError as error:
        raise PermissionError(f"no network namespace: {error.stderr}") from error
    finally:
        far.end()
