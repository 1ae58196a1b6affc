"""What each experiment's result comes to, in a table's cell: ours, and the peers'."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from experiments import TITLES
from report_papers import unit_of

Result = dict[str, Any]
Cells = tuple[str, str]  # ours, the peers'

NO_PEER = "-"


def case_of(row: Result) -> str:
    """Model and batch size."""
    return f"{TITLES[row['model']]} b={row['batch_size']}"


def rate_of(row: Result) -> float:
    """Images per second."""
    return float(row["images_per_second"]["median"])


def lines(parts: Iterable[str]) -> str:
    """Several lines in one cell."""
    return "<br>".join(parts)


def cpu_floors(result: Result) -> Cells:
    """Floors and stretches reached."""
    targets = [(row, target) for row in result["rows"] for target in row["targets"]]
    counts = []
    for kind in ("floor", "stretch"):
        mine = [target for _, target in targets if kind in target]
        reached = sum(target["reached"] for target in mine)
        counts.append(f"{reached} of {len(mine)} {'floors' if kind == 'floor' else 'stretches'} reached")
    return f"{'; '.join(counts)}: table below", "table below" if any(
        t["best_peer"] for _, t in targets
    ) else NO_PEER


def in_words(target: dict[str, Any]) -> tuple[str, str]:
    """What a target's ratio is to reach, and whether it has; dashes where nothing was set."""
    if "reached" not in target:
        return "-", "-"
    kind = "floor" if "floor" in target else "stretch"
    return f"{kind} {target[kind]}", "yes" if target["reached"] else "no"


def table_5_1(result: Result) -> Cells:
    """Sizes in the thesis's units, ops, and a replica's memory."""
    rows = {row["model"]: row for row in result["rows"]}
    named = [
        f"{TITLES[m]} {rows[m]['model_nbytes'] / unit_of(m):.{digits}f} "
        f"{'MB' if unit_of(m) == 10**6 else 'MiB'}, {rows[m]['operations']} ops, "
        f"{rows[m]['replica_nbytes'] / 2**20:.3g} MiB a replica at b={rows[m]['batch_size']}"
        for m, digits in (("lenet", 2), ("resnet32", 2), ("logreg", 4))
        if m in rows
    ]
    return lines(named), NO_PEER


def fig_4_2(result: Result) -> Cells:
    """The factor at the least and the greatest cost of a driver call."""
    parts = []
    for row in result["rows"]:
        first, last = row["by_driver_cost"][0], row["by_driver_cost"][-1]
        factors = f"{first['step_factor']:.2g} to {last['step_factor']:.2g} times"
        parts.append(
            f"{case_of(row)}: {factors} at {first['driver_us']} to {last['driver_us']} us a call (simulated)"
        )
    return lines(parts), NO_PEER


def seeds(result: Result, figures: str = "medians") -> str:
    """How many runs of a setting the figures are the median, or so, of."""
    count = len({cell["seed"] for cell in result["cells"]})
    return "one seed" if count == 1 else f"{figures} of {count} seeds"


def learning_rates(result: Result) -> Cells:
    """The range of what was chosen, and what is at the edge of the grid."""
    chosen = {f"{row['replicas']} x b={row['batch_size']}": row["learning_rate"] for row in result["chosen"]}
    ends = min(result["grid"]), max(result["grid"])
    edges = [f"{rate:g} of {name}" for name, rate in chosen.items() if rate in ends]
    parts = [f"{min(chosen.values()):g} to {max(chosen.values()):g} for {len(chosen)} settings"]
    parts += [f"at the grid's edge: {', '.join(edges)}"] if edges else []
    return lines([*parts, seeds(result, "means")]), "those of one replica, at the same batch size"


def reached(row: Result, what: str = "") -> str:
    """Seconds and epochs to the target, medians; epochs count by checks, eight in each."""
    if row["seconds"]["median"] is None:
        return f"{what}not reached"
    return f"{row['seconds']['median']:.3g} s, {round(row['epochs']['median'] * 8) / 8:g} epochs"


def fig_5_1_to_5_3(result: Result) -> Cells:
    """Time and epochs by batch size."""
    rows = (f"b={row['batch_size']}: {reached(row)}" for row in result["summary"])
    return lines([*rows, seeds(result)]), NO_PEER


def synchronisers(result: Result) -> Cells:
    """Time and epochs to the target, and the accuracy at the end."""
    names = {"sma": "SMA", "ssgd": "S-SGD", "easgd": "EASGD", "none": "independent"}
    parts, goal = [], f"{result['target']:.0%} "
    for row in result["summary"]:
        last = f"{row['last_accuracy']['median']:.2%} at the end"
        parts.append(f"{names[row['sync']]}: {reached(row, goal)}; {last}")
    return lines([*parts, seeds(result)]), NO_PEER


