"""Curves of training runs: reading what their folders recorded, pictures of one run and of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from scheduler.training.callbacks import lower_is_better
from scheduler.training.config_file import read_config_file
from scheduler.training.run_folder import CONFIG, METRICS
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.pictures import COLORS, GREY, has_matplotlib, new_picture
from tensorbow.training import read_metrics

PICTURE = "curves.png"
# Figures of a record that are no measure of the model's quality.
OTHERS = {
    *("round", "epoch", "seconds", "images", "images_per_second", "learning_rate", "alpha", "replicas"),
    *("skipped_updates", "test_accuracies", "devices"),
}
TEST = ("test_", "validation_", "ema_")  # prefixes of what an evaluation measures
LABELS = ("training", "test", "validation", "ema")
WIDTH, HEIGHT = 4.0, 3.0  # inches of a panel
MOST_PANELS = 6


@dataclass(frozen=True)
class RunRecord:
    """Record of a run, read from its folder: options by name, and a record for each evaluation, in order."""

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
                raise NotFoundError(
                    f"{folder} is no folder of a run: it has no {name}; give one that `train` wrote"
                )
        try:
            options = read_config_file(folder / CONFIG)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{folder / CONFIG}: {error}") from None
        return cls(folder, options, read_metrics(folder / METRICS))

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

    def best(self, name: str) -> tuple[float, float] | None:
        """The best value of a measure, and the epoch of the first evaluation with it; None without one."""
        epochs, values = self.curve("epoch", name)
        if not values:
            return None
        best = min(values) if lower_is_better(name) else max(values)
        return best, epochs[values.index(best)]

    def reaches(self, name: str, target: float, x: str) -> float | None:
        """Value of figure `x` at the first evaluation at which a measure is as good as `target`, or None."""
        places, values = self.curve(x, name)
        less = lower_is_better(name)
        reached = (p for p, v in zip(places, values, strict=True) if (v <= target if less else v >= target))
        return next(reached, None)


def headline(runs: Sequence[RunRecord]) -> str | None:
    """The measure to compare runs by: an accuracy if all have it, else one of evaluations that all have."""
    common = [name for name in runs[0].measures if all(name in run.measures for run in runs)]
    wanted = [name for name in ("test_accuracy", "validation_accuracy", "test_loss") if name in common]
    return next(iter([*wanted, *(name for name in common if name.startswith(TEST)), *common]), None)


def draw_run(path: str | Path) -> Path | None:
    """Draws the curves of a run to the file curves.png of its folder; the file's path.

    A panel for each measure, with its values on training and test data, over epochs, and one for a learning
    rate that changes. None, and no file, without matplotlib or before the first evaluation.
    Raises as `RunRecord.read`, and ResourceExhaustedError for a full disk.
    """
    run = RunRecord.read(path)
    if not run.measures or not has_matplotlib():
        return None
    families: dict[str, list[str]] = {}  # by the name without its prefix
    for name in run.measures:
        prefix = next((each for each in TEST if name.startswith(each)), "")
        families.setdefault(name.removeprefix(prefix), []).append(name)
    panels: list[tuple[str, list[str]]] = [*families.items()][:MOST_PANELS]
    if len(set(run.curve("epoch", "learning_rate")[1])) > 1:
        panels = [*panels[: MOST_PANELS - 1], ("learning_rate", ["learning_rate"])]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with new_picture(run.path / PICTURE, WIDTH * columns, HEIGHT * rows + 0.3) as figure:
        every = [*figure.subplots(rows, columns, squeeze=False).flat]
        for (family, names), axes in zip(panels, every, strict=False):
            for name in names:
                prefix = next((each.rstrip("_") for each in TEST if name.startswith(each)), "training")
                label = "moving average of z" if prefix == "ema" else prefix
                rate = name == "learning_rate"
                color = GREY if rate else COLORS[LABELS.index(prefix)]
                axes.plot(*run.curve("epoch", name), ".-", label=None if rate else label, color=color)
            _finish(axes, "epoch", family.replace("_", " "))
        for unused in every[len(panels) :]:
            unused.set_visible(False)
        figure.suptitle(describe(run), fontsize=10)
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
    if x == "epoch" and axes.get_xlim()[1] > 2:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(y)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
