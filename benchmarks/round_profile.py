"""Time of a round by its parts: native steps, averaging, the scheduler in Python, and waiting cores.

    python benchmarks/round_profile.py [--small] [--output FOLDER]

Two replicas on a CPU device, a thread each, with one step per call (K=1) and 64, for the shortest steps.
Three things are measured in turn: the native calls of one replica's step, repeated in one thread, without
scheduler, batches or averaging; the replicas in the product's scheduler, independent (`none`); and the same
averaged every round (`sma`). The latter two give the wall time of a round, and from Linux's
`/proc/self/task/*/schedstat` the processor time of every thread and how long it was ready but had no core.

The cores' time, cores times wall time, is the sum of these parts:
  native steps      time of the round's steps when run alone in one thread
  batches, calls,   other processor time of the streams' threads without averaging: batches, calls,
  neighbour         hand-over in Python, and slower steps while a neighbour uses the same memory
  averaging         the streams' processor time with averaging minus that without
  scheduler         processor time of the thread that drives the engine: the scheduler, in Python (minus
                    the native steps, where it runs the shortest itself)
  cores waiting     the rest: hand-over between threads, waiting for the other replica, and any other
                    program on the machine, which must therefore be quiet
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drawing import PHASES, finish_figure
from experiments import case_of
from harness import cores, in_turn, parser, save
from ours import Training, training_window
from results_page import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "round_profile"
REPLICAS = 2
PARTS = {  # of a round
    "native_us": "native steps",
    "beside_us": "batches, calls, neighbour",
    "averaging_us": "averaging",
    "scheduler_us": "scheduler",
    "waiting_us": "cores waiting or unused",
}
FEW = 0.05  # share of a round: with less time on the other threads, one thread runs the steps of all replicas
CASES = (("logreg", 16), ("lenet", 4), ("lenet", 16), ("lenet", 32))
STEPS_PER_LAUNCH = (1, 64)
SYNCS = ("none", "sma")
STEPS_BETWEEN_LOOKS = 8  # at the clock, of native steps
Threads = dict[str, tuple[int, int]]
"""Nanoseconds on a core, and ready without one, since each thread began; by thread."""


def threads_of_process() -> Threads:
    """Times of this process's Python threads. Raises SystemExit where the system does not report them."""
    found: Threads = {}
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
        except FileNotFoundError:
            if Path("/proc/self/schedstat").exists():
                continue  # it has ended meanwhile
            raise SystemExit(
                f"{NAME}: expected Linux with scheduler statistics (/proc/self/task/*/schedstat), "
                "got a system without; run it on one that has them"
            ) from None
        on_a_core, without = map(int, text.split()[:2])
        found[thread.name] = on_a_core, without
    return found


def profiled(training: Training, seconds: float) -> dict[str, Any]:
    """Window: microseconds per round, and each thread's time on a core and ready without one."""
    before, first, started = threads_of_process(), training.engine.round, time.perf_counter()
    training(seconds)
    elapsed, rounds = time.perf_counter() - started, training.engine.round - first
    after = threads_of_process()
    spent = {
        name: [(now - then) / 1e3 / rounds for now, then in zip(times, before.get(name, (0, 0)), strict=True)]
        for name, times in after.items()
    }
    driver = spent.pop(threading.current_thread().name)
    by_stream: dict[str, float] = {}
    for name, times in spent.items():
        by_stream[_short(name)] = by_stream.get(_short(name), 0.0) + times[0]
    return {
        "round_us": 1e6 * elapsed / rounds,
        "driver_us": driver[0],
        "streams_us": sum(by_stream.values()),
        "ready_without_a_core_us": driver[1] + sum(times[1] for times in spent.values()),
        "by_stream_us": by_stream,
    }


def _short(name: str) -> str:
    """Name of the stream within a thread's name `tensorbow /cpu:0 engine-3 replica 1`."""
    return name.partition(" engine-")[2].partition(" ")[2] or name


def native_calls(model: str, batch_size: int, opened: ExitStack) -> Callable[[float], float] | None:
    """Window of a step's native calls: microseconds per step of this thread's processor time.

    None where code is not native.
    """
    import tensorbow as tb
    from tensorbow.kernels import register_backend
    from tensorbow.kernels.backends import backend_of_kind

    usual = backend_of_kind("cpu")
    if type(usual).__name__ != "NativeBackend":
        return None
    from native_step import plan_of_step

    try:
        with tb.Graph().as_default():
            session, plan = plan_of_step(model, batch_size, None)
    finally:
        register_backend("cpu", usual)  # of the engines that follow
    opened.callback(session.close)
    segments = range(len(plan.executable.segments))

    def window(seconds: float) -> float:
        steps, started = 0, time.thread_time()
        elapsed = 0.0
        while elapsed < seconds:
            for _ in range(STEPS_BETWEEN_LOOKS):
                for segment in segments:
                    plan.launch(segment)
            steps += STEPS_BETWEEN_LOOKS
            elapsed = time.thread_time() - started
        return 1e6 * elapsed / steps

    return window


