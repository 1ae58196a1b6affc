"""Rates of many training settings, measured in turn, as rows of a result and as lines of a picture."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments import TITLES
from harness import CPU, Measured, Window, interleave, is_gpu, save
from ours import training_window
from results_page import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
COLOURS = ("#1f5fa8", "#d9622b", "#3a8f4d", "#7b4fa3", "#8a8a8a")
GRID = "#e3e3e3"
VIRTUAL = "Virtual CPU devices are threads of the same cores: more of them bring no more hardware."


@dataclass(frozen=True)
class Setting:
    """Training setting. replicas: on each device. devices: how many, of those of `measure`."""

    model: str
    batch_size: int
    replicas: int
    sync: str = "sma"
    tau: int = 1
    devices: int = 1

    @property
    def method(self) -> str:
        """Name of the synchronisation method; `one replica` for a replica alone."""
        if self.replicas * self.devices == 1:
            return "one replica"
        return f"{self.sync}, tau {self.tau}" if self.sync == "sma" else self.sync

    @property
    def label(self) -> str:
        """Text of the whole setting."""
        where = "" if self.devices == 1 else f" on each of {self.devices} devices"
        return f"{TITLES[self.model]} b={self.batch_size}, {self.replicas} replicas{where}, {self.method}"


def measure(
    settings: Iterable[Setting],
    seconds: float,
    windows: int,
    others: Mapping[str, Window] | None = None,
    names: Sequence[str] = (),
    replica_mode: str | None = None,
) -> list[Row]:
    """Row for each setting: its fields, images per second (median, spread, all windows), ms per round.

    others: peers by name, whose rows have only `method`, the name, and images per second. All settings and
    peers run in turn, so that they can be compared with each other. names: devices; by default virtual CPU
    devices, as many as a setting asks for. replica_mode: of `tb.Synchronisation`, by default its own.
    """
    others = others or {}
    if not names or names == CPU:
        settings = list(settings)
        names = [f"/cpu:{index}" for index in range(max((s.devices for s in settings), default=1))]
    with ExitStack() as engines:
        contestants = {
            setting: engines.enter_context(
                training_window(
                    setting.model,
                    setting.batch_size,
                    setting.replicas,
                    sync=setting.sync,
                    tau=setting.tau,
                    devices=tuple(names[: setting.devices]),
                    data_on_device="always" if is_gpu(names[0]) else "auto",
                    synchronisation={} if replica_mode is None else {"replica_mode": replica_mode},
                )
            )
            for setting in settings
        }
        by_label = {setting.label: setting for setting in contestants}
        ours = {label: contestants[setting] for label, setting in by_label.items()}
        measured = interleave({**ours, **others}, seconds, windows)
    rows: list[Row] = []
    for name, rates in measured.items():
        print(f"{name}: {rates.median:,.0f} images/s", flush=True)
        if name in others:
            rows.append({"method": name, "images_per_second": rates.as_json()})
            continue
        setting = by_label[name]
        images = setting.batch_size * setting.replicas * setting.devices
        rows.append(
            {
                **vars(setting),
                "method": setting.method,
                "images_per_second": rates.as_json(),
                "ms_per_round": float(f"{1e3 * images / rates.median:.5g}"),
            }
        )
    return rows


def where(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `measure` for devices and replica mode."""
    return {"names": options.devices, "replica_mode": options.replica_mode}


def measure_runs(settings: Sequence[Setting], seconds: float, runs: int, **devices: Any) -> list[Row]:
    """Rows as of `measure`, with a sample for each of several runs: engines of their own, made anew.

    devices: see `where`.
    """
    found: dict[str, Row] = {}
    for number in range(runs):
        for row in measure(settings, seconds, 1, **devices):
            first = found.setdefault(
                f"{row['model']} {row['method']} {row['replicas']} {row['devices']}", row
            )
            if number:
                first["images_per_second"]["samples"] += row["images_per_second"]["samples"]
    for row in found.values():
        row["images_per_second"] = Measured(row["images_per_second"]["samples"]).as_json()
        images = row["batch_size"] * row["replicas"] * row["devices"]
        row["ms_per_round"] = float(f"{1e3 * images / row['images_per_second']['median']:.5g}")
    return list(found.values())


