"""`tensorbow sweep`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from scheduler import TrainingConfig
from scheduler.options import options_of
from scheduler.sweeps.folder import RESULTS, saved_sweep
from scheduler.sweeps.members import DIVERGED, FINISHED, STOPPED
from scheduler.sweeps.options import HELD_OUT, SweepOptions
from scheduler.sweeps.search_space import OF_RUNS, read_range, read_values
from scheduler.sweeps.summary import ConfigurationSummary, figure_text, value_text
from scheduler.sweeps.sweep import Sweep
from scheduler.workers.find import worker_group
from scheduler.workers.joint_calls import JointCalls
from scheduler.workers.watch_client import tell_folder
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import OptionValueError
from tensorbow.cli.options import (
    MODELS_HELP,
    RUN_OPTIONS,
    PathOption,
    add_options,
    config_option,
    given_options,
    json_option,
    missing_model,
    names_as_typed,
    naming_origin,
    read_config,
)
from tensorbow.cli.signals import StopSignals
from tensorbow.errors import InvalidArgumentError
from tensorbow.training import TrainingProgress, console_of_worker

SWEEP_OPTIONS = options_of(SweepOptions)
MEMBER_OPTIONS = [name for name in RUN_OPTIONS if name not in (*OF_RUNS, "model", "model_options")]
_FLAGS = {name: option.flag for name, option in SWEEP_OPTIONS.items()} | {
    "grid": "--grid",
    "range": "--range",
}
_NAMES = re.compile(rf"^({'|'.join(_FLAGS)})\b")  # of options, where an error begins
MOST_ROWS = 20


EXAMPLES = (
    ("sweep logreg --grid learning_rate=1e-3,3e-3,1e-2 --seeds 8", "Three rates, eight seeds each."),
    ("sweep mlp --grid batch_size=8,16 --grid momentum=0.5,0.9", "All four combinations."),
    ("sweep mlp --random 64 --range learning_rate=log:1e-4:1e-1 --halving", "Drawn; the worst end early."),
    ("sweep my_model.py:MyModel --data my_data.npz --grid model.width=32,64", "Your own model and data."),
    ("sweep mlp --seeds 8 --keep 8 --ensemble", "Eight seeds, exported as one model."),
    ("sweep --resume --output runs/sweep-mlp-digits", "Go on where a sweep was interrupted."),
)


@click.command(cls=grouped(EXAMPLES), epilog=MODELS_HELP)
@click.argument("model", required=False, metavar="[MODEL]")
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=VALUE,...",
    show_default="one configuration",
    help="Values of an option, such as learning_rate=1e-3,3e-3,1e-2; several --grid give all combinations.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    metavar="NAME=RANGE",
    show_default="none",
    help="Range of an option for --random: LOW:HIGH, log:LOW:HIGH, such as learning_rate=log:1e-4:1e-1, or a "
    "list of values.",
)
@add_options(SweepOptions)
@click.option(
    "--output",
    type=PathOption(path_type=Path),
    metavar="DIR",
    show_default="runs/sweep-MODEL-DATASET, with a number appended if it exists",
    help="Folder for results, curves, pictures, checkpoints and models.",
)
@click.option(
    "--resume",
    is_flag=True,
    show_default="off",
    help="Go on with the sweep of --output and its options; the results are those without an interruption.",
)
@add_options(
    TrainingConfig,
    *[name for name in MEMBER_OPTIONS if name != "validation_split"],
    best_metric="In a sweep it is one of the validation examples, by which members are compared.",
)
@click.option(
    "--validation-split",
    type=float,
    show_default=f"{HELD_OUT}",
    help="Fraction of the training examples to hold out: members are compared on them.",
)
@config_option()
@json_option("Print the result as one line of JSON at the end.")
@click.pass_context
def sweep(
    context: click.Context,
    /,
    grid: tuple[str, ...],
    ranges: tuple[str, ...],
    output: Path | None,
    resume: bool,
    config_file: Path | None,
    as_json: bool,
    **_: Any,
) -> int:
    """Train MODEL with many configurations and seeds, many side by side in one process.

    Each member is a run of one replica, and has the bits of `tensorbow train MODEL --replicas-per-gpu 1` with
    its options and seed. The best is chosen on examples held out of training, and its accuracy on the test
    examples is printed. A member that diverges ends alone. Ctrl-C saves a checkpoint; --resume goes on, also
    after a kill.
    """
    given = given_options(context, [*MEMBER_OPTIONS, "model", "model_options"])
    own = given_options(context, SWEEP_OPTIONS)
    from_file = {} if config_file is None else read_config(config_file)
    base = {**{name: value for name, value in from_file.items() if name not in OF_RUNS}, **given}
    joint = JointCalls(worker_group())
    console = console_of_worker(quiet=not joint.leads)
    progress = TrainingProgress(console)
    try:
        axes, drawn = dict(map(read_values, grid)), dict(map(read_range, ranges))
        if resume:
            if output is None:
                raise OptionValueError("--resume: expected with --output, the folder of the sweep")
            base, axes, drawn, own = joint.by_first(lambda: saved_sweep(output, base, axes, drawn, own))
        elif "model" not in base:
            raise OptionValueError(missing_model())
        options = SweepOptions(**own)
    except InvalidArgumentError as error:
        raise OptionValueError(_as_typed(error)) from error
    signals = context.find_object(StopSignals) or StopSignals()
    with _own_names_as_typed(), naming_origin(given, from_file, config_file):
        made = Sweep(
            base, axes, drawn, options, output, resume=resume, say=progress.line, workers=joint.workers
        )
    with _own_names_as_typed(), names_as_typed(), made as running, signals.calling(running.request_stop):
        tell_folder(str(running.path))
        finished = running.run()
        if joint.leads:
            _show(console, running, finished)
            if as_json:
                print(json.dumps(running.facts(), allow_nan=False), flush=True)
    return 0 if finished else signals.status


@contextmanager
def _own_names_as_typed() -> Iterator[None]:
    """Context in which errors of the sweep's own options begin with these as typed."""
    try:
        yield
    except InvalidArgumentError as error:
        if (text := _as_typed(error)) == str(error):
            raise
        raise OptionValueError(text) from error


