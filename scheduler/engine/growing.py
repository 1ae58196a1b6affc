"""Room for variables that are made after the replicas: a second engine takes over where the first one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.stepper import Stepper
from scheduler.replicas.step_program import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.errors import FailedPreconditionError
from tensorbow.graph import Graph
from tensorbow.specs import Array, TensorSpec


def new_variables(engine: LearningEngine, graph: Graph) -> list[str]:
    """The names of a graph's variables for which the replicas have no room."""
    known = set(engine.learners.layout.variables)
    return [op.name for op in VariableLayout.of_graph(graph).variables if op not in known]


def grown(
    stepper: Stepper,
    programs: Sequence[tuple[StepProgram, Sequence[TensorSpec], int]],
    values: Mapping[str, Array],
) -> Stepper:
    """A settled stepper's replicas again, with room for all variables that the graph has by now.

    programs: all steps, with the specs of their inputs and room for so many steps per launch; they are
    numbered in this order. values: what new variables start from; optimiser slots may be left out. Everything
    that the next round depends on is taken over, so that it is bit for bit what it would have been. The old
    engine stays as it is, for the caller to close.

    Raises ResourceExhaustedError when there is no room beside the old replicas, InvalidArgumentError for
    a program that cannot be compiled; nothing has changed then.
    """
    stepper.settle()
    old = stepper.engine
    if old.seeds is not None:
        raise FailedPreconditionError(
            "init: replicas with seeds were initialised already, and variables were made since; build "
            "all steps before init, or shutdown() first"
        )
    (first, shapes, room), *others = programs
    engine = LearningEngine(
        first,
        shapes,
        old.learners.devices,
        old.learners.per_device,
        old.options,
        old.schedule,
        launch_ahead=old.launch_ahead,
        steps_per_launch=None,
        on_nan=old.on_nan,
        devices_per_replica=old.devices_per_replica,
        room_for_steps=room,
    )
    try:
        for further in others:
            engine.add_program(*further)
        engine.initialize({**values, **old.central_values()})
        arrays = {**engine.learners.values.state_arrays(), **old.learners.values.state_arrays()}
        engine.learners.values.load_state_arrays(arrays)
        engine.round, engine.outcomes.skipped_updates = old.round, old.skipped_updates
        return Stepper(engine, stepper.round)
    except BaseException:
        engine.close()
        raise
