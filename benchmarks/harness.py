"""Shared parts of the experiments: options, the machine, alternating windows, results and pictures.

Scripts run from the root of the repository as `python benchmarks/<name>.py [--small] [--output FOLDER]` and
write `<name>.json` and `<name>.png`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from experiments import EXPERIMENTS, named
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
    "TENSORBOW_EMULATE_BF16",
)
LEARNING_RATE, MOMENTUM = 0.001, 0.9  # of all contestants, where only rates are measured
REPLICA_MODES = ("captured", "fused")
CPU = ("/cpu:0",)  # default of `--devices`
LEAST_STEPS = 4  # of a window

Name = TypeVar("Name", bound=Hashable)  # of a contestant
Window = Callable[[float], float]
"""Trains for about so many seconds; returns units per second."""


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """Argument parser with the options of every experiment: `--small`, `--output` and `--devices`.

    name: of its files; the parsed options have it as `experiment`. `experiments.py` says which devices it can
    measure, and whether it takes `--thesis`.
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
    experiment = named(name)
    most = max(e.most_devices for e in EXPERIMENTS) if name == "run_all" else experiment.most_devices
    add_devices(made, name, experiment.cpu_only, most)
    if experiment.thesis:
        made.add_argument(
            "--thesis",
            action="store_true",
            help="the thesis's models, batch sizes and counts, in a folder of their own; on GPUs always",
        )
    if experiment.thesis or experiment.data:
        made.add_argument(
            "--replica-mode", choices=REPLICA_MODES, help="way in which the replicas of a GPU share it"
        )
    made.set_defaults(experiment=name)
    return made


def add_devices(made: argparse.ArgumentParser, name: str, cpu_only: str = "", most_devices: int = 1) -> None:
    """Adds `--devices`, whose value is a tuple of names such as /gpu:0.

    cpu_only: reason why the experiment measures CPU devices only, if it does. most_devices: that it uses.
    """

    def names(text: str) -> tuple[str, ...]:
        found = devices_named(text)
        if len(found) > most_devices:
            raise argparse.ArgumentTypeError(f"{name} uses at most {most_devices}, got {len(found)}")
        if cpu_only and (gpus := [device for device in found if is_gpu(device)]):
            raise argparse.ArgumentTypeError(f"{name} measures CPU devices only ({cpu_only}), got {gpus[0]}")
        require_gpus(found)
        return found

    default = CPU if cpu_only or name != "gpu_replicas" else ("/gpu:0",)
    made.add_argument(
        "--devices",
        type=names,
        default=default,
        metavar="DEVICE[,DEVICE...]",
        help=f"devices to measure on, such as gpu:0,gpu:1; default {default[0].strip('/')}",
    )


def devices_named(text: str) -> tuple[str, ...]:
    """Parses devices such as gpu:0,gpu:1 to /gpu:0 and /gpu:1, as the `type=` of an option.

    Raises ArgumentTypeError for what is no CPU or GPU, and for repetitions.
    """
    from tensorbow.devices import DeviceName
    from tensorbow.errors import InvalidArgumentError

    try:
        parsed = [DeviceName.parse(word) for word in text.split(",")]
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if any(name.kind not in ("CPU", "GPU") or name.index is None or name.job for name in parsed):
        raise argparse.ArgumentTypeError(f"expected names such as gpu:0,gpu:1 or cpu:0, got {text!r}")
    if len(set(parsed)) < len(parsed) or len({name.kind for name in parsed}) > 1:
        raise argparse.ArgumentTypeError(f"expected different devices of one kind, got {text!r}")
    return tuple(name.short for name in parsed)


def require_gpus(devices: Sequence[str]) -> None:
    """Raises ArgumentTypeError for GPUs that are not there; finds the emulated GPU where asked to."""
    if not is_gpu(devices[0]):
        return
    from tensorbow.devices import gpu_status
    from tensorbow.devices.gpu_discovery import count_gpus

    if gpus_are_emulated():
        from tests.gpu_rig.runtimes import show_emulated_gpu

        show_emulated_gpu()
    count = count_gpus()
    if any(int(name.rpartition(":")[2]) >= count for name in devices):
        problem = gpu_status().problem or f"there are {count} GPU devices, from gpu:0 on"
        raise argparse.ArgumentTypeError(f"{', '.join(devices)}: {problem}")


def gpus_are_emulated() -> bool:
    """True if the environment asks for the emulated GPU of the tests in place of a real one."""
    return os.environ.get("TENSORBOW_TEST_GPU") == "emulated"


def is_gpu(device: str) -> bool:
    """True for the name of a GPU."""
    return device.startswith("/gpu:")


