"""A learning task or a synchronisation as the state machines know it: its states, and its story."""

from __future__ import annotations

from dataclasses import dataclass

from tensorbow.errors import InternalError, InvalidArgumentError

REMEMBERED = 64  # finished tasks whose stories are kept

WAITING, READY, EXECUTING, FINISHED, FAILED = "waiting", "ready", "executing", "finished", "failed"

TRANSITIONS = frozenset(
    {
        (WAITING, READY),  # the batch is in a slot; for a synchronisation: all its tasks are enqueued
        (READY, EXECUTING),  # enqueued
        (EXECUTING, FINISHED),
        (EXECUTING, FAILED),
    }
)
STORIES = {  # there is one way to each state
    WAITING: [WAITING],
    READY: [WAITING, READY],
    EXECUTING: [WAITING, READY, EXECUTING],
    FINISHED: [WAITING, READY, EXECUTING, FINISHED],
    FAILED: [WAITING, READY, EXECUTING, FAILED],
}


@dataclass(slots=True)
class Task:
    """One step of one replica, or (replica None) one synchronisation, with its story."""

    replica: int | None
    round: int
    state: str = WAITING

    def move(self, state: str) -> None:
        """Takes a transition of the table. Raises InternalError with the story."""
        if (self.state, state) not in TRANSITIONS:
            raise InternalError(
                f"{self.who} in round {self.round}: no transition {self.state} -> {state}; "
                f"its story: {' -> '.join(self.story)}"
            )
        self.state = state

    @property
    def story(self) -> list[str]:
        """The states that it has been in."""
        return STORIES[self.state]

    @property
    def who(self) -> str:
        """What a message calls it, but for the round."""
        return "synchronisation" if self.replica is None else f"task of replica {self.replica}"


@dataclass(slots=True)
class OpenTask(Task):
    """A step that whoever is free takes: `replica` is None until then.

    place: of its batch in the round. step: how many tasks of the run its replica had before it.
    """

    place: int = 0
    step: int = -1

    @property
    def who(self) -> str:
        """What a message calls it, but for the round."""
        taken = "" if self.replica is None else f", taken by replica {self.replica},"
        return f"task of batch {self.place}{taken}"


def require_least(**numbers: tuple[int, int]) -> None:
    """Raises InvalidArgumentError for an option (value, least) that is less."""
    for name, (value, least) in numbers.items():
        if value < least:
            raise InvalidArgumentError(f"{name} must be at least {least}, got {value}")
