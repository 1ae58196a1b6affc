"""Training rates of this code beside those of an earlier commit, in turn, so that a slow change is seen.

    python benchmarks/against_commit.py --commit REVISION [--windows 15] [--seconds 1.5] [--small]

Two processes, one for each of the two checkouts, train the same cases in turn: two replicas of the models
through the scheduler, and a step of a session. Every window is paired with the one beside it; the figure is
the median of the pairs' ratios, this code over the earlier one. The earlier commit is checked out into a
temporary folder by `git worktree`. Below 0.97 a case counts as slower.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
from drawing import WIDTH, lighter
from results_page import MISSED, Table

from tensorbow.pictures import BLUE, LIMIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "against_commit"
ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.97  # times the earlier rate


class Checkout:
    """Process that trains the cases of one checkout; see `against_commit_contestant.py`."""

    def __init__(self, folder: Path):
        script = str(Path(__file__).with_name("against_commit_contestant.py"))
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [sys.executable, script, str(folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self.cases: list[str] = self._answer()

    def window(self, case: str, seconds: float) -> float:
        """Trains a case for about `seconds`; returns images per second."""
        print(json.dumps([case, seconds]), file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise SystemExit(f"{NAME}: a checkout's process ended with {self._process.wait()}")

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Temporary folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="against-commit-") as parent:
        folder = Path(parent) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        done = subprocess.run([*git, "add", "--detach", str(folder), commit], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{NAME}: --commit {commit}: {done.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def measured(now: Checkout, before: Checkout, windows: int, seconds: float) -> list[dict[str, Any]]:
    """Row for each case that both have."""
    rows = []
    for case in (case for case in now.cases if case in before.cases):
        pairs = list[tuple[float, float]]()
        for window in range(windows + 1):
            first, second = (now, before) if window % 2 else (before, now)
            rates = {first: first.window(case, seconds), second: second.window(case, seconds)}
            pairs.append((rates[now], rates[before]))
        pairs = pairs[1:]  # the first is the warm-up
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        medians = {
            "now": statistics.median(pair[0] for pair in pairs),
            "before": statistics.median(pair[1] for pair in pairs),
        }
        row = {key: float(f"{rate:.5g}") for key, rate in medians.items()}
        ratio = round(statistics.median(ratios), 4)
        rows.append({"case": case, **row, "ratio": ratio, "ratios": [round(r, 4) for r in ratios]})
    return rows


def described(commit: str) -> str:
    """Short hash and day of a commit."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h of %cs", commit]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def draw(figure: Figure, result: dict[str, Any]) -> None:
    """Draws a dot for the ratio of every pair, and their median."""
    details = result["details"]
    figure.set_size_inches(WIDTH, 3.4)
    axes = figure.add_subplot()
    for line, row in enumerate(details["rows"]):
        pair, median = ("a pair of windows", "median") if line == 0 else (None, None)
        places = [line] * len(row["ratios"])
        axes.plot(row["ratios"], places, "o", color=lighter(BLUE, 0.5), markersize=4, label=pair)
        axes.plot([row["ratio"]] * 2, [line - 0.3, line + 0.3], color=BLUE, linewidth=2, label=median)
    axes.axvline(LEAST, color=LIMIT, linestyle="--", linewidth=1.2, label=f"to stay above: {LEAST:g}")
    axes.set_yticks(range(len(details["rows"])), [row["case"] for row in details["rows"]])
    axes.set_ylim(len(details["rows"]) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"times the rate of {details['before']}")
    axes.set_title(f"{details['now']} beside {details['before']}")
    figure.legend(loc="outside lower center", ncols=3)


def table(details: dict[str, Any]) -> Table:
    """Row for each case: both rates, their ratio, and whether it is above the limit."""
    columns = ["case", "now [images/s]", "before [images/s]", "ratio", f"at least {LEAST:g}"]
    rows = [
        [row["case"], row["now"], row["before"], row["ratio"], "yes" if row["ratio"] >= LEAST else MISSED]
        for row in details["rows"]
    ]
    remarks = [
        f"{details['now']} beside {details['before']}.",
        harness.in_turn(details["windows"], details["seconds_per_window"]),
    ]
    return Table(columns, rows, remarks)


def main() -> None:
    parsed = harness.parser(__doc__, NAME)
    parsed.add_argument("--commit", default="HEAD", help="earlier commit, in any form that git knows")
    parsed.add_argument("--windows", type=harness.positive_int, default=15)
    parsed.add_argument("--seconds", type=harness.positive_float, default=1.5, help="per window")
    options = parsed.parse_args()
    windows, seconds = (2, 0.1) if options.small else (options.windows, options.seconds)
    with checked_out(options.commit) as folder:
        now, before = Checkout(ROOT), Checkout(folder)
        rows = measured(now, before, windows, seconds)
        now.close()
        before.close()
    details = {
        "now": described("HEAD"),
        "before": described(options.commit),
        "rows": rows,
        "windows": windows,
        "seconds_per_window": seconds,
    }
    harness.save(options, NAME, details, table(details), draw)


if __name__ == "__main__":
    main()
