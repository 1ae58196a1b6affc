"""Crosses of features: all combinations of an example's features of several columns, and their hashes.

A column is a matrix [batch, n] of strings or whole numbers, or a sparse tensor of rank 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, REQUIRED, Attrs, HostCall, Tensor, as_tensor, graph_of
from tensorbow.kinds import WORD, Items, Name, checked, optional, refuse, whole
from tensorbow.ops.definition import define_op
from tensorbow.ops.selection import cast
from tensorbow.ops.sparse_tensors import SparseTensor, SparseTensorValue, as_sparse
from tensorbow.specs import Array, TensorSpec, int64, string
from tensorbow.string_ops.fingerprints import fingerprint64

__all__ = ["crossed_buckets", "sparse_cross", "sparse_cross_hashed"]

DEFAULT_KEY = 0xDECAFCAFFE  # TensorFlow's
_MASK, _LARGEST = (1 << 64) - 1, (1 << 63) - 1
_FACTOR = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)

Buckets: TypeAlias = Annotated[int, whole(0, _LARGEST)]
HashKey: TypeAlias = Annotated["int | None", optional(WORD)]


def _hashes(features: Array) -> Array:
    """Numbers as they are, and fingerprints of strings, uint64."""
    if features.dtype != object:
        return features.astype(np.int64).view(np.uint64)
    known: dict[bytes, int] = {}
    for text in features.ravel().tolist():
        if text not in known:
            known[text] = fingerprint64(text)
    texts = features.ravel().tolist()
    flat: Array = np.fromiter((known[text] for text in texts), np.uint64, len(texts))
    shaped: Array = flat.reshape(features.shape)
    return shaped


def _joined(first: Array, second: Array) -> Array:
    """TensorFlow's FingerprintCat64 of uint64 arrays that broadcast."""
    mixed = second * _FACTOR
    found = first ^ _FACTOR ^ (mixed ^ mixed >> _SHIFT) * _FACTOR
    found = found * _FACTOR
    found = (found ^ found >> _SHIFT) * _FACTOR
    last: Array = found ^ found >> _SHIFT
    return last


def _crossed(hashes: Sequence[Array], attrs: Attrs) -> Array:
    """Buckets [batch, product of n] of columns [batch, n] of uint64; those of the last follow one another."""
    batch = hashes[0].shape[0]
    found: Array = np.full((batch, 1), attrs["hash_key"], np.uint64)
    for column in hashes:
        joined = _joined(found[:, :, None], column[:, None, :])
        found = joined.reshape(batch, joined.shape[1] * joined.shape[2])
    buckets: Array = found % np.uint64(attrs["num_buckets"] or _LARGEST)
    return buckets.astype(np.int64)


def _require_features(op: str, spec: TensorSpec) -> None:
    if not (spec.dtype.is_string or spec.dtype.is_integer):
        raise InvalidArgumentError(f"{op}: one of inputs is {spec}, expected strings or whole numbers")


def _require_one_batch(counts: Sequence[int]) -> None:
    """Raises InvalidArgumentError for columns of different numbers of examples."""
    if len(set(counts)) > 1:
        raise InvalidArgumentError(f"expected columns of as many examples, got {', '.join(map(str, counts))}")


# Dense --------------------------------------------------------------------------------------------


def _dense_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    count: int | None = 1
    for spec in inputs:
        _require_features("CrossedBuckets", spec)
        if spec.rank != 2:
            raise InvalidArgumentError(f"CrossedBuckets: an input is {spec}, expected [batch, n]")
        count = None if count is None or spec.dims[1] is None else count * spec.dims[1]
    return TensorSpec((next((s.dims[0] for s in inputs if s.dims[0] is not None), None), count), int64)


def _cross_dense(call: HostCall) -> Array:
    _require_one_batch([len(each) for each in call.inputs])
    buckets = _crossed([_hashes(each) for each in call.inputs], call.attrs)
    missing: Array = np.zeros((len(buckets), 1), bool)
    for each in call.inputs:
        lacks = each == (b"" if each.dtype == object else -1)
        either = missing[:, :, None] | lacks.astype(bool)[:, None, :]
        missing = either.reshape(len(buckets), either.shape[1] * either.shape[2])
    return np.where(missing, -1, buckets)


CrossedBuckets = define_op(
    "CrossedBuckets",
    spec=_dense_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*inputs",),
    attrs={"num_buckets": REQUIRED, "hash_key": REQUIRED},
    host=_cross_dense,
    strings=True,
    doc="Buckets of crosses of dense columns; -1 where a feature is missing, as the empty text or -1.",
)


