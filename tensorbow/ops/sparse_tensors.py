"""Sparse tensors: coordinates, values and a dense shape, as in TensorFlow's `SparseTensor`.

They are computed by gathers and sums by segment, so that gradients reach `values` and dense operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    NOT_DIFFERENTIABLE,
    Graph,
    HostCall,
    Tensor,
    as_tensor,
    control_dependencies,
    graph_of,
    name_scope,
)
from tensorbow.kinds import (
    AsDType,
    AxisNumber,
    AxisNumbers,
    Flag,
    Items,
    Name,
    checked,
    instance,
    refuse,
)
from tensorbow.ops.argument_kinds import Extents, StaticShape
from tensorbow.ops.arrays import concat, expand_dims, reshape, stack, transpose
from tensorbow.ops.broadcasting import as_shape_vector, broadcast_to, checked_axis, ones_like, shape, size
from tensorbow.ops.checks import AssertOp
from tensorbow.ops.constant import constant
from tensorbow.ops.control import identity, placeholder
from tensorbow.ops.cumulative import cumprod
from tensorbow.ops.data_dependent import boolean_mask, unique
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import (
    add,
    divide,
    equal,
    floordiv,
    greater,
    greater_equal,
    less,
    logical_and,
    maximum,
    mod,
    multiply,
    negative,
    not_equal,
    sqrt,
    subtract,
)
from tensorbow.ops.filling import fill
from tensorbow.ops.filling import range as range_of
from tensorbow.ops.indexing import gather
from tensorbow.ops.nd_indexing import scatter_nd
from tensorbow.ops.reductions import reduce_all, reduce_prod, reduce_sum
from tensorbow.ops.segments import segment_mean, segment_sum, unsorted_segment_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import (
    Array,
    DimensionShape,
    DType,
    TensorShape,
    TensorSpec,
    compatible,
    float32,
    int32,
    int64,
)

__all__ = [
    "SparseTensor",
    "SparseTensorValue",
    "sparse_add",
    "sparse_concat",
    "sparse_placeholder",
    "sparse_reduce_sum",
    "sparse_reorder",
    "sparse_reshape",
    "sparse_retain",
    "sparse_segment_mean",
    "sparse_segment_sqrt_n",
    "sparse_segment_sum",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
    "sparse_transpose",
]


class SparseTensorValue(NamedTuple):
    """The value of a `SparseTensor`: what fetching one gives, and what it may be fed with.

    indices: int64 [n, rank]; values: [n]; dense_shape: int64 [rank].
    """

    indices: Any
    values: Any
    dense_shape: Any


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
        with graph_of([self.indices, self.values, self.dense_shape]).as_default():
            parts = {
                "indices": _of_int64("indices", self.indices),
                "values": as_tensor(self.values),
                "dense_shape": _of_int64("dense_shape", self.dense_shape),
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
        """What stands in its place in a nest of these values: fetched arrays, or other tensors."""
        kind = SparseTensor if all(isinstance(value, Tensor) for value in values) else SparseTensorValue
        return kind(*values)

    def _with_values(self, values: Tensor) -> SparseTensor:
        """The sparse tensor of other values at the same coordinates."""
        return self if values is self.values else SparseTensor(self.indices, values, self.dense_shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.values.dtype

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

    def __repr__(self) -> str:
        return f"<tb.SparseTensor {self.values.name!r} shape={self.shape} dtype={self.dtype.name}>"


def _of_int64(name: str, value: Any) -> Tensor:
    tensor = as_tensor(value, None if hasattr(value, "dtype") else int64)
    require_dtype("SparseTensor", tensor.spec, (int32, int64), name)
    return cast(tensor, int64)


Sparse: TypeAlias = Annotated[
    Any, instance(SparseTensor, SparseTensorValue, expected="a tb.SparseTensor or a tb.SparseTensorValue")
]


# Order --------------------------------------------------------------------------------------------------


def _order(call: HostCall) -> Array:
    (positions,) = call.inputs
    return np.argsort(positions, kind="stable")


Order = define_op(
    "SparseOrder",
    spec=lambda inputs, attrs: TensorSpec(inputs[0].shape, int64),
    gradient=NOT_DIFFERENTIABLE,
    host=_order,
    inputs=("positions",),
    doc="The order of rising positions, stable.",
)


def _strides(dense_shape: Tensor, rank: int | None) -> Tensor:
    """How far apart neighbours along each axis are in row-major order: int64 [rank]."""
    if rank is None:
        return cumprod(dense_shape, exclusive=True, reverse=True)
    steps = [reduce_prod(strided_slice(dense_shape, slice(axis + 1, None))) for axis in range(rank)]
    return stack(steps) if rank else constant([], int64)


def _flat(indices: Tensor, dense_shape: Tensor, rank: int | None) -> Tensor:
    """Row-major positions [n] of coordinates [n, rank]."""
    return reduce_sum(multiply(indices, _strides(dense_shape, rank)), -1)


def _unflat(positions: Tensor, dense_shape: Tensor, rank: int | None) -> Tensor:
    """Coordinates [n, rank] of row-major positions [n]."""
    places = floordiv(expand_dims(positions, -1), maximum(_strides(dense_shape, rank), 1))
    return mod(places, maximum(dense_shape, 1))


def _rank_of(op: str, sparse: SparseTensor) -> int:
    if sparse.rank is None:
        raise InvalidArgumentError(
            f"{op}: the rank of {sparse!r} is unknown; give dense_shape a known length"
        )
    return sparse.rank


def _made(sparse: Any) -> SparseTensor:
    return sparse if isinstance(sparse, SparseTensor) else SparseTensor(*sparse)


def _require(condition: Tensor, message: str, tensor: Tensor) -> Tensor:
    """`tensor`, after a check of the condition at run time."""
    with control_dependencies([AssertOp(reduce_all(condition), message=message)]):
        return identity(tensor)


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


@checked
def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Extents,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: Flag = True,
    name: Name = None,
) -> Tensor:
    """A tensor of `output_shape` with `sparse_values` at `sparse_indices` and `default_value` elsewhere.

    sparse_indices: int32 or int64, a scalar, [n], or coordinates [n, rank]; sparse_values: a scalar or [n].
    Raises InvalidArgumentError at run time on CPU devices for coordinates out of the shape and, unless
    `validate_indices` is False, for ones that are not in row-major order or repeat; unchecked repeats add up.
    """
    with graph_of([sparse_indices, output_shape, sparse_values]).as_default():
        indices, values = as_tensor(sparse_indices), as_tensor(sparse_values)
        require_dtype("sparse_to_dense", indices.spec, (int32, int64), "sparse_indices")
        extents = cast(as_tensor(as_shape_vector(output_shape)), int64)
        with name_scope(name or "SparseToDense"):
            rank = indices.shape.ndims
            if rank is None or rank > 2:
                raise InvalidArgumentError(
                    f"sparse_to_dense: sparse_indices are {indices.spec}, expected a scalar, [n] or [n, rank]"
                )
            wide = cast(indices, int64)
            wide = wide if rank == 2 else reshape(wide, [-1, 1])
            if values.shape.ndims == 0:
                values = broadcast_to(values, strided_slice(shape(wide), slice(1)))
            return _dense(wide, extents, values, default_value, validate_indices)


def _dense(indices: Tensor, extents: Tensor, values: Tensor, default: Any, validate: bool) -> Tensor:
    if validate:
        rank = (extents.spec.shape or (None,))[0]
        rank = (indices.spec.shape or (None, None))[1] if rank is None else rank
        flat = _flat(indices, extents, rank)
        rising = greater(strided_slice(flat, slice(1, None)), strided_slice(flat, slice(None, -1)))
        message = (
            "indices are not in row-major order, or repeat; use tb.sparse_reorder or validate_indices=False"
        )
        indices = _require(rising, message, indices)
    dense = _scattered(indices, values, extents)
    number = as_tensor(default, values.dtype)
    if number.spec.value is not None and number.spec.value.ndim == 0 and not number.spec.value:
        return dense
    count = strided_slice(shape(indices), slice(1))
    return select(greater(_scattered(indices, fill(count, 1), extents), 0), dense, number)


def _scattered(indices: Tensor, values: Tensor, extents: Tensor) -> Tensor:
    """Sums of the values at each of the coordinates [n, rank], also of a rank that a run decides."""
    if (indices.spec.shape or (None, None))[1] is not None:
        return scatter_nd(indices, values, extents)
    inside = logical_and(greater_equal(indices, 0), less(indices, extents))
    within = _require(inside, "indices of a sparse tensor are outside its dense shape", indices)
    sums = unsorted_segment_sum(values, _flat(within, extents, None), reduce_prod(extents))
    return reshape(sums, cast(extents, int32))


@checked
def sparse_tensor_to_dense(
    sp_input: Sparse, default_value: Any = 0, validate_indices: Flag = True, name: Name = None
) -> Tensor:
    """The dense tensor, with `default_value` where the sparse one has nothing: see `sparse_to_dense`."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseToDense"):
        result = _dense(sparse.indices, sparse.dense_shape, sparse.values, default_value, validate_indices)
        result.set_shape(sparse.shape)
        return result


