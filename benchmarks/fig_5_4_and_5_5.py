"""Time and epochs to 99 % on the test split: LeNet on MNIST, 1 to 4 replicas of b=4 and 16, and the peers.

    python benchmarks/fig_5_4_and_5_5.py --data FOLDER [--small] [--seeds 5] [--fresh]

Figures 5.4 and 5.5 of TensorBow (Budea, 2019). Both sides have the same model, initial values, data order and
update (momentum 0.9, constant rate, no augmentation), the same number of examples between two evaluations (an
eighth of an epoch), and learning rates chosen from one grid by one rule (`learning_rates.py`). PyTorch and
JAX train one model with all cores, at several batch sizes; their fastest setting for each (PyTorch eager,
channels-last, compiled, fused or foreach SGD; JAX with one or a few steps per call) is measured first. The
seeds of a setting alternate with those of all others. Runs that miss the target within `--epochs` (4) count
as not reached. A peer's setting whose median after two seeds is more than twice that of the best peer's gets
no more seeds; the result lists these (`dropped`).

`PyTorch, no waiting` is a bound, not a run: the epochs that PyTorch needs at a batch size, at the summed rate
of one process per core, each training its own model on its share of the batch. Data-parallel training, which
exchanges gradients in every step, cannot be faster. The same for JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import harness
from cells import Cell, Cells
from drawing import CONTESTANTS, Row, data_title, draw_seeds, finish_axes, finish_figure, lighter
from learning_rates import chosen_rate
from medians import median_range, ranged, seeds_of, summary
from peers import PeerError
from results_page import MISSED, Table, shown
from thesis import Fact, beside
from time_to_accuracy import Goal, Replicas, RunSetting, add_goal_options, course, described, goal_of
from time_to_accuracy_peers import EAGER, LIBRARIES, VARIANTS, PeerLearner, tuned

from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_4_and_5_5"
REPLICAS, BATCH_SIZES = (1, 2, 3, 4), (4, 16)
PEER_BATCH_SIZES = {"PyTorch": (16, 32, 64, 128, 256), "JAX": (32, 64, 128)}
SMALL_PEER_BATCH_SIZES = {"PyTorch": (16,), "JAX": (16,)}
TRIAL_SEEDS, SLOW = 2, 2.0  # after 2 seeds, drops a peer's setting that is 2 times slower
FLOOR = 1.5  # times the best peer
Choices = dict[tuple[str, int], dict[str, Any]]
"""Result of `tuned` for each side and batch size."""


def seconds_of(batch_size: int, replicas: int) -> Callable[[Sequence[Row]], float | None]:
    """Our median seconds to the target."""

    def here(rows: Sequence[Row]) -> float | None:
        found = (row for row in rows if row["side"] == "TensorBow")
        labels = {row["label"]: row["seconds"]["median"] for row in found}
        return labels.get(label(RunSetting(batch_size, 0.0, replicas)))

    return here


def saved(rows: Sequence[Row]) -> float | None:
    """Percent of the time of one replica of b=16 that three of b=4 save."""
    few, one = seconds_of(4, 3)(rows), seconds_of(16, 1)(rows)
    return 100 * (1 - few / one) if few and one else None


FACTS = (
    Fact("5.4", "1 replica, b=16, to 99 %", 536, "s", seconds_of(16, 1)),
    Fact("5.4", "3 replicas, b=4, to 99 %", 382, "s", seconds_of(4, 3)),
    Fact("5.4", "3 x b=4: less time than 1 x b=16", 30, "%", saved),
)


def settings_to_run(small: bool, peers: bool = True) -> list[RunSetting]:
    """Our settings, then those of the peers that are installed. peers: False leaves them out."""
    replicas, sizes = ((1, 4), (16,)) if small else (REPLICAS, BATCH_SIZES)
    settings = [RunSetting(size, chosen_rate(count, size), count) for size in sizes for count in replicas]
    for side, peer_sizes in (SMALL_PEER_BATCH_SIZES if small else PEER_BATCH_SIZES).items() if peers else ():
        if find_spec(LIBRARIES[side]) is None:
            print(f"{side} is not installed: left out")
            continue
        settings += [RunSetting(size, chosen_rate(1, size), side=side) for size in peer_sizes]
    return settings


def label(setting: RunSetting) -> str:
    """Label of a setting in tables and pictures."""
    if setting.side in LIBRARIES:
        return f"{setting.side} b={setting.batch_size}"
    return f"{setting.replicas} x b={setting.batch_size}"


def run(setting: RunSetting, goal: Goal, seed: int, choices: Choices) -> Cell:
    """One run of a setting."""
    if setting.side in LIBRARIES:
        return course(PeerLearner(setting, goal, seed, choices[setting.side, setting.batch_size]), goal)
    return course(Replicas(setting, goal, seed), goal)


def choices_of(
    settings: list[RunSetting], goal: Goal, cells: Cells, small: bool
) -> tuple[list[RunSetting], Choices]:
    """All settings that start, and the result of `tuned` for each of the peers' settings."""
    trial = (0.3, 2, EAGER) if small else (1.0, 5, VARIANTS)
    choices: Choices = {}
    kept = []
    for setting in settings:
        side, size = setting.side, setting.batch_size
        if side in LIBRARIES:
            ways = {"side": side, "batch_size": size, "ways_of_training": True}
            try:
                found = cells.get(ways, 0, partial(tuned, side, goal.train, size, *trial))
            except PeerError as error:
                print(f"left out: {error}", flush=True)
                continue
            choices[side, size] = found
            many = f", {found['steps_per_call']} steps a call" if found.get("steps_per_call", 1) > 1 else ""
            how = ", ".join(filter(None, (found["variant"], found["optimizer"])))
            print(f"{side} b={size}: {how}{many}", flush=True)
        kept.append(setting)
    return kept, choices


