"""Faults of a worker: how soon all processes of the job end, with which line, and if resuming keeps the bits.

    python benchmarks/worker_faults.py [--kills 100] [--other-kills 20] [--small] [--limit SECONDS] [--fresh]

Two workers of one replica each train an MLP on the digits by `tensorbow launch`, or by `mpirun` alone, with a
watchdog of a few seconds, some with a backup worker. Faults come in the middle of training; the time is from
the fault to the end of the last process. A link is cut between two network namespaces, where root may make
some. Asked of each fault: all processes end in time, the job's status is not 0, and one line names the worker
and its step.

Runs whose workers are killed at random moments once there is a checkpoint, some while they start again, and
restarted each time by `--restarts`, are compared bit by bit with one that nothing disturbs: as many runs as
all kills need, with SMA and fewer with other synchronisers. Needs the extra `mpi`, and Linux.

Each fault and run is stored when it has ended, and a script that was ended goes on there, unless `--fresh`.
`--limit` begins nothing new after so many seconds. Ends with status 1 if anything that is asked was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cells import Cell, Cells, cells_of
from harness import parser, positive_float, positive_int, save
from results_page import MISSED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "worker_faults"
WATCHDOG_S, GRACE_S = 5.0, 10.0  # of the jobs; asked: to the end after a fault, or after the watchdog's time
SETTLE_S = 1.5  # from the first checkpoint to a fault: each worker has told its step meanwhile
STAYS_S = 60.0  # after a fault: a process that is there still is said to stay, and killed
WORKERS, EPOCHS = 2, 150
KILLS_OF_RUN = 8  # at most
OUT, ERR = (Path(tempfile.gettempdir()) / f"{NAME}-{os.getpid()}.{kind}" for kind in ("out", "err"))
LONGEST_S = 3.0  # from a start to a kill that waits for no new checkpoint,
LATER_S = 0.5  # and from a new checkpoint to a kill
TRAIN = ("train", "mlp", "--dataset", "digits", "--replicas-per-gpu", 1, "--checkpoint-rounds", 200)
PROGRAM = """
import os, sys, time
import tensorbow as tb
worker, fault = int(os.environ["OMPI_COMM_WORLD_RANK"]), sys.argv[1]
if fault == "import" and worker == 1:
    print("now", time.time(), flush=True)
    import a_module_that_is_not_there
class Fault(tb.Callback):
    def on_round(self, run, report):
        if report.round == 200:
            print("now", time.time(), flush=True)
            if fault == "raise": raise ValueError("of the program")
            if fault == "exit": sys.exit(3)
            if fault == "sleep": time.sleep(1e6)
            if fault == "abort": os.abort()
if fault.startswith("loop"):
    import numpy as np
    replicator = tb.MultiWorkerReplicator(["/cpu:0"])
    def step_fn(x):
        optimizer = replicator.wrap_optimizer(tb.train.GradientDescentOptimizer(0.1))
        loss = tb.reduce_mean(tb.square(tb.layers.dense(x, 64)))
        with tb.control_dependencies([optimizer.minimize(loss)]):
            return tb.identity(loss)
    def input_fn(context):
        while True:
            yield np.ones([16, 64], np.float32)
    for number, _ in enumerate(replicator.train(step_fn, input_fn, 10**9)):
        if number == 200 and worker == 1:
            print("now", time.time(), flush=True)
            if fault == "loop": raise ValueError("of the program")
            sys.exit(3 if fault == "loop-exit" else 0)
