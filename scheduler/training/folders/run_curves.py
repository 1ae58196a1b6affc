"""Curves of training runs: reading what their folders recorded, pictures of one run and of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any

from scheduler.training.configuration.config import completed
from scheduler.training.configuration.config_file import read_config_file
from scheduler.training.configuration.option_kinds import metric_and_mode
from scheduler.training.folders.output_folders import folders_below
from scheduler.training.folders.run_folder import CONFIG, METRICS
from scheduler.training.measures.metric_order import SPLITS, loss_beside, lower_is_better, score_of, split_of
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.pictures import COLORS, GREY, has_matplotlib, new_picture
from tensorbow.training import read_metrics

PICTURE = "curves.png"
LOSS = "loss"
# Figures of a record that are no measure of the model's quality.
OTHERS = {
    *("round", "epoch", "seconds", "images", "images_per_second", "learning_rate", "alpha", "replicas"),
    *("skipped_updates", "test_accuracies", "devices"),
}
LABELS = ("training", "test", "validation", "ema")
WIDTH, HEIGHT = 4.0, 3.0  # inches of a panel
LINE = 50  # characters of a title above a panel
MOST_PANELS = 6


@dataclass(frozen=True)
class RunRecord:
    """Record of a run, read from its folder: options by name, and a record for each evaluation, in order.

    Options that the run's version did not have yet have their defaults.
    """

    path: Path
    options: dict[str, Any]
    records: list[dict[str, Any]]

    @classmethod
    def read(cls, path: str | Path) -> RunRecord:
        """Reads the folder of a run, also one that is going on.

        Raises NotFoundError for a path that is no run's folder, InvalidArgumentError for an unusable
        configuration.
        """
        folder = Path(path)
        for name in (CONFIG, METRICS):
            if not (folder / name).is_file():
                runs = folders_below(folder, METRICS)
                remedy = f", such as {runs}" if runs else ""
                raise NotFoundError(
                    f"{folder} is no folder of a run: it has no {name}; give one that `train` wrote{remedy}"
                )
        try:
            options = read_config_file(folder / CONFIG)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{folder / CONFIG}: {error}") from None
        return cls(folder, completed(options), read_metrics(folder / METRICS))

    @property
    def measures(self) -> list[str]:
        """Names of the numbers that tell the model's quality, such as loss and test_accuracy, as recorded."""
        names = dict.fromkeys(name for record in self.records for name in record)
        return [name for name in names if name not in OTHERS and self.curve("epoch", name)[1]]

    def curve(self, x: str, y: str) -> tuple[list[float], list[float]]:
        """Values of two figures at the evaluations that have both."""
        points = [
            (record[x], record[y])
            for record in self.records
            if _is_number(record.get(x)) and _is_number(record.get(y))
        ]
        return [point[0] for point in points], [point[1] for point in points]

    def last(self, name: str) -> float | None:
        """The last value of a figure, None without one."""
        values = self.curve("round", name)[1]
        return values[-1] if values else None

    def direction(self, name: str) -> str | None:
        """Mode `min` or `max` that the run's options give for a measure, on any split; None without one."""
        best, stopping = self.options.get("best_metric"), self.options.get("early_stopping")
        given = [metric_and_mode(best)] if isinstance(best, str) else []
        if isinstance(stopping, list) and len(stopping) == 4:
            given.append((stopping[0], stopping[3]))
        figure = name.removeprefix(split_of(name))
        modes = (mode for metric, mode in given if metric.removeprefix(split_of(metric)) == figure)
        return next(filter(None, modes), None)

    def best(self, name: str, lower: bool) -> tuple[float, float] | None:
        """The best value of a measure, in the order of `score_of`, and its epoch; None without one."""
        found = [
            record
            for record in self.records
            if _is_number(record.get(name)) and _is_number(record.get("epoch"))
        ]
        if not found:
            return None
        best = max(found, key=lambda record: score_of(record[name], record.get(loss_beside(name)), lower))
        return best[name], best["epoch"]

    @property
    def best_epoch(self) -> float | None:
        """Epoch of the best evaluation, by which the best checkpoint is chosen; None without one."""
        chosen = self.options.get("best_metric")
        usual = [f"{split}_{figure}" for figure in ("accuracy", "loss") for split in ("validation", "test")]
        names = [metric_and_mode(chosen)[0]] if isinstance(chosen, str) else usual
        name = next((name for name in names if name in self.measures), None)
        best = None if name is None else self.best(name, lower_is_better(name, self.direction(name)))
        return None if best is None else best[1]

    def reaches(self, name: str, target: float, x: str, lower: bool) -> float | None:
        """Value of figure `x` at the first evaluation at which a measure is as good as `target`, or None."""
        at, values = self.curve(x, name)
        reached = (p for p, v in zip(at, values, strict=True) if (v <= target if lower else v >= target))
        return next(reached, None)


