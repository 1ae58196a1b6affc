"""Choice of the number of steps per launch in a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from scheduler.batches.sources import DatasetBatches
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults
from scheduler.engine.steps_choice import StepsChoice

BeforeRun = Callable[[int, Callable[[], bool]], None]
"""(steps per launch, settled) -> None. settled(): whether steps per launch and threads are chosen."""


class LaunchPace:
    """Runs an engine on a data set, with launches of about 20 ms; see `StepsChoice`.

    The number of steps per launch is measured once for each number and mode of replicas, in its first rounds.
    Results do not depend on it. If launches have one step, or the number is given, nothing is measured.
    before_run: called before each run of the engine.
    """

    def __init__(
        self,
        engine: LearningEngine,
        batches: DatasetBatches,
        chooses: bool,
        known: dict[tuple[int, bool], int] | None = None,
        agreed: Callable[[float], float] = lambda seconds: seconds,
    ):
        """chooses: whether to measure the number of steps per launch.

        known: numbers found so far, by number of replicas and whether they are fused; updated in place, to
        be shared with later engines.
        agreed: makes a measured time that of worker 0, so that all workers of a job choose the same.
        """
        self._agreed = agreed
        self._engine, self._batches, self._chooses = engine, batches, chooses
        self._known = {} if known is None else known
        self.before_run: BeforeRun = lambda steps, settled: None
        self._follow()

    @property
    def _replicas(self) -> tuple[int, bool]:
        """Number of replicas, and whether they are fused."""
        return self._engine.learners.count, self._engine.options.fused

    def _follow(self) -> None:
        """Uses the known number for the current replicas, or starts to measure it."""
        self._choice = StepsChoice()
        steps = self._known.get(self._replicas)
        finds = self._chooses and self._engine.most_steps_per_launch > 1
        self._choosing = finds and steps is None
        if finds and steps is not None:
            self._set(steps)

    def _set(self, steps: int) -> None:
        self._engine.set_steps_per_launch(steps)
        self._batches.steps_per_launch = steps

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Context in which the engine's replicas change; afterwards the steps are chosen anew."""
        if not self._chooses:
            yield
            return
        self._set(1)  # possible with any number of replicas
        try:
            yield
        finally:
            self._follow()

    def run(self, start: int, stop: int, on_results: Callable[[RoundResults], None]) -> int:
        """Runs rounds `start` to `stop` - 1, like LearningEngine.run; returns the round reached."""
        at = start
        while self._choosing and at < stop:
            end = min(stop, at + self._choice.left)
            started = perf_counter()
            reached = self._run(at, end, on_results)
            self._choice.record(reached - at, self._agreed(perf_counter() - started))
            at = reached
            if not self._choice.left:
                self._choose()
            if reached < end:
                return reached
        return self._run(at, stop, on_results) if at < stop else at

    def _run(self, start: int, stop: int, on_results: Callable[[RoundResults], None]) -> int:
        self.before_run(self._engine.steps_per_launch, self._settled)
        return self._engine.run(self._batches.open, start, stop, on_results)

    def _settled(self) -> bool:
        """True if steps per launch and threads are chosen."""
        return not self._choosing and self._engine.learners.launcher.settled

    def _choose(self) -> None:
        steps = min(self._engine.most_steps_per_launch, self._choice.steps)
        self._known[self._replicas] = steps
        self._choosing = False
        self._set(steps)
