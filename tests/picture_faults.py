"""Faults of a matplotlib figure that a reader would see: texts too small, cut off, or over one another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

PAGE_WIDTH, LEAST_HEIGHT = 800, 11  # pixels of a picture on a page, and of a text's em there


def faults(figure: Any) -> list[str]:
    """Texts of a figure that are too small, cut off, or cover one another."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    scale = PAGE_WIDTH / max(figure.bbox.width, 8.0 * figure.dpi)
    boxes, found, hidden = [], [], _texts_of_ticks_not_drawn(figure)
    for text in figure.findobj(Text):
        if not text.get_visible() or not text.get_text().strip() or text in hidden:
            continue
        box = text.get_window_extent()
        if text.get_fontsize() * figure.dpi / 72 * scale < LEAST_HEIGHT:
            found.append(f"{text.get_text()!r} is too small")
        if min(box.x0, box.y0) < -2 or box.x1 > figure.bbox.width + 2 or box.y1 > figure.bbox.height + 2:
            found.append(f"{text.get_text()!r} is cut off")
        if text.get_rotation() in (0, 90):  # a slanted text does not fill its box
            boxes.append((text.get_text(), box.padded(-1)))
    for (one, first), (other, second) in combinations(boxes, 2):
        if first.overlaps(second):
            found.append(f"{one!r} covers {other!r}")
    return found


def _texts_of_ticks_not_drawn(figure: Any) -> set[Any]:
    """Texts of left-over ticks, of those beyond the ends of an axis, and of axes that are not shown."""
    found = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = {*axis.get_major_ticks(), *axis.get_minor_ticks()} if axes.get_visible() else set()
            drawn = {tick for tick in ticks if low <= tick.get_loc() <= high}
            for tick in {*axis.majorTicks, *axis.minorTicks} - drawn:
                found |= {tick.label1, tick.label2}
    return found