more = {"sync": "ssgd", "backup": 1} if "backup" in sys.argv else {}
tb.fit("mlp", "digits", replicas=1, epochs=100000, callbacks=[Fault()], progress=False, **more)
"""


CUT = "cut"
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


class Fault(NamedTuple):
    """A fault. cause: what to do to the processes of the workers, or the program's own fault.

    worker: that the job must name; None: any.
    """

    name: str
    worker: int | None
    cause: Callable[[Sequence[int]], None] | str
    waits: bool = False  # the watchdog finds it
    launcher: str = "launch"  # or mpirun
    backup: bool = False  # S-SGD that does without one of the workers' gradients
    in_training: bool = True

    @property
    def limit_s(self) -> float:
        """Seconds to the end of all processes, as asked."""
        return GRACE_S + (WATCHDOG_S if self.waits else 0.0)


def signalled(worker: int, number: int) -> Callable[[Sequence[int]], None]:
    return lambda workers: os.kill(workers[worker], number)


MPIRUN: dict[str, Any] = {"launcher": "mpirun"}
BACKUP_WORKER: dict[str, Any] = {"backup": True}
FAULTS = (
    Fault("kill -9 of worker 1", 1, signalled(1, KILL)),
    Fault("kill -9 of worker 0", 0, signalled(0, KILL)),
    Fault("crash of native code (SIGSEGV) in worker 1", 1, signalled(1, signal.SIGSEGV)),
    Fault("exception in worker 0's program", 0, "raise"),
    Fault("sys.exit(3) in worker 0's program", 0, "exit"),
    Fault("exception in worker 1's loop", 1, "loop"),
    Fault("sys.exit(0) in worker 1's loop", 1, "loop-leave"),
    Fault("failed import in worker 1", 1, "import", in_training=False),
    Fault("worker 1 stops (SIGSTOP)", 1, signalled(1, STOP), waits=True),
    Fault("worker 0 stops (SIGSTOP)", 0, signalled(0, STOP), waits=True),
    Fault("worker 0's program sleeps between steps", 0, "sleep", waits=True),
    Fault("the link between two machines is cut", None, CUT, waits=True),
    Fault("mpirun: kill -9 of worker 1", 1, signalled(1, KILL), **MPIRUN),
    Fault("mpirun: kill -9 of worker 0", 0, signalled(0, KILL), **MPIRUN),
    Fault("mpirun: exception in worker 0's program", 0, "raise", **MPIRUN),
    Fault("mpirun: exception in worker 1's loop", 1, "loop", **MPIRUN),
    Fault("mpirun: sys.exit(3) in worker 0's program", 0, "exit", **MPIRUN),
    Fault("mpirun: sys.exit(3) in worker 1's loop", 1, "loop-exit", **MPIRUN),
    Fault("mpirun: sys.exit(0) in worker 1's loop", 1, "loop-leave", **MPIRUN),
    Fault("mpirun: worker 1 stops (SIGSTOP)", 1, signalled(1, STOP), waits=True, **MPIRUN),
    Fault("mpirun: worker 0 stops (SIGSTOP)", 0, signalled(0, STOP), waits=True, **MPIRUN),
    Fault("backup worker: kill -9 of worker 1", 1, signalled(1, KILL), **BACKUP_WORKER),
    Fault("backup worker: exception in worker 0's program", 0, "raise", **BACKUP_WORKER),
    Fault("backup worker: worker 1 stops (SIGSTOP)", 1, signalled(1, STOP), waits=True, **BACKUP_WORKER),
    Fault("backup worker: worker 0's program sleeps between steps", 0, "sleep", waits=True, **BACKUP_WORKER),
)
OF_SMALL = (
    "kill -9 of worker 1",
    "worker 1 stops (SIGSTOP)",
    "the link between two machines is cut",
    "mpirun: sys.exit(3) in worker 1's loop",
)
BACKUP = ("--sync", "ssgd", "--backup", 1)
WAYS: dict[str, tuple[Any, ...]] = {
    "sma, staleness 1": ("--staleness", 1),
    "ssgd": ("--sync", "ssgd"),
    "diloco, staleness 1": ("--sync", "diloco", "--tau", 20, "--staleness", 1),
    "sma": (),  # with most kills
}
UNDISTURBED, KILLED = "undisturbed", "killed"  # runs of a way
BEGAN = time.monotonic()
OTHER_FAULT = re.compile(r"tensorbow: worker (?!.* was killed or has crashed)")  # than a kill
AT_START = 0.2  # probability of a kill that waits for no new checkpoint


def start(words: Sequence[Any], *options: Any, launcher: str = "launch") -> subprocess.Popen[str]:
    command: list[Any] = [sys.executable, "-m", "tensorbow", "launch", "-n", WORKERS]
    environment = dict(os.environ)
    if launcher == "mpirun":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = [shutil.which("mpirun", path=path) or "mpirun", "-n", WORKERS, "--oversubscribe"]
        command.append(sys.executable)
        command += ["-m", "tensorbow"] if words[0] == "train" else []
        environment |= {"TENSORBOW_WATCHDOG": str(WATCHDOG_S), "OMPI_ALLOW_RUN_AS_ROOT": "1"}
        environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    else:
        command += ["--watchdog", WATCHDOG_S]
    return subprocess.Popen(
        [*map(str, (*command, *options, *words))],
        env=environment,
        stdout=OUT.open("w"),
        stderr=ERR.open("w"),
        text=True,
        start_new_session=True,
    )


def output_of(job: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """Waits for a job; what it has printed, which is in files: nobody reads a pipe meanwhile."""
    job.wait(seconds)
    return OUT.read_text(), ERR.read_text()


def descendants(process: int) -> list[int]:
    """Processes below one, in the order in which they were started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [process]
    for each in found:
        found += sorted(child for child, parent in parents.items() if parent == each)
    return found[1:]