@checked
def sparse_tensor_dense_matmul(
    sp_a: Sparse, b: Any, adjoint_a: Flag = False, adjoint_b: Flag = False, name: Name = None
) -> Tensor:
    """The product [m, k] of a sparse matrix [m, n] and a dense one [n, k], either transposed on request.

    The entries may come in any order; equal coordinates add up. The gradient reaches the values and `b`.
    """
    sparse = _made(sp_a)
    with sparse.graph.as_default(), name_scope(name or "SparseTensorDenseMatMul"):
        dense = as_tensor(b)
        if sparse.rank != 2 or dense.shape.ndims != 2:
            raise InvalidArgumentError(
                f"sparse_tensor_dense_matmul: expected two matrices, got {sparse!r} and {dense.spec}"
            )
        if adjoint_b:
            dense = transpose(dense)
        rows, columns = (strided_slice(sparse.indices, (slice(None), axis)) for axis in (0, 1))
        extents = [strided_slice(sparse.dense_shape, axis) for axis in (0, 1)]
        if adjoint_a:
            rows, columns, extents = columns, rows, extents[::-1]
        inner = sparse.shape[0 if adjoint_a else 1], dense.shape[0]
        if not compatible(inner[:1], inner[1:]):
            raise InvalidArgumentError(
                f"sparse_tensor_dense_matmul: inner extents {inner[0]} and {inner[1]} differ ({sparse!r}, "
                f"{dense.spec}); use adjoint_a or adjoint_b"
            )
        return unsorted_segment_sum(
            multiply(expand_dims(sparse.values, 1), gather(dense, columns)), rows, extents[0]
        )


