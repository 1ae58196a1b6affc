"""Replicas of a Replicator's steps: the first ones, and those with room for further variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replicator.dataset_inputs import keep_data
from replicator.replicated_step import BuiltStep
from scheduler import Stepper
from scheduler.engine import growing
from tensorbow.errors import FailedPreconditionError, InvalidArgumentError
from tensorbow.graph import Graph
from tensorbow.specs import Array

Values = Mapping[str, Array]


def started(steps: Sequence[BuiltStep], values: Values | None, *where: Any, **options: Any) -> Stepper:
    """New replicas with the values of the initialisers, or these; their programs have the steps' numbers.

    where, options: devices, replicas per device, synchronisation, and further arguments of LearningEngine.
    Raises ResourceExhaustedError, and InvalidArgumentError or NotFoundError for values that do not fit.
    """
    programs = [step.engine_program for step in steps]
    return _with_data(growing.started(programs, *where, values=values, **options), steps)


def _with_data(stepper: Stepper, steps: Sequence[BuiltStep]) -> Stepper:
    """New replicas, whose devices keep the data sets of the steps."""
    try:
        keep_data(stepper.engine, steps)
    except BaseException:
        stepper.shut_down()
        raise
    return stepper


def started_beside(old: Stepper, steps: Sequence[BuiltStep], graph: Graph, values: Values | None) -> Stepper:
    """Replicas with room for all variables of the steps' graph, and the state of the old ones, which stay.

    values: of new variables. Raises FailedPreconditionError if there are none, InvalidArgumentError for
    values of others, and as `growing.grown`.
    """
    new = growing.new_variables(old.engine, graph)
    if not new:
        raise FailedPreconditionError(
            "init: the replicas are initialised already, and no variable was made since; shutdown() first"
        )
    unknown = sorted(set(values or ()) - set(new))
    if unknown:
        raise InvalidArgumentError(
            f"init: the replicas have {', '.join(unknown[:3])} already; give values for what was made "
            f"since ({', '.join(new[:3])}), or shutdown() first"
        )
    programs = [step.engine_program for step in steps]
    return _with_data(growing.grown(old, programs, values or {}), steps)