def draw_boxes(axes: Axes, rows: Sequence[Row], x: str) -> None:
    """Draws a box for each row over its field `x`: quartiles and median of the runs; whiskers to 1.5 of their
    distance.
    """
    axes.boxplot(
        [row["images_per_second"]["samples"] for row in rows],
        positions=[row[x] for row in rows],
        widths=0.5,
        patch_artist=True,
        boxprops={"facecolor": "#b9cbe0", "edgecolor": COLOURS[0]},
        medianprops={"color": COLOURS[1], "linewidth": 1.5},
        whiskerprops={"color": COLOURS[0]},
        capprops={"color": COLOURS[0]},
        flierprops={"marker": "o", "markersize": 3, "markeredgecolor": COLOURS[0]},
    )


def draw_bars(
    axes: Axes, rows: Sequence[Row], x: str, series: Callable[[Row], str], colours: Sequence[str] = COLOURS
) -> None:
    """Draws groups of bars over the field `x`, one for each series: medians, and the range of the windows."""
    names, places = list(dict.fromkeys(map(series, rows))), sorted({row[x] for row in rows})
    width = 0.8 / len(names)
    for number, (name, colour) in enumerate(zip(names, colours, strict=False)):
        line = [row for row in rows if series(row) == name]
        samples = [row["images_per_second"]["samples"] for row in line]
        middles = [statistics.median(values) for values in samples]
        below = [middle - min(values) for middle, values in zip(middles, samples, strict=True)]
        above = [max(values) - middle for middle, values in zip(middles, samples, strict=True)]
        at = [places.index(row[x]) + width * (number - (len(names) - 1) / 2) for row in line]
        style = {"capsize": 3, "error_kw": {"elinewidth": 1}}
        axes.bar(at, middles, 0.92 * width, yerr=(below, above), color=colour, label=name, **style)
    axes.set_xticks(range(len(places)), [str(place) for place in places])


def draw_baseline(axes: Axes, value: float, label: str) -> None:
    """Draws a horizontal line at a value of the thesis, or of a contestant that does not depend on x."""
    axes.axhline(value, color="#b03030", linestyle=":", linewidth=1.3, label=label)


def draw_lines(
    axes: Axes,
    rows: Sequence[Row],
    x: str,
    series: Callable[[Row], str],
    value: Callable[[Row, float], float] = lambda row, rate: rate,
) -> None:
    """Draws a line for each series of rows over their field `x`: medians, and the range of the windows.

    value: drawn value of a row and one of its rates in images per second.
    """
    for name, colour in zip(dict.fromkeys(map(series, rows)), COLOURS, strict=False):
        line = [row for row in rows if series(row) == name]
        samples = [[value(row, rate) for rate in row["images_per_second"]["samples"]] for row in line]
        middles = [statistics.median(values) for values in samples]
        ranges = (
            [middle - min(values) for middle, values in zip(middles, samples, strict=True)],
            [max(values) - middle for middle, values in zip(middles, samples, strict=True)],
        )
        places = [row[x] for row in line]
        style = {"marker": "o", "markersize": 4, "capsize": 3, "elinewidth": 1}
        axes.errorbar(places, middles, ranges, color=colour, label=name, **style)


def finish_axes(axes: Axes, title: str, x: str, y: str, ticks: Sequence[int] | None = None) -> None:
    """Sets title, axis names with units, ticks, grid, and commas for thousands; linear values start at 0."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if ticks is not None:
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda number, _: f"{number:,.10g}")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def finish_figure(figure: Figure, title: str, width: float, height: float) -> None:
    """Sets the size in inches, wide enough for the title, and one legend below for the lines of all axes."""
    figure.set_size_inches(max(width, 0.085 * len(title)), height)
    figure.suptitle(title, fontsize=11)
    shown: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    inches = 0.6 + 0.075 * max(map(len, shown))  # of one entry
    columns = max(1, min(len(shown), int(figure.get_figwidth() / inches)))
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )


def save_panels(
    options: argparse.Namespace,
    name: str,
    panels: Sequence[Sequence[Row]],
    windows: tuple[float, int],
    table: Callable[[dict[str, Any]], Table],
    draw: Callable[[Figure], None],
) -> None:
    """Writes the result of an experiment with several panels. windows: their seconds and count."""
    rows = [row for panel in panels for row in panel]
    details = {"seconds_per_window": windows[0], "windows": windows[1], "rows": rows}
    save(options, name, details, table(details), draw)
