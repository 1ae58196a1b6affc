"""`tb.interop.torch`: weights of PyTorch models, as safetensors files or state dicts, without PyTorch.

Layouts differ: a dense kernel is `[in, out]` here and `[out, in]` in PyTorch, a convolution's
`[height, width, in, out]` here and `[out, in, height, width]` there, a depthwise one's
`[height, width, channels, multiplier]` here and `[channels * multiplier, 1, height, width]` there.
A cell of LSTMs, and of GRUs with `reset_after`, is four entries there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_file
from safetensors.numpy import save as render_file

from tensorbow.array_likes import as_array
from tensorbow.errors import DataLossError, InvalidArgumentError
from tensorbow.files import read_file, write_file
from tensorbow.graph import Operation, Tensor
from tensorbow.interop.flattened_images import UnclearOrderError, images_of
from tensorbow.interop.torch_recurrent import (
    PARTS,
    layer_named,
    layers_of_cells,
    require_convertible,
    torch_cells,
)
from tensorbow.kinds import PATH, TEXT, AsPath, Flag, Kind, RefusedError, checked, instance, sequence, whole
from tensorbow.ops.arrays import ExpandDims
from tensorbow.ops.depthwise import DepthwiseConv2dNative
from tensorbow.ops.matmul import BatchMatMulV2, MatMul
from tensorbow.ops.state import ReadVariable
from tensorbow.runtime import Session
from tensorbow.specs import Array
from tensorbow.variables import Variable, Variables, global_variables

__all__ = ["load_weights", "read_state", "save_weights", "state_of"]

LARGEST = 1 << 40  # bytes of a file
IGNORED = ("num_batches_tracked",)  # counters of PyTorch's batch normalisation
# PyTorch's names of what layers here call otherwise.
LAST_NAMES = {
    "weight": ("kernel", "weights", "gamma", "embeddings", "weight"),
    "bias": ("bias", "biases", "beta"),
    "running_mean": ("moving_mean", "running_mean"),
    "running_var": ("moving_variance", "running_var"),
}


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


class _Layout(NamedTuple):
    """Conversions of an array from PyTorch's layout and to it."""

    to_here: Callable[[Array], Array]
    to_torch: Callable[[Array], Array]


SAME = _Layout(lambda a: a, lambda a: a)
MATRIX = _Layout(np.transpose, np.transpose)
KERNEL = _Layout(lambda a: a.transpose(2, 3, 1, 0), lambda a: a.transpose(3, 2, 0, 1))
KERNEL_1D = _Layout(lambda a: a.transpose(2, 1, 0), lambda a: a.transpose(2, 1, 0))


class _Layouts:
    """The layout of each variable, by the ops that read it."""

    def __init__(self, variables: Sequence[Variable], flattened: Mapping[str, tuple[int, int, int]]):
        unknown = flattened.keys() - {v.op.name for v in variables}
        if unknown:
            raise InvalidArgumentError(
                f"flattened: there is no variable {min(unknown)!r}; give its full name"
            )
        readers: dict[Tensor, list[tuple[Operation, Tensor]]] = {}
        for op in variables[0].graph.get_operations() if variables else ():
            for tensor in op.inputs:
                source = tensor.op.inputs[0] if tensor.op.definition is ReadVariable else tensor
                readers.setdefault(source, []).append((op, tensor))
        reads = {v: readers.get(v.op.outputs[0], []) for v in variables}
        images = {v: flattened.get(v.op.name) or _images(v, reads[v]) for v in variables}
        vectors = {_scope_and_size(v): found for v, found in images.items() if found and v.shape.ndims == 1}
        self.of = {
            v: _layout(v, [op for op, _ in reads[v]], images[v] or vectors.get(_scope_and_size(v)))
            for v in variables
        }

    def fit(self, variable: Variable, array: Array) -> bool:
        """True if the array has the variable's shape in PyTorch's layout."""
        try:
            return bool(self.of[variable].to_here(array).shape == tuple(variable.shape.as_list()))
        except ValueError:
            return False


def _scope_and_size(variable: Variable) -> tuple[str, str]:
    """Equal for the vectors of one batch normalisation, of which a training step reads only some."""
    return variable.op.name.rpartition("/")[0], str(variable.shape)


def _images(variable: Variable, reads: Sequence[tuple[Operation, Tensor]]) -> tuple[int, int, int] | None:
    """Images of which the variable multiplies the flattened elements. Raises InvalidArgumentError."""
    dims = [int(d or 0) for d in variable.shape.as_list()]
    if len(dims) == 2:
        reads = [(op, tensor) for op, tensor in reads if _is_dense(op, variable)]
    try:
        return images_of(dims, reads)
    except UnclearOrderError as error:
        name = variable.op.name
        raise InvalidArgumentError(
            f"variable {name} {variable.shape}: {error}, so its order in PyTorch, which flattens images with "
            f"their channels first, is not known; give flattened={{{name!r}: (height, width, channels)}}, or "
            f"(1, 1, {dims[0]}) for the order of PyTorch"
        ) from None


