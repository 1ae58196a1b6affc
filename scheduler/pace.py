"""How many steps go into a launch of a training run."""

from __future__ import annotations

import time
from collections.abc import Callable

from scheduler.batches import DatasetBatches
from scheduler.engine import LearningEngine
from scheduler.task_result import TaskResult

LAUNCH_SECONDS = (
    0.02  # of a launch, about: long beside what it costs, and short for whoever waits for its end
)
WARM_UP, MEASURED = 8, 24  # rounds


class LaunchPace:
    """Runs an engine on a data set, with as many steps in a launch as take about LAUNCH_SECONDS.

    That is measured once, in the first rounds. The bits do not depend on it. Where launches have one step,
    or their number is given, it runs the engine and nothing else.
    """

    def __init__(self, engine: LearningEngine, batches: DatasetBatches, chooses: bool):
        """chooses: whether the number is to be found."""
        self._engine, self._batches = engine, batches
        self._chooses = chooses and engine.most_steps_per_launch > 1
        self._rounds, self._seconds = 0, 0.0  # run so far, of the first ones; of those after the warm-up

    def run(self, start: int, stop: int, on_result: Callable[[TaskResult], None]) -> int:
        """As LearningEngine.run, of the batches."""
        at = start
        while self._chooses and at < stop:
            warm = self._rounds >= WARM_UP
            end = min(stop, at + (WARM_UP + MEASURED if warm else WARM_UP) - self._rounds)
            started = time.perf_counter()
            reached = self._engine.run(self._batches.open, at, end, on_result)
            self._seconds += time.perf_counter() - started if warm else 0.0
            self._rounds += reached - at
            at = reached
            if self._rounds == WARM_UP + MEASURED:
                self._choose(self._seconds / MEASURED)
            if reached < end:
                return reached
        return self._engine.run(self._batches.open, at, stop, on_result) if at < stop else at

    def _choose(self, round_seconds: float) -> None:
        steps = min(self._engine.most_steps_per_launch, max(1, round(LAUNCH_SECONDS / round_seconds)))
        self._engine.set_steps_per_launch(steps)
        self._batches.steps_per_launch = steps
        self._chooses = False
