"""Lookup and checks of fetches and feeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

from tensorbow.errors import InvalidArgumentError, NotFoundError
from tensorbow.graph import Graph, Operation, Tensor
from tensorbow.kinds import refuse, shown
from tensorbow.missing_names import listed
from tensorbow.nest import flatten, pack
from tensorbow.ops.constant import to_array
from tensorbow.ops.control import Placeholder
from tensorbow.ops.indexed_slices import IndexedSlices, IndexedSlicesValue
from tensorbow.ops.sparse_tensors import SparseTensor
from tensorbow.queues import TensorHandle, takes_handle
from tensorbow.specs import Array, TensorSpec, compatible, render_dims

GraphElements: TypeAlias = Sequence[Tensor | Operation]
MOST_NAMES = 10  # placeholders named by an error
_OF_SEVERAL = {SparseTensor, IndexedSlices}  # made of several tensors, each of which is fed


@dataclass(frozen=True)
class _SlicesFetch:
    """The tensors of a fetched IndexedSlices. parts: values, indices, and the dense shape if it has one."""

    parts: tuple[Any, ...]

    def _packed(self, values: Sequence[Any]) -> IndexedSlicesValue:
        """The fetched value, in its place in the nest of fetches."""
        return IndexedSlicesValue(*values[0])


class Arguments:
    """Converts fetches and feeds to elements and arrays of one graph. Errors begin with `fetch` or `feed`."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def fetch_list(self, fetches: Any, call: str = "run") -> tuple[Any, list[Tensor | Operation]]:
        """A nest to pack the fetched values in, and the element of each of its leaves.

        Raises InvalidArgumentError or NotFoundError.
        """
        leaves = flatten(fetches)
        if IndexedSlices in map(type, leaves):
            fetches = pack(fetches, map(_opened, leaves))
            leaves = flatten(fetches)
        return fetches, [self.fetched(leaf, call) for leaf in leaves]

    def fetched(self, item: Any, call: str = "run") -> Tensor | Operation:
        """The element to fetch. Raises InvalidArgumentError or NotFoundError."""
        return self._element(item, call, "fetches")

    def fed(self, key: Any, call: str = "run", argument: str = "feed_dict") -> Tensor:
        """The tensor to feed. Raises InvalidArgumentError or NotFoundError."""
        element = self._element(key, call, argument)
        if isinstance(element, Tensor):
            return element
        remedy = f"; feed its tensor '{element.name}:0'" if element.outputs else ""
        raise InvalidArgumentError(f"feed {element.name}: an operation cannot be fed{remedy}")

    def _element(self, item: Any, call: str, argument: str) -> Tensor | Operation:
        if isinstance(item, (Tensor, Operation)) and item.graph is self._graph:
            return item
        try:
            return self._graph._element_of(item, call, argument)
        except NotFoundError as error:
            if argument != "feed_dict" or "did you mean" in str(error):
                raise
            raise NotFoundError(f"{error}; {self._placeholders()}") from None

    def _placeholders(self) -> str:
        """The names of the graph's placeholders, as text."""
        names = [f"'{op.name}'" for op in self._graph.get_operations() if op.definition is Placeholder]
        return f"placeholders are {listed(names, MOST_NAMES)}" if names else "it has no placeholders"

    def feeds(self, feed_dict: Mapping[Any, Any]) -> dict[Tensor, Array]:
        """The fed arrays, by tensor. Raises InvalidArgumentError for values that do not fit."""
        return {tensor: self.value(tensor, value) for tensor, value in self.named(feed_dict).items()}

    def named(self, feed_dict: Mapping[Any, Any], call: str = "run") -> dict[Tensor, Any]:
        """The fed values, unconverted, by tensor. Raises what `fed` raises."""
        if not isinstance(feed_dict, Mapping):
            raise refuse(call, "feed_dict", "a dictionary of values by tensor or name", feed_dict)
        for key in feed_dict:
            if type(key) is not Tensor and isinstance(key, (SparseTensor, IndexedSlices, tuple)):
                break
        else:
            return dict(zip(self.feed_list(feed_dict, call), feed_dict.values(), strict=True))
        pairs = [
            pair
            for key, value in feed_dict.items()
            for one, of_one in _leaves_of(key, value)
            for pair in (parts_of(one, of_one) if type(one) in _OF_SEVERAL else [(one, of_one)])
        ]
        return dict(zip(self.feed_list([k for k, _ in pairs], call), [v for _, v in pairs], strict=True))

    def feed_list(self, keys: Iterable[Any], call: str = "run", argument: str = "feed_dict") -> list[Tensor]:
        """The tensors to feed; raises InvalidArgumentError for a repeated one."""
        tensors = [self.fed(key, call, argument) for key in keys]
        if len(set(tensors)) < len(tensors):
            twice = next(t for t in tensors if tensors.count(t) > 1)
            raise InvalidArgumentError(f"feed {twice.name}: it is fed twice; give one value")
        return tensors

    def value(self, tensor: Tensor, value: Any) -> Array:
        """An array of the tensor's dtype and of a compatible shape. Raises InvalidArgumentError."""
        if hasattr(value, "graph"):
            raise InvalidArgumentError(
                f"feed {tensor.name}: {shown(value)} cannot be fed; run it first and feed its value"
            )
        if tensor.dtype.is_string and isinstance(value, TensorHandle) and takes_handle(tensor):
            value = value.to_raw_string()
        try:
            array = to_array(value, tensor.dtype)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"feed {tensor.name}: {error} (made at {tensor.op.source})") from None
        if not compatible(tensor.spec.shape, array.shape):
            raise InvalidArgumentError(
                f"feed {tensor.name}: expected shape {tensor.shape}, got {render_dims(array.shape)}; "
                f"{_remedy_of_shape(tensor, array.shape)} (made at {tensor.op.source})"
            )
        return array

    def shapes(self, feed_dict: Mapping[Any, Any]) -> dict[Tensor, tuple[int, ...]]:
        """The fed shapes; a `TensorSpec` may stand for a value."""
        return {
            tensor: self._shape(tensor, value) for tensor, value in self.named(feed_dict, "explain").items()
        }

    def _shape(self, tensor: Tensor, value: Any) -> tuple[int, ...]:
        if not isinstance(value, TensorSpec):
            shape: tuple[int, ...] = self.value(tensor, value).shape
            return shape
        if value.dtype != tensor.dtype or not compatible(tensor.spec.shape, value.shape):
            raise InvalidArgumentError(f"feed {tensor.name}: expected {tensor.spec}, got {value}")
        if not value.is_static:
            raise InvalidArgumentError(f"feed {tensor.name}: {value} must be fully known to plan a step")
        return value.extents