def crossed_buckets(inputs: Sequence[Tensor], num_buckets: int, hash_key: int | None) -> Tensor:
    """Buckets int64 [batch, product of n] of crosses of columns [batch, n], -1 where one of them is missing:
    the empty text, or -1.
    """
    key = DEFAULT_KEY if hash_key is None else hash_key
    return CrossedBuckets.tensor(*inputs, num_buckets=num_buckets, hash_key=key)


# Sparse -------------------------------------------------------------------------------------------


def _sparse_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    result = string if attrs["num_buckets"] is None else int64
    return [TensorSpec((None, 2), int64), TensorSpec((None,), result), TensorSpec((2,), int64)]


def _rows(call: HostCall) -> list[list[Array]]:
    """Features of each column, by example."""
    columns, inputs = [], iter(call.inputs)
    for is_sparse in call.attrs["sparse"]:
        if not is_sparse:
            columns.append(list(next(inputs)))
            continue
        indices, values, extents = next(inputs), next(inputs), next(inputs)
        order = np.argsort(indices[:, 0], kind="stable")
        ends = np.searchsorted(indices[order, 0], np.arange(1, int(extents[0])))
        columns.append(np.split(values[order], ends) if extents[0] else [])
    _require_one_batch([len(column) for column in columns])
    return [list(row) for row in zip(*columns, strict=True)]


def _text(feature: Any) -> bytes:
    return feature if isinstance(feature, bytes) else str(feature).encode()


def _cross_sparse(call: HostCall) -> list[Array]:
    found: list[Any] = []
    for row in _rows(call):
        if call.attrs["num_buckets"] is None:
            texts = [list(map(_text, features.tolist())) for features in row]
            found.append([b"_X_".join(each) for each in product(*texts)])
        else:
            found.append(_crossed([_hashes(features)[None] for features in row], call.attrs)[0].tolist())
    counts = [len(each) for each in found]
    values: Array = np.empty(sum(counts), call.op.outputs[1].dtype.as_numpy_dtype)
    values[:] = [value for each in found for value in each]
    indices = [(number, column) for number, count in enumerate(counts) for column in range(count)]
    extents = np.array([len(found), max(counts, default=0)], np.int64)
    return [np.array(indices, np.int64).reshape(-1, 2), values, extents]


SparseCross = define_op(
    "SparseCross",
    spec=_sparse_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*inputs",),
    attrs={"sparse": REQUIRED, "num_buckets": None, "hash_key": 0},
    host=_cross_sparse,
    strings=True,
    doc="Crosses of columns, texts or, with num_buckets, buckets, as the parts of a sparse tensor.",
)


def _cross(op: str, inputs: Sequence[Any], name: str | None, **attrs: Any) -> SparseTensor:
    if not inputs:
        raise refuse(op, "inputs", "at least one tensor [batch, n]", inputs)
    flat: list[Tensor] = []
    sparse: list[bool] = []
    with graph_of(inputs).as_default():
        for each in inputs:
            sparse.append(isinstance(each, (SparseTensor, SparseTensorValue)))
            column = as_sparse(each) if sparse[-1] else as_tensor(each)
            rank = column.rank if isinstance(column, SparseTensor) else column.shape.ndims
            if rank not in (2, None):
                raise InvalidArgumentError(f"{op}: one of inputs is {column!r}, expected rank 2")
            values = column.values if isinstance(column, SparseTensor) else column
            _require_features(op, values.spec)
            values = values if values.dtype.is_string else cast(values, int64)
            if isinstance(column, SparseTensor):
                flat += [column.indices, values, column.dense_shape]
            else:
                flat.append(values)
        return SparseTensor(*SparseCross(*flat, sparse=tuple(sparse), **attrs, name=name))


@checked
def sparse_cross(inputs: Items, name: Name = None) -> SparseTensor:
    """All combinations of the features of each example, texts as `a_X_b`, a sparse tensor [batch, most].

    inputs: tensors or sparse tensors [batch, n] of strings or whole numbers. Features of the last one follow
    one another. An example for which one has none has no combinations.
    """
    return _cross("sparse_cross", inputs, name)


@checked
def sparse_cross_hashed(
    inputs: Items, num_buckets: Buckets = 0, hash_key: HashKey = None, name: Name = None
) -> SparseTensor:
    """The same as `tb.sparse.cross`, as numbers int64: hashes modulo num_buckets, of 63 bits for 0.

    hash_key: joined with the features' fingerprints. Gives the numbers that TensorFlow gives.
    """
    key = DEFAULT_KEY if hash_key is None else hash_key
    return _cross("sparse_cross_hashed", inputs, name, num_buckets=num_buckets, hash_key=key)
