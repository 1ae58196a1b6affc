"""`where`: the coordinates of true elements, or the choice of elements, or of rows, by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, as_tensor, graph_of
from tensorbow.kinds import Name, checked
from tensorbow.ops.arrays import reshape
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import not_equal
from tensorbow.ops.selection import Select, branches_of
from tensorbow.specs import NUMBERS, Array, TensorSpec, bool_, compatible, int64

__all__ = ["where", "where_v2"]


def _where_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    require_dtype("Where", inputs[0], (bool_,), "condition")
    return TensorSpec((None, None if inputs[0].shape is None else inputs[0].rank), int64)


def _coordinates(call: HostCall) -> Array:
    return np.argwhere(call.inputs[0])


Where = define_op(
    "Where",
    spec=_where_spec,
    gradient=NOT_DIFFERENTIABLE,
    host=_coordinates,
    inputs=("condition",),
    doc="The coordinates of true elements.",
)


def _rows_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    condition, *branches = inputs
    require_dtype("ConditionOfRows", condition, (bool_,), "condition")
    like = max(branches, key=lambda branch: branch.rank)
    if condition.rank != 1 or like.rank <= 1:
        return TensorSpec(condition.dims, bool_)
    _require_rows("Select", condition, like)
    return TensorSpec((*condition.dims, *[1] * (like.rank - 1)), bool_)


ConditionOfRows = define_op(
    "ConditionOfRows",
    spec=_rows_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("condition", "x", "y"),
    alias=((0, 0),),
    strings=True,
    doc="A condition `[n]` as `[n, 1, ...]`, of the rank of `x` or `y` if that is higher; others unchanged.",
)


def _require_rows(op: str, condition: TensorSpec, like: TensorSpec) -> None:
    """Raises InvalidArgumentError unless the vector `condition` has an element for each row of `like`."""
    if not compatible(condition.dims, like.dims[:1]):
        raise InvalidArgumentError(
            f"{op}: the condition is {condition}, expected an element for each of the {like.dims[0]} rows of "
            f"{like}, which it chooses; tb.expand_dims(condition, 0) chooses along the last axis"
        )


def _of_rows(condition: Tensor, branches: Sequence[Tensor]) -> Tensor:
    """The condition, as `[n, 1, ...]` if it is a vector and chooses rows."""
    rank = condition.shape.ndims
    ranks = [branch.shape.ndims for branch in branches]
    if rank not in (1, None) or all(each is not None and each <= 1 for each in ranks):
        return condition
    if rank is None or None in ranks:
        return ConditionOfRows.tensor(condition, *branches)
    like = max((branch.spec for branch in branches), key=lambda branch: branch.rank)
    _require_rows("where", condition.spec, like)
    return reshape(condition, [-1, *[1] * (like.rank - 1)])


@checked
def where(condition: Any, x: Any = None, y: Any = None, name: Name = None) -> Tensor:
    """`x` where `condition` (bool) is true, else `y`.

    A condition `[n]` chooses rows of `x` and `y` `[n, ...]`, as in TensorFlow 1. All others broadcast by
    NumPy's rule, which TensorFlow 1 has for scalars only.

    Without `x` and `y` the coordinates of elements that are true, or numbers other than 0, in row-major
    order: int64 `[n, rank]`, in the dynamic mode. Raises InvalidArgumentError for only one of them, or a
    condition `[n]` of other rows.
    """
    if (x is None) != (y is None):
        raise InvalidArgumentError("where: got only one of x and y, expected both, or neither")
    if x is None:
        chosen = as_tensor(condition)
        if chosen.dtype in NUMBERS:
            chosen = not_equal(chosen, 0)
        return Where.tensor(chosen, name=name)
    with graph_of([condition, x, y]).as_default():
        branches, chooser = branches_of(x, y), as_tensor(condition)
        result: Tensor = Select(_of_rows(chooser, branches), *branches, name=name)
    return result


@checked
def where_v2(condition: Any, x: Any = None, y: Any = None, name: Name = None) -> Tensor:
    """`where`, but a condition `[n]` broadcasts to the last axis of `x` and `y`, as in later TensorFlow."""
    if x is None or y is None:
        return where(condition, x, y, name)
    with graph_of([condition, x, y]).as_default():
        return Select.tensor(as_tensor(condition), *branches_of(x, y), name=name)
