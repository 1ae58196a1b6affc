"""Nested structures: mappings, lists, tuples, named tuples and data classes; everything else is a leaf.

A leaf has a path, as `inputs['images']`, `inputs[0]` or `inputs.images`, for messages.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.specs import TensorSpec


def _is_leaf_class(kind: type) -> bool:
    is_nest = issubclass(kind, (Mapping, list, tuple)) or dataclasses.is_dataclass(kind)
    return not is_nest or issubclass(kind, TensorSpec)


_is_leaf: Callable[[type], bool] = lru_cache(maxsize=256)(_is_leaf_class)


def flatten(structure: Any) -> list[Any]:
    """The leaves, in order."""
    if _is_leaf(type(structure)):
        return [structure]
    leaves = []
    for value in _values(structure):
        if _is_leaf(type(value)):
            leaves.append(value)
        else:
            leaves += flatten(value)
    return leaves


def named_leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves with their paths, in the order of `flatten`; `name` is the path of the structure."""
    if _is_leaf(type(structure)):
        yield name, structure
        return
    for step, value in zip(_steps(structure), _values(structure), strict=True):
        yield from named_leaves(value, name + step)


def leaves_like(
    reference: Any, structure: Any, name: str, like: str = "the first batch"
) -> Iterator[tuple[str, Any]]:
    """Leaves, with paths, of a structure like `reference`, in its order. like: what that is, in words.

    A list instead of a leaf of `reference` is a leaf, too: it may be an array of numbers.
    Raises InvalidArgumentError naming the path if they differ.
    """
    if _is_leaf(type(reference)):
        if not _is_leaf(type(structure)) and not isinstance(structure, list):
            raise _differs(name, "an array", structure, like)
        yield name, structure
        return
    if isinstance(reference, Mapping):
        fits = isinstance(structure, Mapping) and set(structure) == set(reference)
    elif isinstance(reference, (list, tuple)):
        fits = isinstance(structure, (list, tuple)) and len(structure) == len(reference)
    else:
        fits = type(structure) is type(reference)
    if not fits:
        raise _differs(name, _described(reference), structure, like)
    is_mapping = isinstance(reference, Mapping)
    given = [structure[key] for key in reference] if is_mapping else _values(structure)
    for step, value, other in zip(_steps(reference), _values(reference), given, strict=True):
        yield from leaves_like(value, other, name + step, like)


def flatten_like(reference: Any, structure: Any, name: str, like: str = "the first one") -> list[Any]:
    """The leaves of a structure like `reference`, in its order, also where dictionaries have another one.

    Raises InvalidArgumentError as `leaves_like`.
    """
    return [leaf for _, leaf in leaves_like(reference, structure, name, like)]


def pack(structure: Any, leaves: Iterator[Any]) -> Any:
    """A structure like `structure` with its leaves replaced, in order."""
    if _is_leaf(type(structure)):
        return next(leaves)
    values = [next(leaves) if _is_leaf(type(value)) else pack(value, leaves) for value in _values(structure)]
    if isinstance(structure, Mapping):
        packed = dict(zip(structure, values, strict=True))
        if type(structure) is dict or not isinstance(structure, MutableMapping):
            return packed
        result = copy.copy(structure)  # keeps the mapping's type, order and default
        result.update(packed)
        return result
    if isinstance(structure, list):
        return values
    if isinstance(structure, tuple):
        return type(structure)(*values) if hasattr(structure, "_fields") else tuple(values)
    if hasattr(structure, "_packed"):  # a class that says what stands in its place
        return structure._packed(values)
    result = copy.copy(structure)  # bypasses the class's constructor
    for field, value in zip(dataclasses.fields(structure), values, strict=True):
        object.__setattr__(result, field.name, value)  # works for frozen classes, too
    return result


def map_leaves(function: Callable[[str, Any], Any], structure: Any, name: str) -> Any:
    """The same structure, each leaf replaced by `function(path, leaf)`."""
    return pack(structure, iter([function(path, leaf) for path, leaf in named_leaves(structure, name)]))


def _values(structure: Any) -> Sequence[Any]:
    if isinstance(structure, Mapping):
        return list(structure.values())
    if isinstance(structure, (list, tuple)):
        return structure
    return [getattr(structure, field.name) for field in dataclasses.fields(structure)]


def _steps(structure: Any) -> list[str]:
    """The path step to each of the values."""
    if isinstance(structure, Mapping):
        return [f"[{key!r}]" for key in structure]
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return [f".{field}" for field in structure._fields]
    if isinstance(structure, (list, tuple)):
        return [f"[{number}]" for number in range(len(structure))]
    return [f".{field.name}" for field in dataclasses.fields(structure)]


def _described(structure: Any) -> str:
    if isinstance(structure, Mapping):
        return f"a dictionary with {', '.join(map(repr, structure)) or 'no keys'}"
    kind = type(structure).__name__
    return f"a {kind} of {len(structure)}" if isinstance(structure, (list, tuple)) else kind


def _differs(name: str, expected: str, got: Any, like: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name}: expected {expected} as in {like}, got {_described(got)}; give it the same structure"
    )
