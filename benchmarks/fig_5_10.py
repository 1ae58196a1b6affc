"""Throughput and time per step against the batch size (TensorBow thesis, figure 5.10).

    python benchmarks/fig_5_10.py [--thesis] [--devices gpu:0] [--small] [--output FOLDER]

One replica alone, and two averaged every round, with batches of 1 to 128 examples each: more replicas can use
the part of the machine that a small batch leaves idle. PyTorch and JAX take turns with both at some of the
batch sizes. Each uses its best setting in this folder's results of `cpu_floors.py` for the model and the
nearest batch size, or else the best of a short search.

With `--thesis`, and on a GPU, the model is the thesis's, ResNet-32 with batches of 16 to 256; on a GPU the
only peer is PyTorch's eager model, which stands where the thesis has TensorFlow.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from experiments import TITLES, case_of
from harness import by_the_thesis, cores, in_turn, interleave, parser, save
from peers import PeerError, PeerProcesses, PeerSetting, open_peers, peer_settings
from results_page import RESULTS, Table
from thesis import Fact, beside, ratio

if TYPE_CHECKING:
    from drawing import Row, Series
    from matplotlib.figure import Figure

NAME = "fig_5_10"
MODELS = ("logreg", "lenet", "resnet32")
REPLICAS = (1, 2)
SIZES, PEER_SIZES = (1, 2, 4, 8, 16, 32, 64, 128), (1, 4, 16, 64)
SMALL_SIZES, SMALL_PEER_SIZES = (1, 4, 16, 64), (16,)
THESIS_MODEL, THESIS_SIZES, THESIS_SMALL_SIZES = "resnet32", (16, 32, 64, 128, 256), (16, 32)
LIBRARIES = {"torch": "PyTorch", "jax": "JAX"}
SEARCH = (0.5, 3)  # seconds of a window, and how many


def series_of(row: Row) -> Series:
    from drawing import Series, contestant_colour, lighter

    if "peer" in row:
        label = row["peer"] if "eager" in row["peer"] else f"{row['peer']}, its best setting"
        return Series(label, contestant_colour(label))
    ours = contestant_colour("TensorBow")
    if row["replicas"] == 1:
        return Series("1 replica", lighter(ours, 0.5))
    return Series(f"{row['replicas']} replicas, averaged every round", ours)


def best_by_floors(
    result: dict[str, Any] | None, model: str, batch_size: int, settings: list[PeerSetting]
) -> PeerSetting | None:
    """Setting that is best for a model in `cpu_floors.py`, at the nearest batch size; None where unknown."""
    rows = [row for row in (result or {}).get("rows", []) if row["model"] == model]
    if not rows:
        return None
    nearest = min(rows, key=lambda row: abs(math.log2(row["batch_size"] / batch_size)))
    rates = {name: rate["median"] for name, rate in nearest["images_per_second"].items()}
    known = [setting for setting in settings if setting.name in rates]
    return max(known, key=lambda setting: rates[setting.name], default=None)


def best_by_search(
    model: str, batch_size: int, settings: list[PeerSetting], examples: tuple[Any, Any]
) -> PeerSetting:
    """Setting that is best in some short windows. Raises PeerError when none starts."""
    with ExitStack() as opened:
        started, _ = open_peers(opened, model, dict.fromkeys(settings, batch_size), examples)
        if not started:
            raise PeerError(f"{model}: no setting of {settings[0].library} starts")
        rates = interleave(started, *SEARCH)
    return started[max(rates, key=lambda name: rates[name].median)].setting


def start_peers(
    model: str, batch_size: int, result: dict[str, Any] | None, opened: ExitStack
) -> dict[str, PeerProcesses]:
    """Processes of each library's best setting, by library; libraries that do not start are left out."""
    from ours import made_up_data

    peers: dict[str, PeerProcesses] = {}
    examples = made_up_data(model).batch()
    for library in LIBRARIES:
        settings = [s for s in peer_settings(model, cores(), False) if s.library == library]
        if not settings:
            continue  # not installed
        try:
            best = best_by_floors(result, model, batch_size, settings)
            best = best or best_by_search(model, batch_size, settings, examples)
            peers[best.name] = PeerProcesses(best, model, batch_size, examples)
        except PeerError as error:
            print(f"left out: {error}", flush=True)
            continue
        opened.callback(peers[best.name].close)
    return peers


def gain(batch_size: int) -> Callable[[Sequence[Row]], float | None]:
    """Rate of two replicas over that of one."""
    return lambda rows: ratio(rows, {"replicas": 1}, model=THESIS_MODEL, batch_size=batch_size, replicas=2)


