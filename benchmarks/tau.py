"""Rounds between two averagings (tau) against epochs to 99 % and throughput: LeNet on MNIST, four replicas.

    python benchmarks/tau.py --data FOLDER [--small] [--seeds 3] [--fresh]

Crossbow (VLDB 2019) averages in every round, tau = 1; with larger tau replicas diverge further, and averaging
reads and writes their weights less often. Batches of 16, momentum 0.9, mu 0, alpha 1 / 4, no augmentation,
and for all tau the learning rate that `learning_rates.py` chose for tau = 1. Runs that miss the target within
`--epochs` (4) count as not reached. Accuracy is evaluated every eighth of an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import harness
from cells import Cells, cells_of
from drawing import SYNCHRONISERS, WIDTH, draw_seeds, finish_axes, lighter
from learning_rates import chosen_rate
from medians import OF_CELL, ranged, seeds_of
from results_page import Table
from seeds import over_seeds
from time_to_accuracy import RunSetting, add_goal_options, goal_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "tau"
TAUS = (1, 2, 4, 8, 16)
REPLICAS, BATCH_SIZE = 4, 16
PANELS = (("epochs", "epochs"), ("rate", "examples per second"), ("seconds", "training time [s]"))


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws bars at the median against tau, and a dot for each seed."""
    details = result["details"]
    target, colour = details["goal"]["target"], SYNCHRONISERS["sma"]
    titles = (f"epochs to {target:.4g}", "throughput", f"time to {target:.4g}")
    for axes, (key, unit), title in zip(figure.subplots(1, len(PANELS)), PANELS, titles, strict=True):
        for x, row in enumerate(details["summary"]):
            runs = cells_of(details["cells"], tau=row["tau"], learning_rate=row["learning_rate"])
            if row[key]["median"] is not None:
                axes.bar(x, row[key]["median"], color=lighter(colour, 0.5))
            draw_seeds(axes, x, [run[OF_CELL[key]] for run in runs], colour)
        finish_axes(axes, title, "tau [rounds]", unit)
        axes.set_xticks(range(len(details["summary"])), [str(row["tau"]) for row in details["summary"]])
        axes.set_ylim(top=1.1 * axes.get_ylim()[1])
    seeds = "one seed" if len(runs) == 1 else f"median (bar) and {len(runs)} seeds (dots)"
    what = f"LeNet on {details['goal']['dataset']}, {REPLICAS} replicas of b={BATCH_SIZE}"
    figure.set_size_inches(WIDTH, 3.4)
    figure.suptitle(f"{what}: {seeds}")


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
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