@checked
def sparse_reorder(sp_input: Sparse, name: Name = None) -> SparseTensor:
    """The same sparse tensor with its entries in row-major order."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReorder"):
        order = Order(_flat(sparse.indices, sparse.dense_shape, sparse.rank))
        return SparseTensor(gather(sparse.indices, order), gather(sparse.values, order), sparse.dense_shape)


@checked
def sparse_reshape(sp_input: Sparse, shape: Extents, name: Name = None) -> SparseTensor:
    """The same entries under another dense shape, one of whose extents may be -1.

    Raises InvalidArgumentError at run time if the number of elements changes.
    """
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReshape"):
        wanted = cast(as_tensor(as_shape_vector(shape)), int64)
        length = (wanted.spec.shape or (None,))[0]
        if length is None:
            raise InvalidArgumentError(f"sparse_reshape: shape is {wanted.spec}, expected a known length")
        total = reduce_prod(sparse.dense_shape)
        given = reduce_prod(select(less(wanted, 0), 1, wanted))
        target = select(less(wanted, 0), floordiv(total, maximum(given, 1)), wanted)
        message = "sparse_reshape: the number of elements differs; expected the same"
        target = _require(equal(reduce_prod(target), total), message, target)
        flat = _flat(sparse.indices, sparse.dense_shape, sparse.rank)
        return SparseTensor(_unflat(flat, target, length), sparse.values, target)


@checked
def sparse_transpose(sp_input: Sparse, perm: AxisNumbers = None, name: Name = None) -> SparseTensor:
    """The sparse tensor with its axis `perm[i]` as axis i, by default reversed, in row-major order."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseTranspose"):
        rank = _rank_of("sparse_transpose", sparse)
        order = list(reversed(range(rank))) if perm is None else list(perm)
        if sorted(order) != list(range(rank)):
            raise InvalidArgumentError(f"sparse_transpose: perm {order} is no permutation of {rank} axes")
        extents = gather(sparse.dense_shape, order)
        return sparse_reorder(SparseTensor(gather(sparse.indices, order, axis=1), sparse.values, extents))


