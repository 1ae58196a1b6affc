"""Faults of a worker: how soon all processes of the job end, with which line, and if resuming keeps the bits.

    python benchmarks/worker_faults.py [--kills 100] [--other-kills 20] [--small] [--output FOLDER]

Two workers of one replica each train an MLP on the digits by `tensorbow launch`, or by `mpirun` alone, with a
watchdog of a few seconds, some with a backup worker. Faults come in the middle of training; the time is from
the fault to the end of the last process. A link is cut between two network namespaces, where root may make
some.
Runs whose workers are killed at random moments after a new checkpoint, and now and then while they start, and
restarted each time by `--restarts`, are compared bit by bit with one that nothing disturbs: as many runs as
all kills need, with SMA and fewer with other synchronisers. Needs the extra `mpi`, and Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import parser, positive_int, save
from results_page import MISSED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "worker_faults"
WATCHDOG_S, GRACE_S = 5.0, 10.0  # of the jobs; asked: to the end after a fault, or after the watchdog's time
WORKERS, EPOCHS = 2, 300
OUT, ERR = (Path(tempfile.gettempdir()) / f"{NAME}-{os.getpid()}.{kind}" for kind in ("out", "err"))
LONGEST_S = 3.0  # from a start to a kill that waits for no checkpoint,
LATER_S = 0.5  # and from a new checkpoint to a kill
TRAIN = ("train", "mlp", "--dataset", "digits", "--replicas-per-gpu", 1, "--checkpoint-rounds", 200)
PROGRAM = """
import os, sys, time
import tensorbow as tb
worker, fault = int(os.environ["OMPI_COMM_WORLD_RANK"]), sys.argv[1]
if fault == "import" and worker == 1:
    import a_module_that_is_not_there
class Fault(tb.Callback):
    def on_round(self, run, report):
        if report.round == 200:
            print("now", time.time(), flush=True)
            if fault == "raise": raise ValueError("of the program")
            if fault == "exit": sys.exit(3)
            if fault == "sleep": time.sleep(1e6)
            if fault == "abort": os.abort()
if fault == "loop":
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
            raise ValueError("of the program")
more = {"sync": "ssgd", "backup": 1} if "backup" in sys.argv else {}
tb.fit("mlp", "digits", replicas=1, epochs=100000, callbacks=[Fault()], progress=False, **more)
"""


CUT = "cut"


class Fault(NamedTuple):
    """A fault. cause: what to do to the processes of the workers, or the program's own fault."""

    name: str
    cause: Callable[[Sequence[int]], None] | str
    waits: bool = False  # the watchdog finds it
    launcher: str = "launch"  # or mpirun
    backup: bool = False  # S-SGD that does without one of the workers' gradients


def signalled(worker: int, number: int) -> Callable[[Sequence[int]], None]:
    return lambda workers: os.kill(workers[worker], number)


FAULTS = (
    Fault("kill -9 of worker 1", signalled(1, signal.SIGKILL)),
    Fault("kill -9 of worker 0", signalled(0, signal.SIGKILL)),
    Fault("crash of native code (SIGSEGV) in worker 1", signalled(1, signal.SIGSEGV)),
    Fault("exception in worker 0's program", "raise"),
    Fault("sys.exit(3) in worker 0's program", "exit"),
    Fault("exception in worker 1's loop", "loop"),
    Fault("failed import in worker 1", "import"),
    Fault("worker 1 stops (SIGSTOP)", signalled(1, signal.SIGSTOP), waits=True),
    Fault("worker 0 stops (SIGSTOP)", signalled(0, signal.SIGSTOP), waits=True),
    Fault("worker 0's program sleeps between steps", "sleep", waits=True),
    Fault("the link between two machines is cut", CUT, waits=True),
    Fault("mpirun: kill -9 of worker 1", signalled(1, signal.SIGKILL), launcher="mpirun"),
    Fault("mpirun: kill -9 of worker 0", signalled(0, signal.SIGKILL), launcher="mpirun"),
    Fault("mpirun: exception in worker 0's program", "raise", launcher="mpirun"),
    Fault("mpirun: exception in worker 1's loop", "loop", launcher="mpirun"),
    Fault("mpirun: worker 1 stops (SIGSTOP)", signalled(1, signal.SIGSTOP), True, "mpirun"),
    Fault("mpirun: worker 0 stops (SIGSTOP)", signalled(0, signal.SIGSTOP), True, "mpirun"),
    Fault("backup worker: kill -9 of worker 1", signalled(1, signal.SIGKILL), backup=True),
    Fault("backup worker: exception in worker 0's program", "raise", backup=True),
    Fault("backup worker: worker 1 stops (SIGSTOP)", signalled(1, signal.SIGSTOP), True, backup=True),
    Fault("backup worker: worker 0's program sleeps between steps", "sleep", True, backup=True),
)
FEW = FAULTS[0], FAULTS[10], FAULTS[11], FAULTS[-4]  # of a quick run
BACKUP = ("--sync", "ssgd", "--backup", 1)
WAYS: dict[str, tuple[Any, ...]] = {
    "sma": (),
    "sma, staleness 1": ("--staleness", 1),
    "ssgd": ("--sync", "ssgd"),
    "diloco, staleness 1": ("--sync", "diloco", "--tau", 20, "--staleness", 1),
}
AT_START = 0.2  # probability of a kill while workers start, beside each one after a checkpoint


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


