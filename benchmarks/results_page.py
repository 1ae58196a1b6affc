"""Writes `RESULTS.md`, the page of all results, from the JSON files in `results/`.

    python benchmarks/results_page.py [--check]

A result has `name`, `date`, `machine`, `versions`, `command`, the displayed table (`columns`, `rows`,
`remarks`), and `details`, which are not displayed: windows, courses of training and other data of its script.
`--check` writes nothing and exits with 1 if the page would change.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS, FOLDER, Experiment

RESULTS, PAGE = FOLDER / "results", FOLDER / "RESULTS.md"
MISSED = "missed"  # text of a cell whose target was not reached
HEAD = """# Results

Written by `python benchmarks/results_page.py` from the files in [results/](results), which also hold every
window and course of training; do not edit it. [README.md](README.md) says how to run the experiments, and
what they cannot show. Absolute figures of this machine are not comparable with those of a paper's GPUs;
ratios and shapes of curves are."""

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Displayed table of a result. A cell is text, a number, or None where there is no figure."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    remarks: Sequence[str] = ()

    def as_text(self) -> list[list[str]]:
        """Rows as they are printed."""
        return [[shown(cell) for cell in row] for row in self.rows]


def shown(cell: Cell) -> str:
    """Text of a cell: numbers with three digits, or all digits before the point; `-` for None."""
    if cell is None or isinstance(cell, str):
        return cell or "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def as_json(result: Any, depth: int = 3) -> str:
    """JSON with a line for each member to a certain depth: each row of a table and of the details."""
    if depth == 0 or not isinstance(result, dict | list | tuple) or not result:
        return json.dumps(result)
    if isinstance(result, dict):
        deeper = {key: depth - 1 if key == "details" else min(depth - 1, 1) for key in result}
        members = [f"{json.dumps(str(key))}: {as_json(value, deeper[key])}" for key, value in result.items()]
    else:
        members = [as_json(value, depth - 1) for value in result]
    begin, end = "{}" if isinstance(result, dict) else "[]"
    return "\n".join([begin, ",\n".join(members), end])


def load(experiment: Experiment, results: Path) -> dict[str, Any] | None:
    """Result of an experiment, None if it has not run. Raises SystemExit."""
    path = results / f"{experiment.name}.json"
    if not path.exists():
        return None
    try:
        result: dict[str, Any] = json.loads(path.read_text())
        assert result.get("unfinished") or {"columns", "rows", "remarks", "machine"} <= result.keys()
    except (ValueError, AssertionError) as error:
        raise SystemExit(
            f"{path} is not as {experiment.script.name} writes it ({error}); run it again"
        ) from None
    return result


def page(results: Path = RESULTS) -> str:
    """Text of the page. Raises SystemExit for a result that cannot be read."""
    parts = [HEAD]
    for experiment in EXPERIMENTS:
        parts += section(experiment, load(experiment, results), (results / f"{experiment.name}.png").exists())
    gpu = [one for one in EXPERIMENTS if load(one, results / "gpu") is not None]
    parts += ["# On GPUs"] if gpu else []
    for experiment in gpu:
        picture = (results / "gpu" / f"{experiment.name}.png").exists()
        parts += section(experiment, load(experiment, results / "gpu"), picture, "gpu/")
    return "\n\n".join(parts) + "\n"


def section(
    experiment: Experiment, result: dict[str, Any] | None, picture: bool, folder: str = ""
) -> list[str]:
    """Section of a result: heading, method, the paper's conclusion, table, remarks, and provenance.

    folder: of the picture, in `results/`.
    """
    link = f" [Picture](results/{folder}{experiment.name}.png)." if picture else ""
    origin = f" From {experiment.paper}." if experiment.paper else ""
    made = [f"## {experiment.shows}", f"`{experiment.name}.py`: {experiment.measures}{origin}{link}"]
    if experiment.concludes:
        made.append(f"The paper concludes: {experiment.concludes}.")
    if result is None or result.get("unfinished"):
        return [*made, "Not run yet." if result is None else "Not finished."]
    table = Table(result["columns"], result["rows"])
    rows = [[f"**{cell}**" if cell == MISSED else cell for cell in row] for row in table.as_text()]
    lines = [table.columns, ["---"] * len(table.columns), *rows]
    made.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines))
    if result["remarks"]:
        made.append("\n".join(f"- {remark}" for remark in result["remarks"]))
    return [*made, provenance(result)]


def provenance(result: dict[str, Any]) -> str:
    """Command, date, machine and versions, in one line."""
    machine = result["machine"]
    cores = f"{machine['cores']} cores of {machine['processor']}, " if "cores" in machine else ""
    versions = [f"{name} {version}" for name, version in result["versions"].items() if version]
    gpus = f"{', '.join(machine['gpus'])}, " if "gpus" in machine else ""
    variables = [f"{name}={value}" for name, value in machine.get("thread_variables", {}).items()]
    command = f"`{result['command']}`, " if result["command"] else ""
    date = result["date"] or "date not recorded"
    return f"{command}{date}; {gpus}{cores}{', '.join([machine['system'], *versions, *variables])}."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks/results_page.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the page would change"
    )
    options = parser.parse_args(arguments)
    text = page()
    changes = not PAGE.exists() or PAGE.read_text() != text
    if changes and not options.check:
        PAGE.write_text(text)
    print(f"{PAGE}: {'out of date' if changes and options.check else 'written' if changes else 'as it was'}")
    return int(changes and options.check)


if __name__ == "__main__":
    sys.exit(main())
