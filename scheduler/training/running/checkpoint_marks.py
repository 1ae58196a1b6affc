"""Marks of a run's checkpoints: which is the best, and which the last sound one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.engine.learning_engine import LearningEngine
from scheduler.training.folders.run_folder import RunFolder
from scheduler.training.measures.tally import Tally
from scheduler.training.running.callbacks import BestMetric
from scheduler.training.running.outcome import has_exploded, save_best_model
from scheduler.workers.joint_calls import JointCalls
from tensorbow.specs import Array


class CheckpointMarks:
    """Progress of a run since its last checkpoint, which worker 0 writes into the next one, in its tally.

    trained: (round of the last checkpoint, mean loss since then). test_loss: of the last evaluation.
    """

    def __init__(
        self,
        folder: RunFolder,
        joint: JointCalls,
        best: BestMetric | None,
        described: Mapping[str, Any],
        classes: int | None,
        split: str,
    ):
        """best: chooses the best one; by default the accuracy does. described, split: see `save_models`.
        classes: of the data, None for numbers.
        """
        self.trained: tuple[int, float] | None = None
        self.test_loss: float | None = None
        self._folder, self._joint, self._best = folder, joint, best
        self._described, self._classes, self._split = described, classes, split

    def mark(
        self,
        tally: Tally,
        engine: LearningEngine,
        arrays: Mapping[str, Array],
        models: Sequence[Mapping[str, Array]],
    ) -> None:
        """Marks the checkpoint that is about to be written, and saves the model of the best one.

        arrays: the checkpoint's. models: those of the last evaluation. All workers call this.
        """
        exploded = self._joint.any(has_exploded(engine, arrays))
        if not exploded and self._joint.leads:
            if self.trained is not None:
                tally.mark_sound(*self.trained, self._classes)
            if self.test_loss is not None:
                is_there = self._folder.holds(tally.best)
                if self._best is not None:
                    tally.mark_best_by(self._best.is_best or not is_there, self.test_loss)
                else:
                    tally.mark_best(self.test_loss, is_there=is_there)
                if tally.best == tally.round and engine.options.sync != "none":
                    save_best_model(self._folder, self._described, tally, models[0], self._split)
        self.trained = self.test_loss = None
