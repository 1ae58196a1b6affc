"""The rounds of `Replicator.train`: several in a launch, with the results and values of rounds one by one."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any, TypeAlias

from replicator.replicated_step import BuiltStep
from replicator.training_loop import INPUTS_NBYTES, TrainingLoop
from scheduler import LearningEngine, Stepper
from scheduler.engine.rollback import EngineState
from scheduler.engine.steps_choice import StepsChoice
from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import one_of, whole

AUTO = "auto"
StepsPerLaunch: TypeAlias = Annotated[int | str, whole(1, 4096) | one_of(AUTO)]

STATE_NBYTES = 256 << 20  # of all replicas and z: with more, `auto` launches rounds one by one
LONGEST_S = 0.25  # of a launch, and of rounds that are done again: an interrupt may wait for both
COPIES = 100  # times as long as a copy of the state takes passes until the next, but at most LONGEST_S


class LockstepLoop(TrainingLoop):
    """Rounds of a step, launched several at a time and handed out one by one.

    The replicas are then ahead of the caller. Whoever reads or changes them between two rounds calls
    `go_back` first: they get a copy of an earlier state, and the rounds from there to the last one handed out
    are done again, bit for bit, so that everything is as with one round a launch. As callers often look after
    equally many rounds, launches end where the next look is expected.
    """

    def __init__(self, step: BuiltStep, rounds: int | None, steps_per_launch: int | str):
        """See TrainingLoop. steps_per_launch: see `Replicator.train`."""
        super().__init__(step, rounds)
        self._given = None if isinstance(steps_per_launch, str) else steps_per_launch
        self._steps = self._most = 1  # rounds of a launch, as far as known, and at most
        self._least = 1  # rounds of a launch, once the time of a round is known
        self._one_by_one = 0  # rounds still to launch one at a time, after a launch that failed
        self._choice = StepsChoice()
        self._piece, self._piece_s = 0, 0.0  # rounds and seconds, not recorded yet
        self._draw_s = 0.0  # seconds that the inputs of the next launch took
        self._looked = self._next_look = 0  # rounds handed out at the last look, and when one is expected
        self._copy: EngineState | None = None  # of the state when `_copied_at` rounds were handed out
        self._copied_at, self._copy_again_s = 0, 0.0
        self._since: list[list[Any]] = []  # inputs of all launches since then
        self._failed = False  # a launch has, and the replicas have not gone back

    def begin(self, stepper: Stepper) -> None:
        """See TrainingLoop."""
        stepper.select(self.step.program)
        engine, given, why = stepper.engine, self._given, self.step.inputs.why_one_by_one
        if why:
            why = f"inputs are drawn when each round begins ({why})"
        if self.step.updates_no_weights:
            why = "the step updates no trainable variable"
        part = engine.learners.executor_part
        if part is not None and (op := part.ordered_by) is not None:
            why = f"rounds that are done again would repeat the effects of {op.type} {op.name}"
        if given is None:
            small = _of_worker_0(engine, _state_nbytes(engine) <= STATE_NBYTES)
            self._most = 1 if why or not small else min(self.step.most_steps, engine.most_steps_per_launch)
            self._least = engine.learners.launcher.least_rounds
            return
        if given > 1 and why:
            raise InvalidArgumentError(f"steps_per_launch={given}: expected 1 or 'auto', since {why}")
        engine.require_launches(given)

    # Launches -----------------------------------------------------------------------------------

    def take_inputs(self) -> list[Any]:
        """See TrainingLoop."""
        most = 1 if self._one_by_one else self._steps
        if self._next_look > self.done:
            most = min(most, self._next_look - self.done)
        ahead = most
        if self.rounds is not None:
            most = min(most, self.rounds - self.done)
            ahead = min(ahead, self.rounds - self.done - most)
        began = perf_counter()
        rounds = self.step.inputs.take(most, ahead, keeps=self._copy is not None)
        self._draw_s = perf_counter() - began
        return rounds

    def launch(self, stepper: Stepper, rounds: list[Any]) -> None:
        """See TrainingLoop."""
        step, engine = self.step, stepper.engine
        began = _of_worker_0(engine, perf_counter() - self._draw_s)
        step.select(stepper, rounds)
        count = stepper.engine.rounds_before_restart(stepper.round, len(rounds))
        if count < len(rounds):
            step.inputs.give_back(rounds[count:])
            del rounds[count:]
        if count > 1:
            self._copy_state(stepper)
        if self._copy is not None:
            self._since.append(rounds)
        self._failed = count > 1  # until its results are there
        try:
            self.results.extend(step.results(step.launch(stepper, rounds), count))
        except BaseException as error:
            if count == 1:
                self._forget()
            if count == 1 or not isinstance(error, Exception):
                raise
            self.go_back(stepper)
            self._one_by_one = count
            return
        self._failed = False
        self._one_by_one = max(0, self._one_by_one - 1)
        self._keep_pace(count, _of_worker_0(engine, perf_counter()) - began)

    def _keep_pace(self, rounds: int, seconds: float) -> None:
        """Chooses the number of rounds of further launches by the duration of the last one."""
        if self._given is not None:
            self._steps = min(self._given, max(1, int(LONGEST_S / seconds * rounds)))
        elif self._most > 1 and self._choice.left:
            self._piece, self._piece_s = self._piece + rounds, self._piece_s + seconds
            if self._piece == self._choice.left:
                self._choice.record(self._piece, self._piece_s)
                self._piece, self._piece_s = 0, 0.0
            if not self._choice.left:
                self._steps = min(self._most, max(self._least, self._choice.steps))

    # Going back ---------------------------------------------------------------------------------

    def _copy_state(self, stepper: Stepper) -> None:
        """Copies the state before a launch, if the last copy is old."""
        began = perf_counter()
        kept_nbytes = sum(map(len, self._since)) * self.step.inputs.round_nbytes
        is_due = self._copy is None or began >= self._copy_again_s or kept_nbytes > INPUTS_NBYTES
        if _of_worker_0(stepper.engine, is_due):
            self._copy, self._copied_at, self._since = stepper.state(), self.done, []
            now = perf_counter()
            self._copy_again_s = now + min(LONGEST_S, COPIES * (now - began))

    def go_back(self, stepper: Stepper) -> None:
        """Takes the replicas back to the last round handed out, for a look or a change."""
        if self.done > self._looked:
            self._looked, self._next_look = self.done, 2 * self.done - self._looked
        if (self.results or self._failed) and self._copy is not None:
            self._failed = True  # also if this is interrupted
            self.results.clear()
            stepper.set_state(self._copy)
            again, not_handed_out = self.done - self._copied_at, list[Any]()
            for rounds in self._since:
                if again:
                    self.step.launch(stepper, rounds[:again])
                not_handed_out += rounds[again:]
                again -= min(again, len(rounds))
            self.step.inputs.give_back(not_handed_out)
            self._failed = False
        self._forget()

    def come_to_a_round(self, stepper: Stepper) -> None:
        """See TrainingLoop: they are there, unless a launch has failed."""
        if self._failed:
            self.go_back(stepper)

    def _forget(self) -> None:
        """Drops the copy: the replicas are about to change without it."""
        self._copy, self._since = None, []


def _of_worker_0(engine: LearningEngine, value: Any) -> Any:
    """A value by which all workers decide alike: worker 0's, where there are several."""
    return value if engine.lockstep is None else engine.lockstep.broadcast("the pace of training", value)


def _state_nbytes(engine: LearningEngine) -> int:
    """Bytes of all variables of all replicas and z, about."""
    refs = engine.learners.layout.refs().values()
    return sum(ref.nbytes for ref in refs) * (engine.learners.count + 1)
