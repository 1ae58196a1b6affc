"""The iterator that `Replicator.train` returns."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from replicator.running_replicas import RunningReplicas
from replicator.training_loop import TrainingLoop
from tensorbow.errors import OutOfRangeError


def training_results(
    loop: TrainingLoop,
    running: RunningReplicas,
    init: Callable[[], None],
    shut_down: Callable[[], None] | None,
    tau: int,
) -> Iterator[Any]:
    """Runs a training loop; yields the results of each round.

    init: makes the replicas, where they are not there. shut_down: of the replicas, at the end; None if they
    stay. tau: rounds from one averaging to the next, 0 without. Warns where inputs end before the loop, and
    where z was never averaged. Raises what steps and inputs raise.
    """
    trained = running.last is not None and any(not each.updates_no_weights for each in running.steps)
    if trained and shut_down is not None and loop.step.updates_no_weights and loop.step.reads_weights:
        warnings.warn(
            "train: a step that trains nothing begins with the initial values, as the replicas that were "
            "trained before were shut down; run it within that loop, or after init()",
            stacklevel=3,
        )
    if not running.has(loop.step):
        init()
    try:
        running.begin_loop(loop)
        while not loop.has_ended:
            try:
                result = running.next_result(loop)
            except OutOfRangeError as error:
                if loop.rounds is not None:
                    remedy = "have input_fn give more, or ask for fewer steps"
                    done = f"{loop.done} of {loop.rounds} steps"
                    warnings.warn(f"train: {done}: {error}; {remedy}", stacklevel=2)
                elif loop.step.inputs.ended_early or loop.step.ended_early:
                    remedy = "all replicas end with the first; give all as many batches"
                    warnings.warn(f"train: {loop.done} steps: {error}; {remedy}", stacklevel=2)
                break
            yield result
        stepper = None if loop.step.updates_no_weights else running.stepper
        if stepper is not None and 0 < stepper.round < tau:
            done = f"{stepper.round} rounds, fewer than tau={tau}"
            warnings.warn(f"train: {done}: z stays as it began", stacklevel=2)
    finally:
        if not sys.is_finalizing():  # at the end of a program the streams' threads are gone: do not wait
            loop.step.inputs.close()
            running.leave_loop(loop)
            if shut_down is None:
                running.end_loop(loop)
            else:
                shut_down()
            if loop.untold_error is not None:
                warnings.warn(
                    f"train: {loop.done} steps, and a later one, which had begun, has failed: "
                    f"{loop.untold_error}",
                    stacklevel=2,
                )
