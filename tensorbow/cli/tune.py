"""`tensorbow tune`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from scheduler import Decision, Measurement, ThroughputTuning, TrainingConfig, TuningOptions, TuningResult
from scheduler.options import options_of
from scheduler.training.measures.tuning_result import mode_fact
from scheduler.training.running.notices import ignored_options
from scheduler.workers.find import worker_group
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import OptionValueError, say
from tensorbow.cli.options import (
    MODELS_HELP,
    OF_MODEL,
    RUN_OPTIONS,
    add_options,
    checked,
    config_option,
    given_options,
    json_option,
    names_as_typed,
    picture_option,
)
from tensorbow.cli.signals import StopSignals
from tensorbow.cli.tune_picture import ThroughputPicture
from tensorbow.errors import AbortedError, CancelledError, InvalidArgumentError
from tensorbow.training import console_of_worker

TUNING_OPTIONS = options_of(TuningOptions)
_NAMES = re.compile(rf"\b({'|'.join(name for name in TUNING_OPTIONS if '_' in name)})\b")


EXAMPLES = (
    ("tune lenet", "The number of replicas for the data set that needs no download."),
    ("tune my_model.py:MyModel --data my_data.npz --batch-size 8", "For a model and data of your own."),
    ("tune lenet --picture rates.png", "Also draw the rates."),
)


@click.command(
    cls=grouped(
        EXAMPLES,
        own={"Measurement": ("max_replicas", "threshold", "windows", "window_seconds", "max_seconds")},
    ),
    epilog=MODELS_HELP,
)
@click.argument("model", required=False, metavar="[MODEL]")
@add_options(
    TrainingConfig,
    *(
        "dataset",
        "data",
        "target",
        "ignore_columns",
        "task",
        "image_size",
        "data_dir",
        "batch_size",
        "devices",
        "sync",
        "dispatch",
        "replica_mode",
        "compute",
        "recompute",
        "swap",
        "tau",
    ),
    "seed",
    devices="All get the same number of replicas.",
)
@config_option()
@add_options(TuningOptions)
@picture_option(
    "Draw images/s over the number of replicas to a .png, .svg or .pdf file; needs tensorbow[plot]."
)
@json_option("Print the result as one line of JSON at the end.")
@click.pass_context
def tune(
    context: click.Context, /, config_file: Path | None, picture: Path | None, as_json: bool, **_: Any
) -> int:
    """Measure images/s of MODEL with 1, 2, 3, ... replicas per device, and recommend a number.

    It chooses the smallest count whose throughput is within the threshold of the greatest, measured with the
    steps per launch of a training run. On GPUs it measures captured and then fused replicas, unless
    --replica-mode names one, and recommends the faster. The spread of a count is the difference between its
    fastest and slowest window as a fraction of the median: a few percent on an idle machine. Each count takes
    about two seconds, or longer if its windows differ. No model is saved. Ctrl-C stops within a launch and
    shows the results so far.
    """
    given = given_options(context, RUN_OPTIONS.keys() - TUNING_OPTIONS.keys())
    config = checked(given, config_file)
    with _tuning_names_as_typed(OptionValueError):
        options = TuningOptions(**given_options(context, TUNING_OPTIONS))
    workers = worker_group()
    leads = workers.rank == 0
    drawing = None if picture is None or not leads else ThroughputPicture(picture)
    console = console_of_worker(quiet=not leads)
    signals = context.find_object(StopSignals) or StopSignals()
    with names_as_typed(), _tuning_names_as_typed(), _shown_windows(console) as on_window:
        for warning in ignored_options(config, more_replicas=True, names=given) if leads else ():
            say(warning)
        tuning = ThroughputTuning(config, options, on_window, workers=workers)
        with signals.calling(tuning.request_stop):
            try:
                result = tuning.run()
            except CancelledError:
                raise KeyboardInterrupt from None
    if not leads:
        return signals.status if result.interrupted else 0
    command = _command(config, given, config_file, result, workers.size)
    _show(console, config, result, command)
    if drawing is not None:
        drawing.draw(config, result)
        _line(console, f"picture in {picture}")
    if as_json:
        print(json.dumps(_facts(config, options, result, command), allow_nan=False), flush=True)
    return signals.status if result.interrupted else 0


@contextlib.contextmanager
def _tuning_names_as_typed(kind: type[InvalidArgumentError] | None = None) -> Iterator[None]:
    """Context in which errors name options of tuning as typed. kind: class to raise instead, if any."""
    try:
        yield
    except (InvalidArgumentError, AbortedError) as error:
        raise (kind or type(error))(_as_typed(str(error), of_option=kind is not None)) from error


def _as_typed(text: str, of_option: bool = False) -> str:
    """Replaces max_replicas by --max-replicas in a message. of_option: it begins with an option's name."""
    text = _NAMES.sub(lambda match: TUNING_OPTIONS[match.group()].flag, text)
    return f"--{text}" if of_option and not text.startswith("--") else text


