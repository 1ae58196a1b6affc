"""`tensorbow predict`, `tensorbow evaluate` and `tensorbow export`: use of a trained model."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from scheduler import Ensemble, TrainedModel, TrainingConfig
from scheduler.options import shortened
from scheduler.training.folders.run_data import data_of_run
from scheduler.training.measures.classification_metrics import CONFUSION, METRICS, report_of
from scheduler.training.models.model_inputs import name_of_path
from scheduler.training.models.trained_model import raw_inputs
from scheduler.training.running.notices import metric_text
from tensorbow.cli.grouped_help import WEIGHTS, grouped
from tensorbow.cli.messages import OptionValueError
from tensorbow.cli.options import (
    RUN_OPTIONS,
    PathOption,
    add_options,
    json_option,
    naming_origin,
    picture_option,
    require_picture,
    require_writable,
)
from tensorbow.data import read_pictures
from tensorbow.data.own_data import read_inputs
from tensorbow.errors import InvalidArgumentError
from tensorbow.files import shown, write_file
from tensorbow.kinds import RefusedError
from tensorbow.nest import flatten, map_leaves, named_leaves, pack


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
best_option = click.option(
    "--best",
    is_flag=True,
    show_default="off",
    help="Use the central model of a run's best evaluation, by its --best-metric, instead of its last.",
)
ensemble_option = click.option(
    "--ensemble",
    is_flag=True,
    show_default="off",
    help="Use the mean of the probabilities, or other outputs, of all replicas of a run.",
)


def _metrics(context: click.Context, option: click.Parameter, names: str | None) -> tuple[str, ...]:
    try:
        return () if names is None else METRICS.read(names)
    except RefusedError as refused:
        hint = f"; {refused}" if str(refused) else ""
        raise OptionValueError(
            f"--metrics: expected {METRICS.expected}, got {shortened(names)}{hint}"
        ) from None


def _read_options_of_data(options: dict[str, Any]) -> dict[str, Any]:
    """The given ones of the options of data, read."""
    given = {name: value for name, value in options.items() if value is not None}
    with naming_origin(given):
        for name, value in given.items():
            given[name] = RUN_OPTIONS[name].read(value)
    return given


def _require_one(replica: int | None, ema: bool, best: bool, ensemble: bool = False) -> None:
    """Raises OptionValueError if several of the options that choose a model are given."""
    given = {"--replica": replica is not None, "--ema": ema, "--best": best, "--ensemble": ensemble}
    chosen = [flag for flag, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise OptionValueError(f"{chosen[1]}: expected without {chosen[0]}; leave one of them out")


def _opened(
    model: Path, device: str, replica: int | None, ema: bool, best: bool, ensemble: bool
) -> TrainedModel | Ensemble:
    """The model that the options choose."""
    _require_one(replica, ema, best, ensemble)
    if ensemble:
        return Ensemble(model, device=device)
    return TrainedModel(model, device=device, replica=replica, ema=ema, best=best)


INT8 = "int8"
CALIBRATION = 256  # examples: the ranges of a model's tensors change little with more
RUN_S_OWN = "By default the run's own."
MODEL_HELP = "MODEL: the folder of a run, its model.safetensors, or a folder that export wrote."


PREDICT_EXAMPLES = (
    ("predict runs/lenet-digits digit.png --resize", "The class of a picture."),
    ("predict runs/mine my_data.csv --output predictions.csv", "Of each row of a table, to a file."),
)
EVALUATE_EXAMPLES = (
    ("evaluate runs/lenet-digits", "Loss and accuracy on the run's test examples."),
    (
        "evaluate runs/lenet-digits --best --metrics top5,confusion",
        "The run's best model, more metrics.",
    ),
    ("evaluate runs/mine --data other.npz", "On other data."),
)
EXPORT_EXAMPLES = (
    ("export runs/lenet-digits", "The central model, as a folder for tb.train.SavedModel."),
    ("export runs/lenet-digits --format onnx --output lenet.onnx", "For other programs."),
    ("export runs/lenet-digits --quantize int8", "With products of 8-bit integers, for faster inference."),
)


@click.command(cls=grouped(PREDICT_EXAMPLES, click.Command, WEIGHTS), epilog=MODEL_HELP)
@click.argument("model", type=PathOption(path_type=Path))
@click.argument("examples", metavar="INPUT...", nargs=-1, required=True, type=PathOption(path_type=Path))
@click.option("--resize", is_flag=True, show_default="off", help="Resize picture files to the model's size.")
@click.option(
    "--output",
    type=PathOption(path_type=Path),
    metavar="FILE",
    show_default="none",
    help="Also write the probabilities, float32 [examples, classes], or the model's outputs, to a .npy file "
    "(.npz for several); its folder must exist.",
)
@json_option("Print a JSON object per line instead of columns.")
@replica_option
@ema_option
@best_option
@ensemble_option
@device_option
def predict(
    model: Path,
    examples: tuple[Path, ...],
    resize: bool,
    output: Path | None,
    as_json: bool,
    replica: int | None,
    ema: bool,
    best: bool,
    ensemble: bool,
    device: str,
) -> None:
    """Predict each example of INPUT: a folder or file of pictures, .npy, .npz, IDX, .csv or .parquet.

    Prints one line per example, separated by tabs: its name, and its class with the probability, or the
    model's outputs; of outputs for each step of a sequence, spaces separate the numbers of a step. Inputs of
    a .npz file are found by their names, columns of a table by its header. Of several INPUTs that are no
    pictures, an example's name begins with its file's.
    """
    if output is not None and output.suffix not in (".npy", ".npz"):
        raise OptionValueError(f"--output: expected a file that ends in .npy or .npz, got {str(output)!r}")
    if output is not None:
        if output.exists() and any(each.exists() and output.samefile(each) for each in examples):
            raise OptionValueError(f"--output: {shown(output)} is INPUT, which is kept; choose another path")
        require_writable("--output", output)
    with _opened(model, device, replica, ema, best, ensemble) as trained:
        names, inputs = _examples_of(examples, trained, resize)
        of_classes = trained.classes is not None
        outputs = trained.probabilities(inputs) if of_classes else trained.predict(inputs)
    if output is not None:
        _write(output, outputs)
    for index, name in enumerate(names):
        name = name if name.isprintable() else ascii(name)
        row = pack(outputs, iter([array[index] for array in flatten(outputs)]))
        click.echo((_json_line if as_json else _line)(name, row, trained.class_names if of_classes else None))


def _examples_of(
    paths: Sequence[Path], trained: TrainedModel | Ensemble, resize: bool
) -> tuple[list[str], Any]:
    """Names and inputs of the examples of one or several files or folders."""
    names: list[str] = []
    found = []
    for path in paths:
        if "image_shape" in trained.about:
            own, inputs = read_pictures(path, trained.image_shape, resize)
        else:
            own, inputs = read_inputs(path, trained.input_specs, trained.about.get("feature_names", ()))
        of_array = len(paths) > 1 and own == [str(number) for number in range(len(own))]
        names += [f"{path.name}:{name}" for name in own] if of_array else own
        found.append(inputs)
    if len(found) == 1:
        return names, found[0]
    leaves = zip(*map(flatten, found), strict=True)
    return names, pack(found[0], iter([np.concatenate(each) for each in leaves]))


def _write(path: Path, outputs: Any) -> None:
    """Writes outputs as .npy, or as .npz with the name of each."""
    blob = io.BytesIO()
    leaves = {name_of_path(path): leaf for path, leaf in named_leaves(outputs, "outputs")}
    if path.suffix == ".npz":
        np.savez(blob, **leaves)
    elif len(leaves) > 1:
        raise OptionValueError(
            f"--output: expected a .npz file for {len(leaves)} outputs ({', '.join(leaves)}), got {path}"
        )
    else:
        np.save(blob, *leaves.values())
    write_file(path, blob.getvalue())


def _line(name: str, row: Any, class_names: list[str] | None) -> str:
    """Line of an example. class_names: of probabilities, empty if classes have no names; else None."""
    if class_names is None:
        return "\t".join([name, *(part for leaf in flatten(row) for part in _parts(leaf))])
    chosen = int(row.argmax())
    return f"{name}\t{class_names[chosen] if class_names else chosen}\t{float(row[chosen]):.4f}"


def _parts(leaf: Any) -> list[str]:
    """Texts of an example's output: of each number, or of each step with its numbers."""
    steps = np.atleast_1d(leaf)
    return [" ".join(f"{value:.6g}" for value in np.ravel(step).tolist()) for step in steps]