@checked
def sparse_concat(axis: AxisNumber, sp_inputs: Items, name: Name = None) -> SparseTensor:
    """Joins sparse tensors along `axis`, all other extents equal; the entries come in row-major order."""
    if not sp_inputs:
        raise refuse("sparse_concat", "sp_inputs", "a list of at least one sparse tensor", sp_inputs)
    parts = [_read_sparse("sparse_concat", each) for each in sp_inputs]
    with parts[0].graph.as_default(), name_scope(name or "SparseConcat"):
        rank = _rank_of("sparse_concat", parts[0])
        place = checked_axis("sparse_concat", axis, rank)
        along = constant([int(each == place) for each in range(rank)], int64)
        offset: Tensor = constant(0, int64)
        indices, first = [], parts[0].dense_shape
        for part in parts:
            same = equal(multiply(subtract(1, along), subtract(part.dense_shape, first)), 0)
            message = f"sparse_concat: extents of other axes than {place} differ; expected equal ones"
            indices.append(_require(same, message, add(part.indices, multiply(along, offset))))
            offset = add(offset, strided_slice(part.dense_shape, place))
        extents = add(multiply(subtract(1, along), first), multiply(along, offset))
        values = concat([part.values for part in parts], 0)
        return sparse_reorder(SparseTensor(concat(indices, 0), values, extents))


def _read_sparse(op: str, value: Any, argument: str = "sp_inputs") -> SparseTensor:
    if not isinstance(value, (SparseTensor, SparseTensorValue)):
        raise refuse(op, argument, "a list of sparse tensors", value)
    return _made(value)


@checked
def sparse_add(a: Any, b: Any, name: Name = None) -> Any:
    """The sum of two sparse tensors of one shape, sparse; with a dense one beside a sparse one, dense."""
    sparse = [isinstance(each, (SparseTensor, SparseTensorValue)) for each in (a, b)]
    if not any(sparse):
        raise refuse("sparse_add", "a", "a tb.SparseTensor here or as b", a)
    if not all(sparse):
        part, dense = (a, b) if sparse[0] else (b, a)
        return add(sparse_tensor_to_dense(part, validate_indices=False), dense, name=name)
    first, second = _made(a), _made(b)
    with first.graph.as_default(), name_scope(name or "SparseAdd"):
        rank = first.rank
        same = equal(first.dense_shape, second.dense_shape)
        extents = _require(
            same, "sparse_add: the dense shapes differ; expected equal ones", first.dense_shape
        )
        flat = _flat(concat([first.indices, second.indices], 0), extents, rank)
        positions, numbers = unique(flat)
        sums = unsorted_segment_sum(concat([first.values, second.values], 0), numbers, size(positions))
        return sparse_reorder(SparseTensor(_unflat(positions, extents, rank), sums, extents))


