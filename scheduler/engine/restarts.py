"""Rounds before which averaging restarts: where a piecewise schedule jumps, and where S-SGD takes over."""

from __future__ import annotations

from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.step_program import StepProgram
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys
from tensorbow.optimizers import Schedule, ScheduledBy

SOUGHT = 1 << 16  # rounds ahead: a run may be asked for more than it will ever train


class Restarts:
    """Restarts of averaging in the step that an engine has selected (Crossbow, section 3)."""

    def __init__(self) -> None:
        self._schedule: Schedule | None = None  # by round
        self._own: list[ScheduledBy] = []  # of the step's optimisers, which count their updates
        self._ahead: list[int] = []  # by own schedule, its count minus the round
        self._by_round: list[Schedule] = []  # of optimisers whose updates the engine counts

    def follow(self, learners: AnyLearners, program: StepProgram, schedule: Schedule | None) -> None:
        """Takes note of the step that is selected, and of the engine's schedule."""
        self._learners, self._schedule = learners, schedule
        scheduled: list[ScheduledBy] = program.graph.get_collection(GraphKeys.SCHEDULES)
        self._own = [own for own in scheduled if own.step.op.name in learners.executable.writes]
        self._by_round = program.graph.get_collection(GraphKeys.ROUND_SCHEDULES)

    def follow_counts(self, round: int) -> None:
        """Reads, before a round, by how much the counts of the optimisers' own schedules exceed `round`."""
        container = self._learners.replicas[0].container
        self._ahead = [int(container.read(own.step.op.name)) - round for own in self._own]

    @property
    def are_possible(self) -> bool:
        """False if averaging never restarts by itself."""
        return bool(self._schedule or self._own or self._learners.mean_gradient_from)

    def due_before(self, round: int) -> bool:
        """True if averaging restarts before a round; after `follow_counts`."""
        jumps = self._schedule is not None and self._schedule.restarts(round)
        for own, ahead in zip(self._own, self._ahead, strict=True):
            jumps = jumps or own.schedule.restarts(round + ahead)
        jumps = jumps or any(schedule.restarts(round) for schedule in self._by_round)
        return self._learners.restarts_before(round, jumps)

    def next_after(self, round: int, stop: int) -> int:
        """The first restart behind a round, or `stop`, or a round that is far ahead."""
        far = min(stop, round + SOUGHT)
        return next((each for each in range(round + 1, far) if self.due_before(each)), far)

    def require_followed(self, schedule: Schedule | None) -> None:
        """Raises InvalidArgumentError for a schedule of rounds that the selected step would not follow."""
        own = [scheduled.schedule for scheduled in self._own]
        if schedule is None or "learning_rate" in self._learners.executable.scalars or schedule in own:
            return
        has = "a schedule of its own" if own else "no learning rate that the engine sets"
        raise InvalidArgumentError(
            f"schedule: the step's optimiser has {has}; leave it out, or make the optimiser with a number"
        )
