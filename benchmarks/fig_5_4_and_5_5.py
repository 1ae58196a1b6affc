"""Time and epochs to 99 % on the test split: LeNet on MNIST, 1 to 4 replicas of b=4 and 16, and PyTorch.

    python benchmarks/fig_5_4_and_5_5.py --data FOLDER [--small] [--seeds 5] [--fresh]

Figures 5.4 and 5.5 of TensorBow (Budea, 2019). Both sides have the same model, initial values, data order and
update (momentum 0.9, constant rate, no augmentation), the same number of examples between two
evaluations (an eighth of an epoch), and rates chosen from one grid by one rule (`learning_rates.py`).
PyTorch trains one model with all cores, at several batch sizes; for each its quickest way (eager,
channels-last, compiled; fused or foreach SGD) is chosen first by measuring. The seeds of a setting alternate
with those of all others. Runs that do not get there within `--epochs` (4) count as not reached.

`PyTorch, no waiting` is a bound, not a run: the epochs PyTorch needs at a batch size, at the rate of as many
processes as cores, each with its share of the batch and a model of its own. Data-parallel training, which
exchanges gradients in every step, can't be faster than that.
"""

from __future__ import annotations

import math
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import harness
from cells import Cell, Cells
from learning_rates import chosen_rate
from medians import MedianRange, median_range, shown, summary
from time_to_accuracy import Goal, Replicas, RunSetting, add_goal_options, course, described, goal_of
from time_to_accuracy_torch import EAGER, SIDE, VARIANTS, TorchProcess, tuned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_4_and_5_5"
REPLICAS, BATCH_SIZES = (1, 2, 3, 4), (4, 16)
PEER_BATCH_SIZES = (16, 64, 128)
FLOOR = 1.5  # times the best peer
Row = dict[str, Any]
Choices = dict[int, dict[str, Any]]
"""By batch size: what `tuned` found for PyTorch."""


def settings_to_run(small: bool) -> list[RunSetting]:
    """Ours, then the peer's where it is installed."""
    replicas, sizes, peers = ((1, 4), (16,), (16,)) if small else (REPLICAS, BATCH_SIZES, PEER_BATCH_SIZES)
    ours = [RunSetting(size, chosen_rate(count, size), count) for size in sizes for count in replicas]
    if find_spec("torch") is None:
        print("PyTorch is not installed: left out")
        return ours
    return [*ours, *(RunSetting(size, chosen_rate(1, size), side=SIDE) for size in peers)]


def label(setting: RunSetting) -> str:
    """For tables and pictures."""
    if setting.side == SIDE:
        return f"{SIDE} b={setting.batch_size}"
    return f"{setting.replicas} x b={setting.batch_size}"


def run(setting: RunSetting, goal: Goal, seed: int, choices: Choices) -> Cell:
    """One run of a setting."""
    if setting.side == SIDE:
        return course(TorchProcess(setting, goal, seed, choices[setting.batch_size]), goal)
    return course(Replicas(setting, goal, seed), goal)


def rows_of(cells: Cells, settings: list[RunSetting], choices: Choices, examples: int) -> list[Row]:
    """For each setting, and each bound, seconds, epochs and examples per second."""
    rows: list[Row] = []
    for setting in settings:
        runs = cells.of(described(setting))
        rows.append({"label": label(setting), "side": setting.side, "setting": setting, **summary(runs)})
        rate = choices[setting.batch_size]["apart"] if setting.side == SIDE else None
        if rate is not None:
            epochs = [cell["epochs_to_target"] for cell in runs]
            seconds = [None if number is None else number * examples / rate for number in epochs]
            figures = {
                "seconds": median_range(seconds),
                "epochs": median_range(epochs),
                "rate": median_range([rate]),
            }
            name = f"{SIDE}, no waiting, b={setting.batch_size}"
            rows.append({"label": name, "side": "bound", "setting": setting, **figures})
    return rows


def times_as_fast(rows: list[Row], side: str) -> float | None:
    """As the best of a side is our best, by medians; None where one of them never got there."""
    ours = min((row["seconds"].median for row in rows if row["side"] == "TensorBow"), default=math.inf)
    theirs = min((row["seconds"].median for row in rows if row["side"] == side), default=math.inf)
    return round(theirs / ours, 3) if math.isfinite(ours) and math.isfinite(theirs) else None