def slow_ones(settings: list[RunSetting], cells: Cells) -> list[RunSetting]:
    """Peers' settings whose median over the first seeds is more than `SLOW` times that of the best peer."""
    medians = {
        setting: summary([c for c in cells.of(described(setting)) if c["seed"] < TRIAL_SEEDS])[
            "seconds"
        ].median
        for setting in settings
        if setting.side in LIBRARIES
    }
    best = min(medians.values(), default=math.inf)
    return [setting for setting, median in medians.items() if median > SLOW * best]


def train(settings: list[RunSetting], goal: Goal, cells: Cells, seeds: int, choices: Choices) -> list[str]:
    """Runs all settings, seed by seed; returns the labels of those dropped after `TRIAL_SEEDS` seeds."""
    dropped: list[RunSetting] = []
    for seed in range(seeds):
        if seed == TRIAL_SEEDS:
            dropped = slow_ones(settings, cells)
            for setting in dropped:
                print(f"{label(setting)}: more than {SLOW:g} times the best peer's time, dropped", flush=True)
        for setting in settings:
            if setting in dropped:
                continue
            cell = cells.get(described(setting), seed, partial(run, setting, goal, seed, choices))
            found = f"{cell['seconds_to_target']} s, {cell['epochs_to_target']} epochs"
            print(f"seed {seed}  {label(setting):16} {found}", flush=True)
    return [label(setting) for setting in dropped if len(cells.of(described(setting))) < seeds]


def rows_of(cells: Cells, settings: list[RunSetting], choices: Choices, examples: int) -> list[Row]:
    """Rows of seconds, epochs and examples per second, one for each setting and each bound."""
    rows: list[Row] = []
    for setting in settings:
        runs = cells.of(described(setting))
        rows.append({"label": label(setting), "side": setting.side, "setting": setting, **summary(runs)})
        rate = choices.get((setting.side, setting.batch_size), {}).get("apart")
        if rate is not None:
            epochs = [cell["epochs_to_target"] for cell in runs]
            seconds = [None if number is None else number * examples / rate for number in epochs]
            figures = {
                "seconds": median_range(seconds),
                "epochs": median_range(epochs),
                "rate": median_range([rate]),
            }
            name = f"{setting.side}, no waiting, b={setting.batch_size}"
            rows.append({"label": name, "side": "bound", "setting": setting, **figures})
    return rows


def times_as_fast(rows: list[Row], sides: Collection[str]) -> float | None:
    """Best median time of these sides over our best; None where either never reached the target."""
    ours = min((row["seconds"].median for row in rows if row["side"] == "TensorBow"), default=math.inf)
    theirs = min((row["seconds"].median for row in rows if row["side"] in sides), default=math.inf)
    return round(theirs / ours, 3) if math.isfinite(ours) and math.isfinite(theirs) else None


