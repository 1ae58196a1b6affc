"""Ways in which a GPU runs the replicas of a round, as far as the installed version has them.

`tasks`: a task for each replica, enqueued by the scheduler, with graphs of its own. `captured`: one CUDA
graph for the round, a branch for each replica. `fused`: every kernel takes the replicas as a grid axis.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorbow as tb
from tensorbow.errors import UnimplementedError
from tensorbow.kernels.gpu.backend import GpuBackend

OPTION = "replica_mode"  # of engines, or of `Synchronisation`
CAPTURED, FUSED, TASKS = "captured", "fused", "tasks"
MODES = (CAPTURED, FUSED, TASKS)


@dataclass(frozen=True)
class Ways:
    """Way to run: a mode, and rounds per launch."""

    mode: str
    rounds_per_launch: int = 1

    @property
    def title(self) -> str:
        """Text for a table."""
        return self.mode if self.rounds_per_launch == 1 else f"{self.mode}, K={self.rounds_per_launch}"

    @property
    def missing(self) -> str:
        """Reason why there is no such way; empty if there is."""
        if self.mode == TASKS and self.rounds_per_launch > 1:
            return f"{TASKS} of a GPU are of one round each"
        return missing(self.mode)

    def options(self) -> dict[str, Any]:
        """Arguments of `ours.training_window`. Raises UnimplementedError, see `missing`."""
        if self.missing:
            raise UnimplementedError(self.missing)
        found: dict[str, Any] = {"steps_per_launch": self.rounds_per_launch, "data_on_device": "always"}
        if self.mode == TASKS or not _chooses():
            return found
        where = "engine_options" if _takes(tb.LearningEngine) else "synchronisation"
        return {**found, where: {OPTION: self.mode}}

    @contextmanager
    def building(self) -> Iterator[None]:
        """Context in which an engine is to be made. Without round programs it launches tasks."""
        usual = GpuBackend.round_program
        if self.mode == TASKS:
            GpuBackend.round_program = lambda *_: None  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            GpuBackend.round_program = usual  # type: ignore[method-assign]


def missing(mode: str) -> str:
    """Reason why a mode is not there; empty if it is."""
    if mode == TASKS or _chooses() or (mode == CAPTURED and "round_program" in vars(GpuBackend)):
        return ""
    return f"this version of tensorbow has no {OPTION} {mode}"


def modes_here() -> list[str]:
    """Modes that this version has."""
    return [mode for mode in MODES if not missing(mode)]


def ways_here(rounds_per_launch: Iterable[int]) -> list[Ways]:
    """All ways that this version has, with these numbers of rounds per launch."""
    ways = [Ways(mode, rounds) for rounds in rounds_per_launch for mode in MODES]
    return [each for each in ways if not each.missing]


def _chooses() -> bool:
    return _takes(tb.LearningEngine) or _takes(tb.Synchronisation)


def _takes(callable_: Any) -> bool:
    return OPTION in inspect.signature(callable_).parameters
