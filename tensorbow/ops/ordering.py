"""top_k: the greatest elements along the last axis, and their positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    REQUIRED,
    Attrs,
    HostCall,
    Kernel,
    KernelCall,
    NodeSpec,
    Operation,
    Tensor,
    as_tensor,
    name_scope,
)
from tensorbow.kinds import Count, Flag, Name, checked, is_tensor
from tensorbow.ops.argument_kinds import CountOrTensor, numbers_of
from tensorbow.ops.arrays import concat, expand_dims, reshape, squeeze
from tensorbow.ops.broadcasting import shape, size
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import (
    add,
    equal,
    is_finite,
    less,
    less_equal,
    logical_and,
    logical_not,
    multiply,
)
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import GatherGrad
from tensorbow.ops.reductions import count_nonzero, reduce_any, reduce_prod, reduce_sum
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import NUMERIC, Array, TensorSpec, int32, int64

__all__ = ["in_top_k", "top_k"]


class GreatestElements(NamedTuple):
    """Result of `top_k`."""

    values: Tensor
    indices: Tensor


@checked
def top_k(input: Any, k: CountOrTensor = 1, sorted: Flag = True, name: Name = None) -> GreatestElements:
    """The `k` greatest elements of each row of `input` `[..., n]`, and their positions (int32): `[..., k]`.

    In descending order; ties are ordered by position, NaN counts as the greatest. `sorted` is
    ignored (TensorFlow's): results are always sorted. A `k` that is no constant makes the step run in the
    dynamic mode.

    Raises InvalidArgumentError for a scalar, and for rows of less than `k` elements.
    """
    (number,) = numbers_of(k)
    if is_tensor(number):
        values, indices = TopKOfData(input, number, name=name)
    else:
        values, indices = TopKV2(input, k=number, sorted=sorted, name=name)
    return GreatestElements(values, indices)


@checked
def in_top_k(predictions: Any, targets: Any, k: Count, name: Name = None) -> Tensor:
    """True for each row of `predictions` [batch, classes] whose element `targets` [batch] is among the `k`
    greatest, or equal to the last of them; False if it is not finite, or the target not in [0, classes).
    NaN counts as greater than any number. Returns bool [batch].
    """
    scores, classes = as_tensor(predictions), as_tensor(targets)
    with scores.graph.as_default(), name_scope(name or "in_top_k"):
        every = cast(number_range(strided_slice(shape(scores), 1)), classes.dtype)
        is_target = equal(every, expand_dims(classes, 1))
        own = reduce_sum(select(is_target, scores, 0), 1, keepdims=True)
        before = count_nonzero(logical_not(less_equal(scores, own)), 1)
        known = logical_and(is_finite(squeeze(own, 1)), reduce_any(is_target, 1))
        return logical_and(less(before, k), known)


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    (x,), k = inputs, attrs["k"]
    require_dtype("TopKV2", x, NUMERIC)
    if k < 0:
        raise InvalidArgumentError(f"TopKV2: k is {k}, expected at least 0")
    if x.rank == 0:
        raise InvalidArgumentError("TopKV2: the input is a scalar, expected [..., n]")
    *lead, extent = x.dims
    if extent is not None and extent < k:
        raise InvalidArgumentError(f"TopKV2: rows of {x} have {extent} elements, fewer than k = {k}")
    return [TensorSpec((*lead, k), x.dtype), TensorSpec((*lead, k), int32)]


def _scratch(node: NodeSpec) -> list[TensorSpec]:
    return [TensorSpec((node.inputs[0].extents[-1],), node.inputs[0].dtype)]


def _prepare(call: KernelCall) -> Callable[[], None]:
    """Row by row: NumPy's argsort allocates its result, so a step allocates the positions of one row only."""
    (x,), (values, indices), (row,) = call.inputs, call.outputs, call.scratch
    k = call.attrs["k"]
    prefixes = list(np.ndindex(*x.shape[:-1])) if k else []

    def run() -> None:
        for prefix in prefixes:
            np.copyto(row, x[prefix][..., ::-1])  # reversed, so that the first of equals comes last
            order = np.argsort(row, kind="stable")[: -k - 1 : -1]
            np.take(row, order, out=values[prefix], mode="clip")
            np.subtract(len(row) - 1, order, out=indices[prefix], casting="unsafe")

    return run


def _gradient(op: Operation, g: Tensor | None, _: Tensor | None) -> list[Tensor | None]:
    """The gradient of each value goes to its position; the rows are joined into one vector."""
    x, indices = op.inputs[0], op.outputs[1]
    if g is None or not g.dtype.is_floating:
        return [None]
    lead = strided_slice(shape(x), np.s_[:-1])
    rows = multiply(number_range(cast(reduce_prod(lead), int64)), strided_slice(cast(shape(x), int64), -1))
    positions = add(cast(indices, int64), reshape(rows, concat([lead, [1]], 0)))
    flat: Tensor = GatherGrad(
        reshape(g, [-1]), reshape(positions, [-1]), reshape(size(x, out_type=int64), [1]), axis=0
    )
    result = reshape(flat, shape(x))
    return [result]


TopKV2 = define_op(
    "TopKV2",
    spec=_spec,
    gradient=_gradient,
    kernel=Kernel(prepare=_prepare, scratch=_scratch),
    inputs=("input",),
    attrs={"k": REQUIRED, "sorted": True},
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, int32),
)


def _of_data_spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> list[TensorSpec]:
    x, k = inputs
    require_dtype("top_k", x, NUMERIC)
    require_dtype("top_k", k, (int32, int64), "k")
    if x.rank == 0:
        raise InvalidArgumentError("top_k: the input is a scalar, expected [..., n]")
    dims = (*x.dims[:-1], None)
    return [TensorSpec(dims, x.dtype), TensorSpec(dims, int32)]


def _of_data(call: HostCall) -> list[Array]:
    x, k = call.inputs
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        raise InvalidArgumentError(f"top_k: k is {k} for rows of {list(x.shape)}; expected 0 to the extent")
    backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")  # so that the first of equals comes last
    indices = x.shape[-1] - 1 - backwards[..., ::-1][..., : int(k)]
    return [np.take_along_axis(x, indices, -1), indices.astype(np.int32)]


TopKOfData = define_op(
    "TopKOfData",
    spec=_of_data_spec,
    gradient=lambda op, *gradients: [*_gradient(op, *gradients), None],
    host=_of_data,
    inputs=("input", "k"),
    unknown_dtypes=lambda inputs, attrs: (inputs[0].dtype, int32),
    doc="TopKV2 of a k that only a step knows.",
)
