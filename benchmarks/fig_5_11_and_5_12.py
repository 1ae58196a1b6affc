"""Cost of synchronising replicas (TensorBow thesis, figures 5.11 and 5.12).

    python benchmarks/fig_5_11_and_5_12.py [--thesis] [--devices gpu:0] [--small] [--output FOLDER]

Rounds of independent replicas (`none`), of averaging every 8th, 4th, 2nd and every round (`sma`, tau), and
of steps on the mean gradient (`ssgd`), all in turn. The cost of synchronisation is the time of a round
beyond that of independent replicas; its share is that of the whole round. Budea (2019) has it for GPUs.

With `--thesis`, and on a GPU, throughput is measured as there: LeNet and ResNet-32, b=32, against the number
of replicas on one device, averaged every round and independent.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drawing import (
    PHASES,
    RANGES,
    SYNCHRONISERS,
    Row,
    Series,
    draw_bars,
    draw_baseline,
    finish_axes,
    finish_figure,
    grid_of,
    grouped,
    lighter,
)
from experiments import TITLES, case_of
from harness import by_the_thesis, in_turn, parser
from results_page import Table
from sweep import Setting, measure, save_panels, where
from thesis import Fact, beside, rate, ratio
from thesis_throughput import EAGER, eager_torch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_11_and_5_12"
CASES = (("lenet", 4), ("lenet", 16), ("resnet32", 4), ("logreg", 16))
SYNCS = ("sma", "none")
NAMES = {"sma": "averaged every round", "none": "independent"}
METHODS = (("none", 1), ("sma", 8), ("sma", 4), ("sma", 2), ("sma", 1), ("ssgd", 1))


THESIS_CASES = {"5.11": ("lenet", 32), "5.12": ("resnet32", 32)}
THESIS_COUNTS = {"5.11": (1, 2, 3, 4, 5, 6, 7, 8), "5.12": (1, 2, 3, 4)}


def rate_of(figure: str, replicas: int, sync: str) -> Callable[[Sequence[Row]], float | None]:
    """Our images per second."""
    return lambda rows: rate(rows, figure=figure, replicas=replicas, sync=sync)


def cost_of(figure: str, replicas: int) -> Callable[[Sequence[Row]], float | None]:
    """Our loss of throughput by averaging, in percent."""

    def here(rows: Sequence[Row]) -> float | None:
        kept = ratio(rows, {"sync": "none"}, figure=figure, replicas=replicas, sync="sma")
        return None if kept is None else 100 * (1 - kept)

    return here


FACTS = (
    Fact("5.11", "LeNet, 2 independent replicas", 19175, "images/s", rate_of("5.11", 2, "none")),
    Fact("5.11", "LeNet, 2 averaged replicas", 15405, "images/s", rate_of("5.11", 2, "sma")),
    Fact("5.11", "LeNet, cost of averaging 2 replicas", 19.7, "%", cost_of("5.11", 2)),
    Fact("5.12", "ResNet-32, 2 independent replicas", 1458, "images/s", rate_of("5.12", 2, "none")),
    Fact("5.12", "ResNet-32, 2 averaged replicas", 1435, "images/s", rate_of("5.12", 2, "sma")),
    Fact("5.12", "ResNet-32, cost of averaging 2 replicas", 1.6, "%", cost_of("5.12", 2)),
    Fact("5.12", "ResNet-32, 3 independent replicas", 1753, "images/s", rate_of("5.12", 3, "none")),
    Fact("5.12", "ResNet-32, 3 averaged replicas", 1585, "images/s", rate_of("5.12", 3, "sma")),
    Fact("5.12", "ResNet-32, cost of averaging 3 replicas", 9.6, "%", cost_of("5.12", 3)),
)


def measure_by_the_thesis(options: argparse.Namespace, seconds: float, windows: int) -> list[list[Row]]:
    """Rows of each figure; on a GPU with PyTorch's eager model."""
    panels = []
    for figure, (model, size) in THESIS_CASES.items():
        counts = (1, 2) if options.small else THESIS_COUNTS[figure]
        settings = [
            Setting(model, size, count, sync) for count in counts for sync in SYNCS[: 1 if count == 1 else 2]
        ]
        with eager_torch(options, model, size) as peers:
            rows = measure(settings, seconds, windows, peers, **where(options))
        panels.append([{"figure": figure, **row} for row in rows])
    return panels


