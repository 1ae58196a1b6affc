"""Training runs that are asked to stop."""

from __future__ import annotations

from scheduler import Trainer, TrainingConfig, TrainingResult
from tensorbow.training import TrainingProgress


class StopsAt(TrainingProgress):
    """Asks its trainer to stop at the end of a given round."""

    def __init__(self, round: int):
        super().__init__()
        self.at = round
        self.trainer: Trainer | None = None

    def rounds(self, finished: int) -> None:
        if finished >= self.at and self.trainer is not None:
            self.trainer.request_stop()


def train_until(config: TrainingConfig, round: int) -> TrainingResult:
    progress = StopsAt(round)
    with Trainer(config, progress) as trainer:
        progress.trainer = trainer
        return trainer.train()
