"""Steps that update no trainable variable: evaluations, which do not count as rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.stepper import Stepper
from tensorbow.data import BatchInputs
from tensorbow.errors import raise_if_any


def is_evaluation(engine: LearningEngine, number: int) -> bool:
    """True if a program of the engine writes no trainable variable."""
    written = frozenset().union(*(executable.writes for executable in engine.executables_of(number)))
    weights = (op.name for op in engine.learners.layout.variables if op.attrs["role"] == "weights")
    return written.isdisjoint(weights)


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
    executable = learners.executable
    state: dict[str, Any] = {f"counter:{name}": count for name in executable.counters}
    try:
        learners.tasks.evaluate(count, inputs, state)
    except BaseException:
        learners.drain()
        raise
    raise_if_any(learners.drain())
    return [tuple(replica.results(count)[:-1]) for replica in learners.replicas]
