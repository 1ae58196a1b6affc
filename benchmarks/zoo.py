"""Test accuracy of the models that come along, with their default options.

    python benchmarks/zoo.py [--only NAME ...] [--seeds 1] [--small] [--fresh]

Each model whose data set needs no download is trained as by `tensorbow train MODEL`: two replicas, on digits,
text or words. `--only` trains some of them; the table shows these and those that were trained before.
Accuracies do not depend on the load of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import harness
from cells import Cell, Cells
from drawing import CONTESTANTS, draw_seeds, finish_axes, finish_figure, lighter
from results_page import Table

from scheduler import Trainer, TrainingConfig
from tensorbow.models import MODELS, get_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "zoo"
WITHOUT_DOWNLOAD = ("digits", "text", "words")
# It predicts numbers; the others are deeper forms of models that are trained.
LEFT_OUT = ("linear", "resnet34", "resnet101", "resnet152", "vgg13", "vgg16")
TRAINED = tuple(
    name for name in MODELS if name not in LEFT_OUT and get_model(name).defaults.dataset in WITHOUT_DOWNLOAD
)
SMALL = ("logreg", "mlp")


def run(model: str, epochs: float, seed: int) -> dict[str, Any]:
    """Trains to the end; returns the test loss and accuracy there."""
    with Trainer(TrainingConfig(model=model, epochs=epochs, seed=seed)) as trainer:
        metrics = trainer.train().metrics
    return {name: metrics[name] for name in ("test_loss", "test_accuracy")}


def accuracies(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Test accuracies of the seeds by model, in the models' order."""
    found = {
        name: [cell["test_accuracy"] for cell in cells if cell["setting"]["model"] == name]
        for name in TRAINED
    }
    return {name: values for name, values in found.items() if values}


def table(details: dict[str, Any]) -> Table:
    """A row for each model that was trained: median and range over the seeds."""
    settings = {cell["setting"]["model"]: cell["setting"] for cell in details["cells"]}
    rows = [
        [
            name,
            settings[name]["dataset"],
            settings[name]["epochs"],
            f"{statistics.median(values):.2%}",
            len(values),
            f"{min(values):.2%} to {max(values):.2%}" if len(values) > 1 else None,
        ]
        for name, values in accuracies(details["cells"]).items()
    ]
    missing = [name for name in TRAINED if name not in settings]
    remarks = [f"Not trained yet: {', '.join(missing)}."] if missing else []
    return Table(["model", "data set", "epochs", "test accuracy", "seeds", "range"], rows, remarks)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar at the median accuracy of each model, with its number, and a dot for each seed."""
    found = {
        name: [100 * value for value in values]
        for name, values in accuracies(result["details"]["cells"]).items()
    }
    axes = figure.subplots()
    medians = [statistics.median(values) for values in found.values()]
    bars = axes.bar(range(len(found)), medians, color=lighter(CONTESTANTS["TensorBow"], 0.5))
    axes.bar_label(bars, [f"{value:.1f}" for value in medians], label_type="center")
    for x, values in enumerate(found.values()):
        draw_seeds(axes, x, values, CONTESTANTS["TensorBow"])
    axes.set_xticks(range(len(found)), found, rotation=45, ha="right")
    axes.set_ylim(0, 105)
    finish_axes(axes, "", "", "test accuracy [%]")
    finish_figure(figure, "Models with their default options", 4.4, "bars and numbers: medians; dots: seeds")


def main() -> None:
    parser = harness.parser(__doc__, NAME)
    parser.add_argument("--only", nargs="+", choices=TRAINED, help="models to train; default: all")
    parser.add_argument("--seeds", type=harness.positive_int, default=1, help="runs of each model")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results")
    options = parser.parse_args()
    cells = Cells(options, {"replicas_per_device": 2, "devices": ["cpu:0"]}, timed=False)
    for name in options.only or (SMALL if options.small else TRAINED):
        defaults = get_model(name).defaults
        epochs = 1 if options.small else defaults.epochs
        setting = {"model": name, "dataset": defaults.dataset, "epochs": epochs}
        for seed in range(options.seeds):
            cell = cells.get(setting, seed, partial(run, name, epochs, seed))
            print(f"{name}, seed {seed}: {cell['test_accuracy']:.2%}", flush=True)
    details = cells.result()
    harness.save(options, NAME, details, table(details), draw, unsaved=("only",))


if __name__ == "__main__":
    main()
