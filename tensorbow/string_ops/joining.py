"""Ops that join strings: element by element, and along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import NOT_DIFFERENTIABLE, Attrs, HostCall, Tensor, as_tensor, graph_of
from tensorbow.kinds import AxisNumbers, Flag, Items, Name, Text, checked, refuse
from tensorbow.ops.broadcasting import checked_axis
from tensorbow.ops.definition import define_op
from tensorbow.specs import Array, TensorSpec, string
from tensorbow.string_ops.elements import as_strings, joint_dims, require_strings

__all__ = ["reduce_join", "string_join"]


def _join_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    if not inputs:
        raise InvalidArgumentError("StringJoin: expected at least one tensor, got none")
    for index, spec in enumerate(inputs):
        require_strings("StringJoin", spec, f"inputs[{index}]")
    return TensorSpec(joint_dims(inputs), string)


def _join(call: HostCall) -> Array:
    separator = call.attrs["separator"].encode()
    arrays = np.broadcast_arrays(*call.inputs)
    rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    joined: Array = np.empty(arrays[0].size, object)
    joined[:] = [separator.join(row) for row in rows]
    return joined.reshape(arrays[0].shape)


StringJoin = define_op(
    "StringJoin",
    spec=_join_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("*inputs",),
    attrs={"separator": ""},
    host=_join,
    strings=True,
    doc="The elements of its inputs, joined.",
)


@checked
def string_join(inputs: Items, separator: Text = "", name: Name = None) -> Tensor:
    """The strings of several tensors joined element by element, with `separator` between them.

    inputs: tensors of strings whose shapes broadcast, as a scalar does. Raises InvalidArgumentError for an
    empty list.
    """
    if not inputs:
        raise refuse("string_join", "inputs", "at least one tensor", inputs)
    with graph_of(inputs).as_default():
        result: Tensor = StringJoin(*(as_strings(each) for each in inputs), separator=separator, name=name)
    return result


def _axes(attrs: Attrs, rank: int) -> list[int]:
    """The joined axes, the one whose elements follow one another first."""
    if attrs["axis"] is None:
        return [*range(rank)][::-1]
    axes = [checked_axis("ReduceJoin", axis, rank) for axis in attrs["axis"]]
    if len({*axes}) < len(axes):
        raise InvalidArgumentError(f"ReduceJoin: axis {list(attrs['axis'])} names an axis twice")
    return axes


def _reduce_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    (x,) = inputs
    require_strings("ReduceJoin", x)
    axes = _axes(attrs, x.rank)
    if attrs["keepdims"]:
        return TensorSpec(tuple(1 if axis in axes else d for axis, d in enumerate(x.dims)), string)
    return TensorSpec(tuple(d for axis, d in enumerate(x.dims) if axis not in axes), string)


def _reduce(call: HostCall) -> Array:
    (x,), axes = call.inputs, _axes(call.attrs, call.inputs[0].ndim)
    separator = call.attrs["separator"].encode()
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    extents = [x.shape[axis] for axis in kept]
    rows = x.transpose(*kept, *axes[::-1]).reshape(math.prod(extents), math.prod(x.shape[a] for a in axes))
    joined: Array = np.empty(len(rows), object)
    joined[:] = [separator.join(row) for row in rows.tolist()]
    if call.attrs["keepdims"]:
        extents = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    return joined.reshape(extents)


ReduceJoin = define_op(
    "ReduceJoin",
    spec=_reduce_spec,
    gradient=NOT_DIFFERENTIABLE,
    inputs=("input",),
    attrs={"axis": None, "keepdims": False, "separator": ""},
    host=_reduce,
    strings=True,
    doc="The strings along axes, joined.",
)


@checked
def reduce_join(
    inputs: Any, axis: AxisNumbers = None, keepdims: Flag = False, separator: Text = "", name: Name = None
) -> Tensor:
    """The strings along the given axes joined, with `separator` between them.

    axis: one or several; of several the first one's neighbours follow one another. None: all, so that the
    strings follow in row-major order. Raises InvalidArgumentError for an axis that is not there.
    """
    x = as_tensor(inputs, string)
    return ReduceJoin.tensor(x, axis=axis, keepdims=keepdims, separator=separator, name=name)
