"""`tensorbow train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from allocators import format_nbytes
from scheduler import Callback, Trainer, TrainingConfig, TrainingResult
from scheduler.training.folders import run_curves
from scheduler.training.measures.tuning_result import mode_text
from scheduler.training.running.callbacks import Record, TrainingRun
from scheduler.training.running.notices import epoch_text, ignored_options, metric_text
from scheduler.workers.find import worker_group
from scheduler.workers.joint_calls import JointCalls
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import say
from tensorbow.cli.options import (
    MODELS_HELP,
    RUN_OPTIONS,
    add_options,
    config_option,
    given_options,
    json_option,
    names_as_typed,
    resolve_options,
)
from tensorbow.cli.signals import StopSignals
from tensorbow.cli.tune_picture import ThroughputPicture
from tensorbow.errors import AbortedError, FailedPreconditionError
from tensorbow.models.summary import count
from tensorbow.training import TrainingProgress, console_of_worker, finite_values

FIXED = ", ".join(name.replace("_", " ") for name, option in RUN_OPTIONS.items() if option.fixed)


EXAMPLES = (
    ("train lenet", "Two averaged replicas, on the data set that needs no download."),
    ("train lenet --replicas-per-gpu 4 --batch-size 8", "More replicas, with smaller batches."),
    ("train my_model.py:MyModel --data my_data.npz --model.width 64", "A model and data of your own."),
    ("train logreg --optimizer adam --schedule cosine", "Another optimiser and schedule."),
    ("train lenet --weights lenet.safetensors", "Begin with the weights of a PyTorch model."),
    ("train lenet --early-stopping test_loss:3", "Stop when the test loss falls no more."),
    ("train --resume auto --output runs/lenet-digits", "Go on where a run was interrupted."),
)


@click.command(cls=grouped(EXAMPLES), epilog=MODELS_HELP)
@click.argument("model", required=False, metavar="[MODEL]")
@add_options(TrainingConfig, resume=f"These options cannot change: {FIXED}.")
@config_option("config", "Its model is used if MODEL is not given; its output, resume and trace are ignored.")
@json_option("Print the result as one line of JSON at the end.")
@click.option(
    "--json-lines",
    is_flag=True,
    show_default="off",
    help='As --json, and also a line {"event": "evaluation", ...} after each evaluation; all other lines go '
    "to standard error.",
)
@click.option(
    "--summary",
    "with_summary",
    is_flag=True,
    show_default="off",
    help="Print the model's layers before training: shapes, parameters, operations of one example.",
)
@click.pass_context
def train(
    context: click.Context,
    /,
    config: Path | None,
    as_json: bool,
    json_lines: bool,
    with_summary: bool,
    **_: Any,
) -> int:
    """Train a model with several replicas that are averaged.

    Writes config.yaml, metrics.jsonl, rolling checkpoints, model.safetensors and, with tensorbow[plot],
    curves.png to the output folder. Ctrl-C ends the run within a step and saves a checkpoint and the current
    model; --resume auto continues from the checkpoint, with the options of the original run and those given
    now.
    """
    given = given_options(context)
    workers = worker_group()
    joint = JointCalls(workers)
    resolved = TrainingConfig.from_dict(joint.by_first(lambda: resolve_options(given, config).to_dict()))
    for warning in ignored_options(resolved, workers.size > 1) if joint.leads else ():
        say(warning)
    signals = context.find_object(StopSignals) or StopSignals()
    console = console_of_worker(quiet=not joint.leads, stderr=json_lines)
    progress = TrainingProgress(console)
    lines = [EvaluationLines(progress)] if json_lines else []
    numbered = "output" not in given and resolved.resume in (None, "auto")
    with (
        names_as_typed(),
        Trainer(resolved, progress, callbacks=lines, numbered=numbered, workers=workers) as trainer,
    ):
        for line in _introduction(trainer, with_summary):
            progress.line(line)
        with signals.calling(trainer.request_stop):
            result = trainer.train()
        folder, unit = trainer.folder.path, trainer.data.train.unit
    if progress.failure is not None:
        raise AbortedError(
            f"cannot write to standard output: {progress.failure.strerror or progress.failure}; "
            f"stopped at step {result.steps} with a checkpoint; go on with --resume auto --output {folder}"
        )
    if not joint.leads:
        return signals.status if result.interrupted else 0
    _show(console, resolved, result, folder, unit)
    _draw_tuning(console, resolved, result, folder)
    if folder is not None and (curves := run_curves.draw_run(folder)) is not None:
        _say_picture(console, "curves", curves)
    if as_json or json_lines:
        print(json.dumps(result.to_dict(), allow_nan=False), flush=True)
    return signals.status if result.interrupted else 0


class EvaluationLines(Callback):
    """Prints the figures of each evaluation as a line of JSON on standard output."""

    def __init__(self, progress: TrainingProgress):
        """progress: told if the line cannot be written, which ends the run with a checkpoint."""
        self._progress = progress

    def on_epoch(self, run: TrainingRun, record: Record) -> None:
        """Prints the line."""
        try:
            print(json.dumps({"event": "evaluation", **finite_values(record)}), flush=True)
        except OSError as error:
            self._progress.failure = error


def _introduction(trainer: Trainer, with_summary: bool) -> list[str]:
    """Lines on the model's layers, if asked for, on its size, and on that of a replica."""
    summary = trainer.summary()
    replica = format_nbytes(trainer.engine.learners.replicas[0].held_nbytes)
    sizes = f"{summary.parameters:,} parameters, {count(summary.flops)} flop forward per example"
    layers = str(summary).splitlines() if with_summary else []
    return [*layers, f"{trainer.config.source.name}: {sizes}, {replica} per replica"]


