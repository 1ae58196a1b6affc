"""Interface of the rounds of `Replicator.train`: launched ahead, handed out one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from replicator.replicated_step import BuiltStep
from scheduler import Stepper

INPUTS_NBYTES = 64 << 20  # of the rounds that are ahead of the caller, or may be done again, at most


class TrainingLoop(ABC):
    """Rounds of a step that are launched ahead of their results, which are handed out one by one.

    done: rounds handed out. results: of rounds that are done, and not handed out. error: one that comes after
    all results.
    """

    def __init__(self, step: BuiltStep, rounds: int | None):
        """rounds: to hand out, at most; None: until the inputs end."""
        self.step, self.rounds = step, rounds
        self.done = 0
        self.results: deque[Any] = deque()
        self.error: Exception | None = None

    @property
    def has_ended(self) -> bool:
        """True if all rounds are handed out."""
        return self.done == self.rounds

    @property
    def has_results(self) -> bool:
        """True if `next_result` needs no launch; an error is a result."""
        return bool(self.results or self.error)

    def next_result(self) -> Any:
        """The results of the next round, which is launched. Raises the error that comes after the last."""
        if not self.results and self.error is not None:
            error, self.error = self.error, None  # which holds frames, and these this object
            raise error
        self.done += 1
        return self.results.popleft()

    @property
    def untold_error(self) -> BaseException | None:
        """An error of a round that the replicas have done, and that is not handed out."""
        return self.error

    @abstractmethod
    def begin(self, stepper: Stepper) -> None:
        """Finds how far ahead rounds are launched.

        Raises InvalidArgumentError where several are asked for in a launch, and cannot be.
        """

    @abstractmethod
    def take_inputs(self) -> list[Any]:
        """Inputs of the next launch, drawn by the user's code. Raises what that raises."""

    @abstractmethod
    def launch(self, stepper: Stepper, rounds: list[Any]) -> None:
        """Launches rounds and waits for results; some may be left for another launch.

        Raises the error of a round: those before it are handed out before.
        """

    @abstractmethod
    def go_back(self, stepper: Stepper) -> None:
        """Brings the replicas to a round after which they may be read and changed."""

    def come_to_a_round(self, stepper: Stepper) -> None:
        """Brings the replicas to the end of any round, after which they may be read."""
        self.go_back(stepper)
