"""Nested structures of fetches: flatten, and put results back into the same shape."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from tensorbow.specs import TensorSpec


def is_record(structure: Any) -> bool:
    """Whether it is an instance of a data class, whose fields are looked into; a TensorSpec is a leaf."""
    is_class = isinstance(structure, type)
    return dataclasses.is_dataclass(structure) and not is_class and not isinstance(structure, TensorSpec)


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a data class's instance, by name."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def with_fields(record: Any, values: Mapping[str, Any]) -> Any:
    """A copy with other fields; nothing of the class's own is called."""
    result = copy.copy(record)
    for name, value in values.items():
        object.__setattr__(result, name, value)  # frozen ones, too
    return result


def _is_leaf_class(kind: type) -> bool:
    """Whether instances of a class are leaves."""
    is_nest = issubclass(kind, (Mapping, list, tuple)) or dataclasses.is_dataclass(kind)
    return not is_nest or issubclass(kind, TensorSpec)


_is_leaf: Callable[[type], bool] = lru_cache(maxsize=256)(_is_leaf_class)


def flatten(structure: Any) -> list[Any]:
    """The leaves of nested lists, tuples, named tuples, mappings and data classes, in order."""
    if _is_leaf(type(structure)):
        return [structure]
    if isinstance(structure, Mapping):
        return [leaf for value in structure.values() for leaf in flatten(value)]
    if is_record(structure):
        return flatten(fields_of(structure))
    return [leaf for value in structure for leaf in flatten(value)]


def pack(structure: Any, leaves: Iterator[Any]) -> Any:
    """A structure like `structure` with its leaves replaced, in order."""
    if _is_leaf(type(structure)):
        return next(leaves)
    if isinstance(structure, Mapping):
        packed = {key: pack(value, leaves) for key, value in structure.items()}
        if type(structure) is dict or not isinstance(structure, MutableMapping):
            return packed
        result = copy.copy(structure)  # keeps what else the mapping is: its order, its default
        result.update(packed)
        return result
    if is_record(structure):
        return with_fields(structure, pack(fields_of(structure), leaves))
    if isinstance(structure, tuple):
        items = [pack(value, leaves) for value in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else tuple(items)
    return [pack(value, leaves) for value in structure]


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Applies a function to every leaf."""
    return pack(structure, iter([function(leaf) for leaf in flatten(structure)]))
