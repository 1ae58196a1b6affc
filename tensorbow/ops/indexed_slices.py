"""Sparse rows of a large tensor, zero elsewhere: the gradient of `gather`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Graph, Operation, Tensor, as_numbers, as_tensor, name_scope
from tensorbow.kinds import AsDType, Name, checked
from tensorbow.ops.arrays import concat
from tensorbow.ops.selection import cast
from tensorbow.specs import DType, TensorShape, TensorSpec, as_dims, int64

__all__ = ["IndexedSlices", "IndexedSlicesValue", "convert_to_tensor_or_indexed_slices"]


class IndexedSlicesValue(NamedTuple):
    """The value of an `IndexedSlices`: what fetching one gives, and what it may be fed with.

    values: [n, ...]; indices: [n]; dense_shape: [rank], None where the IndexedSlices has none.
    """

    values: Any
    indices: Any
    dense_shape: Any = None


class IndexedSlices:
    """The tensor of shape `dense_shape` with `values[i]` at row `indices[i]` and zeros elsewhere.

    Rows with equal indices add up; a row with the index -1 stands for none. It converts to a dense tensor
    where one is expected; optimisers with sparse updates apply the rows alone. A session gives a
    `tb.IndexedSlicesValue` for it, and takes one as its feed.
    """

    @checked
    def __init__(self, values: Any, indices: Any, dense_shape: Any = None):
        """`values` `[n, ...]`, `indices` `[n]` of integers, `dense_shape` `[rank]` if known.

        Raises InvalidArgumentError unless the indices are an integer vector.
        """
        self.values: Tensor = as_numbers(values)
        with self.values.graph.as_default():
            self.indices: Tensor = as_numbers(indices)
            self.dense_shape: Tensor | None = None if dense_shape is None else as_numbers(dense_shape)
        if not self.indices.dtype.is_integer or self.indices.shape.ndims not in (1, None):
            raise InvalidArgumentError(
                f"IndexedSlices: indices are {self.indices.spec}, expected a vector of integers"
            )

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.values.dtype

    @property
    def op(self) -> Operation:
        """The operation that makes the values."""
        return self.values.op

    @property
    def graph(self) -> Graph:
        """The graph of its tensors."""
        return self.values.graph

    @property
    def name(self) -> str:
        """The name of its `values`."""
        return self.values.name

    @property
    def spec(self) -> TensorSpec:
        """Static shape and dtype of the dense tensor."""
        known = None if self.dense_shape is None else self.dense_shape.spec.value
        if known is not None:
            return TensorSpec(as_dims(known), self.dtype)
        values = self.values.spec.shape
        return TensorSpec(None if values is None else (None, *values[1:]), self.dtype)

    @property
    def shape(self) -> TensorShape:
        """Static shape of the dense tensor."""
        return TensorShape(self.spec.shape)

    @checked
    def with_values(self, values: Any) -> IndexedSlices:
        """The same rows with other values."""
        return IndexedSlices(values, self.indices, self.dense_shape)

    def _as_graph_element(self) -> Tensor:
        return self.values  # for control dependencies

    def __repr__(self) -> str:
        return f"<tb.IndexedSlices values={self.values.name} indices={self.indices.name} {self.spec}>"


def add_slices(terms: Sequence[IndexedSlices]) -> IndexedSlices:
    """The sum: concatenates the rows of all terms."""
    first = terms[0]
    if len(terms) == 1:
        return first
    with first.graph.as_default(), name_scope("add_slices"):
        indices = [t.indices for t in terms]
        if len({i.dtype for i in indices}) > 1:
            indices = [cast(i, int64) for i in indices]
        shapes = [t.dense_shape for t in terms if t.dense_shape is not None]
        return IndexedSlices(
            concat([t.values for t in terms], 0), concat(indices, 0), shapes[0] if shapes else None
        )


@checked
def convert_to_tensor_or_indexed_slices(
    value: Any, dtype: AsDType | None = None, name: Name = None
) -> Tensor | IndexedSlices:
    """The value as a tensor of the default graph, or an IndexedSlices as it is.

    Raises InvalidArgumentError for an IndexedSlices of another dtype than the given one.
    """
    if not isinstance(value, IndexedSlices):
        return as_tensor(value, dtype, name)
    if dtype is not None and dtype != value.dtype:
        raise InvalidArgumentError(
            f"convert_to_tensor_or_indexed_slices: {value!r}, expected {dtype.name}; cast its values"
        )
    return value
