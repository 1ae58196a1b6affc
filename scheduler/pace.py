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
        self._rounds = 0  # of the first ones

    def run(self, start: int, stop: int, on_result: Callable[[TaskResult], None]) -> int:
        """As LearningEngine.run, of the batches."""
        round = start
        while self._chooses and round < stop:
            part = WARM_UP if self._rounds < WARM_UP else MEASURED
            end, started = min(stop, round + part), time.perf_counter()
            reached = self._engine.run(self._batches.open, round, end, on_result)
            seconds, rounds = time.perf_counter() - started, reached - round
            self._rounds += rounds
            round = reached
            if rounds == MEASURED and part == MEASURED:
                self._choose(seconds / rounds)
            if reached < end:
                return reached
        return self._engine.run(self._batches.open, round, stop, on_result) if round < stop else round

    def _choose(self, round_seconds: float) -> None:
        steps = min(self._engine.most_steps_per_launch, max(1, round(LAUNCH_SECONDS / round_seconds)))
        self._engine.set_steps_per_launch(steps)
        self._batches.steps_per_launch = steps
        self._chooses = False
