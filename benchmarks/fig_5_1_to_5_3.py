"""Batch size against time and epochs to 99 % on the test split: LeNet on MNIST, one replica.

    python benchmarks/fig_5_1_to_5_3.py --data FOLDER [--small] [--target 0.99] [--fresh]

Figures 5.1 to 5.3 of TensorBow (Budea, 2019) show the cost of large batches: more examples per second, but
more epochs. One replica is plain momentum SGD (0.9), without augmentation, at the learning rate that
`learning_rates.py` has chosen for the batch size. Runs that miss the target within `--epochs` (4) count as
not reached. Accuracy is evaluated every eighth of an epoch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells
from learning_rates import chosen_rate
from medians import over, ranged, seeds_of
from results_page import Table
from seeds import over_seeds
from time_to_accuracy import Goal, RunSetting, add_goal_options, goal_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_1_to_5_3"
BATCH_SIZES = (4, 16, 32, 64, 128, 256)  # those with a rate of their own
PANELS = (
    ("seconds", "training time [s]"),
    ("epochs", "epochs"),
    ("rate", "examples per second"),
)


def draw(figure: Figure, rows: list[dict[str, Any]], goal: Goal, seeds: int) -> None:
    """Median and range over the seeds against the batch size: seconds, epochs, examples per second."""
    figure.set_size_inches(11, 4)
    for axes, (key, unit) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        known = [row for row in rows if math.isfinite(row[key].median)]
        middle = [row[key].median for row in known]
        below = [row[key].median - row[key].least for row in known]
        above = [row[key].greatest - row[key].median for row in known]
        above = [value if math.isfinite(value) else 0.0 for value in above]
        sizes = [row["setting"].batch_size for row in known]
        axes.errorbar(sizes, middle, (below, above), marker="o", capsize=3)
        for row in rows:
            if not math.isfinite(row[key].median):
                at = (row["setting"].batch_size, 0.02)
                axes.annotate("not\nreached", at, xycoords=("data", "axes fraction"), ha="center", fontsize=8)
        axes.set_xscale("log", base=2)
        every = [row["setting"].batch_size for row in rows]
        axes.set_xticks(every, [str(size) for size in every])
        axes.set_xlim(every[0] / 1.4, every[-1] * 1.4)
        axes.set_ylim(bottom=0)
        axes.set(xlabel="batch size", ylabel=unit)
    figure.axes[0].set_title(f"time to {goal.target:.4g}")
    figure.axes[1].set_title(f"epochs to {goal.target:.4g}")
    figure.axes[2].set_title("throughput")
    name = goal.train.name.partition("/")[0]
    figure.suptitle(f"LeNet on {name}, one replica: {over(seeds)}")


def table(details: dict[str, Any]) -> Table:
    rows = [
        [row["batch_size"], row["learning_rate"], *(ranged(row[key]) for key, _ in PANELS)]
        for row in details["summary"]
    ]
    columns = ["batch size", "learning rate", "seconds (range)", "epochs (range)", "images/s (range)"]
    return Table(columns, rows, [seeds_of(details)])


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    goal = goal_of(options)
    sizes = (4, 16, 64) if options.small else BATCH_SIZES
    seeds = options.seeds or (1 if options.small else 3)
    settings = [RunSetting(size, chosen_rate(1, size)) for size in sizes]
    cells = Cells(options, goal.facts())
    rows = over_seeds(cells, goal, settings, seeds, lambda setting: f"b={setting.batch_size:<4}")
    summed = [
        {"batch_size": row["setting"].batch_size, "learning_rate": row["setting"].learning_rate}
        | {key: row[key].as_json() for key, _ in PANELS}
        for row in rows
    ]
    details = {**cells.result(), "summary": summed}
    harness.save(options, NAME, details, table(details), lambda figure: draw(figure, rows, goal, seeds))


if __name__ == "__main__":
    main()