def _layout(variable: Variable, readers: Sequence[Operation], images: tuple[int, int, int] | None) -> _Layout:
    dims = [int(d or 0) for d in variable.shape.as_list()]
    if images is not None:
        height, width, channels = images
        return _Layout(
            lambda a: a.reshape(-1, channels, height, width).transpose(2, 3, 1, 0).reshape(dims),
            lambda a: a.reshape(height, width, channels, -1).transpose(3, 2, 0, 1).reshape(dims[::-1]),
        )
    if len(dims) == 4 and any(op.definition is DepthwiseConv2dNative for op in readers):
        height, width, channels, multiplier = dims
        return _Layout(
            lambda a: a.reshape(channels, multiplier, height, width).transpose(2, 3, 0, 1),
            lambda a: a.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width),
        )
    if len(dims) == 4:
        return KERNEL
    if len(dims) == 3 and any(op.definition is ExpandDims for op in readers):  # as conv1d does
        return KERNEL_1D
    return MATRIX if len(dims) == 2 and any(_is_dense(op, variable) for op in readers) else SAME


def _is_dense(op: Operation, variable: Variable) -> bool:
    """True if the op multiplies by the variable as a matrix [in, out]."""
    if op.definition not in (MatMul, BatchMatMulV2) or variable.op.outputs[0] not in op.inputs[1].op.inputs:
        return False
    return not op.attrs["transpose_b" if op.definition is MatMul else "adj_y"]


@checked
def read_state(file: AsPath) -> dict[str, Array]:
    """The arrays of a safetensors file by their names, as PyTorch wrote them.

    Raises NotFoundError, DataLossError for a damaged file.
    """
    try:
        return parse_file(read_file(Path(file), LARGEST))
    except SafetensorError as error:
        raise DataLossError(f"{file} is no safetensors file: {error}") from None


