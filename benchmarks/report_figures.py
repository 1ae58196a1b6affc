"""What each experiment's result comes to, in a table's cell: ours, and the peers'."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Result = dict[str, Any]
Cells = tuple[str, str]  # ours, the peers'

MODELS = {"logreg": "logistic regression", "lenet": "LeNet", "resnet8": "ResNet-8", "resnet32": "ResNet-32"}
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


def table_5_1(result: Result) -> Cells:
    """Sizes in the thesis's units."""
    units = {"lenet": 2**20, "resnet32": 2**20, "logreg": 10**6}
    sizes = {row["model"]: row["model_nbytes"] for row in result["rows"]}
    digits = {"logreg": 4}
    named = [
        f"{MODELS[m]} {sizes[m] / unit:.{digits.get(m, 2)}f} MB" for m, unit in units.items() if m in sizes
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
    """The quickest setting of each side."""
    found = []
    for side in ("TensorBow", "PyTorch"):
        rows = [r for r in result["summary"] if r["side"] == side and r["seconds"]["median"] is not None]
        best = min(rows, key=lambda row: row["seconds"]["median"], default=None)
        found.append(NO_PEER if best is None else f"{reached(best)} ({best['label']})")
    ratio = result["times_as_fast"]["best_peer"]
    ours = found[0] if ratio is None else f"{found[0]}: {ratio:.2f} times as fast, floor {result['floor']}"
    return lines([ours, seeds(result)]), found[1]


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
    """The smallest and the largest batch, with the most replicas."""
    parts = []
    most = max(row["replicas"] for row in result["rows"])
    for model in dict.fromkeys(row["model"] for row in result["rows"]):
        mine = [row for row in result["rows"] if row["model"] == model and row["replicas"] == most]
        ends = [edge(mine, key=lambda row: row["batch_size"]) for edge in (min, max)]
        rates = " to ".join(f"{rate_of(row):,.0f} (b={row['batch_size']})" for row in ends)
        parts.append(f"{MODELS.get(model, model)}, {most} replicas: {rates} images/s")
    return lines(parts), NO_PEER


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


def null_steps(result: Result) -> Cells:
    """The empty session step, and the scheduler's cost of a task."""
    empty = next(r["us"] for r in result["sessions"] if r["call"] == "session.run" and r["fetches"] == 0)
    costs = [row["us_with_synchronisation_tasks"] for row in result["tasks"]]
    scheduler = (
        f"{min(costs):.1f} to {max(costs):.1f} us a task of the scheduler (floor {result['floor_us']:g})"
    )
    return lines([f"an empty session.run {empty:.0f} us", scheduler]), NO_PEER


def compile_time(result: Result) -> Cells:
    """The slowest model, cold and cached."""
    parts = []
    for state in dict.fromkeys(row["cache"] for row in result["rows"]):
        slowest = max((r for r in result["rows"] if r["cache"] == state), key=lambda row: row["total_s"])
        floor = f"floor {slowest['floor_s']:g} s"
        parts.append(f"{state}: {slowest['total_s']:.2f} s at most ({case_of(slowest)}), {floor}")
    return lines(parts), NO_PEER


FIGURES: dict[str, Callable[[Result], Cells]] = {
    function.__name__: function
    for function in (
        cpu_floors,
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
        compile_time,
    )
}
