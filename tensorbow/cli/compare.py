"""`tensorbow compare`: runs beside one another, as a table and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from scheduler.options import options_of
from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.folders.run_curves import RunRecord, common_measure, draw_runs
from scheduler.training.measures.metric_order import lower_is_better, score_of
from tensorbow.cli.compare_table import Column, show_table
from tensorbow.cli.grouped_help import grouped
from tensorbow.cli.messages import OptionValueError
from tensorbow.cli.options import PathOption, json_option, picture_option, require_picture

REPORTED = ("metrics", "tensorboard", "best_metric", "keep_checkpoints")  # change what a run writes alone
OF_ONE_RUN = {name for name, option in options_of(TrainingConfig).items() if option.of_one_run}
NOT_COMPARED = OF_ONE_RUN | {*REPORTED}


def _finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise OptionValueError(f"--target: expected a finite number, got {value}")
    return value


EXAMPLES = (
    ("compare runs/first runs/second", "Options that differ, and results; the best run first."),
    ("compare runs/* --metric test_loss --picture runs.png", "By another measure, with a picture."),
    ("compare runs/* --target 0.97", "Also the epochs and seconds to 97 %."),
)


@click.command(cls=grouped(EXAMPLES, click.Command, {"Comparison": ("metric", "target")}))
@click.argument("runs", nargs=-1, required=True, type=PathOption(path_type=Path), metavar="RUN...")
@click.option(
    "--metric",
    metavar="NAME",
    show_default="the runs' --best-metric, test_accuracy, or test_loss",
    help="Measure to compare, as metrics.jsonl calls it. The direction is the one that the runs' "
    "--best-metric or --early-stopping gave; else losses and errors are better the smaller they are; "
    "NAME:min or NAME:max overrides it.",
)
@click.option(
    "--target",
    type=float,
    callback=_finite,
    metavar="VALUE",
    show_default="none",
    help="Also show the epochs and seconds after which each run reached this value of the metric.",
)
@picture_option(
    "Draw the metric over epochs and seconds to a .png, .svg or .pdf file; needs tensorbow[plot]."
)
@json_option("Print a line of JSON for each run.")
def compare(
    runs: tuple[Path, ...], metric: str | None, target: float | None, picture: Path | None, as_json: bool
) -> None:
    """Compare runs: options that differ, and how good and how fast each was; the best run first.

    RUN: the folder of a run, also of one that is still going on.
    """
    if picture is not None:
        require_picture(picture)
    records = [RunRecord.read(run) for run in dict.fromkeys(runs)]
    given, mode = (None, None) if metric is None else metric_and_mode(metric)
    name = _metric(records, given)
    lower = _lower_is_better(records, name, mode)
    records.sort(key=lambda run: score_of((run.best(name, lower) or (None,))[0], None, lower), reverse=True)
    different = _different_options(records)
    rows = [_row(run, name, lower, target, different) for run in records]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        _show(rows, name)
    if picture is not None:
        draw_runs(records, [_label(run, different) for run in records], name, picture)


def _metric(runs: Sequence[RunRecord], given: str | None) -> str:
    """Name of the metric. Raises OptionValueError for one that a run does not have."""
    name = given or common_measure(runs)
    if name is None:
        without = next(
            (str(run.path) for run in runs if not run.measures),
            "the runs have no metric in common; give --metric",
        )
        raise OptionValueError(f"compare: {without}{'' if ';' in without else ' has no evaluation yet'}")
    for run in runs:
        if given is not None and name not in run.measures:
            known = ", ".join(run.measures) or "none yet"
            raise OptionValueError(f"--metric: expected one of {run.path}'s ({known}), got {name!r:.60}")
    return name


def _lower_is_better(runs: Sequence[RunRecord], name: str, mode: str | None) -> bool:
    """Direction of the metric: the given one, or what the runs say.

    Raises OptionValueError if they contradict one another.
    """
    said = {run.direction(name): run.path for run in runs if run.direction(name) is not None}
    if mode is None and len(said) > 1:
        raise OptionValueError(
            f"--metric: {said['min']} was trained with {name}:min, {said['max']} with {name}:max; "
            "give one of the two"
        )
    return lower_is_better(name, mode or next(iter(said), None))


def _different_options(runs: Sequence[RunRecord]) -> list[str]:
    """Options in which the runs differ, in the order of the configuration."""
    names = dict.fromkeys(name for run in runs for name in run.options)
    return [
        name
        for name in names
        if name not in NOT_COMPARED
        and any(run.options.get(name) != runs[0].options.get(name) for run in runs)
    ]


def _option(run: RunRecord, name: str) -> Any:
    """Value of an option; a default that depends on the model is read from the first evaluation."""
    value = run.options.get(name)
    return run.records[0].get(name) if value is None and run.records else value


def _row(
    run: RunRecord, name: str, lower: bool, target: float | None, different: Sequence[str]
) -> dict[str, Any]:
    best = run.best(name, lower)
    row: dict[str, Any] = {
        "run": str(run.path),
        **{option: _option(run, option) for option in different},
        name: run.last(name),
        "best": None if best is None else best[0],
        "at_epoch": None if best is None else best[1],
        "epochs": run.last("epoch"),
        "seconds": run.last("seconds"),
        "images_per_second": run.last("images_per_second"),
    }
    if target is not None:
        row["epochs_to_target"] = run.reaches(name, target, "epoch", lower)
        row["seconds_to_target"] = run.reaches(name, target, "seconds", lower)
    return row


def _show(rows: Sequence[dict[str, Any]], metric: str) -> None:
    percent = metric.endswith("accuracy")
    columns = [
        Column(
            name,
            _headline(metric)
            if name == metric
            else name.replace("_", " ").replace("images per second", "examples/s"),
            [_text(name, row[name], percent and name in (metric, "best")) for row in rows],
            is_text=any(isinstance(row[name], str) for row in rows),
        )
        for name in rows[0]
    ]
    show_table(columns, kept=(metric, "best"))


def _headline(metric: str) -> str:
    """Name of the metric that runs are compared by; losses without a split are of training."""
    return "training loss" if metric == "loss" else metric


def _text(name: str, value: Any, percent: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={each}" for key, each in value.items()) or "-"
    if percent:
        return f"{value:.2%}"
    if name == "images_per_second":
        return f"{value:,.0f}"
    return f"{value:.1f}" if name.startswith("seconds") else f"{value:.5g}"


def _label(run: RunRecord, different: Sequence[str]) -> str:
    options = ", ".join(
        f"{name.replace('_', ' ')} {_text(name, _option(run, name), False)}" for name in different[:4]
    )
    return f"{run.path}{f': {options}' if options else ''}"