def common_measure(runs: Sequence[RunRecord]) -> str | None:
    """The measure to compare runs by: the `best_metric` of all, an accuracy, or one of evaluations."""
    chosen = {run.options.get("best_metric") for run in runs}
    by_option = [metric_and_mode(name)[0] for name in chosen if isinstance(name, str) and len(chosen) == 1]
    common = [name for name in runs[0].measures if all(name in run.measures for run in runs)]
    usual = [*by_option, "test_accuracy", "validation_accuracy", "test_loss"]
    wanted = [name for name in usual if name in common]
    return next(iter([*wanted, *(name for name in common if name.startswith(SPLITS)), *common]), None)


def draw_run(path: str | Path) -> Path | None:
    """Draws the curves of a run to the file curves.png of its folder; the file's path.

    A panel for each measure, with its values on training and test data, over epochs, and one for a learning
    rate that changes; a line at the best evaluation. None, and no file, without matplotlib or before the
    first evaluation.
    Raises as `RunRecord.read`, and ResourceExhaustedError for a full disk.
    """
    run = RunRecord.read(path)
    if not run.measures or not has_matplotlib():
        return None
    families: dict[str, list[str]] = {}  # by the name without its prefix
    for name in run.measures:
        families.setdefault(name.removeprefix(split_of(name)), []).append(name)
    same = [name for name in families if name != LOSS and _is_loss(run, name, families[name])]
    panels: list[tuple[str, list[str]]] = [f for f in families.items() if f[0] not in same][:MOST_PANELS]
    if len(set(run.curve("epoch", "learning_rate")[1])) > 1:
        panels = [*panels[: MOST_PANELS - 1], ("learning_rate", ["learning_rate"])]
    best = run.best_epoch
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with new_picture(run.path / PICTURE, WIDTH * columns, HEIGHT * rows + 0.3) as figure:
        every = [*figure.subplots(rows, columns, squeeze=False).flat]
        for (family, names), axes in zip(panels, every, strict=False):
            for name in names:
                prefix = split_of(name).rstrip("_") or "training"
                label = "moving average of z" if prefix == "ema" else prefix
                rate = name == "learning_rate"
                color = GREY if rate else COLORS[LABELS.index(prefix)]
                axes.plot(*run.curve("epoch", name), ".-", label=None if rate else label, color=color)
            if best is not None:
                axes.axvline(best, label="best evaluation", color=COLORS[-1], linestyle="--", linewidth=1.2)
            title = " = ".join([family, *same]) if family == LOSS else family
            _finish(axes, "epoch", title.replace("_", " "))
        for unused in every[len(panels) :]:
            unused.set_visible(False)
        figure.suptitle("\n".join(wrap(describe(run), LINE * columns)), fontsize=10)
    return run.path / PICTURE


def draw_runs(runs: Sequence[RunRecord], labels: Sequence[str], measure: str, file: Path) -> None:
    """Draws a measure of several runs over epochs and over seconds of training.

    Raises FailedPreconditionError without matplotlib, ResourceExhaustedError for a full disk.
    """
    styles = [style for style in ("-", "--", ":", "-.") for _ in COLORS]
    with new_picture(file, 2 * WIDTH, HEIGHT + 0.25 * len(runs)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, x, title in zip(
            panels, ("epoch", "seconds"), ("epoch", "seconds of training"), strict=True
        ):
            for run, label, style in zip(runs, labels, cycle(styles), strict=False):
                axes.plot(*run.curve(x, measure), f".{style}", label=label)
            _finish(axes, title, measure.replace("_", " ") if x == "epoch" else "", legend=False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=1)


def describe(run: RunRecord) -> str:
    """One line about a run: model, data, synchronisation, replicas, devices and batch size."""
    options = run.options
    replicas = options.get("replicas_per_device")
    devices = options.get("devices") or []
    data = options.get("data") or options.get("dataset")
    return (
        f"{options.get('model')} on {data}, {options.get('sync')}, {replicas} replicas on "
        f"{', '.join(devices)}, batch {options.get('batch_size')}"
    )


def _finish(axes: Any, x: str, y: str, legend: bool = True) -> None:
    axes.set_xlabel(x)
    if x == "epoch":
        axes.set_xlim(left=0)
    if x == "epoch" and axes.get_xlim()[1] > 2:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(y)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=True, framealpha=0.9, edgecolor="none")  # above the line of the best evaluation


def _is_loss(run: RunRecord, measure: str, names: Sequence[str]) -> bool:
    """True for an error that is the loss itself, on all data that have it, as the squared error may be."""
    pairs = [(run.curve("epoch", name), run.curve("epoch", split_of(name) + LOSS)) for name in names]
    return lower_is_better(measure) and all(one == other for one, other in pairs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
