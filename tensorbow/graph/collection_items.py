"""Items of collections as JSON: operations and tensors by name, numbers, texts, registered types, lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.attribute_json import DEEPEST, decode_attribute, encode_attribute
from tensorbow.graph.operation import Operation, Tensor

Lookup = Callable[[str], "Operation | Tensor"]  # an element by its name; raises NotFoundError


@dataclass(frozen=True)
class _ItemType:
    python_type: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any, Lookup], Any]


_types: dict[str, _ItemType] = {}


@dataclass(frozen=True)
class LaterItem:
    """An item that can be made once all others of an imported graph are in it, such as a saver."""

    make: Callable[[], Any]

    @cached_property
    def item(self) -> Any:
        """The item, made once."""
        return self.make()


def register_collection_item(
    kind: str, python_type: type, encode: Callable[[Any], Any], decode: Callable[[Any, Lookup], Any]
) -> None:
    """Registers how items of a type are written with their graph.

    encode(item): JSON that names the operations the item consists of, or None if it cannot be written.
    decode(content, lookup): the item, or a `LaterItem`.
    """
    _types[kind] = _ItemType(python_type, encode, decode)


def encode_item(item: Any, depth: int = 0) -> dict[str, Any] | None:
    """A collection's item as JSON; None for an item that cannot be saved."""
    if isinstance(item, Tensor):
        return {"tensor": item.name}
    if isinstance(item, Operation):
        return {"operation": item.name}
    for kind, known in _types.items():
        if type(item) is known.python_type:
            content = known.encode(item)
            return None if content is None else {kind: content}
    try:
        return {"value": encode_attribute(item)}
    except InvalidArgumentError:
        return _encode_nested(item, depth) if depth < DEEPEST else None


def _encode_nested(item: Any, depth: int) -> dict[str, Any] | None:
    """A list, tuple or dictionary by text of items."""
    if type(item) in (list, tuple):
        entries = [encode_item(each, depth + 1) for each in item]
        return None if None in entries else {type(item).__name__: entries}
    if type(item) is dict and all(type(key) is str for key in item):
        found = {key: encode_item(each, depth + 1) for key, each in item.items()}
        return None if None in found.values() else {"dict": found}
    return None


def decode_item(entry: Any, lookup: Lookup) -> Any:
    """The reverse of `encode_item`. Raises InvalidArgumentError or NotFoundError."""
    if not isinstance(entry, dict) or len(entry) != 1:
        raise InvalidArgumentError("expected an object with one key")
    ((kind, content),) = entry.items()
    if kind == "value":
        return decode_attribute(content)
    if kind in ("tensor", "operation"):
        element = lookup(content)
        if isinstance(element, Tensor) != (kind == "tensor"):
            raise InvalidArgumentError(f"'{content}' is no {kind}")
        return element
    if kind == "dict" and isinstance(content, dict):
        return {key: decode_item(each, lookup) for key, each in content.items()}
    if kind in ("list", "tuple") and isinstance(content, list):
        items = [decode_item(each, lookup) for each in content]
        return tuple(items) if kind == "tuple" else items
    if kind not in _types:
        raise InvalidArgumentError(f"'{kind[:40]}' is no kind of item")
    return _types[kind].decode(content, lookup)
