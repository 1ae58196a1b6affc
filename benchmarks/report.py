"""Writes what the full runs found into the README files, between the markers that they have for it.

    python benchmarks/report.py [--results FOLDER] [--check]

`benchmarks/README.md` gets a table with a row for each experiment, and what is missed, with a profile of
where the time goes; both it and the README of the repository get the table of rates beside the peers. What
stands outside the markers stays. `--check` changes nothing and exits with 1 where a file would change.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments import EXPERIMENTS, FOLDER, OWN, Experiment
from harness import RESULTS
from report_figures import FIGURES, NO_PEER, Result, case_of, in_words
from report_misses import missed, profile, rows_of_profile
from report_papers import CONCLUSIONS

NOT_RUN = "not run yet"
NOT_AT_HAND = "not at hand"


class ReportError(RuntimeError):
    """A result or a README that this script cannot read: which one, and what to do."""


def load(results: Path, name: str) -> Result | None:
    """The result of an experiment, None where it has not run. Raises ReportError."""
    path = results / f"{name}.json"
    if not path.exists():
        return None
    try:
        found: Result = json.loads(path.read_text())
    except ValueError as error:
        raise ReportError(f"{path} is no JSON ({error}); run {name}.py again") from None
    return found


def row_of(experiment: Experiment, result: Result | None, link: Path) -> list[str]:
    """The cells of an experiment. link: from the README to the results' folder. Raises ReportError."""
    name, ours, peers = f"`{experiment.name}.py`", NOT_RUN, NO_PEER
    conclusion = CONCLUSIONS.get(experiment.name)
    paper_says = conclusion.says if conclusion else "-" if experiment.paper == OWN else NOT_AT_HAND
    if result is not None and result.get("unfinished"):
        ours = "not finished"
    elif result is not None:
        try:
            ours, peers = FIGURES[experiment.name](result)
            small = result["settings"]["small"]
            if conclusion:
                paper_says = f"{conclusion.says}<br>{conclusion.verdict(result)}"
        except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
            raise ReportError(
                f"{experiment.name}.json is not as {experiment.name}.py writes it now "
                f"({type(error).__name__}: {error}); run the experiment again"
            ) from error
        name = f"{name}: [picture]({(link / experiment.name).as_posix()}.png)"
        if small:
            ours = f"{ours}<br>(a small run: no figure to quote)"
    return [name, experiment.shows, experiment.paper, paper_says, ours, peers]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def described(machine: dict[str, Any]) -> str:
    """A machine in a line."""
    versions = [f"{n} {machine[n]}" for n in ("numpy", "llvmlite", "torch", "jax") if machine.get(n)]
    cores = f"{machine['cores']} cores of {machine['processor']}"
    versions = [f"Python {machine['python']}", *versions]
    return f"{cores}, {machine['system']}, {', '.join(versions)}; {machine['cpu_backend']}"


def machines(results: dict[str, Result]) -> list[str]:
    """Where and when it was measured; a line for each machine."""
    places: dict[str, list[str]] = {}
    dates: dict[str, set[str]] = {}
    for name, result in results.items():
        place = described(result["machine"])
        places.setdefault(place, []).append(name)
        dates.setdefault(place, set()).add(result["machine"]["date"])
    made = []
    for place, names in places.items():
        of = "" if len(places) == 1 else f" ({', '.join(names)})"
        made.append(f"Measured{of} on {place}; {' and '.join(sorted(dates[place]))}.")
    return made


def experiments_block(results: dict[str, Result], link: Path) -> list[str]:
    """The table of all experiments."""
    header = ["experiment", "what it shows", "from", "the paper says", "ours", "the peers'"]
    rows = [row_of(experiment, results.get(experiment.name), link) for experiment in EXPERIMENTS]
    return [*markdown(header, rows), "", *machines(results)]


