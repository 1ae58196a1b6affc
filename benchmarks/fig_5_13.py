"""Throughput over several virtual devices (TensorBow thesis, figure 5.13).

    python benchmarks/fig_5_13.py [--thesis] [--devices gpu:0,gpu:1] [--small] [--output FOLDER]

The same replicas, averaged every round, on 1, 2 and 4 virtual CPU devices; an all-reduce between the devices
updates z. All of them share the cores of one machine, so this shows the cost of more devices, not their gain.
The thesis uses real GPUs, where every device adds hardware.

With `--thesis`, and on GPUs: ResNet-32, b=32, with one and two replicas on each of 1, 2 and 4 devices,
averaged every round, beside the ideal of independent models.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drawing import (
    RANGES,
    SYNCHRONISERS,
    Row,
    Series,
    draw_bars,
    finish_axes,
    finish_figure,
    grid_of,
    grouped,
    shades,
)
from experiments import TITLES, case_of
from harness import by_the_thesis, device_noun, in_turn, on_gpus, parser
from results_page import Table
from sweep import VIRTUAL, Setting, measure, save_panels, where
from thesis import Fact, beside, ratio
from thesis_throughput import series_of_devices, with_ideal_of_one

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_13"
CASES = (("lenet", 4), ("lenet", 16), ("resnet32", 4))
DEVICES = (1, 2, 4)


THESIS_CASE = ("resnet32", 32)
THESIS_DEVICES, THESIS_REPLICAS = (1, 2, 4), (1, 2)


def kept(devices: int, replicas: int) -> Callable[[Sequence[Row]], float | None]:
    """Our share of the independent models' throughput that averaging leaves, in percent."""

    def here(rows: Sequence[Row]) -> float | None:
        found = ratio(rows, {"sync": "none"}, devices=devices, replicas=replicas, sync="sma")
        return None if found is None else 100 * found

    return here


def gain(sync: str) -> Callable[[Sequence[Row]], float | None]:
    """Our gain of the second replica on each of two devices."""
    return lambda rows: ratio(rows, {"replicas": 1}, devices=2, replicas=2, sync=sync)


FACTS = (
    Fact("5.13", "2 devices, 1 replica each: kept of the ideal", 50, "%", kept(2, 1)),
    Fact("5.13", "2 devices, 2 replicas each: kept of the ideal", 50, "%", kept(2, 2)),
    Fact("5.13", "2 devices, averaged: 2 replicas over 1", 1.32, "times", gain("sma")),
    Fact("5.9", "2 devices, independent: 2 replicas over 1", 1.32, "times", gain("none")),
)


def measure_by_the_thesis(options: argparse.Namespace, seconds: float, windows: int) -> list[list[Row]]:
    """Rows for the numbers of devices that there are; virtual ones on a CPU."""
    named = on_gpus(options) or len(options.devices) > 1
    most = len(options.devices) if named else THESIS_DEVICES[1 if options.small else -1]
    settings = [
        Setting(*THESIS_CASE, replicas, sync, devices=devices)
        for devices in THESIS_DEVICES
        if devices <= most
        for replicas in THESIS_REPLICAS
        for sync in (("sma", "none") if devices * replicas > 1 else ("sma",))
    ]
    return [measure(settings, seconds, windows, **where(options))]


def draw_by_the_thesis(figure: Figure, result: dict[str, Any]) -> None:
    axes = figure.add_subplot()
    draw_bars(axes, with_ideal_of_one(result["details"]["rows"]), "devices", series_of_devices)
    title = f"{TITLES[THESIS_CASE[0]]}, b={THESIS_CASE[1]}"
    finish_axes(axes, title, f"{device_noun(result)}s", "images per second")
    finish_figure(figure, "Averaged replicas over devices, beside independent models", 4.6, RANGES)


def all_replicas(row: Row) -> int:
    return int(row["replicas"]) * int(row["devices"])


def series_of(row: Row) -> Series:
    total = all_replicas(row)
    colour = shades(SYNCHRONISERS["sma"], 4)[total.bit_length() - 1]
    return Series("1 replica" if total == 1 else f"{total} replicas in all", colour)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    if result["details"]["rows"][0]["batch_size"] == THESIS_CASE[1]:
        draw_by_the_thesis(figure, result)
        return
    panels = grouped(result["details"]["rows"], "model", "batch_size")
    for axes, panel in zip(grid_of(figure, len(panels), 3), panels, strict=True):
        draw_bars(axes, panel, "devices", series_of)
        unit = "images per second" if panel is panels[0] else ""
        finish_axes(axes, case_of(panel[0]), "virtual CPU devices", unit)
    cores = result["machine"]["cores"]
    title = f"Averaged replicas over virtual CPU devices that share the same {cores} cores"
    finish_figure(figure, title, 4.2, RANGES)


def table(details: dict[str, Any]) -> Table:
    rows = [
        [
            case_of(row),
            row["devices"],
            row["replicas"],
            all_replicas(row),
            row["images_per_second"]["median"],
        ]
        for row in details["rows"]
    ]
    columns = ["model", "virtual devices", "replicas on each", "in all", "images/s"]
    return Table(columns, rows, [in_turn(details["windows"], details["seconds_per_window"]), VIRTUAL])


def table_by_the_thesis(details: dict[str, Any]) -> Table:
    rows = [
        [
            case_of(row),
            row["devices"],
            row["replicas"],
            row["method"],
            row["images_per_second"]["median"],
        ]
        for row in details["rows"]
    ]
    remarks = [in_turn(details["windows"], details["seconds_per_window"]), *beside(FACTS, details["rows"])]
    return Table(["model", "devices", "replicas on each", "method", "images/s"], rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.25, 3) if options.small else (2.0, 7)
    if by_the_thesis(options):
        found = measure_by_the_thesis(options, seconds, windows)
        save_panels(options, NAME, found, (seconds, windows), table_by_the_thesis, draw)
        return
    cases = CASES[:1] if options.small else CASES
    totals = (1, 2, 4) if options.small else (1, 2, 4, 8)
    panels = []
    for model, batch_size in cases:
        settings = [
            Setting(model, batch_size, total // devices, devices=devices)
            for total in totals
            for devices in DEVICES
            if devices <= total
        ]
        panels.append(measure(settings, seconds, windows))
    save_panels(options, NAME, panels, (seconds, windows), table, draw)


if __name__ == "__main__":
    main()
