"""Training rates on this machine's cores beside PyTorch and JAX, in one run, with the project's floors.

    python benchmarks/cpu_floors.py [--only lenet:16 ...] [--seconds 2] [--windows 7] [--replicas N]

All contestants train: forward, softmax cross-entropy, backward, momentum SGD; batch norms use the batch's
statistics and update the moving ones; every step gathers its batch from memory. TensorBow runs one replica
per core through its scheduler, converts uint8 pictures to float32 batches and fetches the loss of every step;
the peers' pictures are float32 already, and their losses are not fetched. The floors hold for two cores.

A peer uses the cores as one process with all of them or as one pinned process for each, with rates summed;
PyTorch eager, channels-last and compiled, with the faster of its two fast SGDs; JAX jitted with donated
buffers, for logistic regression also with 64 steps per call (lax.scan). A row of 64 steps per call is
compared with all settings of the peers, every other row with those of one step per call. All windows
alternate; figures are medians.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments import case_of
from harness import (
    Measured,
    Window,
    command_line,
    cores,
    in_turn,
    interleave,
    output_path,
    parser,
    positive_float,
    positive_int,
    save,
)
from peers import SCANNED_STEPS, PeerError, PeerProcesses, PeerSetting, open_peers, peer_settings
from results_page import MISSED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "cpu_floors"
LAUNCHED = f", {SCANNED_STEPS} steps a call"


@dataclass(frozen=True)
class Target:
    """Intended ratio of `ours` to the best peer. floor: the ratio is required, else it is a stretch goal.

    times: None where `ours` is shown without a target.
    """

    ours: str
    times: float | None
    floor: bool


@dataclass(frozen=True)
class Case:
    """Model and batch size with its targets. batch_size: per replica."""

    model: str
    batch_size: int
    targets: tuple[Target, ...]

    @property
    def launched(self) -> bool:
        """True if launches of many steps are measured too."""
        return any(target.ours.endswith(LAUNCHED) for target in self.targets)

    @property
    def name(self) -> str:
        """Name of the case for `--only`."""
        return f"{self.model}:{self.batch_size}"


def _usual(model: str, batch_size: int, floor: float, stretch: float) -> Case:
    return Case(
        model, batch_size, (Target("TensorBow sma", floor, True), Target("TensorBow none", stretch, False))
    )


def _short(model: str, batch_size: int, floor: float, stretch: float) -> Case:
    """Case whose steps are so short that the cost of a launch shows."""
    usual = _usual(model, batch_size, floor, stretch).targets
    launched = (Target(f"{target.ours}{LAUNCHED}", None, False) for target in usual)
    return Case(model, batch_size, (*usual, *launched))


CASES = (
    _short("lenet", 4, 2.0, 2.8),
    _short("lenet", 16, 1.9, 2.2),
    _short("lenet", 32, 1.8, 2.0),
    _usual("resnet32", 4, 1.4, 1.6),
    _usual("resnet32", 32, 1.1, 1.25),
    _usual("resnet32", 64, 1.1, 1.25),
    Case(
        "logreg",
        16,
        (
            Target("TensorBow sma", 1.0, True),
            Target(f"TensorBow sma{LAUNCHED}", 2.5, True),
            Target(f"TensorBow none{LAUNCHED}", 3.5, False),
        ),
    ),
)
SMALL = ("lenet:16", "logreg:16")


@contextmanager
def contestants_of(
    case: Case, options: argparse.Namespace
) -> Iterator[tuple[dict[str, Window], dict[str, PeerProcesses], dict[str, str]]]:
    """All windows by name, the peers that started, and the reasons why others did not."""
    from ours import made_up_data, training_window  # here: the peers' processes must not load it

    windows: dict[str, Window] = {}
    data = made_up_data(case.model)
    with ExitStack() as opened:
        for sync in ("sma", "none"):
            for steps in (1, SCANNED_STEPS) if case.launched else (1,):
                training = training_window(
                    case.model,
                    case.batch_size,
                    options.replicas,
                    sync=sync,
                    data=data,
                    steps_per_launch=steps,
                )
                opened.callback(training.close)
                windows[f"TensorBow {sync}{LAUNCHED if steps > 1 else ''}"] = training
        tried = peer_settings(case.model, options.replicas, case.launched)
        if options.small:
            tried = [s for s in tried if "compile" not in s.variant and s.processes >= options.replicas]
        peers, missing = open_peers(opened, case.model, dict.fromkeys(tried, case.batch_size), data.batch())
        yield {**windows, **peers}, peers, missing


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measures a case; returns its row of the result."""
    with contestants_of(case, options) as (windows, peers, missing):
        measured = interleave(windows, options.seconds, options.windows)
    return {
        "model": case.model,
        "batch_size": case.batch_size,
        "replicas": options.replicas,
        "images_per_second": {name: rates.as_json() for name, rates in measured.items()},
        "targets": [judged(target, measured, [p.setting for p in peers.values()]) for target in case.targets],
        "chosen": {name: peer.chosen for name, peer in peers.items()},
        "left_out": missing,
    }


