"""What did not reach its target, from the results, beside the profile of what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from report_figures import COMPILE_TIMES, case_of, missed_tasks, slow_ways, task_case
from report_papers import least_ratio

Result = dict[str, Any]
PARTS = {  # of a round, in `round_profile.py`
    "native_us": "native steps",
    "beside_us": "batches, calls, neighbour",
    "averaging_us": "averaging",
    "scheduler_us": "scheduler",
    "waiting_us": "cores waiting or unused",
}
PHASES = {
    "graph_s": "graph",
    "compile_s": "compile and bind",
    "initial_values_s": "initial values",
    "first_round_s": "first round",
}
STEPS_A_CALL = " steps a call"
FEW = 0.05  # of a round: with less on the other streams' threads, one does the work of all
MOST = 0.75  # of the cores' time: where native steps have less, a sentence says what has the rest


@dataclass
class Missed:
    """rates: rows of a table, of `cpu_floors.py`. others: a line for each of the rest. count: of targets."""

    header: list[str]
    rates: list[list[str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    count: int = 0


def missed(results: dict[str, Result]) -> Missed:
    """Of all results that there are."""
    header = ["missed", "reached", "to reach", "profiled at", *PARTS.values(), "with native steps alone"]
    found = Missed(header)
    profiles = {key_of(row): row for row in results.get("round_profile", {"rows": []})["rows"]}
    for row in results.get("cpu_floors", {"rows": []})["rows"]:
        for target in row["targets"]:
            if target["ratio"] is not None and not target.get("reached", True):
                found.rates.append(row_of_rate(row, target, profiles.get(key_of_target(row, target["ours"]))))
    found.others = [
        line
        for lines in (auto_tuner, null_steps, compile_times, replicator_overhead, time_to_accuracy)
        for line in lines(results)
    ]
    found.count = len(found.rates) + len(found.others)
    return found


def key_of(row: Result) -> tuple[Any, ...]:
    """What tells a row of the profile from another."""
    return row["model"], row["batch_size"], row["sync"], row["steps_per_launch"]


def key_of_target(row: Result, ours: str) -> tuple[Any, ...]:
    """The same of a target by its name, as `TensorBow sma, 64 steps a call`."""
    sync, _, steps = ours.removeprefix("TensorBow ").partition(", ")
    return row["model"], row["batch_size"], sync, int(steps.removesuffix(STEPS_A_CALL) or 1)


def row_of_rate(row: Result, target: Result, profiled: Result | None) -> list[str]:
    """A missed target: its ratio, the parts of its round in percent of the cores' time.

    The profile is of another run than the ratio, at a rate of its own. The last cell is the ratio that there
    would be if all cores did nothing but native steps, each as fast as alone; `-` without a profile.
    """
    kind = "floor" if "floor" in target else "stretch"
    cells = [f"{case_of(row)}, {target['ours']}", f"{target['ratio']:.2f}", f"{kind} {target[kind]}"]
    if profiled is None:
        return [*cells, *("-" for _ in ("rate", *PARTS, "alone"))]
    cells.append(f"{profiled['images_per_second']:,.0f} images/s")
    cells += [f"{share(profiled, part):.0%}" for part in PARTS]
    alone = profiled["parts"]["native_us"]
    if profiled["native_step_us"] is None:
        return [*cells, "-"]
    rate = 1e6 * profiled["cores"] * profiled["replicas"] * profiled["batch_size"] / alone
    return [*cells, f"{rate / row['images_per_second'][target['best_peer']]['median']:.2f}"]


def share(row: Result, part: str) -> float:
    """Of a part in the cores' time of a round."""
    return float(row["parts"][part] / row["cores"] / row["round_us"])


def auto_tuner(results: dict[str, Result]) -> list[str]:
    """The cases in which the tuner's choice, or the run that made it, is too far behind the best."""
    result = results.get("auto_tuner", {"cases": []})
    return [
        f"`auto_tuner.py`, {case_of(case)}: {least_ratio(case):.1%} of the best fixed number's throughput, "
        f"floor {result['floor']:.0%}"
        for case in result["cases"]
        if least_ratio(case) < result["floor"]
    ]


def null_steps(results: dict[str, Result]) -> list[str]:
    """What the scheduler spends on a task, where it is more than the limit; null devices x replicas."""
    result = results.get("null_steps")
    if result is None:
        return []
    limit = f"limit {result['limit_us']:g} us"
    made = []
    for row in missed_tasks(result):
        parts = ", ".join(f"{name} {part:.0%}" for name, part in row["parts"].items())
        made.append(
            f"`null_steps.py`, {task_case(row)} per learning task, {limit}: its part of the round's "
            f"synchronisation included, {row['us_with_synchronisation_tasks']:.1f} us per task of any kind "
            f"({parts})"
        )
    return made


