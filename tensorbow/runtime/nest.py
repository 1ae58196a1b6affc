"""Nested structures of fetches: flatten, and put results back into the same shape."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


def flatten(structure: Any) -> list[Any]:
    """The leaves of nested lists, tuples, named tuples and mappings, in order."""
    if isinstance(structure, Mapping):
        return [leaf for value in structure.values() for leaf in flatten(value)]
    if isinstance(structure, (list, tuple)):
        return [leaf for value in structure for leaf in flatten(value)]
    return [structure]


def pack(structure: Any, leaves: Iterator[Any]) -> Any:
    """A structure like `structure` with its leaves replaced, in order."""
    if isinstance(structure, Mapping):
        packed = {key: pack(value, leaves) for key, value in structure.items()}
        if type(structure) is dict or not isinstance(structure, MutableMapping):
            return packed
        result = copy.copy(structure)  # keeps what else the mapping is: its order, its default
        result.update(packed)
        return result
    if isinstance(structure, tuple):
        items = [pack(value, leaves) for value in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)
    if isinstance(structure, list):
        return [pack(value, leaves) for value in structure]
    return next(leaves)


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Applies a function to every leaf."""
    return pack(structure, iter([function(leaf) for leaf in flatten(structure)]))
