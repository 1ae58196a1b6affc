"""Rates of many training settings, measured in turn, as rows of a result and as lines of a picture."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments import TITLES
from harness import Window, interleave, save
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
    """Training setting. replicas: on each device. devices: number of virtual CPU devices."""

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
        where = "" if self.devices == 1 else f" on each of {self.devices} virtual devices"
        return f"{TITLES[self.model]} b={self.batch_size}, {self.replicas} replicas{where}, {self.method}"


def measure(
    settings: Iterable[Setting], seconds: float, windows: int, others: Mapping[str, Window] | None = None
) -> list[Row]:
    """Row for each setting: its fields, images per second (median, spread, all windows), ms per round.

    others: peers by name, whose rows have only `method`, the name, and images per second. All settings and
    peers run in turn, so that they can be compared with each other.
    """
    others = others or {}
    with ExitStack() as engines:
        contestants = {
            setting: engines.enter_context(
                training_window(
                    setting.model,
                    setting.batch_size,
                    setting.replicas,
                    sync=setting.sync,
                    tau=setting.tau,
                    devices=tuple(f"/cpu:{index}" for index in range(setting.devices)),
                )
            )
            for setting in settings
        }
        names = {setting.label: setting for setting in contestants}
        ours = {name: contestants[names[name]] for name in names}
        measured = interleave({**ours, **others}, seconds, windows)
    rows: list[Row] = []
    for name, rates in measured.items():
        print(f"{name}: {rates.median:,.0f} images/s", flush=True)
        if name in others:
            rows.append({"method": name, "images_per_second": rates.as_json()})
            continue
        setting = names[name]
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