def floors_block(results: dict[str, Result], link: Path) -> list[str]:
    """The table of rates beside the peers."""
    result = results.get("cpu_floors")
    if result is None:
        return [f"`cpu_floors.py`: {NOT_RUN}."]
    header = [
        "model, batch size",
        "ours",
        "images/s",
        "best peer",
        "images/s",
        "ratio",
        "to reach",
        "reached",
    ]
    rows = []
    for row in result["rows"]:
        rates = {name: f"{rate['median']:,.0f}" for name, rate in row["images_per_second"].items()}
        for target in row["targets"]:
            ratio = "-" if target["ratio"] is None else f"{target['ratio']:.2f}"
            best = target["best_peer"] or "-"
            to_reach, reached = in_words(target)
            ours = [target["ours"], rates.get(target["ours"], "-"), best, rates.get(best, "-")]
            rows.append([case_of(row), *ours, ratio, to_reach, "**no**" if reached == "no" else reached])
    windows = f"{result['settings']['windows']} windows of {result['settings']['seconds']:g} s"
    small = " A small run: no figure to quote." if result["settings"]["small"] else ""
    picture = f"[picture]({(link / 'cpu_floors').as_posix()}.png)"
    note = f"Medians of {windows} in turn, {result['settings']['replicas']} replicas; {picture}.{small}"
    others = [case_of(row) for row in result["rows"] if row["command"] != result["rows"][0]["command"]]
    if others:
        note += f" All settings of a case are of one run; not of that of the first case: {', '.join(others)}."
    left_out = [
        f"{case_of(row)}: {name} ({why})" for row in result["rows"] for name, why in row["left_out"].items()
    ]
    missing = [f"Left out: {'; '.join(left_out)}.", ""] if left_out else []
    return [*markdown(header, rows), "", note, "", *missing, *machines({"cpu_floors": result})]


def misses_block(results: dict[str, Result], link: Path) -> list[str]:
    """What did not reach its target, and where the time goes. Raises ReportError."""
    try:
        found = missed(results)
        many = f"{found.count} of the project's targets are missed."
        made = [many if found.count else "None of the project's targets is missed."]
        if found.rates:
            made += ["", *markdown(found.header, found.rates)]
        if found.others:
            made += ["", *(f"- {line}" for line in found.others)]
        if "round_profile" not in results:
            return [*made, "", f"`round_profile.py`: {NOT_RUN}."]
        result = results["round_profile"]
        header, sentences = profile(result)
        made += ["", *markdown(header, rows_of_profile(result)), "", *(f"- {line}" for line in sentences)]
        small = " A small run: no figure to quote." if result["settings"]["small"] else ""
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ReportError(
            f"a result is not as its script writes it now ({type(error).__name__}: {error}); "
            "run round_profile.py, cpu_floors.py, null_steps.py and compile_time.py again"
        ) from error
    picture = f"[picture]({(link / 'round_profile').as_posix()}.png)"
    note = f"Medians of {result['windows']} windows of {result['seconds_per_window']:g} s; {picture}.{small}"
    return [*made, "", note, "", *machines({"round_profile": result})]


Block = Callable[[dict[str, Result], Path], list[str]]
BLOCKS: dict[str, Block] = {
    "experiments": experiments_block,
    "floors": floors_block,
    "misses": misses_block,
}
PLACES = (
    (FOLDER / "README.md", ("experiments", "floors", "misses")),
    (FOLDER.parent / "README.md", ("floors",)),
)


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """The text with these lines between the markers of that name. Raises ReportError without such markers."""
    begin, end = f"<!-- {name}: begin, written by benchmarks/report.py -->", f"<!-- {name}: end -->"
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ReportError(f"no markers for {name!r}: expected the lines {begin!r} and {end!r}; put them back")
    return "\n".join([f"{head}{begin}", *lines, f"{end}{tail}"])


def changed(results: dict[str, Result], folder: Path) -> dict[Path, str]:
    """The new text of each README that is not as it should be. Raises ReportError."""
    texts = {}
    for path, names in PLACES:
        text = before = path.read_text()
        link = Path(os.path.relpath(folder, path.parent))
        for name in names:
            lines = BLOCKS[name](results, link)
            try:
                text = filled(text, name, lines)
            except ReportError as error:
                raise ReportError(f"{path.name}: {error}") from None
        if text != before:
            texts[path] = text
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks/report.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would")
    options = parser.parse_args(arguments)
    try:
        loaded = {experiment.name: load(options.results, experiment.name) for experiment in EXPERIMENTS}
        results = {name: result for name, result in loaded.items() if result is not None}
        texts = changed(results, options.results)
    except ReportError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    for path, text in texts.items():
        if not options.check:
            path.write_text(text)
        print(f"{'would change' if options.check else 'wrote'} {path}")
    return 1 if texts and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
