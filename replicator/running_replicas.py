"""The replicas of a Replicator's steps: made, run, looked at and shut down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from replicator.dataset_inputs import keep_data
from replicator.host_session import HostSession
from replicator.learned_values import CurrentValues, LastValues
from replicator.replicated_step import BuiltStep, Columns
from replicator.starting import Values, started_beside
from replicator.training_loop import TrainingLoop
from scheduler import LearningEngine, Stepper
from scheduler.engine.growing import new_variables
from scheduler.workers.watch_client import told_error
from tensorbow.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    OutOfRangeError,
    raise_if_any,
)
from tensorbow.graph import Graph


class RunningReplicas:
    """The steps of a Replicator and the replicas that run them; after `shut_down`, their last values.

    A lock guards them. The user's code that draws inputs is called without it: it may ask for values.
    """

    def __init__(self, graph: Graph, start: Callable[[Sequence[BuiltStep], Values | None], Stepper]):
        """graph: of the steps. start: makes replicas, with the values of the initialisers or these."""
        self.steps: list[BuiltStep] = []
        self.stepper: Stepper | None = None  # of the replicas, while they are there
        self.last: LastValues | None = None  # at the time of `shut_down`
        self._graph, self._start = graph, start
        self._given = 0  # the engine has the first `_given` steps
        self._ended = 0  # number of steps at the last `shut_down`
        self._loops: list[TrainingLoop] = []  # that have launched rounds, and not ended
        self._lock = threading.Lock()
        self.host = HostSession(graph)  # fills queues of the steps, and gives tables their values

    def has(self, step: BuiltStep) -> bool:
        """True if the replicas are there, and have the step."""
        return self.stepper is not None and step.number < self._given

    @property
    def waits_for_init(self) -> bool:
        """True if there are no replicas, but a step that was built since the last ones were shut down."""
        return self.stepper is None and len(self.steps) > self._ended

    # Life ---------------------------------------------------------------------------------------

    def add(self, step: BuiltStep) -> None:
        """Adds a step; existing replicas run it too, unless they lack some of its variables."""
        with self._lock:
            for other in self.steps:
                step.inputs.draw_here_if_shared(other.inputs)
            stepper = self.stepper
            if stepper is not None and not new_variables(stepper.engine, self._graph):
                stepper.pause()
                keep_data(stepper.engine, [*self.steps, step])
                step.set_program(stepper.engine.add_program(*step.engine_program))
                self._given = step.number + 1
                self.host.start()
            self.steps.append(step)

    def begin(self, values: Values | None) -> None:
        """Makes the replicas, or rebuilds them with room for new variables; see `Replicator.init`."""
        with self._lock:
            self._go_back()
            old = self.stepper
            if old is None:
                self.stepper = self._start(self.steps, values)
            else:
                self.stepper = started_beside(old, self.steps, self._graph, values)
            for step in self.steps:
                step.set_program(step.number)
            self._given = len(self.steps)
            if old is not None:
                old.shut_down()
            self.host.start()

    def shut_down(self) -> None:
        """Finishes running steps, frees streams and memory, and keeps the last values; idempotent."""
        with self._lock:
            for step in self.steps:
                step.inputs.close()
            stepper, self.stepper = self.stepper, None
            self._given = 0
            if stepper is None:
                self.host.close()
                return
            self._ended = len(self.steps)
            try:
                while self._loops:
                    self._loops[-1].go_back(stepper)
                    self._loops.pop()
                stepper.close()
                lockstep = stepper.engine.lockstep
                if lockstep is None or not lockstep.is_apart:  # else means over all replicas are out of reach
                    self.last = LastValues(stepper)
            finally:
                with suppress(FailedPreconditionError):
                    stepper.close()
                stepper.engine.close()
                self.host.close()

    # Runs ---------------------------------------------------------------------------------------

    def run(self, step: BuiltStep) -> Columns:
        """Runs a step once; returns its results."""
        with self._lock:
            engine = self._stepper_of(step).engine
        rounds = _agreed(engine, step, lambda: step.inputs.take(1))  # without the lock
        with self._lock:
            stepper = self._stepper_of(step)
            self._go_back()
            with self._caused_by_host():
                return step.launch(stepper, rounds)

    def begin_loop(self, loop: TrainingLoop) -> None:
        """Begins a training loop. Raises as `TrainingLoop.begin`."""
        with self._lock:
            self._go_back()
            loop.begin(self._stepper_of(loop.step))

    def next_result(self, loop: TrainingLoop) -> Any:
        """The results of a training loop's next round."""
        while True:
            with self._lock:
                if loop.has_results:
                    return loop.next_result()
                engine = self._stepper_of(loop.step).engine
            rounds = _agreed(engine, loop.step, loop.take_inputs)  # without the lock
            with self._lock:
                stepper = self._stepper_of(loop.step)
                self._go_back(but=loop)
                if loop not in self._loops:
                    self._loops.append(loop)
                with self._caused_by_host():
                    loop.launch(stepper, rounds)

    @contextmanager
    def _caused_by_host(self) -> Iterator[None]:
        """Context whose errors, where a thread of a queue has failed, are raised as the thread's."""
        try:
            yield
        except (OutOfRangeError, CancelledError):
            self.host.raise_error()
            raise

    def leave_loop(self, loop: TrainingLoop) -> None:
        """Meets other workers at the end of a loop; where they go on, loops end wherever the replicas are."""
        with self._lock:
            lockstep = None if self.stepper is None else self.stepper.engine.lockstep
            if lockstep is not None and not lockstep.leave("the end of a loop", loop.done):
                self._loops.clear()

    def end_loop(self, loop: TrainingLoop) -> None:
        """Ends a training loop; the replicas stay."""
        with self._lock:
            self._go_back()
            with suppress(ValueError):
                self._loops.remove(loop)

    def abandon_loops(self) -> None:
        """Ends all training loops wherever the replicas are."""
        with self._lock:
            self._loops.clear()

    def _go_back(self, but: TrainingLoop | None = None) -> None:
        """Takes replicas that are ahead of a training loop back to where its caller is."""
        for loop in self._loops:
            if loop is not but and self.stepper is not None:
                loop.go_back(self.stepper)

    def _stepper_of(self, step: BuiltStep) -> Stepper:
        """The stepper. Raises FailedPreconditionError where there are no replicas, or none for the step."""
        if self.stepper is None:
            raise FailedPreconditionError(
                "the replicas are not there: call replicator.init(session) before the step is run"
            )
        if not self.has(step):
            new = ", ".join(new_variables(self.stepper.engine, self._graph)[:3])
            raise FailedPreconditionError(
                f"the step was built after init(), and the variables {new} too: call "
                "replicator.init(session) again; what is trained goes on"
            )
        return self.stepper

    # Looks --------------------------------------------------------------------------------------

    def explanation(self, step: BuiltStep) -> list[str]:
        """Lines on a step as the replicas run it; none where they do not have it."""
        with self._lock:
            if self.stepper is None or not self.has(step):
                return []
            return self.stepper.engine.explain(step.program).splitlines()

    @contextmanager
    def between_rounds(self, what: str) -> Iterator[Stepper]:
        """The stepper, not ahead of any loop, while nothing is run.

        Raises FailedPreconditionError, naming `what`, unless there are replicas with all steps.
        """
        with self._lock:
            if self.stepper is None or self._given < len(self.steps):
                why = "call train() or run() first, and then init()"
                if self.steps:
                    why = "call init() first; a loop of train() does so at its first step"
                if self.stepper is not None:
                    why = "a step was built after init(), with variables of its own: call init() again"
                elif self.last is not None:
                    why = (
                        "they were shut down, as they are when train() ends, by Ctrl-C too: call it in the "
                        "loop; central_values() remain"
                    )
                raise FailedPreconditionError(f"{what}: the replicas are not there: {why}")
            self._go_back()
            yield self.stepper

    @contextmanager
    def values(self, what: str, may_be_ahead: bool = False) -> Iterator[CurrentValues | LastValues]:
        """The replicas' values while nothing is run, or after `shut_down` the last ones.

        may_be_ahead: of loops, so that no rounds are done again.
        Raises FailedPreconditionError, naming `what`, before `begin`.
        """
        with self._lock:
            if self.stepper is not None:
                for loop in self._loops:
                    (loop.come_to_a_round if may_be_ahead else loop.go_back)(self.stepper)
                self.stepper.settle()
                yield CurrentValues(self.stepper)
            elif self.last is not None:
                yield self.last
            else:
                raise FailedPreconditionError(f"{what}: there are no values before init()")


def _agreed(engine: LearningEngine, step: BuiltStep, take: Callable[[], list[Any]]) -> list[Any]:
    """Rounds of inputs for a launch: of several workers, as many as all of them have.

    Raises what `take` raises; on other workers AbortedError, or OutOfRangeError where an input has ended.
    """
    if engine.lockstep is None:
        return take()
    rounds, own = list[Any](), None
    try:
        rounds = take()
    except Exception as error:
        own = error
    failure = None if own is None else (isinstance(own, OutOfRangeError), f"{type(own).__name__}: {own}")
    told = engine.lockstep.all_gather("inputs of a step", (len(rounds), failure))
    fewest = min(count for count, _ in told)
    step.ended_early |= any(count > fewest == 0 for count, _ in told)
    if fewest < len(rounds):
        step.inputs.give_back(rounds[fewest:])
        del rounds[fewest:]
    try:
        raise_if_any(own)
    finally:
        del own
    for worker, (count, reason) in enumerate(told):
        if not count and reason is not None:
            kind = OutOfRangeError if reason[0] else AbortedError
            raise told_error(kind, f"the input of worker {worker}: {reason[1]}")
    return rounds