def _as_typed(error: InvalidArgumentError) -> str:
    return _NAMES.sub(lambda match: _FLAGS[match.group()], str(error))


def _show(console: Console, sweep: Sweep, finished: bool) -> None:
    """Prints the configurations, the best first, and where everything is."""

    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)

    found = sweep.summaries
    measure = found[0].measure
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = [name.replace("_", " ") for name in sweep.swept]
    counts = {FINISHED: "finished", STOPPED: "stopped", DIVERGED: "diverged"}
    counts = {status: name for status, name in counts.items() if any(each.count(status) for each in found)}
    for column in (*columns, f"validation {measure}", "lowest", "highest", *counts.values()):
        table.add_column(column, justify="right")
    for summary in found[:MOST_ROWS]:
        choices = [value_text(summary.choices[name]) for name in sweep.swept]
        numbers = [str(summary.count(status)) for status in counts]
        table.add_row(*choices, *_figures(summary), *numbers)
    console.print(table)
    if len(found) > MOST_ROWS:
        line(f"and {len(found) - MOST_ROWS:,} more configurations in {sweep.folder.path / RESULTS}")
    for picture in sweep.draw():
        line(f"picture        {picture}")
    for text in sweep.best_lines():
        line(text)
    line(f"saved in       {sweep.folder.path}")
    if not finished:
        line(f"interrupted    go on with tensorbow sweep --resume --output {sweep.folder.path}")


def _figures(summary: ConfigurationSummary) -> list[str]:
    """Mean, lowest and highest of the members that trained to their end; else the last mean and its epoch."""
    measure, values = summary.measure, summary.values
    if values:
        return [figure_text(measure, value) for value in (summary.mean, min(values), max(values))]
    value, epoch = summary.last
    return [f"epoch {epoch}: {figure_text(measure, value)}" if math.isfinite(value) else "", "", ""]