@checked
def sparse_retain(sp_input: Sparse, to_retain: Any, name: Name = None) -> SparseTensor:
    """The entries where `to_retain` (bool [n]) is true."""
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseRetain"):
        chosen = as_tensor(to_retain)
        indices, values = (boolean_mask(each, chosen) for each in (sparse.indices, sparse.values))
        return SparseTensor(indices, values, sparse.dense_shape)


@checked
def sparse_reduce_sum(
    sp_input: Sparse, axis: AxisNumbers = None, keepdims: Flag = False, name: Name = None
) -> Tensor:
    """The sums over the given axes, or over all: a dense tensor.

    Of a rank that a run decides, axes that do not fit raise InvalidArgumentError then.
    """
    sparse = _made(sp_input)
    with sparse.graph.as_default(), name_scope(name or "SparseReduceSum"):
        if sparse.rank is None:
            return _sum_of_any_rank(sparse, axis, keepdims)
        rank = _rank_of("sparse_reduce_sum", sparse)
        over = (
            range(rank) if axis is None else [checked_axis("sparse_reduce_sum", each, rank) for each in axis]
        )
        kept = [each for each in range(rank) if each not in over]
        if kept:
            extents = gather(sparse.dense_shape, kept)
            result = scatter_nd(gather(sparse.indices, kept, axis=1), sparse.values, extents)
        else:
            result = reduce_sum(sparse.values)
        for each in sorted(over) if keepdims else ():
            result = expand_dims(result, each)
        return result


def _sum_of_any_rank(sparse: SparseTensor, axis: Sequence[int] | None, keepdims: bool) -> Tensor:
    """`sparse_reduce_sum` where only a run knows the rank."""
    rank = size(sparse.dense_shape)
    axes = range_of(rank) if axis is None else constant(list(axis), int32)
    fits = logical_and(greater_equal(axes, negative(rank)), less(axes, rank))
    message = f"sparse_reduce_sum: axis {axis} is outside the rank of the sparse tensor"
    over = mod(_require(fits, message, axes), maximum(rank, 1))
    stays = reduce_all(not_equal(expand_dims(range_of(rank), 1), expand_dims(over, 0)), 1)
    extents = select(stays, sparse.dense_shape, 1)
    sums = _scattered(multiply(sparse.indices, cast(stays, int64)), sparse.values, extents)
    return sums if keepdims else reshape(sums, cast(boolean_mask(sparse.dense_shape, stays), int32))


# Segments of gathered rows ------------------------------------------------------------------------------


@checked
def sparse_segment_sum(data: Any, indices: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The sums by segment of the rows `indices` [n] of `data`; `segment_ids` [n] rise from 0."""
    with graph_of([data, indices, segment_ids]).as_default(), name_scope(name or "SparseSegmentSum"):
        return segment_sum(gather(data, indices), segment_ids)


@checked
def sparse_segment_mean(data: Any, indices: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The means by segment of the rows `indices` [n] of `data`: see `sparse_segment_sum`."""
    with graph_of([data, indices, segment_ids]).as_default(), name_scope(name or "SparseSegmentMean"):
        return segment_mean(gather(data, indices), segment_ids)


@checked
def sparse_segment_sqrt_n(data: Any, indices: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The sums by segment of the rows `indices` [n] of `data`, divided by the root of their number."""
    with graph_of([data, indices, segment_ids]).as_default(), name_scope(name or "SparseSegmentSqrtN"):
        rows = gather(data, indices)
        ones = segment_sum(cast(ones_like(as_tensor(segment_ids)), rows.dtype), segment_ids)
        for _ in range(len(rows.shape) - 1):
            ones = expand_dims(ones, -1)
        return divide(segment_sum(rows, segment_ids), sqrt(maximum(ones, 1)))
