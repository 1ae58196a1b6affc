"""Time of LeNet to 99 % on MNIST with a one-cycle learning rate that ends with 0.9 epochs, beside PyTorch.

    python benchmarks/one_cycle.py --data FOLDER [--small] [--seeds 5] [--fresh]

As `fig_5_4_and_5_5`, but the learning rate rises and falls along a one-cycle schedule over the whole run, for
both sides, and the model is evaluated 20 times an epoch. Rule for the peak rates: the one of the grid
0.0125 * 2^n, n = 0..4, with the least mean of epochs to the target (a miss counts as the run's epochs; ties
go to the higher accuracy) over two seeds that the medians do not use. PyTorch's steps are those of one
replica, so its rates are found with one replica of ours. JAX is left out: PyTorch was twice as fast in
`fig_5_4_and_5_5`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells
from drawing import CONTESTANTS, data_title, draw_seeds, finish_axes, finish_figure, lighter
from fig_5_4_and_5_5 import choices_of, label, run
from learning_rates import Score, trained
from medians import ranged, summary
from results_page import MISSED, Table, shown
from time_to_accuracy import RunSetting, add_goal_options, described, goal_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "one_cycle"
GRID = tuple(0.0125 * 2.0**n for n in range(5))
TUNING_SEEDS = 2
EPOCHS, CHECKS = 0.9, 20
OURS = RunSetting(16, 0.0, 2)
PEERS = tuple(RunSetting(size, 0.0, side="PyTorch") for size in (16, 32, 64))
MOST_SECONDS = 4.0


def tuned_setting(setting: RunSetting, score: Any) -> RunSetting:
    """The setting with the best rate of the grid."""
    alone = replace(setting, side="TensorBow")
    scores: dict[float, Score] = {rate: score(replace(alone, learning_rate=rate)) for rate in GRID}
    return replace(setting, learning_rate=min(GRID, key=lambda rate: (scores[rate], rate)))


def ticks(row: dict[str, Any]) -> str:
    """Side and setting of a row, in two lines."""
    return f"{row['side']}\n{row['label'].removeprefix(row['side']).strip()}"


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar at the median and a dot for each seed, in seconds and in epochs."""
    details = result["details"]
    for axes, key in zip(figure.subplots(1, 2), ("seconds", "epochs"), strict=True):
        for x, row in enumerate(details["summary"]):
            colour, median = CONTESTANTS[row["side"]], row[key]["median"]
            if median is not None:
                axes.bar(x, median, color=lighter(colour, 0.5))
                place = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
                top = max(filter(None, (*row[f"{key}_of"], median)))
                axes.annotate(shown(median), (x, top), (0, 4), **place)
            draw_seeds(axes, x, row[f"{key}_of"], colour)
        axes.set_xticks(range(len(details["summary"])), [ticks(row) for row in details["summary"]])
        finish_axes(axes, "", "", "training time [s]" if key == "seconds" else "epochs")
        axes.set_ylim(top=1.15 * axes.get_ylim()[1])
    goal = details["goal"]
    title = f"LeNet on {data_title(goal['dataset'])}, one cycle, to {goal['target']:.4g} test accuracy"
    finish_figure(figure, title, 4.0, "bars and numbers: medians; dots: seeds")


def table(details: dict[str, Any]) -> Table:
    rows = [
        [row["label"], row["learning_rate"], *(ranged(row[key]) for key in ("seconds", "epochs", "rate"))]
        for row in details["summary"]
    ]
    ours, *theirs = (row["seconds"]["median"] for row in details["summary"])
    remarks = [f"Medians and ranges of {details['seeds']} seeds; `-`: not reached."]
    if ours is not None:
        met = "reached" if ours <= MOST_SECONDS else MISSED
        remarks.append(f"At most {MOST_SECONDS:g} s are asked: {met}.")
        if known := [seconds for seconds in theirs if seconds is not None]:
            remarks.append(f"{min(known) / ours:.2f} times as fast as PyTorch.")
    columns = ["setting", "peak learning rate", "seconds (range)", "epochs (range)", "images/s (range)"]
    return Table(columns, rows, remarks)


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    goal = goal_of(options)
    epochs = options.epochs or (EPOCHS if options.data and not options.small else goal.epochs)
    goal = replace(goal, epochs=epochs, checks=CHECKS if options.data else goal.checks, schedule=NAME)
    cells = Cells(options, goal.facts())
    wanted = [OURS, *(() if harness.on_gpus(options) else PEERS[: 1 if options.small else None])]
    settings, choices = choices_of(wanted, goal, cells, options.small)
    settings = [tuned_setting(each, partial(trained, cells, goal, seeds=TUNING_SEEDS)) for each in settings]
    seeds = options.seeds or (2 if options.small else 5)
    found: dict[RunSetting, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for seed in range(seeds):
        for setting in settings:
            cell = cells.get(described(setting), seed, partial(run, setting, goal, seed, choices))
            found[setting].append(cell)
            print(f"seed {seed}  {label(setting):16} {cell['seconds_to_target']} s", flush=True)
    summed = [
        {"label": label(setting), "side": setting.side, "learning_rate": setting.learning_rate}
        | {key: value.as_json() for key, value in summary(runs).items()}
        | {f"{key}_of": [cell[f"{key}_to_target"] for cell in runs] for key in ("seconds", "epochs")}
        for setting, runs in found.items()
    ]
    details = {**cells.result(), "summary": summed, "seeds": seeds}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
