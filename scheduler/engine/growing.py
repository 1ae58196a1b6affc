"""Engines of several steps: `started` with initial values, or `grown` from one that lacks new variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from scheduler.averaging.synchronisation import Synchronisation
from scheduler.engine.learning_engine import LearningEngine
from scheduler.engine.stepper import Stepper
from scheduler.replicas.replica_seeds import initial_values_of
from scheduler.replicas.step_program import StepProgram
from tensorbow.compiler import VariableLayout
from tensorbow.devices import Device
from tensorbow.graph import Graph
from tensorbow.specs import Array, TensorSpec

EngineProgram: TypeAlias = tuple[StepProgram, Sequence[TensorSpec], int]
"""A program, the specs of its inputs, and the number of rounds in a launch whose results have room."""


def new_variables(engine: LearningEngine, graph: Graph) -> list[str]:
    """The names of a graph's variables for which the replicas have no room."""
    known = set(engine.learners.layout.variables)
    return [op.name for op in VariableLayout.of_graph(graph).variables if op not in known]


def started(
    programs: Sequence[EngineProgram],
    devices: Sequence[str | Device],
    replicas_per_device: Sequence[int],
    options: Synchronisation,
    *,
    values: Mapping[str, Array] | None = None,
    fused: bool = False,
    **more: Any,
) -> Stepper:
    """Replicas of all programs, which are numbered in this order, for a stepper.

    values: initial values, by default those of the initialisers. fused: whether replicas of the steps that
    can be fused are, whatever the options say. more: options of the engine. Raises as
    `LearningEngine`, `add_program` and `initialize`.
    """
    ahead = 2 if options.first_come else 1  # with it, a replica has its next batch when it ends one
    engine = _engine_of(programs, devices, replicas_per_device, options, launch_ahead=ahead, **more)
    try:
        engine.initialize(values)
        if fused:
            engine.fuse(True, required=False)
        return Stepper(engine)
    except BaseException:
        engine.close()
        raise


def _engine_of(programs: Sequence[EngineProgram], *arguments: Any, **options: Any) -> LearningEngine:
    """An engine of several programs. arguments, options: of `LearningEngine`, after program and shapes."""
    (first, shapes, room), *others = programs
    engine = LearningEngine(first, shapes, *arguments, steps_per_launch=None, room_for_steps=room, **options)
    try:
        for further in others:
            engine.add_program(*further)
    except BaseException:
        engine.close()
        raise
    return engine


def grown(
    stepper: Stepper,
    programs: Sequence[EngineProgram],
    values: Mapping[str, Array],
) -> Stepper:
    """A second engine with all variables that the graph has now, which goes on where a settled stepper is.

    programs: all steps; they are numbered in this order. values: initial values of new variables, by default
    those of their initialisers, drawn with the replicas' seeds, if they have some. Everything that the next
    round depends on is taken over: its bits are what they would have been. The old engine stays as it is, for
    the caller to close.

    Raises ResourceExhaustedError when there is no room beside the old replicas, InvalidArgumentError for
    a program that cannot be compiled; nothing has changed then.
    """
    stepper.settle()
    old = stepper.engine
    engine = _engine_of(
        programs,
        old.learners.devices,
        old.learners.per_device,
        old.given_options,
        old.schedule,
        launch_ahead=old.launch_ahead,
        on_nan=old.on_nan,
        devices_per_replica=old.devices_per_replica,
        seeds=old.seeds,
        workers=old.workers,
    )
    try:
        engine.learners.values.initialize(*engine.of_worker_0(_starts(old, programs[0][0], values)))
        arrays = {**engine.learners.values.state_arrays(), **old.learners.values.state_arrays()}
        engine.learners.values.load_state_arrays(arrays)
        if old.options.fused:
            engine.fuse(True, required=False)
        engine.round, engine.outcomes.skipped_updates = old.round, old.skipped_updates
        return Stepper(engine, stepper.round)
    except BaseException:
        engine.close()
        raise


def _starts(old: LearningEngine, program: StepProgram, values: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Initial values of a graph's variables: for all replicas, or with seeds for each."""
    given = {**values, **old.central_values()}
    variables = VariableLayout.of_graph(program.graph).variables
    if all(op.name in given or op.attrs["slot_name"] for op in variables):
        return [given]
    return [{**drawn, **given} for drawn in initial_values_of(program, old.seeds)]
