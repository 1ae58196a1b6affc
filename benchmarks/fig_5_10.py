"""Throughput and time per step against the batch size (TensorBow thesis, figure 5.10).

    python benchmarks/fig_5_10.py [--small] [--output FOLDER]

One replica alone, and two that are averaged every round, with batches of 1 to 128 examples each. What a
small batch leaves of the machine is what more replicas can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import parser, print_table, save
from sweep import TITLES, Row, Setting, draw_lines, finish_axes, finish_figure, measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_10"
MODELS = ("logreg", "lenet", "resnet32")
REPLICAS = (1, 2)


def series_of(row: Row) -> str:
    return "1 replica" if row["replicas"] == 1 else f"{row['replicas']} replicas, averaged every round"


def ms_per_round(row: Row, rate: float) -> float:
    return 1e3 * float(row["batch_size"]) * float(row["replicas"]) / rate


def draw(figure: Figure, rows: list[Row]) -> None:
    models = list(dict.fromkeys(row["model"] for row in rows))
    for column, model in enumerate(models):
        of_model = [row for row in rows if row["model"] == model]
        sizes = sorted({row["batch_size"] for row in of_model})
        rates, times = (figure.add_subplot(2, len(models), 1 + column + down) for down in (0, len(models)))
        draw_lines(rates, of_model, "batch_size", series_of)
        draw_lines(times, of_model, "batch_size", series_of, ms_per_round)
        for axes in (rates, times):
            axes.set_xscale("log", base=2)
        times.set_yscale("log")
        finish_axes(rates, TITLES[model], "batch size of a replica", "images per second", sizes)
        finish_axes(times, "", "batch size of a replica", "milliseconds per round", sizes)
    title = "Throughput and time of a round against the batch size; one thread a replica"
    finish_figure(figure, title, 4.2 * len(models), 6.6)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.2, 3) if options.small else (1.5, 5)
    sizes = (1, 4, 16, 64) if options.small else (1, 2, 4, 8, 16, 32, 64, 128)
    models = MODELS[1:2] if options.small else MODELS
    rows = []
    for model in models:
        rows += measure(
            [Setting(model, size, count) for size in sizes for count in REPLICAS], seconds, windows
        )
    table = [
        [
            f"{TITLES[row['model']]} b={row['batch_size']}",
            str(row["replicas"]),
            f"{row['images_per_second']['median']:,.0f}",
            f"{row['ms_per_round']:.3g}",
        ]
        for row in rows
    ]
    print_table(["model", "replicas", "images/s", "ms per round"], table)
    result = {"seconds_per_window": seconds, "windows": windows, "rows": rows}
    save(options, NAME, result, lambda figure: draw(figure, rows))


if __name__ == "__main__":
    main()