def measure_fault(fault: Fault, folder: Path) -> dict[str, Any]:
    """Seconds from a fault to the end of all processes, the job's status, and its last line."""
    if fault.cause == CUT:
        return measure_cut(fault, folder)
    if isinstance(fault.cause, str):
        program = folder / "program.py"
        program.write_text(PROGRAM)
        words = [program, fault.cause, *(["backup"] if fault.backup else [])]
        job = start(words, launcher=fault.launcher)
        wait_for(lambda: len(workers_of(job)) == WORKERS, job)
    else:
        output = folder / "run"
        words = [*TRAIN, "--epochs", 100 * EPOCHS, "--output", output, *(BACKUP if fault.backup else ())]
        job = start(words, launcher=fault.launcher)
        wait_for(lambda: list(output.glob("checkpoint-*")), job)
    processes = descendants(job.pid)
    began = time.time()
    if not isinstance(fault.cause, str):
        fault.cause(workers_of(job))
    out, err = output_of(job, 300)
    ended = end_of(processes, began)
    for line in out.splitlines():  # those of other workers than the first begin with their names
        if line.removeprefix("worker 1: ").startswith("now "):
            began = float(line.split()[-1])
    lines = [line for line in err.splitlines() if line.startswith("tensorbow: ")]
    return {"fault": fault.name, "seconds": ended - began, "status": job.returncode, "line": lines[-1:]}


def end_of(processes: Sequence[int], began: float) -> float:
    """The time at which the last of some processes has ended."""
    while any(os.path.exists(f"/proc/{process}") for process in processes) and time.time() - began < 300:
        time.sleep(0.05)
    return time.time()


def measure_cut(fault: Fault, folder: Path) -> dict[str, Any]:
    """`measure_fault` of a link between two network namespaces that goes down."""
    from tests.cluster_rig.two_machines import cut, two_machines

    output = folder / "run"
    try:
        with two_machines(folder) as machines:
            job = start([*TRAIN, "--epochs", 100 * EPOCHS, "--output", output], *machines.words)
            wait_for(lambda: list(output.glob("checkpoint-*")), job)
            processes, began = workers_of(job), time.time()
            cut()
            _, err = output_of(job, 300)
            ended = end_of(processes, began)
    except (PermissionError, FileNotFoundError) as error:
        return {"fault": fault.name, "seconds": None, "status": None, "line": [f"not measured: {error}"]}
    lines = [line for line in err.splitlines() if line.startswith("tensorbow: ")]
    return {"fault": fault.name, "seconds": ended - began, "status": job.returncode, "line": lines[-1:]}


