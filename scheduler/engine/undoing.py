"""Undoing a round in which an op has failed in some replicas only."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.batches.sources import ReadyLaunch
from scheduler.engine.outcomes import StepOutcomes
from scheduler.engine.results import RoundResults
from scheduler.engine.rollback import Rollback
from scheduler.engine.round_run import RoundRun
from scheduler.engine.runs import EngineRun
from scheduler.replicas.learners import Learners
from scheduler.replicas.parted_learners import AnyLearners
from tensorbow.devices.cuda_runtime import CudaError
from tensorbow.errors import AbortedError, TensorBowError

APART = "replicas may be some rounds apart now: go on from a checkpoint"
ANEW = "some replicas had gone on: all begin anew from the central model"


def undo(
    run: RoundRun,
    round: int,
    learners: AnyLearners,
    outcomes: StepOutcomes,
    begin: Callable[[EngineRun], None],
    end: Callable[[EngineRun], None],
) -> int | None:
    """Brings all replicas to the round in which an op has failed, and returns it; to an earlier one, and its
    error, where another replica would have failed before. Replicas that cannot go back begin anew from the
    central model, and without one they may be apart, which gives None: the error says so.

    run: has ended. begin, end: those of the engine.
    """
    rollback, error = run.rollback, run.error
    if run.is_whole and not run.has_workers:
        return round
    if rollback is not None and rollback.is_possible:
        return _go_back(run, rollback, round, learners, outcomes, begin, end)
    if learners.runs_executors:  # nothing behind the dynamic part fails
        return None if run.has_workers else round
    follows = isinstance(error, (AbortedError, CudaError))
    if not learners.launcher.may_refuse or not isinstance(error, TensorBowError) or follows:
        return None
    if isinstance(learners, Learners) and learners.count == 1 and not run.has_workers:
        return round  # no other replica has gone on
    begins_anew = isinstance(learners, Learners) and learners.synchronises and not run.has_workers
    if isinstance(learners, Learners) and begins_anew:
        learners.values.begin_anew(round)
    run.error = type(error)(f"{error}; {ANEW if begins_anew else APART}")
    run.error.__cause__ = error
    return round if begins_anew else None


def _go_back(
    run: RoundRun,
    rollback: Rollback,
    round: int,
    learners: AnyLearners,
    outcomes: StepOutcomes,
    begin: Callable[[EngineRun], None],
    end: Callable[[EngineRun], None],
) -> int:
    while True:
        start, inputs = rollback.go_back(round)
        results = list[RoundResults]()
        again = RoundRun(learners, outcomes, start, round, 1, results.append, 1)
        try:
            begin(again)
            again.advance()
            for number, own in enumerate(inputs, start):
                again.take(ReadyLaunch(number, own, lambda: None))
            while again.finished_at is None:
                again.take(again.inbox.get())  # also past the limit of a session's run
        finally:
            end(again)
        if again.broken_at is None:
            run.hand_out_again(results)
            return round
        round, run.error = again.broken_at, again.error
