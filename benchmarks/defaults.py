"""Time and epochs of LeNet to 99 % on MNIST with the default options, beside the best options of a grid.

    python benchmarks/defaults.py --data FOLDER [--small] [--seeds 5] [--fresh]

The defaults are those of `tensorbow train lenet --dataset mnist --target-accuracy 0.99`, with 1, 2 and 4
replicas. Rule for the tuned options: of the rates 0.005 * 2^n, n = 0..3, each constant, or falling along a
line to 0 at the end of 0.9, 2 or 3 epochs, those with the least mean of epochs to the target (a miss counts
as the run's most epochs) over two seeds that the medians do not use. Both sides are checked eight times an
epoch, so that what is compared is the learning and not how often it is looked at. Without --data it is the
digits of scikit-learn to 97 %, which shows that the script runs.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells
from drawing import CONTESTANTS, GREY, data_title, draw_seeds, finish_axes, finish_figure, lighter
from medians import ranged, summary
from results_page import MISSED, Table, shown
from time_to_accuracy import add_goal_options

from scheduler import Trainer, TrainingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "defaults"
REPLICAS = (1, 2, 4)
RATES = tuple(0.005 * 2.0**n for n in range(4))
COURSES: tuple[dict[str, Any], ...] = (
    {"schedule": "piecewise"},
    {"schedule": "polynomial", "epochs": 0.9},
    {"schedule": "polynomial", "epochs": 2},
    {"schedule": "polynomial", "epochs": 3},
)
FIRST_TUNING_SEED, TUNING_SEEDS = 100, 2
MOST_EPOCHS = 4
AT_MOST = 1.2  # times the tuned options' epochs
SIDES = ("defaults", "tuned")
COLOURS = {"defaults": CONTESTANTS["TensorBow"], "tuned": GREY}


def run(
    goal: Mapping[str, Any], folder: Path | None, options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Trains to the target, and returns seconds and epochs to it, None where it is missed.

    folder: with the data set; None for one that a dependency has.
    """
    values = {"epochs": goal["most_epochs"], **options}
    config = TrainingConfig(
        "lenet",
        dataset=goal["dataset"],
        data_dir=None if folder is None else str(folder),
        target_accuracy=goal["target"],
        evaluate_every=1 / goal["checks_per_epoch"],
        seed=seed,
        **values,
    )
    with Trainer(config) as trainer:
        result = trainer.train()
    reached = result.seconds_to_target is not None
    return {
        "seconds_to_target": result.seconds_to_target,
        "epochs_to_target": result.epochs if reached else None,
        "examples_per_second": result.images_per_second,
    }


def tuned(
    cells: Cells, goal: Mapping[str, Any], folder: Path | None, replicas: int, small: bool
) -> dict[str, Any]:
    """The options of the grid with the fewest epochs."""
    rates, courses = (RATES[1:3], COURSES[:1]) if small else (RATES, COURSES)
    grid = [{"learning_rate": rate, **course} for rate, course in itertools.product(rates, courses)]
    seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + (1 if small else TUNING_SEEDS))
    scores = []
    for options in grid:
        setting = {"replicas_per_device": replicas, **options}
        runs = [cells.get(setting, seed, partial(run, goal, folder, setting, seed)) for seed in seeds]
        epochs = statistics.fmean(cell["epochs_to_target"] or goal["most_epochs"] for cell in runs)
        print(f"{replicas} replicas, {described(options)}: {epochs:.2f} epochs", flush=True)
        scores.append(epochs)
    return grid[scores.index(min(scores))]


def described(options: Mapping[str, Any]) -> str:
    """Options of a side in words."""
    if not options:
        return "defaults"
    course = "constant" if options["schedule"] == "piecewise" else f"to 0 in {options['epochs']} epochs"
    return f"rate {options['learning_rate']:g} {course}"


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar at the median and a dot for each seed, in seconds and in epochs."""
    rows = result["details"]["summary"]
    for axes, key in zip(figure.subplots(1, 2), ("seconds", "epochs"), strict=True):
        for x, row in enumerate(rows):
            colour, median = COLOURS[row["side"]], row[key]["median"]
            if median is not None:
                axes.bar(x, median, color=lighter(colour, 0.5))
                top = max(filter(None, (*row[f"{key}_of"], median)))
                axes.annotate(
                    shown(median), (x, top), (0, 4), textcoords="offset points", ha="center", fontsize=9
                )
            draw_seeds(axes, x, row[f"{key}_of"], colour)
        labels = [f"{row['replicas']}\n{row['side']}" for row in rows]
        axes.set_xticks(range(len(rows)), labels)
        finish_axes(axes, "", "replicas", "training time [s]" if key == "seconds" else "epochs")
        axes.set_ylim(top=1.1 * axes.get_ylim()[1])
    goal = result["details"]["goal"]
    title = f"LeNet on {data_title(goal['dataset'])} to {goal['target']:.4g} test accuracy"
    finish_figure(figure, title, 4.0, "bars and numbers: medians; dots: seeds")


def table(details: dict[str, Any]) -> Table:
    """Rows by replicas and side; remarks on the ratio of their epochs."""
    rows = [
        [row["replicas"], row["options"], *(ranged(row[key]) for key in ("seconds", "epochs"))]
        for row in details["summary"]
    ]
    remarks = [f"Medians and ranges of {details['seeds']} seeds; `-`: not reached."]
    for ours, best in zip(details["summary"][::2], details["summary"][1::2], strict=True):
        for key in ("epochs", "seconds"):
            mine, theirs = (row[key]["median"] for row in (ours, best))
            if mine is None or theirs is None:
                continue
            met = "" if key == "seconds" else f"; at most {AT_MOST:g} are asked: "
            met += "" if key == "seconds" else "reached" if mine <= AT_MOST * theirs else MISSED
            replicas = f"{ours['replicas']} replica{'s' if ours['replicas'] > 1 else ''}"
            remarks.append(
                f"{replicas}: the defaults take {mine / theirs:.2f} times the {key} of the "
                f"tuned options{met}."
            )
    return Table(["replicas", "options", "seconds (range)", "epochs (range)"], rows, remarks)


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    of_mnist = options.data is not None
    goal = {
        "dataset": "mnist" if of_mnist else "digits",
        "target": options.target or (0.99 if of_mnist else 0.9 if options.small else 0.97),
        "most_epochs": options.epochs or (MOST_EPOCHS if of_mnist else 12),
        "checks_per_epoch": 8 if of_mnist else 1,
    }
    cells = Cells(options, goal)
    seeds = options.seeds or (2 if options.small else 5)
    rows = []
    for replicas in REPLICAS[1:2] if options.small else REPLICAS:
        best = tuned(cells, goal, options.data, replicas, options.small)
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        of_side = dict(zip(SIDES, ({}, best), strict=True))
        for seed in range(seeds):
            for side, own in of_side.items():  # in turn
                setting = {"replicas_per_device": replicas, **own}
                cell = cells.get(setting, seed, partial(run, goal, options.data, setting, seed))
                found[side].append(cell)
                print(
                    f"seed {seed}  {replicas} replicas, {side}: {cell['epochs_to_target']} epochs", flush=True
                )
        rows += [
            {"replicas": replicas, "side": side, "options": described(of_side[side])}
            | {key: value.as_json() for key, value in summary(runs).items()}
            | {f"{key}_of": [cell[f"{key}_to_target"] for cell in runs] for key in ("seconds", "epochs")}
            for side, runs in found.items()
        ]
    details = {**cells.result(), "summary": rows, "seeds": seeds}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
