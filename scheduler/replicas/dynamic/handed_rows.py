"""Gradients of rows whose number depends on data: a plan gets as many rows as the variable has.

Rows that stand for none have the index -1 (`IndexedSlices`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorbow.graph import Operation, Tensor
from tensorbow.ops.indexing import NO_ROW
from tensorbow.specs import Array


@dataclass(frozen=True)
class HandedRows:
    """The rows of a gradient and their indices. shape: the variable's, which a plan is compiled for."""

    values: Tensor
    indices: Tensor
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Rows of the variable."""
        return self.shape[0]

    @property
    def shapes(self) -> dict[Tensor, tuple[int, ...]]:
        """Shapes that the plan reads, by tensor."""
        return {self.values: self.shape, self.indices: self.shape[:1]}

    def filled(self, values: Array, indices: Array) -> tuple[Array, Array]:
        """`count` rows and indices, the unused ones at the end; more than `count` are added up by index."""
        if len(indices) > self.count:
            used = indices != NO_ROW
            found, places = np.unique(indices[used], return_inverse=True)
            sums = np.zeros((len(found), *values.shape[1:]), values.dtype)
            np.add.at(sums, places, values[used])
            # Only indices out of range make more rows: these stay, for the update to refuse.
            kept = np.argsort((found >= 0) & (found < self.count), kind="stable")[: self.count]
            values, indices = sums[kept], found[kept]
        rows = np.zeros((self.count, *values.shape[1:]), values.dtype)
        rows[: len(indices)] = values
        places = np.full(self.count, NO_ROW, indices.dtype)
        places[: len(indices)] = indices
        return rows, places


def handed_rows(
    crossing: Collection[Tensor], results: Collection[Tensor], planned: Collection[Operation]
) -> list[HandedRows]:
    """The gradients by rows among what crosses, whose number of rows is not known.

    Each is read by updates of rows alone, of variables with equally many rows.
    """
    found: list[HandedRows] = []
    shapes: dict[Tensor, set[tuple[int, ...]]] = {}
    others = set(results)
    for op in planned:
        rule = op.definition.row_update
        inputs: Sequence[Any] = op.inputs
        if rule is None or not op.attrs.get("allow_unused", True):
            others.update(inputs)
            continue
        values, indices, variable = inputs[rule[0]], inputs[rule[1]], inputs[0].spec
        others.update(each for index, each in enumerate(inputs) if index not in rule)
        if variable.is_static and values in crossing and indices in crossing:
            found.append(HandedRows(values, indices, variable.extents))
            for tensor, shape in found[-1].shapes.items():
                shapes.setdefault(tensor, set()).add(shape)
        else:
            others.update((values, indices))
    return [
        each
        for each in found
        if not others & {each.values, each.indices}
        and len(shapes[each.indices]) == len(shapes[each.values]) == 1
    ]
