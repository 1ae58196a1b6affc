"""Loss and accuracy against epochs and time: SMA, EASGD, synchronous SGD, and independent replicas.

    python benchmarks/synchronisers.py --data FOLDER [--small] [--seeds 3] [--epochs 4] [--fresh]

LeNet on MNIST, four replicas of b=16, momentum 0.9, no augmentation, as in Crossbow's comparison of SMA with
S-SGD and EASGD (VLDB 2019, section 5.5). SMA: tau 1, mu 0, alpha 1 / 4. EASGD: tau 1, default moving rate.
All learning rates come from the grid (`learning_rates.py`): for SMA and EASGD the rate of four averaged
replicas of b=16, for S-SGD, whose step uses 64 examples, that of one replica of b=64, and for independent
replicas that of one replica of b=16. The central model is evaluated; for independent replicas the mean of
their figures counts. All train to the end, and are evaluated every eighth of an epoch.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

import harness
from cells import Cell, Cells, cells_of
from drawing import SYNCHRONISERS, draw_limit, finish_axes, finish_figure
from learning_rates import chosen_rate
from medians import MedianRange, median_range, over, ranged, seeds_of
from results_page import Table
from time_to_accuracy import CHECK, Goal, Replicas, RunSetting, add_goal_options, course, described, goal_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "synchronisers"
REPLICAS, BATCH_SIZE = 4, 16
LABELS = {"sma": "SMA", "easgd": "EASGD", "ssgd": "S-SGD", "none": "independent (mean)"}
STYLES = {"sma": "-", "easgd": "--", "ssgd": "-", "none": "-"}
FIGURES = (("test_accuracy", "test accuracy"), ("test_loss", "test loss"), ("training_loss", "training loss"))
AXES = (("epochs", "epochs"), ("seconds", "training time [s]"))


def settings_to_run() -> list[RunSetting]:
    """One setting for each synchroniser, with its learning rate."""
    averaged = chosen_rate(REPLICAS, BATCH_SIZE)
    rates = {
        "sma": averaged,
        "easgd": averaged,
        "ssgd": chosen_rate(1, REPLICAS * BATCH_SIZE),
        "none": chosen_rate(1, BATCH_SIZE),
    }
    return [RunSetting(BATCH_SIZE, rate, REPLICAS, sync) for sync, rate in rates.items()]


def run(setting: RunSetting, goal: Goal, seed: int) -> Cell:
    """One run of a setting."""
    return course(Replicas(setting, goal, seed), goal)


def column(cells: list[Cell], name: str) -> list[list[float]]:
    """Values of one figure: for each check, those of all seeds."""
    at = CHECK.index(name)
    return [[check[at] for check in checks] for checks in zip(*(c["checks"] for c in cells), strict=True)]


def reached(cells: list[Cell], accuracy: float, figure: str) -> MedianRange:
    """Epochs or seconds at which the test accuracy was first reached."""
    at, by = CHECK.index(figure), CHECK.index("test_accuracy")
    firsts = [[check[at] for check in cell["checks"] if check[by] >= accuracy] for cell in cells]
    return median_range([first[0] if first else None for first in firsts])


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws the median over the seeds, with the range as a band."""
    details = result["details"]
    target = details["target"]
    grid = figure.subplots(len(FIGURES), len(AXES), sharey="row", sharex="col")
    for row, (key, name) in zip(grid, FIGURES, strict=True):
        for axes, (across, unit) in zip(row, AXES, strict=True):
            for own in details["summary"]:
                sync = own["sync"]
                cells = cells_of(details["cells"], sync=sync, learning_rate=own["learning_rate"])
                x = [statistics.median(values) for values in column(cells, across)]
                values = column(cells, key)
                middle = [statistics.median(found) for found in values]
                colour = SYNCHRONISERS[sync]
                axes.plot(x, middle, STYLES[sync], color=colour, label=LABELS[sync])
                axes.fill_between(
                    x, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.15, linewidth=0
                )
            if key == "test_accuracy":
                draw_limit(axes, target, f"target: {target:.4g}")
            else:
                axes.set_yscale("log")
            last, first = key == FIGURES[-1][0], across == AXES[0][0]
            finish_axes(axes, "", unit if last else "", name if first else "")
            if key == "test_accuracy":
                axes.set_ylim(top=1.0, bottom=1 - 8 * (1 - target))
            axes.set_xlim(left=0)
    seeds = len(cells)
    what = f"LeNet on {details['goal']['dataset']}, {REPLICAS} replicas of b={BATCH_SIZE}"
    finish_figure(figure, f"{what}: {over(seeds)}", 8.0)


def table(details: dict[str, Any]) -> Table:
    figures = ("epochs", "seconds", "rate")
    rows = [
        [
            LABELS[row["sync"]],
            row["learning_rate"],
            *(ranged(row[key]) for key in figures),
            f"{row['last_accuracy']['median']:.2%}",
        ]
        for row in details["summary"]
    ]
    columns = ["method", "learning rate", f"epochs to {details['target']:.0%} (range)", "seconds (range)"]
    return Table([*columns, "images/s (range)", "accuracy at the end"], rows, [seeds_of(details)])


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    wanted = goal_of(options)
    assert wanted.target is not None
    goal = wanted.to_the_end()
    settings = settings_to_run()
    seeds = options.seeds or (1 if options.small else 3)
    cells = Cells(options, goal.facts())
    for seed in range(seeds):
        for setting in settings:
            cell = cells.get(described(setting), seed, partial(run, setting, goal, seed))
            print(f"seed {seed}  {setting.sync:6} best accuracy {cell['best_accuracy']:.2%}", flush=True)
    runs = {setting.sync: cells.of(described(setting)) for setting in settings}
    summed = []
    for setting in settings:
        mine = runs[setting.sync]
        last = [cell["checks"][-1][CHECK.index("test_accuracy")] for cell in mine]
        figures: dict[str, MedianRange] = {
            "last_accuracy": median_range(last),
            "epochs": reached(mine, wanted.target, "epochs"),
            "seconds": reached(mine, wanted.target, "seconds"),
            "rate": median_range([cell["examples_per_second"] for cell in mine]),
        }
        row: dict[str, Any] = {"sync": setting.sync, "learning_rate": setting.learning_rate}
        summed.append({**row, **figures})
    written = [
        {key: value.as_json() if isinstance(value, MedianRange) else value for key, value in row.items()}
        for row in summed
    ]
    details = {**cells.result(), "target": wanted.target, "summary": written}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
