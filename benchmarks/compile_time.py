"""Time from a ready process to the end of a model's first step, with an empty and with a filled code cache.

    python benchmarks/compile_time.py [--small] [--output FOLDER]

Every measurement has its own processes and its own cache folder: the first process finds the folder empty and
compiles, the second loads the first one's object code. Both build the graph, compile (here: planning, native
code, memory, streams and threads of two replicas and z), draw the initial values and train one round. Imports
(llvmlite's included) and making the data come before the measurement; Python's bytecode is cached, as after
an installation. The project's limits are 3 s without and 0.2 s with cached code, for graph, compilation and
binding, and for everything until the end of the first round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments import TITLES, case_of
from harness import parser, save
from results_page import MISSED, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "compile_time"
CASES = (("lenet", 16), ("resnet32", 4), ("resnet32", 32), ("resnet56", 4), ("logreg", 16))
SMALL = (("lenet", 16), ("resnet32", 4), ("logreg", 16))
LIMITS = {"cold": 3.0, "cached": 0.2}  # seconds
PHASES = {
    "graph_s": "graph and gradients",
    "compile_s": "compile and bind",
    "initial_values_s": "initial values",
    "first_round_s": "first round",
}
REPLICAS = 2


def once(model: str, batch_size: int) -> dict[str, float]:
    """Seconds of each phase in this process, which must not have compiled anything yet.

    processor_s: processor time of all threads, which does not grow on a busy machine.
    """
    started = time.perf_counter()
    from ours import LEARNING_RATE, MOMENTUM, made_up_data

    import tensorbow as tb
    from scheduler.training.models.classifier_step import build_program
    from tensorbow.kernels.backends import backend_of_kind
    from tensorbow.models import get_model

    backend_of_kind("cpu")
    imported = time.perf_counter() - started
    data = made_up_data(model)
    processor_s = time.process_time()
    moments = [time.perf_counter()]
    with tb.Graph().as_default():
        tb.set_random_seed(1)
        program = build_program(get_model(model), data, MOMENTUM, LEARNING_RATE, 0.0)
    moments.append(time.perf_counter())
    with tb.LearningEngine(program, batch_size, replicas_per_device=REPLICAS) as engine:
        moments.append(time.perf_counter())
        engine.initialize()
        moments.append(time.perf_counter())
        batches = tb.DatasetBatches(data, batch_size, REPLICAS, seed=1, depth=2)
        engine.run(batches.open, 0, 1)
        moments.append(time.perf_counter())
    phases = dict(zip(PHASES, (end - begin for begin, end in pairwise(moments)), strict=True))
    processor_s = time.process_time() - processor_s
    return {"import_s": imported, **phases, "total_s": moments[-1] - moments[0], "processor_s": processor_s}


def in_fresh_process(model: str, batch_size: int, cache: Path, bytecode: Path) -> dict[str, float]:
    """Runs `once` in a new process with this cache of object code. Raises CalledProcessError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"TENSORBOW_CACHE": str(cache), "PYTHONPYCACHEPREFIX": str(bytecode)}
    command = [sys.executable, str(Path(__file__).resolve()), "--once", f"{model}:{batch_size}"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    phases: dict[str, float] = json.loads(done.stdout)
    return phases


def measure(cases: Sequence[tuple[str, int]], repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Row for each model and state of the cache: median seconds of each phase, and all totals."""
    bytecode = folder / "bytecode"
    taken: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    in_fresh_process("logreg", 1, folder / "first", bytecode)  # leaves the bytecode behind
    for repeat in range(repeats):
        for model, batch_size in cases:
            cache = folder / f"{model}-{repeat}"
            for state in LIMITS:
                phases = in_fresh_process(model, batch_size, cache, bytecode)
                taken.setdefault((model, batch_size, state), []).append(phases)
    return [
        {
            "model": model,
            "batch_size": batch_size,
            "cache": state,
            **{name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]},
            "graph_and_compile_s": round(
                statistics.median(run["graph_s"] + run["compile_s"] for run in runs), 4
            ),
            "totals_s": [round(run["total_s"], 4) for run in runs],
            "limit_s": LIMITS[state],
        }
        for (model, batch_size, state), runs in taken.items()
    ]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    from drawing import draw_limit, finish_axes, finish_figure

    from tensorbow.pictures import BLUE, GOLD, GREY, TEAL

    for place, (state, limit) in enumerate(LIMITS.items(), start=1):
        axes = figure.add_subplot(1, len(LIMITS), place)
        shown = [row for row in result["details"]["rows"] if row["cache"] == state]
        names = [f"{TITLES[row['model']]}\nb={row['batch_size']}".replace(" ", "\n") for row in shown]
        bottoms = [0.0] * len(shown)
        for (phase, label), colour in zip(PHASES.items(), (GREY, BLUE, GOLD, TEAL), strict=True):
            heights = [row[phase] for row in shown]
            axes.bar(names, heights, bottom=bottoms, color=colour, label=label)
            bottoms = [a + b for a, b in zip(bottoms, heights, strict=True)]
        draw_limit(axes, limit, "limit")
        for spot, row in enumerate(shown):
            top = max(bottoms[spot], limit if 0.85 * limit < bottoms[spot] <= limit else 0.0)  # off the line
            text = f"{row['total_s']:.2f} s"
            axes.annotate(text, (spot, top), (0, 4), textcoords="offset points", ha="center", fontsize=9)
        title = "empty cache" if state == "cold" else "object code in the cache"
        finish_axes(axes, title, "", "seconds to the first step")
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylim(top=1.15 * max(limit, *bottoms))
    finish_figure(figure, "From the ready process to the first step", 4.6, "medians of fresh processes")


def table(details: dict[str, Any]) -> Table:
    totals = ("graph_and_compile_s", "total_s")
    rows = [
        [
            case_of(row),
            row["cache"],
            *(row[phase] for phase in PHASES),
            row["total_s"],
            row["processor_s"],
            row["limit_s"],
            *("met" if row[total] <= row["limit_s"] else MISSED for total in totals),
        ]
        for row in details["rows"]
    ]
    columns = ["model", "cache", *PHASES.values(), "to the first step", "processor", "limit"]
    columns += ["graph, compile and bind", "to the first step"]
    return Table(columns, rows, ["Medians of fresh processes; both sums are held against the same limit."])


def main() -> None:
    arguments = parser(__doc__, NAME)
    arguments.add_argument("--once", metavar="MODEL:BATCH_SIZE", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.once is not None:
        model, _, batch_size = options.once.partition(":")
        print(json.dumps(once(model, int(batch_size))))
        return
    del options.once
    with tempfile.TemporaryDirectory() as folder:
        cases, repeats = (SMALL, 1) if options.small else (CASES, 7)
        rows = measure(cases, repeats, Path(folder))
    details = {"replicas": REPLICAS, "rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
