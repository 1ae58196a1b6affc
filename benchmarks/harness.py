"""Shared parts of the experiments: options, the machine, alternating windows, results and pictures.

Scripts run from the root of the repository as `python benchmarks/<name>.py [--small] [--output FOLDER]` and
write `<name>.json` and `<name>.png`.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from results_page import RESULTS, Table, as_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("numpy", "llvmlite", "torch", "jax")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "XLA_FLAGS",
    "TENSORBOW_CPU",
)
LEARNING_RATE, MOMENTUM = 0.001, 0.9  # of all contestants, where only rates are measured
LEAST_STEPS = 4  # of a window
DOTS_PER_INCH = 120

Name = TypeVar("Name", bound=Hashable)  # of a contestant
Window = Callable[[float], float]
"""Trains for about so many seconds; returns units per second."""


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """Argument parser with the options of every experiment, `--small` and `--output`; `name`: of its files.

    The parsed options have `experiment`, that name, for `settings_of` and messages.
    """
    made = argparse.ArgumentParser(
        prog=f"benchmarks/{name}.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--small", action="store_true", help="quick run: fewer points and shorter windows, the same code"
    )
    made.add_argument(
        "--output",
        type=Path,
        help="folder of the results; default: benchmarks/results, with --small its folder `small`",
    )
    made.set_defaults(experiment=name)
    return made


def positive_int(text: str) -> int:
    """Parses a positive int, as the `type=` of an option. Raises ArgumentTypeError."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return number


def positive_float(text: str) -> float:
    """Parses a positive float, as the `type=` of an option. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def output_path(options: argparse.Namespace, file_name: str) -> Path:
    """Path of a results file; makes its folder."""
    folder: Path = options.output or (RESULTS / "small" if options.small else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / file_name


def machine() -> dict[str, Any]:
    """Description of the machine, for a result."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "thread_variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }


def versions() -> dict[str, str | None]:
    """Versions of Python and packages (None if not installed), and the backend of CPU devices."""
    packages = {name: _version(name) for name in PACKAGES}
    return {"Python": platform.python_version(), **packages, "CPU backend": _cpu_backend()}


def cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Name of the processor, and its vector instructions where the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags", facts.get("Features", "")).split()
    widest = next((name for name in ("avx512f", "avx2", "sve", "asimd") if name in flags), "")
    described = facts.get("model name", platform.processor() or platform.machine())
    return f"{described} ({widest})" if widest else described


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_backend() -> str:
    from tensorbow.kernels.backends import backend_of_kind

    return type(backend_of_kind("cpu")).__name__


@dataclass(frozen=True)
class Measured:
    """Rates of one contestant's windows, in units per second."""

    samples: list[float]

    @property
    def median(self) -> float:
        """Median of the windows."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Difference between the fastest and the slowest window, as a share of the median."""
        return (max(self.samples) - min(self.samples)) / self.median

    def as_json(self) -> dict[str, Any]:
        """Windows, median and spread as JSON values."""
        samples = [float(f"{sample:.5g}") for sample in self.samples]
        return {"median": float(f"{self.median:.5g}"), "spread": round(self.spread, 3), "samples": samples}


def interleave(contestants: Mapping[Name, Window], seconds: float, windows: int) -> dict[Name, Measured]:
    """Runs the contestants' windows in turn, after a warm-up window of each: slow spells affect them all.

    Every turn begins with the next contestant, so that none always follows the same other one.
    """
    names = list(contestants)
    for window in contestants.values():
        window(min(seconds, 1.0))
    samples: dict[Name, list[float]] = {name: [] for name in names}
    for turn in range(windows):
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            samples[name].append(contestants[name](seconds))
    return {name: Measured(taken) for name, taken in samples.items()}


def paced(run_steps: Callable[[int], object], units: int, per_second: float = 20.0) -> Window:
    """Window of as many steps as fit into its time at the rate of the window before.

    run_steps(n) makes n steps and waits for them; units: per step. per_second: first guess of the steps per
    second.
    """

    def window(seconds: float) -> float:
        nonlocal per_second
        steps = max(LEAST_STEPS, int(per_second * seconds))
        started = time.perf_counter()
        run_steps(steps)
        elapsed = time.perf_counter() - started
        per_second = steps / elapsed
        return steps * units / elapsed

    return window


def described(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Head of a result: its name, the date, the machine, versions and the command."""
    today = datetime.now(timezone.utc).date().isoformat()
    where = {"machine": machine(), "versions": versions()}
    return {"name": name, "date": today, **where, "command": command_line(options)}


def in_turn(windows: int, seconds: float) -> str:
    """Remark on the windows of an experiment that uses `interleave`."""
    return f"Medians of {windows} windows of {seconds:g} s in turn."


def save(
    options: argparse.Namespace,
    name: str,
    details: Mapping[str, Any],
    table: Table,
    draw: Callable[[Figure], None],
    unsaved: Collection[str] = (),
) -> None:
    """Prints the table; writes `<name>.json`, in the form that `results_page.py` describes, and `<name>.png`.

    draw: fills an empty figure with constrained layout. Without matplotlib no picture is written, and a
    message says so. unsaved: options that are not stored, since the details have them.
    """
    print_table(table.columns, table.as_text())
    print(*table.remarks, sep="\n")
    written = output_path(options, f"{name}.json")
    shown = {"columns": table.columns, "rows": table.rows, "remarks": table.remarks}
    settings = {name: value for name, value in settings_of(options).items() if name not in unsaved}
    result = {**described(options, name), **shown, "details": {"settings": settings, **details}}
    written.write_text(as_json(result) + "\n")
    print(f"{name}: wrote {written}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print(f"{name}: no picture, matplotlib is not installed; pip install 'tensorbow[plot]'")
        return
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    picture = output_path(options, f"{name}.png")
    figure.savefig(picture, dpi=DOTS_PER_INCH)
    print(f"{name}: wrote {picture}")


def command_line(options: argparse.Namespace) -> str:
    """Command of this process, with `DATA` and `OUTPUT` for folders, which are particular to this machine."""
    words = [_without_folders(word, options) for word in sys.argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


def _without_folders(word: str, options: argparse.Namespace) -> str:
    for name, value in vars(options).items():
        if isinstance(value, Path) and word.rstrip("/").endswith(str(value)):
            return word.rstrip("/").removesuffix(str(value)) + name.upper()
    return word


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Options as JSON values, without the output folder; other folders as in `command_line`."""
    kept = {name: value for name, value in vars(options).items() if name not in ("output", "experiment")}
    return {name: name.upper() if isinstance(value, Path) else value for name, value in kept.items()}


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns; those of figures, with `-` for None, are right-aligned."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    right = [all(row[column][:1] in "-0123456789" for row in rows) for column in range(len(header))]
    for row in (header, *rows):
        cells = zip(row, widths, right, strict=True)
        print("  ".join(c.rjust(w) if at_right else c.ljust(w) for c, w, at_right in cells).rstrip())
    sys.stdout.flush()