def draw_by_the_thesis(figure: Figure, rows: list[Row]) -> None:
    panels = grouped(rows, "figure")
    for axes, panel in zip(grid_of(figure, len(panels), 2), panels, strict=True):
        ours = [row for row in panel if row["method"] != EAGER]
        both = [*ours, *({**row, "sync": "none"} for row in ours if row["replicas"] == 1)]
        both.sort(key=lambda row: (row["sync"], row["replicas"]))
        draw_bars(axes, both, "replicas", lambda row: Series(NAMES[row["sync"]], SYNCHRONISERS[row["sync"]]))
        for row in panel:
            if row["method"] == EAGER:
                draw_baseline(axes, row["images_per_second"]["median"], EAGER, "PyTorch")
        model, size = THESIS_CASES[panel[0]["figure"]]
        title = f"{panel[0]['figure']}: {TITLES[model]}, b={size}"
        finish_axes(axes, title, "replicas on the device", "images per second")
    finish_figure(figure, "Throughput with and without averaging in every round", 4.4, RANGES)


def table_by_the_thesis(details: dict[str, Any]) -> Table:
    rows = []
    for row in details["rows"]:
        model, size = THESIS_CASES[row["figure"]]
        found = row["images_per_second"]["median"]
        rows.append([row["figure"], f"{TITLES[model]} b={size}", row["method"], row.get("replicas"), found])
    remarks = [in_turn(details["windows"], details["seconds_per_window"]), *beside(FACTS, details["rows"])]
    return Table(["figure", "model", "method", "replicas", "images/s"], rows, remarks)


def with_shares(panel: list[Row]) -> list[Row]:
    """Rows of one case, each with its time beyond independent replicas and the share of that in the round."""
    free = next(row["ms_per_round"] for row in panel if row["sync"] == "none")
    for row in panel:
        cost = row["ms_per_round"] - free
        row["synchronisation_ms"] = float(f"{cost:.4g}")
        row["synchronisation_share"] = float(f"{cost / row['ms_per_round']:.4g}")
    return panel


def share_of(row: Row) -> str:
    """Share of synchronisation in a round as text; `in noise` where noise hides the cost."""
    return f"{row['synchronisation_share']:.0%}" if row["synchronisation_share"] > 0.005 else "in noise"


def draw(figure: Figure, result: dict[str, Any]) -> None:
    details = result["details"]
    if "figure" in details["rows"][0]:
        draw_by_the_thesis(figure, details["rows"])
        return
    panels = grouped(details["rows"], "model", "batch_size")
    for axes, panel in zip(grid_of(figure, len(panels), 2), panels, strict=True):
        free = panel[0]["ms_per_round"]
        names = [row["method"].replace(", ", "\n") for row in panel]
        steps = [min(row["ms_per_round"], free) for row in panel]
        axes.bar(names, steps, color=lighter(PHASES["step"], 0.55), label="the step")
        costs = [max(row["synchronisation_ms"], 0.0) for row in panel]
        axes.bar(names, costs, bottom=free, color=PHASES["averaging"], label="synchronisation, and its share")
        for spot, row in enumerate(panel[1:], start=1):
            height = max(row["ms_per_round"], free)
            place = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(share_of(row), (spot, height), (0, 3), **place)
        title = f"{case_of(panel[0])}, {panel[0]['replicas']} replicas"
        finish_axes(axes, title, "", "milliseconds per round")
        axes.set_ylim(top=1.15 * max(row["ms_per_round"] for row in panel))
        axes.tick_params(axis="x", labelsize=8)
    lines = -(-len(panels) // 2)
    note = f"medians of {details['windows']} windows; in noise: not above 0.5 %"
    finish_figure(
        figure, "Time of a round, and the share that synchronisation has in it", 2.9 * lines + 1, note
    )


def table(details: dict[str, Any]) -> Table:
    rows = [
        [
            case_of(row),
            row["method"],
            row["images_per_second"]["median"],
            row["ms_per_round"],
            row["synchronisation_ms"],
            f"{row['synchronisation_share']:.1%}",
        ]
        for row in details["rows"]
    ]
    columns = ["model", "method", "images/s", "ms per round", "of it synchronisation", "share"]
    remarks = [in_turn(details["windows"], details["seconds_per_window"])]
    return Table(columns, rows, [*remarks, "Shares below 0: noise hides the cost."])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.25, 3) if options.small else (2.0, 7)
    if by_the_thesis(options):
        found = measure_by_the_thesis(options, seconds, windows)
        save_panels(options, NAME, found, (seconds, windows), table_by_the_thesis, draw)
        return
    cases = CASES[:1] if options.small else CASES
    methods = tuple(method for method in METHODS if not options.small or method[1] in (1, 4))
    panels = [
        with_shares(measure([Setting(model, size, 2, sync, tau) for sync, tau in methods], seconds, windows))
        for model, size in cases
    ]
    save_panels(options, NAME, panels, (seconds, windows), table, draw)


if __name__ == "__main__":
    main()