def tau(result: Result) -> Cells:
    """Time and epochs by tau."""
    rows = (
        f"tau {row['tau']}: {reached(row)}, {row['rate']['median']:,.0f} images/s"
        for row in result["summary"]
    )
    return lines([*rows, seeds(result)]), NO_PEER


def fig_5_4_and_5_5(result: Result) -> Cells:
    """The quickest setting of each side, and the ratios."""
    found: dict[str, str] = {}
    for side in dict.fromkeys(row["side"] for row in result["summary"] if row["side"] != "bound"):
        rows = [r for r in result["summary"] if r["side"] == side and r["seconds"]["median"] is not None]
        best = min(rows, key=lambda row: row["seconds"]["median"], default=None)
        found[side] = "not reached" if best is None else f"{reached(best)} ({best['label']})"
    ours = [found.pop("TensorBow")]
    ratio, bound = (result["times_as_fast"][name] for name in ("best_peer", "bound_of_data_parallel"))
    if ratio is not None:
        ours.append(f"{ratio:.2f} times as fast as the best peer (floor {result['floor']})")
    if bound is not None:
        ours.append(f"{bound:.2f} times as fast as the bound of peers' data parallelism that never waits")
    dropped = result.get("dropped", {}).get("settings", [])
    theirs = list(found.values())
    if dropped:
        tried = f"stopped after {result['dropped']['after_seeds']} seeds, too slow"
        theirs.append(f"{tried}: {', '.join(dropped)}")
    return lines([*ours, seeds(result)]), lines(theirs) or NO_PEER


def fig_5_6_to_5_9(result: Result) -> Cells:
    """From one replica to the best count on one device, and the best on two virtual ones."""
    parts = []
    rows = [row for row in result["rows"] if row["sync"] == "sma"]
    for case in dict.fromkeys(map(case_of, rows)):
        on = [[r for r in rows if case_of(r) == case and r["devices"] == devices] for devices in (1, 2)]
        alone, best = min(on[0], key=lambda row: row["replicas"]), max(on[0], key=rate_of)
        gain = f"{rate_of(best) / rate_of(alone):.2f} times at {best['replicas']}"
        two = f"; on 2 virtual devices at most {max(map(rate_of, on[1])):,.0f}" if on[1] else ""
        parts.append(f"{case}: {rate_of(alone):,.0f} images/s with {alone['replicas']}, {gain}{two}")
    return lines(parts), NO_PEER


def fig_5_10(result: Result) -> Cells:
    """The smallest and the largest batch, with the most replicas; the peers at theirs."""
    ours, theirs = [], []
    most = max(row["replicas"] for row in result["rows"])
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        mine = [row for row in result["rows"] if row["model"] == model]
        alone = [row for row in mine if "peer" not in row and row["replicas"] == most]
        ours.append(f"{TITLES[model]}, {most} replicas: {ends_of(alone)} images/s")
        for peer in dict.fromkeys(row["peer"] for row in mine if "peer" in row):
            rows = [row for row in mine if row.get("peer") == peer]
            theirs.append(f"{TITLES[model]}, {peer}: {ends_of(rows)} images/s")
    return lines(ours), lines(theirs) or NO_PEER


def ends_of(rows: list[Result]) -> str:
    """Rates at the smallest and the largest batch size."""
    ends = [edge(rows, key=lambda row: row["batch_size"]) for edge in (min, max)]
    shown = [f"{rate_of(row):,.0f} (b={row['batch_size']})" for row in ends]
    return " to ".join(dict.fromkeys(shown))


def fig_5_11_and_5_12(result: Result) -> Cells:
    """The share of a round that averaging every round takes, and that steps on the mean gradient do."""
    shares = {(case_of(r), r["sync"]): r["synchronisation_share"] for r in result["rows"] if r["tau"] == 1}
    parts = []
    for case in dict.fromkeys(map(case_of, result["rows"])):
        sma, ssgd = (shares.get((case, sync), 0.0) for sync in ("sma", "ssgd"))
        averaging = f"{sma:.0%} of a round" if sma > 0.005 else "lost in noise"
        parts.append(f"{case}: averaging {averaging}, S-SGD {ssgd:.0%}")
    return lines(parts), NO_PEER


def fig_5_13(result: Result) -> Cells:
    """Rates by number of virtual devices, for as many replicas on all of them as possible."""
    parts = []
    for case in dict.fromkeys(map(case_of, result["rows"])):
        mine = [row for row in result["rows"] if case_of(row) == case]
        totals = {row["devices"] * row["replicas"] for row in mine}
        shared = max(totals, key=lambda n: sum(row["devices"] * row["replicas"] == n for row in mine))
        same = [row for row in mine if row["devices"] * row["replicas"] == shared]
        rates = ", ".join(f"{rate_of(row):,.0f}" for row in same)
        devices = ", ".join(str(row["devices"]) for row in same)
        parts.append(f"{case}, {shared} replicas in all: {rates} images/s on {devices} virtual devices")
    return lines(parts), NO_PEER


