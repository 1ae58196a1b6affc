"""State of a learning task or a synchronisation: its legal transitions and its history."""

from __future__ import annotations

from dataclasses import dataclass

from tensorbow.errors import InternalError, InvalidArgumentError

REMEMBERED = 64  # finished tasks whose records are kept

WAITING, READY, EXECUTING, FINISHED, FAILED = "waiting", "ready", "executing", "finished", "failed"
DROPPED = "dropped"

TRANSITIONS = frozenset(
    {
        (WAITING, READY),  # the batch is filled; for a synchronisation: all its tasks are enqueued
        (READY, EXECUTING),  # enqueued
        (READY, DROPPED),  # with backup workers: its round is over
        (EXECUTING, FINISHED),
        (EXECUTING, FAILED),
    }
)
STORIES = {  # history of each state: only one path leads to it
    WAITING: [WAITING],
    READY: [WAITING, READY],
    DROPPED: [WAITING, READY, DROPPED],
    EXECUTING: [WAITING, READY, EXECUTING],
    FINISHED: [WAITING, READY, EXECUTING, FINISHED],
    FAILED: [WAITING, READY, EXECUTING, FAILED],
}


@dataclass(slots=True)
class Task:
    """One step of one replica, or (replica None) one synchronisation, with its state."""

    replica: int | None
    round: int
    state: str = WAITING

    def move(self, state: str) -> None:
        """Changes the state. Raises InternalError, with the history, for a transition not in the table."""
        if (self.state, state) not in TRANSITIONS:
            raise InternalError(
                f"{self.who} in round {self.round}: no transition {self.state} -> {state}; "
                f"its history: {' -> '.join(self.story)}"
            )
        self.state = state

    @property
    def story(self) -> list[str]:
        """History: all states so far, in order."""
        return STORIES[self.state]

    @property
    def who(self) -> str:
        """Name in messages, without the round."""
        return "synchronisation" if self.replica is None else f"task of replica {self.replica}"


@dataclass(slots=True)
class OpenTask(Task):
    """A step that any free replica may take: `replica` is None until one does.

    batch_number: number of its batch in the round. step: number of earlier tasks of its replica in the run.
    """

    batch_number: int = 0
    step: int = -1

    @property
    def who(self) -> str:
        """Name in messages, without the round."""
        taken = "" if self.replica is None else f", taken by replica {self.replica},"
        return f"task of batch {self.batch_number}{taken}"


def require_least(**numbers: tuple[int, int]) -> None:
    """Checks options given as name=(value, minimum). Raises InvalidArgumentError for a smaller value."""
    for name, (value, least) in numbers.items():
        if value < least:
            raise InvalidArgumentError(f"{name} must be at least {least}, got {value}")