def _json_line(name: str, row: Any, class_names: list[str] | None) -> str:
    if class_names is None:
        values = map_leaves(lambda _, leaf: np.asarray(leaf).tolist(), row, "outputs")
        return json.dumps({"input": name, "outputs": values})
    chosen = int(row.argmax())
    likely = float(row[chosen])
    facts = {"input": name, "class": chosen, "probability": likely if np.isfinite(likely) else None}
    return json.dumps({**facts, "class_name": class_names[chosen]} if class_names else facts)


@click.command(cls=grouped(EVALUATE_EXAMPLES, click.Command, WEIGHTS), epilog=MODEL_HELP)
@click.argument("model", type=PathOption(path_type=Path))
@add_options(
    TrainingConfig,
    "dataset",
    "data_dir",
    "data",
    "target",
    "ignore_columns",
    "task",
    "image_size",
    dataset=RUN_S_OWN,
    data=RUN_S_OWN,
)
@click.option(
    "--split",
    type=click.Choice(["test", "train", "validation"]),
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
@picture_option("Draw the confusion matrix (.png, .svg or .pdf); needs matplotlib.")
@json_option("Print the result as one line of JSON.")
@replica_option
@ema_option
@best_option
@ensemble_option
@device_option
def evaluate(
    model: Path,
    split: str,
    metrics: tuple[str, ...],
    picture: Path | None,
    as_json: bool,
    replica: int | None,
    ema: bool,
    best: bool,
    ensemble: bool,
    device: str,
    **data_given: Any,
) -> None:
    """Print loss and metrics of a trained model, by default on the data of its run."""
    if picture is not None:
        require_picture(picture)
    given = _read_options_of_data(data_given)
    with _opened(model, device, replica, ema, best, ensemble) as trained:
        if trained.classes is None and (metrics or picture is not None):
            raise OptionValueError(
                f"{'--metrics' if metrics else '--picture'}: expected a classifier, got {model}, which "
                "predicts no classes; leave it out: metrics that the model itself returns are always shown"
            )
        name, splits = data_of_run(model, trained.about, given)
        data = getattr(splits, split)
        if data is None:
            raise OptionValueError("--split: expected test or train, the data have no validation split")
        result = trained.evaluate(data)
        report = None
        if metrics or picture is not None:
            report = report_of(trained.probabilities(raw_inputs(data)), data.arrays[-1], trained.class_names)
    facts = {
        "model": trained.about["model"],
        "dataset": name,
        "split": split,
        "examples": len(data),
        "loss": result.loss if np.isfinite(result.loss) else None,
        **{metric: value if np.isfinite(value) else None for metric, value in result.metrics.items()},
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
            facts |= {"class_names": trained.class_names} if trained.class_names else {}
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
    elif best:
        which = f"; best, of step {trained.about['round']:,}"
    elif isinstance(trained, Ensemble):
        which = f"; mean of {len(trained)} replicas"
    elif others:
        which = f"; replica {replica or 0} of {len(others) + 1}, which are independent"
    elif replica is not None:
        which = f"; replica {replica}"
    click.echo(f"{facts['model']} on {name} ({split}, {len(data):,} examples{which})")
    for metric, value in {"loss": result.loss, **result.metrics}.items():
        click.echo(f"{metric:<8}  {metric_text(metric, value).strip()}")
    click.echo("\n".join(table), nl=bool(table))


@click.command(
    cls=grouped(EXPORT_EXAMPLES, click.Command, {**WEIGHTS, "Format": ("kind", "quantize", "calibration")}),
    epilog="MODEL: the folder of a run, or its model.safetensors.",
)
@click.argument("model", type=PathOption(path_type=Path))
@click.option(
    "--output",
    type=PathOption(path_type=Path),
    metavar="DIR",
    show_default="MODEL/export, then -replicaN, -ema, -best and -int8 for these options",
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
@click.option(
    "--quantize",
    type=click.Choice([INT8]),
    show_default="none",
    help="Multiply 8-bit integers in convolutions and matrix products, with ranges observed on training "
    "examples.",
)
@click.option(
    "--calibration",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    default=CALIBRATION,
    show_default=True,
    help="Number of training examples on which --quantize observes ranges.",
)
@add_options(
    TrainingConfig, "dataset", "data_dir", "data", "target", "image_size", dataset=RUN_S_OWN, data=RUN_S_OWN
)
@replica_option
@ema_option
@best_option
def export(
    model: Path,
    output: Path | None,
    kind: str,
    quantize: str | None,
    calibration: int,
    replica: int | None,
    ema: bool,
    best: bool,
    **data_given: Any,
) -> None:
    """Write a model for inference, by default the central one: its graph as JSON, and its variables.

    predict, evaluate and tb.train.SavedModel load it without the code of the model. With --format onnx it is
    a file for onnxruntime and others, with the outputs that need no labels. The options of data are about
    the training examples of --quantize.
    """
    _require_one(replica, ema, best)
    kinds = {"ema": ema, "best": best, f"replica{replica}": replica is not None, INT8: quantize is not None}
    which = "-".join(["export", *(name for name, is_given in kinds.items() if is_given)])
    given = _read_options_of_data(data_given)
    if quantize is None and given:
        flag = next(iter(given)).replace("_", "-")
        raise OptionValueError(f"--{flag}: expected with --quantize; leave it out")
    with TrainedModel(model, replica=replica, ema=ema, best=best) as trained:
        examples = None
        if quantize is not None:
            train = data_of_run(model, trained.about, given)[1].train
            rows = np.linspace(0, len(train) - 1, min(calibration, len(train))).astype(np.int64)
            examples = map_leaves(lambda _, leaf: leaf[rows], raw_inputs(train), "inputs")
        folder = output if output is not None else (model if model.is_dir() else model.parent) / which
        if kind == "saved-model":
            click.echo(trained.export(folder, examples))
            return
        import tensorbow.interop.onnx as onnx_files

        file = output if output is not None else folder.with_suffix(".onnx")
        require_writable("--output", file)
        if trained.is_exported and examples is None:
            click.echo(onnx_files.export(model, file))
            return
        with TemporaryDirectory() as temporary:
            click.echo(onnx_files.export(trained.export(temporary, examples), file))
