"""Runs the experiments one after another, each in a process of its own, and summarises their outcomes.

    python benchmarks/run_all.py --small              # all of them with fewer points: under 10 minutes
    python benchmarks/run_all.py --data FOLDER        # in full; FOLDER has MNIST's IDX files
    python benchmarks/run_all.py --only tau fig_4_2
    python benchmarks/run_all.py --list

A failing experiment does not stop the others. The failures are listed at the end, and the exit status is
then 1. `summary.json` has the last run of each experiment. `results_page.py` writes the page of results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS, FOLDER, Experiment
from harness import on_gpus, output_path, parser, positive_float, print_table

SMALL_LIMIT, FULL_LIMIT = 300.0, 7200.0  # seconds


def run(experiment: Experiment, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one experiment; its name, exit status (None: it exceeded the limit) and seconds."""
    command = [sys.executable, str(experiment.script)]
    command += ["--small"] if options.small else []
    command += ["--output", str(options.output)] if options.output else []
    command += ["--data", str(options.data)] if options.data and experiment.data else []
    command += ["--devices", names_of(experiment, options)] if on_gpus(options) else []
    paths = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]  # the checkout need not be installed
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if options.data:
        environment["TENSORBOW_DATA"] = str(options.data)
    print(f"\n== {experiment.name}: {experiment.shows}", flush=True)
    started = time.perf_counter()
    status: int | None = None
    try:
        status = subprocess.run(command, env=environment, timeout=options.limit).returncode
    except subprocess.TimeoutExpired:
        print(f"{experiment.name}: stopped after {options.limit:g} s; --limit sets another limit", flush=True)
    return {
        "experiment": experiment.name,
        "status": status,
        "seconds": round(time.perf_counter() - started, 1),
    }


def names_of(experiment: Experiment, options: argparse.Namespace) -> str:
    """Devices for an experiment: as many of those given as it uses."""
    return ",".join(name.strip("/") for name in options.devices[: experiment.most_devices])


def outcome(row: dict[str, Any]) -> str:
    """Outcome of a run, in words."""
    if row["status"] is None:
        return "ran past the limit"
    return "done" if row["status"] == 0 else f"failed with status {row['status']}"


def run_all(chosen: Sequence[Experiment], options: argparse.Namespace) -> int:
    """Runs the experiments; returns the exit status, 0 when all of them succeeded."""
    path, rows = output_path(options, "summary.json"), []
    for experiment in chosen:
        rows.append(run(experiment, options))
        summarise(rows[-1], options.small, path)
    print()
    print_table(
        ["experiment", "seconds", ""], [[r["experiment"], f"{r['seconds']:.0f}", outcome(r)] for r in rows]
    )
    failed = [row["experiment"] for row in rows if row["status"] != 0]
    total = sum(row["seconds"] for row in rows)
    print(f"{len(rows) - len(failed)} of {len(rows)} experiments done in {total:.0f} s; {path}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def summarise(row: dict[str, Any], small: bool, path: Path) -> None:
    """Adds a run to the summary, which has the last run of each experiment; either all are small or none."""
    try:
        summary = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # ValueError: writing was interrupted
        summary = {}
    earlier = summary["runs"] if summary.get("small") == small else []
    runs = [*(run for run in earlier if run["experiment"] != row["experiment"]), row]
    path.write_text(json.dumps({"small": small, "runs": runs}, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser(__doc__, "run_all")
    experiments = [experiment for experiment in EXPERIMENTS if not experiment.alone]
    names = [experiment.name for experiment in experiments]
    made.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="run only these experiments")
    made.add_argument("--list", action="store_true", help="list the experiments and run nothing")
    made.add_argument(
        "--data", type=Path, help="folder of MNIST's IDX files, for experiments that train to an accuracy"
    )
    made.add_argument(
        "--limit",
        type=positive_float,
        help=f"most seconds per experiment; default {FULL_LIMIT:g}, small {SMALL_LIMIT:g}",
    )
    options = made.parse_args(arguments)
    if options.data is not None and not options.data.is_dir():
        made.error(f"--data: expected a folder with MNIST's IDX files, got {options.data}, which is none")
    options.limit = options.limit or (SMALL_LIMIT if options.small else FULL_LIMIT)
    chosen = [e for e in experiments if options.only is None or e.name in options.only]
    if on_gpus(options):
        for experiment in (e for e in chosen if e.cpu_only):
            print(f"{experiment.name}: left out on GPUs: {experiment.cpu_only}")
        chosen = [e for e in chosen if not e.cpu_only]
    if options.list:
        print_table(["name", "shows", "from"], [[e.name, e.shows, e.paper or "-"] for e in chosen])
        return 0
    return run_all(chosen, options)


if __name__ == "__main__":
    raise SystemExit(main())