def _leaves_of(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """Pairs of keys and values; of a tuple, such as the state of a cell, those of its leaves.

    Raises InvalidArgumentError for a value of another structure.
    """
    if not isinstance(key, tuple):
        return [(key, value)]
    if not isinstance(value, (tuple, list)) or len(value) != len(key):
        raise InvalidArgumentError(
            f"feed {shown(key)}: expected a value of the same structure, {len(key)} parts, got {shown(value)}"
        )
    return [pair for one, part in zip(key, value, strict=True) for pair in _leaves_of(one, part)]


def _opened(leaf: Any) -> Any:
    if type(leaf) is not IndexedSlices:
        return leaf
    shape = () if leaf.dense_shape is None else (leaf.dense_shape,)
    return _SlicesFetch((leaf.values, leaf.indices, *shape))


def parts_of(key: SparseTensor | IndexedSlices, value: Any) -> list[tuple[Tensor, Any]]:
    """The fed tensors of a sparse tensor or of IndexedSlices, and their values.

    Raises InvalidArgumentError unless the value has as many parts, and for another shape than a constant one.
    """
    shape = key.dense_shape
    if isinstance(key, SparseTensor):
        tensors, expected = [key.indices, key.values], "tb.SparseTensorValue(indices, values, dense_shape)"
    else:
        tensors, expected = [key.values, key.indices], "tb.IndexedSlicesValue(values, indices, dense_shape)"
    count = 3 if shape is not None or isinstance(value, IndexedSlicesValue) else 2
    if not isinstance(value, (tuple, list)) or len(value) != count:
        raise InvalidArgumentError(f"feed {key!r}: expected {expected}, got {shown(value)}")
    pairs = list(zip(tensors, value, strict=False))
    if shape is None:
        return pairs
    known = shape.spec.value
    if known is None:
        return [*pairs, (shape, value[2])]
    if value[2] is None or [*known] != [*value[2]]:
        raise InvalidArgumentError(
            f"feed {key!r}: expected dense_shape {known.tolist()}, got {shown(value[2])}"
        )
    return pairs


def _remedy_of_shape(tensor: Tensor, extents: tuple[int, ...]) -> str:
    """Remedy for a fed value of another shape than the tensor's."""
    dims = tensor.spec.shape or ()
    if len(dims) == len(extents) > 0 and compatible(dims[1:], extents[1:]):
        open_dims = ", ".join(map(str, (None, *dims[1:])))
        return f"for batches of any size give the placeholder the shape [{open_dims}]"
    if len(dims) == len(extents) == 4 and compatible(dims[1:], (*extents[2:], extents[1])):
        return "pictures have their channels last: give numpy.transpose(value, (0, 2, 3, 1))"
    return "reshape the value, or give the placeholder another shape"


def is_made_after(element: Tensor | Operation, fed: Collection[Tensor]) -> TypeGuard[Tensor]:
    """True for a fetch that is made on the host, of values that a step computes, such as a summary."""
    return isinstance(element, Tensor) and element.op.definition.fetched is not None and element not in fed


def computed_for(elements: GraphElements, fed: Collection[Tensor]) -> list[Tensor | Operation]:
    """The elements that a step computes for these fetches."""
    computed: list[Tensor | Operation] = []
    for element in elements:
        if is_made_after(element, fed):
            computed += computed_for(element.op.inputs, fed)
        else:
            computed.append(element)
    return computed


def made_of(elements: GraphElements, fed: Collection[Tensor], values: Iterator[Any]) -> list[Any]:
    """The values of fetches from those of `computed_for`."""
    made: list[Any] = []
    for element in elements:
        if is_made_after(element, fed):
            op = element.op
            made.append(op.definition.fetched(op, made_of(op.inputs, fed, values)))  # type: ignore[misc]
        else:
            made.append(next(values))
    return made