def auto_tuner(result: Result) -> Cells:
    """What was chosen, and how it compares with the best of the others."""
    parts = []
    for case in result["cases"]:
        chosen = case["decision"]["replicas_per_device"]
        rates = {row["replicas"]: rate_of(row) for row in case["rows"]}
        other = max((count for count in rates if count != chosen), key=lambda count: rates[count])
        tried, all_chosen = ", ".join(map(str, rates)), ", ".join(map(str, case["chosen"]))
        beside = f"{rates[chosen] / rates[other]:.2f} times the throughput of the best other, {other}"
        tuned = f"the run that tuned itself has {case['tuned_to_best']:.1%} of the best fixed number's"
        parts.append(f"{case_of(case)}: chose {all_chosen} (tried {tried}), {chosen} has {beside}; {tuned}")
    return lines(parts), NO_PEER


def round_profile(result: Result) -> Cells:
    """How much of the cores' time is that of native steps."""
    shares = [row["parts"]["native_us"] / row["cores"] / row["round_us"] for row in result["rows"]]
    found = f"native steps have {min(shares):.0%} to {max(shares):.0%} of the cores' time"
    return f"{found}: table below", NO_PEER


def null_steps(result: Result) -> Cells:
    """The empty session step, and the scheduler's cost of a task, of both kinds of counting."""
    empty = next(r["us"] for r in result["sessions"] if r["call"] == "session.run" and r["fetches"] == 0)
    parts = [f"an empty session.run {empty:.0f} us", "the scheduler, null devices x replicas:"]
    for key, name in (("us", "learning task"), ("us_with_synchronisation_tasks", "task of any kind")):
        costs = [row[key] for row in result["tasks"]]
        parts.append(f"{min(costs):.1f} to {max(costs):.1f} us per {name}")
    over = [task_case(row) for row in missed_tasks(result)]
    limit = f"limit {result['limit_us']:g} us per learning task"
    return lines([*parts, f"{limit}: **missed** by {', '.join(over)}" if over else f"{limit}: met"]), NO_PEER


def missed_tasks(result: Result) -> list[Result]:
    """The cases whose learning task costs more than the limit."""
    return [row for row in result["tasks"] if row["us"] > result["limit_us"]]


def task_case(row: Result) -> str:
    """Null devices, replicas of each and how they are kept together, with what a learning task costs."""
    return f"{row['devices']} x {row['replicas_per_device']} {row['sync']} ({row['us']:.1f} us)"


def compile_time(result: Result) -> Cells:
    """The slowest model, cold and cached: compile and bind, and to the first step."""
    parts = []
    for state in dict.fromkeys(row["cache"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["cache"] == state]
        for name, seconds in COMPILE_TIMES.items():
            slowest = max(rows, key=seconds)
            met = "met" if seconds(slowest) <= slowest["limit_s"] else "**missed**"
            limit = f"limit {slowest['limit_s']:g} s: {met}"
            parts.append(f"{state}, {name}: {seconds(slowest):.2f} s at most ({case_of(slowest)}), {limit}")
    return lines(parts), NO_PEER


def compile_seconds(row: Result) -> float:
    """Graph, compile and bind."""
    return float(row["graph_and_compile_s"])


def first_step(row: Result) -> float:
    """From the ready process to the end of the first round."""
    return float(row["total_s"])


COMPILE_TIMES = {"graph, compile and bind": compile_seconds, "to the first step": first_step}
"""What is held against the limits of `compile_time.py`: seconds of its rows."""


def replicator_overhead(result: Result) -> Cells:
    """One replica beside the plain session, by way."""
    named = [
        f"{row['way']}: {row['ratio'] - 1:+.1%} of a plain session's step"
        for row in result["rows"]
        if row["way"] != "plain session"
    ]
    over = slow_ways(result)
    limit = f"limit {result['target'] - 1:.0%}"
    return lines([*named, f"{limit}: **missed** by {', '.join(over)}" if over else f"{limit}: met"]), NO_PEER


def slow_ways(result: Result) -> list[str]:
    """The ways of training one replica that cost more than the limit, with what they cost."""
    return [
        f"{row['way']} ({row['ratio'] - 1:+.1%})"
        for row in result["rows"]
        if row["way"] != "plain session" and row["ratio"] > result["target"]
    ]


FIGURES: dict[str, Callable[[Result], Cells]] = {
    function.__name__: function
    for function in (
        cpu_floors,
        round_profile,
        table_5_1,
        fig_4_2,
        learning_rates,
        fig_5_1_to_5_3,
        fig_5_4_and_5_5,
        fig_5_6_to_5_9,
        fig_5_10,
        fig_5_11_and_5_12,
        fig_5_13,
        synchronisers,
        tau,
        auto_tuner,
        null_steps,
        replicator_overhead,
        compile_time,
    )
}
