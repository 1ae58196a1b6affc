"""Course of ResNet-9 on CIFAR-10 with augmentation: test accuracy by epoch and seconds of training.

    python benchmarks/cifar10_course.py --data FOLDER [--epochs 12] [--run FOLDER] [--small]

Two replicas of the network at half width, b=32, flips and crops, a one-cycle learning rate of at most 0.04,
Nesterov momentum, weight decay 0.0005. The run is that of `tensorbow train`, with its evaluations twice an
epoch, and ends where it reaches 90 %. `--run` goes on with a run in this folder, or shows a finished one.
`--small`: four channels first, on pictures made here.

Behind it the rates of training are measured in turns, ours and those of PyTorch and JAX where they are
installed, on the same network with batches of 32 without augmentation: the time of as many epochs.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from drawing import CONTESTANTS, data_title, draw_limit, finish_axes, finish_figure
from experiments import TITLES
from peers import open_peers, peer_settings
from results_page import MISSED, Table

from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "cifar10_course"
MODEL, BATCH_SIZE = "resnet9", 32
OURS = "TensorBow"
TARGET = 0.9
SHOWN = 8  # rows of the table


def courses(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's metrics."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def measured_rates(seconds: float, windows: int, variants: str) -> dict[str, Any]:
    """Images per second of two replicas of ours and of each peer's setting with such a variant, in turns."""
    from ours import made_up_data, training_window

    data = made_up_data(MODEL)
    examples = data.images.astype(np.float32) / 255, data.labels.astype(np.int64)
    tried = peer_settings(MODEL, harness.cores(), scanned=False)
    settings = {setting: BATCH_SIZE for setting in tried if variants in setting.variant}
    with ExitStack() as stack:
        peers, missing = open_peers(stack, MODEL, settings, examples)
        ours = stack.enter_context(training_window(MODEL, BATCH_SIZE, 2))
        measured = harness.interleave({OURS: ours, **peers}, seconds, windows)
    rates = {name: rate.as_json() for name, rate in measured.items()}
    return {"rates": rates, "missing": missing, "windows": windows, "seconds_per_window": seconds}


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
    what = f"{TITLES[settings['model']]} on {data_title(settings['dataset'])}"
    title = f"{what}, two replicas of b={settings['batch_size']}"
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
    remarks += beside_peers(details)
    return Table(
        ["epoch", "seconds", "accuracy in training", "test accuracy"], rows, remarks + details["remarks"]
    )


def beside_peers(details: dict[str, Any]) -> list[str]:
    """Sentences on the rates of the peers."""
    found = details["peers"]
    rates = {name: rate["median"] for name, rate in found["rates"].items()}
    ours = rates.pop(OURS)
    epochs, images = details["course"][-1]["epoch"], details["course"][-1]["images"]
    if not rates:
        return [f"No peer is installed; without augmentation we train on {ours:,.0f} images/s."]
    best = max(rates, key=lambda name: rates[name])
    turns = harness.in_turn(found["windows"], found["seconds_per_window"])
    return [
        f"The rates of the same network without augmentation: {turns} We train on {ours:,.0f} images/s; the "
        f"fastest peer, {best}, on {rates[best]:,.0f}, {ours / rates[best]:.2f} times slower: at its rate "
        f"{epochs:g} epochs take {images / rates[best]:,.0f} s. Its accuracy was not measured."
    ]


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's binary files")
    parser.add_argument(
        "--epochs", type=harness.positive_float, default=12.0, help="of the run and its cycle"
    )
    parser.add_argument("--run", type=Path, help="folder of the run; default: one beside the results")
    parser.add_argument("--remark", action="append", default=[], help="sentence to add to the results")
    options = parser.parse_args()
    folder = options.run or harness.output_path(options, f"{NAME}_run")
    if not options.small and options.data is None:
        parser.error("--data: expected the folder of CIFAR-10's binary files")
    import tensorbow as tb

    settings: dict[str, Any] = {"model": MODEL, "dataset": "cifar10", "batch_size": BATCH_SIZE}
    if options.small:
        settings |= {"dataset": "synthetic"}
    epochs = 1.0 if options.small else options.epochs
    tb.fit(
        settings["model"],
        settings["dataset"],
        replicas=2,
        model_options={"width": 4 if options.small else 32},
        batch_size=settings["batch_size"],
        data_dir=None if options.data is None else str(options.data),
        augmentation="flip,crop",
        epochs=epochs,
        schedule="one_cycle",
        learning_rate=0.04,
        weight_decay=5e-4,
        target_accuracy=TARGET,
        evaluate_every=0.5,
        seed=1,
        output=str(folder),
        resume="auto",
    ).close()
    details = {
        "run": {**settings, "epochs": epochs},
        "course": courses(folder),
        "peers": measured_rates(*((0.25, 2, "eager") if options.small else (4.0, 5, ""))),
        "remarks": options.remark,
    }
    harness.save(options, NAME, details, table(details), draw, unsaved=("data", "run", "remark"))


if __name__ == "__main__":
    main()
