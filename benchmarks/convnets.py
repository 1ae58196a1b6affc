"""A training step of the convolutional networks of table 1 in TensorFlow's paper (OSDI 2016), beside PyTorch.

    python benchmarks/convnets.py [--small] [--only alexnet ...] [--batch-size 4] [--fresh] [--output FOLDER]

AlexNet, Overfeat, OxfordNet (VGG-A) and GoogLeNet, as in the table, and Inception-v3: forward, softmax
cross-entropy over 1000 classes, backward, momentum SGD, on pictures of the published size. TensorBow trains
one independent replica per core (`none`); PyTorch, eager, channels-last and compiled, trains as one process
with all cores, and as one pinned process per core. Every replica and process has the same batch size. Each
way of PyTorch is tried by itself first, since all together need tens of gigabytes; the windows of the two
quickest alternate with TensorBow's, and figures are their medians. Each network is stored when it
is measured, and kept by a run of others.

The paper's times are those of a Titan X with larger batches, and show which network costs how much more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cells import Cells
from drawing import draw_contestants, finish_figure, grid_of
from harness import Window, cores, in_turn, interleave, parser, positive_int, save
from peers import PeerSetting, open_peers, peer_settings
from results_page import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tensorbow.data import ImageDataset

NAME = "convnets"
SIDES = {"alexnet": 224, "overfeat": 231, "vgg_a": 224, "googlenet": 224, "inception_v3": 299}  # pixels
TITLES = {
    "alexnet": "AlexNet",
    "overfeat": "Overfeat",
    "vgg_a": "OxfordNet",
    "googlenet": "GoogLeNet",
    "inception_v3": "Inception-v3",
}
PAPER_MS = {"alexnet": 81, "overfeat": 279, "vgg_a": 540, "googlenet": 445}  # a step of TensorFlow there
CLASSES = 1000
EXAMPLES = 8  # pictures of a batch are drawn from
KEPT = 2  # ways of PyTorch that are compared, the quickest of those tried
SMALL = ("alexnet", "googlenet")


def made_up_pictures(side: int, examples: int) -> ImageDataset:
    """Random uint8 pictures, and labels."""
    from tensorbow.data import ImageDataset  # here: the peers' processes must not load it

    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (examples, side, side, 3), dtype=np.uint8)
    return ImageDataset("made up", images, draw.integers(0, CLASSES, examples), CLASSES, 0.5, 0.25)


def tried_alone(
    model: str, settings: Sequence[PeerSetting], examples: tuple[Any, Any], options: argparse.Namespace
) -> tuple[dict[PeerSetting, float], dict[str, str]]:
    """Images a second of each peer by itself, the quickest first; and why others are left out."""
    rates: dict[PeerSetting, float] = {}
    left_out: dict[str, str] = {}
    for setting in settings:
        with ExitStack() as opened:
            peers, missing = open_peers(opened, model, {setting: options.batch_size}, examples)
            left_out |= missing
            for peer in peers.values():
                rates[setting] = max(peer(options.seconds), peer(options.seconds))
    return dict(sorted(rates.items(), key=lambda each: -each[1])), left_out


def measure(model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of a network's contestants, in images a second."""
    from ours import training_window

    data = made_up_pictures(SIDES[model], max(EXAMPLES, options.batch_size))
    windows: dict[str, Window] = {}
    tried = [
        setting for setting in peer_settings(model, options.replicas, False) if setting.library == "torch"
    ]
    if options.small:
        tried = [s for s in tried if "compile" not in s.variant and s.processes == 1]
    alone, left_out = tried_alone(model, tried, data.batch(), options)
    kept = dict.fromkeys(list(alone)[:KEPT], options.batch_size)
    with ExitStack() as opened:
        name = f"TensorBow {options.replicas} replica{'s' * (options.replicas > 1)}"
        training = training_window(model, options.batch_size, options.replicas, sync="none", data=data)
        opened.callback(training.close)
        windows[name] = training
        peers, missing = open_peers(opened, model, kept, data.batch())
        measured = interleave({**windows, **peers}, options.seconds, options.windows)
    rates = {name: rate.as_json() for name, rate in measured.items()}
    print(model, {name: rate["median"] for name, rate in rates.items()}, flush=True)
    return {
        "model": model,
        "batch_size": options.batch_size,
        "ours": name,
        "images_per_second": rates,
        "chosen": {peer: processes.chosen for peer, processes in peers.items()},
        "alone": {setting.name: float(f"{rate:.5g}") for setting, rate in alone.items()},
        "left_out": left_out | missing,
    }


def rows_of(details: dict[str, Any]) -> list[dict[str, Any]]:
    """Networks that have been measured, in the order of the paper's table."""
    return sorted(details["cells"], key=lambda cell: [*SIDES].index(cell["model"]))


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = rows_of(result["details"])
    for axes, row in zip(grid_of(figure, len(rows), 2), rows, strict=True):
        draw_contestants(axes, row["images_per_second"], lambda name: name)
        axes.set_title(TITLES[row["model"]])
        axes.set_xlabel("images/s")
    size = rows[0]["batch_size"]
    finish_figure(figure, f"Training of table 1's networks, b={size}", 1.0 + 2.6 * -(-len(rows) // 2))


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    measured = rows_of(details)
    for row in measured:
        rates = {name: rate["median"] for name, rate in row["images_per_second"].items()}
        ours = rates[row["ours"]]
        others = {name: rate for name, rate in rates.items() if name != row["ours"]}
        best = max(others, key=lambda name: others[name], default=None)
        replicas = details["replicas"]
        step_ms = 1e3 * row["batch_size"] * replicas / ours
        ratio = None if best is None else ours / others[best]
        paper = PAPER_MS.get(row["model"])
        theirs = None if best is None else others[best]
        rows.append([TITLES[row["model"]], step_ms, ours, best, theirs, ratio, paper])
    columns = [
        "network",
        "step [ms]",
        "images/s",
        "PyTorch's best",
        "images/s",
        "ratio",
        "the paper's step [ms]",
    ]
    first = measured[0]
    remarks = [
        f"{in_turn(details['windows'], details['seconds_per_window'])} Batches of {first['batch_size']} for "
        f"each of {first['ours'].partition(' ')[2]}, and for each process of PyTorch.",
        "The paper's steps are those of one GPU, with larger batches.",
    ]
    for row in measured:
        remarks += [f"{TITLES[row['model']]} without {name}: {why}" for name, why in row["left_out"].items()]
    return Table(columns, rows, remarks)


def main() -> None:
    made = parser(__doc__, NAME)
    made.add_argument("--only", nargs="+", choices=SIDES, metavar="NETWORK", help=f"of {', '.join(SIDES)}")
    made.add_argument("--batch-size", type=positive_int, help="of every replica; default 4, small 1")
    made.add_argument("--replicas", type=positive_int, default=cores(), help="default: one per core")
    made.add_argument("--fresh", action="store_true", help="do not use stored results of networks")
    options = made.parse_args()
    options.batch_size = options.batch_size or (1 if options.small else 4)
    options.seconds, options.windows = (0.5, 1) if options.small else (4.0, 5)
    models = options.only or (SMALL if options.small else tuple(SIDES))
    facts = {"windows": options.windows, "seconds_per_window": options.seconds, "replicas": options.replicas}
    cells = Cells(options, {**facts, "batch_size": options.batch_size})
    for model in models:
        cells.get({"model": model}, 1, partial(measure, model, options))
    details = {**facts, **cells.result()}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
