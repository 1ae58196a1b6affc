"""Overhead of sessions and scheduler in steps that compute nothing (TensorFlow, OSDI 2016, section 6.2).

    python benchmarks/null_steps.py [--small] [--output FOLDER]

Sessions: `session.run` of an operation that does nothing, and of 1 to 100 scalar variables, on a CPU device,
from call to result. Steps this short run in the calling thread, in the stream's order, without a switch to
the stream's thread. `make_callable` avoids the look-up of names.

The scheduler: the whole engine on null devices, which record launches and waits and compute nothing, so that
only the host's work remains: inbox, enqueueing, events, results, and adding up the losses as in a training
run. All of it runs in one thread, whose processor time is counted per learning task (a round's
synchronisation task is shared among its learning tasks) and per task of any kind. A bare stream with the same
two launches and one event, in turn with it, is the yardstick. The limit is 20 microseconds per task, compared
with the figure per learning task, the greater one. A profile of every case, from a separate run, gives the
shares of the scheduler's parts: shares only, since a profiler slows small functions down.

Rounds launched as a whole, 64 per launch: the same engine on a null device whose backend has round programs.
The loop of launches and the results remain, per round and replica; the limit is 3 microseconds.

Rounds on a GPU, a CUDA graph for each: the same engine on a GPU whose CUDA calls do nothing (`stub_cuda`), so
that the host's work remains, of all its threads, without what the driver itself takes. One round and 64 a
launch; the limit is 5 microseconds per round and replica.

The paper's null steps fetch from parameter servers over a network: see `cluster_null_steps.py`.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from drawing import SYNCHRONISERS, draw_limit, finish_axes, grouped
from harness import Measured, Window, in_turn, interleave, paced, parser, save
from results_page import MISSED, Table
from stub_cuda import StubCuda

import tensorbow as tb
from scheduler import (
    BatchSource,
    LearningEngine,
    ReadyBatch,
    ReadyLaunch,
    RoundResults,
    StepProgram,
    Synchronisation,
)
from scheduler.training.measures.tally import Tally
from tensorbow.data import BatchRun
from tensorbow.devices import Device, GpuDevice, LaunchLog, NullDevice
from tensorbow.kernels import NullBackend, register_backend
from tensorbow.kernels.gpu.rounds.source import Outcome
from tensorbow.pictures import BLUE, TEAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "null_steps"
FETCHES = (0, 1, 2, 5, 10, 20, 50, 100)
REPLICAS = (1, 2, 4, 8, 16)
SYNCS = ("sma", "ssgd", "none")
LIMIT_US = 20.0  # per learning task
ROUNDS, LIMIT_OF_ROUNDS_US = 64, 3.0  # of a launch; per round and replica
LIMIT_ON_GPU_US = 5.0  # per round and replica
BATCH, FEATURES, UNITS = 16, 8, 4  # of the step, whose kernels never run
PROFILES, PROFILED_ROUNDS = 7, 200
PARTS = {  # of the scheduler, by files and folders
    "runs and results": ("scheduler/engine/", "scheduler/training/measures/tally.py"),
    "launching": ("scheduler/", "tensorbow/kernels/", "tensorbow/program/"),  # the rest of it
    "streams and events": ("tensorbow/devices/",),
}
REST = "elsewhere"


class InstantBatches:
    """Source whose batches are always ready."""

    def __init__(self, arrays: tuple[Any, ...], replicas: int) -> None:
        self.arrays, self.replicas = arrays, replicas

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> BatchSource:
        for round in range(start, stop):
            for replica in range(self.replicas):
                on_ready(ReadyBatch(replica, round, self.arrays, self._release))
        return self

    def _release(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to end."""