def medians(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median of each figure; figures by thread are treated thread by thread."""
    return {
        key: medians([window[key] for window in windows])
        if isinstance(windows[0][key], dict)
        else round(statistics.median(window.get(key, 0.0) for window in windows), 3)
        for key in windows[0]
    }


def shares(row: dict[str, Any], native_us: float | None, independent: dict[str, Any]) -> dict[str, float]:
    """Parts of a round, in core-microseconds; they sum to cores times `round_us`.

    native_us: time of one replica's step alone; None leaves native steps in the other parts. In a launch of
    many, steps may be faster than alone: they are then given all processor time of a round without averaging.
    independent: figures of the same case without averaging. Native steps that exceed the streams' time ran in
    the thread that drives the engine, as the shortest steps may; averaging there counts as scheduler.
    """
    streams, driver = row["streams_us"], row["driver_us"]
    most = independent["streams_us"] + independent["driver_us"]
    native = 0.0 if native_us is None else min(native_us * row["replicas"], most)
    in_streams = min(native, streams)
    in_driver = min(native - in_streams, driver)
    averaging = max(0.0, streams - max(independent["streams_us"], in_streams))
    parts = {
        "native_us": in_streams + in_driver,
        "beside_us": streams - in_streams - averaging,
        "averaging_us": averaging,
        "scheduler_us": driver - in_driver,
    }
    parts["waiting_us"] = row["cores"] * row["round_us"] - sum(parts.values())
    return {name: round(value, 2) for name, value in parts.items()}


def measure(model: str, batch_size: int, seconds: float, windows: int) -> list[dict[str, Any]]:
    """Row for each number of steps per call, independent and averaged, all measured in turn."""
    with ExitStack() as opened:
        alone = native_calls(model, batch_size, opened)
        trainings = {
            (steps, sync): opened.enter_context(
                training_window(model, batch_size, REPLICAS, sync=sync, steps_per_launch=steps)
            )
            for steps in STEPS_PER_LAUNCH
            for sync in SYNCS
        }
        for training in trainings.values():
            training(min(seconds, 1.0))
        taken: dict[tuple[int, str], list[dict[str, Any]]] = {key: [] for key in trainings}
        natives = []
        for _ in range(windows):
            natives += [] if alone is None else [alone(seconds)]
            for key, training in trainings.items():
                taken[key].append(profiled(training, seconds))
    native_us = round(statistics.median(natives), 3) if natives else None
    found = {key: medians(profiles) for key, profiles in taken.items()}
    rows = []
    for (steps, sync), figures in found.items():
        row: dict[str, Any] = {
            "model": model,
            "batch_size": batch_size,
            "replicas": REPLICAS,
            "steps_per_launch": steps,
        }
        row |= {"sync": sync, "cores": min(cores(), REPLICAS), "native_step_us": native_us, **figures}
        row["images_per_second"] = round(1e6 * REPLICAS * batch_size / row["round_us"], 1)
        row["rounds_us"] = [round(profile["round_us"], 2) for profile in taken[steps, sync]]
        row["parts"] = shares(row, native_us, found[steps, "none"])
        rows.append(row)
    return rows


def named(row: dict[str, Any]) -> str:
    """Label of a row."""
    return f"{case_of(row)}, {row['sync']}, K={row['steps_per_launch']}"


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a bar for each row, with its parts as shares of the cores' time of a round."""
    rows = result["details"]["rows"]
    axes = figure.subplots()
    case = [case_of(row) for row in rows]
    gaps = [sum(a != b for a, b in zip(case[1 : n + 1], case[:n], strict=True)) for n in range(len(rows))]
    places = [number + 0.5 * gap for number, gap in enumerate(gaps)]  # with a gap between two cases
    totals = [row["cores"] * row["round_us"] for row in rows]
    lefts = [0.0] * len(rows)
    for (part, label), colour in zip(PARTS.items(), PHASES.values(), strict=True):
        widths = [100 * row["parts"][part] / total for row, total in zip(rows, totals, strict=True)]
        axes.barh(places, widths, left=lefts, color=colour, label=label)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    for place, row in zip(places, rows, strict=True):
        axes.annotate(f"{row['round_us']:,.0f} us a round", (101, place), va="center", fontsize=8)
    axes.set_yticks(places, list(map(named, rows)), fontsize=8)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.set_xlim(0, 120)
    axes.set_xticks(range(0, 101, 20))
    axes.spines["bottom"].set_bounds(0, 100)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"percent of the time of {rows[0]['cores']} cores")
    title = f"Where a round of {rows[0]['replicas']} replicas goes; K: rounds a launch"
    finish_figure(figure, title, 1.7 + 0.32 * len(rows))


def by_one_thread(row: dict[str, Any]) -> bool:
    """True if one thread runs the steps of all replicas: the driver, or the thread of one stream."""
    busy = sorted([row["driver_us"], *row["by_stream_us"].values()])
    others = sum(busy[:-1]) - (row["driver_us"] if busy[-1] != row["driver_us"] else 0.0)
    return bool(others < FEW * row["round_us"])


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for row in details["rows"]:
        rows.append([named(row), row["images_per_second"], row["round_us"]])
        for part in PARTS:
            us = row["parts"][part]
            rows[-1].append(f"{us:,.1f} ({us / row['cores'] / row['round_us']:.0%})")
        rows[-1].append("one" if by_one_thread(row) else "each its own")
    columns = ["case", "images/s", "us a round", *(f"{part}, us" for part in PARTS.values()), "threads"]
    remarks = [
        in_turn(details["windows"], details["seconds_per_window"]),
        "Threads: one does the steps of all replicas where that was measured to be faster than a thread for "
        "each; the other core is then unused. With K=1 that is the thread that drives the engine, and "
        "averaging is part of `scheduler`.",
    ]
    return Table(columns, rows, remarks)


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.15, 2) if options.small else (1.0, 7)
    cases = CASES[:2] if options.small else CASES
    threads_of_process()
    rows = [row for case in cases for row in measure(*case, seconds, windows)]
    details = {"seconds_per_window": seconds, "windows": windows, "rows": rows}
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
