"""Table, JSON file and picture of ResNet-50's scaling."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

COLUMNS = (
    "devices",
    "replicas",
    "batch size",
    "global",
    "s per step",
    "images/s",
    "CPU s/image",
    "speed-up",
    "efficiency",
    "bound",
)


@dataclass(frozen=True)
class Measured:
    """Timed steps of a number of devices.

    batch_size: per replica. seconds: of each step. cpu_seconds: of all cores in it. build_s, init_s,
    first_step_s: as of a Training.
    """

    devices: int
    replicas: int
    batch_size: int
    seconds: Sequence[float]
    cpu_seconds: Sequence[float]
    build_s: float
    init_s: float
    first_step_s: float

    @property
    def images_per_second(self) -> float:
        """Pictures of all replicas in a step, over the median of the steps' seconds."""
        return self.replicas * self.batch_size / statistics.median(self.seconds)


def rows_of(measured: Sequence[Measured], cores: int | None) -> list[dict[str, Any]]:
    """Row for each number of devices, with speed-up and efficiency over the first one.

    cores: of virtual CPU devices, where a replica computes on one core; None for devices of their own.
    bound: speed-up that the cores allow.
    """
    first = measured[0]
    rows = []
    for each in measured:
        speed_up = each.images_per_second / first.images_per_second
        more = each.devices / first.devices
        bound = more if cores is None else min(each.replicas, cores) / min(first.replicas, cores)
        rows.append(
            {
                "devices": each.devices,
                "replicas": each.replicas,
                "batch_size": each.batch_size,
                "global_batch_size": each.replicas * each.batch_size,
                "seconds_per_step": round(statistics.median(each.seconds), 4),
                "images_per_second": round(each.images_per_second, 3),
                "cpu_seconds_per_image": round(
                    statistics.median(each.cpu_seconds) / each.replicas / each.batch_size, 4
                ),
                "speed_up": round(speed_up, 3),
                "efficiency": round(speed_up / more, 3),
                "bound_of_speed_up": round(bound, 3),
                "samples_s": [round(seconds, 4) for seconds in each.seconds],
                "cpu_samples_s": [round(seconds, 4) for seconds in each.cpu_seconds],
                "graph_s": round(each.build_s, 2),
                "compilation_and_replicas_s": round(each.init_s, 2),
                "first_step_s": round(each.first_step_s, 2),
            }
        )
    return rows


def write_report(options: argparse.Namespace, measured: Sequence[Measured], load: float) -> None:
    """Prints the table, and writes SCALING.json and SCALING.png to the folder --output.

    load: load average of the machine before the first step.
    Without matplotlib no picture is written, and a message says so.
    """
    on_cpu = all("cpu" in device.lower() for device in options.devices)
    rows = rows_of(measured, _cores() if on_cpu else None)
    remarks = [
        f"Medians of {options.steps} steps of each number of devices in turn, pictures of "
        f"{options.image_size}x{options.image_size}."
    ]
    if on_cpu:
        remarks += [
            f"Virtual CPU devices on {_cores()} cores: a replica computes on one of them, which bounds the "
            "speed-up (`bound`).",
            f"CPU s/image: of all cores. Load average of the machine before this began: {load:.1f}.",
        ]
    print(_table(rows), *remarks, sep="\n")
    kept = {name: value for name, value in vars(options).items() if name != "output"}
    result = {
        "name": f"resnet50, {options.scaling} scaling",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": {"processor": _processor(), "cores": _cores()},
        "Python": platform.python_version(),
        "options": kept,
        "rows": rows,
        "remarks": remarks,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{options.scaling}.json"
    file.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {file}")
    try:
        import matplotlib  # noqa: F401 - there or not
    except ImportError:
        print("no picture, matplotlib is not installed; pip install 'tensorbow[plot]'")
        return
    _draw(result, options.scaling, file.with_suffix(".png"))
    print(f"wrote {file.with_suffix('.png')}")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [COLUMNS]
    for row in rows:
        counts = (row["devices"], row["replicas"], row["batch_size"], row["global_batch_size"])
        lines.append(
            (
                *map(str, counts),
                f"{row['seconds_per_step']:.3f}",
                f"{row['images_per_second']:.2f}",
                f"{row['cpu_seconds_per_image']:.3f}",
                f"{row['speed_up']:.2f}",
                f"{row['efficiency']:.0%}",
                f"{row['bound_of_speed_up']:.2f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def _draw(result: dict[str, Any], scaling: str, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = result["rows"]
    devices = [row["devices"] for row in rows]
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    speed, cost = figure.subplots(1, 2)
    speed.plot(devices, [n / devices[0] for n in devices], color="#b0b0b0", linestyle=":", label="linear")
    bounds = [row["bound_of_speed_up"] for row in rows]
    speed.plot(devices, bounds, color="#b03030", linestyle="--", linewidth=1.2, label="that the cores allow")
    speed.plot(devices, [row["speed_up"] for row in rows], "o-", color="#1f5fa8", label="measured")
    for row in rows:
        where = (row["devices"], row["speed_up"])
        speed.annotate(
            f"{row['images_per_second']:.1f}/s", where, (0, 7), textcoords="offset points", fontsize=8
        )
    speed.set_ylabel("speed-up of images/s")
    speed.legend(frameon=False, fontsize=8)
    for row in rows:
        each = [seconds / row["global_batch_size"] for seconds in row["cpu_samples_s"]]
        cost.plot([row["devices"]] * len(each), each, "o", color="#7fb2e5", markersize=4)
    cost.plot(devices, [row["cpu_seconds_per_image"] for row in rows], "_-", color="#1f5fa8", markersize=14)
    cost.set_ylabel("seconds of a core per image, and median")
    cost.set_ylim(bottom=0)
    for axes in (speed, cost):
        axes.set_xscale("log", base=2)
        axes.set_xticks(devices, devices)
        axes.minorticks_off()
        axes.set_xlabel("devices")
        axes.spines[["top", "right"]].set_visible(False)
    machine, options = result["machine"], result["options"]
    figure.suptitle(
        f"ResNet-50, {options['image_size']}x{options['image_size']}, {scaling} scaling: "
        f"{machine['processor']}, {machine['cores']} cores, {result['date']}",
        fontsize=9,
    )
    figure.savefig(file, dpi=120)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