def measure_kills(way: str, kills: int, epochs: int, folder: Path) -> dict[str, Any]:
    """Runs with so many kills at random moments in all, beside an undisturbed one."""
    words = [*TRAIN, *WAYS[way], "--epochs", epochs]
    began = time.monotonic()
    whole = start([*words, "--output", folder / "whole"])
    _, said = output_of(whole, 600)
    if whole.returncode:
        raise SystemExit(said)
    undisturbed_s = time.monotonic() - began
    expected, rng = (folder / "whole" / "model.safetensors").read_bytes(), random.Random(0)
    runs: list[dict[str, Any]] = []
    while (left := kills - sum(len(run["moments_s"]) for run in runs)) > 0:
        output = folder / f"killed-{len(runs)}"
        runs.append(killed_run([*words, "--output", output], left, rng))
        model = output / "model.safetensors"
        runs[-1]["same_bits"] = model.exists() and model.read_bytes() == expected
        print(runs[-1], flush=True)
    return {"way": way, "runs": runs, "seconds_undisturbed": undisturbed_s}


def newest_checkpoint(folder: Path) -> str:
    """Name of a run's newest checkpoint; "" before the first."""
    return max((path.name for path in folder.glob("checkpoint-?????????.safetensors")), default="")


def killed_run(words: Sequence[Any], kills: int, rng: random.Random) -> dict[str, Any]:
    """A run whose workers are killed until it ends, at most so often, each time after a new checkpoint.

    Beside these, now and then one is killed while it starts.
    """
    began, moments, at_start = time.monotonic(), list[float](), 0
    job = start(words, "--restarts", 10 * kills)
    while len(moments) < kills and job.poll() is None:
        seen, is_late = newest_checkpoint(words[-1]), rng.random() >= AT_START
        while is_late and newest_checkpoint(words[-1]) == seen and job.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, LATER_S if is_late else LONGEST_S))
        if workers := workers_of(job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)
                at_start += not is_late
                moments += [round(time.monotonic() - began, 2)] if is_late else []
    out, err = output_of(job, 600)
    return {
        "moments_s": moments,
        "at_start": at_start,
        "restarts": err.count(": restart "),
        "resumed": out.count("resumed from"),
        "status": job.returncode,
        "seconds": time.monotonic() - began,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures all faults and then the kills."""
    faults = []
    for fault in FEW if options.small else FAULTS:
        with tempfile.TemporaryDirectory() as made:
            faults.append(measure_fault(fault, Path(made)))
            print(faults[-1], flush=True)
    with tempfile.TemporaryDirectory() as made:
        kills = []
        for way in WAYS:
            count = options.kills if way == "sma" else options.other_kills
            folder = Path(made) / way.replace(", ", "-").replace(" ", "-")
            folder.mkdir()
            kills.append(measure_kills(way, count, options.epochs, folder))
    return {"watchdog_s": WATCHDOG_S, "grace_s": GRACE_S, "faults": faults, "kills": kills}


def table(details: dict[str, Any]) -> Table:
    """Table of the faults, and of the kills."""
    waits = {fault.name: fault.waits for fault in FAULTS}
    rows: list[list[str | int | float | None]] = []
    for each in details["faults"]:
        limit = GRACE_S + (WATCHDOG_S if waits[each["fault"]] else 0.0)
        if each["seconds"] is None:
            rows.append([each["fault"], None, limit, "", each["line"][0]])
            continue
        reached = each["seconds"] <= limit and each["status"] and "worker" in "".join(each["line"])
        said = "".join(each["line"]).removeprefix("tensorbow: ")
        rows.append([each["fault"], each["seconds"], limit, "yes" if reached else MISSED, said])
    for each in details["kills"]:
        runs = each["runs"]
        same = all(run["same_bits"] and not run["status"] for run in runs)
        kills, at_start, restarts, resumed = (
            sum(counts)
            for counts in zip(
                *((len(r["moments_s"]), r["at_start"], r["restarts"], r["resumed"]) for r in runs),
                strict=True,
            )
        )
        said = f"{restarts} restarts, {resumed} of them from a checkpoint; {len(runs)} runs"
        said += f", {sum(run['same_bits'] for run in runs)} of them with the bits of the undisturbed one"
        name = f"{each['way']}: {kills} kills -9 after a checkpoint, {at_start} while starting"
        rows.append([name, None, None, "yes" if same else MISSED, said])
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
    options = made.parse_args()
    options.kills = options.kills or (2 if options.small else 100)
    options.other_kills = options.other_kills or (1 if options.small else 20)
    options.epochs = 200 if options.small else EPOCHS
    return options


def main() -> None:
    options = parse()
    details = measure(options)
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
