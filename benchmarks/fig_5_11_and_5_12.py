"""Cost of synchronising replicas (TensorBow thesis, figures 5.11 and 5.12).

    python benchmarks/fig_5_11_and_5_12.py [--small] [--output FOLDER]

Rounds of independent replicas (`none`), of averaging every 8th, 4th, 2nd and every round (`sma`, tau), and
of steps on the mean gradient (`ssgd`), all in turn. The cost of synchronisation is the time of a round
beyond that of independent replicas; its share is that of the whole round. Budea (2019) has it for GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments import TITLES, case_of
from harness import in_turn, parser
from results_page import Table
from sweep import Row, Setting, finish_axes, finish_figure, measure, save_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "fig_5_11_and_5_12"
CASES = (("lenet", 4), ("lenet", 16), ("resnet32", 4), ("logreg", 16))
METHODS = (("none", 1), ("sma", 8), ("sma", 4), ("sma", 2), ("sma", 1), ("ssgd", 1))


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


def draw(figure: Figure, panels: list[list[Row]]) -> None:
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(lines, columns, place)
        free = panel[0]["ms_per_round"]
        names = [row["method"] for row in panel]
        axes.bar(names, [min(row["ms_per_round"], free) for row in panel], color="#b9cbe0", label="the step")
        costs = [max(row["synchronisation_ms"], 0.0) for row in panel]
        axes.bar(names, costs, bottom=free, color="#d9622b", label="synchronisation")
        for spot, row in enumerate(panel[1:], start=1):
            text = share_of(row)
            height = max(row["ms_per_round"], free)
            axes.annotate(text, (spot, height), (0, 3), textcoords="offset points", ha="center", fontsize=8)
        case = f"{TITLES[panel[0]['model']]}, batch size {panel[0]['batch_size']}"
        finish_axes(axes, f"{case}, {panel[0]['replicas']} replicas", "", "milliseconds per round")
        axes.set_ylim(top=1.15 * max(row["ms_per_round"] for row in panel))
        axes.tick_params(axis="x", labelrotation=20, labelsize=8)
    title = "Time of a round, and the share that synchronisation has in it"
    finish_figure(figure, title, 5.2 * columns, 3.5 * lines + 0.6)


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
    cases = CASES[:1] if options.small else CASES
    methods = tuple(method for method in METHODS if not options.small or method[1] in (1, 4))
    panels = [
        with_shares(measure([Setting(model, size, 2, sync, tau) for sync, tau in methods], seconds, windows))
        for model, size in cases
    ]
    save_panels(options, NAME, panels, (seconds, windows), table, lambda figure: draw(figure, panels))


if __name__ == "__main__":
    main()
