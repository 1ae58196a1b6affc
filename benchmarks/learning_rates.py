"""Chooses the learning rate of every setting of the experiments by accuracy, from one grid and by one rule.

    python benchmarks/learning_rates.py [--data FOLDER] [--small] [--only 4x16,1x64] [--seeds 2] [--fresh]

The grid is 0.00125 * 2^n, n = 0..6. The rule, for each number of replicas and batch size: train with the rate
of the grid nearest to a first guess and with its two neighbours, over seeds that the experiments do not use;
while the best rate is at the edge of those tried, try the next one. The best rate has the least mean of
epochs to the target accuracy, where a run that misses the target counts as the most epochs; ties go to the
higher best accuracy, then to the smaller rate.

One replica is plain momentum SGD. PyTorch and JAX do the same steps from the same initial values and
batches, so their rate for a batch size is the one found here for one replica. (The order of float32 sums
differs, and training magnifies the difference: single seeds of the three need different numbers of epochs at
the same rate.) The experiments read the choices from this script's results file; for a missing setting they
take the rate of the nearest batch size and say so (`chosen_rate`).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells, cells_of
from drawing import SIZES, data_title, draw_limit, draw_seeds, finish_axes, finish_figure, grouped
from results_page import Table
from time_to_accuracy import CHECK, Goal, Replicas, RunSetting, add_goal_options, course, described, goal_of

from tensorbow.errors import NumericsError
from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "learning_rates"
GRID = tuple(0.00125 * 2.0**n for n in range(7))
FIRST_SEED = 1000  # the experiments count from 0
GUESSES = {  # (replicas, batch_size): where the search begins; in the order of the search
    (4, 16): 0.01,
    (1, 16): 0.005,
    (2, 16): 0.02,
    (1, 64): 0.01,
    (1, 128): 0.04,
    (1, 32): 0.01,
    (1, 256): 0.04,
    (4, 4): 0.01,
    (2, 4): 0.005,
    (1, 4): 0.0025,
    (3, 16): 0.01,
    (3, 4): 0.005,
}


Score = tuple[float, float]
"""Score of a rate, lower is better: mean epochs to the target, and minus the best accuracy."""


def climb(guess: float, score: Callable[[float], Score]) -> float:
    """Rate of the grid at which the rule above ends."""
    at = min(range(len(GRID)), key=lambda n: abs(math.log(GRID[n] / guess)))
    scores: dict[int, Score] = {}
    while True:
        around = [n for n in (at - 1, at, at + 1) if 0 <= n < len(GRID)]
        for n in around:
            if n not in scores:
                scores[n] = score(GRID[n])
        best: int = min(around, key=lambda n: (scores[n], n))
        if best == at:
            return GRID[at]
        at = best


def rows_of_file(path: Path) -> list[dict[str, Any]]:
    """Choices in a results file; none if the file does not exist."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text())["details"].get("chosen", [])
    except FileNotFoundError:
        return []
    return rows


def chosen_rate(replicas: int, batch_size: int) -> float:
    """Learning rate chosen for a setting in the repository's results.

    For a missing setting: the rate of the nearest batch size by ratio with the same number of replicas (of
    two equally near the smaller), or else the first guess; a printed line says so.
    """
    rows = rows_of_file(harness.RESULTS / f"{NAME}.json")
    known = {row["batch_size"]: float(row["learning_rate"]) for row in rows if row["replicas"] == replicas}
    if batch_size in known:
        return known[batch_size]
    named = f"learning rate of {replicas} x b={batch_size}: none was searched for"
    if known:
        nearest = min(known, key=lambda size: (round(abs(math.log2(size / batch_size)), 6), size))
        print(f"{named}; {known[nearest]:g}, that of b={nearest}")
        return known[nearest]
    rate = GUESSES[replicas, batch_size]
    print(f"{named}; {rate:g}, the first guess")
    return rate


def epochs_of(course: dict[str, Any]) -> dict[str, Any]:
    """Part of a course of training that counts here: [epochs, test accuracy] of its checks, without times."""
    at = CHECK.index("epochs"), CHECK.index("test_accuracy")
    kept = {key: course[key] for key in ("epochs_to_target", "best_accuracy")}
    return {**kept, "accuracies": [[check[n] for n in at] for check in course["checks"]]}


def epochs_with(setting: RunSetting, goal: Goal, seed: int) -> dict[str, Any]:
    """`epochs_of` a run; one that diverges misses the target."""
    try:
        return epochs_of(course(Replicas(setting, goal, seed), goal))
    except NumericsError:
        return {"epochs_to_target": None, "best_accuracy": 0.0, "accuracies": []}


def trained(cells: Cells, goal: Goal, setting: RunSetting, seeds: int) -> Score:
    """Score of a setting over its seeds."""
    runs = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        runs.append(cells.get(described(setting), seed, partial(epochs_with, setting, goal, seed)))
    epochs = statistics.fmean(run["epochs_to_target"] or goal.epochs for run in runs)
    accuracy = statistics.fmean(run["best_accuracy"] for run in runs)
    named = f"{setting.replicas} x b={setting.batch_size:<3} learning rate {setting.learning_rate:<7g}"
    print(f"{named} {epochs:.2f} epochs, at best {accuracy:.2%}", flush=True)
    return epochs, -accuracy