def _show(
    console: Console, config: TrainingConfig, result: TrainingResult, folder: Path | None, unit: str
) -> None:
    """Prints a short table of the result, without line breaks for narrow terminals."""
    epochs = "1 epoch" if result.epochs == 1 else f"{epoch_text(result.epochs)} epochs"
    replicas = f"{result.replicas} x batch {result.batch_size}, {result.sync}, on {', '.join(result.devices)}"
    replicas += f" of {result.workers} workers" if result.workers > 1 else ""
    more = f" (mean of {result.replicas} replicas)" if result.sync == "none" and result.replicas > 1 else ""
    more += ", when the last whole epoch ended" if result.interrupted else ""
    metrics = {name.replace("_", " "): value for name, value in result.metrics.items()}
    rows = {
        "model": f"{result.model} on {result.dataset}",
        "replicas": replicas,
        **_chosen(config, result),
        "trained": f"{epochs}, {result.steps:,} steps, {result.seconds:.1f} s",
        f"{unit}/s": f"{result.images_per_second:,.0f}",
        **{name: f"{metric_text(name, value).strip()}{more}" for name, value in metrics.items()},
        **({} if metrics else {"test accuracy": "not evaluated"}),
    }
    if result.ema_accuracy is not None:
        rows["ema accuracy"] = f"{result.ema_accuracy:.2%}"
    if result.seconds_to_target is not None:
        rows["target reached"] = f"after {result.seconds_to_target:.1f} s of training"
    if result.stop_reason is not None:
        rows["stopped"] = result.stop_reason
    if result.skipped_updates:
        rows["skipped updates"] = f"{result.skipped_updates} (the loss was not finite)"
    rows["saved in"] = _printable(str(folder))
    if result.interrupted:
        rows["interrupted"] = f"go on with --resume auto --output {_printable(str(folder))}"
    for name, value in rows.items():
        console.print(f"{name:<15}  {value}", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _chosen(config: TrainingConfig, result: TrainingResult) -> dict[str, str]:
    """Row of the table for `--replicas-per-gpu auto`: the chosen number and mode, and the reason."""
    trained = result.replicas // (len(result.devices) * result.workers)
    if result.tuning is None:
        undecided = f"not decided: the run was over before {trained} per device was measured"
        return {"auto": undecided} if config.tunes else {}
    decision = result.tuning.decision
    trial = f"; {trained} were on trial when the run ended" if trained != decision.replicas else ""
    chosen = f"{decision.replicas}{mode_text(decision.mode)}"
    doubts = {"warning": "; ".join(result.tuning.doubts)} if result.tuning.doubts else {}
    return {"auto": f"{chosen} per device: {decision.reason}{trial}", **doubts}


def _draw_tuning(
    console: Console, config: TrainingConfig, result: TrainingResult, folder: Path | None
) -> None:
    """Draws the measurements of the tuning, if matplotlib is installed."""
    if result.tuning is None or folder is None:
        return
    try:
        drawing = ThroughputPicture(folder / "tuning.png")
    except FailedPreconditionError:
        return
    drawing.draw(config, result.tuning)
    _say_picture(console, "picture of the tuning", drawing.path)


def _say_picture(console: Console, what: str, path: Path) -> None:
    text = f"{what} in {_printable(str(path))}"
    console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)
