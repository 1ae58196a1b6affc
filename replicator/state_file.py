"""Everything that the next step of a Replicator depends on, as arrays and metadata for a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from replicator.replicated_step import BuiltStep
from scheduler import LearningEngine, Stepper, Synchronisation
from scheduler.averaging.synchronisation import FUSED, modes_on
from scheduler.engine.rollback import EngineState
from tensorbow.errors import DataLossError, InvalidArgumentError, raise_if_any
from tensorbow.specs import Array
from tensorbow.training import RollingCheckpoints, load_arrays, save_arrays

KEY = "replicator"  # of the metadata


State: TypeAlias = "tuple[Mapping[str, Array], Mapping[str, Any]]"
"""Arrays (variables, slots, z) and metadata (round, positions in the inputs) of a Replicator."""


def save_file(path: Path, stepper: Stepper, steps: Sequence[BuiltStep]) -> None:
    """Writes the state to a file."""
    _save_state(partial(save_arrays, path), stepper, steps)


def restore_file(path: Path, stepper: Stepper, steps: Sequence[BuiltStep]) -> None:
    """Restores the state of a file; see `_restore`."""
    state = _read_state(lambda: load_arrays(path), stepper)
    if state is not None:
        _restore(path, state, stepper, steps)


def save_newest(folder: Path, stepper: Stepper, steps: Sequence[BuiltStep]) -> None:
    """Writes the state as the newest checkpoint of a folder, of which the last three are kept."""
    _save_state(partial(RollingCheckpoints(folder).save, stepper.round), stepper, steps)


def restore_newest(folder: Path, stepper: Stepper, steps: Sequence[BuiltStep]) -> bool:
    """Restores the newest checkpoint of a folder that can be read; False if there is none.

    Warns of newer ones that cannot.
    """
    checkpoints = RollingCheckpoints(folder)

    def read() -> State | None:
        checkpoint, problems = checkpoints.newest()
        for problem in problems:
            warnings.warn(problem, stacklevel=5)
        return None if checkpoint is None else (checkpoint.arrays, checkpoint.metadata)

    state = _read_state(read, stepper)
    if state is None:
        return False
    _restore(checkpoints.path_of(state[1]["round"]), state, stepper, steps)
    return True


def _save_state(
    write: Callable[[Mapping[str, Array], Mapping[str, Any]], object],
    stepper: Stepper,
    steps: Sequence[BuiltStep],
) -> None:
    """Writes the state; of several workers worker 0 does, with all replicas, as one process would.

    Raises what `write` raises, on all workers.
    """
    state, lockstep = _state_of(stepper, steps), stepper.engine.lockstep
    if lockstep is None:
        write(*state)
        return
    every = lockstep.gather("a checkpoint", state[0])
    error: Exception | None = None
    if every is not None:
        try:
            write({name: array for arrays in every for name, array in arrays.items()}, state[1])
        except Exception as caught:
            error = caught
    raise_if_any(lockstep.broadcast("the end of a checkpoint", error))


def _read_state(read: Callable[[], State | None], stepper: Stepper) -> State | None:
    """A state that was saved; of several workers worker 0 reads it, and each gets its own replicas'.

    Raises what `read` raises, on all workers.
    """
    lockstep = stepper.engine.lockstep
    if lockstep is None:
        return read()
    found: State | Exception | None = None
    if lockstep.rank == 0:
        try:
            found = read()
        except Exception as error:
            found = error
    found = lockstep.broadcast("a checkpoint", found)
    if isinstance(found, Exception):
        raise found
    if found is None:
        return None
    arrays, metadata = found
    others = {f"replica{n}" for n in range(stepper.engine.learners.total)}
    others -= {f"replica{n}" for n in stepper.engine.learners.numbers}
    return {name: a for name, a in arrays.items() if name.partition("/")[0] not in others}, metadata


def _state_of(stepper: Stepper, steps: Sequence[BuiltStep]) -> tuple[dict[str, Array], dict[str, Any]]:
    stepper.settle()
    engine = stepper.engine
    facts = {
        **_kind(engine, steps),
        "skipped updates": engine.skipped_updates,
        "fused": engine.options.fused,
        "positions": [[step.inputs.taken, step.evaluations] for step in steps],
    }
    return engine.learners.values.state_arrays(), {"round": stepper.round, KEY: facts}


def _restore(
    path: Path,
    state: State,
    stepper: Stepper,
    steps: Sequence[BuiltStep],
) -> None:
    """Restores a state read from a file.

    Inputs are drawn, and left out, up to where they were. Raises InvalidArgumentError for a file of other
    replicas, options, variables or steps, or for inputs that are further on already, DataLossError for
    damaged metadata. The replicas have not changed then, but inputs may have been drawn.
    """
    arrays, metadata = state
    facts = metadata.get(KEY)
    if not isinstance(facts, dict):
        raise InvalidArgumentError(f"{path} is not a file of a replicator's state")
    engine = stepper.engine
    for name, value in _kind(engine, steps).items():
        found = facts.get(name)
        if name == "synchronisation" and isinstance(found, dict):  # an older file may lack newer options
            found = {**asdict(Synchronisation()), **found}
        if found != value:
            theirs, ours = _different(name, found, value)
            raise InvalidArgumentError(
                f"{path}: it was saved with {theirs}, and this replicator has {ours}; make the replicator "
                "as it was, or give init(values=...) the central model of the file's replicas"
            )
    try:
        start, skipped = int(metadata["round"]), int(facts["skipped updates"])
        positions = [(int(taken), int(evaluations)) for taken, evaluations in facts["positions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataLossError(f"{path}: its metadata are damaged: {error!r}") from None
    for step, (taken, _) in zip(steps, positions, strict=True):
        step.inputs.skip_to(taken)
    _take_mode(stepper, bool(facts.get("fused", engine.options.fused)))
    try:
        stepper.set_state(EngineState(start, arrays, skipped))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error
    for step, (_, evaluations) in zip(steps, positions, strict=True):
        step.evaluations = evaluations


def _take_mode(stepper: Stepper, fused: bool) -> None:
    """Has replicas of a GPU share it as where the state was saved; the bits depend on it."""
    engine = stepper.engine
    kinds = {device.kind for device in engine.learners.devices}
    if fused != engine.options.fused and FUSED in modes_on(kinds, engine.given_options):
        stepper.pause()
        engine.fuse(fused, required=False)


def _different(name: str, found: Any, value: Any) -> tuple[str, str]:
    """A fact as the file has it and as this replicator has it; of options only those that differ."""
    if not isinstance(found, dict) or not isinstance(value, dict):
        return f"{name} {found}", f"{value}"
    options = [option for option in {**value, **found} if found.get(option) != value.get(option)]
    theirs, ours = (", ".join(f"{o}={facts.get(o)!r}" for o in options) for facts in (found, value))
    return theirs, ours


def _kind(engine: LearningEngine, steps: Sequence[BuiltStep]) -> dict[str, Any]:
    """Facts that must be equal where a state is saved and where it is restored."""
    return {
        "replicas per device": list(engine.learners.per_device_of_all),
        "synchronisation": asdict(engine.given_options),
        "steps": len(steps),
        "seeds": None if engine.seeds is None else [*engine.seeds],
    }
