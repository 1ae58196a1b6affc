"""Runs of steps that update no trainable variable: evaluations, which do not count as rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.engine.stepper import Stepper
from tensorbow.data import BatchInputs
from tensorbow.errors import raise_if_any


def run_outside_rounds(stepper: Stepper, inputs: Sequence[BatchInputs], count: int) -> list[tuple[Any, ...]]:
    """Runs the selected program once on every replica, each with its own weights; results by replica.

    Nothing is averaged, and neither averaging nor the learning rate counts it as a round: training
    before and after it is the same as without it. count: how often the program has run before, which seeds
    its random operations. inputs: for each replica, its arrays in the order of the program's inputs, or a
    recipe.
    Raises InvalidArgumentError for inputs that do not fit, FailedPreconditionError for variables without a
    value, the error of a failed op.
    """
    stepper.settle()
    learners = stepper.engine.learners
    learners.require_inputs(inputs)
    learners.prepare()
    if learners.options.first_come:  # where a task draws by its batch, and not by who takes it
        for replica in learners.replicas:
            replica.set_state({"replica": replica.index, "random_stream": replica.index})
    executable = learners.executable
    state: dict[str, Any] = {f"counter:{name}": count for name in executable.counters}
    try:
        learners.tasks.evaluate(count, inputs, state)
    except BaseException:
        learners.drain()
        raise
    raise_if_any(learners.drain())
    return [tuple(replica.results(count)[:-1]) for replica in learners.replicas]
