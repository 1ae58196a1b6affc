"""Batches of elements of different shapes, padded at their ends to one shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.kinds import SHAPE, RefusedError, refuse
from tensorbow.nest import flatten, flatten_like, named_leaves, pack
from tensorbow.specs import Array, TensorShape

Dims: TypeAlias = tuple["int | None", ...]
_ACCEPTED = {"b": "b", "i": "biu", "u": "biu", "c": "biufc"}  # kinds of values, by kind of the elements


class LeafPadding(NamedTuple):
    """Padding of one leaf of the elements.

    dims: extents to pad to, each None for the largest in the batch; None for all of them pads every axis so.
    value: of the added elements.
    """

    dims: Dims | None
    value: Any


def paddings_of(element: Any, shapes: Any, values: Any) -> list[LeafPadding]:
    """The padding of each leaf of an element.

    shapes: a nest of shapes like the element, or None. values: a nest of scalars like the element, or one
    scalar for all leaves, or None for zeros and empty strings. Raises InvalidArgumentError.
    """
    names = [name for name, _ in named_leaves(element, "element")]
    of_shapes = [None] * len(names) if shapes is None else _parts(element, shapes, "padded_shapes")
    plain = values is None or not isinstance(values, (Mapping, list, tuple))
    of_values = [values] * len(names) if plain else _parts(element, values, "padding_values")
    found = []
    for name, leaf, shape, value in zip(names, flatten(element), of_shapes, of_values, strict=True):
        dims = None if shape is None else _dims(name, leaf, shape)
        found.append(LeafPadding(dims, _value(name, np.asarray(leaf), value)))
    return found


def padded(group: Sequence[Any], first: Any, paddings: Sequence[LeafPadding]) -> Any:
    """A batch of elements like the first one, whose paddings these are.

    Raises InvalidArgumentError for elements that do not fit.
    """
    columns = [flatten_like(first, each, "padded_batch: element") for each in group]
    names = [name for name, _ in named_leaves(first, "element")]
    leaves = zip(names, zip(*columns, strict=True), paddings, strict=True)
    return pack(first, iter([_stacked(name, column, padding) for name, column, padding in leaves]))


def batch_dims(paddings: Sequence[LeafPadding], first: Any) -> list[list[int | None]]:
    """Extents of the leaves of all batches, None where they differ. first: an element."""
    found = []
    for padding, leaf in zip(paddings, flatten(first), strict=True):
        dims = (None,) * np.ndim(leaf) if padding.dims is None else padding.dims
        found.append([None, *dims])
    return found


def are_fixed(shapes: Any) -> bool:
    """True for a nest of shapes without unknown extents."""
    if isinstance(shapes, Mapping):
        return all(map(are_fixed, shapes.values()))
    if isinstance(shapes, (list, tuple, TensorShape)):
        return all(map(are_fixed, shapes))
    return isinstance(shapes, np.ndarray) or shapes not in (None, -1)


def _parts(element: Any, nest: Any, argument: str) -> list[Any]:
    """Parts of a nest at the places of an element's leaves; they may be lists themselves."""
    if isinstance(element, Mapping):
        if not isinstance(nest, Mapping) or nest.keys() != element.keys():
            expected = f"a dictionary with {', '.join(map(repr, element)) or 'no keys'}, as the elements"
            raise refuse("padded_batch", argument, expected, nest)
        return [part for key in element for part in _parts(element[key], nest[key], argument)]
    if isinstance(element, (list, tuple)):
        if not isinstance(nest, (list, tuple)) or len(nest) != len(element):
            raise refuse("padded_batch", argument, f"{len(element)} parts, as the elements have", nest)
        pairs = zip(element, nest, strict=True)
        return [part for own, other in pairs for part in _parts(own, other, argument)]
    if dataclasses.is_dataclass(element):
        raise refuse("padded_batch", argument, "elements that are tuples, lists or dictionaries", element)
    return [nest]


def _dims(name: str, leaf: Any, shape: Any) -> Dims:
    try:
        dims = SHAPE.read([None if each == -1 else each for each in shape]).as_list()
    except (TypeError, ValueError, RefusedError) as error:
        expected = f"a shape for {name}, as [None, 3], with None for the largest extent of a batch"
        raise refuse("padded_batch", "padded_shapes", expected, shape) from error
    if len(dims) != np.ndim(leaf):
        raise InvalidArgumentError(
            f"padded_batch: padded_shapes: expected {np.ndim(leaf)} extents for {name} "
            f"{list(np.shape(leaf))}, got {dims}"
        )
    return tuple(dims)


def _value(name: str, leaf: Array, value: Any) -> Any:
    """The value in the leaf's dtype. Raises InvalidArgumentError for one that it cannot hold."""
    kind = leaf.dtype.kind
    if value is None:
        return b"" if kind in "SO" else leaf.dtype.type()
    given = np.asarray(value)
    accepted = "SU" if kind in "SUO" else _ACCEPTED.get(kind, "biuf")
    if given.ndim or given.dtype.kind not in accepted:
        raise refuse("padded_batch", "padding_values", f"a scalar {leaf.dtype} for {name}", value)
    if kind in "SUO":
        return value.encode() if kind != "U" and isinstance(value, str) else value
    with np.errstate(all="ignore"):
        converted = given.astype(leaf.dtype)
    if kind in "iu" and converted != given:
        raise refuse("padded_batch", "padding_values", f"a scalar {leaf.dtype} for {name}", value)
    return converted


def _stacked(name: str, column: Sequence[Any], padding: LeafPadding) -> Array:
    arrays = [np.asarray(leaf) for leaf in column]
    shapes = [array.shape for array in arrays]
    ranks = sorted({len(shape) for shape in shapes})
    if len(ranks) > 1:
        raise InvalidArgumentError(
            f"padded_batch: expected elements of one rank, got {name} of {' and '.join(map(str, ranks))} axes"
        )
    largest = [max(extents) for extents in zip(*shapes, strict=True)]
    dims = [None] * ranks[0] if padding.dims is None else padding.dims
    extents = [most if dim is None else dim for dim, most in zip(dims, largest, strict=True)]
    if any(most > extent for most, extent in zip(largest, extents, strict=True)):
        shape = next(shape for shape in shapes if any(a > b for a, b in zip(shape, extents, strict=True)))
        raise InvalidArgumentError(
            f"padded_batch: padded_shapes: expected {name} to have at most {extents}, got {list(shape)}; "
            "give larger extents, or None for the largest of a batch"
        )
    dtype = np.result_type(*arrays) if arrays[0].dtype.kind in "SU" else arrays[0].dtype
    dtype = np.result_type(dtype, np.asarray(padding.value)) if dtype.kind in "SU" else dtype
    batch = np.full((len(arrays), *extents), padding.value, dtype)
    for number, array in enumerate(arrays):
        if array.dtype != dtype and dtype.kind not in "SU":
            raise InvalidArgumentError(
                f"padded_batch: expected elements of one dtype, got {name} {dtype} and {array.dtype}"
            )
        place: Any = (number, *map(slice, array.shape))
        batch[place] = array
    return batch
