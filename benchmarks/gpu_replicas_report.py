"""Report of `gpu_replicas.py`: table, remarks, picture."""

from __future__ import annotations

import statistics
from importlib import metadata
from typing import TYPE_CHECKING, Any

from drawing import SYNCHRONISERS, contestant_colour, finish_axes, finish_figure, grid_of
from experiments import case_of
from gpu_replicas_contestant import Case, Settings
from harness import driver
from results_page import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GOALS = {"lenet": 2.0, "resnet32": 1.3}  # of our best count's rate over the best peer's
SYNC_GOAL, LAUNCH_GOAL_US = 0.10, 10.0
PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "jaxlib", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
PACKAGES += ("nvidia-cublas-cu12", "nvidia-cublas")

ONE_MODEL = {  # drawn as horizontal lines, in these styles
    "PyTorch eager": ":",
    "PyTorch graph": "--",
    "PyTorch compile + graph": "-.",
    "JAX jit": ":",
    "JAX jit + scan": "--",
}

Row = dict[str, Any]


def described(settings: Settings) -> dict[str, Any]:
    """GPU, driver and libraries of a run."""
    properties = settings.runtime.properties
    major, minor = divmod(properties.architecture, 10)
    packages = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    return {
        "device": properties.name,
        "compute_capability": f"{major}.{minor}",
        "multiprocessors": properties.multiprocessors,
        "memory_nbytes": properties.memory_nbytes,
        "driver": "none" if settings.emulated else driver(),
        "compiler": settings.runtime.compiler,
        "packages": ", ".join(packages),
        "compute": settings.compute,
        "windows": f"{settings.windows} of {settings.seconds:g} s in turn, medians",
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def summary(case: Case, rows: list[Row]) -> dict[str, Any]:
    """Our best count beside the best peer, and the cost of synchronisation and of a launch at each count."""
    ours = {sync: _by_count(rows, f"TensorBow {sync}") for sync in ("none", "sma")}
    peers = [row for row in rows if not row["name"].startswith("TensorBow")]
    averaged = {**{1: ours["none"][1]}, **ours["sma"]} if 1 in ours["none"] else ours["sma"]
    best = max(averaged, key=lambda count: averaged[count], default=None)
    found: dict[str, Any] = {
        "sync_cost": {
            count: 1 - rate / ours["none"][count]
            for count, rate in ours["sma"].items()
            if count in ours["none"]
        }
    }
    launches = [row["host_us_per_graph_launch"] for row in rows if row.get("host_us_per_graph_launch")]
    if launches:
        found["host_us_per_graph_launch"] = statistics.median(launches)
    if best is not None:
        found |= {"best_count": best, "best_rate": averaged[best]}
        if peers:
            peer = max(peers, key=lambda row: row["images_per_second"])
            found |= {
                "best_peer": f"{peer['name']} x {peer['replicas']}",
                "best_peer_rate": peer["images_per_second"],
                "ratio": averaged[best] / peer["images_per_second"],
                "ratio_goal": GOALS.get(case.model),
            }
    return found


def _by_count(rows: list[Row], name: str) -> dict[int, float]:
    """Rate at each number of replicas, in the way that is fastest there."""
    found: dict[int, float] = {}
    for row in rows:
        if row["name"] == name:
            found[row["replicas"]] = max(found.get(row["replicas"], 0.0), row["images_per_second"])
    return found


def table(details: dict[str, Any]) -> Table:
    """Table with a row for each contestant of a case, and the findings of each case as remarks."""
    rows: list[list[Any]] = []
    remarks = [f"{key}: {value}." for key, value in details["gpu"].items()]
    for case in details["cases"]:
        rows += [
            [case_of(case), titled(row), row["replicas"], row["images_per_second"]] for row in case["rows"]
        ]
        remarks += [f"{case_of(case)}: {line}." for line in findings(case)]
    return Table(["model", "who", "replicas", "images/s"], rows, remarks)


def titled(row: Row) -> str:
    """Contestant and way to run."""
    return f"{row['name']}, {row['way']}" if row.get("way") else str(row["name"])


def findings(case: dict[str, Any]) -> list[str]:
    """Remarks on a case, from its summary."""
    found, lines = case["summary"], []
    ours = next((row for row in case["rows"] if "kernels_per_step" in row), None)
    if ours is not None:
        alone = f"; launched alone: {', '.join(ours['launched_alone'])}" if ours["launched_alone"] else ""
        lines.append(
            f"a step is {ours['kernels_per_step']} kernels in {ours['graphs_per_step']} graphs{alone}"
        )
    if "host_us_per_graph_launch" in found:
        took = found["host_us_per_graph_launch"]
        lines.append(f"host time per graph launch {took:.1f} us (goal under {LAUNCH_GOAL_US:g})")
    if found["sync_cost"]:
        costs = ", ".join(f"{cost:.1%} at {count}" for count, cost in found["sync_cost"].items())
        lines.append(f"synchronisation costs {costs} (goal at most {SYNC_GOAL:.0%})")
    if "ratio" in found:
        goal = f" (goal {found['ratio_goal']:g})" if found["ratio_goal"] else ""
        best = f"{found['ratio']:.2f} times {found['best_peer']}, the best peer{goal}"
        lines.append(f"best count {found['best_count']}, averaged: {best}")
    else:
        lines.append("no peer took part: install torch or jax for CUDA to compare")
    return [*lines, *(f"left out: {line}" for line in case["absent"])]


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws images per second over replicas, with a panel for each case."""
    details = result["details"]
    for axes, case in zip(grid_of(figure, len(details["cases"]), 2), details["cases"], strict=True):
        for name in dict.fromkeys(row["name"] for row in case["rows"]):
            rates = _by_count(case["rows"], name)
            if name in ONE_MODEL:
                style = {"linestyle": ONE_MODEL[name], "linewidth": 1.3, "color": contestant_colour(name)}
                axes.axhline(next(iter(rates.values())), label=name, **style)
            else:
                colour = SYNCHRONISERS["none"] if name == "TensorBow none" else contestant_colour(name)
                axes.plot(list(rates), list(rates.values()), marker="o", color=colour, label=name)
        axes.set_xscale("log", base=2)
        counts = sorted({row["replicas"] for row in case["rows"]})
        finish_axes(axes, case_of(case), "replicas", "images per second", counts)
    lines = -(-len(details["cases"]) // 2)
    finish_figure(figure, f"{details['gpu']['device']}, {details['gpu']['compute']}", 3.0 * lines + 1.1)
