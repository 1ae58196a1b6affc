"""PyTorch's names of variables: modules are scopes, without those around all of the model."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbow.torch_weights.layouts import LAST_NAMES
from tensorbow.torch_weights.recurrent import LayerPath, TorchCell
from tensorbow.torch_weights.weight import GraphWeight

OF_LAYERS = {ours for names in LAST_NAMES.values() for ours in names}


def torch_name(name: str) -> str:
    """`net.fc1.weight` of `net/fc1/kernel`."""
    *scope, last = name.split("/")
    return ".".join([*scope, next((t for t, ours in LAST_NAMES.items() if last in ours), last)])


def state_names(
    variables: Sequence[GraphWeight], cells: Sequence[TorchCell]
) -> tuple[dict[GraphWeight, str], list[LayerPath]]:
    """Entries of variables that are in no cell, and layers of the cells.

    Scopes that are around all variables are left out: a module does not know its own name. A layer keeps its
    name, so that a lone one is `fc1.weight`.
    """
    of_cells = {variable for cell in cells for variable in cell.variables}
    others = [variable for variable in variables if variable not in of_cells]
    layers = [cell.path for cell in cells]
    if len({*layers}) < len(layers):
        layers = [cell.full_path for cell in cells]
    scopes = [_scope_of_module(variable.op.name) for variable in others]
    scopes += [tuple(prefix.split(".")[:-2]) for prefix, _ in layers]
    around = _common_start(scopes)
    entries = {v: torch_name("/".join(v.op.name.split("/")[len(around) :])) for v in others}
    skipped = len("".join(f"{name}." for name in around))
    return entries, [(prefix[skipped:], number) for prefix, number in layers]


def _scope_of_module(name: str) -> tuple[str, ...]:
    """Scope of the module that has the variable or, if it is a layer's, the layer."""
    *scope, last = name.split("/")
    return tuple(scope[:-1] if last in OF_LAYERS else scope)


def _common_start(scopes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if not scopes:
        return ()
    lowest, highest = min(scopes), max(scopes)
    length = 0
    while length < min(len(lowest), len(highest)) and lowest[length] == highest[length]:
        length += 1
    return lowest[:length]