FACTS = [
    Fact("5.10", f"b={size}: 2 replicas over 1", 1.40 if size < 128 else 1.22, "times", gain(size))
    for size in THESIS_SIZES
]


def measure_by_the_thesis(
    options: argparse.Namespace, batch_size: int, windows: tuple[float, int]
) -> list[Row]:
    """Rows of ResNet-32 at a batch size: one and two replicas, and on a GPU PyTorch's eager model."""
    from sweep import Setting, measure, where
    from thesis_throughput import EAGER, eager_torch

    settings = [Setting(THESIS_MODEL, batch_size, count) for count in REPLICAS]
    with eager_torch(options, THESIS_MODEL, batch_size) as peers:
        rows = measure(settings, *windows, peers, **where(options))
    for row in rows:
        if row["method"] == EAGER:
            row |= {"model": THESIS_MODEL, "batch_size": batch_size, "peer": EAGER, "replicas": 1}
            row["ms_per_round"] = ms_per_round(row, row["images_per_second"]["median"])
    return rows


def measure_size(model: str, batch_size: int, peers: bool, windows: tuple[float, int]) -> list[Row]:
    """Rows of a model and batch size: ours, and with `peers` theirs. windows: seconds and count."""
    from sweep import Setting, measure

    floors = RESULTS / "cpu_floors.json"
    result = json.loads(floors.read_text())["details"] if floors.exists() else None
    with ExitStack() as opened:
        others = start_peers(model, batch_size, result, opened) if peers else {}
        rows = measure([Setting(model, batch_size, count) for count in REPLICAS], *windows, others)
    for row in rows:
        if row["method"] in others:
            setting = others[row["method"]].setting
            row |= {"model": model, "batch_size": batch_size, "peer": LIBRARIES[setting.library]}
            row |= {"replicas": setting.processes}
            images = batch_size * setting.processes
            row["ms_per_round"] = float(f"{1e3 * images / row['images_per_second']['median']:.5g}")
    return rows


def ms_per_round(row: Row, rate: float) -> float:
    return 1e3 * float(row["batch_size"]) * float(row["replicas"]) / rate


def draw(figure: Figure, result: dict[str, Any]) -> None:
    from drawing import RANGES, draw_lines, finish_axes, finish_figure, grouped

    models = grouped(result["details"]["rows"], "model")
    for column, of_model in enumerate(models):
        sizes = sorted({row["batch_size"] for row in of_model})
        rates, times = (figure.add_subplot(2, len(models), 1 + column + down) for down in (0, len(models)))
        draw_lines(rates, of_model, "batch_size", series_of)
        draw_lines(times, of_model, "batch_size", series_of, ms_per_round)
        for axes in (rates, times):
            axes.set_xscale("log", base=2)
        times.set_yscale("log")
        finish_axes(rates, TITLES[of_model[0]["model"]], "", "images per second" if not column else "", sizes)
        unit = "milliseconds per round" if not column else ""
        finish_axes(times, "", "batch size of a replica", unit, sizes)
        for axes in (rates, times):
            axes.tick_params(labelsize=8)
    devices = result["details"]["settings"].get("devices")
    place = (
        ", ".join(name.strip("/") for name in devices) if devices else f"{result['machine']['cores']} cores"
    )
    title = f"Throughput and time of a round or step against the batch size; all on {place}"
    finish_figure(figure, title, 6.4, RANGES)


def table(details: dict[str, Any]) -> Table:
    rows = [
        [
            case_of(row),
            row["method"] if "peer" in row else f"TensorBow, {row['replicas']} x, {row['method']}",
            row["images_per_second"]["median"],
            row["ms_per_round"],
        ]
        for row in details["rows"]
    ]
    remarks = [in_turn(details["windows"], details["seconds_per_window"])]
    remarks += details.get("beside_the_thesis", [])
    return Table(["model", "who", "images/s", "ms per round"], rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.2, 3) if options.small else (1.5, 5)
    sizes, peer_sizes = (SMALL_SIZES, SMALL_PEER_SIZES) if options.small else (SIZES, PEER_SIZES)
    models = MODELS[1:2] if options.small else MODELS
    rows = []
    for size in (THESIS_SMALL_SIZES if options.small else THESIS_SIZES) if by_the_thesis(options) else ():
        rows += measure_by_the_thesis(options, size, (seconds, windows))
    for model in () if by_the_thesis(options) else models:
        for size in sizes:
            rows += measure_size(model, size, size in peer_sizes, (seconds, windows))
    details: dict[str, Any] = {"seconds_per_window": seconds, "windows": windows, "rows": rows}
    if by_the_thesis(options):
        details["beside_the_thesis"] = beside(FACTS, rows)
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
