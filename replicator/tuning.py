"""Tuning of a Replicator: steps per second with 1, 2, 3, ... replicas per device (Crossbow, VLDB 2019, 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from scheduler.decisions.replica_tuner import Decision, ReplicaTuner
from scheduler.decisions.step_tuner import WARM_STEPS, StepTuner
from tensorbow.errors import InvalidArgumentError, ResourceExhaustedError

_ENDED = object()


def tuned(
    begin: Callable[[int], Iterator[Any]], most: int, window_seconds: float, max_seconds: float
) -> Decision:
    """Measures counts of replicas until the tuner has decided, or so many seconds are over.

    begin: (replicas per device) -> training with so many; it raises ResourceExhaustedError at its first step
    if they do not fit, and is called anew where its input ends. Raises InvalidArgumentError for a training of
    too few steps to be timed.
    """
    tuner = StepTuner(ReplicaTuner(most, why_no_more=f"most={most}"), window_seconds)
    deadline = perf_counter() + max_seconds
    steps: Iterator[Any] = iter(())
    count = done = 0  # replicas that train, and their steps since `begin`
    while tuner.decision is None:
        if tuner.tuner.measurements and perf_counter() > deadline:
            tuner.end(f"max_seconds {max_seconds:g} are over")
            continue
        try:
            if tuner.replicas != count:
                count, done = tuner.replicas, 0
                steps = begin(count)
            began = perf_counter()
            ended = next(steps, _ENDED) is _ENDED
        except ResourceExhaustedError:
            if count == 1:
                raise
            tuner.refuse("more do not fit into the memory of a device")
            continue
        if not ended:
            done += 1
            tuner.add(perf_counter() - began, count)
        elif done > WARM_STEPS:
            tuner.warm_up()
            steps, done = begin(count), 0
        else:
            raise InvalidArgumentError(
                f"tune: expected input_fn to give at least {WARM_STEPS + 1} batches, got {done}; "
                "let it repeat them"
            )
    return tuner.decision
