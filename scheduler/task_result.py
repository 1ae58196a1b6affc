"""What a finished learning task reports, and what one run of the engine keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from scheduler.batches import ReadyBatch
from scheduler.state import SchedulerState


@dataclass(frozen=True)
class TaskResult:
    """What one finished task reports: the loss (NaN if the step has none), and the metrics.

    Metrics of rank 0 are numbers, others arrays of their own.
    """

    replica: int
    round: int
    loss: float
    metrics: tuple[Any, ...]
    time_s: float  # `time.perf_counter` at completion


@dataclass
class EngineRun:
    """Rounds under way on an engine: the machine, its inbox, and what is on its way.

    `LearningEngine.run` and `Stepper` both make one by `begin` and feed it by `take`.
    """

    state: SchedulerState
    inbox: SimpleQueue[Any]
    on_result: Callable[[TaskResult], None]
    batches: dict[tuple[int, int], ReadyBatch] = field(default_factory=dict)
    results: dict[int, TaskResult] = field(default_factory=dict)  # by round * replicas + replica
    awaited: int = 0  # the result to hand out next
    bad: list[tuple[int, bool, int]] = field(default_factory=list)  # (round, loss is finite, replica)
    error: BaseException | None = None
    stopping: bool = False  # the machine knows of the request to stop
    finished_at: int | None = None
