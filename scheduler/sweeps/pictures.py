"""Pictures of a sweep: the headline over each swept option, and over the epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from scheduler.sweeps.members import DIVERGED, FINISHED, STOPPED, Member
from scheduler.sweeps.summary import ConfigurationSummary, headline, summaries, value_text
from tensorbow.pictures import BLUE, COLORS, GREY, LIMIT, has_matplotlib, make_logarithmic, new_picture

OPTIONS_PICTURE, CURVES_PICTURE = "options.png", "curves.png"
WIDTH, HEIGHT = 4.0, 3.2  # inches of a panel
MOST_PANELS = 6
MOST_LINES = 6  # configurations with a colour of their own
MOST_VALUES = 24  # of an option that is shown with a median and a band
LEAST_GAP = 0.18  # between labelled values, as a fraction of the axis
MOST_TICKS = 7  # of an axis that has a tick for each value
LONGEST = 24  # characters of a value in a picture


def draw_sweep(
    members: Sequence[Member],
    curves: Sequence[Mapping[str, Any]],
    swept: Sequence[str],
    folder: Path,
    title: str,
) -> list[Path]:
    """Draws options.png, a panel for each swept option, and curves.png; the files' paths.

    curves: records by member and epoch. Draws nothing without matplotlib, or before the first evaluation.
    Raises ResourceExhaustedError for a full disk.
    """
    if not has_matplotlib() or not curves:
        return []
    drawn = [folder / CURVES_PICTURE]
    _draw_curves(members, curves, drawn[0], title)
    if swept:
        drawn.insert(0, folder / OPTIONS_PICTURE)
        _draw_options(members, swept, drawn[0], title)
    return drawn


def _draw_options(members: Sequence[Member], swept: Sequence[str], file: Path, title: str) -> None:
    measure = headline(members)
    shown = [member for member in members if _value(member, measure) is not None]
    names = [*swept][:MOST_PANELS]
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    with new_picture(file, WIDTH * columns, HEIGHT * rows + 0.5) as figure:
        panels = [*figure.subplots(rows, columns, squeeze=False, sharey=True).flat]
        for name, axes in zip(names, panels, strict=False):
            _draw_option(axes, shown, name, measure)
        for unused in panels[len(names) :]:
            unused.set_visible(False)
        handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
        figure.suptitle(title, fontsize=10)


def _draw_option(axes: Any, members: Sequence[Member], name: str, measure: str) -> None:
    different = {member.choices[name] for member in members}
    numeric = all(type(value) in (int, float) for value in different)
    values = sorted(different, key=None if numeric else lambda v: (str(type(v)), v))
    places = {value: value if numeric else index for index, value in enumerate(values)}
    for status, color, label in (
        (STOPPED, GREY, "stopped early"),
        (FINISHED, BLUE, "trained to the end"),
    ):
        own = [member for member in members if member.status == status]
        figures = [_value(member, measure) for member in own]
        if own:
            axes.plot(
                [places[m.choices[name]] for m in own], figures, ".", color=color, alpha=0.45, label=label
            )
    finished = [member for member in members if member.status == FINISHED]
    groups = {value: [_value(m, measure) for m in finished if m.choices[name] == value] for value in values}
    groups = {value: own for value, own in groups.items() if len(own) > 1}  # one member has no median
    if numeric and 1 < len(groups) <= MOST_VALUES:
        x, every = [*groups], [[v for v in own if v is not None] for own in groups.values()]
        axes.fill_between(x, [*map(min, every)], [*map(max, every)], color=BLUE, alpha=0.15, label="range")
        axes.plot(x, [*map(median, every)], "-", color=BLUE, label="median")
    if numeric and values:
        make_logarithmic(axes, "x", values[0], values[-1])
    if not numeric or (len(values) <= MOST_TICKS and _are_apart(values, axes.get_xscale() == "log")):
        axes.set_xticks([*places.values()], [_shown(value) for value in places])
        axes.minorticks_off()
    axes.set_xlabel(name.replace("_", " "))
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel(f"{measure} on validation data")


def _shown(value: Any) -> str:
    """A swept value in a picture: of a long text, as a path, the end."""
    text = value_text(value)
    return text if len(text) <= LONGEST else f"...{text[-LONGEST:]}"


def _are_apart(values: Sequence[float], in_log: bool) -> bool:
    """True if the labels of rising values do not overlap on an axis."""
    places = [*map(math.log, values)] if in_log else [*values]
    least = LEAST_GAP * (places[-1] - places[0])
    return all(after - before >= least for before, after in pairwise(places))


def _draw_curves(
    members: Sequence[Member], curves: Sequence[Mapping[str, Any]], file: Path, title: str
) -> None:
    measure = headline(members)
    by_member: dict[int, dict[int, float]] = {}
    for record in curves:
        if (value := record.get(f"validation_{measure}")) is not None:
            by_member.setdefault(record["member"], {})[record["epoch"]] = value
    ordered = summaries(members)
    with new_picture(file, 7.0, 4.2 + 0.2 * min(len(ordered), MOST_LINES)) as figure:
        axes = figure.add_subplot()
        others, faint = ordered[MOST_LINES:], {"color": GREY, "alpha": 0.3, "linewidth": 0.8}
        for summary in reversed(others):
            x, lines = _joined(summary, by_member)
            axes.plot(x, [median(line) for line in lines], "-", **faint)
        for summary, color in zip(ordered[:MOST_LINES], COLORS, strict=False):
            x, lines = _joined(summary, by_member)
            choices = [f"{name.replace('_', ' ')} {_shown(v)}" for name, v in summary.choices.items()]
            label = ", ".join(choices) or "all members"
            axes.plot(x, [median(line) for line in lines], ".-", color=color, label=label)
            if len(summary.members) > 1:
                axes.fill_between(x, [*map(min, lines)], [*map(max, lines)], color=color, alpha=0.15)
        if others:
            more = f"{len(others)} other configuration{'s' * (len(others) > 1)}"
            axes.plot([], [], "-", label=more, **faint)
        diverged = sum(member.status == DIVERGED for member in members)
        if diverged:
            text = f"{diverged} member{'s' * (diverged > 1)} diverged"
            axes.annotate(text, (0.99, 0.02), xycoords="axes fraction", ha="right", color=LIMIT, fontsize=9)
        if measure == "loss":
            drawn = [v for each in by_member.values() for v in each.values() if math.isfinite(v)]
            make_logarithmic(axes, "y", min(drawn, default=0), max(drawn, default=0))
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        bands = ", bands: range of the seeds" if len(members) > len(ordered) else ""
        axes.set_ylabel(f"{measure} on validation data")
        axes.set_title(f"{title}\nlines: median of each configuration{bands}")
        figure.legend(loc="outside lower center", ncols=1)


def _joined(
    summary: ConfigurationSummary, by_member: Mapping[int, Mapping[int, float]]
) -> tuple[list[int], list[list[float]]]:
    """Epochs, and for each the values of the configuration's members that have come so far."""
    own = [by_member[member.number] for member in summary.members if member.number in by_member]
    epochs = sorted({epoch for line in own for epoch in line})
    return epochs, [[line[epoch] for line in own if epoch in line] for epoch in epochs]


def _value(member: Member, measure: str) -> float | None:
    value = member.figures.get(f"validation_{measure}")
    return value if value is not None and math.isfinite(value) and member.status != DIVERGED else None
