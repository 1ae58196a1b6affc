"""Nests of inputs against the nest they have to look like, with names for the leaves.

A nest is made of mappings, lists, tuples, named tuples and data classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.runtime.nest import fields_of, is_record, with_fields


def named_leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves with their names, as `inputs['images']` or `inputs[0]`, in the order of `nest.flatten`."""
    if isinstance(structure, Mapping):
        for key, value in structure.items():
            yield from named_leaves(value, f"{name}[{key!r}]")
    elif isinstance(structure, (list, tuple)):
        fields = getattr(structure, "_fields", None)
        for place, value in enumerate(structure):
            yield from named_leaves(value, f"{name}.{fields[place]}" if fields else f"{name}[{place}]")
    elif is_record(structure):
        for field, value in fields_of(structure).items():
            yield from named_leaves(value, f"{name}.{field}")
    else:
        yield name, structure


def leaves_like(reference: Any, structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a structure that is built like `reference`, in its order.

    Raises InvalidArgumentError naming where they differ.
    """
    if isinstance(reference, Mapping):
        if not isinstance(structure, Mapping) or set(structure) != set(reference):
            raise _differs(name, f"a dictionary with {_keys(reference)}", structure)
        for key, value in reference.items():
            yield from leaves_like(value, structure[key], f"{name}[{key!r}]")
    elif isinstance(reference, (list, tuple)):
        if not isinstance(structure, (list, tuple)) or len(structure) != len(reference):
            raise _differs(name, f"a {type(reference).__name__} of {len(reference)}", structure)
        fields = getattr(reference, "_fields", None)
        for place, (value, given) in enumerate(zip(reference, structure, strict=True)):
            yield from leaves_like(value, given, f"{name}.{fields[place]}" if fields else f"{name}[{place}]")
    elif is_record(reference):
        if type(structure) is not type(reference):
            raise _differs(name, f"a {type(reference).__name__}", structure)
        given = fields_of(structure)
        for field, value in fields_of(reference).items():
            yield from leaves_like(value, given[field], f"{name}.{field}")
    elif isinstance(structure, (Mapping, tuple)) or is_record(structure):
        raise _differs(name, "an array", structure)
    else:
        yield name, structure


def map_leaves(function: Callable[[str, Any], Any], structure: Any, name: str) -> Any:
    """The same nest, each leaf replaced by what `function(name of the leaf, leaf)` gives."""
    if isinstance(structure, Mapping):
        return {key: map_leaves(function, value, f"{name}[{key!r}]") for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        fields = getattr(structure, "_fields", None)
        values = [
            map_leaves(function, value, f"{name}.{fields[place]}" if fields else f"{name}[{place}]")
            for place, value in enumerate(structure)
        ]
        if isinstance(structure, list):
            return values
        return type(structure)(*values) if fields else tuple(values)
    if is_record(structure):
        named = {f: map_leaves(function, v, f"{name}.{f}") for f, v in fields_of(structure).items()}
        return with_fields(structure, named)
    return function(name, structure)


def _keys(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(repr(key) for key in mapping) or "no keys"


def _differs(name: str, expected: str, got: Any) -> InvalidArgumentError:
    if isinstance(got, Mapping):
        what = f"a dictionary with {_keys(got)}"
    elif isinstance(got, (list, tuple)):
        what = f"a {type(got).__name__} of {len(got)}"
    else:
        what = type(got).__name__
    return InvalidArgumentError(
        f"{name}: expected {expected} as in the first batch, got {what}; "
        "give every batch and every replica the same structure"
    )
