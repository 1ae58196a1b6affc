"""`tensorbow launch`."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import click

import tensorbow
from scheduler.options import shortened
from scheduler.workers.job_watch import START_S
from scheduler.workers.launching import Job, JobLaunch
from scheduler.workers.mpirun import Hosts, find_mpirun
from scheduler.workers.watch_server import MOST_PORTS
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import OptionValueError, say
from tensorbow.cli.options import PathOption
from tensorbow.errors import InvalidArgumentError
from tensorbow.launcher import ENDING

ENTRY = Path(tensorbow.__file__).with_name("worker_entry.py")
SHARED = ("train", "tune", "sweep")  # commands that the workers of a job run together
WATCHDOG_S = 300.0
LONGEST_S, LONGEST_WORD, MOST_WORKERS, MOST_RESTARTS = 1e9, 1 << 12, 1 << 16, 1_000_000
EXAMPLES = (
    ("launch -n 2 train lenet --replicas-per-gpu 2", "Two workers of two replicas each, on this machine."),
    ("launch -n 4 train.py --steps 1000", "A program of your own, with a MultiWorkerReplicator."),
    ("launch -n 2 sweep lenet --seeds 8", "The members of a sweep, shared out to two workers."),
    ("launch --hosts a:2,b:2 --restarts 3 train lenet", "Two machines; a fault restarts the job."),
)


@click.command(
    cls=grouped(EXAMPLES),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-n",
    "--workers",
    type=int,
    show_default="as --hosts says",
    help="Number of workers: processes that train together.",
)
@click.option(
    "--hosts",
    metavar="HOST[:N],...",
    show_default="this machine",
    help="Machines, and the workers on each; mpirun reaches them by ssh.",
)
@click.option(
    "--restarts",
    type=int,
    default=0,
    show_default=True,
    help="Start the job again so many times after a fault, train and sweep from the last checkpoint.",
)
@click.option(
    "--watchdog",
    type=float,
    default=WATCHDOG_S,
    show_default="300",
    metavar="SECONDS",
    help="End the job when no step ends for so long while a worker waits for others, or nothing is heard of "
    "a worker; 0 waits for ever. Give more than one worker takes for what it does alone between steps.",
)
@click.option(
    "--start-limit",
    type=float,
    default=START_S,
    show_default="300",
    metavar="SECONDS",
    help="End the job when a worker has not started so long after the launch; 0 waits for ever.",
)
@click.option(
    "--watch-port",
    type=int,
    default=0,
    show_default="any",
    help="Port on this machine that workers report to, as a firewall allows it.",
)
@click.option(
    "--mpirun",
    type=PathOption(),
    metavar="PATH",
    show_default="beside Python, or on the PATH",
    help="Program that starts workers.",
)
@click.option(
    "--mpi-option",
    "mpi_options",
    multiple=True,
    metavar="WORD",
    show_default="none",
    help="A further word for mpirun, as --mpi-option=--display --mpi-option=map; may be given several times.",
)
@click.argument("program", metavar="PROGRAM")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.pass_context
def launch(
    context: click.Context,
    workers: int | None,
    hosts: str | None,
    restarts: int,
    watchdog: float,
    start_limit: float,
    watch_port: int,
    mpirun: str | None,
    mpi_options: tuple[str, ...],
    program: str,
    arguments: tuple[str, ...],
) -> int:
    """Start workers that train together, on one machine or several, and end all of them when one fails.

    PROGRAM is a Python file of your own, with its ARGS, or one of the commands train, tune and sweep, with
    its options.

    Needs MPI: pip install 'tensorbow[mpi]', or the mpirun of this site with mpi4py. Lines of workers other
    than 0 begin with their number. Ends with status 0 only if each worker's program has ended well.
    """
    try:
        machines = Hosts.read(hosts)
    except InvalidArgumentError as error:
        raise OptionValueError(f"--{error}") from None
    if not 0 <= restarts <= MOST_RESTARTS:
        raise OptionValueError(f"--restarts: expected 0 to {MOST_RESTARTS}, got {shortened(restarts)}")
    for name, seconds in (("watchdog", watchdog), ("start-limit", start_limit)):
        if not 0 <= seconds < LONGEST_S:
            raise OptionValueError(f"--{name}: expected seconds, 0 for no limit, got {seconds:g}")
    if not 0 <= watch_port < MOST_PORTS:
        raise OptionValueError(f"--watch-port: expected 0 to {MOST_PORTS - 1}, got {shortened(watch_port)}")
    if any(not 0 < len(word) < LONGEST_WORD or "\0" in word for word in mpi_options):
        raise OptionValueError(f"--mpi-option: expected a word for mpirun, got {shortened(mpi_options)}")
    words = [*_program(program), *arguments]
    count = machines.workers if workers is None else workers
    if workers is None and not machines.slots:
        raise OptionValueError("-n: expected the number of workers, got none; give -n 2, or --hosts")
    if not 1 <= count <= MOST_WORKERS or (machines.slots and count > machines.workers):
        most = machines.workers if machines.slots else MOST_WORKERS
        raise OptionValueError(f"-n: expected 1 to {most} workers, got {shortened(count)}")
    job = Job(
        workers=count,
        hosts=machines,
        mpirun=find_mpirun(mpirun),
        watchdog_s=watchdog,
        start_limit_s=start_limit,
        watch_port=watch_port,
        restarts=restarts,
        program=[sys.executable, str(ENTRY), *words],
        again=partial(_again, program),
        more=mpi_options,
        environment={"TENSORBOW_HOME": str(ENTRY.parent.parent)},
    )
    running = JobLaunch(job, say)
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda number, frame: running.interrupt(number))
        return running.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _again(program: str, folder: str | None) -> tuple[str, ...]:
    """Words by which a job that is started again goes on in a folder."""
    if folder is None or program == "tune":
        return ()
    return ("--resume", *(() if program == "sweep" else ("auto",)), "--output", folder)


def _program(name: str) -> list[str]:
    """First words of a worker's entry: a program's path, or "tensorbow" and a command.

    Raises OptionValueError.
    """
    if name in SHARED:
        return ["tensorbow", name]
    if os.path.isfile(name):
        return [name]
    missing = ", which is not there" if name.endswith(".py") else ""
    raise OptionValueError(
        f"PROGRAM: expected a file, as train.py, or train, tune or sweep, got {shortened(name)}{missing}"
    )
