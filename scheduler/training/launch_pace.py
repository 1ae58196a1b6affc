"""How many steps go into a launch of a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import perf_counter

from scheduler.batches.sources import DatasetBatches
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.results import RoundResults

LAUNCH_SECONDS = 0.02  # of a launch, about: long beside what it costs, short for whoever waits for its end
PIECE, PIECES = 8, 4  # rounds that are timed together, and how many times; the first of them warms up

BeforeRun = Callable[[int, Callable[[], bool]], None]
"""(steps of a launch, whether launches by now go as they will): a run of the engine is about to begin."""


class LaunchPace:
    """Runs an engine on a data set, with as many steps in a launch as take about LAUNCH_SECONDS.

    That is measured once for each number of replicas, in the first rounds with it. The bits do not depend on
    it. Where launches have one step, or their number is given, it runs the engine and nothing else.
    before_run: called whenever the engine is about to run.
    """

    def __init__(
        self,
        engine: LearningEngine,
        batches: DatasetBatches,
        chooses: bool,
        known: dict[int, int] | None = None,
    ):
        """chooses: whether the number is to be found. known: by number of replicas, what was found; kept
        here, for engines to come.
        """
        self._engine, self._batches, self._chooses = engine, batches, chooses
        self._known = {} if known is None else known
        self.before_run: BeforeRun = lambda steps, settled: None
        self._follow()

    def _follow(self) -> None:
        """Takes the number that is known for so many replicas, or begins to look for it."""
        self._rounds, self._round_seconds = 0, inf  # run so far, of the first ones; of the fastest piece
        steps = self._known.get(self._engine.learners.count)
        finds = self._chooses and self._engine.most_steps_per_launch > 1
        self._choosing = finds and steps is None
        if finds and steps is not None:
            self._set(steps)

    def _set(self, steps: int) -> None:
        self._engine.set_steps_per_launch(steps)
        self._batches.steps_per_launch = steps

    @contextmanager
    def resizing(self) -> Iterator[None]:
        """While the engine gets another number of replicas, which have a number of steps of their own."""
        if not self._chooses:
            yield
            return
        self._set(1)  # which any number of replicas can do
        try:
            yield
        finally:
            self._follow()

    def run(self, start: int, stop: int, on_results: Callable[[RoundResults], None]) -> int:
        """As LearningEngine.run, of the batches."""
        at = start
        while self._choosing and at < stop:
            warm = self._rounds >= PIECE
            end = min(stop, at + PIECE - self._rounds % PIECE)
            started = perf_counter()
            reached = self._run(at, end, on_results)
            if warm and reached > at:
                seconds = (perf_counter() - started) / (reached - at)
                self._round_seconds = min(self._round_seconds, seconds)
            self._rounds += reached - at
            at = reached
            if self._rounds == PIECE * PIECES:
                self._choose()
            if reached < end:
                return reached
        return self._run(at, stop, on_results) if at < stop else at

    def _run(self, start: int, stop: int, on_results: Callable[[RoundResults], None]) -> int:
        self.before_run(self._engine.steps_per_launch, self._settled)
        return self._engine.run(self._batches.open, start, stop, on_results)

    def _settled(self) -> bool:
        """Whether it is known how many steps a launch has, and which threads do them."""
        launcher = self._engine.learners.launcher
        return not self._choosing and (launcher is None or launcher.settled)

    def _choose(self) -> None:
        wanted = round(LAUNCH_SECONDS / self._round_seconds)
        steps = min(self._engine.most_steps_per_launch, max(1, wanted))
        self._known[self._engine.learners.count] = steps
        self._choosing = False
        self._set(steps)
