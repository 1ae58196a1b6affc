"""Steps of members per second of a sweep, by the number of members that train side by side.

    python benchmarks/members_at_once.py [--seconds 2] [--windows 7] [--small] [--output FOLDER]

Members are those of `tensorbow sweep mlp` (784-128-10 units) and `tensorbow sweep lenet` on handwritten
digits, b=16, each with a seed of its own, trained by the sweep's own pool of places, without evaluations.
Pools of all sizes of a model are open at once, and their windows alternate; a window ends with a launch. The
default of `--at-once` is 64 on each device.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from harness import Window, in_turn, interleave, parser, positive_float, positive_int, save
from results_page import Table

from scheduler.sweeps.member_data import SweepData
from scheduler.sweeps.members import Member, members_of
from scheduler.sweeps.options import DEFAULT_PLACES, HELD_OUT
from scheduler.sweeps.pool import MemberPool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "members_at_once"
COUNTS = {"mlp": (8, 16, 32, 64, 128, 256), "lenet": (8, 16, 32, 64, 128)}
SMALL = {"mlp": (4, 8, 16)}


def silent(line: str) -> None:
    """Drops a line of progress."""


def window_of(pool: MemberPool, members: list[Member]) -> Window:
    """Window of a pool: trains its members, epoch after epoch, until its time is over."""
    for member in members:
        pool.add(member)

    def window(seconds: float) -> float:
        done, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            start = pool.offset
            pool.train(min(start + pool.steps_per_launch, pool.rounds_per_epoch))
            done += (pool.offset - start) * len(members)
            if pool.offset == pool.rounds_per_epoch:
                pool.end_epoch()
        return done / elapsed

    return window


def measure(model: str, counts: tuple[int, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rates of a model by the number of members."""
    base = {"dataset": "digits", "validation_split": HELD_OUT, "replicas_per_device": 1, "epochs": 1_000_000}
    windows: dict[int, Window] = {}
    with ExitStack() as opened:
        for count in counts:
            members = members_of({"model": model, **base}, [{"learning_rate": 0.001}], count)
            data = SweepData(members[0].config, None, "digits", silent)
            pool = opened.enter_context(closing(MemberPool(members[0].config, data.train, count, silent)))
            windows[count] = window_of(pool, members)
        measured = interleave(windows, options.seconds, options.windows)
    return [{"model": model, "members": count, **rate.as_json()} for count, rate in measured.items()]


def table(rates: list[dict[str, Any]], options: argparse.Namespace) -> Table:
    """Rates, and their ratios to the rate of the default number."""
    rows: list[list[Any]] = []
    for row in rates:
        default = [r["median"] for r in rates if (r["model"], r["members"]) == (row["model"], DEFAULT_PLACES)]
        ratio = round(row["median"] / default[0], 3) if default else None
        rows.append([row["model"], row["members"], row["median"], ratio, row["spread"]])
    columns = ["model", "members at once", "member steps/s", f"times {DEFAULT_PLACES} at once", "spread"]
    return Table(columns, rows, [in_turn(options.windows, options.seconds)])


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws the rates over the number of members, a panel for each model."""
    from drawing import CONTESTANTS, finish_axes, finish_figure

    rates = result["details"]["rates"]
    models = [*dict.fromkeys(row["model"] for row in rates)]
    for axes, model in zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True):
        rows = [row for row in rates if row["model"] == model]
        counts = [row["members"] for row in rows]
        for samples in zip(*(row["samples"] for row in rows), strict=True):
            axes.plot(counts, samples, ".", color=CONTESTANTS["TensorBow"], alpha=0.3)
        axes.plot(counts, [row["median"] for row in rows], "o-", color=CONTESTANTS["TensorBow"])
        axes.set_xscale("log", base=2)
        finish_axes(axes, model, "members at once", "member steps per second", ticks=counts)
    finish_figure(figure, "Sweeps by members that train side by side", 3.4, "lines: medians; dots: windows")


def parse() -> argparse.Namespace:
    """Parses the options; defaults depend on `--small`."""
    made = parser(__doc__, NAME)
    made.add_argument("--seconds", type=positive_float, help="length of a window; default 2, small 0.2")
    made.add_argument("--windows", type=positive_int, help="windows of each number; default 7, small 2")
    options = made.parse_args()
    options.seconds = options.seconds or (0.2 if options.small else 2.0)
    options.windows = options.windows or (2 if options.small else 7)
    return options


def main() -> None:
    options = parse()
    counts = SMALL if options.small else COUNTS
    rates = [row for model, numbers in counts.items() for row in measure(model, numbers, options)]
    save(options, NAME, {"rates": rates}, table(rates, options), draw)


if __name__ == "__main__":
    main()
