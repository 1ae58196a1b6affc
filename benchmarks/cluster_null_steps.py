"""Null steps over parameter tasks and workers in processes of their own (TensorFlow, OSDI 2016, figure 7).

    python benchmarks/cluster_null_steps.py [--small] [--output FOLDER]

In a null step every worker fetches parameters from all parameter tasks, computes next to nothing of them,
and sends an update of what it has fetched, which the parameter tasks add up. The step ends when all updates
of all workers are in. Scalar: one value from each parameter task. Dense: the whole model, in equal shares
on the parameter tasks, with so many workers as memory has room for. Sparse: 32 random rows of a matrix for
each worker, in equal shares; the updates are of these rows. The session's process has the server of the
first worker; all other tasks have their own.

The paper's tasks are machines of a shared cluster, 16 of them with parameters. Here all processes share one
machine, its cores and its memory's bandwidth: with more processes than cores a step takes at least the sum of
all work. So compare shapes: what grows with the bytes, what with the workers, and what with neither.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drawing import finish_axes, finish_figure, grouped
from harness import parser, save
from results_page import Table

import tensorbow as tb
from tensorbow.pictures import BLUE, GOLD, PURPLE, TEAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "cluster_null_steps"
PARAMETER_TASKS, WORKERS = 4, (1, 2, 4, 8, 16)
MOST_WORKERS = {"dense 100 MB": 8, "dense 1 GB": 2}  # of cases whose arrays are in each worker's memory
HELD = 4  # times as many bytes as the model has are in each worker: fetched, changed, sent and received
ROWS, WIDTH = 32, 256  # rows that a worker reads, and floats of a row
MIB = 1 << 20
CASES = {  # bytes of the model; None: one value for each parameter task
    "scalar": None,
    "dense 100 MB": 100_000_000,
    "dense 1 GB": 1_000_000_000,
    "sparse 100 MB": 100_000_000,
    "sparse 1 GB": 1_000_000_000,
}
SMALL = {"scalar": None, "dense 4 MB": 4_000_000, "sparse 4 MB": 4_000_000}
COLOURS = {"scalar": TEAL, "dense": BLUE, "sparse": PURPLE}
PAPER_MS = {
    "scalar": (1.8, 8.8),
    "dense 100 MB": (147.0, 613.0),
    "dense 1 GB": (1010.0, 7160.0),
}  # medians with 1 and with 100 workers
PAPER_SPARSE_MS = (5.0, 20.0)  # range of all its sparse steps
LONGEST_S, LEAST_STEPS, WARM_UP = 4.0, 7, 3  # of a case

SERVE = """
import json, sys
import tensorbow as tb
cluster, job, task = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with tb.train.Server(cluster, job, task) as server:
    print("ready", flush=True)
    server.join()
"""


def cluster_of(parameter_tasks: int, workers: int) -> dict[str, list[str]]:
    """Free addresses of this machine, one for each task."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(parameter_tasks + workers)
        ]
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    return {"ps": addresses[:parameter_tasks], "worker": addresses[parameter_tasks:]}