def search(goal: Goal, cells: Cells, seeds: int, settings: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Rate chosen for each (replicas, batch_size), with the score of every rate tried."""
    rows = []
    for replicas, batch_size in settings:
        setting = RunSetting(batch_size, 0.0, replicas)
        tried: dict[float, float] = {}

        def score(rate: float, setting: RunSetting = setting, tried: dict[float, float] = tried) -> Score:
            found = trained(cells, goal, replace(setting, learning_rate=rate), seeds)
            tried[rate] = round(found[0], 4)
            return found

        rate = climb(GUESSES[replicas, batch_size], score)
        row = {"replicas": replicas, "batch_size": batch_size, "learning_rate": rate}
        rows.append(
            {**row, "seeds": seeds, "mean_epochs": {f"{rate:g}": tried[rate] for rate in sorted(tried)}}
        )
    return rows


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws epochs to the target against the rate: a panel for each number of replicas, a line for a size."""
    details = result["details"]
    goal, sizes = details["goal"], sorted({row["batch_size"] for row in details["chosen"]})
    colours = dict(zip(sizes, SIZES, strict=False))
    panels = sorted(grouped(details["chosen"], "replicas"), key=lambda panel: panel[0]["replicas"])
    never, seeds = goal["most_epochs"], max(row["seeds"] for row in details["chosen"])
    lines = -(-len(panels) // 2)
    grid = figure.subplots(lines, min(2, len(panels)), sharex=True, sharey=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        for row in sorted(panel, key=lambda row: row["batch_size"]):
            size, replicas, colour = row["batch_size"], row["replicas"], colours[row["batch_size"]]
            rates = [float(rate) for rate in row["mean_epochs"]]
            axes.plot(rates, row["mean_epochs"].values(), color=colour, label=f"b={size}, mean")
            for rate in rates:
                runs = cells_of(details["cells"], batch_size=size, replicas=replicas, learning_rate=rate)
                epochs = [run["epochs_to_target"] or never for run in runs]
                draw_seeds(axes, rate, epochs, colour)
            best = row["mean_epochs"][f"{row['learning_rate']:g}"]
            ring = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": colour}
            axes.plot([row["learning_rate"]], [best], "o", color=GREY, **ring)
        draw_limit(axes, never, f"not reached in {never:g} epochs")
        axes.set_xscale("log")
        title = f"{panel[0]['replicas']} replica{'s' if panel[0]['replicas'] > 1 else ''}"
        finish_axes(axes, title, "", "")
        axes.set_xticks(details["grid"], [f"{rate:g}" for rate in details["grid"]], fontsize=8)
        axes.minorticks_off()
    for axes in grid[-1]:
        axes.set_xlabel("learning rate")
    for axes in grid[:, 0]:
        axes.set_ylabel(f"epochs to {goal['target']:.0%}")
    for unused in grid.flat[len(panels) :]:
        unused.remove()
    dots = "dot: the seed's run" if seeds == 1 else f"dots: {seeds} seeds"
    title = f"LeNet on {data_title(goal['dataset'])}: epochs to {goal['target']:.0%} by learning rate"
    finish_figure(figure, title, 2.7 * lines + 1.0, f"{dots}; ring: the rate chosen")


def settings_named(names: str) -> list[tuple[int, int]]:
    """Parses names such as 4x16,1x64 to replicas and batch sizes of the table."""
    known = {f"{replicas}x{batch_size}": (replicas, batch_size) for replicas, batch_size in GUESSES}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; choose of {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def table(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["chosen"]:
        tried = ", ".join(f"{epochs:.3g} at {rate}" for rate, epochs in row["mean_epochs"].items())
        rows.append([row["replicas"], row["batch_size"], row["learning_rate"], tried, row["seeds"]])
    columns = ["replicas", "batch size", "learning rate", "mean epochs at the rates tried", "seeds"]
    grid = ", ".join(f"{rate:g}" for rate in details["grid"])
    most = f"a run that does not get there counts as {details['goal']['most_epochs']:g} epochs"
    remarks = [f"The grid: {grid}; {most}.", "Peers have the rate of one replica at their batch size."]
    return Table(columns, rows, remarks)


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    only = "replicas x batch sizes to search, as 4x16,1x64; others are left as they are"
    parser.add_argument("--only", type=settings_named, help=only)
    options: argparse.Namespace = parser.parse_args()
    goal = goal_of(options, epochs=3.5)
    seeds = options.seeds or (1 if options.small else 2)
    settings = [(4, 16), (1, 16)] if options.small else list(GUESSES)
    settings = options.only or settings
    cells = Cells(options, goal.facts(), timed=False)
    before = [] if options.fresh else rows_of_file(harness.output_path(options, f"{NAME}.json"))
    kept = [row for row in before if (row["replicas"], row["batch_size"]) not in settings]
    rows = kept + search(goal, cells, seeds, settings)
    details = {**cells.result(), "grid": GRID, "first_seed": FIRST_SEED, "chosen": rows}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
