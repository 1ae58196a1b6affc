"""Ways in which a GPU runs the replicas of a round, as far as the installed version has them.

`tasks`: a task for each replica, enqueued by the scheduler. `captured`: one CUDA graph for the round, a
branch for each replica. `fused`: every kernel takes the replicas as a grid axis. A version that cannot choose
has the first one only.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorbow as tb
from tensorbow.errors import UnimplementedError

OPTION = "replica_mode"
WANTED = ("captured", "fused")
BY_TASKS = "tasks"


@dataclass(frozen=True)
class Ways:
    """Options of an engine for a way to run: its mode, and rounds per launch."""

    mode: str
    rounds_per_launch: int = 1

    @property
    def title(self) -> str:
        """Text for a table."""
        return self.mode if self.rounds_per_launch == 1 else f"{self.mode}, K={self.rounds_per_launch}"

    @property
    def missing(self) -> str:
        """Reason why there is no such way; empty if there is."""
        if self.mode == BY_TASKS and self.rounds_per_launch > 1:
            return f"{BY_TASKS} of a GPU are of one round each"
        return missing(self.mode)

    def options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments of `LearningEngine` and `Synchronisation`. Raises UnimplementedError, see `missing`."""
        if self.missing:
            raise UnimplementedError(self.missing)
        engine: dict[str, Any] = {"steps_per_launch": self.rounds_per_launch}
        if self.mode == BY_TASKS:
            return engine, {}
        option = {OPTION: self.mode}
        return (engine | option, {}) if _takes(tb.LearningEngine) else (engine, option)


def missing(mode: str) -> str:
    """Reason why a mode is not there; empty if it is."""
    chooses = _takes(tb.LearningEngine) or _takes(tb.Synchronisation)
    if mode == BY_TASKS:
        return f"engines choose a {OPTION}" if chooses else ""
    return "" if chooses else f"{OPTION} {mode}: this version of tensorbow has no {OPTION}"


def modes() -> tuple[str, ...]:
    """The modes to compare: what there is, and what is missing of `WANTED`."""
    return WANTED if not missing(WANTED[0]) else (BY_TASKS, *WANTED)


def _takes(callable_: Any) -> bool:
    return OPTION in inspect.signature(callable_).parameters


def ways_here(rounds_per_launch: Iterable[int]) -> list[Ways]:
    """All ways that this version has, with these numbers of rounds per launch."""
    ways = [Ways(mode, rounds) for mode in modes() for rounds in rounds_per_launch]
    return [each for each in ways if not each.missing]
