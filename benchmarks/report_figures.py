"""What each experiment's result comes to, in a table's cell: ours, and the peers'."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from report_papers import unit_of

Result = dict[str, Any]
Cells = tuple[str, str]  # ours, the peers'

MODELS = {"logreg": "logistic regression", "lenet": "LeNet"}
MODELS |= {f"resnet{layers}": f"ResNet-{layers}" for layers in (8, 32, 56)}
NO_PEER = "-"


def case_of(row: Result) -> str:
    """Model and batch size."""
    return f"{MODELS.get(row['model'], row['model'])} b={row['batch_size']}"


def rate_of(row: Result) -> float:
    """Images per second."""
    return float(row["images_per_second"]["median"])


def lines(parts: Iterable[str]) -> str:
    """Several lines in one cell."""
    return "<br>".join(parts)


def cpu_floors(result: Result) -> Cells:
    """Floors and stretches reached, and who was the best peer."""
    targets = [(row, target) for row in result["rows"] for target in row["targets"]]
    counts = []
    for kind in ("floor", "stretch"):
        mine = [target for _, target in targets if kind in target]
        reached = sum(target["reached"] for target in mine)
        counts.append(f"{reached} of {len(mine)} {'floors' if kind == 'floor' else 'stretches'} reached")
    best = {case_of(row): target["best_peer"] for row, target in targets if target["best_peer"]}
    return f"{'; '.join(counts)}: table below", lines(
        f"{case}: {name}" for case, name in best.items()
    ) or NO_PEER


def in_words(target: dict[str, Any]) -> tuple[str, str]:
    """What a target's ratio is to reach, and whether it has; dashes where nothing was set."""
    if "reached" not in target:
        return "-", "-"
    kind = "floor" if "floor" in target else "stretch"
    return f"{kind} {target[kind]}", "yes" if target["reached"] else "no"


def table_5_1(result: Result) -> Cells:
    """Sizes in the thesis's units."""
    sizes = {row["model"]: row["model_nbytes"] for row in result["rows"]}
    named = [
        f"{MODELS[m]} {sizes[m] / unit_of(m):.{digits}f} {'MB' if unit_of(m) == 10**6 else 'MiB'}"
        for m, digits in (("lenet", 2), ("resnet32", 2), ("logreg", 4))
        if m in sizes
    ]
    return ", ".join(named), NO_PEER


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


def seeds(result: Result) -> str:
    """How many runs of a setting the figures are the median of."""
    count = len({cell["seed"] for cell in result["cells"]})
    return "one seed" if count == 1 else f"medians of {count} seeds"


def learning_rates(result: Result) -> Cells:
    """The range of what was chosen."""
    rates = [row["learning_rate"] for row in result["chosen"]]
    return (
        f"{min(rates):g} to {max(rates):g} for {len(rates)} settings; {seeds(result)}",
        "those of one replica, at the same batch size",
    )


def reached(row: Result) -> str:
    """Seconds and epochs to the target, medians."""
    if row["seconds"]["median"] is None:
        return "not reached"
    return f"{row['seconds']['median']:.3g} s, {row['epochs']['median']:.3g} epochs"


def fig_5_1_to_5_3(result: Result) -> Cells:
    """Time and epochs by batch size."""
    rows = (f"b={row['batch_size']}: {reached(row)}" for row in result["summary"])
    return lines([*rows, seeds(result)]), NO_PEER


def synchronisers(result: Result) -> Cells:
    """Time and epochs to the target, and the accuracy at the end."""
    names = {"sma": "SMA", "ssgd": "S-SGD", "easgd": "EASGD", "none": "independent"}
    parts = []
    for row in result["summary"]:
        last = f"{row['last_accuracy']['median']:.2%} at the end"
        parts.append(f"{names[row['sync']]}: {reached(row)} to {result['target']:.0%}; {last}")
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
        theirs.append(f"slow after {result['dropped']['after_seeds']} seeds: {', '.join(dropped)}")
    return lines([*ours, seeds(result)]), lines(theirs) or NO_PEER


def fig_5_6_to_5_9(result: Result) -> Cells:
    """From one replica to the best count on one device."""
    parts = []
    rows = [row for row in result["rows"] if row["devices"] == 1 and row["sync"] == "sma"]
    for case in dict.fromkeys(map(case_of, rows)):
        mine = [row for row in rows if case_of(row) == case]
        alone, best = min(mine, key=lambda row: row["replicas"]), max(mine, key=rate_of)
        gain = f"{rate_of(best) / rate_of(alone):.2f} times at {best['replicas']}"
        parts.append(f"{case}: {rate_of(alone):,.0f} images/s with {alone['replicas']}, {gain}")
    return lines(parts), NO_PEER


def fig_5_10(result: Result) -> Cells:
    """The smallest and the largest batch, with the most replicas; the peers at theirs."""
    ours, theirs = [], []
    most = max(row["replicas"] for row in result["rows"])
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        mine = [row for row in result["rows"] if row["model"] == model]
        alone = [row for row in mine if "peer" not in row and row["replicas"] == most]
        ours.append(f"{MODELS.get(model, model)}, {most} replicas: {ends_of(alone)} images/s")
        for peer in dict.fromkeys(row["peer"] for row in mine if "peer" in row):
            rows = [row for row in mine if row.get("peer") == peer]
            theirs.append(f"{MODELS.get(model, model)}, {peer}: {ends_of(rows)} images/s")
    return lines(ours), lines(theirs) or NO_PEER


def ends_of(rows: list[Result]) -> str:
    """Rates at the smallest and the largest batch size."""
    ends = [edge(rows, key=lambda row: row["batch_size"]) for edge in (min, max)]
    shown = [f"{rate_of(row):,.0f} (b={row['batch_size']})" for row in ends]
    return " to ".join(dict.fromkeys(shown))


def fig_5_11_and_5_12(result: Result) -> Cells:
    """The share of a round that averaging every round takes."""
    rows = [row for row in result["rows"] if row["sync"] == "sma" and row["tau"] == 1]
    return lines(f"{case_of(r)}: {r['synchronisation_share']:.0%} of a round" for r in rows), NO_PEER


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
    """What was chosen, what was best."""
    return lines(
        f"{case_of(case)}: chose {case['decision']['replicas_per_device']}, "
        f"best {case['best']}: {case['ratio_to_best']:.1%} of it"
        for case in result["cases"]
    ), NO_PEER


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
    over = missed_tasks(result)
    limit = f"limit {result['limit_us']:g} us per learning task"
    return lines([*parts, f"{limit}: **missed** by {', '.join(over)}" if over else f"{limit}: met"]), NO_PEER


def missed_tasks(result: Result) -> list[str]:
    """The cases whose learning task costs more than the limit, with what it costs."""
    return [
        f"{row['devices']} x {row['replicas_per_device']} {row['sync']} ({row['us']:.1f} us)"
        for row in result["tasks"]
        if row["us"] > result["limit_us"]
    ]


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
    return float(row["graph_s"] + row["compile_s"])


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
    return lines([*named, f"at most {result['target'] - 1:.0%} is wanted"]), NO_PEER


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
