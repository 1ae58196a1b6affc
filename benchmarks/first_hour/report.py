"""Report in words of all stages whose files a folder has: `report.md`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from results_page import Table

from first_hour.records import BAD, NO_TIME, NOT_THERE, PASSED

Stage = dict[str, Any]
Check = dict[str, Any]
LONGEST = 15  # rows of a table of calls


def write_report(folder: Path) -> Path:
    """Writes the report of a folder; returns its path."""
    target = folder / "report.md"
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(report(stages_in(folder)))
    os.replace(partial, target)
    return target


def stages_in(folder: Path) -> list[Stage]:
    """Files of stages, by number; one that cannot be read says so as a bad check."""
    found = []
    for path in sorted(folder.glob("stage_*.json")):
        try:
            stage = json.loads(path.read_text())
            assert {"stage", "title", "checks", "facts", "date"} <= stage.keys(), "members are missing"
        except (ValueError, AssertionError) as error:
            text = {
                "part": path.name,
                "name": "file",
                "status": "failed",
                "error": f"cannot be read: {error}",
            }
            stage = {
                "stage": 0,
                "title": path.name,
                "checks": [text],
                "facts": {},
                "date": "",
                "seconds": 0.0,
            }
        found.append(stage)
    return sorted(found, key=lambda stage: stage["stage"])


def report(stages: Sequence[Stage]) -> str:
    """Text of the report."""
    parts = ["# First hour on a GPU"]
    if not stages:
        return "\n\n".join([*parts, "No stage has run yet."]) + "\n"
    emulated = any(stage["facts"].get("emulated") for stage in stages)
    if emulated:
        parts.append("**On the emulated GPU: no figure here says anything about a real one.**")
    parts += machines(stages)
    bad = [check for stage in stages for check in stage["checks"] if check["status"] in BAD]
    checks = sum(len(stage["checks"]) for stage in stages)
    parts.append(
        f"{len(stages)} stages, {checks} checks. "
        + ("Nothing failed." if not bad else f"{len(bad)} failed or did not end.")
    )
    for stage in stages:
        parts += section(stage)
    return "\n\n".join(parts) + "\n"


def machines(stages: Sequence[Stage]) -> list[str]:
    """The machine of the stages; each different one with its stages."""
    described: dict[str, list[str]] = {}
    for stage in stages:
        facts = stage["facts"]
        packages = ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items())
        libraries = ", ".join(f"{name} {version}" for name, version in facts.get("libraries", {}).items())
        words = [
            f"{facts.get('gpus', 1)} x {facts['device']}" if "device" in facts else "device unknown",
            f"compute capability {facts['compute_capability']}" if "compute_capability" in facts else "",
            f"driver {facts['driver']}" if "driver" in facts else "",
            facts.get("compiler", ""),
            libraries,
            packages,
        ]
        text = "; ".join(filter(None, words))
        described.setdefault(f"{stage['date'][:10]}: {text}", []).append(str(stage["stage"]))
    return [f"Stage{'s' if len(n) > 1 else ''} {', '.join(n)}, {text}." for text, n in described.items()]


def section(stage: Stage) -> list[str]:
    """Heading, what passed and what did not, and the stage's tables."""
    checks: list[Check] = stage["checks"]
    counts = Counter(check["status"] for check in checks)
    said = ", ".join(f"{number} {status}" for status, number in counts.items()) or "nothing was checked"
    state = "" if stage.get("finished", True) else " It was cut off."
    parts = [
        f"## Stage {stage['stage']}: {stage['title']}",
        f"{said}; {stage.get('seconds', 0):.0f} s.{state}",
    ]
    for title, statuses in (("Failed", BAD), ("Not there", (NOT_THERE,)), ("No time left", (NO_TIME,))):
        lines = [listed(check) for check in checks if check["status"] in statuses]
        if lines:
            parts.append(f"{title}:\n\n" + "\n".join(lines))
    tests = [check for check in checks if check["name"] == "tests" and check.get("findings")]
    if tests:
        lines = [f"- {check['part']}: {test_counts(check['findings'])}" for check in tests]
        parts.append("Tests:\n\n" + "\n".join(lines))
    tables = TABLES.get(stage["stage"], lambda _: [])([check for check in checks if check.get("findings")])
    return parts + tables


