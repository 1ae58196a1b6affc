"""Batch size against time and epochs to an accuracy on the test split, one replica: LeNet, or ResNet-32.

    python benchmarks/fig_5_1_to_5_3.py --data FOLDER [--small] [--target 0.99] [--fresh]
    python benchmarks/fig_5_1_to_5_3.py --model resnet32 --data FOLDER --devices gpu:0   # figures 5.1 and 5.2

Figures 5.1 to 5.3 of TensorBow (Budea, 2019) show the cost of large batches: more examples per second, but
more epochs. One replica is plain momentum SGD (0.9), without augmentation, at the learning rate that
`learning_rates.py` has chosen for the batch size. Runs that miss the target within `--epochs` (4) count as
not reached. Accuracy is evaluated every eighth of an epoch. With `--thesis` LeNet has the thesis's sizes.

ResNet-32 is trained on CIFAR-10 (in FOLDER; without one a small ResNet on digits) to 80 % within 80 epochs,
with batches of 64 to 1,024, the model's weight decay and augmentation, at the rate 0.1 for 128 examples times
batch size / 128, as the thesis does not give its rates. As there, the median of the last five epochs'
accuracies counts. Its files are named fig_5_1_and_5_2.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells, cells_of
from drawing import (
    SIZES,
    Result,
    Row,
    contestant_colour,
    data_title,
    draw_limit,
    draw_seeds,
    finish_axes,
    finish_figure,
)
from experiments import TITLES
from learning_rates import chosen_rate
from medians import OF_CELL, ranged, seeds_of
from results_page import Table
from seeds import over_seeds
from thesis import Fact, beside
from time_to_accuracy import CHECK, Goal, RunSetting, add_goal_options, goal_of

import tensorbow as tb
from tensorbow.errors import TensorBowError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_1_to_5_3"
BATCH_SIZES = (4, 16, 32, 64, 128, 256)  # those with a rate of their own
THESIS_SIZES = (4, 8, 16, 32, 64, 128)
RESNET_SIZES, RESNET_SMALL_SIZES = (64, 128, 256, 512, 1024), (32, 128)
RESNET_RATE, RESNET_RATE_SIZE = 0.1, 128  # He et al. (2015)
RESNET_TARGET, RESNET_EPOCHS, MEDIAN_OF = 0.8, 80.0, 5
RESNET_NAME = "fig_5_1_and_5_2"


def median_of(batch_size: int, key: str) -> Callable[[Sequence[Row]], float | None]:
    """Our median of seconds, epochs or rate."""

    def here(rows: Sequence[Row]) -> float | None:
        return next((row[key]["median"] for row in rows if row["batch_size"] == batch_size), None)

    return here


def over(batch_size: int, base: int, key: str) -> Callable[[Sequence[Row]], float | None]:
    """Our median at a batch size over that at another."""

    def here(rows: Sequence[Row]) -> float | None:
        first, second = (median_of(size, key)(rows) for size in (batch_size, base))
        return first / second if first and second else None

    return here


FACTS = (
    Fact("5.3", "LeNet b=8 to 99 %", 934, "s", median_of(8, "seconds")),
    Fact("5.3", "LeNet b=16 to 99 %", 536, "s", median_of(16, "seconds")),
    Fact("5.3", "LeNet b=8 over b=16: time", 934 / 536, "times", over(8, 16, "seconds")),
)
RESNET_FACTS = (
    Fact("5.1", "ResNet-32 b=512 over b=128: time to 80 %", 1.0, "times", over(512, 128, "seconds")),
    Fact("5.2", "ResNet-32 b=256: images/s", 3000, "images/s", median_of(256, "rate")),
    Fact("5.2", "ResNet-32 b=1024: images/s", 3300, "images/s", median_of(1024, "rate")),
    Fact("5.2", "ResNet-32 b=1024 over b=256: images/s", 1.1, "times", over(1024, 256, "rate")),
)
PANELS = (
    ("seconds", "training time [s]"),
    ("epochs", "epochs"),
    ("rate", "examples per second"),
)


def draw(figure: Figure, result: Result) -> None:
    """Draws LeNet's medians over the batch size, or ResNets' courses of accuracy."""
    if result["details"]["goal"]["model"] == "lenet":
        draw_medians(figure, result["details"])
    else:
        draw_courses(figure, result["details"])


def draw_medians(figure: Figure, details: Row) -> None:
    """Median and seeds against the batch size: seconds, epochs, examples per second."""
    goal, summed = details["goal"], details["summary"]
    runs = [
        cells_of(details["cells"], batch_size=row["batch_size"], learning_rate=row["learning_rate"])
        for row in summed
    ]
    colour = contestant_colour("TensorBow")
    titles = (f"time to {goal['target']:.4g}", f"epochs to {goal['target']:.4g}", "throughput")
    sizes = [row["batch_size"] for row in summed]
    for axes, (key, unit), title in zip(figure.subplots(1, len(PANELS)), PANELS, titles, strict=True):
        known = [row for row in summed if row[key]["median"] is not None]
        middles = [row[key]["median"] for row in known]
        axes.plot([row["batch_size"] for row in known], middles, color=colour, label="median")
        for size, own in zip(sizes, runs, strict=True):
            values = [cell[OF_CELL[key]] for cell in own]
            draw_seeds(axes, size, values, colour, "seed" if size == sizes[0] else "")
        axes.set_xscale("log", base=2)
        axes.set_xlim(sizes[0] / 1.4, sizes[-1] * 1.4)
        finish_axes(axes, title, "batch size", unit, sizes)
        axes.set_ylim(top=1.15 * axes.get_ylim()[1])
        axes.tick_params(axis="x", labelsize=8)
    what = f"{TITLES[goal['model']]} on {data_title(goal['dataset'])}, one replica"
    finish_figure(figure, f"{what}: median and seeds ({max(map(len, runs))})", 3.8)


def draw_courses(figure: Figure, details: Row) -> None:
    """Draws test accuracy against time (5.1) and epochs (5.2): the median of the last epochs, first seed."""
    goal = details["goal"]
    left, right = figure.subplots(1, 2, sharey=True)
    for row, colour in zip(details["summary"], SIZES, strict=False):
        size, rate = row["batch_size"], row["learning_rate"]
        checks = cells_of(details["cells"], batch_size=size, learning_rate=rate)[0]["checks"]
        accuracies = [check[CHECK.index("test_accuracy")] for check in checks]
        last = [accuracies[max(0, at - goal["median_of"] + 1) : at + 1] for at in range(len(accuracies))]
        y = [100 * statistics.median(values) for values in last]
        for axes, key in ((left, "seconds"), (right, "epochs")):
            x = [check[CHECK.index(key)] for check in checks]
            axes.plot(x, y, color=colour, marker=".", label=f"b={size}")
    for axes, title, x_name in (
        (left, "5.1: against time", "training time [s]"),
        (right, "5.2: against epochs", "epochs"),
    ):
        draw_limit(axes, 100 * goal["target"], f"{goal['target']:.0%}")
        axes.set_xlim(left=0)
        finish_axes(axes, title, x_name, "test accuracy [%]" if axes is left else "")
    what = f"median of {goal['median_of']} epochs" if goal["median_of"] > 1 else "every epoch"
    finish_figure(
        figure, f"{TITLES[goal['model']]} on {data_title(goal['dataset'])}: test accuracy, {what}", 4.4
    )


def table(details: dict[str, Any]) -> Table:
    rows = [
        [row["batch_size"], row["learning_rate"], *(ranged(row[key]) for key, _ in PANELS)]
        for row in details["summary"]
    ]
    columns = ["batch size", "learning rate", "seconds (range)", "epochs (range)", "images/s (range)"]
    return Table(columns, rows, [seeds_of(details), *details.get("beside_the_thesis", [])])


def resnet_goal(options: argparse.Namespace) -> Goal:
    """Goal of figures 5.1 and 5.2: on CIFAR-10, or without files on digits, whose pictures are small."""
    if options.data is None:
        train, test = tb.data.load("digits")
        target, epochs = 0.8, 4.0 if options.small else 20.0
    else:
        try:
            train, test = tb.data.load("cifar10", options.data)
        except TensorBowError as error:
            raise SystemExit(f"--data: {error}") from error
        target, epochs = RESNET_TARGET, 1.0 if options.small else RESNET_EPOCHS
    target, epochs = options.target or target, options.epochs or epochs
    last = 1 if options.small else MEDIAN_OF
    mode = options.replica_mode or "auto"
    return Goal(train, test, target, epochs, 1, options.model, options.devices, last, mode)


def resnet_rate(batch_size: int) -> float:
    """Learning rate of ResNets: linear in the batch size."""
    return RESNET_RATE * batch_size / RESNET_RATE_SIZE


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    models = ["lenet", "resnet8", "resnet32"]
    parser.add_argument("--model", choices=models, default=models[0], help="default lenet")
    options = parser.parse_args()
    if options.model != "lenet":
        options.experiment = RESNET_NAME
    lenet = options.model == "lenet"
    goal = goal_of(options) if lenet else resnet_goal(options)
    sizes: Sequence[int] = THESIS_SIZES if harness.by_the_thesis(options) else BATCH_SIZES
    if not lenet:
        sizes = RESNET_SMALL_SIZES if options.small else RESNET_SIZES
    elif options.small:
        sizes = (4, 16, 64)
    seeds = options.seeds or (1 if options.small else 3 if lenet else 1)
    settings = [RunSetting(size, chosen_rate(1, size) if lenet else resnet_rate(size)) for size in sizes]
    cells = Cells(options, goal.facts())
    rows = over_seeds(cells, goal, settings, seeds, lambda setting: f"b={setting.batch_size:<4}")
    summed = [
        {"batch_size": row["setting"].batch_size, "learning_rate": row["setting"].learning_rate}
        | {key: row[key].as_json() for key, _ in PANELS}
        for row in rows
    ]
    details = {**cells.result(), "summary": summed}
    if goal.is_of_the_thesis():
        details["beside_the_thesis"] = beside(FACTS if lenet else RESNET_FACTS, summed)
    harness.save(options, options.experiment, details, table(details), draw)


if __name__ == "__main__":
    main()
