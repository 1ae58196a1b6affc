"""Tables, figures and the file of `gpu_replicas.py`."""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gpu_replicas_contestant import Case, Settings

GOALS = {"lenet": 2.0, "resnet32": 1.3}  # of our best count's rate over the best peer's
SYNC_GOAL, LAUNCH_GOAL_US = 0.10, 10.0
PACKAGES = ("tensorbow", "numpy", "cupy-cuda12x", "cupy-cuda13x", "torch", "jax", "jaxlib")
LIBRARIES = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas")

ONE_MODEL = {"PyTorch eager": "gray", "PyTorch graph": "black", "JAX jit": "tan"}  # a line across

Row = dict[str, Any]


def described(settings: Settings) -> dict[str, Any]:
    """What it runs on and with."""
    properties = settings.runtime.properties
    major, minor = divmod(properties.architecture, 10)
    versions = {name: version for name in (*PACKAGES, *LIBRARIES) if (version := _version(name))}
    return {
        "device": properties.name,
        "compute_capability": f"{major}.{minor}",
        "multiprocessors": properties.multiprocessors,
        "memory_nbytes": properties.memory_nbytes,
        "driver": "none" if settings.emulated else _driver(),
        "compiler": settings.runtime.compiler,
        "host": f"{platform.machine()} {platform.system()}",
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "compute": settings.compute,
        "seconds_per_window": settings.seconds,
        "windows": settings.windows,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str:
    import pynvml

    nvml: Any = pynvml
    nvml.nvmlInit()
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{nvml.nvmlSystemGetDriverVersion()}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    finally:
        nvml.nvmlShutdown()


def summary(case: Case, rows: list[Row]) -> dict[str, Any]:
    """Our best count beside the best peer, the cost of synchronisation at each count, and of a launch."""
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
        found["host_us_per_graph_launch"] = float(np.median(launches))
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
    return {row["replicas"]: row["images_per_second"] for row in rows if row["name"] == name}


def print_case(result: dict[str, Any]) -> None:
    """Images per second by contestant and count, then what was found."""
    rows, found = result["rows"], result["summary"]
    counts = sorted({row["replicas"] for row in rows})
    print(f"\n{result['model']}, batch size {result['batch_size']}: images/s by replicas")
    print(f"{'':18}" + "".join(f"{count:>12}" for count in counts))
    for name in dict.fromkeys(row["name"] for row in rows):
        rates = _by_count(rows, name)
        cells = (f"{rates[count]:12,.0f}" if count in rates else f"{'':12}" for count in counts)
        print(f"{name:18}" + "".join(cells))
    ours = next((row for row in rows if "kernels_per_step" in row), None)
    if ours is not None:
        alone = f"; launched alone: {', '.join(ours['launched_alone'])}" if ours["launched_alone"] else ""
        print(f"a step: {ours['kernels_per_step']} kernels in {ours['graphs_per_step']} graphs{alone}")
    if "host_us_per_graph_launch" in found:
        took = found["host_us_per_graph_launch"]
        print(f"host time per graph launch: {took:.1f} us (goal under {LAUNCH_GOAL_US:g})")
    if found["sync_cost"]:
        costs = ", ".join(f"{cost:.1%} at {count}" for count, cost in found["sync_cost"].items())
        print(f"synchronisation costs {costs} (goal at most {SYNC_GOAL:.0%})")
    if "ratio" in found:
        goal = f" (goal {found['ratio_goal']:g})" if found["ratio_goal"] else ""
        print(
            f"best count {found['best_count']}, averaged: {found['ratio']:.2f} times {found['best_peer']}, "
            f"the best peer{goal}"
        )
    else:
        print("no peer took part: install torch or jax for CUDA to compare")
    for line in result["absent"]:
        print(f"left out: {line}")


def save(file: Path, machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Everything, as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**machine, "cases": results}, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: {file}")


def draw(file: Path, machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Images per second over replicas, a panel for each case; nothing without matplotlib."""
    if find_spec("matplotlib") is None:
        print("no picture: pip install 'tensorbow[plot]'")
        return
    from matplotlib.figure import Figure

    columns = min(3, len(results))
    rows = -(-len(results) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for panel in panels[len(results) :]:
        panel.set_visible(False)
    for panel, result in zip(panels, results, strict=False):
        for name in dict.fromkeys(row["name"] for row in result["rows"]):
            rates = _by_count(result["rows"], name)
            own = name.startswith("TensorBow")
            if name in ONE_MODEL:
                rate = next(iter(rates.values()))
                panel.axhline(rate, linestyle=":", linewidth=1.5, color=ONE_MODEL[name], label=name)
            else:
                style = {"linewidth": 2.0} if own else {"linestyle": "--", "linewidth": 1.2}
                panel.plot(list(rates), list(rates.values()), marker="o", label=name, **style)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted({row["replicas"] for row in result["rows"]}))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_ylim(bottom=0)
        panel.set_title(f"{result['model']}, batch size {result['batch_size']}", size=10)
        panel.set_xlabel("replicas")
        panel.set_ylabel("images/s")
    panels[0].legend(fontsize=7)
    figure.suptitle(f"{machine['device']}, {machine['compute']}, {machine['date'][:10]}")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    print(f"written: {file}")
