"""Stages 1 and 6: tests of the project on the GPU, by pytest with several workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from first_hour.records import (
    BAD,
    CRASHED,
    FAILED,
    NO_TIME,
    NOT_THERE,
    PASSED,
    TIMED_OUT,
    NotThereError,
    Recorder,
    checks_of,
    entries,
)
from first_hour.stages import FOLDER

ROOT = FOLDER.parent
PLUGIN = "tests.gpu_rig.one_line_per_test"
OUTCOMES = {"passed": PASSED, "failed": FAILED, "skipped": NOT_THERE}
COLLECTED_NONE = 5  # exit status of pytest
MOST_PROCESSES = 20


def suite(recorder: Recorder, paths: Sequence[str], workers: int, test_s: float, chosen: str = "") -> None:
    """Part: tests in these files; each one that is bad becomes a check, the others are counted.

    chosen: expression of pytest's -k. test_s: most seconds of a test.
    """
    lines, without, finished = (Path(f"{recorder.path}.{kind}") for kind in ("tests", "without", "finished"))
    command = [sys.executable, "-m", "pytest", *paths, "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-p", PLUGIN, "--lines", str(lines), "--without", str(without), "--finished", str(finished)]
    command += ["--most-seconds", str(test_s), *(["-k", chosen] if chosen else [])]
    if workers > 1 and find_spec("xdist") is not None:
        command += ["-n", str(workers), "--max-worker-restart", "20"]

    def run() -> dict[str, Any]:
        without.write_text("")
        status: int | None = None
        for _ in range(MOST_PROCESSES):  # without xdist a test that ends its process ends the run
            status = _pytest(command, recorder.left_s - 1.0)
            begun = sorted({entry["name"] for entry in entries(lines)})
            if status is None or finished.exists() or without.read_text().split("\n") == begun:
                break
            without.write_text("\n".join(begun))
            for check in checks_of("", lines, time.time()):
                if not check.ended:
                    Recorder(lines, 0.0).write("died", check.name, at=time.time())
        found = _judged(recorder, lines, in_time=status is not None)
        for path in (lines, without, finished):
            path.unlink(missing_ok=True)
        if status is None:
            found["ended_early"] = "out of time; the tests after these did not run"
        if status == COLLECTED_NONE and not found:
            raise NotThereError("pytest found no tests here")
        known = any(kind in OUTCOMES.values() for kind in found)
        assert known or status is None, f"pytest ended with status {status}; see the log"
        assert not any(found.get(kind) for kind in BAD), f"tests failed: {found}"
        return found

    recorder.check("tests", run, most_s=recorder.left_s + 10.0, needs_s=5.0)


def _pytest(command: Sequence[str], seconds: float) -> int | None:
    """Runs pytest; its exit status, None if it ran out of time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
    try:
        return process.wait(max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        return None


def _judged(recorder: Recorder, lines: Path, in_time: bool) -> dict[str, Any]:
    """Counts by status; writes a check for each test that is bad, and the reasons of those skipped."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for check in checks_of("", lines, time.time()):
        status = OUTCOMES.get(check.status, check.status)
        if status == CRASHED and not in_time:
            status = NO_TIME
        counts[status] += 1
        if status == NOT_THERE:
            reasons[check.error] += 1
        if status in BAD:
            error = check.error or (
                "its stacks are in the log" if status == TIMED_OUT else "its process ended"
            )
            recorder.write("ended", check.name, status=status, seconds=check.seconds, error=error)
    return {**counts, **({"skipped": dict(reasons)} if reasons else {})}
