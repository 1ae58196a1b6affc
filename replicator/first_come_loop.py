"""The rounds of `Replicator.train` with dispatch `fcfs` or backup workers, where replicas do not wait.

One that is free takes the next inputs, or with backup workers those of its next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from replicator.replicated_step import BuiltStep
from replicator.tracing import Trace
from replicator.training_loop import INPUTS_NBYTES, TrainingLoop
from scheduler import Stepper
from scheduler.averaging.synchronisation import Synchronisation, require_no_meeting
from tensorbow.compiler.prune import prune
from tensorbow.data import BatchInputs
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import GraphKeys
from tensorbow.optimizers import ScheduledBy

AHEAD = 16  # rounds given to the replicas and not handed out, at most; 2 at least, whatever their inputs take


class _GivenRound(NamedTuple):
    """A round whose inputs the replicas have, and whose results are outstanding."""

    number: int
    inputs: Any


class FirstComeLoop(TrainingLoop):
    """Rounds of a step, given to whichever replicas are free, and handed out in order.

    The replicas are ahead of the caller, and cannot go back, as nobody knows who would take what. Whoever
    reads or changes them between two rounds calls `go_back` first: they then end with the last round that has
    begun, and the inputs of later ones are given back.
    """

    def __init__(self, step: BuiltStep, rounds: int | None, steps_per_launch: int | str):
        """See TrainingLoop. steps_per_launch: 1 or "auto".

        Raises InvalidArgumentError for inputs that cannot be drawn ahead.
        """
        super().__init__(step, rounds)
        self._steps_per_launch = steps_per_launch
        require_drawn_ahead(step)
        self._most = 2  # rounds given and not handed out
        self._given: deque[_GivenRound] = deque()
        self._is_of_training = False  # it is of a round that the replicas have done

    def begin(self, stepper: Stepper) -> None:
        """See TrainingLoop."""
        stepper.select(self.step.program)
        if isinstance(self._steps_per_launch, int):
            stepper.engine.require_launches(self._steps_per_launch)
        self._most = max(2, min(AHEAD, INPUTS_NBYTES // max(1, self.step.inputs.round_nbytes)))

    @property
    def has_results(self) -> bool:
        """See TrainingLoop. Results wait until replicas have as many inputs as allowed; an error is one."""
        return not self._wants_inputs and bool(self.results or (self.error and not self._given))

    @property
    def untold_error(self) -> BaseException | None:
        """See TrainingLoop."""
        return self.error if self._is_of_training else None

    @property
    def _ahead(self) -> int:
        return len(self.results) + len(self._given)

    @property
    def _wants_inputs(self) -> bool:
        return self.error is None and self._ahead < self._most and self.done + self._ahead != self.rounds

    def take_inputs(self) -> list[Any]:
        """See TrainingLoop. No inputs where the replicas have enough, or where none are left."""
        if not self._wants_inputs:
            return []
        left = self._most if self.rounds is None else self.rounds - self.done - self._ahead - 1
        try:
            return self.step.inputs.take(1, left, keeps=True)
        except Exception as error:
            self.error = error
            return []

    def launch(self, stepper: Stepper, rounds: list[Any]) -> None:
        """See TrainingLoop; errors are kept for `next_result`."""
        step = self.step
        try:
            if rounds and not step.is_selected(stepper, rounds):
                while self._given:
                    self._take_results(stepper)
                step.select(stepper, rounds)
            for inputs in rounds:
                self._given.append(_GivenRound(stepper.round, inputs))
                stepper.give(cast(Sequence[BatchInputs], step.inputs.joined([inputs])))
            while self._given and (stepper.has_results or not (self.results or self._wants_inputs)):
                self._take_results(stepper)
        except Exception as error:
            self.error, self._is_of_training = error, True
            self.go_back(stepper)

    def _take_results(self, stepper: Stepper) -> None:
        columns = stepper.results().metrics
        self._given.popleft()
        self.results.extend(self.step.results(columns, 1))

    def go_back(self, stepper: Stepper) -> None:
        """See TrainingLoop. What went wrong is kept for `next_result`."""
        if not self._given:
            return
        try:
            stepper.settle()
        except Exception as error:
            if not self._is_of_training:
                self.error, self._is_of_training = error, True
        while stepper.has_results:
            self._take_results(stepper)
        later = [given.inputs for given in self._given if given.number >= stepper.begun]
        self._given.clear()
        of_inputs = None
        if later and not self._is_of_training:
            of_inputs, self.error = self.error, None
        self.step.inputs.give_back(later, of_inputs)


def require_drawn_ahead(step: BuiltStep) -> None:
    """Raises InvalidArgumentError for inputs that are drawn when each round begins."""
    if why := step.inputs.why_one_by_one:
        raise InvalidArgumentError(
            f"dispatch and backup: expected inputs that are there for a replica that is free, but they "
            f"are drawn when each round begins ({why}); leave dispatch 'fcfs' and backup out, or have "
            "input_fn give an iterable, with prefetch of at least 1"
        )


def require_any_taker(step: BuiltStep, trace: Trace, options: Synchronisation) -> None:
    """Raises InvalidArgumentError for a step that goes wrong with `fcfs`, where any replica takes a batch, or
    with backup workers, which do not wait for each other.
    """
    require_no_meeting(options, step.traced.program.exchange_ops)
    if not options.first_come:
        return
    if trace.numbered_by and not step.updates_no_weights:
        raise InvalidArgumentError(
            f"dispatch: expected round_robin for a step with tb.{trace.numbered_by}, as any replica takes "
            "any batch; got 'fcfs'; leave it out, or let input_fn give with each batch what goes with it"
        )
    program = step.traced.program
    schedules: list[ScheduledBy] = program.graph.get_collection(GraphKeys.SCHEDULES)
    if {own.step.op for own in schedules} & {*prune([program.update], ())}:
        raise InvalidArgumentError(
            "dispatch: expected round_robin for an optimiser whose schedule counts each replica's own steps; "
            "got 'fcfs'; leave it out, or use replicator.wrap_optimizer, whose schedules follow the rounds"
        )
