"""What did not reach its target, from the results, beside the profile of what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from report_figures import COMPILE_TIMES, case_of, missed_tasks

Result = dict[str, Any]
PARTS = {  # of a round, in `round_profile.py`
    "native_us": "native steps",
    "beside_us": "batches, calls, neighbour",
    "averaging_us": "averaging",
    "scheduler_us": "scheduler",
    "waiting_us": "cores waiting",
}
PHASES = {
    "graph_s": "graph",
    "compile_s": "compile and bind",
    "initial_values_s": "initial values",
    "first_round_s": "first round",
}
STEPS_A_CALL = " steps a call"
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
    header = ["missed", "reached", "to reach", *PARTS.values(), "with native steps alone"]
    found = Missed(header)
    profiles = {key_of(row): row for row in results.get("round_profile", {"rows": []})["rows"]}
    for row in results.get("cpu_floors", {"rows": []})["rows"]:
        for target in row["targets"]:
            if target["ratio"] is not None and not target.get("reached", True):
                found.rates.append(row_of_rate(row, target, profiles.get(key_of_target(row, target["ours"]))))
    found.others = [*null_steps(results), *compile_times(results), *time_to_accuracy(results)]
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

    The last cell is the ratio that there would be if all cores did nothing but native steps, each as fast as
    alone; `-` where the case has no profile.
    """
    kind = "floor" if "floor" in target else "stretch"
    cells = [f"{case_of(row)}, {target['ours']}", f"{target['ratio']:.2f}", f"{kind} {target[kind]}"]
    if profiled is None:
        return [*cells, *("-" for _ in PARTS), "-"]
    cells += [f"{share(profiled, part):.0%}" for part in PARTS]
    alone = profiled["parts"]["native_us"]
    if profiled["native_step_us"] is None:
        return [*cells, "-"]
    rate = 1e6 * profiled["cores"] * profiled["replicas"] * profiled["batch_size"] / alone
    return [*cells, f"{rate / row['images_per_second'][target['best_peer']]['median']:.2f}"]


def share(row: Result, part: str) -> float:
    """Of a part in the cores' time of a round."""
    return float(row["parts"][part] / row["cores"] / row["round_us"])


def null_steps(results: dict[str, Result]) -> list[str]:
    """What the scheduler spends on a task, where it is more than the limit; null devices x replicas."""
    result = results.get("null_steps")
    if result is None:
        return []
    limit = f"the limit is {result['limit_us']:g} us"
    bare = f"a bare stream takes {result['bare_stream']['us']:.1f} us for its launches and event"
    return [
        f"`null_steps.py`, devices x replicas: {case} per learning task; {limit}, {bare}"
        for case in missed_tasks(result)
    ]


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
            f"{case_of(row)}, {row['sync']}, K={row['steps_per_launch']}",
            f"{row['images_per_second']:,.0f}",
            f"{row['round_us']:,.1f}",
            *(f"{row['parts'][part]:,.1f} ({share(row, part):.0%})" for part in PARTS),
        ]
        for row in result["rows"]
    ]


def profile(result: Result) -> tuple[list[str], list[str]]:
    """The header of that table, and what is to be seen in it."""
    cores = result["rows"][0]["cores"]
    header = ["us of cores a round; K steps a call", "images/s", "us a round", *PARTS.values()]
    sentences = [
        "Native steps: what the round's steps take alone in one thread. Batches, calls, neighbour: what the "
        "streams' threads take beyond that without averaging. Averaging: what they take more with it. "
        "Scheduler: processor time of the thread that drives the engine. Cores waiting: the rest of "
        f"{cores} cores' time, which is hand-over between threads and waiting for the other replica."
    ]
    for row in result["rows"]:
        part = max((name for name in PARTS if name != "native_us"), key=lambda name: row["parts"][name])
        least = row["ready_without_a_core_us"] / row["round_us"]
        busy = f"; threads stood ready without a core, in sum, for {least:.0%} of it" if least > 0.1 else ""
        case = f"{case_of(row)}, {row['sync']}, K={row['steps_per_launch']}"
        native = share(row, "native_us")
        if native < MOST:
            sentences.append(
                f"{case}: native steps have {native:.0%} of the cores' time, the most of the rest "
                f"goes to {PARTS[part]} ({row['parts'][part]:,.1f} us of cores a round){busy}."
            )
    return header, sentences
