"""Seconds per member of a sweep of small networks, beside a PyTorch script for each member.

    python benchmarks/sweep_cost.py [--members 1000] [--scripts 8] [--windows 3] [--small] [--output FOLDER]

A member is a network of 784-128-10 units with a learning rate and a seed of its own, trained for 10 epochs on
handwritten digits with batches of 16, evaluated on validation data after each epoch and on test data at its
end. Ours is one process, `tensorbow sweep mlp`, from its start to its end, with results, curves and models
written; its training shifts the pictures at random, which the scripts do not. The scripts are processes of
one thread, as many at a time as there are cores. Windows of both alternate, and ratios are of neighbours; one
sweep has all members, those of the windows a share of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import cores, parser, positive_int, save
from results_page import MISSED, Table, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sweep_cost"
TARGET = 20.0  # times cheaper than a script per member
EPOCHS, BATCH_SIZE, SEEDS = 10, 16, 8
OURS, SCRIPTS = "tensorbow sweep", "PyTorch script per member"
SCRIPT = Path(__file__).with_name("sweep_cost_torch.py")


def rates(count: int) -> list[float]:
    """Learning rates from 0.0005 to 0.05, evenly in their logarithm."""
    return [float(f"{rate:.4g}") for rate in np.geomspace(5e-4, 5e-2, count)]


def sweep_seconds(members: int, epochs: int, folder: Path) -> float:
    """Seconds of a process that sweeps so many members."""
    values = ",".join(map(str, rates(max(1, members // SEEDS))))
    command = [sys.executable, "-m", "tensorbow", "sweep", "mlp", "--dataset", "digits"]
    command += ["--grid", f"learning_rate={values}", "--seeds", str(min(SEEDS, members))]
    command += ["--epochs", str(epochs), "--batch-size", str(BATCH_SIZE), "--output", str(folder)]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def scripts_seconds(count: int, epochs: int, data: Path) -> float:
    """Seconds of so many scripts, as many at a time as there are cores."""

    def run(number: int) -> None:
        rate, seed = rates(count)[number], number % SEEDS
        words = [data, rate, seed, epochs, BATCH_SIZE]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, SCRIPT, *map(str, words)],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )

    started = time.perf_counter()
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(run, range(count)))
    return time.perf_counter() - started


def write_data(file: Path) -> None:
    """Writes the splits that the sweep makes, normalised."""
    from scheduler import TrainingConfig
    from scheduler.training.folders.run_data import load_data

    splits = load_data(TrainingConfig(model="mlp", dataset="digits", validation_split=0.1))
    arrays = {}
    for name, data in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        images, labels = data.made(np.arange(len(data)))  # type: ignore[union-attr]
        arrays |= {f"{name}_images": images.reshape(len(images), -1), f"{name}_labels": labels}
    np.savez(file, **arrays)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures in turn; returns the details of the result."""
    windows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_data(folder / "digits.npz")
        for window in range(options.windows):
            ours = sweep_seconds(options.share, options.epochs, folder / f"window-{window}") / options.share
            scripts = scripts_seconds(options.scripts, options.epochs, folder / "digits.npz")
            windows.append({OURS: ours, SCRIPTS: scripts / options.scripts})
        whole = sweep_seconds(options.members, options.epochs, folder / "whole")
    return {
        "epochs": options.epochs,
        "batch_size": BATCH_SIZE,
        "target": TARGET,
        "windows": windows,
        "seconds_of_all_members": whole,
    }


def table(details: dict[str, Any], options: argparse.Namespace) -> Table:
    """Table of both, and of the sweep of all members."""
    windows = details["windows"]
    ratio = statistics.median(window[SCRIPTS] / window[OURS] for window in windows)
    whole = details["seconds_of_all_members"] / options.members
    per_script = statistics.median(window[SCRIPTS] for window in windows)
    rows = []
    for name, count, seconds, times in (
        (f"{OURS}, all members", options.members, whole, per_script / whole),
        (f"{OURS}, in turn", options.share, statistics.median(w[OURS] for w in windows), ratio),
        (SCRIPTS, options.scripts, per_script, 1.0),
    ):
        reached = None if name == SCRIPTS else "yes" if times >= TARGET else MISSED
        rows.append([name, count, 1e3 * seconds, round(times, 1), reached])
    remarks = [f"Medians of {len(windows)} windows in turn; ratios are of neighbouring windows."]
    return Table(
        ["contestant", "members", "ms per member", "times cheaper", f"at least {TARGET:g}"], rows, remarks
    )


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar for each, and a dot for each window."""
    from drawing import CONTESTANTS, WIDTH, lighter

    details = result["details"]
    figure.set_size_inches(WIDTH, 2.6)
    axes = figure.add_subplot()
    for number, (name, side) in enumerate(((OURS, "TensorBow"), (SCRIPTS, "PyTorch"))):
        values = [1e3 * window[name] for window in details["windows"]]
        median = statistics.median(values)
        axes.barh([number], [median], color=lighter(CONTESTANTS[side], 0.4))
        place = {"textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(f"{shown(median)} ms", (max(values), number), (8, 0), **place)
        axes.plot(values, [number] * len(values), "o", color=CONTESTANTS[side], markersize=5)
    axes.set_yticks([0, 1], [OURS, SCRIPTS])
    axes.set_xlim(0, 1.15 * axes.get_xlim()[1])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("milliseconds per member: median (bar) and windows (dots)")
    cores = result["machine"]["cores"]
    axes.set_title(f"784-128-10 units, digits, {details['epochs']} epochs, {cores} cores")


def parse() -> argparse.Namespace:
    """Parses the options; defaults depend on `--small`."""
    made = parser(__doc__, NAME)
    made.add_argument("--members", type=positive_int, help="of the whole sweep; default 1000, small 16")
    made.add_argument("--share", type=positive_int, help="members of a window; default 256, small 8")
    made.add_argument("--scripts", type=positive_int, help="scripts of a window; default 8, small 2")
    made.add_argument("--windows", type=positive_int, help="default 3, small 1")
    options = made.parse_args()
    small = options.small
    options.members = options.members or (16 if small else 1000)
    options.share = options.share or (8 if small else 256)
    options.scripts = options.scripts or (2 if small else 8)
    options.windows = options.windows or (1 if small else 3)
    options.epochs = 1 if small else EPOCHS
    return options


def main() -> None:
    options = parse()
    details = measure(options)
    save(options, NAME, details, table(details, options), draw)


if __name__ == "__main__":
    main()
