"""Gain of each mechanism of the native backend: time of a round without it over the time with all.

    python benchmarks/ablation.py [--only lenet:16 ...] [--seconds 0.25] [--windows 15] [--small]

The cases are those of `cpu_floors.py`, with replicas averaged every round and one step per launch. The
mechanisms are those of `Switches`, batches made on the device (examples), and the choice of one thread for
short rounds. All contestants of a case
are open at once and take turns. A ratio is the median over the turns; the ratio in brackets is that of the
fastest windows, which other programs on the machine disturb least. One more contestant, again with all
mechanisms, shows the noise of the ratios. A mechanism that does not change a case's plan is not measured for
it. Cases left out by `--only` keep their earlier figures. Needs llvmlite.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cpu_floors import CASES, SMALL, Case, other_runs, with_earlier
from experiments import case_of
from harness import (
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
from ours import Training, made_up_data, training_window
from results_page import Table

from scheduler.replicas import thread_choice
from tensorbow.data import ImageDataset
from tensorbow.kernels import register_backend
from tensorbow.kernels.backends import backend_of_kind
from tensorbow.kernels.binary_cache import cache_folder
from tensorbow.kernels.native.backend import NativeBackend
from tensorbow.kernels.native.codegen.plan_key import plan_key
from tensorbow.kernels.native.codegen.switches import ALL, Switches
from tensorbow.kernels.native.codegen.target import host_target
from tensorbow.kernels.native.plan import NativePlan
from tensorbow.pictures import GRID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "ablation"
MECHANISMS = {field.name: replace(ALL, **{field.name: False}) for field in fields(Switches)}
NOT_IN_PLANS = ("whole_rounds",)  # not visible in a plan
EVERYTHING, AGAIN, ONE_THREAD = "everything", "nothing (noise)", "one thread for short rounds"
BATCH_OPS = "batches by an op"  # of the data set that the device keeps
WARM_UP_ROUNDS = 4
WORTH = 1.03  # least ratio for which a mechanism is kept


@contextmanager
def registered(switches: Switches) -> Iterator[None]:
    """Registers a native backend with these mechanisms for CPU devices, then the earlier backend again."""
    before = backend_of_kind("cpu")
    register_backend("cpu", NativeBackend(replace(host_target(), switches=switches), cache_folder("native")))
    try:
        yield
    finally:
        register_backend("cpu", before)


def trained(
    case: Case, options: argparse.Namespace, data: ImageDataset, switches: Switches, on_device: str = "auto"
) -> Training:
    """Contestant after some warm-up rounds: the engine asks for its backend in the first."""
    with registered(switches):
        training = training_window(
            case.model, case.batch_size, options.replicas, data=data, data_on_device=on_device
        )
        training.run_rounds(WARM_UP_ROUNDS)
    return training


def plan_of(training: Training) -> str | None:
    """Key that names the code of a replica's step."""
    plan = training.engine.learners.replicas[0].binding.plan
    assert isinstance(plan, NativePlan)
    step = plan.segments.executable
    return plan_key([segment.groups for segment in step.segments], step.state["status"])


def each_its_own(training: Training, seconds: float) -> float:
    """Window without trials of one thread: no round counts as short."""
    usual, thread_choice.SHORT = thread_choice.SHORT, 0.0
    try:
        return training(seconds)
    finally:
        thread_choice.SHORT = usual


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Images per second of each contestant, and both ratios of each mechanism."""
    data = made_up_data(case.model)
    with ExitStack() as opened:
        whole = opened.enter_context(trained(case, options, data, ALL))
        windows: dict[str, Window] = {EVERYTHING: whole}
        windows[AGAIN] = opened.enter_context(trained(case, options, data, ALL))
        rate = max(whole(options.seconds) for _ in range(2))  # the first window is very short
        if options.replicas * case.batch_size / rate < thread_choice.SHORT:
            training = opened.enter_context(trained(case, options, data, ALL))
            windows[ONE_THREAD] = partial(each_its_own, training)
        windows[BATCH_OPS] = opened.enter_context(trained(case, options, data, ALL, "never"))
        for name, switches in MECHANISMS.items():
            training = opened.enter_context(trained(case, options, data, switches))
            if name in NOT_IN_PLANS or plan_of(training) != plan_of(whole):
                windows[name] = training
            else:
                training.close()
        measured = interleave(windows, options.seconds, options.windows)
    base = np.array(measured[EVERYTHING].samples)
    ratios = {
        name: [float(np.median(base / rates.samples)), float(base.max() / max(rates.samples))]
        for name, rates in measured.items()
        if name != EVERYTHING
    }
    return {
        "model": case.model,
        "batch_size": case.batch_size,
        "images_per_second": {name: rates.as_json() for name, rates in measured.items()},
        "ratios": {name: [round(ratio, 3) for ratio in both] for name, both in ratios.items()},
    }


def names_of(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Mechanisms measured in at least one case, in the order of the rows, noise first."""
    names = (AGAIN, *MECHANISMS, BATCH_OPS, ONE_THREAD)
    return [name for name in names if any(name in case["ratios"] for case in cases)]