def compile_times(results: dict[str, Result]) -> list[str]:
    """What takes longer than its limit, by phases."""
    made = []
    for row in results.get("compile_time", {"rows": []})["rows"]:
        over = [
            f"{name} {seconds(row):.2f} s"
            for name, seconds in COMPILE_TIMES.items()
            if seconds(row) > row["limit_s"]
        ]
        if over:
            phases = ", ".join(f"{label} {row[phase]:.2f}" for phase, label in PHASES.items())
            case = f"`compile_time.py`, {case_of(row)}, {row['cache']}"
            made.append(f"{case}: {'; '.join(over)}, limit {row['limit_s']:g} s ({phases})")
    return made


def replicator_overhead(results: dict[str, Result]) -> list[str]:
    """The ways of training one replica that cost too much beside the plain session."""
    result = results.get("replicator_overhead")
    over = slow_ways(result) if result is not None else []
    if result is None or not over:
        return []
    plain = next(row for row in result["rows"] if row["way"] == "plain session")
    beside = f"of a plain session's step of {plain['ms_per_step']:.2f} ms"
    return [f"`replicator_overhead.py`: {', '.join(over)} {beside}, limit {result['target'] - 1:.0%}"]


def time_to_accuracy(results: dict[str, Result]) -> list[str]:
    """The time to 99 %, if it is too long."""
    result = results.get("fig_5_4_and_5_5")
    ratio = None if result is None else result.get("times_as_fast", {}).get("best_peer")
    if result is None or ratio is None or ratio >= result["floor"]:
        return []
    return [f"`fig_5_4_and_5_5.py`: {ratio:.2f} times as fast as the best peer, floor {result['floor']}"]


def rows_of_profile(result: Result) -> list[list[str]]:
    """Every profile, in microseconds of cores."""
    return [
        [
            profiled_case(row),
            f"{row['images_per_second']:,.0f}",
            f"{row['round_us']:,.1f}",
            *(f"{row['parts'][part]:,.1f} ({share(row, part):.0%})" for part in PARTS),
        ]
        for row in result["rows"]
    ]


def profile(result: Result) -> tuple[list[str], list[str]]:
    """The header of that table, and what is to be seen in it."""
    cores = result["rows"][0]["cores"]
    header = ["case; K steps a call", "images/s", "us a round", *(f"{name}, us" for name in PARTS.values())]
    sentences = [
        f"The parts of a round are shares of {cores} cores' time, {cores} times the time of the round. "
        "Native steps: what the round's steps take alone in one thread, called one by one from Python. "
        "Batches, calls, neighbour: what the streams' threads take beyond that without averaging. "
        "Averaging: what they take more with it. Scheduler: processor time of the thread that drives the "
        "engine. The rest is hand-over between threads, waiting for the other replica, and cores that are "
        "given nothing to do."
    ]
    alone = [row for row in result["rows"] if by_one_thread(row)]
    if alone:
        unused = ", ".join(f"{row['round_us']:,.1f}" for row in alone)
        sentences.append(
            f"{'; '.join(map(profiled_case, alone))}: one thread does the steps of both replicas, because "
            "two were measured to take longer (handing over steps, or weights and z from core to core, costs "
            "more than the second core brings). So nobody waits, and the other core is unused all the round "
            f"({unused} us). With K=1 that thread is the one that drives the engine, and averaging is part "
            "of `scheduler`."
        )
    for row in result["rows"]:
        part = max((name for name in PARTS if name != "native_us"), key=lambda name: row["parts"][name])
        least = row["ready_without_a_core_us"] / row["round_us"]
        busy = (
            f"; threads were ready without a core, in sum, for {least:.0%} of the round"
            if least > 0.1
            else ""
        )
        native = share(row, "native_us")
        if native < MOST and row not in alone:
            sentences.append(
                f"{profiled_case(row)}: native steps have {native:.0%} of the cores' time, the most of the "
                f"rest goes to {PARTS[part]} ({row['parts'][part]:,.1f} us of cores a round){busy}."
            )
    return header, sentences


def by_one_thread(row: Result) -> bool:
    """Whether one thread does the steps of all replicas: the driver's, or that of one stream."""
    busy = sorted([row["driver_us"], *row["by_stream_us"].values()])
    others = sum(busy[:-1]) - (row["driver_us"] if busy[-1] != row["driver_us"] else 0.0)
    return bool(others < FEW * row["round_us"])


def profiled_case(row: Result) -> str:
    """Of a profile."""
    return f"{case_of(row)}, {row['sync']}, K={row['steps_per_launch']}"