@contextlib.contextmanager
def _shown_windows(console: Console) -> Iterator[Callable[[Measurement], None]]:
    """Context that yields the callback for each window; in a terminal it shows the window's figures."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda measurement: None
        return
    with console.status("warming up") as status:

        def show(measurement: Measurement) -> None:
            status.update(
                f"{_replicas(measurement)} per device, window {len(measurement.windows)}: "
                f"{measurement.windows[-1]:,.0f} images/s"
            )

        yield show


def _replicas(known: Measurement | Decision) -> str:
    """Number of replicas, and their mode where there are any, as text."""
    mode = "" if known.mode is None else f"{known.mode} "
    return f"{known.replicas} {mode}replica{'' if known.replicas == 1 else 's'}"


def _gains(result: TuningResult) -> list[float | None]:
    """Relative gain of each measurement over the previous count of its mode; None for the first."""
    pairs = pairwise(result.measurements)
    gains = [
        known.images_per_second / before.images_per_second - 1 if known.mode == before.mode else None
        for before, known in pairs
    ]
    return [None, *gains]


def _command(
    config: TrainingConfig,
    given: Mapping[str, Any],
    config_file: Path | None,
    result: TuningResult,
    workers: int,
) -> str:
    """Command line that trains with the chosen number and mode of replicas, in as many workers."""
    launch = ["launch", "-n", str(workers)] if workers > 1 else []
    words = [
        "tensorbow",
        *launch,
        "train",
        config.source.name,
        "--replicas-per-gpu",
        str(result.decision.replicas),
    ]
    if config_file is not None:
        words += ["--config", str(config_file)]
    for name, value in given.get("model_options", {}).items():
        words += [f"{OF_MODEL}{name}", str(value)]
    for name, value in given.items():
        if name not in ("model", "model_options", "replica_mode"):
            words += [f"--{name.replace('_', '-')}", str(value)]
    mode = result.decision.mode or config.replica_mode
    if "replica_mode" in given or (mode == "fused" and config.replica_mode != mode):
        words += ["--replica-mode", mode]
    return shlex.join(words)


def _show(console: Console, config: TrainingConfig, result: TuningResult, command: str) -> None:
    """Prints the table, the choice with its reason, and the command to train with it."""
    where = f"{config.sync}, on {', '.join(config.devices)}"
    _line(
        console, f"{config.source.name} on {config.data_name}, batch {config.batch_size} per replica, {where}"
    )
    decision = result.decision
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("replicas per device", justify="right")
    if decision.mode is not None:
        table.add_column("mode")
    for column in ("images/s", "spread", "gain", "windows"):
        table.add_column(column, justify="right")
    table.add_column("")
    for measurement, gain in zip(result.measurements, _gains(result), strict=True):
        chosen = (measurement.replicas, measurement.mode) == (decision.replicas, decision.mode)
        table.add_row(
            str(measurement.replicas),
            *mode_fact(measurement).values(),
            f"{measurement.images_per_second:,.0f}",
            f"{measurement.spread:.1%}" if len(measurement.windows) > 1 else "",
            "" if gain is None else f"{gain:+.1%}",
            str(len(measurement.windows)),
            "chosen" if chosen else "",
            style="bold" if chosen else None,
        )
    console.print(table)
    _line(console, f"{_replicas(decision)} per device: {_as_typed(decision.reason)}")
    if result.not_fused:
        _line(console, f"fused replicas were not measured: {result.not_fused}")
    for doubt in result.doubts:
        _line(console, f"warning: {doubt}")
    _line(console, command)


def _line(console: Console, text: str) -> None:
    """Prints a line with control characters escaped, and without line breaks for narrow terminals."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _facts(
    config: TrainingConfig, options: TuningOptions, result: TuningResult, command: str
) -> dict[str, Any]:
    """JSON object of `--json`."""
    decision = result.decision
    return {
        "model": config.source.name,
        "dataset": config.data_name,
        "devices": list(config.devices),
        "batch_size": config.batch_size,
        "sync": config.sync,
        "dispatch": config.dispatch,
        "tau": config.tau,
        "threshold": options.threshold,
        "replicas_per_device": decision.replicas,
        **result.mode_facts,
        "images_per_second": round(decision.images_per_second, 1),
        "reason": _as_typed(decision.reason),
        "complete": decision.complete,
        "doubts": list(result.doubts),
        "interrupted": result.interrupted,
        "max_replicas": result.most,
        "max_replicas_reason": _as_typed(result.why_no_more),
        "seconds": round(result.seconds, 3),
        "command": command,
        "measurements": [
            {
                "replicas_per_device": measurement.replicas,
                **mode_fact(measurement),
                "images_per_second": round(measurement.images_per_second, 1),
                "spread": round(measurement.spread, 4),
                "gain": None if gain is None else round(gain, 4),
                "windows": [round(window, 1) for window in measurement.windows],
            }
            for measurement, gain in zip(result.measurements, _gains(result), strict=True)
        ],
    }
