"""Course of ResNet-20 on CIFAR-10 with augmentation: test accuracy by epoch and seconds of training.

    python benchmarks/cifar10_course.py --data FOLDER [--epochs 26] [--run FOLDER] [--small]

Two replicas, b=32, flips and crops, a one-cycle learning rate of at most 0.05, weight decay 0.0005; the run
is that of `tensorbow train`, with its evaluations twice an epoch, and ends where it reaches 90 %. `--run`
goes on with a run in this folder, or shows a finished one. `--small`: ResNet-8 on pictures made here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from drawing import CONTESTANTS, draw_limit, finish_axes, finish_figure
from experiments import TITLES
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "cifar10_course"
TARGET = 0.9
SHOWN = 8  # rows of the table


def courses(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's metrics."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws training and test accuracy over epochs."""
    lines, settings = result["details"]["course"], result["details"]["run"]
    axes = figure.subplots()
    epochs = [line["epoch"] for line in lines]
    axes.plot(
        epochs, [100 * line["test_accuracy"] for line in lines], color=CONTESTANTS["TensorBow"], label="test"
    )
    training = [100 * line["accuracy"] for line in lines]
    axes.plot(epochs, training, color=GREY, label="training, augmented pictures")
    draw_limit(axes, 100 * TARGET, f"{TARGET:.0%}")
    finish_axes(axes, "", "epochs", "accuracy [%]")
    seconds = lines[-1]["seconds"]
    title = (
        f"{TITLES[settings['model']]} on {settings['dataset']}, two replicas of b={settings['batch_size']}"
    )
    finish_figure(figure, title, 4.5, f"{seconds:,.0f} s of training on the CPU")


def table(details: dict[str, Any]) -> Table:
    lines = details["course"]
    every = max(1, -(-len(lines) // SHOWN))
    rows = [
        [line["epoch"], round(line["seconds"]), f"{line['accuracy']:.2%}", f"{line['test_accuracy']:.2%}"]
        for line in lines[::-1][::every][::-1]
    ]
    best = max(line["test_accuracy"] for line in lines)
    met = "reached" if best >= TARGET else MISSED
    rate = lines[-1]["images"] / lines[-1]["seconds"]
    remarks = [
        f"{TARGET:.0%} are asked: {met}; the best test accuracy is {best:.2%}.",
        f"{rate:,.0f} images/s.",
    ]
    return Table(
        ["epoch", "seconds", "accuracy in training", "test accuracy"], rows, remarks + details["remarks"]
    )


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's binary files")
    parser.add_argument(
        "--epochs", type=harness.positive_float, default=26.0, help="of the run and its cycle"
    )
    parser.add_argument("--run", type=Path, help="folder of the run; default: one beside the results")
    parser.add_argument("--remark", action="append", default=[], help="sentence to add to the results")
    options = parser.parse_args()
    folder = options.run or harness.output_path(options, f"{NAME}_run")
    if not options.small and options.data is None:
        parser.error("--data: expected the folder of CIFAR-10's binary files")
    settings: dict[str, Any] = {"model": "resnet20", "dataset": "cifar10", "batch_size": 32}
    if options.small:
        settings |= {"model": "resnet8", "dataset": "synthetic"}
    epochs = 1.0 if options.small else options.epochs
    tb.fit(
        settings["model"],
        settings["dataset"],
        replicas=2,
        batch_size=settings["batch_size"],
        data_dir=None if options.data is None else str(options.data),
        augmentation="flip,crop",
        epochs=epochs,
        schedule="one_cycle",
        learning_rate=0.05,
        weight_decay=5e-4,
        target_accuracy=TARGET,
        evaluate_every=0.5,
        seed=1,
        output=str(folder),
        resume="auto",
    ).close()
    details = {"run": {**settings, "epochs": epochs}, "course": courses(folder), "remarks": options.remark}
    harness.save(options, NAME, details, table(details), draw, unsaved=("data", "run", "remark"))


if __name__ == "__main__":
    main()
