"""Pictures of results in the style of `tensorbow.pictures`: colours of contestants, lines, bars, legends.

A script's `draw(figure, result)` fills an empty figure from a result as its JSON file holds it, so that
`redraw.py` can draw stored results. All pictures have the same width, and no text is smaller than 8 points:
it has 11 pixels where a page shows the picture 800 pixels wide.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensorbow.pictures import BLUE, COLORS, GOLD, GREEN, GREY, LIMIT, ORANGE, PURPLE, TEAL, new_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Result = dict[str, Any]
WIDTH, HEIGHT = 8.0, 4.5  # inches
SMALLEST = 8  # points
RANGES = "points and bars: medians; thin lines: from the slowest to the fastest window"


def lighter(colour: str, white: float) -> str:
    """Colour #rrggbb mixed with a share of white."""
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(value + (255 - value) * white):02x}" for value in channels)


CONTESTANTS = {"TensorBow": BLUE, "PyTorch": ORANGE, "JAX": GREEN, "thesis": GREY}
SYNCHRONISERS = {"sma": BLUE, "ssgd": PURPLE, "easgd": GOLD, "none": TEAL, "diloco": COLORS[6]}
SIZES = (BLUE, GOLD, TEAL, PURPLE, *COLORS[6:])  # of batch sizes, and of others that are no contestants
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}  # titles; others are called by their names
MODELS = {"logreg": PURPLE, "lenet": BLUE, "resnet32": GOLD}


PHASES = {  # of a round
    "step": BLUE,
    "inputs": lighter(BLUE, 0.55),
    "averaging": GOLD,
    "scheduler": TEAL,
    "waiting": lighter(GREY, 0.6),
}


class Series(NamedTuple):
    """Rows of a picture that are drawn alike."""

    label: str
    colour: str
    style: str = "-"


class NotDrawableError(Exception):
    """Result that lacks data of its picture."""


def write_picture(draw: Callable[[Figure, Result], None], result: Result, path: Path) -> None:
    """Draws a result to a file. Raises NotDrawableError, and as `new_picture`."""
    with new_picture(path, WIDTH, HEIGHT) as figure:
        draw(figure, result)


def data_title(name: str) -> str:
    """Title of a data set."""
    return DATASETS.get(name, name)


def contestant_colour(name: str) -> str:
    """Colour of the contestant that the first word of a name names."""
    return CONTESTANTS[name.split()[0].rstrip(",")]


def shades(colour: str, count: int) -> list[str]:
    """Shades of a colour, for ordered values: from a light one to the colour itself."""
    return [lighter(colour, 0.65 * (1 - (number + 1) / count)) for number in range(count)]


def grouped(rows: Sequence[Row], *keys: str) -> list[list[Row]]:
    """Rows with equal values of these keys together, in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())


def grid_of(figure: Figure, count: int, columns: int) -> list[Axes]:
    """So many axes in rows of at most `columns`."""
    columns = min(columns, count)
    lines = -(-count // columns)
    return [figure.add_subplot(lines, columns, place) for place in range(1, count + 1)]


def _medians(
    rows: Sequence[Row], value: Callable[[Row, float], float] = lambda row, rate: rate
) -> tuple[list[float], tuple[list[float], list[float]]]:
    """Median of each row's windows, and its distances from the slowest and the fastest one."""
    samples = [[value(row, rate) for rate in row["images_per_second"]["samples"]] for row in rows]
    middles = [statistics.median(values) for values in samples]
    below = [middle - min(values) for middle, values in zip(middles, samples, strict=True)]
    above = [max(values) - middle for middle, values in zip(middles, samples, strict=True)]
    return middles, (below, above)


def draw_lines(
    axes: Axes,
    rows: Sequence[Row],
    x: str,
    series: Callable[[Row], Series],
    value: Callable[[Row, float], float] = lambda row, rate: rate,
) -> None:
    """Draws a line for each series of rows over their field `x`: medians, and the range of the windows.

    value: drawn value of a row and one of its rates in images per second.
    """
    for each in dict.fromkeys(map(series, rows)):
        line = [row for row in rows if series(row) == each]
        middles, ranges = _medians(line, value)
        style = {"marker": "o", "markersize": 4, "capsize": 2.5, "elinewidth": 1, "linestyle": each.style}
        axes.errorbar([row[x] for row in line], middles, ranges, color=each.colour, label=each.label, **style)