@checked
def load_weights(
    source: StateSource,
    session: AsHolder,
    *,
    variables: Variables | None = None,
    names: NamePairs | None = None,
    flattened: ImageSizes | None = None,
    strict: Flag = True,
) -> dict[str, str]:
    """Gives variables the weights of a PyTorch model; returns PyTorch's name of each variable's.

    source: a safetensors file, or a state dict (arrays, or tensors on the CPU).
    session: a session, or a Replicator that has a step: all of its replicas, and z, begin with the weights.
    variables: those to fill; by default all of the session's graph that are no slots of an optimiser.
    names: PyTorch's names by variables' names, for those that are not found. Others are found by their names,
        if these are alike (`fc1/kernel` and `fc1.weight`), else by shape and, in a state dict, order.
    flattened: (height, width, channels) of the images that the input of a dense kernel is made of, by the
        kernel's name: PyTorch flattens images with their channels first. By default as in the graph, where
        tensors of rank 4 are images [batch, height, width, channels] unless a transpose says otherwise.
    strict: whether entries that no variable takes are an error.

    Raises InvalidArgumentError that lists everything that does not fit, and the errors of `read_state`.
    """
    state = dict(source) if isinstance(source, Mapping) else read_state(source)
    arrays = {
        name: as_array(value)
        for name, value in ((name, _detached(value)) for name, value in state.items())
        if name.rpartition(".")[2] not in IGNORED
    }
    chosen = _weights_of(session) if variables is None else list(variables)
    if variables is None and not chosen:
        raise InvalidArgumentError(
            "load_weights: the graph has no weights yet; build the model first, with a Replicator by "
            "replicator.train(...) or replicator.run(...)"
        )
    ordered = isinstance(source, Mapping)
    values: dict[str, Array] = {}
    found: dict[str, str] = {}
    cells = torch_cells(chosen)
    if strict and (cells or any(v.op.name.endswith("/gates/kernel") for v in chosen)):
        require_convertible(arrays, cells)
    for number, layer in layers_of_cells(cells, arrays, names or {}, ordered).items():
        cell = cells[number]
        for variable, part, array in zip(
            cell.variables, cell.entries, cell.to_here(arrays, layer), strict=True
        ):
            values[variable.op.name] = np.ascontiguousarray(array, variable.dtype.as_numpy_dtype)
            found[variable.op.name] = f"{layer[0]}{part}_l{layer[1]}"
        for part in PARTS:
            arrays.pop(f"{layer[0]}{part}_l{layer[1]}", None)
    layouts = _Layouts([v for v in chosen if v.op.name not in found], flattened or {})
    others = {name: entry for name, entry in (names or {}).items() if name not in found}
    fits = _fitted(layouts, arrays, others, strict, ordered)
    values |= {
        variable.op.name: np.ascontiguousarray(
            layouts.of[variable].to_here(arrays[entry]), variable.dtype.as_numpy_dtype
        )
        for variable, entry in fits.items()
    }
    session.load_variables(values)
    return found | {variable.op.name: entry for variable, entry in fits.items()}


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
    write_file(Path(file), render_file(state))
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
    names: PyTorch's names by variables' names, such as `load_weights` returns; others become
        `fc1.weight` of `fc1/kernel`, `bn.running_mean` of `bn/moving_mean`.
    """
    chosen = _weights_of(session) if variables is None else list(variables)
    given, layouts = names or {}, _Layouts(chosen, flattened or {})
    values = _values_of(session, chosen)
    parts: list[tuple[str, Array]] = []
    for cell in torch_cells(chosen):
        layer = layer_named(given.get(cell.variables[0].op.name, "")) or cell.path
        parts += cell.to_torch([values.pop(variable) for variable in cell.variables], layer).items()
    for variable, value in values.items():
        entry = given.get(variable.op.name) or _torch_name(variable.op.name)
        parts.append((entry, np.ascontiguousarray(layouts.of[variable].to_torch(value))))
    state = dict(parts)
    if len(state) < len(parts):
        raise InvalidArgumentError("state_of: two variables would have one name; give names={variable: name}")
    return state


def _detached(value: Any) -> Any:
    """A parameter of PyTorch without its gradient, which its conversion refuses."""
    return value.detach() if hasattr(value, "detach") else value


def _values_of(session: Any, variables: Sequence[Variable]) -> dict[Variable, Array]:
    if isinstance(session, Session):
        fetched = session.run([variable.op.outputs[0] for variable in variables]) if variables else []
        return {v: np.asarray(value) for v, value in zip(variables, fetched, strict=True)}
    central = session.central_values()
    return {v: np.asarray(central[v.op.name]) for v in variables}


def _weights_of(session: Any) -> list[Variable]:
    with session.graph.as_default():
        return [v for v in global_variables() if v.op.attrs["role"] != "slots" and v.dtype.is_floating]


def _torch_name(name: str) -> str:
    *scope, last = name.split("/")
    return ".".join([*scope, next((t for t, ours in LAST_NAMES.items() if last in ours), last)])


def _fitted(
    layouts: _Layouts,
    arrays: Mapping[str, Array],
    names: Mapping[str, str],
    strict: bool,
    ordered: bool,
) -> dict[Variable, str]:
    """The entry for each variable. Raises InvalidArgumentError."""
    variables = list(layouts.of)
    found: dict[Variable, str] = {}
    problems = [
        f"names gives {entry!r} for {name!r}: there is no such {'variable' if entry in arrays else 'entry'}"
        for name, entry in names.items()
        if entry not in arrays or all(v.op.name != name for v in variables)
    ]
    endings = {_torch_name(v.op.name): v for v in variables}
    for variable in variables:
        entry = names.get(variable.op.name)
        if entry in arrays:
            found[variable] = str(entry)
    free = [entry for entry in arrays if entry not in found.values()]
    for entry in free:
        near = [v for ending, v in endings.items() if ending == entry or ending.endswith(f".{entry}")]
        if len(near) == 1 and near[0] not in found and layouts.fit(near[0], arrays[entry]):
            found[near[0]] = entry
    problems += _found_by_shape(layouts, arrays, found, ordered)
    for variable in variables:
        if variable in found and not layouts.fit(variable, arrays[found[variable]]):
            entry = found[variable]
            problems.append(f"variable {variable.op.name} {variable.shape}: {entry} is {arrays[entry].shape}")
    if strict:
        left = [entry for entry in arrays if entry not in found.values()]
        problems += [f"entry {entry} {list(arrays[entry].shape)}: no variable takes it" for entry in left]
    if problems:
        raise InvalidArgumentError(
            f"load_weights: {'; '.join(problems[:6])}{' ...' if len(problems) > 6 else ''}. Give "
            "names={variable: entry}, variables=[...], or strict=False for entries that are not needed"
        )
    return found


def _found_by_shape(
    layouts: _Layouts, arrays: Mapping[str, Array], found: dict[Variable, str], ordered: bool
) -> list[str]:
    """Adds to `found` the entries that fit the remaining variables; a message for each of the others.

    ordered: whether the entries are in the order of the layers, so that the first that fits is the right one.
    """
    while True:
        before = len(found)
        problems = []
        for variable in (v for v in layouts.of if v not in found):
            free = (entry for entry in arrays if entry not in found.values())
            near = [e for e in free if _is_alike(variable, e) and layouts.fit(variable, arrays[e])]
            if len(near) == 1 or (near and ordered):
                found[variable] = near[0]
            elif near:
                problems.append(
                    f"variable {variable.op.name} {variable.shape}: {', '.join(near[:4])} fit (files do not "
                    "keep the order of layers; a state dict does)"
                )
            else:
                problems.append(f"variable {variable.op.name} {variable.shape}: no entry fits")
        if len(found) == before:
            return problems


def _is_alike(variable: Variable, entry: str) -> bool:
    """True if both are weights, biases or the same statistic, as far as their names say."""
    last, other = variable.op.name.rpartition("/")[2], entry.rpartition(".")[2]
    known = [kind for kind, ours in LAST_NAMES.items() if last in ours]
    return not known or other not in LAST_NAMES or other in known
