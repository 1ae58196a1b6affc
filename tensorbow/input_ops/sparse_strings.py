"""Sparse tensors as strings: what a queue can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, name_scope
from tensorbow.graph.protobuf.values import parsed_tensor, serialized_tensor
from tensorbow.kinds import AsDType, Name, checked, optional, whole
from tensorbow.ops.definition import define_op
from tensorbow.ops.sparse_tensors import Sparse, SparseTensor, as_sparse, with_rank
from tensorbow.specs import Array, TensorSpec, as_dtype, compatible, int64, string
from tensorbow.string_ops.elements import as_strings, require_strings

__all__ = ["deserialize_many_sparse", "serialize_many_sparse", "serialize_sparse"]

OptionalRank: TypeAlias = Annotated["int | None", optional(whole(0))]


def _strings(arrays: Sequence[Array]) -> list[bytes]:
    return [serialized_tensor(np.ascontiguousarray(each)) for each in arrays]


def _rows_of(call: HostCall) -> list[Array]:
    """The examples of a sparse minibatch as strings: [n, 3]."""
    indices, values, shape = call.inputs
    if not len(shape):
        raise InvalidArgumentError("SerializeManySparse: the sparse tensor has no axes, expected a minibatch")
    rows = np.split(np.arange(len(indices)), np.searchsorted(indices[:, 0], np.arange(1, shape[0])))
    if (np.diff(indices[:, 0]) < 0).any() or (len(indices) and not 0 <= indices[-1, 0] < shape[0]):
        raise InvalidArgumentError(
            "SerializeManySparse: the entries are not in row-major order, or outside of the shape; use "
            "tb.sparse_reorder"
        )
    result: Array = np.empty((int(shape[0]), 3), object)
    for row, chosen in zip(range(len(result)), rows, strict=False):
        result[row] = _strings([indices[chosen, 1:], values[chosen], shape[1:]])
    return [result]


def _one(call: HostCall) -> list[Array]:
    result: Array = np.empty(3, object)
    result[:] = _strings(call.inputs)
    return [result]


SerializeSparse = define_op(
    "SerializeSparse",
    spec=lambda inputs, attrs: TensorSpec((3,), string),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("sparse_indices", "sparse_values", "sparse_shape"),
    host=_one,
    strings=True,
    doc="A sparse tensor as the bytes of three TensorProtos.",
)
SerializeManySparse = define_op(
    "SerializeManySparse",
    spec=lambda inputs, attrs: TensorSpec((None, 3), string),
    gradient=NOT_DIFFERENTIABLE,
    inputs=("sparse_indices", "sparse_values", "sparse_shape"),
    host=_rows_of,
    strings=True,
    doc="Each example of a sparse minibatch as the bytes of three TensorProtos.",
)


def _joined_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (serialized,) = inputs
    require_strings("DeserializeManySparse", serialized, "serialized_sparse")
    if not compatible(serialized.shape, (None, 3)):
        raise InvalidArgumentError(
            f"DeserializeManySparse: serialized_sparse is {serialized}, expected [n, 3]"
        )
    return [TensorSpec((None, None), int64), TensorSpec((None,), attrs["dtype"]), TensorSpec((None,), int64)]


def _joined(call: HostCall) -> list[Array]:
    dtype, rows = call.attrs["dtype"], call.inputs[0].tolist()
    indices, values = list[Array](), list[Array]()
    shapes: list[Array] = []
    for row, texts in enumerate(rows):
        coordinates, found, shape = map(parsed_tensor, texts)
        fits = (
            found.ndim == shape.ndim == 1
            and coordinates.dtype == shape.dtype == np.int64
            and coordinates.shape == (len(found), len(shape))
            and as_dtype(found.dtype) == dtype
        )
        if not fits or (shapes and len(shape) != len(shapes[0])):
            raise InvalidArgumentError(
                f"DeserializeManySparse: row {row} has indices {list(coordinates.shape)} and shape "
                f"{shape.tolist()} of {as_dtype(found.dtype).name}, expected {dtype.name} and one rank in all"
            )
        indices.append(np.insert(coordinates, 0, row, axis=1))
        values.append(found)
        shapes.append(shape)
    if not shapes:
        raise InvalidArgumentError("DeserializeManySparse: got no rows, expected at least one sparse tensor")
    widest = np.max(shapes, axis=0)
    return [np.concatenate(indices), np.concatenate(values), np.array([len(shapes), *widest], np.int64)]


DeserializeManySparse = define_op(
    "DeserializeManySparse",
    spec=_joined_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("serialized_sparse",),
    attrs={"dtype": REQUIRED},
    host=_joined,
    strings=True,
    doc="Joins serialised sparse tensors, one in each row of strings [n, 3], into a minibatch.",
)


@checked
def serialize_sparse(sp_input: Sparse, name: Name = None) -> Tensor:
    """A sparse tensor as three strings [3]: TensorProtos of its indices, values and dense shape.

    Needs `pip install 'tensorbow[protobuf]'`.
    """
    sparse = as_sparse(sp_input)
    with sparse.graph.as_default():
        return SerializeSparse.tensor(sparse.indices, sparse.values, sparse.dense_shape, name=name)


@checked
def serialize_many_sparse(sp_input: Sparse, name: Name = None) -> Tensor:
    """Each example of a sparse minibatch [n, ...] as three strings: [n, 3]; see `serialize_sparse`.

    Raises InvalidArgumentError at run time for entries whose examples, their first coordinates, do not rise.
    """
    sparse = as_sparse(sp_input)
    if sparse.rank == 0:
        raise InvalidArgumentError(f"serialize_many_sparse: expected a minibatch [n, ...], got {sparse!r}")
    with sparse.graph.as_default():
        result = SerializeManySparse.tensor(sparse.indices, sparse.values, sparse.dense_shape, name=name)
        result.set_shape([sparse.shape[0] if sparse.rank else None, 3])
    return result


@checked
def deserialize_many_sparse(
    serialized_sparse: Any, dtype: AsDType, rank: OptionalRank = None, name: Name = None
) -> SparseTensor:
    """The sparse minibatch [n, ...] of the sparse tensors in the rows of strings [n, 3].

    dtype, rank: those of each of them. The other extents are the greatest of all. Raises
    InvalidArgumentError, when it runs, for other bytes, dtypes and ranks.
    """
    with name_scope(name or "DeserializeManySparse"):
        parts = SparseTensor(*DeserializeManySparse(as_strings(serialized_sparse), dtype=dtype))
        return parts if rank is None else with_rank("deserialize_many_sparse", parts, rank + 1)
