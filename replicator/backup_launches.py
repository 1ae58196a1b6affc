"""The rounds of `Replicator.train` with backup workers over several processes: several in a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from replicator.first_come_loop import AHEAD, require_drawn_ahead
from replicator.replicated_step import BuiltStep
from replicator.training_loop import INPUTS_NBYTES, TrainingLoop
from scheduler import Stepper
from scheduler.engine.results import RoundResults
from tensorbow.data import BatchInputs


class BackupLaunches(TrainingLoop):
    """Rounds of a step, as many in a launch as all workers have inputs for, handed out in order.

    The programs of the workers meet before each launch, and wait for late gradients at its end; in between
    nobody waits for a late replica or program. The replicas are ahead of the caller, and cannot go back, as
    which gradients count depends on timing. Code that reads or changes replicas between two rounds sees their
    state at the end of the launch.
    """

    def __init__(self, step: BuiltStep, rounds: int | None, steps_per_launch: int | str):
        """See TrainingLoop. steps_per_launch: 1 or "auto".

        Raises InvalidArgumentError for inputs that cannot be drawn ahead.
        """
        super().__init__(step, rounds)
        require_drawn_ahead(step)
        self._given, self._most = steps_per_launch, 1

    def begin(self, stepper: Stepper) -> None:
        """See TrainingLoop."""
        stepper.select(self.step.program)
        if isinstance(self._given, int):
            stepper.engine.require_launches(self._given)
        else:
            self._most = max(1, min(AHEAD, INPUTS_NBYTES // max(1, self.step.inputs.round_nbytes)))

    def take_inputs(self) -> list[Any]:
        """See TrainingLoop."""
        most = ahead = self._most
        if self.rounds is not None:
            most = min(most, self.rounds - self.done)
            ahead = min(most, self.rounds - self.done - most)
        return self.step.inputs.take(most, ahead)

    def launch(self, stepper: Stepper, rounds: list[Any]) -> None:
        """See TrainingLoop; errors are kept for `next_result`."""
        step = self.step
        step.select(stepper, rounds)
        inputs = [cast(Sequence[BatchInputs], step.inputs.joined([own])) for own in rounds]
        try:
            stepper.train(inputs, self._keep)
        except Exception as error:
            self.error = error

    def _keep(self, results: RoundResults) -> None:
        self.results.extend(self.step.results(results.metrics, len(results.rounds)))

    def go_back(self, stepper: Stepper) -> None:
        """Does nothing: replicas cannot go back, and are at the end of a launch already."""
