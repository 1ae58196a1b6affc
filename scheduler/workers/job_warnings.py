"""Warnings of a job's workers: those that all have are shown once, those of one worker with its name."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TextIO

HELD_S = 1.0  # for worker 0 to have the same warning
MOST_TEXTS = 1000  # that are remembered


class JobWarnings:
    """Decides which warnings of the others are shown beside those of worker 0, which shows its own.

    A warning of several workers is shown once, as often as one of them has it; times in seconds.
    """

    def __init__(self) -> None:
        self._had: defaultdict[str, Counter[int]] = defaultdict(Counter)  # how often, by worker
        self._shown: Counter[str] = Counter()
        self._held: list[tuple[float, int, str, int]] = []  # since when, worker, text, its count

    def heard(self, number: int, text: str, now: float) -> None:
        """Takes note of a warning that a worker has."""
        if text not in self._had and len(self._had) == MOST_TEXTS:
            self._had.clear()
            self._shown.clear()
        had = self._had[text]
        had[number] += 1
        if number:
            self._held.append((now, number, text, had[number]))
        else:
            self._shown[text] = max(self._shown[text], had[number])

    def due(self, now: float) -> str:
        """Lines to show by now, with their workers' names; at the end of the job for `math.inf`."""
        lines = ""
        while self._held and now - self._held[0][0] >= HELD_S:
            _, number, text, times = self._held.pop(0)
            if times > self._shown[text]:
                self._shown[text] = times
                lines += "".join(f"worker {number}: {line}\n" for line in text.splitlines())
        return lines


def share_warnings(is_shown: Callable[[str], bool]) -> None:
    """Has the job's watch show this process's warnings, of Python's `warnings`.

    is_shown: hands one to the watch; False for one that this process is to show itself. A program's own
    `warnings.showwarning` stays.
    """
    usual = warnings.showwarning
    if usual is not getattr(warnings, "_showwarning_orig", usual):
        return

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None or not is_shown(
            warnings.formatwarning(message, category, filename, lineno, line)
        ):
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = show