@contextmanager
def serving(cluster: Mapping[str, list[str]]) -> Iterator[tb.train.Server]:
    """Processes for all tasks but the first worker's, whose server is in this process and returned."""
    others = [("ps", task) for task in range(len(cluster["ps"]))]
    others += [("worker", task) for task in range(1, len(cluster["worker"]))]
    processes = []
    try:
        for job, task in others:
            command = [sys.executable, "-c", SERVE, json.dumps(cluster), job, str(task)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        with tb.train.Server(cluster, "worker", 0) as server:
            for process in processes:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise SystemExit("a server did not start")
            yield server
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def null_step(case: str, nbytes: int | None, parameter_tasks: int, workers: int) -> tb.Operation:
    """The step of all workers, in the default graph."""
    kind = case.split()[0]
    count = 1 if nbytes is None else nbytes // 4 // parameter_tasks
    shape = [] if kind == "scalar" else [count] if kind == "dense" else [count // WIDTH, WIDTH]
    parameters = []
    for task in range(parameter_tasks):
        with tb.device(f"/job:ps/task:{task}"):
            parameters.append(tb.Variable(tb.zeros(shape), name=f"{case.replace(' ', '_')}_{task}"))
    changes: list[tuple[int, Any, Any]] = []  # parameter task, change, and the rows that it is of
    for worker in range(workers):
        for task, parameter in enumerate(parameters):
            with tb.device(f"/job:worker/task:{worker}"):
                if kind != "sparse":
                    changes.append((task, parameter * 1e-3, None))
                    continue
                draw = tb.random_uniform([ROWS // parameter_tasks], 0.0, float(count // WIDTH))
                rows = tb.cast(draw, tb.int32)
            with tb.device(f"/job:ps/task:{task}"):
                fetched = tb.gather(parameter, rows)
            with tb.device(f"/job:worker/task:{worker}"):
                changes.append((task, fetched * 1e-3, rows))
    updates = [
        tb.assign_add(parameters[task], change)
        if rows is None
        else tb.scatter_add(parameters[task], rows, change)
        for task, change, rows in changes
    ]
    step: tb.Operation = tb.group(*[update.op for update in updates])
    return step


def milliseconds(run: Callable[[], object]) -> list[float]:
    """Time of each of some steps."""
    for _ in range(WARM_UP):
        run()
    taken: list[float] = []
    started = time.perf_counter()
    while len(taken) < LEAST_STEPS or (time.perf_counter() - started < LONGEST_S and len(taken) < 1000):
        before = time.perf_counter()
        run()
        taken.append(1e3 * (time.perf_counter() - before))
    return taken


def cases_of(cases: Mapping[str, int | None], workers: int) -> dict[str, int | None]:
    """Cases measured with a number of workers, as memory allows."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = 1024 * int(lines["MemAvailable"].split()[0])
    return {
        case: nbytes
        for case, nbytes in cases.items()
        if workers <= MOST_WORKERS.get(case, workers)
        and (not case.startswith("dense") or (nbytes or 0) * (1 + HELD * workers) <= free)
    }


def measure(cases: Mapping[str, int | None], parameter_tasks: int, workers: int) -> list[dict[str, Any]]:
    """A row for each case with a number of workers."""
    rows = []
    cluster = cluster_of(parameter_tasks, workers)
    with serving(cluster) as server:
        for case, nbytes in cases_of(cases, workers).items():
            with tb.Graph().as_default():
                step = null_step(case, nbytes, parameter_tasks, workers)
                initializer = tb.global_variables_initializer()
                with tb.Session(server.target) as session:
                    session.run(initializer)
                    taken = milliseconds(lambda session=session, step=step: session.run(step))  # type: ignore[misc]
            rows.append(
                {
                    "case": case,
                    "workers": workers,
                    "ms": round(statistics.median(taken), 3),
                    "fastest_ms": round(min(taken), 3),
                    "slowest_ms": round(max(taken), 3),
                    "steps": len(taken),
                }
            )
            print(f"{case}, {workers} workers: {rows[-1]['ms']:.2f} ms", flush=True)
    return rows


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"]
    left, right = figure.subplots(1, 2)
    for line in grouped(rows, "case"):
        case = line[0]["case"]
        colour = COLOURS[case.split()[0]]
        style = {"color": colour, "linestyle": "--" if case.endswith("1 GB") else "-"}
        places, times = [row["workers"] for row in line], [row["ms"] for row in line]
        left.plot(places, times, marker="o", markersize=4, label=case, **style)
        right.plot(places, [ms / times[0] for ms in times], marker="o", markersize=4, **style)
    for case, (one, hundred) in PAPER_MS.items():
        ends = {"color": GOLD, "linestyle": ":", "marker": "s", "markersize": 4}
        colour = COLOURS[case.split()[0]]
        label = f"the paper, {case}, 1 and 100 workers"
        left.plot([1, 100], [one, hundred], **{**ends, "color": colour}, label=label)
        right.plot([1, 100], [1, hundred / one], **{**ends, "color": colour})
    left.fill_between(
        [1, 100], *PAPER_SPARSE_MS, color=PURPLE, alpha=0.12, label="the paper, sparse: all its steps"
    )
    ticks = [*sorted({row["workers"] for row in rows}), 100]
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
    finish_axes(left, "a null step", "workers", "milliseconds", ticks)
    finish_axes(right, "relative to one worker", "workers", "times longer", ticks)
    tasks = result["details"]["parameter_tasks"]
    note = f"{tasks} parameter tasks on one machine; the paper: 16 machines with parameters"
    finish_figure(figure, "Null steps over parameter tasks", 5.0, note)


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for line in grouped(details["rows"], "case"):
        case = line[0]["case"]
        one, hundred = PAPER_MS.get(case, (None, None))
        for row in line:
            relative = row["ms"] / line[0]["ms"]
            paper = one if row["workers"] == 1 else None
            rows.append(
                [case, row["workers"], row["ms"], row["fastest_ms"], row["slowest_ms"], relative, paper]
            )
        if hundred is not None and one is not None:
            rows.append([case, "100 (the paper)", None, None, None, hundred / one, hundred])
    columns = ["case", "workers", "ms", "fastest", "slowest", "relative to one worker", "the paper's ms"]
    remarks = [
        f"{details['parameter_tasks']} parameter tasks and all workers are processes of one machine, which "
        "the paper's are not: with more processes than cores a step takes at least the sum of all work.",
        "The paper's sparse steps take 5 to 20 ms, whatever the size of the matrix.",
    ]
    return Table(columns, rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    tasks, cases, counts = (2, SMALL, (1, 2)) if options.small else (PARAMETER_TASKS, CASES, WORKERS)
    by_count = [measure(cases, tasks, workers) for workers in counts]
    rows = [row for case in cases for rows in by_count for row in rows if row["case"] == case]
    details = {"parameter_tasks": tasks, "rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