def table(details: dict[str, Any]) -> Table:
    cases = details["rows"]
    rows: list[list[str | None]] = []
    for name in names_of(cases):
        both = [case["ratios"].get(name) for case in cases]
        rows.append([name.replace("_", " "), *(r and f"{r[0]:.2f} ({r[1]:.2f})" for r in both)])
    remarks = [
        in_turn(details["windows"], details["seconds_per_window"]),
        *other_runs(cases),
        "In brackets: the ratio of the fastest windows, which other programs on the machine disturb least.",
        "`-`: the mechanism does not change the case's plan, or its rounds are not short.",
    ]
    return Table(["without", *map(case_of, cases)], rows, remarks)


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a line for each mechanism with a mark for each case."""
    from drawing import MODELS, WIDTH, grouped, shades

    cases = result["details"]["rows"]
    names = names_of(cases)
    figure.set_size_inches(WIDTH, 1.6 + 0.5 * len(names))
    axes = figure.subplots()
    axes.axvspan(1 / WORTH, WORTH, color=GRID, label=f"within {WORTH - 1:.0%}")
    number = 0
    for model, marker in zip(grouped(cases, "model"), "osD^", strict=False):
        colours = shades(MODELS[model[0]["model"]], len(model))
        for case, colour in zip(model, colours, strict=True):
            shift = 0.6 * (number / max(1, len(cases) - 1) - 0.5)  # so that equal ratios stay apart
            shown = [name for name in names if name in case["ratios"]]
            ratios = [case["ratios"][name][0] for name in shown]
            places = [names.index(name) + shift for name in shown]
            axes.plot(ratios, places, marker, color=colour, markersize=6, label=case_of(case))
            number += 1
    axes.set_xscale("log")
    ticks = (0.9, 1, 1.1, 1.25, 1.5, 2, 3)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    for line in range(1, len(names)):
        axes.axhline(line - 0.5, color=GRID, linewidth=0.8)
    axes.set_xlabel("time of a round without the mechanism over that with all: medians")
    figure.legend(loc="outside lower center", ncols=4)


def main() -> None:
    made = parser(__doc__, NAME)
    names = [case.name for case in CASES]
    made.add_argument("--only", nargs="+", choices=names, metavar="MODEL:BATCH", help=", ".join(names))
    made.add_argument("--seconds", type=positive_float, help="length of a window; default 0.25, small 0.1")
    made.add_argument("--windows", type=positive_int, help="windows of each contestant; default 15, small 2")
    made.add_argument(
        "--replicas",
        type=positive_int,
        default=cores(),
        help="number of replicas; default: one for each core",
    )
    options = made.parse_args()
    options.only = options.only or (list(SMALL) if options.small else names)
    options.seconds = options.seconds or (0.1 if options.small else 0.25)
    options.windows = options.windows or (2 if options.small else 15)
    cases = []
    for case in CASES:
        if case.name in options.only:
            print(f"{case.name} ...", flush=True)
            cases.append(measure(case, options) | {"command": command_line(options)})
            print(cases[-1]["ratios"], flush=True)
    cases = with_earlier(cases, output_path(options, f"{NAME}.json"))
    details = {"windows": options.windows, "seconds_per_window": options.seconds, "rows": cases}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
