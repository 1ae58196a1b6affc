"""Sparse tensors: coordinates, values and a dense shape, as in TensorFlow's `SparseTensor`.

They are computed by gathers and sums by segment, so that gradients reach `values` and dense operands. Only a
run may know the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Graph,
    Operation,
    Tensor,
    as_tensor,
    control_dependencies,
    graph_of,
    name_scope,
    require_session,
)
from tensorbow.kinds import AsDType, Name, checked, instance, refuse
from tensorbow.ops.argument_kinds import StaticShape
from tensorbow.ops.arrays import expand_dims, reshape, stack
from tensorbow.ops.broadcasting import checked_axis, shape, size
from tensorbow.ops.checks import AssertOp
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity, placeholder
from tensorbow.ops.cumulative import cumprod
from tensorbow.ops.definition import require_dtype
from tensorbow.ops.elementwise import (
    divide,
    equal,
    floordiv,
    greater,
    greater_equal,
    less,
    logical_and,
    logical_or,
    maximum,
    mod,
    multiply,
    negative,
)
from tensorbow.ops.filling import range as range_of
from tensorbow.ops.indexing import gather
from tensorbow.ops.reductions import reduce_all, reduce_any, reduce_prod, reduce_sum
from tensorbow.ops.selection import cast
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import DimensionShape, DType, TensorShape, compatible, float32, int32, int64

__all__ = ["SparseTensor", "SparseTensorValue", "sparse_placeholder"]


class SparseTensorValue(NamedTuple):
    """The value of a `SparseTensor`: what fetching one gives, and what it may be fed with.

    indices: int64 [n, rank]; values: [n]; dense_shape: int64 [rank].
    """

    indices: Any
    values: Any
    dense_shape: Any


@dataclass(frozen=True, eq=False, init=False)
class SparseTensor:
    """A tensor of `dense_shape` with `values[i]` at `indices[i]`, and zeros elsewhere.

    indices: int64 [n, rank], in row-major order for most functions (`tb.sparse_reorder` makes it) and without
    equal rows; values: [n]; dense_shape: int64 [rank]. Arrays and lists become constants. A session gives a
    `tb.SparseTensorValue` for it, and may feed one made by `tb.sparse_placeholder`.

    Raises InvalidArgumentError for other dtypes and for ranks that do not fit.
    """

    indices: Tensor
    values: Tensor
    dense_shape: Tensor

    @checked
    def __init__(self, indices: Any, values: Any, dense_shape: Any):
        with graph_of([indices, values, dense_shape]).as_default():
            parts = {
                "indices": _of_int64("indices", indices),
                "values": as_tensor(values),
                "dense_shape": _of_int64("dense_shape", dense_shape),
            }
        for (name, tensor), expected_rank in zip(parts.items(), (2, 1, 1), strict=True):
            if tensor.shape.ndims not in (None, expected_rank):
                expected = "[n, rank], [n] and [rank]"
                raise InvalidArgumentError(f"SparseTensor: {name} is {tensor.spec}, expected {expected}")
            object.__setattr__(self, name, tensor)
        count, rank = self.indices.spec.shape or (None, None)
        lengths = [(t.spec.shape or (None,))[0] for t in (self.values, self.dense_shape)]
        if not compatible((count, rank), tuple(lengths)):
            raise InvalidArgumentError(
                f"SparseTensor: indices {self.indices.spec}, values {self.values.spec} and dense_shape "
                f"{self.dense_shape.spec}; expected [n, rank], [n] and [rank]"
            )

    def _packed(self, values: Sequence[Any]) -> Any:
        """The object in its place in a nest of these values: fetched arrays, or other tensors."""
        kind = SparseTensor if all(isinstance(value, Tensor) for value in values) else SparseTensorValue
        return kind(*values)

    def _with_values(self, values: Tensor) -> SparseTensor:
        """The sparse tensor of other values at the same coordinates."""
        return self if values is self.values else SparseTensor(self.indices, values, self.dense_shape)

    def _extents(self, name: str | None, out_type: DType) -> Tensor:
        """The result of `tb.shape`."""
        with self.graph.as_default():
            return identity(cast(self.dense_shape, out_type), name=name)

    def _size(self, name: str | None, out_type: DType) -> Tensor:
        """The result of `tb.size`."""
        with self.graph.as_default():
            return cast(reduce_prod(self.dense_shape), out_type, name=name)

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
    def rank(self) -> int | None:
        """The static rank, or None."""
        known = self.indices.spec.shape
        lengths = (known[1] if known else None, (self.dense_shape.spec.shape or (None,))[0])
        return next((extent for extent in lengths if extent is not None), None)

    @property
    def shape(self) -> TensorShape:
        """The static dense shape."""
        value = self.dense_shape.spec.value
        if value is not None:
            return TensorShape([int(extent) for extent in value])
        return TensorShape(None if self.rank is None else [None] * self.rank)

    def get_shape(self) -> TensorShape:
        """The static dense shape (TensorFlow's older name), as `Tensor.get_shape`."""
        return DimensionShape(self.shape)

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """A sparse tensor of constants, of a `tb.SparseTensorValue`; a SparseTensor is given back."""
        if not isinstance(sparse_tensor_value, (SparseTensor, SparseTensorValue)):
            expected = "a tb.SparseTensor or a tb.SparseTensorValue"
            raise refuse("SparseTensor.from_value", "sparse_tensor_value", expected, sparse_tensor_value)
        return as_sparse(sparse_tensor_value)

    def eval(self, feed_dict: Any = None, session: Any = None) -> SparseTensorValue:
        """The value, computed by the given or the default session."""
        value: SparseTensorValue = require_session(session, f"eval of {self!r}").run(self, feed_dict)
        return value

    def __mul__(self, dense: Any) -> SparseTensor:
        """The entries times the elements of a dense tensor at their places; it broadcasts to this shape."""
        return _by_dense("SparseDenseCwiseMul", multiply, self, dense)

    __rmul__ = __mul__

    def __truediv__(self, dense: Any) -> SparseTensor:
        """The entries by the elements of a dense tensor at their places; it broadcasts to this shape."""
        return _by_dense("SparseDenseCwiseDiv", divide, self, dense)

    def __repr__(self) -> str:
        return f"<tb.SparseTensor {self.values.name!r} shape={self.shape} dtype={self.dtype.name}>"


def _of_int64(name: str, value: Any) -> Tensor:
    tensor = as_tensor(value, None if hasattr(value, "dtype") else int64)
    require_dtype("SparseTensor", tensor.spec, (int32, int64), name)
    return cast(tensor, int64)


Sparse: TypeAlias = Annotated[
    Any, instance(SparseTensor, SparseTensorValue, expected="a tb.SparseTensor or a tb.SparseTensorValue")
]


def as_sparse(sparse: Any) -> SparseTensor:
    """A sparse tensor, of a value made of constants."""
    return sparse if isinstance(sparse, SparseTensor) else SparseTensor(*sparse)


def read_sparse(op: str, value: Any, argument: str = "sp_inputs") -> SparseTensor:
    """A sparse tensor or its value as a sparse tensor. Raises InvalidArgumentError for anything else."""
    if not isinstance(value, (SparseTensor, SparseTensorValue)):
        raise refuse(op, argument, "a list of sparse tensors", value)
    return as_sparse(value)


# Coordinates --------------------------------------------------------------------------------------------


def row_major_strides(dense_shape: Tensor, rank: int | None) -> Tensor:
    """Distances of neighbours along each axis in row-major order: int64 [rank]."""
    if rank is None:
        return cumprod(dense_shape, exclusive=True, reverse=True)
    steps = [reduce_prod(strided_slice(dense_shape, slice(axis + 1, None))) for axis in range(rank)]
    return stack(steps) if rank else constant([], int64)


def row_major(indices: Tensor, dense_shape: Tensor, rank: int | None) -> Tensor:
    """Row-major positions [n] of coordinates [n, rank]."""
    return reduce_sum(multiply(indices, row_major_strides(dense_shape, rank)), -1)


def coordinates_of(positions: Tensor, dense_shape: Tensor, rank: int | None) -> Tensor:
    """Coordinates [n, rank] of row-major positions [n]."""
    places = floordiv(expand_dims(positions, -1), maximum(row_major_strides(dense_shape, rank), 1))
    return mod(places, maximum(dense_shape, 1))


def columns(indices: Tensor, part: slice | int) -> Tensor:
    """A column, or some, of coordinates [n, rank]."""
    return strided_slice(indices, (slice(None), part))


def axes_mask(op: str, sparse: SparseTensor, axes: Sequence[int] | None) -> Tensor:
    """1 for the given axes, by default for all, and 0 for others: int64 [rank].

    Raises InvalidArgumentError for axes that do not fit, at run time where only a run knows the rank.
    """
    if sparse.rank is not None:
        chosen = (
            range(sparse.rank) if axes is None else [checked_axis(op, each, sparse.rank) for each in axes]
        )
        return constant([int(each in chosen) for each in range(sparse.rank)], int64)
    rank = size(sparse.dense_shape)
    given = range_of(rank) if axes is None else constant(list(axes), int32)
    fits = logical_and(greater_equal(given, negative(rank)), less(given, rank))
    message = f"{op}: axis {axes} is outside the rank of the sparse tensor"
    places = mod(required(fits, message, given), maximum(rank, 1))
    return cast(reduce_any(equal(expand_dims(range_of(rank), 1), expand_dims(places, 0)), 1), int64)


def with_rank(op: str, sparse: SparseTensor, rank: int) -> SparseTensor:
    """The sparse tensor with a static rank.

    Raises InvalidArgumentError for another one, at run time where only a run knows it.
    """
    if sparse.rank is None:
        message = f"{op}: expected a sparse tensor of rank {rank}"
        extents = required(equal(size(sparse.dense_shape), rank), message, sparse.dense_shape)
        extents.set_shape([rank])
        with control_dependencies([extents]):
            indices = identity(sparse.indices)
        indices.set_shape([None, rank])
        return SparseTensor(indices, sparse.values, extents)
    if sparse.rank != rank:
        raise InvalidArgumentError(f"{op}: expected a sparse tensor of rank {rank}, got {sparse!r}")
    return sparse


def required(condition: Tensor, message: str, tensor: Tensor) -> Tensor:
    """`tensor`, after a check of the condition at run time."""
    with control_dependencies([AssertOp(reduce_all(condition), message=message)]):
        return identity(tensor)


def _by_dense(op: str, function: Callable[..., Tensor], sparse: SparseTensor, operand: Any) -> SparseTensor:
    with sparse.graph.as_default(), name_scope(op):
        dense = as_tensor(operand, sparse.dtype)
        rank = dense.shape.ndims
        known = None if rank is None or sparse.rank is None else sparse.shape[sparse.rank - rank :]
        if rank is None or (known is not None and not _broadcasts(dense.spec.dims, known)):
            raise InvalidArgumentError(
                f"{op}: the dense tensor is {dense.spec}, expected one that broadcasts to {sparse!r}"
            )
        if not rank:
            return sparse._with_values(function(sparse.values, dense))
        extents = shape(dense, out_type=int64)
        last = strided_slice(sparse.dense_shape, slice(-rank, None))
        message = f"{op}: the dense tensor does not broadcast to the shape of the sparse one"
        places = columns(sparse.indices, slice(-rank, None))
        places = required(logical_or(equal(extents, 1), equal(extents, last)), message, places)
        inside = row_major(multiply(places, cast(greater(extents, 1), int64)), extents, rank)
        elements = gather(reshape(dense, [-1]), inside)
        return sparse._with_values(function(sparse.values, elements))


def _broadcasts(dims: Sequence[int | None], to: Sequence[int | None]) -> bool:
    return len(dims) == len(to) and all(
        n == 1 or compatible((n,), (m,)) for n, m in zip(dims, to, strict=True)
    )


@checked
def sparse_placeholder(
    dtype: AsDType = float32, shape: StaticShape = None, name: Name = None
) -> SparseTensor:
    """A sparse tensor that must be fed with a `tb.SparseTensorValue`, or with its three arrays in a tuple.

    shape: the dense shape; if it is fully known, only values of that shape may be fed. None: any.
    """
    with name_scope(name or "SparsePlaceholder"):
        rank = None if shape is None else len(shape)
        if shape is not None and None not in shape:
            dense_shape = constant(list(shape), int64)
        else:
            dense_shape = placeholder(int64, [rank], name="shape")
        indices = placeholder(int64, [None, rank], name="indices")
        return SparseTensor(indices, placeholder(dtype, [None], name="values"), dense_shape)