def listed(check: Check) -> str:
    """A check and its error in one line of a list."""
    status = "" if check["status"] in ("failed", NOT_THERE, NO_TIME) else f" {check['status']}"
    error = f": {check['error']}" if check.get("error") else ""
    return f"- {check['part']}, {check['name']}{status}{error}"


def test_counts(findings: dict[str, Any]) -> str:
    """Numbers of tests by outcome, and why some were skipped."""
    counts = ", ".join(f"{number} {kind}" for kind, number in findings.items() if isinstance(number, int))
    skipped = "; ".join(f"{number} because {why}" for why, number in findings.get("skipped", {}).items())
    rest = f". {findings['ended_early']}" if "ended_early" in findings else ""
    return counts + (f" ({skipped})" if skipped else "") + rest


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table."""
    text = Table(columns, rows).as_text()
    lines = [columns, ["---"] * len(columns), *text]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def of_checks(checks: Iterable[Check], keys: Sequence[str], first: str = "") -> list[str]:
    """Table of the findings of checks that have all these keys."""
    rows = []
    for check in checks:
        if all(key in check["findings"] for key in keys):
            head = [check["part"], check["name"]] if first else [check["name"]]
            rows.append([*head, *(as_cell(check["findings"][key]) for key in keys)])
    titles = [first, "what"] if first else ["what"]
    return [markdown([*titles, *(key.replace("_", " ") for key in keys)], rows)] if rows else []


def as_cell(value: Any) -> Any:
    """Text of a finding, where it is neither number nor text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return value


def probe_tables(checks: list[Check]) -> list[str]:
    lines = []
    for check in checks:
        if check["part"] not in ("facts",) and check["name"] != "tests" and check["status"] == PASSED:
            found = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in check["findings"].items())
            lines.append(f"- {check['name']}: {found}")
    return ["Found:\n\n" + "\n".join(lines)] if lines else []


def kernel_tables(checks: list[Check]) -> list[str]:
    parts = []
    for check in checks:
        found = check["findings"]
        if "calls" in found:
            parts.append(
                f"{check['name']}: {found['kernels']} calls, {found['sum_of_kernels_us']:,} us back to back, "
                f"a step {found['step_us']:,} us, {found['tflops_in_the_step']} TFLOP/s."
            )
            keys = ("call", "times", "us", "gflops_per_s", "gb_per_s")
            rows = [[call.get(key) for key in keys] for call in found["calls"][:LONGEST]]
            parts.append(markdown(["call", "times", "us", "GFLOP/s", "GB/s"], rows))
        if "convolutions" in found:
            keys = ("call", "operands", "padding_strides", "algorithm", "workspace_nbytes", "times")
            rows = [[as_cell(row[key]) for key in keys] for row in found["convolutions"]]
            parts += [f"{check['name']}:", markdown([key.replace("_", " ") for key in keys], rows)]
            if found["refused"]:
                parts.append(f"Refused by cuDNN: {json.dumps(found['refused'])}.")
    return parts


def overlap_tables(checks: list[Check]) -> list[str]:
    rows, alone = [], {}
    for check in checks:
        found = check["findings"]
        if "tasks_per_second" in found:
            rate = found["tasks_per_second"] or 0
            first = alone.setdefault(check["part"], rate)
            ratio = rate / first if first else None
            rows.append(
                [
                    check["part"],
                    check["name"],
                    rate,
                    ratio,
                    found["host_us_per_task"],
                    as_cell(found["host_bound"]),
                ]
            )
    columns = [
        "connections",
        "replicas",
        "tasks/s",
        "times one replica",
        "host us per task",
        "host was the limit",
    ]
    return [markdown(columns, rows)] if rows else []


