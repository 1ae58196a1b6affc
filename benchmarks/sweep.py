"""Rates of many training settings, measured in turn, as rows of a result."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drawing import Row
from experiments import TITLES
from harness import CPU, Measured, Window, interleave, is_gpu, save
from ours import training_window
from results_page import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIRTUAL = "Virtual CPU devices are threads of the same cores: more of them bring no more hardware."


@dataclass(frozen=True)
class Setting:
    """Training setting. replicas: on each device. devices: how many, of those of `measure`."""

    model: str
    batch_size: int
    replicas: int
    sync: str = "sma"
    tau: int = 1
    devices: int = 1

    @property
    def method(self) -> str:
        """Name of the synchronisation method; `one replica` for a replica alone."""
        if self.replicas * self.devices == 1:
            return "one replica"
        return f"{self.sync}, tau {self.tau}" if self.sync == "sma" else self.sync

    @property
    def label(self) -> str:
        """Text of the whole setting."""
        where = "" if self.devices == 1 else f" on each of {self.devices} devices"
        return f"{TITLES[self.model]} b={self.batch_size}, {self.replicas} replicas{where}, {self.method}"


def measure(
    settings: Iterable[Setting],
    seconds: float,
    windows: int,
    others: Mapping[str, Window] | None = None,
    names: Sequence[str] = (),
    replica_mode: str | None = None,
) -> list[Row]:
    """Row for each setting: its fields, images per second (median, spread, all windows), ms per round.

    others: peers by name, whose rows have only `method`, the name, and images per second. All settings and
    peers run in turn, so that they can be compared with each other. names: devices; by default virtual CPU
    devices, as many as a setting asks for. replica_mode: of `tb.Synchronisation`, by default its own.
    """
    others = others or {}
    if not names or names == CPU:
        settings = list(settings)
        names = [f"/cpu:{index}" for index in range(max((s.devices for s in settings), default=1))]
    with ExitStack() as engines:
        contestants = {
            setting: engines.enter_context(
                training_window(
                    setting.model,
                    setting.batch_size,
                    setting.replicas,
                    sync=setting.sync,
                    tau=setting.tau,
                    devices=tuple(names[: setting.devices]),
                    data_on_device="always" if is_gpu(names[0]) else "auto",
                    synchronisation={} if replica_mode is None else {"replica_mode": replica_mode},
                )
            )
            for setting in settings
        }
        by_label = {setting.label: setting for setting in contestants}
        ours = {label: contestants[setting] for label, setting in by_label.items()}
        measured = interleave({**ours, **others}, seconds, windows)
    rows: list[Row] = []
    for name, rates in measured.items():
        print(f"{name}: {rates.median:,.0f} images/s", flush=True)
        if name in others:
            rows.append({"method": name, "images_per_second": rates.as_json()})
            continue
        setting = by_label[name]
        images = setting.batch_size * setting.replicas * setting.devices
        rows.append(
            {
                **vars(setting),
                "method": setting.method,
                "images_per_second": rates.as_json(),
                "ms_per_round": float(f"{1e3 * images / rates.median:.5g}"),
            }
        )
    return rows


def where(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `measure` for devices and replica mode."""
    return {"names": options.devices, "replica_mode": options.replica_mode}


def measure_runs(settings: Sequence[Setting], seconds: float, runs: int, **devices: Any) -> list[Row]:
    """Rows as of `measure`, with a sample for each of several runs: engines of their own, made anew.

    devices: see `where`.
    """
    found: dict[str, Row] = {}
    for number in range(runs):
        for row in measure(settings, seconds, 1, **devices):
            first = found.setdefault(
                f"{row['model']} {row['method']} {row['replicas']} {row['devices']}", row
            )
            if number:
                first["images_per_second"]["samples"] += row["images_per_second"]["samples"]
    for row in found.values():
        row["images_per_second"] = Measured(row["images_per_second"]["samples"]).as_json()
        images = row["batch_size"] * row["replicas"] * row["devices"]
        row["ms_per_round"] = float(f"{1e3 * images / row['images_per_second']['median']:.5g}")
    return list(found.values())


def save_panels(
    options: argparse.Namespace,
    name: str,
    panels: Sequence[Sequence[Row]],
    windows: tuple[float, int],
    table: Callable[[dict[str, Any]], Table],
    draw: Callable[[Figure, dict[str, Any]], None],
) -> None:
    """Writes the result of an experiment with several panels. windows: their seconds and count."""
    rows = [row for panel in panels for row in panel]
    details = {"seconds_per_window": windows[0], "windows": windows[1], "rows": rows}
    save(options, name, details, table(details), draw)
