"""Global batches: feeds split over the replicas, and the replicas' results joined (TensorBow, 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import Tensor
from tensorbow.specs import Array

Extents: TypeAlias = "tuple[int, ...]"


def is_batch(tensor: Tensor, extents: Extents) -> bool:
    """True for extents of a value that is no scalar and whose leading dimension is unknown in the graph."""
    dims = tensor.spec.shape
    return len(extents) > 0 and (dims is None or dims[0] is None)


def require_parts(tensor: Tensor, rows: int, replicas: int) -> None:
    """Raises InvalidArgumentError for a global batch of so many rows that does not split over replicas."""
    if rows % replicas or not rows:
        got = f"a global batch of {rows} does not split over" if rows else "an empty batch has none for"
        raise InvalidArgumentError(
            f"feed {tensor.name}: {got} {replicas} replicas; feed a multiple of {replicas}, {replicas} at "
            "least"
        )


def split_feeds(
    feeds: Mapping[Tensor, Array], split: Sequence[bool], replicas: int
) -> list[tuple[Array, ...]]:
    """Feeds of each replica: its rows of those that are split, and the others whole."""
    parts: list[tuple[Array, ...]] = []
    for replica in range(replicas):
        arrays = []
        for value, is_split in zip(feeds.values(), split, strict=True):
            rows = value.shape[0] // replicas if is_split else 0
            arrays.append(value[replica * rows : (replica + 1) * rows] if is_split else value)
        parts.append(tuple(arrays))
    return parts


def joined_results(tensor: Tensor, of_replicas: Sequence[Any]) -> Any:
    """One value of a fetched tensor of the replicas' values.

    Batches are concatenated, numbers averaged (integers rounded down), bools are replica 0's.
    """
    values = [np.asarray(value) for value in of_replicas]
    kind = tensor.dtype.as_numpy_dtype
    if len(values) == 1:
        return values[0].astype(kind)[()]
    if is_batch(tensor, values[0].shape):
        return np.concatenate(values)
    if values[0].dtype.kind == "b":
        return values[0][()]
    stacked = np.stack(values)
    if stacked.dtype.kind in "iu":
        return np.floor_divide(stacked.sum(axis=0, dtype=np.int64), len(values)).astype(kind)[()]
    wide = np.complex128 if stacked.dtype.kind == "c" else np.float64
    return np.mean(stacked, axis=0, dtype=wide).astype(kind)[()]
