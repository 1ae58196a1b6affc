"""Draws the pictures of "Reading traces" from the traces of two short runs.

python docs/pictures/timeline.py      (with the extras data, native and plot; best on an idle machine)
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from averaging import REPLICAS, draw

from scheduler import Trainer, TrainingConfig


class Span(NamedTuple):
    """A span of a trace: its stream's name, its own name, begin and duration in ms."""

    stream: str
    name: str
    begin: float
    duration: float


def spans(file: Path) -> list[Span]:
    """The spans of a trace, with their streams' names."""
    events = json.loads(file.read_text())["traceEvents"]
    names: dict[tuple[int, int], str] = {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"].partition(" ")[2]
    return [
        Span(names[e["pid"], e["tid"]], e["name"], e["ts"] / 1e3, e["dur"] / 1e3)
        for e in events
        if e["ph"] == "X" and "replica" in names.get((e["pid"], e["tid"]), "")
    ]


def traced(**options: Any) -> list[Span]:
    """Trace of rounds 20 to 27 of LeNet."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        config = TrainingConfig(
            model="lenet",
            max_seconds=3,
            output=f"{folder}/run",
            trace=str(file),
            trace_rounds=(20, 28),
            **options,
        )
        Trainer(config).train()
        return spans(file)


def lanes(axis: Any, shown: list[Span], colours: dict[str, str]) -> None:
    """A row for each stream; a box with its round or its kind for each span."""
    streams = sorted({span.stream for span in shown})
    first = min(span.begin for span in shown)
    for span in shown:
        row = streams.index(span.stream)
        faded = 0.55 if "update" in span.name else 0.9
        axis.broken_barh(
            [(span.begin - first, span.duration)],
            (row - 0.36, 0.72),
            facecolors=REPLICAS[row],
            alpha=faded,
            edgecolors=colours["ink"],
            linewidth=0.5,
        )
        number = re.search(r"round (\d+)", span.name)
        if number:
            middle = span.begin - first + span.duration / 2
            axis.text(middle, row, number[1], ha="center", va="center", fontsize=8, color="white")
    axis.set(yticks=range(len(streams)), xlabel="ms")
    axis.set_yticklabels(streams)
    axis.invert_yaxis()
    axis.spines["left"].set_visible(False)
    axis.tick_params(left=False)


def main() -> None:
    """Draws both pictures."""
    for name, options in {
        "rounds": {"replicas_per_device": 2, "steps_per_launch": 1},
        "tasks": {"replicas_per_device": 3, "dispatch": "fcfs", "tau": 4},
    }.items():
        # Of five runs the shortest, which other programs have disturbed least.
        shown = min((traced(**options) for _ in range(5)), key=lambda found: found[-1].begin - found[0].begin)
        print(name, len(shown), "spans")
        draw(f"trace-{name}", (9.0, 1.9), 1, lambda axis, colours, shown=shown: lanes(axis, shown, colours))


if __name__ == "__main__":
    main()