def times_the_best_peer(row: Row, rows: list[Row]) -> float | None:
    """Best peer's median time over that of one of our rows; None where either never reached the target."""
    return times_as_fast([row, *(other for other in rows if other["side"] in LIBRARIES)], LIBRARIES)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar at the median and a dot for each seed, in seconds and in epochs."""
    details = result["details"]
    runs = [row for row in details["summary"] if row["side"] != "bound"]
    trained = [cell for cell in details["cells"] if "epochs_to_target" in cell]
    labels = [(label(RunSetting(**cell["setting"])), cell["setting"]["learning_rate"]) for cell in trained]
    upper, lower = figure.subplots(2, 1)
    for axes, key in ((upper, "seconds"), (lower, "epochs")):
        few = f"stopped after {details['dropped']['after_seeds']} seeds, too slow"
        for x, row in enumerate(runs):
            colour, median = CONTESTANTS[row["side"]], row[key]["median"]
            own = row["label"], row["learning_rate"]
            pairs = zip(trained, labels, strict=True)
            values = [cell[f"{key}_to_target"] for cell, found in pairs if found == own]
            if median is not None:
                stopped = row["label"] in details["dropped"]["settings"]
                style = {"hatch": "//", "edgecolor": colour, "linewidth": 0} if stopped else {}
                axes.bar(x, median, color=lighter(colour, 0.5), **style)
                top = max(value for value in (*values, median) if value is not None)
                place = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
                axes.annotate(shown(median), (x, top), (0, 4), **place)
            draw_seeds(axes, x, values, colour)
        axes.set_xticks(range(len(runs)), [row["label"] for row in runs], rotation=35, ha="right")
    finish_axes(upper, "", "", "training time [s]")
    finish_axes(lower, "", "", "epochs")
    for axes in (upper, lower):
        axes.set_ylim(top=1.1 * axes.get_ylim()[1])
        axes.set_xlim(-0.6, len(runs) - 0.4)
    bounds = [row["seconds"]["median"] for row in details["summary"] if row["side"] == "bound"]
    if any(bounds):
        name = "best peer's data parallelism without waiting"
        upper.axhline(min(filter(None, bounds)), color=GREY, linestyle="--", linewidth=1.2, label=name)
    for side in dict.fromkeys(row["side"] for row in runs):
        what = "replicas x batch size" if side == "TensorBow" else "all cores"
        upper.bar(0, 0, color=lighter(CONTESTANTS[side], 0.5), label=f"{side}, {what}")
    if details["dropped"]["settings"]:
        upper.bar(0, 0, color="white", hatch="//", edgecolor=GREY, linewidth=0, label=few)
    goal = details["goal"]
    title = f"LeNet on {data_title(goal['dataset'])}, to {goal['target']:.4g} test accuracy"
    finish_figure(figure, title, 8.0, "bars and numbers: medians; dots: seeds")


def table(details: dict[str, Any]) -> Table:
    rows = [
        [
            row["label"],
            row["learning_rate"],
            *(ranged(row[key]) for key in ("seconds", "epochs", "rate")),
            row["times_best_peer"],
            row["seeds"],
        ]
        for row in details["summary"]
    ]
    best, bound = (details["times_as_fast"][name] for name in ("best_peer", "bound_of_data_parallel"))
    remarks = [seeds_of(details)]
    if best is not None:
        met = "reached" if best >= details["floor"] else MISSED
        remarks.append(f"{best:.2f} times as fast as the best peer, floor {details['floor']}: {met}.")
    if bound is not None:
        remarks.append(f"{bound:.2f} times as fast as the best peer's data parallelism, if it never waited.")
    if details["dropped"]["settings"]:
        many, dropped = details["dropped"]["after_seeds"], ", ".join(details["dropped"]["settings"])
        remarks.append(f"Stopped after {many} seeds, too slow: {dropped}.")
    remarks += details.get("beside_the_thesis", [])
    columns = ["setting", "learning rate", "seconds (range)", "epochs (range)", "images/s (range)"]
    return Table([*columns, "times best peer", "seeds"], rows, remarks)


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    add_goal_options(parser)
    options = parser.parse_args()
    goal = goal_of(options)
    cells = Cells(options, goal.facts())
    if harness.on_gpus(options):
        print("PyTorch and JAX are left out: they train on the CPU's cores here")
    wanted = settings_to_run(options.small, peers=not harness.on_gpus(options))
    settings, choices = choices_of(wanted, goal, cells, options.small)
    seeds = options.seeds or (2 if options.small else 5)
    dropped = train(settings, goal, cells, seeds, choices)
    rows = rows_of(cells, settings, choices, len(goal.train))
    for row in rows:
        row["times_best_peer"] = times_the_best_peer(row, rows) if row["side"] == "TensorBow" else None
    ratios = {"best_peer": times_as_fast(rows, LIBRARIES)}
    ratios["bound_of_data_parallel"] = times_as_fast(rows, ("bound",))
    kept = ("seconds", "epochs", "rate")
    summed = [
        {"label": row["label"], "side": row["side"], "learning_rate": row["setting"].learning_rate}
        | {key: row[key].as_json() for key in kept}
        | {"times_best_peer": row["times_best_peer"], "seeds": len(cells.of(described(row["setting"])))}
        for row in rows
    ]
    details = {**cells.result(), "summary": summed, "times_as_fast": ratios, "floor": FLOOR}
    if goal.is_of_the_thesis():
        details["beside_the_thesis"] = beside(FACTS, summed)
    details["dropped"] = {"after_seeds": TRIAL_SEEDS, "times_best_peer": SLOW, "settings": dropped}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
