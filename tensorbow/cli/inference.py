"""`tensorbow predict`, `tensorbow evaluate` and `tensorbow export`: use of a trained model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from scheduler import Ensemble, TrainedModel, TrainingConfig
from scheduler.options import shortened
from scheduler.training.classification_metrics import CONFUSION, METRICS, report_of
from scheduler.training.trained_model import raw_inputs
from tensorbow.cli.messages import OptionValueError
from tensorbow.cli.options import (
    RUN_OPTIONS,
    PathOption,
    add_options,
    naming_origin,
    require_picture,
    require_writable,
)
from tensorbow.data import load, read_pictures
from tensorbow.errors import InvalidArgumentError
from tensorbow.files import shown, write_file
from tensorbow.kinds import RefusedError


def _device(context: click.Context, option: click.Parameter, name: str) -> str:
    try:
        RUN_OPTIONS["devices"].read([name])
    except InvalidArgumentError as error:
        raise OptionValueError(f"--device: {str(error).removeprefix('devices: ')}") from None
    return name


device_option = click.option(
    "--device",
    default="cpu:0",
    show_default=True,
    callback=_device,
    help="Device that computes, such as gpu:0.",
)


def _replica(context: click.Context, option: click.Parameter, number: str | None) -> int | None:
    if number is None or (number.isascii() and number.isdecimal() and len(number) < 10):
        return None if number is None else int(number)
    raise OptionValueError(f"--replica: expected a number from 0 to 999,999,999, got {shortened(number)}")


replica_option = click.option(
    "--replica",
    callback=_replica,
    metavar="N",
    show_default="the central model",
    help="Use replica N's own values: of a run with sync none, or of any run's newest checkpoint.",
)
ema_option = click.option(
    "--ema",
    is_flag=True,
    show_default="off",
    help="Use the moving average of the central model, of a run with --ema.",
)
ensemble_option = click.option(
    "--ensemble",
    is_flag=True,
    show_default="off",
    help="Use the mean of the probabilities of all replicas of a run.",
)


def _metrics(context: click.Context, option: click.Parameter, names: str | None) -> tuple[str, ...]:
    try:
        return () if names is None else METRICS.read(names)
    except RefusedError:
        raise OptionValueError(f"--metrics: expected {METRICS.expected}, got {shortened(names)}") from None


def _opened(
    model: Path, device: str, replica: int | None, ema: bool, ensemble: bool
) -> TrainedModel | Ensemble:
    """The model that the options choose."""
    given = {"--replica": replica is not None, "--ema": ema, "--ensemble": ensemble}
    chosen = [flag for flag, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise OptionValueError(f"{chosen[1]}: expected without {chosen[0]}; leave one of them out")
    if ensemble:
        return Ensemble(model, device=device)
    return TrainedModel(model, device=device, replica=replica, ema=ema)


MODEL_HELP = "MODEL: the folder of a run, its model.safetensors, or a folder that export wrote."


@click.command(epilog=MODEL_HELP)
@click.argument("model", type=PathOption(path_type=Path))
@click.argument("pictures", metavar="INPUT", type=PathOption(path_type=Path))
@click.option("--resize", is_flag=True, show_default="off", help="Resize picture files to the model's size.")
@click.option(
    "--output",
    type=PathOption(path_type=Path),
    metavar="FILE.npy",
    show_default="none",
    help="Also write the probabilities, float32 [examples, classes]; the file's folder must exist.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    show_default="off",
    help="Print a JSON object per line instead of columns.",
)
@replica_option
@ema_option
@ensemble_option
@device_option
def predict(
    model: Path,
    pictures: Path,
    resize: bool,
    output: Path | None,
    as_json: bool,
    replica: int | None,
    ema: bool,
    ensemble: bool,
    device: str,
) -> None:
    """Predict the class of each picture of INPUT: a folder or file of pictures, .npy, .npz, or IDX.

    Prints one line per example: name, class and probability, separated by tabs.
    """
    if output is not None and output.suffix != ".npy":
        raise OptionValueError(f"--output: expected a file that ends in .npy, got {str(output)!r}")
    if output is not None:
        if output.exists() and pictures.exists() and output.samefile(pictures):
            raise OptionValueError(f"--output: {shown(output)} is INPUT, which is kept; choose another path")
        require_writable("--output", output)
    with _opened(model, device, replica, ema, ensemble) as classifier:
        names, images = read_pictures(pictures, classifier.image_shape, resize)
        probabilities = classifier.probabilities(images)
    if output is not None:
        blob = io.BytesIO()
        np.save(blob, probabilities)
        write_file(output, blob.getvalue())
    best = probabilities.argmax(1)
    for name, row, chosen in zip(names, probabilities, best, strict=True):
        likely = float(row[chosen])
        if as_json:
            finite = likely if np.isfinite(likely) else None
            click.echo(json.dumps({"input": name, "class": int(chosen), "probability": finite}))
        else:
            click.echo(f"{name if name.isprintable() else ascii(name)}\t{chosen}\t{likely:.4f}")


@click.command(epilog=MODEL_HELP)
@click.argument("model", type=PathOption(path_type=Path))
@add_options(TrainingConfig, "dataset", "data_dir")
@click.option(
    "--split",
    type=click.Choice(["test", "train"]),
    default="test",
    show_default=True,
    help="Split of the data set.",
)
@click.option(
    "--metrics",
    callback=_metrics,
    metavar="NAME[,...]",
    show_default="none",
    help="Also compute, on the whole split: topK (such as top5), precision, recall, f1 and auc (means over "
    "the classes, auc of each against the rest), and confusion, a table of labels and predictions.",
)
@click.option(
    "--picture",
    type=PathOption(path_type=Path),
    metavar="FILE",
    show_default="none",
    help="Draw the confusion matrix (.png, .svg or .pdf); needs matplotlib.",
)
@click.option(
    "--json", "as_json", is_flag=True, show_default="off", help="Print the result as one line of JSON."
)
@replica_option
@ema_option
@ensemble_option
@device_option
def evaluate(
    model: Path,
    dataset: str | None,
    data_dir: str | None,
    split: str,
    metrics: tuple[str, ...],
    picture: Path | None,
    as_json: bool,
    replica: int | None,
    ema: bool,
    ensemble: bool,
    device: str,
) -> None:
    """Print loss and accuracy of a trained model on a data set."""
    if picture is not None:
        require_picture("--picture", picture)
    with naming_origin({"dataset": dataset}):
        RUN_OPTIONS["dataset"].read(dataset)
    with _opened(model, device, replica, ema, ensemble) as classifier:
        name = str(classifier.about.get("dataset")) if dataset is None else dataset
        train, test = load(name, data_dir)
        data = test if split == "test" else train
        result = classifier.evaluate(data)
        report = None
        if metrics or picture is not None:
            report = report_of(classifier.probabilities(raw_inputs(data)), data.arrays[-1])
    facts = {
        "model": classifier.about["model"],
        "dataset": name,
        "split": split,
        "examples": len(data),
        "loss": result.loss if np.isfinite(result.loss) else None,
        "accuracy": result.accuracy,
    }
    table: list[str] = []
    if report is not None:
        values = report.values(metrics)
        facts |= {name: value if np.isfinite(value) else None for name, value in values.items()}
        table = [
            f"{name:<9} {value:.4f}" if name == "auc" else f"{name:<9} {value:.2%}"
            for name, value in values.items()
        ]
        if CONFUSION in metrics:
            facts[CONFUSION] = report.confusion.tolist()
            table += ["", *report.table()]
        if picture is not None:
            report.draw(picture, f"{facts['model']} on {name}, {split}: accuracy {result.accuracy:.2%}")
    if as_json:
        click.echo(json.dumps(facts, allow_nan=False))
        return
    others = sorted(model.glob("model-replica*.safetensors")) if model.is_dir() else []
    which = ""
    if ema:
        which = "; moving average"
    elif isinstance(classifier, Ensemble):
        which = f"; mean of {len(classifier)} replicas"
    elif others:
        which = f"; replica {replica or 0} of {len(others) + 1}, which are independent"
    elif replica is not None:
        which = f"; replica {replica}"
    click.echo(f"{facts['model']} on {name} ({split}, {len(data):,} examples{which})")
    click.echo(f"loss      {result.loss:.4f}\naccuracy  {result.accuracy:.2%}")
    click.echo("\n".join(table), nl=bool(table))


@click.command(epilog="MODEL: the folder of a run, or its model.safetensors.")
@click.argument("model", type=PathOption(path_type=Path))
@click.option(
    "--output",
    type=PathOption(path_type=Path),
    metavar="DIR",
    show_default="MODEL/export, MODEL/export-replicaN or MODEL/export-ema",
    help="Folder for the graph and its variables; a file with onnx, by default with the ending .onnx.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["saved-model", "onnx"]),
    default="saved-model",
    show_default=True,
    help="A folder for tb.train.SavedModel, or one ONNX file (needs tensorbow[onnx]).",
)
@replica_option
@ema_option
def export(model: Path, output: Path | None, kind: str, replica: int | None, ema: bool) -> None:
    """Write a model for inference, by default the central one: its graph as JSON, and its variables.

    predict, evaluate and tb.train.SavedModel load it without the code of the model. With --format onnx it is
    a file for onnxruntime and others, with the outputs that need no labels.
    """
    which = "export-ema" if ema else "export" if replica is None else f"export-replica{replica}"
    with TrainedModel(model, replica=replica, ema=ema) as classifier:
        folder = output if output is not None else (model if model.is_dir() else model.parent) / which
        if kind == "saved-model":
            click.echo(classifier.export(folder))
            return
        import tensorbow.interop.onnx as onnx_files

        file = output if output is not None else folder.with_suffix(".onnx")
        require_writable("--output", file)
        with TemporaryDirectory() as temporary:
            click.echo(onnx_files.export(classifier.export(temporary), file))
