"""Iterations of loops over tasks in processes of their own (TensorFlow's white paper, section 4.4).

    python benchmarks/loops_over_tasks.py [--small] [--output FOLDER]

A loop of a condition that depends on data adds numbers until they are large enough: all of it on one task,
compiled and in the dynamic mode, and with its body on one or two other tasks, so that the condition goes to
each task, and values go there and back, in each iteration. The session's process has the task of the
condition. All processes share one machine. The time is that of a step, divided by the iterations.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
from cluster_null_steps import cluster_of, milliseconds, serving
from drawing import finish_figure
from harness import parser, save
from results_page import Table

import tensorbow as tb
from tensorbow.pictures import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "loops_over_tasks"
HOME, TASKS = "/job:worker/task:0", ("/job:ps/task:0", "/job:ps/task:1")
ITERATIONS, FEW = 1000, 50
WIDE = 1 << 14  # numbers of 64 KiB
CASES = {  # numbers of the loop's variable, other tasks of the body, and whether an op of the host is in it
    "one task, compiled": (1, 0, False),
    "one task, an op of the host": (1, 0, True),
    "two tasks, one number": (1, 1, False),
    "two tasks, 64 KiB": (WIDE, 1, False),
    "three tasks in turn, one number": (1, 2, False),
}


def loop(x: tb.Tensor, others: int, on_host: bool, iterations: int) -> tb.Tensor:
    """Sum of a vector of zeros after a loop that adds 1 to each element in every iteration."""

    def body(total: tb.Tensor) -> tb.Tensor:
        for task in TASKS[:others] or (HOME,):
            with tb.device(task):
                total = total + 1.0 / max(1, others)
        if on_host:
            positive = tb.shape(tb.where(total > 0.0))[0]
            total = total + tb.cast(positive * 0, tb.float32)
        return total

    with tb.device(HOME):
        found: tb.Tensor = tb.while_loop(lambda total: total[0] < iterations - 0.5, body, [x])
        return tb.reduce_sum(found)


def measure(iterations: int) -> list[dict[str, Any]]:
    """A row for each case."""
    rows = []
    with serving(cluster_of(len(TASKS), 1)) as server:
        for case, (numbers, others, on_host) in CASES.items():
            with tb.Graph().as_default():
                x = tb.placeholder(tb.float32, [numbers])
                total = loop(x, others, on_host, iterations)
                with tb.Session(server.target) as session:
                    step = session.make_callable(total, [x])
                    zeros = np.zeros(numbers, np.float32)
                    if step(zeros) != numbers * iterations:
                        raise SystemExit(f"{case}: a wrong sum")
                    taken = milliseconds(lambda step=step, zeros=zeros: step(zeros))  # type: ignore[misc]
            each = [1e3 * ms / iterations for ms in taken]
            rows.append(
                {
                    "case": case,
                    "us": round(statistics.median(each), 2),
                    "fastest_us": round(min(each), 2),
                    "slowest_us": round(max(each), 2),
                    "steps": len(taken),
                }
            )
            print(f"{case}: {rows[-1]['us']:.1f} us an iteration", flush=True)
    return rows


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"][::-1]
    axes = figure.subplots()
    axes.barh(range(len(rows)), [row["us"] for row in rows], color=BLUE)
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel("microseconds of an iteration")
    axes.grid(visible=False, axis="y")
    finish_figure(figure, "Loops over tasks", 1.2 + 0.32 * len(rows))


def table(details: dict[str, Any]) -> Table:
    rows = [
        [row["case"], row["us"], row["fastest_us"], row["slowest_us"], row["steps"]]
        for row in details["rows"]
    ]
    remarks = [
        f"Loops of {details['iterations']:,} iterations; medians of steps. The tasks are processes of one "
        "machine and share its cores; over a network its latency is added to each message."
    ]
    return Table(["loop", "us an iteration", "fastest", "slowest", "steps"], rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    iterations = FEW if options.small else ITERATIONS
    details = {"iterations": iterations, "rows": measure(iterations)}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
