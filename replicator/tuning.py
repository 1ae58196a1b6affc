"""Tuning of a Replicator: steps per second with 1, 2, 3, ... replicas per device (Crossbow, VLDB 2019, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from scheduler.decisions.mode_tuner import ModeTuner
from scheduler.decisions.replica_tuner import Decision
from scheduler.decisions.step_tuner import WARM_STEPS, StepTuner
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError

_ENDED = object()


def tuned(
    begin: Callable[[int, str | None], Iterator[Any]],
    most: int,
    window_seconds: float,
    max_seconds: float,
    modes: Sequence[str | None] = (None,),
) -> Decision:
    """Measures counts of replicas until the tuner has decided, or so many seconds are over.

    begin: (replicas per device, mode) -> training with so many; it raises ResourceExhaustedError at its first
    step if they do not fit, UnimplementedError if there is no such mode of them, and is called anew where its
    input ends. modes: in this order, each from the number that was chosen for the one before.
    Raises InvalidArgumentError for a training of too few steps to be timed.
    """
    tuner = StepTuner(ModeTuner(modes, most, why_no_more=f"most={most}", goes_on=True), window_seconds)
    began_tuning = perf_counter()
    steps: Iterator[Any] = iter(())
    count, mode, done = 0, modes[0], 0  # replicas that train, their mode, and their steps since `begin`
    while tuner.decision is None:
        seconds = perf_counter() - began_tuning
        if seconds > max_seconds / 2:
            tuner.end_mode(f"half of max_seconds {max_seconds:g} was over")
        if tuner.tuner.measurements and seconds > max_seconds:
            tuner.end(f"max_seconds {max_seconds:g} are over")
            continue
        try:
            if (tuner.replicas, tuner.mode) != (count, mode):
                count, mode, done = tuner.replicas, tuner.mode, 0
                steps = begin(count, mode)
            began = perf_counter()
            ended = next(steps, _ENDED) is _ENDED
        except ResourceExhaustedError:
            if count == 1 and mode == modes[0]:
                raise
            tuner.refuse("more do not fit into the memory of a device")
            continue
        except UnimplementedError as error:
            if mode == modes[0]:
                raise
            tuner.leave_out(str(error))
            continue
        if not ended:
            done += 1
            tuner.add(perf_counter() - began, count)
        elif done > WARM_STEPS:
            tuner.warm_up()
            steps, done = begin(count, mode), 0
        else:
            raise InvalidArgumentError(
                f"tune: expected input_fn to give at least {WARM_STEPS + 1} batches, got {done}; "
                "let it repeat them"
            )
    return tuner.decision