def workers_of(job: subprocess.Popen[str]) -> list[int]:
    """Processes of the workers by number; fewer while the job starts."""
    found: dict[int, int] = {}
    for process in descendants(job.pid):
        with contextlib.suppress(OSError, IndexError, ValueError):
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            ranks = [
                line.partition(b"=")[2] for line in environment if line.startswith(b"OMPI_COMM_WORLD_RANK=")
            ]
            found.setdefault(int(ranks[0]), process)
    return [found[number] for number in sorted(found)]


def wait_for(what: Callable[[], Any], job: subprocess.Popen[str], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not what():
        if job.poll() is not None or time.monotonic() > ends:
            out, err = output_of(job, 10)
            raise SystemExit(f"the job did not get to train:\n{out}{err}")
        time.sleep(0.05)


def measure_fault(fault: Fault, folder: Path) -> Cell:
    """Seconds from a fault to the end of all processes, the job's status, and its lines."""
    if fault.cause == CUT:
        return measure_cut(folder)
    if isinstance(fault.cause, str):
        program = folder / "program.py"
        program.write_text(PROGRAM)
        words = [program, fault.cause, *(["backup"] if fault.backup else [])]
        job = start(words, launcher=fault.launcher)
        wait_for(lambda: len(workers_of(job)) == WORKERS, job)
    else:
        job = start_training(folder, *(BACKUP if fault.backup else ()), launcher=fault.launcher)
    processes = descendants(job.pid)
    began = time.time()
    if not isinstance(fault.cause, str):
        fault.cause(workers_of(job))
    return ending(job, processes, began)


def start_training(
    folder: Path, *words: Any, options: Sequence[Any] = (), launcher: str = "launch"
) -> subprocess.Popen[str]:
    """A job that trains for long, when it has written a checkpoint and told of its steps.

    words: of `tensorbow train`. options: of the launcher.
    """
    output = folder / "run"
    words = (*TRAIN, "--epochs", 100 * EPOCHS, "--output", output, *words)
    job = start(words, *options, launcher=launcher)
    wait_for(lambda: newest_checkpoint(output), job)
    time.sleep(SETTLE_S)
    return job


def ending(job: subprocess.Popen[str], processes: Sequence[int], began: float) -> Cell:
    """Seconds from a fault to the job's end, its status, and what it says.

    began: time of the fault, unless the program prints it.
    """
    out, err = output_of(job, 300)
    ended, staying = end_of(processes, began)
    for line in out.splitlines():  # those of other workers than the first begin with their names
        if line.removeprefix("worker 1: ").startswith("now "):
            began = float(line.split()[-1])
    lines = [line.removeprefix("tensorbow: ") for line in err.splitlines() if line.startswith("tensorbow: ")]
    return {"seconds": ended - began, "status": job.returncode, "staying": staying, "lines": lines}


def end_of(processes: Sequence[int], began: float) -> tuple[float, int]:
    """The time at which the last of some processes has ended, and how many stay."""
    while left := [process for process in processes if os.path.exists(f"/proc/{process}")]:
        if time.time() - began > STAYS_S:
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            break
        time.sleep(0.05)
    return time.time(), len(left)


def measure_cut(folder: Path) -> Cell:
    """`measure_fault` of a link between two network namespaces that goes down."""
    from tests.cluster_rig.two_machines import cut, two_machines

    try:
        with two_machines(folder) as machines:
            job = start_training(folder, options=machines.words)
            processes, began = workers_of(job), time.time()
            cut()
            return ending(job, processes, began)
    except (PermissionError, FileNotFoundError) as error:
        return {"seconds": None, "why": f"not measured: {error}"}


def missed(fault: Fault, found: Cell) -> list[str]:
    """Requirements that a job with a fault has missed; none of a fault that could not be measured."""
    if found["seconds"] is None:
        return []
    said = "".join(found["lines"][:1])
    name = "worker [01]" if fault.worker is None else f"worker {fault.worker}"
    reached = {
        f"ends within {fault.limit_s:g} s": found["seconds"] <= fault.limit_s,
        "no process stays": not found["staying"],
        "its status is not 0": bool(found["status"]),
        "it says one line": len(found["lines"]) == 1,
        f"it names {name}": re.match(rf"{name}\b", said) is not None,
        "it tells the step": not fault.in_training or re.search(r"\bat step [1-9]", said) is not None,
    }
    return [asked for asked, is_reached in reached.items() if not is_reached]


def measure_kills(cells: Cells, way: str, kills: int, options: argparse.Namespace) -> None:
    """Runs with kills at random moments, `kills` in total, and one undisturbed run."""
    words = [*TRAIN, *WAYS[way], "--epochs", options.epochs]
    whole = cells.get({"way": way, "run": UNDISTURBED}, 0, within(options, partial(undisturbed_run, words)))
    number = 0
    while kills > 0:
        measured = partial(killed_run, words, min(kills, KILLS_OF_RUN), number, whole["sha256"])
        run = cells.get({"way": way, "run": KILLED}, number, within(options, measured))
        kills -= kills_of(run)
        number += 1


def kills_of(run: Cell) -> int:
    """Kills of a run, of which each has the job start again."""
    return len(run["moments_s"]) + int(run["at_start"])


def undisturbed_run(words: Sequence[Any], folder: Path) -> Cell:
    """Bits of a run that nothing disturbs, and its seconds."""
    began = time.monotonic()
    whole = start([*words, "--output", folder / "whole"])
    _, said = output_of(whole, 600)
    if whole.returncode:
        raise SystemExit(said)
    return {"sha256": bits_of(folder / "whole"), "seconds": time.monotonic() - began}


def bits_of(folder: Path) -> str | None:
    """Hash of a run's model, None without one."""
    model = folder / "model.safetensors"
    return hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else None


def newest_checkpoint(folder: Path) -> str:
    """Name of a run's newest checkpoint; "" before the first."""
    return max((path.name for path in folder.glob("checkpoint-?????????.safetensors")), default="")


def killed_run(words: Sequence[Any], kills: int, number: int, expected: str, folder: Path) -> Cell:
    """A run whose workers are killed until it ends, at most so often, most times after a new checkpoint.

    After the first of these some are killed while they start. number: of the run, and of its random moments.
    expected: bits of an undisturbed one.
    """
    began, moments, at_start, rng = time.monotonic(), list[float](), 0, random.Random(number)
    ended: set[int] = set()  # processes of the last start
    output = folder / "killed"
    job = start([*words, "--output", output], "--restarts", 10 * kills)
    while len(moments) + at_start < kills and job.poll() is None:
        while not (workers := workers_of(job)) or not ended.isdisjoint(workers):
            if job.poll() is not None:
                break
            time.sleep(0.02)
        seen = newest_checkpoint(output)
        is_late = not seen or rng.random() >= AT_START
        while is_late and newest_checkpoint(output) == seen and job.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, LATER_S if is_late else LONGEST_S))
        if (workers := workers_of(job)) and job.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                ended = {*workers}
                at_start += not is_late
                moments += [round(time.monotonic() - began, 2)] if is_late else []
    out, err = output_of(job, 600)
    return {
        "moments_s": moments,
        "at_start": at_start,
        "restarts": err.count(": restart "),
        "resumed": out.count("resumed from"),
        "others": [line for line in err.splitlines() if OTHER_FAULT.match(line)],
        "status": job.returncode,
        "same_bits": bits_of(output) == expected,
        "seconds": time.monotonic() - began,
    }