def host_tables(checks: list[Check]) -> list[str]:
    keys = ("replicas", "mode", "images_per_second", "us_per_round", "driver_thread_us_per_round_and_replica")
    parts = of_checks([c for c in checks if c["part"] == "calls of CUDA"], ("us",))
    parts += of_checks(checks, keys)
    rounds = [c["findings"] | {"part": c["part"]} for c in checks if "us_per_round" in c["findings"]]
    rows = []
    for captured in rounds:
        if captured["mode"].startswith("captured"):
            case, sync, _ = captured["part"].split(", ")
            fused = (
                f"{case}, {sync}, fused",
                captured["mode"].replace("captured", "fused"),
                captured["replicas"],
            )
            for other in rounds:
                if (other["part"], other["mode"], other["replicas"]) == fused:
                    ratio = other["images_per_second"] / max(captured["images_per_second"], 1)
                    rows.append([case, sync, captured["replicas"], captured["mode"], ratio])
    if rows:
        parts.append("Fused over captured, in images/s:")
        parts.append(markdown(["case", "method", "replicas", "mode", "times"], rows))
    return parts


def contest_tables(checks: list[Check]) -> list[str]:
    parts = []
    for check in checks:
        found = check["findings"]
        if not found.get("rows"):
            continue
        rows = sorted(found["rows"], key=lambda row: -row["images_per_second"])
        best_peer = max(
            (r["images_per_second"] for r in rows if not r["name"].startswith("TensorBow")), default=None
        )
        table = []
        for row in rows:
            name = f"{row['name']}, {row['way']}" if row.get("way") else row["name"]
            rate = row["images_per_second"]
            table.append([name, row["replicas"], rate, rate / best_peer if best_peer else None])
        parts.append(markdown(["who", "replicas", "images/s", "times the best peer"], table))
        summed = found.get("summary", {})
        if "ratio" in summed:
            goal = f" (goal {summed['ratio_goal']:g})" if summed.get("ratio_goal") else ""
            parts.append(
                f"Best count, averaged: {summed['best_count']}, {summed['ratio']:.2f} times "
                f"{summed['best_peer']}{goal}."
            )
        if found.get("absent"):
            parts.append("Left out:\n\n" + "\n".join(f"- {line}" for line in found["absent"]))
    return parts


def bits_tables(checks: list[Check]) -> list[str]:
    lines = []
    for check in checks:
        found = check["findings"]
        if "different" in found:
            number, results = found["done"], found["different"]
            said = "the same bits" if results == 1 else f"{results} different results"
            lines.append(f"- {check['name']}: {number} done, {said}")
        elif "apart" in found:
            lines.append(f"- {check['name']}: {found['apart']:.2g} apart after {found['rounds']} rounds")
        elif "lines" in found:
            lines.append(f"- {check['name']}: {found['lines']} lines of the checker in the log")
    return ["Found:\n\n" + "\n".join(lines)] if lines else []


def several_tables(checks: list[Check]) -> list[str]:
    parts = of_checks(checks, ("ranks", "off", "host_us", "us"))
    parts += of_checks(checks, ("gpus", "tasks_per_second", "images_per_second", "process_us_per_task"))
    return parts + of_checks(checks, ("apart",))


def host_memory_tables(checks: list[Check]) -> list[str]:
    keys = ("slab_nbytes", "swapped_values", "swapped_nbytes_each_way", "host_nbytes")
    return of_checks(checks, (*keys, "ms_per_step", "examples_per_second"))


TABLES: dict[int, Callable[[list[Check]], list[str]]] = {
    1: probe_tables,
    2: kernel_tables,
    3: overlap_tables,
    4: host_tables,
    5: contest_tables,
    6: bits_tables,
    7: several_tables,
    8: host_memory_tables,
}
