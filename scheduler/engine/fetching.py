"""What finished tasks have fetched: results, skipped updates, and losses that are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.engine.results import EngineRun, TaskResult
from scheduler.replicas.learners import Learners
from tensorbow.data import BatchRun
from tensorbow.errors import NumericsError
from tensorbow.optimizers import Schedule
from tensorbow.specs import Array

NOT_CHECKED = 0.0  # in the place of a loss that there is not: gradients alone are checked
HOPELESS = 100  # updates of one replica skipped in a row, after which `skip` stops too


class Fetching:
    """What `LearningEngine` makes of what its replicas have fetched; the fields are the engine's."""

    learners: Learners
    options: Synchronisation
    on_nan: str
    skipped_updates: int
    _skipped_in_a_row: list[int]
    _has_loss: bool
    _counters: list[str]
    _rate: Schedule | None

    def _result(
        self, run: EngineRun, replica: int, place: int, round: int, fetched: Sequence[Any], time_s: float
    ) -> TaskResult | None:
        """The result of one task; None where that is to end the run: it is in `run.bad` then."""
        *values, status = fetched
        loss = values.pop(0) if self._has_loss else math.nan
        if not status:
            self._skipped_in_a_row[replica] = 0
        else:
            checked = loss if self._has_loss else NOT_CHECKED
            if not self._count_skipped(run, replica, place, range(round, round + 1), [(checked, status)]):
                return None
        return TaskResult(replica, round, loss, tuple(values), time_s, place)

    def _good(
        self, run: EngineRun, replica: int, rounds: range, columns: Sequence[Sequence[Any] | Array]
    ) -> int:
        """How many tasks of a replica come before one that is to end the run: it is in `run.bad` then.

        columns: of all tasks that were done the loss, if there is one, each metric, and the status.
        """
        statuses = columns[-1]
        if any(statuses):
            losses = columns[0] if self._has_loss else repeat(NOT_CHECKED)
            return self._count_skipped(run, replica, replica, rounds, zip(losses, statuses, strict=False))
        if len(statuses):
            self._skipped_in_a_row[replica] = 0
        return len(statuses)

    def _count_skipped(
        self,
        run: EngineRun,
        replica: int,
        place: int,
        rounds: range,
        tasks: Iterable[tuple[float, int]],
    ) -> int:
        """Counts updates that were skipped; how many tasks come before one that is to end the run."""
        done = 0
        for done, (round, (loss, status)) in enumerate(zip(rounds, tasks, strict=False), 1):
            if not status:
                self._skipped_in_a_row[replica] = 0
                continue
            self._skipped_in_a_row[replica] += 1
            if self.on_nan == "stop" or self._skipped_in_a_row[replica] >= HOPELESS:
                run.bad.append((round, math.isfinite(loss), place))
                return done - 1
            self.skipped_updates += 1
        return done

    def _state_of(self, round: int, place: int) -> dict[str, Any]:
        """The step scalars that change from task to task."""
        state: dict[str, Any] = dict.fromkeys(self._counters, round)
        if self.options.first_come:
            state["replica"] = place  # whoever takes the batch: random ops draw by the two
        if self._rate is not None:
            state["learning_rate"] = self._rate(round)
        if self.on_nan == "skip":
            state["status"] = 0
        return state

    def _numerics_error(self, run: EngineRun, round: int, loss_is_finite: bool, place: int) -> NumericsError:
        index, _ = run.state.taker(place, round)
        replica = self.learners.replicas[index]
        launch = run.launch_of(round)
        inputs = run.inputs_of(place, launch)
        if isinstance(inputs, BatchRun):
            inputs = inputs[round - run.first_round(launch)]
        what, remedy = "a gradient" if loss_is_finite else "the loss", "skip such updates by on_nan='skip'"
        if self.on_nan == "skip":
            what, remedy = f"for {HOPELESS} steps in a row {what}", "go on from a checkpoint"
        op = replica.name_bad_op(inputs, self._state_of(round, place))
        replica.set_state({"status": 0})
        cause = f"first NaN or infinite result: {op or 'none when run again'}"
        rate = f" ({self._rate(round):g})" if self._rate is not None else ""
        remedy = f"lower the learning rate{rate}, or {remedy}"
        if bad := replica.bad_inputs(inputs):
            cause = f"its batch has NaN or infinite values already, in {', '.join(bad)}; {cause}"
            remedy = f"mend the data, {remedy}"
        return NumericsError(
            f"{what} of replica {index} is not finite at step {round}; {cause}; no variable was written by "
            f"that step; {remedy}"
        )
