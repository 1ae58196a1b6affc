"""The command by which MPI starts the workers of a job: `mpirun` with the options that training needs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorbow.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

VARIABLE = "TENSORBOW_MPIRUN"  # environment variable: the program that starts workers
OF_ONE_MACHINE = (
    "--mca",
    "pml",
    "ob1",
    "--mca",
    "btl",
    "self,sm,tcp",
)  # starts faster than a search for fabrics
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PASSED_ON = ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH")  # to other machines, with those that begin as:
PASSED_PREFIXES = ("TENSORBOW_", "OMP_", "CUDA_VISIBLE")

_HOST = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]{0,254}|\[[0-9A-Fa-f:]+\])(?::([1-9]\d{0,5}))?$")


@dataclass(frozen=True)
class Hosts:
    """Machines of a job, and the workers on each; none for this machine alone."""

    slots: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, text: str | None) -> Hosts:
        """Reads `a:2,b:2`; a name without a number has one worker. Raises InvalidArgumentError."""
        found: dict[str, int] = {}
        for part in (text or "").split(",") if text is not None else ():
            match = _HOST.match(part.strip())
            if match is None or match[1] in found:
                raise InvalidArgumentError(
                    f"hosts: expected different names with their workers, as a:2,b:2, got {text!r:.80}"
                )
            found[match[1]] = int(match[2] or 1)
        return cls(tuple(found.items()))

    @property
    def workers(self) -> int:
        """Workers on all machines."""
        return sum(count for _, count in self.slots)

    def __str__(self) -> str:
        return ",".join(f"{host}:{count}" for host, count in self.slots)

    def address(self) -> str:
        """The address of this machine at which the others reach it. Raises FailedPreconditionError."""
        try:
            addresses = [socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0] for host, _ in self.slots]
            for family, kind, _, _, target in addresses:
                with socket.socket(family, kind) as one:
                    one.connect(target)  # sends nothing: the system chooses the interface
                    found = str(one.getsockname()[0])
                if not found.startswith("127.") and found != "::1":
                    return found
        except OSError as error:
            raise FailedPreconditionError(
                f"hosts: expected names of machines that can be reached, got {self}: {error}"
            ) from error
        return "127.0.0.1"


def find_mpirun(given: str | None) -> tuple[str, str]:
    """Path and first line of the version of `mpirun`: as given, beside Python, or on the PATH.

    Raises NotFoundError if there is none, FailedPreconditionError if it does not run.
    """
    given = given or os.environ.get(VARIABLE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    names = (given,) if given else ("mpirun", "mpiexec")
    found = next(filter(None, (shutil.which(name, path=path) for name in names)), None)
    if found is None:
        raise NotFoundError(
            f"launch: there is no {' or '.join(names)}; install one by `pip install 'tensorbow[mpi]'`, or "
            "give the one of this site by --mpirun"
        )
    try:
        said = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FailedPreconditionError(f"launch: {found} --version does not run: {error}") from error
    return found, (said.stdout or said.stderr).strip().partition("\n")[0]


def command_of(
    mpirun: tuple[str, str],
    workers: int,
    hosts: Hosts,
    program: Sequence[str],
    environment: Mapping[str, str],
    more: Sequence[str] = (),
) -> list[str]:
    """The command that starts a program in all workers of a job.

    mpirun: as `find_mpirun` says. environment: of this process; what concerns training is passed on to other
    machines. more: further options of mpirun.
    """
    path, version = mpirun
    command = [path, "-n", str(workers)]
    if "Open MPI" in version or "OpenRTE" in version:
        command += ["--oversubscribe", "--bind-to", "none"]
        if hosts.slots:
            command += ["--host", str(hosts), "--wdir", os.getcwd()]
            names = [n for n in environment if n in PASSED_ON or n.startswith(PASSED_PREFIXES)]
            command += [word for name in sorted(names) for word in ("-x", name)]
        else:
            command += OF_ONE_MACHINE
    elif hosts.slots:  # MPICH and those made from it
        command += ["-hosts", str(hosts), "-wdir", os.getcwd()]
    return [*command, *more, *program]
