"""Progress of a training run that keeps the lines of the run."""

from __future__ import annotations

from tensorbow.training import TrainingProgress


class Lines(TrainingProgress):
    """Keeps the messages of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def line(self, text: str) -> None:
        self.said.append(text)
