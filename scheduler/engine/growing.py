"""Replicas of several steps: as they begin, and with room for variables that are made after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.stepper import Stepper
from scheduler.replicas.step_program import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.errors import FailedPreconditionError
from tensorbow.graph import Graph
from tensorbow.specs import Array, TensorSpec

Program: TypeAlias = tuple[StepProgram, Sequence[TensorSpec], int]
"""A program, the specs of its inputs, and room for so many rounds of a launch."""


def new_variables(engine: LearningEngine, graph: Graph) -> list[str]:
    """The names of a graph's variables for which the replicas have no room."""
    known = set(engine.learners.layout.variables)
    return [op.name for op in VariableLayout.of_graph(graph).variables if op not in known]


def started(
    programs: Sequence[Program],
    devices: Sequence[str | Device],
    replicas_per_device: Sequence[int],
    options: Synchronisation,
    values: Mapping[str, Array] | None = None,
    *,
    on_nan: str = "stop",
    seeds: Sequence[int] | None = None,
) -> Stepper:
    """Replicas of all programs, which are numbered in this order, stepped round by round.

    values: what they begin with, by default what the initialisers say. Raises as `LearningEngine`,
    `add_program` and `initialize`.
    """
    (first, shapes, room), *others = programs
    engine = LearningEngine(
        first,
        shapes,
        devices,
        replicas_per_device,
        options,
        launch_ahead=1,
        steps_per_launch=None,
        on_nan=on_nan,
        seeds=seeds,
        room_for_steps=room,
    )
    try:
        for further in others:
            engine.add_program(*further)
        engine.initialize(values)
        return Stepper(engine)
    except BaseException:
        engine.close()
        raise


def grown(
    stepper: Stepper,
    programs: Sequence[Program],
    values: Mapping[str, Array],
) -> Stepper:
    """A settled stepper's replicas again, with room for all variables that the graph has by now: a second
    engine takes over where the first one is.

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
