"""Course of the fast ResNet on CIFAR-10 with augmentation: test accuracy by epoch and seconds of training.

    python benchmarks/cifar10_course.py --data FOLDER [--epochs 24] [--run FOLDER] [--small]

Two replicas of the network, b=32, flips and crops, smoothed labels, products of bfloat16 where the processor
has them; a one-cycle learning rate, Nesterov momentum and weight decay by the model's defaults. The run is
that of `tensorbow train`, with its evaluations twice an epoch, and ends where it reaches 90 %. `--run` goes
on with a run in this folder, or shows a finished one. `--small`: four channels first, on pictures made here.

Behind it the rates of training are measured in turns, ours and those of PyTorch and JAX where they are
installed, on the same network without augmentation: the time of as many epochs. The peers have bfloat16, too,
and the better of the batch size of a round and of one of 512.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from drawing import CONTESTANTS, data_title, draw_limit, finish_axes, finish_figure
from experiments import TITLES
from peers import PeerSetting, open_peers, peer_settings
from results_page import MISSED, Table

from tensorbow.pictures import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "cifar10_course"
MODEL, BATCH_SIZE, REPLICAS = "fast_resnet", 32, 2
PEER_BATCH_SIZES = (BATCH_SIZE * REPLICAS, 512)
OURS = "TensorBow"
TARGET = 0.9
SHOWN = 8  # rows of the table


def courses(folder: Path) -> list[dict[str, Any]]:
    """Lines of a run's metrics."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def measured_rates(
    seconds: float, windows: int, peers: Sequence[PeerSetting], compute: str
) -> dict[str, Any]:
    """Images per second of two replicas of ours and of each peer's settings and batch sizes, in turns."""
    from ours import made_up_data, training_window

    from scheduler.training.configuration.precision import PrecisionSetting
    from tensorbow.devices.registry import get_device

    data = made_up_data(MODEL)
    examples = data.images.astype(np.float32) / 255, data.labels.astype(np.int64)
    with ExitStack() as stack:
        device = get_device("/cpu:0")
        stack.callback(PrecisionSetting([device], compute).close)
        contestants: dict[str, Any] = {
            OURS: stack.enter_context(training_window(MODEL, BATCH_SIZE, REPLICAS, devices=(device,)))
        }
        missing = dict[str, str]()
        for batch_size in PEER_BATCH_SIZES:
            started, lost = open_peers(stack, MODEL, dict.fromkeys(peers, batch_size), examples)
            contestants |= {f"{name}, b={batch_size}": peer for name, peer in started.items()}
            missing |= {f"{name}, b={batch_size}": why for name, why in lost.items()}
        measured = harness.interleave(contestants, seconds, windows)
    rates = {name: rate.as_json() for name, rate in measured.items()}
    return {"rates": rates, "missing": missing, "windows": windows, "seconds_per_window": seconds}


def compute_here() -> str:
    """bf16 where the processor has its products, or fp32."""
    from tensorbow.errors import FailedPreconditionError
    from tensorbow.kernels.backends import backend_of_kind

    try:
        backend_of_kind("cpu").computing("bf16")
    except FailedPreconditionError:
        return "fp32"
    return "bf16"


def peer_ways() -> list[PeerSetting]:
    """Settings of one process with all cores, of peers that are installed; of PyTorch in bfloat16, too."""
    usual = [way for way in peer_settings(MODEL, harness.cores(), scanned=False) if way.processes == 1]
    rounded = [
        replace(way, variant=f"{way.variant}, bf16")
        for way in usual
        if way.library == "torch" and "channels-last" in way.variant
    ]
    return [way for way in usual if way.variant in ("channels-last", "jit")] + rounded


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
        [
            round(line["epoch"], 1),
            round(line["seconds"]),
            f"{line['accuracy']:.2%}",
            f"{line['test_accuracy']:.2%}",
        ]
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
    times = f"{images / ours:,.0f} s at our rate and {images / rates[best]:,.0f} s"
    return [
        f"The rates of the same network without augmentation: {turns} We train on {ours:,.0f} images/s, "
        f"{ours / rates[best]:.2f} times the {rates[best]:,.0f} of the fastest peer, {best}. "
        f"{round(epochs, 1):g} epochs take {times} "
        "at the peer's, whose accuracy was not measured."
    ]


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10's binary files")
    parser.add_argument(
        "--epochs", type=harness.positive_float, default=24.0, help="of the run and its cycle"
    )
    parser.add_argument("--run", type=Path, help="folder of the run; default: one beside the results")
    parser.add_argument("--remark", action="append", default=[], help="sentence to add to the results")
    options = parser.parse_args()
    folder = options.run or harness.output_path(options, f"{NAME}_run")
    if not options.small and options.data is None:
        parser.error("--data: expected the folder of CIFAR-10's binary files")
    import tensorbow as tb

    settings: dict[str, Any] = {
        "model": MODEL,
        "dataset": "synthetic" if options.small else "cifar10",
        "batch_size": BATCH_SIZE,
        "epochs": 1.0 if options.small else options.epochs,
        "augmentation": "flip,crop",
        "label_smoothing": 0.1,
        "compute": compute_here(),
    }
    tb.fit(
        **settings,
        replicas=REPLICAS,
        model_options={"width": 4 if options.small else 64},
        data_dir=None if options.data is None else str(options.data),
        target_accuracy=TARGET,
        evaluate_every=0.5,
        seed=1,
        output=str(folder),
        resume="auto",
    ).close()
    peers = peer_ways()[: 1 if options.small else None]
    seconds, windows = (0.25, 2) if options.small else (3.0, 5)
    details = {
        "run": settings,
        "course": courses(folder),
        "peers": measured_rates(seconds, windows, peers, settings["compute"]),
        "remarks": options.remark,
    }
    harness.save(options, NAME, details, table(details), draw, unsaved=("data", "run", "remark"))


if __name__ == "__main__":
    main()
