"""Throughput over several virtual devices (TensorBow thesis, figure 5.13).

    python benchmarks/fig_5_13.py [--small] [--output FOLDER]

The same replicas, averaged every round, on 1, 2 and 4 virtual CPU devices; an all-reduce between the devices
updates z. All of them share the cores of one machine, so this shows the cost of more devices, not their gain.
The thesis uses real GPUs, where every device adds hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments import case_of
from harness import cores, in_turn, parser
from results_page import Table
from sweep import (
    TITLES,
    VIRTUAL,
    Row,
    Setting,
    draw_lines,
    finish_axes,
    finish_figure,
    measure,
    save_panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_13"
CASES = (("lenet", 4), ("lenet", 16), ("resnet32", 4))
DEVICES = (1, 2, 4)


def all_replicas(row: Row) -> int:
    return int(row["replicas"]) * int(row["devices"])


def series_of(row: Row) -> str:
    total = all_replicas(row)
    return "1 replica" if total == 1 else f"{total} replicas in all"


def draw(figure: Figure, panels: list[list[Row]]) -> None:
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        draw_lines(axes, panel, "devices", series_of)
        title = f"{TITLES[panel[0]['model']]}, batch size {panel[0]['batch_size']}"
        finish_axes(axes, title, "virtual CPU devices", "images per second", DEVICES)
        axes.set_xlim(0.7, DEVICES[-1] + 0.3)
    title = f"Averaged replicas over virtual CPU devices that share the same {cores()} cores"
    finish_figure(figure, title, 4.4 * len(panels), 4.4)


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


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.25, 3) if options.small else (2.0, 7)
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
    save_panels(options, NAME, panels, (seconds, windows), table, lambda figure: draw(figure, panels))


if __name__ == "__main__":
    main()
