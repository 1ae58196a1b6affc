"""Throughput against the number of replicas (TensorBow thesis, figures 5.6 to 5.9).

    python benchmarks/fig_5_6_to_5_9.py [--thesis] [--devices gpu:0,gpu:1] [--small] [--output FOLDER]

LeNet and ResNet-32 with small batches on one device with 1, 2, 3 and 4 replicas, averaged every round and
independent; then the same over two virtual CPU devices (figure 5.9). A replica is one thread, and a virtual
device is only a name for some of the threads, so throughput stops growing when there are as many replicas as
cores. On a GPU, as in the thesis, it stops growing when the device is full.

With `--thesis`, and on GPUs, the experiment has the thesis's models and axes: see `thesis_throughput.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import thesis_throughput
from drawing import (
    RANGES,
    SYNCHRONISERS,
    Row,
    Series,
    draw_lines,
    finish_axes,
    finish_figure,
    grid_of,
    grouped,
)
from experiments import case_of
from harness import by_the_thesis, in_turn, parser, save
from results_page import Table
from sweep import VIRTUAL, Setting, measure, save_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_6_to_5_9"
ONE_DEVICE = (("lenet", 4), ("lenet", 16), ("resnet32", 4), ("resnet32", 32))
TWO_DEVICES = (("lenet", 4), ("resnet32", 4))
SYNCS = ("sma", "none")


def settings_of_panel(model: str, batch_size: int, devices: int, counts: Sequence[int]) -> list[Setting]:
    settings = []
    for count in counts:
        for sync in SYNCS if count * devices > 1 else SYNCS[:1]:
            settings.append(Setting(model, batch_size, count, sync, devices=devices))
    return settings


def title_of(row: Row) -> str:
    where = "one device" if row["devices"] == 1 else f"{row['devices']} virtual devices"
    return f"{case_of(row)}, {where}"


def series_of(row: Row) -> Series:
    label = "independent" if row["sync"] == "none" else "averaged every round (sma)"
    return Series(label, SYNCHRONISERS[row["sync"]])


def with_one_replica_in_both(panel: list[Row]) -> list[Row]:
    """Adds the row of one replica, where there is nothing to average, as the first point of both lines."""
    alone = [row for row in panel if row["replicas"] * row["devices"] == 1]
    return [*panel[: len(alone)], *({**row, "sync": "none"} for row in alone), *panel[len(alone) :]]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    if "figure" in result["details"]["rows"][0]:
        thesis_throughput.draw(figure, result)
        return
    panels = grouped(result["details"]["rows"], "model", "batch_size", "devices")
    for number, (axes, panel) in enumerate(zip(grid_of(figure, len(panels), 3), panels, strict=True)):
        draw_lines(axes, with_one_replica_in_both(panel), "replicas", series_of)
        counts = sorted({row["replicas"] for row in panel})
        per_device = "replicas" if panel[0]["devices"] == 1 else "replicas on each device"
        unit = "images per second" if number % 3 == 0 else ""
        finish_axes(axes, title_of(panel[0]), per_device, unit, counts)
        axes.set_title(axes.get_title(), fontsize=9)
    lines = -(-len(panels) // 3)
    title = f"Throughput against replicas, one thread each, on {result['machine']['cores']} cores"
    finish_figure(figure, title, 2.6 * lines + 0.9, RANGES)


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    first: dict[tuple[str, int], float] = {}  # of a panel's rows
    for row in details["rows"]:
        rate = row["images_per_second"]["median"]
        alone = first.setdefault((case_of(row), row["devices"]), rate)
        rows.append([case_of(row), row["devices"], row["replicas"], row["method"], rate, rate / alone])
    columns = ["model", "virtual devices", "replicas on each", "method", "images/s", "times the first"]
    return Table(columns, rows, [in_turn(details["windows"], details["seconds_per_window"]), VIRTUAL])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.25, 3) if options.small else (2.0, 7)
    if by_the_thesis(options):
        details = thesis_throughput.details_of(options, seconds, windows)
        save(options, NAME, details, thesis_throughput.table(details), draw)
        return
    counts = (1, 2, 4) if options.small else (1, 2, 3, 4)
    one = ONE_DEVICE[:3:2] if options.small else ONE_DEVICE
    two = TWO_DEVICES[:1] if options.small else TWO_DEVICES
    panels = [
        measure(settings_of_panel(model, batch_size, devices, counts), seconds, windows)
        for cases, devices in ((one, 1), (two, 2))
        for model, batch_size in cases
    ]
    save_panels(options, NAME, panels, (seconds, windows), table, draw)


if __name__ == "__main__":
    main()