def times_the_best_peer(row: Row, rows: list[Row]) -> float | None:
    """How many times as fast one of ours is, by medians, as the best peer; None where one never got there."""
    return times_as_fast([row, *(other for other in rows if other["side"] == SIDE)], SIDE)


def draw(figure: Figure, rows: list[Row], cells: Cells, goal: Goal) -> None:
    """A bar at the median and a dot for each seed, in seconds and in epochs."""
    figure.set_size_inches(9, 7)
    runs = [row for row in rows if row["side"] != "bound"]
    upper, lower = figure.subplots(2, 1)
    for axes, key in ((upper, "seconds"), (lower, "epochs")):
        for x, row in enumerate(runs):
            colour = "C1" if row["side"] == SIDE else "C0"
            values: MedianRange = row[key]
            reached = math.isfinite(values.median)
            if reached:
                axes.bar(x, values.median, color=colour, alpha=0.45)
            found = [cell[f"{key}_to_target"] for cell in cells.of(described(row["setting"]))]
            known = [value for value in found if value is not None]
            axes.plot([x] * len(known), known, "o", color=colour, markersize=4)
            text, top = shown(values.median) if reached else "not\nreached", max(known, default=0)
            axes.annotate(text, (x, top), (0, 5), textcoords="offset points", ha="center")
        axes.set_xticks(range(len(runs)), [row["label"] for row in runs], rotation=20, ha="right")
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    upper.set_ylabel("training time [s]")
    lower.set_ylabel("epochs")
    upper.bar(0, 0, color="C0", alpha=0.45, label="TensorBow, replicas x batch size")
    if len({row["side"] for row in runs}) > 1:
        upper.bar(0, 0, color="C1", alpha=0.45, label="PyTorch, all cores")
    upper.legend(fontsize="small")
    seeds = 1 + max(cell["seed"] for cell in cells.all)
    figure.suptitle(
        f"LeNet on {goal.train.name.partition('/')[0]}, to {goal.target:.4g} test accuracy: "
        f"median (bar) and seeds (dots, {seeds})"
    )


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    goal = goal_of(options)
    settings = settings_to_run(options.small)
    cells = Cells(options, goal.facts())
    trial = (0.3, 2, EAGER) if options.small else (1.0, 5, VARIANTS)
    choices: Choices = {}
    for size in [setting.batch_size for setting in settings if setting.side == SIDE]:
        ways = {"side": SIDE, "batch_size": size, "ways_of_training": True}
        choices[size] = cells.get(ways, 0, partial(tuned, goal.train, size, *trial))
        print(f"{SIDE} b={size}: {choices[size]['variant']}, {choices[size]['optimizer']}", flush=True)
    for seed in range(options.seeds or (2 if options.small else 5)):
        for setting in settings:
            cell = cells.get(described(setting), seed, partial(run, setting, goal, seed, choices))
            found = f"{cell['seconds_to_target']} s, {cell['epochs_to_target']} epochs"
            print(f"seed {seed}  {label(setting):16} {found}", flush=True)
    rows = rows_of(cells, settings, choices, len(goal.train))
    table = []
    for row in rows:
        figures = [f"{row['setting'].learning_rate:g}", str(row["seconds"]), str(row["epochs"])]
        row["times_best_peer"] = times_the_best_peer(row, rows) if row["side"] == "TensorBow" else None
        times = "-" if row["times_best_peer"] is None else f"{row['times_best_peer']:.2f}"
        table.append([row["label"], *figures, f"{row['rate'].median:,.0f}", times])
    header = [
        "setting",
        "learning rate",
        "seconds (range)",
        "epochs (range)",
        "examples/s",
        "times best peer",
    ]
    harness.print_table(header, table)
    ratios = {"best_peer": times_as_fast(rows, SIDE), "bound_of_data_parallel": times_as_fast(rows, "bound")}
    for name, ratio in ratios.items():
        print(f"times as fast as the {name.replace('_', ' ')}: {ratio} (floor: {FLOOR} for the best peer)")
    kept = ("seconds", "epochs", "rate")
    summed = [
        {"label": row["label"], "side": row["side"], "learning_rate": row["setting"].learning_rate}
        | {key: row[key].as_json() for key in kept}
        | {"times_best_peer": row["times_best_peer"]}
        for row in rows
    ]
    result = {**cells.result(), "summary": summed, "times_as_fast": ratios, "floor": FLOOR}
    harness.save(options, NAME, result, lambda figure: draw(figure, rows, cells, goal))


if __name__ == "__main__":
    main()
