"""`tb.interop.torch`: weights of PyTorch models, as safetensors files or state dicts, without PyTorch.

Layouts differ, and are converted: see `tensorbow.torch_weights`. A cell of LSTMs, and of GRUs with
`reset_after`, is four entries there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.files import write_file
from tensorbow.graph import warn_at_user_line
from tensorbow.kinds import (
    PATH,
    TEXT,
    AsPath,
    Flag,
    Kind,
    Names,
    RefusedError,
    checked,
    instance,
    sequence,
    whole,
)
from tensorbow.runtime import Session
from tensorbow.specs import Array
from tensorbow.torch_weights import (
    GraphWeight,
    Layouts,
    Wording,
    arrays_of,
    fitted,
    is_written_here,
    known_names,
    layer_named,
    remember_names,
    render_state,
    state_names,
    torch_cells,
    warning_of_padding,
    weights_of,
)
from tensorbow.torch_weights import read_state as read_state_file
from tensorbow.variables import Variables

__all__ = ["load_weights", "read_state", "save_weights", "state_of"]

WORDING = Wording(
    "load_weights",
    "Give names={variable: entry} or {scope: module}, skip=[patterns of names] for what is to be left out, "
    "variables=[...], or strict=False for entries that are not needed",
    "strict=False",
    "Names are compared from their ends, so prefixes as module. or model. may differ. If these are the "
    "weights of this model, give names={variable: entry} or {scope: module}",
)


def _read_names(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(s, str) for item in value.items() for s in item):
        raise RefusedError
    return dict(value)


def _read_holder(value: Any) -> Any:
    if isinstance(value, Session) or _is_replicator(value):
        return value
    raise RefusedError


def _is_replicator(value: Any) -> bool:
    """True for what has replicas with a central model; its class is of a layer above."""
    needed = ("graph", "load_variables", "central_values")
    return not isinstance(value, type) and all(hasattr(value, name) for name in needed)


AsHolder: TypeAlias = Annotated[Any, Kind("a tb.Session or a Replicator", _read_holder)]
StateSource: TypeAlias = Annotated[
    Any, instance(Mapping, expected="a state dict, or a safetensors file") | PATH
]
NamePairs: TypeAlias = Annotated[
    dict[str, str], Kind("a dictionary of PyTorch's names by variables' names", _read_names)
]


def _read_sizes(value: Any) -> dict[str, tuple[int, int, int]]:
    if not isinstance(value, Mapping) or any(len(size) != 3 for size in value.values()):
        raise RefusedError
    return {TEXT.read(name): _SIZE.read(size) for name, size in value.items()}


_SIZE = sequence(whole(1), "")
ImageSizes: TypeAlias = Annotated[
    dict[str, tuple[int, int, int]],
    Kind("a dictionary of (height, width, channels) by variables' names", _read_sizes),
]


@checked
def read_state(file: AsPath) -> dict[str, Array]:
    """The arrays of a safetensors file by their names, as PyTorch wrote them.

    Raises NotFoundError, DataLossError for a damaged file.
    """
    return read_state_file(Path(file))


@checked
def load_weights(
    source: StateSource,
    session: AsHolder,
    *,
    variables: Variables | None = None,
    names: NamePairs | None = None,
    flattened: ImageSizes | None = None,
    skip: Names = (),
    strict: Flag = True,
) -> dict[str, str]:
    """Gives variables the weights of a PyTorch model; returns PyTorch's name of each variable's.

    source: a safetensors file, or a state dict (arrays, or tensors on the CPU).
    session: a session, or a Replicator that has a step: all of its replicas, and z, begin with the weights.
    variables: those to fill; by default all of the session's graph that are no slots of an optimiser.
    names: PyTorch's names by variables' names, or names of modules by those of scopes (`{"body": "net.0"}`),
        for those that are not found. Others are found by their names, if these end alike (`fc1/kernel` and
        `fc1.weight`), else by shape and order; a file keeps no order, but that of numbers in names.
    flattened: (height, width, channels) of the images that the input of a dense kernel is made of, by the
        kernel's name: PyTorch flattens images with their channels first. By default as in the graph, where
        tensors of rank 4 are images [batch, height, width, channels] unless a transpose says otherwise.
    skip: patterns such as `fc.*` or `head/*`, of names of entries or variables that are left out with their
        counterparts, as a head for other classes: these variables keep their values.
    strict: whether entries that no variable takes are an error.

    `state_of` and `save_weights` of the same graph give the names back. Warns of layers with padding "same"
    whose windows PyTorch's layers cannot have, unless the file is of `save_weights`. Raises
    InvalidArgumentError that lists everything that does not fit, and the errors of `read_state`.
    """
    state = source if isinstance(source, Mapping) else read_state(source)
    chosen = _weights_of(session) if variables is None else [GraphWeight(v.op) for v in variables]
    if variables is None and not chosen:
        raise InvalidArgumentError(
            "load_weights: the graph has no weights yet; build the model first, with a Replicator by "
            "replicator.train(...) or replicator.run(...)"
        )
    found = fitted(
        arrays_of(state),
        chosen,
        WORDING,
        names=names or {},
        flattened=flattened or {},
        skip=skip,
        strict=strict,
        ordered=isinstance(source, Mapping),
    )
    session.load_variables(found.values)
    remember_names(session.graph, found.entries)
    if isinstance(source, Mapping) or not is_written_here(Path(source)):
        warning = warning_of_padding(session.graph, found.values.keys())
        if warning:
            warn_at_user_line(f"load_weights: {warning}")
    return found.entries


@checked
def save_weights(
    file: AsPath,
    session: AsHolder,
    *,
    variables: Variables | None = None,
    names: NamePairs | None = None,
    flattened: ImageSizes | None = None,
) -> str:
    """Writes variables as a safetensors file in PyTorch's layout and names; returns the path.

    The arguments are those of `state_of`. In PyTorch, load it by
    `model.load_state_dict(safetensors.torch.load_file(file))`.
    """
    state = state_of(session, variables=variables, names=names, flattened=flattened)
    write_file(Path(file), render_state(state))
    return str(file)


@checked
def state_of(
    session: AsHolder,
    *,
    variables: Variables | None = None,
    names: NamePairs | None = None,
    flattened: ImageSizes | None = None,
) -> dict[str, Array]:
    """Values of variables by PyTorch's names and in its layout.

    session: a session, or a Replicator, of which the central model is taken, also when training has ended.
    names: PyTorch's names by variables' names, such as `load_weights` returns. By default those by which
        `load_weights` found the variables of this graph, or the run began with weights of PyTorch; others
        become `fc1.weight` of `net/fc1/kernel` and `bn.running_mean` of `net/bn/moving_mean`, without scopes
        that are around the whole model.

    Raises InvalidArgumentError if two variables would have one name.
    """
    own = _weights_of(session)
    chosen = own if variables is None else [GraphWeight(v.op) for v in variables]
    given = {**known_names(session.graph), **(names or {})}
    layouts = Layouts(chosen, flattened or {})
    values = _values_of(session, chosen)
    cells = torch_cells(chosen)
    usual, layers = state_names([*own, *(v for v in chosen if v not in own)], cells)
    parts: list[tuple[str, Array]] = []
    for cell, layer in zip(cells, layers, strict=True):
        found = layer_named(given.get(cell.variables[0].op.name, "")) or layer
        parts += cell.to_torch([values.pop(variable) for variable in cell.variables], found).items()
    for variable, value in values.items():
        entry = given.get(variable.op.name) or usual[variable]
        parts.append((entry, np.ascontiguousarray(layouts.of[variable].to_torch(value))))
    state = dict(parts)
    if len(state) < len(parts):
        taken = [entry for entry, _ in parts]
        twice = next(entry for entry in taken if taken.count(entry) > 1)
        raise InvalidArgumentError(
            f"state_of: two variables would have the name {twice!r}; give names={{variable: name}}"
        )
    return state


def _values_of(session: Any, variables: Sequence[GraphWeight]) -> dict[GraphWeight, Array]:
    if isinstance(session, Session):
        fetched = session.run([variable.op.outputs[0] for variable in variables]) if variables else []
        return {v: np.asarray(value) for v, value in zip(variables, fetched, strict=True)}
    central = session.central_values()
    return {v: np.asarray(central[v.op.name]) for v in variables}


def _weights_of(session: Any) -> list[GraphWeight]:
    return [weight for weight in weights_of(session.graph) if weight.dtype.is_floating]
