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
from scheduler.averaging.synchronisation import DISPATCHES, ON_NAN
from scheduler.batches.device_data import ON_DEVICE
from scheduler.training.config import IDENTITY
from scheduler.training.notices import epoch_text, ignored_options
from tensorbow.cli.messages import say
from tensorbow.cli.options import MODELS_HELP, PathOption, names_as_typed, resolve_options
from tensorbow.cli.signals import StopSignals
from tensorbow.cli.tune_picture import ThroughputPicture
from tensorbow.data import DATASETS
from tensorbow.devices.gpu import COMPUTE
from tensorbow.errors import AbortedError, FailedPreconditionError
from tensorbow.models import MODELS
from tensorbow.training import TrainingProgress

DEFAULTS = TrainingConfig()


def _by_model(option: str) -> str:
    """The default of an option that each model has for itself: the rule's, and those that differ."""
    shown = {name: _shown(getattr(TrainingConfig(model=name), option)) for name in MODELS}
    common = shown[DEFAULTS.model]
    others: dict[str, list[str]] = {}
    for name, value in shown.items():
        if value != common:
            others.setdefault(value, []).append(name)
    differing = [f"{_family(names)}: {value}" for value, names in others.items()]
    return "; ".join([common, *differing])


def _shown(value: Any) -> str:
    """A value as one would give it on the command line."""
    if isinstance(value, tuple):
        return ",".join(f"{epoch}:{factor:g}" for epoch, factor in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _family(names: list[str]) -> str:
    """Names of models, in short where all of a family are among them."""
    residual = [name for name in MODELS if name.startswith("resnet")]
    return "resnets" if names == residual else ", ".join(names)


class Choice(click.Choice):  # type: ignore[type-arg]  # click 8.1 has none
    """Shows the choices; which are right is checked with all other options, and what is wrong said alike."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as it is."""
        return value


def _option(
    *names: str, default: Any = None, help: str, shown: str | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A click option that always shows its default: the value, or what it stands for."""
    return click.option(*names, default=default, show_default=shown or True, help=help, **more)


@click.command(epilog=MODELS_HELP)
@click.argument("model", required=False, metavar="[MODEL]")
@_option(
    "--dataset",
    shown=_by_model("dataset"),
    type=Choice(list(DATASETS)),
    help="Data set. digits comes with scikit-learn, no download.",
)
@_option(
    "--data-dir",
    type=PathOption(),
    metavar="DIR",
    shown="environment TENSORBOW_DATA",
    help="Folder of the data set's files.",
)
@_option(
    "--batch-size",
    type=int,
    shown=_by_model("batch_size"),
    help="Examples per replica and step. With --replicas-per-gpu auto a resumed run may change it, and tunes "
    "anew.",
)
@_option(
    "--replicas-per-gpu",
    "--replicas-per-device",
    "replicas_per_device",
    metavar="N[,N...]|auto",
    default=str(DEFAULTS.replicas_per_device),
    help="Replicas on each device: one number for all devices, or one for each, as 3,1; or auto: begin with "
    "one, measure while training, and add and remove replicas until the fastest number is known. Timing "
    "decides then, so that two runs do not give the same bits.",
)
@_option(
    "--devices", default=",".join(DEFAULTS.devices), help="Devices, separated by commas, as cpu:0,cpu:1."
)
@_option(
    "--sync",
    default=DEFAULTS.sync,
    type=Choice(SYNCS),
    help="How replicas are kept together: model averaging, synchronous SGD, elastic averaging SGD, or not "
    "at all; with none each is saved, the others as model-replicaN.safetensors.",
)
@_option("--tau", default=DEFAULTS.tau, help="Rounds between two averagings.")
@_option(
    "--alpha",
    type=float,
    shown="1 / replicas, with easgd 0.9 / replicas, less with staleness",
    help="Pull of the central model on a replica.",
)
@_option("--mu", default=DEFAULTS.mu, help="Momentum of the central model; easgd has none.")
@_option("--staleness", default=DEFAULTS.staleness, help="Averagings that the central model may lag.")
@_option(
    "--dispatch",
    default=DEFAULTS.dispatch,
    type=Choice(DISPATCHES),
    help="Which replica takes a batch: each its own of every round, or (fcfs: first come, first served) the "
    "one that is free first, so that fast ones take more. Timing decides then, so that two runs do not give "
    "the same bits.",
)
@_option("--ssgd-epoch", type=int, shown="never", help="After this epoch --sync sma gives way to ssgd.")
@_option(
    "--clear-velocity",
    is_flag=True,
    default=DEFAULTS.clear_velocity,
    shown="off",
    help="When averaging restarts, the optimisers' momentum does too.",
)
@_option("--momentum", default=DEFAULTS.momentum, help="Momentum of each replica's optimiser.")
@_option(
    "--learning-rate",
    type=float,
    shown="the model's, times sqrt(replicas)",
    help="Learning rate of each replica.",
)
@_option(
    "--learning-rate-drops",
    shown=_by_model("learning_rate_drops"),
    help="EPOCH:FACTOR,...: after that epoch the rate is FACTOR times the first; averaging restarts.",
)
@_option(
    "--weight-decay",
    type=float,
    shown=_by_model("weight_decay"),
    help="Added to gradients, times the weights (not biases).",
)
@_option(
    "--decay-all",
    is_flag=True,
    default=DEFAULTS.decay_all,
    shown="off",
    help="Weight decay for biases too.",
)
@_option("--epochs", type=int, shown=_by_model("epochs"), help="Passes over the training data.")
@_option(
    "--max-seconds",
    type=float,
    shown="no limit",
    help="Stop after so many seconds of training; evaluations and checkpoints do not count.",
)
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
    "--steps-per-launch",
    type=int,
    shown="as many as take 20 ms, 64 at most",
    help="Rounds in one launch, on one CPU device with native code; the bits stay the same.",
)
@_option(
    "--on-nan",
    default=DEFAULTS.on_nan,
    type=Choice(ON_NAN),
    help="When a loss or gradient is not finite: stop, or skip the update.",
)
@_option(
    "--compute",
    type=Choice(COMPUTE),
    shown="fp32",
    help="In what GPUs compute products and convolutions: fp32, or on tensor cores tf32 or bf16.",
)
@_option(
    "--data-on-device",
    default=DEFAULTS.data_on_device,
    type=Choice(ON_DEVICE),
    help="Whether the devices keep the data set and make the batches: auto on GPUs, where there is room.",
)
@_option(
    "--output",
    type=PathOption(),
    metavar="DIR",
    shown="runs/MODEL-DATASET, numbered when taken",
    help="Folder for configuration, metrics, checkpoints and the final model.",
)
@_option(
    "--resume",
    type=PathOption(),
    metavar="auto|PATH",
    shown="no",
    help="Go on from the newest checkpoint of --output (auto), or from a file or folder, with the options "
    f"that it has and those given now. Not to be changed: {', '.join(IDENTITY).replace('_', ' ')}.",
)
@_option(
    "--checkpoint-rounds",
    type=int,
    shown="each epoch only",
    help="Also write a checkpoint every so many rounds.",
)
@_option(
    "--keep-checkpoints",
    default=DEFAULTS.keep_checkpoints,
    help="Checkpoints to keep, the newest. Beside them stay the best (by test accuracy) and the last sound "
    "one (from which training went on with finite losses, on average at most twice that of a guess). Each "
    "holds every replica and z (27 MB with two of LeNet).",
)
@_option(
    "--trace",
    type=PathOption(),
    metavar="FILE",
    shown="none",
    help="Write what ran when on every stream as a Chrome trace, for https://ui.perfetto.dev; FILE.gz is "
    "compressed. On one CPU device with native code a span is a launch: some rounds of a replica, or of all, "
    "with their averaging; --steps-per-launch 1 makes it one round.",
)
@_option(
    "--trace-rounds",
    metavar="A:B",
    shown="the run's first 100",
    help="Trace rounds A to B - 1, counted from 0.",
)
@_option(
    "--config",
    type=PathOption(path_type=Path),
    metavar="FILE",
    shown="none",
    help="YAML file of options, as a run saves it; the command line wins. Its model may stand for MODEL; "
    "its output, resume and trace are ignored.",
)
@_option(
    "--json", "as_json", is_flag=True, default=False, shown="off", help="End with one JSON object on a line."
)
@click.pass_context
def train(context: click.Context, /, config: Path | None, as_json: bool, **given: Any) -> int:
    """Train a model on several averaged replicas.

    The output folder gets config.yaml, metrics.jsonl, rolling checkpoints and model.safetensors.
    Ctrl-C ends the run within a step, with a checkpoint and the model as it is; --resume auto goes on from
    the checkpoint, with the options that the run was started with and those given now.
    """
    said = {
        name: value
        for name, value in given.items()
        if (
            value is not None
            if name == "model"
            else context.get_parameter_source(name) is not ParameterSource.DEFAULT
        )
    }
    resolved = resolve_options(said, config)
    for warning in ignored_options(resolved):
        say(warning)
    signals = context.find_object(StopSignals) or StopSignals()
    console = Console()
    progress = TrainingProgress(console)
    numbered = "output" not in said and resolved.resume in (None, "auto")
    with names_as_typed(), Trainer(resolved, progress, numbered=numbered) as trainer:
        with signals.calling(trainer.request_stop):
            result = trainer.train()
        folder = trainer.folder.path
    if progress.failure is not None:
        raise AbortedError(
            f"cannot write to standard output: {progress.failure.strerror or progress.failure}; "
            f"stopped at step {result.steps} with a checkpoint; go on with --resume auto --output {folder}"
        )
    _show(console, resolved, result, folder)
    _draw_tuning(console, resolved, result, folder)
    if as_json:
        print(json.dumps(result.to_dict(), allow_nan=False), flush=True)
    return signals.status if result.interrupted else 0


def _show(console: Console, config: TrainingConfig, result: TrainingResult, folder: Path | None) -> None:
    """A short table, in lines that no width breaks."""
    epochs = "1 epoch" if result.epochs == 1 else f"{epoch_text(result.epochs)} epochs"
    replicas = f"{result.replicas} x batch {result.batch_size}, {result.sync}, on {', '.join(result.devices)}"
    accuracy = "not evaluated" if result.test_accuracy is None else f"{result.test_accuracy:.2%}"
    if result.sync == "none" and result.replicas > 1 and result.test_accuracy is not None:
        accuracy += f" (mean of {result.replicas} replicas)"
    if result.interrupted and result.test_accuracy is not None:
        accuracy += ", when the last whole epoch ended"
    rows = {
        "model": f"{result.model} on {result.dataset}",
        "replicas": replicas,
        **_chosen(config, result),
        "trained": f"{epochs}, {result.steps:,} steps, {result.seconds:.1f} s",
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


def _chosen(config: TrainingConfig, result: TrainingResult) -> dict[str, str]:
    """Of a run that was to find its number of replicas: which and why."""
    trained = result.replicas // len(result.devices)
    if result.tuning is None:
        undecided = f"not decided: the run was over before {trained} per device was measured"
        return {"auto": undecided} if config.tunes else {}
    decision = result.tuning.decision
    trial = f"; {trained} were on trial when the run ended" if trained != decision.replicas else ""
    return {"auto": f"{decision.replicas} per device: {decision.reason}{trial}"}


def _draw_tuning(
    console: Console, config: TrainingConfig, result: TrainingResult, folder: Path | None
) -> None:
    """Draws what was measured on the way to the number of replicas, where matplotlib is installed."""
    if result.tuning is None or folder is None:
        return
    try:
        drawing = ThroughputPicture(folder / "tuning.png")
    except FailedPreconditionError:
        return
    drawing.draw(config, result.tuning)
    text = f"picture of the tuning in {_printable(str(drawing.path))}"
    console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)
