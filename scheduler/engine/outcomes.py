"""Step scalars that tasks begin with, and what their results say of skipped updates and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from scheduler.averaging.synchronisation import FREEZE, Synchronisation
from scheduler.replicas.parted_learners import AnyLearners
from scheduler.replicas.step_program import StepProgram
from tensorbow.data import BatchInputs
from tensorbow.errors import NumericsError
from tensorbow.optimizers import Schedule
from tensorbow.program import STICKY
from tensorbow.specs import Array

NOT_CHECKED = 0.0  # placeholder when the step has no loss: gradients alone are checked
ROUND = "training_round"  # the step scalar that schedules follow by which replicas do not count themselves
OwnStates = Callable[[range], Mapping[str, list[list[Any]]]]
"""(rounds) -> step scalars: by replica, a value for each round."""

HOPELESS = 100  # updates of one replica skipped in a row, after which `skip` stops too


class StepOutcomes:
    """Step scalars and outcomes of the step that an engine has selected."""

    def __init__(self, learners: AnyLearners, on_nan: str):
        """on_nan: `stop`, `skip` the update and go on, or `freeze` the replica, while others go on."""
        self.on_nan = on_nan
        self.frozen: dict[int, int] = {}  # by replica, the round from which on it writes nothing
        self.own_states: OwnStates | None = None  # step scalars that each replica has for itself
        self.skipped_updates = 0
        self.skipped_in_a_row = [0] * learners.count  # by replica
        self.has_loss = False
        self._learners = learners
        self._options: Synchronisation = learners.options
        self._counters: list[str] = []
        self._rate: Schedule | None = None
        self._tells_the_round = False

    def follow(self, learners: AnyLearners, program: StepProgram, schedule: Schedule | None) -> None:
        """Takes note of the step that is selected."""
        self._learners, self._options = learners, learners.options
        executable = learners.executable
        self.has_loss = program.loss is not None
        self._counters = [f"counter:{name}" for name in executable.counters]
        self._rate = schedule if "learning_rate" in executable.scalars else None
        self._tells_the_round = ROUND in executable.scalars

    def resize(self, origins: Sequence[int | None]) -> None:
        """Replicas have changed. origins: by replica now, its number before, or None for a new one."""
        before = self.skipped_in_a_row
        self.skipped_in_a_row = [0 if origin is None else before[origin] for origin in origins]

    # Before -----------------------------------------------------------------------------------------

    def state_of(self, round: int, batch_number: int = 0) -> dict[str, Any]:
        """The step scalars of a task that change from task to task.

        batch_number: of its batch in the round.
        """
        state: dict[str, Any] = dict.fromkeys(self._counters, round)
        if self._options.first_come:
            # Random ops draw by batch, whichever replica takes it.
            state["replica"] = state["random_stream"] = batch_number
        if self._tells_the_round:
            state[ROUND] = round
        if self._rate is not None:
            state["learning_rate"] = self._rate(round)
        return state | self._status

    @property
    def _status(self) -> dict[str, Any]:
        """The status that rounds begin with, unless the one of the round before ends all."""
        if self.on_nan == "stop":
            return {}
        return {"status": STICKY if self.on_nan == FREEZE else 0}

    def freeze(self) -> None:
        """Has the frozen replicas write nothing, after statuses have been cleared; while nothing runs."""
        for replica in self.frozen:
            self._learners.replicas[replica].set_state({"status": 1})

    def states_of(self, rounds: range) -> dict[str, Any]:
        """The step scalars of the tasks of some rounds: one value, one for each round, or by replica one for
        each round.
        """
        if len(rounds) == 1:
            state = self.state_of(rounds.start)
        else:
            state = dict.fromkeys(self._counters, rounds)
            if self._rate is not None:
                state["learning_rate"] = [self._rate(round) for round in rounds]
            state |= self._status
        return state if self.own_states is None else {**state, **self.own_states(rounds)}

    # After ------------------------------------------------------------------------------------------

    def good(
        self,
        bad: list[tuple[int, bool, int]],
        replica: int,
        rounds: range,
        columns: Sequence[Sequence[Any] | Array],
        batch_number: int | None = None,
    ) -> int:
        """Number of tasks of a replica before the one that is to end the run, which is put into `bad`.

        columns: of all tasks that were done the loss, if there is one, each metric, and the status.
        batch_number: of the batch in the round, by default the replica's number.
        """
        statuses = columns[-1]
        if not any(statuses):
            if len(statuses):
                self.skipped_in_a_row[replica] = 0
            return len(statuses)
        if self.on_nan == FREEZE:
            bad_round = next(round for round, status in zip(rounds, statuses, strict=False) if status)
            self.frozen.setdefault(replica, bad_round)
            return len(statuses)
        losses = columns[0] if self.has_loss else repeat(NOT_CHECKED)
        tasks = zip(losses, statuses, strict=False)
        number = replica if batch_number is None else batch_number
        return self._count_skipped(bad, replica, number, rounds, tasks)

    def _count_skipped(
        self,
        bad: list[tuple[int, bool, int]],
        replica: int,
        batch_number: int,
        rounds: range,
        tasks: Iterable[tuple[float, int]],
    ) -> int:
        done = 0
        for done, (round, (loss, status)) in enumerate(zip(rounds, tasks, strict=False), 1):
            if not status:
                self.skipped_in_a_row[replica] = 0
                continue
            self.skipped_in_a_row[replica] += 1
            if self.on_nan == "stop" or self.skipped_in_a_row[replica] >= HOPELESS:
                bad.append((round, math.isfinite(loss), batch_number))
                return done - 1
            self.skipped_updates += 1
        return done

    def find_cause(self, index: int, inputs: BatchInputs, round: int, batch_number: int) -> str | None:
        """The op that makes NaN or infinity when a replica's task is repeated, op by op."""
        replica = self._learners.replicas[index]
        op = replica.name_bad_op(inputs, self.state_of(round, batch_number))
        replica.set_state({"status": 0})
        return op

    def numerics_error(
        self, index: int, inputs: BatchInputs, round: int, loss_is_finite: bool, batch_number: int
    ) -> NumericsError:
        """The error of a replica's task that is to end the run."""
        what, remedy = (
            "a gradient" if loss_is_finite else "the loss",
            "skip such updates by on_nan='skip' (--on-nan skip)",
        )
        if self.on_nan == "skip":
            what, remedy = f"for {HOPELESS} steps in a row {what}", "go on from a checkpoint"
        op = self.find_cause(index, inputs, round, batch_number)
        cause = f"first NaN or infinite result: {op or 'none when run again'}"
        rate = f" ({self._rate(round):g})" if self._rate is not None else ""
        remedy = f"lower the learning rate{rate}, or {remedy}"
        if bad := self._learners.replicas[index].bad_inputs(inputs):
            cause = f"its batch has NaN or infinite values already, in {', '.join(bad)}; {cause}"
            remedy = f"mend the data, {remedy}"
        written = "no variable was written by that step"
        if not self._learners.checks_come_first:
            written = "that step may have written variables that come before the gradient that is bad"
        number = self._learners.replicas[index].index
        return NumericsError(
            f"{what} of replica {number} is not finite at step {round}; {cause}; {written}; {remedy}"
        )
