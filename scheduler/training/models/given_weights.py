"""Weights that a run begins with: of PyTorch, of an earlier run, or of an exported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.folders.run_models import central_model
from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph
from tensorbow.specs import Array
from tensorbow.torch_weights import (
    Fitted,
    GraphWeight,
    Wording,
    arrays_of,
    fitted,
    names_described,
    read_state,
    weights_of,
)
from tensorbow.training import is_arrays_file, load_arrays
from tensorbow.training.graph_files import GRAPH, VARIABLES

REMEDIES = (
    "Leave weights out by weights_skip (as fc.*), or give weights_names (as conv1=features.0, a scope and "
    "its module in PyTorch)"
)
SHOWN = 6  # problems in an error, and variables in a line


class GivenWeights(NamedTuple):
    """values: arrays by variables' names. entries: PyTorch's names by variables' names, of weights that came
    from there. line: what is said about them.
    """

    values: dict[str, Array]
    entries: dict[str, str]
    line: str


def given_weights(
    config: TrainingConfig, graph: Graph, state: Mapping[str, Any] | None = None
) -> GivenWeights | None:
    """The weights of a run's options for the variables of its step; None if there are none.

    state: instead of `config.weights`. Raises InvalidArgumentError that lists everything that does not fit,
    and what reading a file raises.
    """
    if state is None and config.weights is None:
        return None
    label = "weights: " + ("the given state" if state is not None else str(config.weights))
    variables = weights_of(graph)
    wording = Wording(label, REMEDIES, "weights_skip")
    names, skip = dict(config.weights_names), config.weights_skip
    if state is not None:
        arrays = arrays_of(state)
        about: dict[str, Any] | None = {} if _is_of_variables(arrays, variables) else None
    else:
        arrays, about = _read(Path(str(config.weights)))
    if about is not None:
        found = _of_variables(arrays, variables, names, skip, wording)
    else:
        floats = [v for v in variables if v.dtype.is_floating]
        found = fitted(
            arrays_of(arrays),
            floats,
            wording,
            names=names,
            flattened={},
            skip=skip,
            ordered=state is not None,
        )
    kept = [v.op.name for v in variables if v.op.name in found.skipped]
    more = " ..." if len(kept) > SHOWN else ""
    rest = f"; {', '.join(kept[:SHOWN])}{more} begin as without weights" if kept else ""
    count = "1 variable" if len(found.values) == 1 else f"{len(found.values)} variables"
    entries = found.entries if about is None else names_described(about)
    entries = {name: entry for name, entry in entries.items() if name in found.values}
    return GivenWeights(found.values, entries, f"{label}: of {count}{rest}")


def weights_key(config: TrainingConfig) -> tuple[Any, ...]:
    """Equal for configurations of the same weights."""
    return config.weights, config.weights_skip, config.weights_names


def _read(path: Path) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Arrays of a file or folder, and the description of a model of this library, or None."""
    if (path / GRAPH).exists():
        values, described = load_arrays(path / VARIABLES, remedy="export the model again")
        about = described.get("about")
        return values, about if isinstance(about, dict) else {}
    if not path.is_dir() and not is_arrays_file(path):
        return read_state(path), None
    model = central_model(path)
    if isinstance(model.about.get("config"), dict):
        raise InvalidArgumentError(
            f"weights: expected a model, got {path}, a checkpoint; give its run's folder, or resume from it"
        )
    return model.values, model.about


def _is_of_variables(arrays: Mapping[str, Array], variables: Sequence[GraphWeight]) -> bool:
    """True for arrays by variables' names, which have scopes where PyTorch has dots."""
    return any("/" in name for name in arrays) or arrays.keys() <= {v.op.name for v in variables}


def _of_variables(
    arrays: Mapping[str, Array],
    variables: Sequence[GraphWeight],
    names: Mapping[str, str],
    skip: Sequence[str],
    wording: Wording,
) -> Fitted:
    """The values of variables by their names, in their own layout. Raises InvalidArgumentError."""
    known = {v.op.name for v in variables}
    problems = [
        f"weights_names gives {theirs!r} for {own!r}: no variable or scope has this name"
        for own, theirs in names.items()
        if not any(f"{name}/".startswith(f"{own}/") for name in known)
    ]
    problems += [
        f"{pattern!r} is to be left out: nothing has such a name"
        for pattern in skip
        if not any(fnmatchcase(name, pattern) for name in (*known, *arrays))
    ]
    values: dict[str, Array] = {}
    skipped: list[str] = []
    taken: set[str] = set()
    for variable in variables:
        name = variable.op.name
        entry = _renamed(name, names)
        if any(fnmatchcase(each, pattern) for each in (name, entry) for pattern in skip):
            skipped.append(name)
        elif entry not in arrays:
            if variable.dtype.is_floating:
                problems.append(f"variable {name} {variable.shape}: there is no {entry}")
        elif list(arrays[entry].shape) != variable.shape.as_list():
            problems.append(f"variable {name}: expected {variable.shape}, got {[*arrays[entry].shape]}")
        else:
            floats = variable.dtype.is_floating and arrays[entry].dtype.kind == "f"
            dtype = variable.dtype.as_numpy_dtype if floats else arrays[entry].dtype
            values[name] = np.ascontiguousarray(arrays[entry], dtype)
        taken.add(entry)
    for entry, array in arrays.items():
        is_slot = any(f"{entry[:place]}" in known for place, sign in enumerate(entry) if sign == "/")
        left_out = any(fnmatchcase(entry, pattern) for pattern in skip)
        if entry not in taken and not is_slot and not left_out:
            problems.append(f"{entry} {[*array.shape]}: the model has no such variable")
    if problems:
        more = " ..." if len(problems) > SHOWN else ""
        raise InvalidArgumentError(f"{wording.call}: {'; '.join(problems[:SHOWN])}{more}. {wording.remedies}")
    return Fitted(values, {}, skipped)


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """Name of a variable among the given weights: with the longest scope that has another name there."""
    parts = name.split("/")
    for length in range(len(parts), 0, -1):
        scope = "/".join(parts[:length])
        if scope in names:
            return "/".join([names[scope], *parts[length:]])
    return name
