"""Pictures in one style, drawn with matplotlib: colours, fonts and grid; files are whole or not there."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorbow.errors import FailedPreconditionError
from tensorbow.files import write_file

FORMATS = ("png", "svg", "pdf")
BLUE, ORANGE, GREEN, PURPLE, GOLD, TEAL = "#1f5fa8", "#d9622b", "#2f8f4e", "#7d4fa0", "#b8860b", "#3a9a9a"
GREY, LIMIT, GRID = "#8a8a8a", "#b03030", "#e3e3e3"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, GOLD, TEAL, "#c2506e", "#5b6770")
"""Colours of lines and bars, in this order; told apart also by those who do not see red or green."""

FEW_DECADES, MANY = 100.0, (1.0, 2.0, 5.0)  # below this ratio of values, their ticks in a decade
WIDE = 10.0  # ratio of two values from which on an axis is logarithmic


def has_matplotlib() -> bool:
    """True if pictures can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def require_matplotlib(who: str) -> None:
    """Raises FailedPreconditionError without matplotlib. who: what asks for a picture, such as an option."""
    if not has_matplotlib():
        raise FailedPreconditionError(
            f"{who}: drawing needs matplotlib; pip install 'tensorbow[plot]', or leave it out"
        )


@contextmanager
def styled_figure(width: float, height: float) -> Iterator[Any]:
    """Gives an empty matplotlib Figure of so many inches, and draws in the house style as long as it is open.

    Axes have no upper and right border and a light grid; lines and bars take `COLORS` by themselves.
    """
    from matplotlib import rc_context, rcsetup
    from matplotlib.figure import Figure

    style: Any = {
        "axes.prop_cycle": rcsetup.cycler(color=COLORS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "axes.labelsize": 10,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "figure.titlesize": 11,
        "figure.constrained_layout.w_pad": 0.06,
        "figure.constrained_layout.h_pad": 0.06,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": 1.6,
        "font.family": "sans-serif",
        "font.size": 10,
        "svg.hashsalt": "tensorbow",
    }
    with rc_context(style):
        yield Figure(figsize=(width, height), layout="constrained")


@contextmanager
def new_picture(
    path: Path, width: float = 7.0, height: float = 4.2, dots_per_inch: int = 150
) -> Iterator[Any]:
    """Gives an empty Figure as of `styled_figure` to draw in; then writes it to a file.

    path: a file that ends in one of FORMATS.
    Raises FailedPreconditionError without matplotlib, ResourceExhaustedError for a full disk.
    """
    require_matplotlib(str(path))
    with styled_figure(width, height) as figure:
        yield figure
        blob = encoded(figure, path.suffix.lower().removeprefix("."), dots_per_inch)
    write_file(path, blob)


def make_logarithmic(axes: Any, which: str, low: float, high: float) -> None:
    """Makes an axis, `x` or `y`, logarithmic, with plain numbers, as 0.5, if its values differ `WIDE` times.

    low, high: of the values; of a narrower range an axis stays as it is, since a logarithmic one would have
    hardly a label there.
    """
    from matplotlib.ticker import NullLocator

    if not 0 < low * WIDE <= high:
        return
    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.get_major_locator().set_params(subs=MANY if high / low < FEW_DECADES else (1.0,))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def encoded(figure: Any, format: str, dots_per_inch: int) -> bytes:
    """Content of a picture file; within `styled_figure`. format: one of FORMATS."""
    blob = io.BytesIO()
    figure.savefig(blob, format=format, dpi=dots_per_inch)
    return blob.getvalue()
