"""Items of collections as JSON: operations and tensors by name, numbers and texts, and registered types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph.attribute_json import decode_attribute, encode_attribute
from tensorbow.graph.operation import Operation, Tensor

Lookup = Callable[[str], "Operation | Tensor"]  # an element by its name; raises NotFoundError


@dataclass(frozen=True)
class _ItemType:
    python_type: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any, Lookup], Any]


_types: dict[str, _ItemType] = {}


def register_collection_item(
    kind: str, python_type: type, encode: Callable[[Any], Any], decode: Callable[[Any, Lookup], Any]
) -> None:
    """Registers how items of a type are written with their graph.

    encode(item): JSON that names the operations the item consists of; decode(content, lookup): the item.
    """
    _types[kind] = _ItemType(python_type, encode, decode)


def encode_item(item: Any) -> dict[str, Any] | None:
    """A collection's item as JSON; None for an item that cannot be saved."""
    if isinstance(item, Tensor):
        return {"tensor": item.name}
    if isinstance(item, Operation):
        return {"operation": item.name}
    for kind, known in _types.items():
        if type(item) is known.python_type:
            return {kind: known.encode(item)}
    try:
        return {"value": encode_attribute(item)}
    except InvalidArgumentError:
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
    if kind not in _types:
        raise InvalidArgumentError(f"'{kind[:40]}' is no kind of item")
    return _types[kind].decode(content, lookup)
