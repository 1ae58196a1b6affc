"""`tensorbow train`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from scheduler import SYNCS, Trainer, TrainingConfig, TrainingResult
from scheduler.engine import ON_NAN
from tensorbow.cli.options import resolve_options
from tensorbow.cli.program import INTERRUPTED
from tensorbow.cli.signals import StopSignals
from tensorbow.data import DATASETS
from tensorbow.errors import AbortedError
from tensorbow.models import MODELS
from tensorbow.training import TrainingProgress

DEFAULTS = TrainingConfig()


def _option(
    *names: str, default: Any = None, help: str, shown: str | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A click option that always shows its default: the value, or what it stands for."""
    return click.option(*names, default=default, show_default=shown or True, help=help, **more)


@click.command()
@click.argument("model", metavar="{" + ",".join(MODELS) + "}")
@_option(
    "--dataset",
    default=DEFAULTS.dataset,
    help=f"Data set: {', '.join(DATASETS)}. digits comes with scikit-learn, no download.",
)
@_option(
    "--data-dir",
    metavar="DIR",
    shown="environment TENSORBOW_DATA",
    help="Folder of the data set's files.",
)
@_option("--batch-size", default=DEFAULTS.batch_size, help="Examples per replica and step.")
@_option(
    "--replicas-per-gpu",
    "--replicas-per-device",
    "replicas_per_device",
    default=DEFAULTS.replicas_per_device,
    help="Replicas on each device.",
)
@_option(
    "--devices", default=",".join(DEFAULTS.devices), help="Devices, separated by commas, as cpu:0,cpu:1."
)
@_option("--sync", default=DEFAULTS.sync, help=f"How replicas are kept together: {', '.join(SYNCS)}.")
@_option("--tau", default=DEFAULTS.tau, help="Rounds between two averagings.")
@_option("--alpha", type=float, shown="1 / replicas", help="Pull of the central model on a replica.")
@_option("--mu", default=DEFAULTS.mu, help="Momentum of the central model.")
@_option("--staleness", default=DEFAULTS.staleness, help="Averagings that the central model may lag.")
@_option("--momentum", default=DEFAULTS.momentum, help="Momentum of each replica's optimiser.")
@_option(
    "--learning-rate",
    type=float,
    shown="the model's, times sqrt(replicas)",
    help="Learning rate of each replica.",
)
@_option(
    "--learning-rate-drops",
    default="",
    shown="none",
    help="EPOCH:FACTOR,...: after that epoch the rate is FACTOR times the first; averaging restarts.",
)
@_option(
    "--weight-decay",
    default=DEFAULTS.weight_decay,
    help="Added to gradients, times the weights (not biases).",
)
@_option("--epochs", default=DEFAULTS.epochs, help="Passes over the training data.")
@_option("--max-seconds", type=float, shown="no limit", help="Stop after so many seconds of training.")
@_option(
    "--target-accuracy", type=float, shown="none", help="Stop when the test accuracy reaches this fraction."
)
@_option("--seed", default=DEFAULTS.seed, help="Seed of initial weights, data order and random ops.")
@_option(
    "--launch-ahead",
    default=DEFAULTS.launch_ahead,
    help="Tasks enqueued on a stream before the first has ended.",
)
@_option(
    "--on-nan", default=DEFAULTS.on_nan, help=f"When a loss is not finite: {', or '.join(ON_NAN)} the update."
)
@_option(
    "--output",
    metavar="DIR",
    shown="runs/MODEL-DATASET, numbered when taken",
    help="Folder for configuration, metrics, checkpoints and the final model.",
)
@_option(
    "--resume",
    metavar="auto|PATH",
    shown="no",
    help="Go on from the newest checkpoint of --output (auto), or from a file or folder.",
)
@_option(
    "--checkpoint-rounds",
    type=int,
    shown="each epoch only",
    help="Also write a checkpoint every so many rounds.",
)
@_option("--keep-checkpoints", default=DEFAULTS.keep_checkpoints, help="Checkpoints to keep.")
@_option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    shown="none",
    help="YAML file of options, as a run saves it; the command line wins.",
)
@_option(
    "--json", "as_json", is_flag=True, default=False, shown="off", help="End with one JSON object on a line."
)
@click.pass_context
def train(context: click.Context, /, config: Path | None, as_json: bool, **given: Any) -> int:
    """Train a model on several averaged replicas.

    The output folder gets config.yaml, metrics.jsonl, rolling checkpoints and model.safetensors.
    Ctrl-C ends the run within a step, with a checkpoint; --resume auto goes on from it, with the options
    that it was started with and those given now.
    """
    said = {
        name: value
        for name, value in given.items()
        if name == "model" or context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    resolved = resolve_options(said, config)
    signals = context.find_object(StopSignals) or StopSignals()
    console = Console()
    progress = TrainingProgress(console)
    with Trainer(resolved, progress) as trainer:
        with signals.calling(trainer.request_stop):
            result = trainer.train()
        folder = trainer.folder.path
    if progress.failure is not None:
        raise AbortedError(
            f"cannot write to standard output: {progress.failure.strerror or progress.failure}; "
            f"stopped at step {result.steps} with a checkpoint; go on with --resume auto --output {folder}"
        )
    _show(console, result, folder)
    if as_json:
        print(json.dumps(result.to_dict(), allow_nan=False), flush=True)
    return INTERRUPTED if result.interrupted else 0


def _show(console: Console, result: TrainingResult, folder: Path | None) -> None:
    """A short table, in lines that no width breaks."""
    replicas = f"{result.replicas} x batch {result.batch_size}, {result.sync}, on {', '.join(result.devices)}"
    accuracy = "not evaluated" if result.test_accuracy is None else f"{result.test_accuracy:.2%}"
    rows = {
        "model": f"{result.model} on {result.dataset}",
        "replicas": replicas,
        "trained": f"{result.epochs:g} epochs, {result.steps:,} steps, {result.seconds:.1f} s",
        "images/s": f"{result.images_per_second:,.0f}",
        "test accuracy": accuracy,
    }
    if result.seconds_to_target is not None:
        rows["target reached"] = f"after {result.seconds_to_target:.1f} s of training"
    if result.skipped_updates:
        rows["skipped updates"] = f"{result.skipped_updates} (the loss was not finite)"
    rows["saved in"] = _printable(str(folder))
    if result.interrupted:
        rows["interrupted"] = f"go on with --resume auto --output {_printable(str(folder))}"
    for name, value in rows.items():
        console.print(f"{name:<15}  {value}", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)