class InstantLaunches:
    """Source of launches of `ROUNDS` rounds, three of which are ready at once."""

    def __init__(self, arrays: tuple[Any, ...], replicas: int) -> None:
        self.inputs = [BatchRun([arrays] * ROUNDS)] * replicas

    def open(self, start: int, stop: int, on_ready: Any, on_error: Any) -> BatchSource:
        launches = iter(range(start, start + (stop - start) // ROUNDS))

        def following() -> None:
            launch = next(launches, None)
            if launch is not None:
                on_ready(ReadyLaunch(launch, self.inputs, following))

        for _ in range(3):
            following()
        return self

    def close(self) -> None:
        """Nothing to end."""


def session_windows(counts: tuple[int, ...]) -> dict[tuple[str, int], Window]:
    """Steps per second, by kind of call and number of fetches; 0 fetches an operation that does nothing."""
    with tb.Graph().as_default():
        nothing = tb.group()
        scalars = [tb.Variable(np.float32(index), name=f"scalar{index}") for index in range(max(counts))]
        session = tb.Session()
        session.run(tb.global_variables_initializer())
        windows: dict[tuple[str, int], Window] = {}
        for count in counts:
            fetches = scalars[:count] if count else nothing
            call = session.make_callable(fetches)
            windows["session.run", count] = paced(_times(session.run, fetches), 1, 1000.0)
            windows["make_callable", count] = paced(_times(call), 1, 1000.0)
    return windows


def _times(call: Callable[..., object], *arguments: object) -> Callable[[int], None]:
    def run_steps(steps: int) -> None:
        for _ in range(steps):
            call(*arguments)

    return run_steps


def whole_rounds(replicas: int) -> Window:
    """Rounds times replicas per second, with launches of `ROUNDS` rounds of all replicas."""
    register_backend("null", NullBackend(launches_rounds=True))
    run_rounds, _ = engine_rounds(1, replicas, "sma", ROUNDS)
    register_backend("null", NullBackend())
    return on_the_processor(lambda launches: run_rounds(launches * ROUNDS), ROUNDS * replicas)


def rounds_on_gpu(replicas: int, steps: int) -> Window:
    """Rounds times replicas per second on a GPU whose calls do nothing, with so many rounds a launch."""
    runtime = StubCuda()
    gpu = GpuDevice("/gpu:0", runtime)
    run_rounds, _ = engine_rounds(1, replicas, "sma", steps, [gpu], runtime)
    return on_the_processor(
        lambda launches: run_rounds(launches * steps), steps * replicas, time.process_time
    )


def engine_rounds(
    devices: int,
    per_device: int,
    sync: str,
    steps: int = 1,
    gpus: Sequence[Device] = (),
    runtime: StubCuda | None = None,
) -> tuple[Callable[[int], None], int]:
    """Function that runs so many rounds, and learning tasks per round. steps: rounds per launch.

    gpus: in place of null devices. runtime: theirs.
    """
    with tb.Graph().as_default():
        images = tb.placeholder(tb.float32, [BATCH, FEATURES], name="images")
        weights = tb.Variable(np.zeros((FEATURES, UNITS), np.float32), name="weights")
        loss = tb.reduce_mean(tb.square(tb.matmul(images, weights)))
        update = tb.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    log = LaunchLog(0)
    engine = LearningEngine(
        StepProgram((images,), loss, update, {}),
        [tb.TensorSpec((BATCH, FEATURES), tb.float32)],
        [*gpus] or [NullDevice(f"/null:{index}", log=log) for index in range(devices)],
        per_device,
        Synchronisation(sync),
        tb.train.Constant(0.1),
        steps_per_launch=steps,
    )
    engine.initialize({"weights": np.zeros((FEATURES, UNITS), np.float32)})
    if runtime is not None:
        runtime.on_graph = lambda: _say_done(engine)
    replicas = devices * per_device
    source = InstantBatches if steps == 1 else InstantLaunches
    batches = source((np.zeros((BATCH, FEATURES), np.float32),), replicas)

    tally = Tally()  # as a training run keeps it; these steps count no right answers

    def count(results: RoundResults) -> None:
        tally.add(results.losses, {}, BATCH)

    def run_rounds(rounds: int) -> None:
        engine.run(batches.open, engine.round, engine.round + rounds, count)

    return run_rounds, replicas


def _say_done(engine: LearningEngine) -> None:
    """Writes what the last kernel of a round would write."""
    for device in engine.learners.launcher._program._devices:  # type: ignore[attr-defined]
        device.outcomes.fill(Outcome.DONE)


def shares_of_parts(run_rounds: Callable[[int], None]) -> dict[str, float]:
    """Shares of the scheduler's parts in the time of rounds, built-ins with callers: medians of profiles."""
    profiles = [_shares_of_profile(run_rounds) for _ in range(PROFILES)]
    return {part: round(statistics.median(one[part] for one in profiles), 3) for part in (*PARTS, REST)}


def _shares_of_profile(run_rounds: Callable[[int], None]) -> dict[str, float]:
    profile = cProfile.Profile()
    profile.runcall(run_rounds, PROFILED_ROUNDS)
    seconds = dict.fromkeys((*PARTS, REST), 0.0)
    for (path, _, _), (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if path != "~":
            seconds[part_of(path)] += own
        for (caller, _, _), (_, _, inside, _) in callers.items() if path == "~" else ():
            seconds[part_of(caller)] += inside
    total = sum(seconds.values())
    return {part: spent / total for part, spent in seconds.items()}


def part_of(path: str) -> str:
    """Part of the scheduler that a file of the project belongs to."""
    found = [part for part, files in PARTS.items() if any(f"/{file}" in path for file in files)]
    return found[0] if found else REST


def bare_window() -> Window:
    stream = NullDevice("/null:0", log=LaunchLog(0)).new_stream("bare")

    def nothing() -> None:
        pass

    def run_tasks(tasks: int) -> None:
        for _ in range(tasks):
            stream.enqueue(nothing, label="gradient")
            stream.enqueue(nothing, label="update")
            stream.record()

    return on_the_processor(run_tasks, 1)


def on_the_processor(
    run_steps: Callable[[int], None], units: int, clock: Callable[[], float] = time.thread_time
) -> Window:
    """Window like `harness.paced`, in units per second of processor time, by default of this thread."""
    per_second = 1000.0 / units

    def window(seconds: float) -> float:
        nonlocal per_second
        steps = max(10, int(per_second * seconds))
        started = clock()
        run_steps(steps)
        elapsed = clock() - started
        per_second = steps / elapsed
        return steps * units / elapsed

    return window


def microseconds(rates: Measured) -> dict[str, Any]:
    """Microseconds per step of rates per second: median and all windows."""
    samples = [round(1e6 / rate, 3) for rate in rates.samples]
    return {"us": round(1e6 / rates.median, 3), "samples_us": samples}


def tasks_per_learning_task(devices: int, per_device: int, sync: str) -> float:
    """Tasks of any kind per learning task: a round with synchronisation has one more task on each device."""
    replicas = devices * per_device
    return 1.0 if sync == "none" or replicas == 1 else (replicas + devices) / replicas


def draw(figure: Figure, result: dict[str, Any]) -> None:
    steps, tasks = result["details"]["sessions"], result["details"]["tasks"]
    left, right = figure.subplots(1, 2)
    for line, colour in zip(grouped(steps, "call"), (BLUE, TEAL), strict=True):
        places, us = [row["fetches"] for row in line], [row["us"] for row in line]
        left.plot(places, us, color=colour, marker="o", markersize=4, label=line[0]["call"])
    finish_axes(left, "a session's null step on a CPU device", "scalars fetched", "microseconds per step")
    one_device = [row for row in tasks if row["devices"] == 1]
    for sync in SYNCS:
        line = [row for row in one_device if row["sync"] == sync]
        places, us = [row["replicas_per_device"] for row in line], [row["us"] for row in line]
        right.plot(places, us, color=SYNCHRONISERS[sync], marker="o", markersize=4, label=sync)
    limit = result["details"]["limit_us"]
    draw_limit(right, limit, f"limit, {limit:g} us")
    right.set_xscale("log", base=2)
    ticks = sorted({row["replicas_per_device"] for row in one_device})
    finish_axes(right, "the scheduler on a null device", "replicas", "processor us per learning task", ticks)
    right.set_ylim(top=1.25 * max(limit, *(row["us"] for row in one_device)))
    left.legend()
    right.legend(ncols=2, loc="lower right")
    figure.suptitle(f"Steps that compute nothing: medians of {result['details']['windows']} windows")


def table(details: dict[str, Any]) -> Table:
    rows: list[list[Any]] = [
        [f"{row['call']}, {row['fetches']} scalars", row["us"], None, None, None, None]
        for row in details["sessions"]
    ]
    bare = details["bare_stream"]["us"]
    rows.append(["bare stream: two launches and an event", bare, None, 1.0, None, None])
    for row in details["tasks"]:
        alone = row["devices"] * row["replicas_per_device"] == 1
        case = f"scheduler, {row['devices']} x {row['replicas_per_device']} replicas"
        parts = ", ".join(f"{name} {part:.0%}" for name, part in row["parts"].items())
        rows.append([f"{case}, {'alone' if alone else row['sync']}", row["us"]])
        rows[-1] += [row["us_with_synchronisation_tasks"], row["us"] / bare]
        rows[-1] += ["met" if row["us"] <= details["limit_us"] else MISSED, parts]
    for row in details["rounds"]:
        verdict = "met" if row["us"] <= details["limit_of_rounds_us"] else MISSED
        what = f"scheduler, {ROUNDS} rounds a launch, {row['replicas']} replicas: per round and replica"
        rows.append([what, row["us"], None, row["us"] / bare, f"{verdict} (3 us)", None])
    for row in details["rounds_on_gpu"]:
        verdict = "met" if row["us"] <= details["limit_on_gpu_us"] else MISSED
        what = f"GPU without work, {row['rounds']} rounds a launch, {row['replicas']} replicas"
        rows.append(
            [f"{what}: per round and replica", row["us"], None, row["us"] / bare, f"{verdict} (5 us)"]
        )
        rows[-1].append(None)
    columns = ["what", "us per step or learning task", "us per task of any kind", "times bare stream"]
    columns += [f"at most {details['limit_us']:g} us per learning task", "parts, by a profile"]
    remarks = [in_turn(details["windows"], details["seconds_per_window"])]
    return Table(columns, rows, [*remarks, "Replicas are null devices x replicas on each."])


def main() -> None:
    options = parser(__doc__, NAME).parse_args()
    seconds, windows = (0.05, 3) if options.small else (0.5, 9)
    measured = interleave(session_windows((0, 1, 10, 100) if options.small else FETCHES), seconds, windows)
    steps = [{"call": call, "fetches": count, **microseconds(m)} for (call, count), m in measured.items()]
    cases = [(1, count, sync) for count in REPLICAS for sync in SYNCS if count > 1 or sync == "sma"]
    cases += [(2, 4, "sma"), (4, 4, "sma")]
    engines = {case: engine_rounds(*case) for case in cases}
    rounds = {("rounds", count): whole_rounds(count) for count in REPLICAS}
    on_gpu = {
        ("gpu", count, steps): rounds_on_gpu(count, steps) for count in REPLICAS for steps in (1, ROUNDS)
    }
    contestants = {
        "bare": bare_window(),
        **rounds,
        **on_gpu,
        **{case: on_the_processor(*made) for case, made in engines.items()},
    }
    costs = {case: microseconds(m) for case, m in interleave(contestants, seconds, windows).items()}
    bare = costs.pop("bare")
    of_rounds = [{"replicas": case[1], **costs.pop(case)} for case in rounds]
    of_gpu = [{"replicas": case[1], "rounds": case[2], **costs.pop(case)} for case in on_gpu]
    tasks = [
        {
            "devices": devices,
            "replicas_per_device": count,
            "sync": sync,
            **cost,
            "us_with_synchronisation_tasks": round(cost["us"] / tasks_per_learning_task(*case), 3),
            "parts": shares_of_parts(engines[case][0]),
        }
        for case, cost in costs.items()
        for devices, count, sync in (case,)
    ]
    details = {
        "seconds_per_window": seconds,
        "windows": windows,
        "sessions": steps,
        "bare_stream": bare,
        "limit_us": LIMIT_US,
        "tasks": tasks,
        "limit_of_rounds_us": LIMIT_OF_ROUNDS_US,
        "rounds": of_rounds,
        "limit_on_gpu_us": LIMIT_ON_GPU_US,
        "rounds_on_gpu": of_gpu,
    }
    save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
