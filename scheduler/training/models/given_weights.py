"""Weights that a run begins with: of PyTorch, of an earlier run, or of an exported model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scheduler.training.configuration.config import TrainingConfig
from scheduler.training.folders.run_models import central_model
from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import Graph
from tensorbow.missing_names import listed
from tensorbow.specs import Array
from tensorbow.torch_weights import (
    UNLIKE,
    Fitted,
    GraphWeight,
    Wording,
    arrays_of,
    fitted,
    is_written_here,
    names_described,
    read_state,
    warning_of_padding,
    weights_of,
)
from tensorbow.training import is_arrays_file, load_arrays
from tensorbow.training.graph_files import GRAPH, VARIABLES

REMEDIES = (
    "Leave weights out by weights_skip (as fc.*), or give weights_names (as conv1=features.0, a scope and "
    "its module in PyTorch)"
)
# Where no name is like another.
PAIRING = (
    "Names are compared from their ends, so prefixes as module. or model. may differ. If these are the "
    "weights of this model, give weights_names (as conv1=features.0, a scope and its module in PyTorch)"
)
FLATTENED = (
    "give it by weights_flattened, as {name}=7x7x64, height, width and channels of the images, or "
    "{name}=1x1x{size} for the order of PyTorch"
)
SHOWN = 6  # problems in an error, and variables in a line


class GivenWeights(NamedTuple):
    """Weights that a run begins with.

    values: arrays by variables' names. entries: PyTorch's names by variables' names, of weights that came
    from there. line: what is said about them. warning: of a difference between PyTorch and this model, or "".
    """

    values: dict[str, Array]
    entries: dict[str, str]
    line: str
    warning: str


class _Read(NamedTuple):
    """Content of a file of weights.

    about: the description of a model of this library; None for weights in PyTorch's layout. of_module:
    whether these are a module's, not written by `tb.interop.torch`.
    """

    arrays: Mapping[str, Any]
    about: dict[str, Any] | None
    of_module: bool = False


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
    wording = Wording(label, REMEDIES, "weights_skip", PAIRING, FLATTENED)
    names, skip = dict(config.weights_names), config.weights_skip
    if state is not None:
        arrays = arrays_of(state)
        is_own = _is_of_variables(arrays, variables)
        read = _Read(arrays, {} if is_own else None, of_module=not is_own)
    else:
        try:
            read = _read(Path(str(config.weights)))
        except NotFoundError as error:
            raise NotFoundError(f"weights: {error}") from None
    if read.about is not None:
        found = _of_variables(read.arrays, variables, names, skip, wording)
    else:
        floats = [v for v in variables if v.dtype.is_floating]
        found = fitted(
            arrays_of(read.arrays),
            floats,
            wording,
            names=names,
            flattened=dict(config.weights_flattened),
            skip=skip,
            ordered=state is not None,
        )
    kept = [v.op.name for v in variables if v.op.name in found.skipped]
    more = " ..." if len(kept) > SHOWN else ""
    rest = f"; {', '.join(kept[:SHOWN])}{more} begin without" if kept else ""
    count = "1 variable" if len(found.values) == 1 else f"{len(found.values)} variables"
    entries = found.entries if read.about is None else names_described(read.about)
    entries = {name: entry for name, entry in entries.items() if name in found.values}
    warning = warning_of_padding(graph, found.values.keys()) if read.of_module else ""
    return GivenWeights(
        found.values,
        entries,
        f"{label}: taken by {count}{_reordered(found)}{rest}",
        f"{label}: {warning}" if warning else "",
    )


def weights_key(config: TrainingConfig) -> tuple[Any, ...]:
    """Equal for configurations of the same weights."""
    return config.weights, config.weights_skip, config.weights_names, config.weights_flattened


def _reordered(found: Fitted) -> str:
    """Names of the dense kernels whose rows were put in order, as a part of a line."""
    if not found.images:
        return ""
    texts = [f"{name} (images {'x'.join(map(str, size))})" for name, size in found.images.items()]
    return f"; rows of {listed(texts, SHOWN)} reordered, as PyTorch flattens with channels first"


def _read(path: Path) -> _Read:
    """The content of a file or folder."""
    if (path / GRAPH).exists():
        values, described = load_arrays(path / VARIABLES, remedy="export the model again")
        about = described.get("about")
        return _Read(values, about if isinstance(about, dict) else {})
    if not path.is_dir() and not is_arrays_file(path):
        state = read_state(path)
        return _Read(state, None, of_module=not is_written_here(path))
    model = central_model(path)
    if isinstance(model.about.get("config"), dict):
        raise InvalidArgumentError(
            f"weights: expected a model, got {path}, a checkpoint; give its run's folder, or resume from it"
        )
    return _Read(model.values, model.about)


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
    if problems and not names and not any(v.op.name in arrays for v in variables):
        raise InvalidArgumentError(f"{wording.call}: {_unlike(arrays, variables)}")
    if problems:
        more = " ..." if len(problems) > SHOWN else ""
        raise InvalidArgumentError(f"{wording.call}: {'; '.join(problems[:SHOWN])}{more}. {wording.remedies}")
    return Fitted(values, {}, skipped, {})


def _unlike(arrays: Mapping[str, Array], variables: Sequence[GraphWeight]) -> str:
    """A message for weights of which none has the name of a variable, with a remedy."""
    own = [f"{v.op.name} {v.shape}" for v in variables]
    theirs = [f"{name} {[*array.shape]}" for name, array in arrays.items()]
    pairs = _other_scopes(arrays, variables)
    remedy = (
        f"The names begin otherwise; give {','.join(f'{here}={there}' for here, there in pairs.items())} by "
        "weights_names"
        if pairs
        else "Is it another model's? If not, give weights_names (as net/fc1=body/fc1, a scope here and there)"
    )
    return (
        f"none of the model's {len(own)} variables is there: expected {listed(own, UNLIKE)}; got "
        f"{listed(theirs, UNLIKE) or 'nothing'}. {remedy}"
    )


def _other_scopes(arrays: Mapping[str, Array], variables: Sequence[GraphWeight]) -> dict[str, str]:
    """Scopes of the given weights by those of variables, if names differ in one beginning; else nothing."""
    shapes = {name: [*array.shape] for name, array in arrays.items()}
    votes: Counter[tuple[str, str]] = Counter()
    for variable in variables:
        own = variable.op.name.split("/")
        near = [name for name, shape in shapes.items() if shape == variable.shape.as_list()]
        ends = {name: _common_end(own, name.split("/")) for name in near}
        longest = max(ends.values(), default=0)
        best = [name for name, length in ends.items() if length == longest]
        if longest and len(best) == 1:
            theirs = best[0].split("/")[: -longest or None]
            votes["/".join(own[:-longest]), "/".join(theirs)] += 1
    ((here, there), count), *_ = *votes.most_common(1), (("", ""), 0)
    if 2 * count <= len(variables):
        return {}
    if here and there:
        return {here: there}
    before, after = (f"{scope}/" if scope else "" for scope in (here, there))
    names = [v.op.name for v in variables if v.op.name.startswith(before)]
    inner = dict.fromkeys(name.removeprefix(before).partition("/")[0] for name in names)
    return {f"{before}{name}": f"{after}{name}" for name in inner}


def _common_end(own: Sequence[str], theirs: Sequence[str]) -> int:
    """Number of equal parts at the end of two names."""
    pairs = zip(reversed(own), reversed(theirs), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """Name of a variable among the given weights: with the longest scope that has another name there."""
    parts = name.split("/")
    for length in range(len(parts), 0, -1):
        scope = "/".join(parts[:length])
        if scope in names:
            return "/".join([names[scope], *parts[length:]])
    return name