def on_gpus(options: argparse.Namespace) -> bool:
    """True if an experiment measures GPUs."""
    return is_gpu(options.devices[0])


def device_noun(result: Mapping[str, Any]) -> str:
    """Name of what `--devices` lists in a result, for axes."""
    return "GPU" if is_gpu(result["details"]["settings"].get("devices", CPU)[0]) else "virtual CPU device"


def by_the_thesis(options: argparse.Namespace) -> bool:
    """True if an experiment has the thesis's models, batch sizes and counts: with `--thesis`, and on GPUs."""
    return bool(getattr(options, "thesis", False)) or on_gpus(options)


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
    """Path of a results file; makes its folder.

    Without `--output` results of GPUs, and of the thesis's cases on a CPU, have folders of their own.
    """
    kind = "small" if options.small else "gpu" if on_gpus(options) else ""
    kind = kind or ("thesis" if by_the_thesis(options) else "")
    folder: Path = options.output or RESULTS / kind
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


def gpus_of(devices: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Names of the GPUs of devices, and versions of what they were measured with."""
    from tensorbow.devices import GpuDevice, get_device
    from tensorbow.kernels import backend_for

    opened = [device for name in devices if isinstance(device := get_device(name), GpuDevice)]
    made = backend_for(opened[0]).made_with(opened[0])
    found = {f"GPU {key}": str(value) for key, value in made.items()}
    if not gpus_are_emulated():
        found["driver"] = driver()
    return [device.runtime.properties.name for device in opened], found


def driver() -> str:
    """Versions of NVIDIA's driver and of its CUDA."""
    import pynvml

    nvml: Any = pynvml
    nvml.nvmlInit()
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return f"{nvml.nvmlSystemGetDriverVersion()}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    finally:
        nvml.nvmlShutdown()


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


def await_end(process: subprocess.Popen[Any], seconds: float) -> None:
    """Waits for the end of a process; where the load per core is above 1, the limit is as many times longer.

    Raises TimeoutExpired.
    """
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.wait(seconds * max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1))


def described(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Head of a result: its name, the date, the machine, versions and the command."""
    today = datetime.now(timezone.utc).date().isoformat()
    where: dict[str, dict[str, Any]] = {"machine": machine(), "versions": dict(versions())}
    if on_gpus(options):
        where["machine"]["gpus"], more = gpus_of(options.devices)
        where["versions"] |= more
    return {"name": name, "date": today, **where, "command": command_line(options)}


def in_turn(windows: int, seconds: float) -> str:
    """Remark on the windows of an experiment that uses `interleave`."""
    return f"Medians of {windows} windows of {seconds:g} s in turn."


def save(
    options: argparse.Namespace,
    name: str,
    details: Mapping[str, Any],
    table: Table,
    draw: Callable[[Figure, dict[str, Any]], None],
    unsaved: Collection[str] = (),
) -> None:
    """Prints the table; writes `<name>.json`, in the form that `results_page.py` describes, and `<name>.png`.

    draw: fills an empty figure from the result, as the file has it. Without matplotlib no picture is written,
    and a message says so. unsaved: options that are not stored, since the details have them.
    """
    print_table(table.columns, table.as_text())
    print(*table.remarks, sep="\n")
    written = output_path(options, f"{name}.json")
    shown = {"columns": table.columns, "rows": table.rows, "remarks": table.remarks}
    settings = {name: value for name, value in settings_of(options).items() if name not in unsaved}
    result = {**described(options, name), **shown, "details": {"settings": settings, **details}}
    text = as_json(result)
    written.write_text(text + "\n")
    print(f"{name}: wrote {written}")
    from drawing import write_picture  # here: importing TensorBow takes time, which some scripts measure

    from tensorbow.pictures import has_matplotlib

    if not has_matplotlib():
        print(f"{name}: no picture, matplotlib is not installed; pip install 'tensorbow[plot]'")
        return
    picture = output_path(options, f"{name}.png")
    write_picture(draw, json.loads(text), picture)
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
    without = {"output", "experiment", *(("devices",) if options.devices == CPU else ())}
    without |= {name for name in ("thesis", "replica_mode") if not getattr(options, name, None)}
    kept = {name: value for name, value in vars(options).items() if name not in without}
    return {name: name.upper() if isinstance(value, Path) else value for name, value in kept.items()}


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints aligned columns; those of figures, with `-` for None, are right-aligned."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    right = [all(row[column][:1] in "-0123456789" for row in rows) for column in range(len(header))]
    for row in (header, *rows):
        cells = zip(row, widths, right, strict=True)
        print("  ".join(c.rjust(w) if at_right else c.ljust(w) for c, w, at_right in cells).rstrip())
    sys.stdout.flush()