def within(options: argparse.Namespace, measured: Callable[[Path], Cell]) -> Callable[[], Cell]:
    """Measures in a folder of its own, and tells the result; ends the script where its time is over."""

    def run() -> Cell:
        if options.limit is not None and time.monotonic() - BEGAN > options.limit:
            raise SystemExit(f"{NAME}: not finished after {options.limit:g} s; the same command goes on here")
        with tempfile.TemporaryDirectory() as made:
            found = measured(Path(made))
        print(found, flush=True)
        return found

    return run


def faults_of(options: argparse.Namespace) -> list[Fault]:
    return [fault for fault in FAULTS if not options.small or fault.name in OF_SMALL]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures all faults and then the kills."""
    cells = Cells(
        options, {"watchdog_s": WATCHDOG_S, "grace_s": GRACE_S, "epochs": options.epochs, "workers": WORKERS}
    )
    for fault in faults_of(options):
        cells.get({"fault": fault.name}, 0, within(options, partial(measure_fault, fault)))
    for way in WAYS:
        measure_kills(cells, way, options.kills if way == "sma" else options.other_kills, options)
    return cells.result()


def row_of_kills(way: str, details: dict[str, Any]) -> list[str | int | float | None]:
    """Row of the runs of a way whose workers were killed."""
    runs = cells_of(details["cells"], way=way, run=KILLED)
    same = sum(run["same_bits"] and not run["status"] for run in runs)
    kills = sum(map(kills_of, runs))
    at_start, restarts, resumed = (
        sum(run[name] for run in runs) for name in ("at_start", "restarts", "resumed")
    )
    said = f"{restarts} restarts, of which {resumed} went on from a checkpoint before the next kill"
    said += f"; {len(runs)} runs, {same} of them with the bits of the undisturbed one"
    said += "".join(f"; {line}" for run in runs for line in run.get("others", ()))
    name = f"{way}: {kills} kills -9, {at_start} of them while starting"
    return [name, None, None, "yes" if same == len(runs) else MISSED, said]


def table(details: dict[str, Any], faults: Sequence[Fault]) -> Table:
    """Table of the faults, and of the kills."""
    rows: list[list[str | int | float | None]] = []
    for fault in faults:
        (found,) = cells_of(details["cells"], fault=fault.name)
        if found["seconds"] is None:
            rows.append([fault.name, None, fault.limit_s, "", found["why"]])
            continue
        reached = MISSED if missed(fault, found) else "yes"
        rows.append([fault.name, found["seconds"], fault.limit_s, reached, "; ".join(found["lines"])])
    rows += [row_of_kills(way, details) for way in WAYS]
    remarks = [
        f"Watchdog: {WATCHDOG_S:g} s. Workers import a whole library at each start, on a shared machine."
    ]
    return Table(["fault", "seconds to the end", "asked", "reached", "what the job says"], rows, remarks)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar for each fault, beside the time that is asked."""
    from drawing import CONTESTANTS, LIMIT, finish_figure

    rows = [row for row in result["rows"] if row[1] is not None]
    axes = figure.add_subplot()
    places = [*range(len(rows))]
    axes.barh(places, [row[1] for row in rows], color=CONTESTANTS["TensorBow"])
    for place, row in zip(places, rows, strict=True):
        label = "at most" if place == 0 else None
        axes.plot([row[2]] * 2, [place - 0.4, place + 0.4], color=LIMIT, label=label)
    axes.set_yticks(places, [row[0] for row in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds from the fault to the end of the last process")
    finish_figure(figure, "Jobs end soon after a fault of a worker", 1.2 + 0.35 * len(rows))


def parse() -> argparse.Namespace:
    made = parser(__doc__, NAME)
    made.add_argument("--kills", type=positive_int, help="with sma; default 100, small 2")
    made.add_argument("--other-kills", type=positive_int, help="with each other way; default 20, small 1")
    made.add_argument("--limit", type=positive_float, help="seconds after which nothing new begins")
    made.add_argument("--fresh", action="store_true", help="do not use stored faults and runs")
    options = made.parse_args()
    options.kills = options.kills or (2 if options.small else 100)
    options.other_kills = options.other_kills or (1 if options.small else 20)
    options.epochs = 100 if options.small else EPOCHS
    return options


def main() -> None:
    options = parse()
    details, faults = measure(options), faults_of(options)
    shown = table(details, faults)
    save(options, NAME, details, shown, draw)
    why = {fault.name: missed(fault, *cells_of(details["cells"], fault=fault.name)) for fault in faults}
    if failed := [str(row[0]) for row in shown.rows if row[3] == MISSED]:
        lines = [f"{name}: {', '.join(why.get(name, ['the same bits']))}" for name in failed]
        raise SystemExit("\n".join([f"{NAME}: asked, and missed:", *lines]))


if __name__ == "__main__":
    main()
