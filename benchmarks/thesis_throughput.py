"""Figures 5.6 to 5.9 of the TensorBow thesis with its models, batch sizes, counts and axes.

5.6: logistic regression, b=16, against the number of stream groups: a replica in each, not averaged, and one
model spread over all (`SpreadModel`). 5.7, 5.8: ResNet-32 and LeNet, b=32, against replicas on one device,
not averaged, as box plots of five runs. 5.9: ResNet-32, b=32, against the number of devices, with one and two
replicas on each, averaged every round, and independent, which is the ideal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from drawing import (
    RANGES,
    SYNCHRONISERS,
    Row,
    Series,
    draw_bars,
    draw_baseline,
    draw_boxes,
    draw_lines,
    finish_axes,
    finish_figure,
    lighter,
)
from experiments import TITLES
from harness import Window, device_noun, on_gpus
from results_page import Table
from spread_model import SpreadModel
from sweep import Setting, measure, measure_runs, where
from thesis import Fact, beside, rate, ratio

from tensorbow.pictures import GOLD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CASES = {"5.6": ("logreg", 16), "5.7": ("resnet32", 32), "5.8": ("lenet", 32), "5.9": ("resnet32", 32)}
COUNTS = {"5.6": (1, 2, 3, 4, 6, 8), "5.7": (1, 2, 3, 4), "5.8": (1, 2, 3, 4, 5, 6, 7, 8), "5.9": (1, 2)}
SMALL_COUNTS = (1, 2)
DEVICES = (1, 2, 4)  # of figure 5.9
RUNS, SMALL_RUNS = 5, 2
SPREAD = "one model spread over the stream groups"
EAGER = "PyTorch eager"  # in the place of the thesis's TensorFlow


def of(figure: str, **fields: Any) -> Any:
    """Our figure for a row of a figure: its rate."""
    return lambda rows: rate(rows, figure=figure, **fields)


def gain(figure: str, replicas: int, over: int, **fields: Any) -> Any:
    """Our figure: rate of so many replicas over that of fewer."""
    return lambda rows: ratio(rows, {"replicas": over}, figure=figure, replicas=replicas, **fields)


def peer(figure: str) -> Any:
    """Our figure for TensorFlow's: PyTorch eager on the same device, where it took part."""
    return lambda rows: rate(rows, figure=figure, method=EAGER)


IMAGES, TIMES = "images/s", "times"
NONE = {"sync": "none"}
FACTS = (
    Fact("5.7", "2 replicas over 1", 1.43, TIMES, gain("5.7", 2, 1)),
    Fact("5.7", "3 replicas over 2", 1.10, TIMES, gain("5.7", 3, 2)),
    Fact("5.8", "TensorFlow (here PyTorch eager)", 8700, IMAGES, peer("5.8")),
    Fact("5.8", "1 replica", 13000, IMAGES, of("5.8", replicas=1)),
    Fact("5.8", "2 replicas over 1", 1.51, TIMES, gain("5.8", 2, 1)),
    Fact("5.8", "3 replicas over 2", 1.10, TIMES, gain("5.8", 3, 2)),
    Fact("5.8", "8 replicas over 7", 1.10, TIMES, gain("5.8", 8, 7)),
    Fact("5.9", "TensorFlow (here PyTorch eager)", 1062, IMAGES, peer("5.9")),
    Fact("5.9", "1 device, 1 replica", 1109, IMAGES, of("5.9", devices=1, replicas=1)),
    Fact("5.9", "2 devices, 1 replica each", 1949, IMAGES, of("5.9", devices=2, replicas=1, sync="sma")),
    Fact("5.9", "1 device, 2 replicas over 1", 1.39, TIMES, gain("5.9", 2, 1, devices=1, sync="sma")),
    Fact("5.9", "2 devices, 2 replicas over 1", 1.32, TIMES, gain("5.9", 2, 1, devices=2, sync="sma")),
    Fact("5.9", "4 devices, 2 replicas over 1", 1.35, TIMES, gain("5.9", 2, 1, devices=4, sync="sma")),
)


@contextmanager
def eager_torch(options: argparse.Namespace, model: str, batch_size: int) -> Iterator[dict[str, Window]]:
    """PyTorch's eager model on the GPU, as a contestant; none on CPUs or where PyTorch has no GPU."""
    found: dict[str, Window] = {}
    if on_gpus(options):
        from gpu_replicas_contestant import Case, Settings
        from gpu_replicas_torch import torch_contestants

        from tensorbow.devices import gpu_status

        settings = Settings(gpu_status().runtimes[0], [1], "fp32", 1.0, 1, emulated=False)
        for name, opened in torch_contestants(Case(model, batch_size), settings):
            if name == EAGER:
                found[name] = opened().window
    yield found


def counts_of(figure: str, small: bool) -> tuple[int, ...]:
    return SMALL_COUNTS if small else COUNTS[figure]


def replicas_and_spread(options: argparse.Namespace, seconds: float, windows: int) -> list[Row]:
    """Rows of figure 5.6."""
    (model, batch_size), counts = CASES["5.6"], counts_of("5.6", options.small)
    device = options.devices[0]
    with ExitStack() as opened:
        spread: dict[str, Window] = {
            f"{SPREAD}: {count}": opened.enter_context(SpreadModel(model, batch_size, count, device))
            for count in counts
        }
        settings = [Setting(model, batch_size, count, "none") for count in counts]
        rows = measure(settings, seconds, windows, spread, **where(options))
    for row in rows:
        if row["method"] in spread:
            groups = int(row["method"].rpartition(": ")[2])
            row |= {"method": SPREAD, "model": model, "batch_size": batch_size, "devices": 1}
            row |= {"sync": "none", "replicas": 1, "stream_groups": groups}
        else:
            row["stream_groups"] = row["replicas"]
    return [{"figure": "5.6", **row} for row in rows]


