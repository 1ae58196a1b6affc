"""IndexedSlices among the results of branches and the variables of loops: nests of their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorbow.graph import Tensor
from tensorbow.nest import flatten, pack
from tensorbow.ops.indexed_slices import IndexedSlices


@dataclass(frozen=True)
class SlicesNest:
    """The tensors of IndexedSlices as a nest. parts: values, indices, and the dense shape if it is known."""

    parts: tuple[Any, ...]

    def _packed(self, values: Sequence[Any]) -> Any:
        """The element in its place in a nest of these values: IndexedSlices of tensors."""
        (parts,) = values
        return IndexedSlices(*parts) if all(isinstance(part, Tensor) for part in parts) else SlicesNest(parts)


def opened(nest: Any) -> Any:
    """A nest in which the tensors of each IndexedSlices are leaves; `pack` restores them."""
    return pack(nest, iter([_opened(leaf) for leaf in flatten(nest)]))


def _opened(leaf: Any) -> Any:
    if not isinstance(leaf, IndexedSlices):
        return leaf
    shape = () if leaf.dense_shape is None else (leaf.dense_shape,)
    return SlicesNest((leaf.values, leaf.indices, *shape))