def draw_bars(axes: Axes, rows: Sequence[Row], x: str, series: Callable[[Row], Series]) -> None:
    """Draws groups of bars over the field `x`, one for each series: medians, and the range of the windows."""
    kinds, places = list(dict.fromkeys(map(series, rows))), sorted({row[x] for row in rows})
    width = 0.8 / len(kinds)
    for number, each in enumerate(kinds):
        line = [row for row in rows if series(row) == each]
        middles, ranges = _medians(line)
        at = [places.index(row[x]) + width * (number - (len(kinds) - 1) / 2) for row in line]
        style = {"capsize": 2.5, "error_kw": {"elinewidth": 1}}
        axes.bar(at, middles, 0.92 * width, yerr=ranges, color=each.colour, label=each.label, **style)
    axes.set_xticks(range(len(places)), [str(place) for place in places])


def draw_contestants(axes: Axes, rates: Mapping[str, Mapping[str, Any]], label: Callable[[str], str]) -> None:
    """Draws a horizontal bar for each contestant, the fastest at the top: median and range of its windows.

    rates: by name, as `harness.Measured.as_json` gives them. label: text of a name.
    """
    names = sorted(rates, key=lambda name: -rates[name]["median"])
    middles, ranges = _medians([{"images_per_second": rates[name]} for name in names])
    for contestant in dict.fromkeys(name.split()[0] for name in names):
        at = [place for place, name in enumerate(names) if name.split()[0] == contestant]
        axes.barh(at, [middles[place] for place in at], color=CONTESTANTS[contestant], label=contestant)
    style = {"linewidth": 0, "elinewidth": 1, "ecolor": "0.25", "capsize": 2}
    axes.errorbar(middles, range(len(names)), xerr=ranges, **style)
    axes.set_yticks(range(len(names)), [label(name) for name in names], fontsize=SMALLEST)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(_tick)
    axes.locator_params(axis="x", nbins=5)
    axes.grid(visible=False, axis="y")


def draw_boxes(axes: Axes, rows: Sequence[Row], x: str) -> None:
    """Draws a box for each row over its field `x`: quartiles and median of the runs; whiskers to 1.5 of their
    distance.
    """
    axes.boxplot(
        [row["images_per_second"]["samples"] for row in rows],
        positions=[row[x] for row in rows],
        widths=0.5,
        patch_artist=True,
        boxprops={"facecolor": lighter(BLUE, 0.7), "edgecolor": BLUE},
        medianprops={"color": ORANGE, "linewidth": 1.5},
        whiskerprops={"color": BLUE},
        capprops={"color": BLUE},
        flierprops={"marker": "o", "markersize": 3, "markeredgecolor": BLUE},
    )
    axes.set_ylim(top=1.06 * axes.get_ylim()[1])


def draw_seeds(axes: Axes, x: float, values: Sequence[float | None], colour: str, label: str = "") -> None:
    """Draws a dot for each seed, and says how many missed the target (None)."""
    reached = [value for value in values if value is not None]
    axes.plot(
        [x] * len(reached), reached, "o", color=colour, markersize=4.5, markeredgecolor="white",
        markeredgewidth=0.6, zorder=3, label=label or None,
    )  # fmt: skip
    missed = len(values) - len(reached)
    if missed:
        text = f"{missed} of {len(values)}\nmissed" if reached else "not\nreached"
        place = {"ha": "center", "va": "top", "fontsize": SMALLEST, "color": LIMIT}
        axes.annotate(text, (x, 0.99), xycoords=("data", "axes fraction"), **place)


def draw_limit(axes: Axes, value: float, label: str) -> None:
    """Draws a horizontal line at a limit or a target."""
    axes.axhline(value, color=LIMIT, linestyle="--", linewidth=1.2, label=label)


def draw_baseline(axes: Axes, value: float, label: str, contestant: str) -> None:
    """Draws a horizontal line at the value of a contestant that does not depend on x."""
    axes.axhline(value, color=CONTESTANTS[contestant], linestyle=":", linewidth=1.8, label=label)


def _tick(number: float, place: int | None) -> str:
    """Text of a number at an axis: 2,500 or 2.5M."""
    return f"{number / 1e6:,.10g}M" if abs(number) >= 1e6 else f"{number:,.10g}"


def finish_axes(axes: Axes, title: str, x: str, y: str, ticks: Sequence[int] | None = None) -> None:
    """Sets title, axis names with units, ticks, grid, and texts of numbers; linear values start at 0."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_title(title)
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
    axes.yaxis.set_major_formatter(_tick)
    axes.grid(visible=False, axis="x")


def finish_figure(figure: Figure, title: str, height: float, note: str = "", width: float = WIDTH) -> None:
    """Sets the size in inches, the title, and one legend below for all axes, under a note."""
    figure.set_size_inches(width, height)
    figure.suptitle(title)
    shown: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    inches = 0.55 + 0.068 * max(map(len, shown), default=0)  # of one entry
    columns = max(1, min(len(shown), int(figure.get_figwidth() / inches)))
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=-(-len(shown) // -(-len(shown) // columns)) if shown else 1,
        title=note or None,
        title_fontsize=SMALLEST + 0.5,
    )