def judged(target: Target, measured: dict[str, Measured], settings: list[PeerSetting]) -> dict[str, Any]:
    """Ratio to the best peer (None where either side is missing), and whether it reaches the target."""
    many = target.ours.endswith(LAUNCHED)
    against = [setting.name for setting in settings if many or setting.steps_per_call == 1]
    best = max(against, key=lambda name: measured[name].median, default=None)
    ratio = None
    if best is not None and target.ours in measured:
        ratio = round(measured[target.ours].median / measured[best].median, 3)
    judged: dict[str, Any] = {"ours": target.ours, "best_peer": best, "ratio": ratio}
    if target.times is not None:
        judged["floor" if target.floor else "stretch"] = target.times
        judged["reached"] = ratio is not None and ratio >= target.times
    return judged


def table(details: dict[str, Any]) -> Table:
    """Table with a line for each target."""
    rows: list[list[Any]] = []
    for row in details["rows"]:
        rates = {name: rate["median"] for name, rate in row["images_per_second"].items()}
        for target in row["targets"]:
            ours, best = target["ours"], target["best_peer"]
            rows.append([case_of(row), ours, rates.get(ours), best, rates.get(best), target["ratio"]])
            kind = next((kind for kind in ("floor", "stretch") if kind in target), None)
            to_reach = (
                [f"{kind} {target[kind]}", "yes" if target["reached"] else MISSED] if kind else [None] * 2
            )
            rows[-1] += to_reach
    remarks = [in_turn(details["windows"], details["seconds_per_window"]), *other_runs(details["rows"])]
    for row in details["rows"]:
        remarks += [f"{case_of(row)} without {name}: {why}" for name, why in row["left_out"].items()]
    return Table(COLUMNS, rows, remarks)


def other_runs(rows: list[dict[str, Any]]) -> list[str]:
    """Remark on cases that were measured in other runs."""
    others = [case_of(row) for row in rows if row["command"] != rows[0]["command"]]
    return [f"Measured in other runs than the first case: {', '.join(others)}."] if others else []


COLUMNS = ["model", "ours", "images/s", "best peer", "images/s", "ratio", "to reach", "reached"]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a panel for each case, with a bar for each contestant, the fastest at the top."""
    from drawing import draw_contestants, finish_figure, grid_of, lighter

    from tensorbow.pictures import LIMIT

    rows = result["details"]["rows"]
    labels = {"floor": "floor", "stretch": "stretch goal"}
    height = 0.0
    for number, (axes, row) in enumerate(zip(grid_of(figure, len(rows), 2), rows, strict=True)):
        rates = row["images_per_second"]
        draw_contestants(axes, rates, lambda name: name.partition(" ")[2])
        names = sorted(rates, key=lambda name: -rates[name]["median"])
        for kind, colour in (("stretch", lighter(LIMIT, 0.45)), ("floor", LIMIT)):
            marked = [target for target in row["targets"] if kind in target and target["best_peer"]]
            at = [names.index(target["ours"]) for target in marked]
            goals = [target[kind] * rates[target["best_peer"]]["median"] for target in marked]
            style = {"markersize": 11, "markeredgewidth": 2.5, "color": colour, "zorder": 3}
            axes.plot(goals, at, "|", label=labels[kind], **style)
            axes.set_xlim(right=max([axes.get_xlim()[1], *(1.05 * goal for goal in goals)]))
        axes.set_title(f"{case_of(row)}, images per second", loc="right")
        height += 0.7 + 0.17 * len(rates) if number % 2 == 0 else 0.0
    replicas = rows[0]["replicas"]
    note = "medians; thin lines: from the slowest to the fastest window; goals are multiples of the best peer"
    finish_figure(
        figure, f"Training on {replicas} cores; TensorBow with {replicas} replicas", height + 0.9, note
    )


def main() -> int:
    options = parse()
    rows, failed = [], {}
    for case in CASES:
        if case.name not in options.only:
            continue
        print(f"{case.name} ...", flush=True)
        try:
            rows.append(measure(case, options) | {"command": command_line(options)})
        except PeerError as error:
            failed[case.name] = str(error)
            print(f"{case.name}: {error}", flush=True)
    if rows:
        rows = with_earlier(rows, output_path(options, f"{NAME}.json"))
        windows = {"windows": options.windows, "seconds_per_window": options.seconds}
        details = {**windows, "rows": rows, "failed": failed}
        save(options, NAME, details, table(details), draw)
    return 1 if failed else 0


def with_earlier(rows: list[dict[str, Any]], result: Path) -> list[dict[str, Any]]:
    """The rows, and an earlier run's rows of the cases left out here, in the order of CASES."""
    known = json.loads(result.read_text())["details"]["rows"] if result.exists() else []
    by_case = {(row["model"], row["batch_size"]): row for row in [*known, *rows]}
    names = [case.name for case in CASES]
    return sorted(by_case.values(), key=lambda row: names.index(f"{row['model']}:{row['batch_size']}"))


def parse() -> argparse.Namespace:
    """Parses the options; defaults depend on `--small`."""
    made = parser(__doc__, NAME)
    names = [case.name for case in CASES]
    made.add_argument("--only", nargs="+", choices=names, metavar="MODEL:BATCH", help=", ".join(names))
    made.add_argument("--seconds", type=positive_float, help="length of a window; default 2, small 0.4")
    made.add_argument("--windows", type=positive_int, help="windows of each contestant; default 7, small 2")
    made.add_argument(
        "--replicas",
        type=positive_int,
        default=cores(),
        help="number of replicas; default: one for each core",
    )
    options = made.parse_args()
    options.only = options.only or (list(SMALL) if options.small else names)
    options.seconds = options.seconds or (0.4 if options.small else 2.0)
    options.windows = options.windows or (2 if options.small else 7)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
