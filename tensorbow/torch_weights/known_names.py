"""PyTorch's names by which the weights of a graph's variables came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from tensorbow.graph import Graph

TORCH_NAMES = "torch_names"  # in descriptions of models: PyTorch's names by variables' names
_of_graphs: WeakKeyDictionary[Graph, dict[str, str]] = WeakKeyDictionary()


def known_names(graph: Graph) -> dict[str, str]:
    """PyTorch's names of variables that have weights of PyTorch, by variables' names."""
    return dict(_of_graphs.get(graph, {}))


def remember_names(graph: Graph, names: Mapping[str, str]) -> None:
    """Adds PyTorch's names of variables of a graph; they are forgotten with it."""
    if names:
        _of_graphs[graph] = {**known_names(graph), **names}


def names_described(about: Mapping[str, Any]) -> dict[str, str]:
    """PyTorch's names in the description of a model or a checkpoint; empty if there are none."""
    found = about.get(TORCH_NAMES)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        return {}
    return {str(name): entry for name, entry in found.items()}
