"""Elements a second through queues, by enqueue_many and dequeue_many of a session.

    python benchmarks/queue_rate.py [--small] [--output FOLDER]

A unit of work is a step that enqueues a batch of elements and one that dequeues it, from one thread. The
contestants, kinds of queues and sizes of batches, take turns. The limit is 200,000 scalars a second through a
first in, first out queue in batches of 1000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import LIMIT as LIMIT_LINE
from drawing import finish_figure
from harness import in_turn, interleave, paced, parser, save
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import BLUE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "queue_rate"
LIMIT = 200_000.0  # elements a second
BATCHES = (10, 100, 1000)
CASES = (("FIFO", 1), ("FIFO", 16), ("shuffle", 1), ("priority", 1))  # kind, numbers in an element


def steps(kind: str, numbers: int, batch: int) -> Any:
    """A function of a count: that many times a batch in and out."""
    with tb.Graph().as_default():
        shape = [] if numbers == 1 else [numbers]
        x = tb.placeholder(tb.float32, [None, *shape])
        vals: Any = x
        if kind == "FIFO":
            queue: tb.QueueBase = tb.FIFOQueue(2 * batch, tb.float32, [shape])
        elif kind == "shuffle":
            queue = tb.RandomShuffleQueue(2 * batch, 0, tb.float32, [shape], seed=1)
        else:
            queue = tb.PriorityQueue(2 * batch, tb.float32, [shape])
            vals = [np.arange(batch), x]
        session = tb.Session()
        put = session.make_callable(queue.enqueue_many(vals), [x])
        take = session.make_callable(queue.dequeue_many(batch))
    values = np.ones((batch, *shape), np.float32)

    def run(count: int) -> None:
        for _ in range(count):
            put(values)
            take()

    return run


def draw(figure: Figure, result: dict[str, Any]) -> None:
    from matplotlib.ticker import NullFormatter

    rows = result["details"]["rows"][::-1]
    axes = figure.subplots()
    axes.barh(range(len(rows)), [row["elements_per_second"] for row in rows], color=BLUE)
    axes.set_yticks(range(len(rows)), [f"{row['case']}, {row['batch']:,} at once" for row in rows])
    axes.set_xscale("log")
    axes.set_xlim(left=min(1e5, *(row["elements_per_second"] / 2 for row in rows)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(
        LIMIT,
        color=LIMIT_LINE,
        linestyle="--",
        linewidth=1.2,
        label=f"at least {LIMIT:,.0f}, of 1 number, {BATCHES[-1]:,} at once",
    )
    axes.set_xlabel("elements a second")
    axes.grid(visible=False, axis="y")
    finish_figure(figure, "Elements through queues", 1.2 + 0.32 * len(rows))


def table(details: dict[str, Any]) -> Table:
    rows = [[row["case"], row["batch"], row["elements_per_second"], row["spread"]] for row in details["rows"]]
    rate = next(r for r in details["rows"] if r["case"] == "FIFO, 1 number" and r["batch"] == BATCHES[-1])
    met = "reached" if rate["elements_per_second"] >= LIMIT else MISSED
    remarks = [f"At least {LIMIT:,.0f} scalars a second in batches of {BATCHES[-1]} are asked: {met}."]
    return Table(["queue", "batch", "elements/s", "spread"], rows, [*remarks, details["method"]])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.02, 3) if options.small else (0.2, 7)
    contestants = {
        (kind, numbers, batch): paced(steps(kind, numbers, batch), batch)
        for kind, numbers in CASES
        for batch in BATCHES
    }
    measured = interleave(contestants, seconds, windows)
    rows = [
        {
            "case": f"{kind}, {numbers} number{'s' if numbers > 1 else ''}",
            "batch": batch,
            "elements_per_second": float(f"{found.median:.5g}"),
            "spread": round(found.spread, 3),
        }
        for (kind, numbers, batch), found in measured.items()
    ]
    details = {"rows": rows, "method": in_turn(windows, seconds)}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
