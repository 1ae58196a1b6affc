"""Inference with 8-bit integers beside float32: images a second, and accuracy.

    python benchmarks/quantised_inference.py [--small] [--output FOLDER]

LeNet and ResNet-32 are trained on the digits data set, exported, and exported again with convolutions and
matrix products of 8-bit integers, whose ranges come from 256 training pictures. Both give the logits of the
same raw pictures, batch after batch, through sessions of their own; the contestants take turns.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drawing import RANGES, Series, draw_bars, finish_axes, finish_figure, grid_of
from experiments import TITLES
from harness import Window, in_turn, interleave, paced, parser, save
from results_page import MISSED, Table

import tensorbow as tb
from tensorbow.pictures import BLUE, GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "quantised_inference"
EPOCHS = {"lenet": 5, "resnet32": 20}
BATCHES = (1, 16, 64)
CALIBRATION = 256  # pictures
MOST_LOST = 0.005  # accuracy
KINDS = {"float32": GREY, "int8": BLUE}
COLUMNS = [
    "model",
    "batch size",
    "float32 [images/s]",
    "int8 [images/s]",
    "ratio",
    "accuracy, float32",
    "accuracy, int8",
    f"lost at most {MOST_LOST:.1%}",
]


def exported(model: str, epochs: int, folder: Path) -> dict[str, str]:
    """Folders of a trained model by kind."""
    train, _ = tb.data.load("digits")
    tb.fit(model, dataset="digits", epochs=epochs, seed=1, output=str(folder / model))
    with tb.train.load_model(folder / model) as trained:
        return {
            "float32": trained.export(folder / f"{model}-float32"),
            "int8": trained.export(folder / f"{model}-int8", train.images[:CALIBRATION]),
        }


def accuracy(folder: str) -> float:
    """Accuracy on the test pictures of digits, which neither trained nor calibrated the model."""
    _, test = tb.data.load("digits")
    with tb.train.load_model(folder) as model:
        return model.evaluate(test).accuracy


def rate(model: tb.train.SavedModel, batch_size: int) -> Window:
    """Window of logits of one batch of pictures after another, in images a second."""
    pictures = tb.data.load("digits")[0].images[:batch_size]
    call = model.session.make_callable(model.outputs["logits"], [model.inputs["images"]])

    def run(count: int) -> None:
        for _ in range(count):
            call(pictures)

    return paced(run, batch_size)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    rows = result["details"]["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    for axes, model in zip(grid_of(figure, len(models), 2), models, strict=True):
        bars = [row for row in rows if row["model"] == model]
        draw_bars(axes, bars, "batch_size", lambda row: Series(row["kind"], KINDS[row["kind"]]))
        finish_axes(axes, TITLES[model], "batch size", "images/s")
    finish_figure(figure, "Inference with 8-bit integers", 3.6, RANGES)


def table(details: dict[str, Any]) -> Table:
    rows = []
    for model, shares in details["accuracy"].items():
        lost = shares["float32"] - shares["int8"]
        for batch_size in dict.fromkeys(row["batch_size"] for row in details["rows"]):
            before, after = (
                next(
                    row["images_per_second"]["median"]
                    for row in details["rows"]
                    if (row["model"], row["batch_size"], row["kind"]) == (model, batch_size, kind)
                )
                for kind in KINDS
            )
            met = "met" if lost <= MOST_LOST else MISSED
            speed = [before, after, after / before]
            rows.append(
                [TITLES[model], batch_size, *speed, f"{shares['float32']:.2%}", f"{shares['int8']:.2%}", met]
            )
    pictures = "all 1,797 pictures, also those of training and calibration,"  # of records without the count
    if "test_pictures" in details:
        pictures = f"the {details['test_pictures']} test pictures"
    return Table(COLUMNS, rows, [details["method"], f"Accuracy on {pictures} of the digits data set."])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.05, 3) if options.small else (0.5, 7)
    rows, shares = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for model, epochs in EPOCHS.items():
            folders = exported(model, 1 if options.small else epochs, Path(temporary))
            shares[model] = {kind: accuracy(folder) for kind, folder in folders.items()}
            opened = {kind: tb.train.SavedModel(folder) for kind, folder in folders.items()}
            contestants = {
                (batch_size, kind): rate(saved, batch_size)
                for batch_size in BATCHES
                for kind, saved in opened.items()
            }
            for (batch_size, kind), measured in interleave(contestants, seconds, windows).items():
                case = {"model": model, "batch_size": batch_size, "kind": kind}
                rows.append({**case, "images_per_second": measured.as_json()})
            for saved in opened.values():
                saved.close()
    details = {
        "rows": rows,
        "accuracy": shares,
        "test_pictures": len(tb.data.load("digits")[1]),
        "method": in_turn(windows, seconds),
    }
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
