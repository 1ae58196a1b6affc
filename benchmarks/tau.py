"""Rounds between two averagings (tau) against epochs to 99 % and throughput: LeNet on MNIST, four replicas.

    python benchmarks/tau.py --data FOLDER [--small] [--seeds 3] [--fresh]

Crossbow (VLDB 2019) averages in every round, tau = 1; with larger tau replicas diverge further, and averaging
reads and writes their weights less often. Batches of 16, momentum 0.9, mu 0, alpha 1 / 4, no augmentation,
and for all tau the learning rate that `learning_rates.py` chose for tau = 1. Runs that miss the target within
`--epochs` (4) count as not reached. Accuracy is evaluated every eighth of an epoch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells
from learning_rates import chosen_rate
from medians import MedianRange, over, ranged, seeds_of
from results_page import Table
from seeds import over_seeds
from time_to_accuracy import Goal, RunSetting, add_goal_options, goal_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "tau"
TAUS = (1, 2, 4, 8, 16)
REPLICAS, BATCH_SIZE = 4, 16
PANELS = (("epochs", "epochs"), ("rate", "examples per second"), ("seconds", "training time [s]"))


def draw(figure: Figure, rows: list[dict[str, Any]], goal: Goal, seeds: int) -> None:
    """Draws bars at the median against tau, with the range over the seeds."""
    figure.set_size_inches(10, 3.8)
    ticks = range(len(rows))
    for axes, (key, unit) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for x, row in enumerate(rows):
            values: MedianRange = row[key]
            if not math.isfinite(values.median):
                axes.annotate("not\nreached", (x, 0), (0, 3), textcoords="offset points", ha="center")
                continue
            axes.bar(x, values.median, color="C0", alpha=0.6)
            top = values.greatest if math.isfinite(values.greatest) else values.median
            axes.plot([x, x], [values.least, top], color="black", marker="_")
        axes.set_xticks(ticks, [str(row["setting"].tau) for row in rows])
        axes.set_ylim(bottom=0)
        axes.set(xlabel="tau [rounds]", ylabel=unit)
    for axes, title in zip(figure.axes, ("epochs to {}", "throughput", "time to {}"), strict=True):
        axes.set_title(title.format(f"{goal.target:.4g}"))
    name = goal.train.name.partition("/")[0]
    figure.suptitle(f"LeNet on {name}, {REPLICAS} replicas of b={BATCH_SIZE}: {over(seeds)}")


def table(details: dict[str, Any]) -> Table:
    figures = ("epochs", "seconds", "rate")
    rows = [[row["tau"], *(ranged(row[key]) for key in figures)] for row in details["summary"]]
    columns = ["tau", "epochs (range)", "seconds (range)", "images/s (range)"]
    return Table(columns, rows, [seeds_of(details)])


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    goal = goal_of(options)
    seeds = options.seeds or (1 if options.small else 3)
    rate = chosen_rate(REPLICAS, BATCH_SIZE)
    taus = TAUS[::2] if options.small else TAUS
    settings = [RunSetting(BATCH_SIZE, rate, REPLICAS, tau=tau) for tau in taus]
    cells = Cells(options, goal.facts())
    rows = over_seeds(cells, goal, settings, seeds, lambda setting: f"tau={setting.tau:<3}")
    summed = [
        {"tau": row["setting"].tau, "learning_rate": rate} | {key: row[key].as_json() for key, _ in PANELS}
        for row in rows
    ]
    details = {**cells.result(), "summary": summed}
    harness.save(options, NAME, details, table(details), lambda figure: draw(figure, rows, goal, seeds))


if __name__ == "__main__":
    main()