def in_runs(figure: str, options: argparse.Namespace, seconds: float) -> list[Row]:
    """Rows of figures 5.7 and 5.8, each with a sample for each run."""
    (model, batch_size), counts = CASES[figure], counts_of(figure, options.small)
    settings = [Setting(model, batch_size, count, "none") for count in counts]
    rows = measure_runs(settings, seconds, SMALL_RUNS if options.small else RUNS, **where(options))
    with eager_torch(options, model, batch_size) as peers:
        alone = measure([], seconds, 3, peers, **where(options))
    return [{"figure": figure, **row} for row in [*rows, *alone]]


def over_devices(options: argparse.Namespace, seconds: float, windows: int) -> list[Row]:
    """Rows of figure 5.9, for the numbers of devices that there are; virtual ones on a CPU."""
    model, batch_size = CASES["5.9"]
    most = len(options.devices) if on_gpus(options) or len(options.devices) > 1 else DEVICES[-1]
    settings = [
        Setting(model, batch_size, replicas, sync, devices=devices)
        for devices in (DEVICES[:2] if options.small else DEVICES)
        if devices <= most
        for replicas in counts_of("5.9", options.small)
        for sync in (("sma", "none") if devices * replicas > 1 else ("sma",))
    ]
    with eager_torch(options, model, batch_size) as peers:
        rows = measure(settings, seconds, windows, peers, **where(options))
    return [{"figure": "5.9", **row} for row in rows]


def rows_of(options: argparse.Namespace, seconds: float, windows: int) -> list[Row]:
    """Rows of all four figures."""
    rows = replicas_and_spread(options, seconds, windows)
    rows += in_runs("5.7", options, seconds)
    rows += in_runs("5.8", options, seconds)
    return rows + over_devices(options, seconds, windows)


def series_of_groups(row: Row) -> Series:
    if row["method"] == SPREAD:
        return Series(SPREAD, GOLD)
    return Series("a replica in each stream group", SYNCHRONISERS["none"])


def series_of_devices(row: Row) -> Series:
    how = "independent (the ideal)" if row["sync"] == "none" else "averaged"
    label = f"{row['replicas']} replica{'s' if row['replicas'] > 1 else ''} on each, {how}"
    return Series(label, lighter(SYNCHRONISERS[row["sync"]], 0.5 if row["replicas"] == 1 else 0.0))


def with_ideal_of_one(rows: Sequence[Row]) -> list[Row]:
    """Rows with that of a replica alone, where there is nothing to average, in both series."""
    alone = [row for row in rows if row["devices"] * row["replicas"] == 1]
    ideal = [row for row in rows if row["sync"] == "none"]
    return [
        *[row for row in rows if row["sync"] == "sma"],
        *({**row, "sync": "none"} for row in alone),
        *ideal,
    ]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws the four figures as panels."""
    rows = result["details"]["rows"]
    panels: dict[str, Axes] = dict(zip(CASES, figure.subplots(2, 2).flat, strict=True))
    for number, panel in panels.items():
        own = [row for row in rows if row["figure"] == number]
        ours = [row for row in own if row["method"] != EAGER]
        title = f"{number}: {TITLES[CASES[number][0]]}, b={CASES[number][1]}"
        if number == "5.6":
            draw_lines(panel, ours, "stream_groups", series_of_groups)
            ticks = sorted({row["stream_groups"] for row in ours})
            finish_axes(panel, title, "stream groups", "images per second", ticks)
        elif number == "5.9":
            draw_bars(panel, with_ideal_of_one(ours), "devices", series_of_devices)
            finish_axes(panel, title, f"{device_noun(result)}s", "images per second")
        else:
            draw_boxes(panel, ours, "replicas")
            ticks = sorted({row["replicas"] for row in ours})
            finish_axes(panel, title, "replicas, independent", "images per second", ticks)
        for row in own:
            if row["method"] == EAGER:
                draw_baseline(panel, row["images_per_second"]["median"], EAGER, "PyTorch")
    title = "The thesis's figures 5.6 to 5.9: throughput by replicas and devices"
    finish_figure(figure, title, 7.6, f"{RANGES}; boxes: quartiles of runs")


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for row in details["rows"]:
        model, batch_size = CASES[row["figure"]]
        who = f"{TITLES[model]} b={batch_size}"
        groups = row.get("stream_groups", row.get("replicas"))
        rate_, spread = (row["images_per_second"][key] for key in ("median", "spread"))
        rows.append([row["figure"], who, row["method"], row.get("devices"), groups, rate_, f"{spread:.0%}"])
    columns = [
        "figure",
        "model",
        "method",
        "devices",
        "replicas or stream groups on each",
        "images/s",
        "range",
    ]
    return Table(columns, rows, details["beside_the_thesis"])


def details_of(options: argparse.Namespace, seconds: float, windows: int) -> dict[str, Any]:
    """Measures everything; rows, and remarks with the thesis's figures beside ours."""
    rows = rows_of(options, seconds, windows)
    return {
        "seconds_per_window": seconds,
        "windows": windows,
        "rows": rows,
        "beside_the_thesis": beside(FACTS, rows),
    }
