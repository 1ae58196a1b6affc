"""Test accuracy of LeNet trained in bf16 beside fp32, from the same initial values and batches.

    python benchmarks/bf16_accuracy.py [--data FOLDER] [--seeds 5] [--small] [--fresh]

Two replicas of b=32 with the default options: eight epochs of scikit-learn's digits and, with --data, two of
MNIST. A seed gives both precisions the same initial values and the same order of pictures. Rule: bf16 is
within noise if the difference of the mean accuracies is at most twice its standard error, sqrt((s1^2 +
s2^2) / n), where s are the standard deviations of n seeds. A processor without AVX-512 BF16 computes the same
bits with the environment variable TENSORBOW_EMULATE_BF16=1, slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from cells import Cells, cells_of
from drawing import CONTESTANTS, GREY, draw_seeds, finish_axes, finish_figure, lighter
from results_page import MISSED, Table

from scheduler import Trainer, TrainingConfig
from tensorbow.errors import FailedPreconditionError
from tensorbow.kernels.backends import backend_of_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "bf16_accuracy"
PRECISIONS = ("fp32", "bf16")
EPOCHS = {"digits": 8, "mnist": 2}
NAMES = {"digits": "digits", "mnist": "MNIST"}
SETTING: dict[str, Any] = {"model": "lenet", "batch_size": 32, "replicas_per_device": 2}
MOST_ERRORS = 2.0  # standard errors that the means may differ by


def run(setting: Mapping[str, Any], folder: Path | None, seed: int) -> dict[str, Any]:
    """Trains to the end; returns the test loss and accuracy there."""
    data_dir = None if folder is None else str(folder)
    with Trainer(TrainingConfig(**SETTING, **setting, data_dir=data_dir, seed=seed)) as trainer:
        metrics = trainer.train().metrics
    return {name: metrics[name] for name in ("test_loss", "test_accuracy")}


def compared(dataset: str, accuracies: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Means, standard deviations, and the difference of the means (bf16 less fp32) with its standard error.

    accuracies: of the seeds, by precision; at least two of each.
    """
    means = {name: statistics.fmean(values) for name, values in accuracies.items()}
    deviations = {name: statistics.stdev(values) for name, values in accuracies.items()}
    error = math.sqrt(sum(deviations[name] ** 2 / len(accuracies[name]) for name in PRECISIONS))
    return {
        "dataset": dataset,
        "means": means,
        "deviations": deviations,
        "difference": means["bf16"] - means["fp32"],
        "standard_error": error,
    }


def is_within_noise(row: Mapping[str, Any]) -> bool:
    """True if the means of a row differ by at most `MOST_ERRORS` standard errors."""
    return bool(abs(row["difference"]) <= MOST_ERRORS * row["standard_error"])


def table(details: dict[str, Any]) -> Table:
    """Rows by data set: accuracies as `mean (standard deviation)`, in percent."""
    rows, remarks = [], [f"Means and, in brackets, standard deviations of {details['seeds']} seeds."]
    for row in details["summary"]:
        means = [f"{row['means'][name]:.2%} ({row['deviations'][name]:.2%})" for name in PRECISIONS]
        difference = f"{row['difference']:+.2%} ({row['standard_error']:.2%})"
        rows.append([NAMES[row["dataset"]], details["goal"]["epochs"][row["dataset"]], *means, difference])
        remarks.append(
            f"{NAMES[row['dataset']]}: bf16 and fp32 are to differ by at most {MOST_ERRORS:g} standard "
            f"errors: {'reached' if is_within_noise(row) else MISSED}."
        )
    return Table(["data set", "epochs", *PRECISIONS, "bf16 - fp32 (standard error)"], rows, remarks)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws the test errors, a panel for each data set: a bar at the mean, a dot for each seed."""
    details = result["details"]
    summary = details["summary"]
    for axes, row in zip(figure.subplots(1, len(summary), squeeze=False)[0], summary, strict=True):
        for x, (name, colour) in enumerate(zip(PRECISIONS, (GREY, CONTESTANTS["TensorBow"]), strict=True)):
            cells = cells_of(details["cells"], dataset=row["dataset"], compute=name)
            axes.bar(x, 100 * (1 - row["means"][name]), color=lighter(colour, 0.5))
            draw_seeds(axes, x, [100 * (1 - cell["test_accuracy"]) for cell in cells], colour)
        axes.set_xticks(range(len(PRECISIONS)), PRECISIONS)
        epochs = details["goal"]["epochs"][row["dataset"]]
        finish_axes(
            axes, f"{NAMES[row['dataset']]}, epochs: {epochs}", "precision of products", "test error [%]"
        )
    finish_figure(figure, "LeNet, two replicas of b=32", 4.0, "bars: means; dots: seeds")


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    parser.add_argument("--data", type=Path, help="folder of MNIST's IDX files; default: digits only")
    parser.add_argument("--seeds", type=harness.positive_int, help="runs of each precision, at least 2")
    parser.add_argument(
        "--fresh", action="store_true", help="discard earlier results and measure everything again"
    )
    options = parser.parse_args()
    seeds = options.seeds or (2 if options.small else 5)
    if seeds < 2:
        parser.error(f"--seeds: expected at least 2, whose standard deviation is the noise, got {seeds}")
    try:
        backend_of_kind("cpu").computing("bf16")
    except FailedPreconditionError as error:
        parser.error(str(error))
    epochs = {name: 1 if options.small else count for name, count in EPOCHS.items()}
    if options.data is None or options.small:
        del epochs["mnist"]
    cells = Cells(options, {**SETTING, "epochs": epochs}, timed=False)
    summary = []
    for dataset, count in epochs.items():
        accuracies: dict[str, list[float]] = {name: [] for name in PRECISIONS}
        for seed in range(seeds):
            for name in PRECISIONS:
                setting = {"dataset": dataset, "epochs": count, "compute": name}
                folder = options.data if dataset == "mnist" else None
                cell = cells.get(setting, seed, partial(run, setting, folder, seed))
                accuracies[name].append(cell["test_accuracy"])
                print(f"seed {seed}  {dataset}, {name}: {cell['test_accuracy']:.2%}", flush=True)
        summary.append(compared(dataset, accuracies))
    details = {**cells.result(), "summary": summary, "seeds": seeds}
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
