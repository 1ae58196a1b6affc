"""Reductions of the rows of a tensor by segment, and counts made of them.

A row belongs to the segment that its id names. Sums are the gradient of `gather`; the greatest, the least and
the product are an op each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError
from tensorbow.graph import (
    Attrs,
    Kernel,
    KernelCall,
    OpDef,
    Operation,
    Tensor,
    as_tensor,
    control_dependencies,
    graph_of,
    name_scope,
)
from tensorbow.kinds import AsDType, Name, Positive, checked, is_tensor
from tensorbow.ops.argument_kinds import CountOrTensor, numbers_of
from tensorbow.ops.arrays import concat, expand_dims, reshape
from tensorbow.ops.broadcasting import dims_of_vector, ones_like, shape, size, zeros_like
from tensorbow.ops.checks import asserted
from tensorbow.ops.conditions import where
from tensorbow.ops.constant import constant
from tensorbow.ops.definition import define_op, require_dtype
from tensorbow.ops.elementwise import (
    add,
    clip_by_value,
    divide,
    equal,
    floor,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    multiply,
    pair,
    sqrt,
    subtract,
)
from tensorbow.ops.indexing import GatherGrad, check_positions, gather
from tensorbow.ops.reductions import reduce_all, reduce_max
from tensorbow.ops.selection import cast, select
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import NUMERIC, TensorSpec, as_dtype, compatible, float64, int32, int64

__all__ = [
    "bincount",
    "confusion_matrix",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
]


# Ops ------------------------------------------------------------------------------------------------------


def _spec(inputs: Sequence[TensorSpec], attrs: Attrs) -> TensorSpec:
    data, ids, target = inputs
    require_dtype("unsorted_segment", data, NUMERIC, "data")
    require_dtype("unsorted_segment", ids, (int64,), "segment_ids")
    result = TensorSpec(dims_of_vector("unsorted_segment", target), data.dtype)
    rows = data.dims[:1]
    if not compatible(rows, ids.shape) or not compatible((None, *data.dims[1:]), result.shape):
        raise InvalidArgumentError(
            f"unsorted_segment: segment_ids {ids} for data {data} and result {result}; expected an id per row"
        )
    return result


def identity_of(name: str, dtype: np.dtype[Any]) -> float:
    """The result of a segment without rows: 1, or the least or the greatest number of the dtype."""
    if name == "SegmentProd":
        return 1
    return as_dtype(dtype).limits[0 if name == "SegmentMax" else 1]


def _reduction(name: str, function: np.ufunc, gradient: Any) -> OpDef:
    def run(call: KernelCall) -> None:
        (data, ids, _), (out,) = call.inputs, call.outputs
        check_positions(name, ids, len(out))
        out.fill(identity_of(name, out.dtype))
        function.at(out, ids, data)

    return define_op(
        name,
        spec=_spec,
        gradient=gradient,
        kernel=Kernel(run=run),
        inputs=("data", "segment_ids", "shape"),
        shape_inputs=(2,),
        doc="Reduces the rows of each segment to a row of a result of `shape`.",
    )


def _extreme_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Rows that are equal share the gradient, as in TensorFlow."""
    data, ids, target = op.inputs
    if not g.dtype.is_floating:
        return [None, None, None]
    chosen = cast(equal(data, gather(op.outputs[0], ids)), g.dtype)
    number = GatherGrad(chosen, ids, target)
    return [multiply(chosen, gather(divide(g, maximum(number, 1)), ids)), None, None]


def _prod_gradient(op: Operation, g: Tensor) -> list[Tensor | None]:
    """Multiplies by the product of the other rows, which is 0 beside another zero."""
    data, ids, target = op.inputs
    if not g.dtype.is_floating:
        return [None, None, None]
    is_zero = equal(data, 0)
    count = cast(is_zero, g.dtype)
    factors = select(is_zero, 1, data)
    others = divide(gather(SegmentProd(factors, ids, target), ids), factors)
    alone = equal(gather(GatherGrad(count, ids, target), ids), count)
    return [select(alone, multiply(gather(g, ids), others), 0), None, None]


SegmentMax = _reduction("SegmentMax", np.maximum, _extreme_gradient)
SegmentMin = _reduction("SegmentMin", np.minimum, _extreme_gradient)
SegmentProd: OpDef = _reduction("SegmentProd", np.multiply, _prod_gradient)


# Any order ------------------------------------------------------------------------------------------------


def _reduce(
    op: str, definition: OpDef, data: Any, segment_ids: Any, num_segments: Any, name: str | None
) -> Tensor:
    """Rows with negative ids go to one more segment, which is cut off."""
    x, ids = as_tensor(data), as_tensor(segment_ids)
    require_dtype(op, ids.spec, (int32, int64), "segment_ids")
    axes = ids.shape.ndims
    if axes is None or (x.shape.ndims is not None and not compatible(ids.spec.shape, x.spec.dims[:axes])):
        raise InvalidArgumentError(f"{op}: segment_ids {ids.spec} for data {x.spec}; expected an id per row")
    with x.graph.as_default(), name_scope(name or op):
        count = cast(as_tensor(num_segments), int32)
        flat = cast(reshape(ids, [-1]), int64)
        tail = strided_slice(shape(x), slice(axes, None))
        rows = reshape(x, concat([reshape(size(ids), [1]), tail], 0))
        target = concat([reshape(add(count, 1), [1]), tail], 0)
        result = definition(rows, select(less(flat, 0), cast(count, int64), flat), target)
        return strided_slice(result, slice(None, -1))


@checked
def unsorted_segment_sum(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The sum of the rows of `data` that have each id.

    segment_ids: int32 or int64, of the first axes of `data`; rows with negative ids are left out.
    num_segments: the number of segments, known while the graph is built or once shapes are. Returns
    [num_segments, ...]. A greater id raises InvalidArgumentError at run time on CPU devices.
    """
    return _reduce("unsorted_segment_sum", GatherGrad, data, segment_ids, num_segments, name)


@checked
def unsorted_segment_max(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The greatest element by segment, the least number for none: see `unsorted_segment_sum`."""
    return _reduce("unsorted_segment_max", SegmentMax, data, segment_ids, num_segments, name)


@checked
def unsorted_segment_min(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The least element by segment, the greatest number for none: see `unsorted_segment_sum`."""
    return _reduce("unsorted_segment_min", SegmentMin, data, segment_ids, num_segments, name)


@checked
def unsorted_segment_prod(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The product by segment, 1 where there is no row: see `unsorted_segment_sum`."""
    return _reduce("unsorted_segment_prod", SegmentProd, data, segment_ids, num_segments, name)


def segment_counts(x: Tensor, ids: Any, num_segments: Any) -> Tensor:
    """Rows of each segment, at least 1: [num_segments, 1, ..., 1], of the rank of a reduction of `x`."""
    positions = as_tensor(ids)
    ones = cast(ones_like(positions), x.dtype.real_dtype)
    count = cast(maximum(unsorted_segment_sum(ones, positions, num_segments), 1), x.dtype)
    if x.shape.ndims is None:
        tail = strided_slice(shape(x), slice(positions.shape.ndims, None))
        return reshape(count, concat([shape(count), ones_like(tail)], 0))
    for _ in range(x.shape.ndims - (positions.shape.ndims or 0)):
        count = expand_dims(count, -1)
    return count


@checked
def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The mean of the rows by segment (floating), 0 where there is none: see `unsorted_segment_sum`."""
    x = as_tensor(data)
    with x.graph.as_default(), name_scope(name or "unsorted_segment_mean"):
        total = unsorted_segment_sum(x, segment_ids, num_segments)
        return divide(total, segment_counts(x, segment_ids, num_segments))


@checked
def unsorted_segment_sqrt_n(data: Any, segment_ids: Any, num_segments: Any, name: Name = None) -> Tensor:
    """The sum by segment, divided by the square root of the number of rows: see `unsorted_segment_sum`."""
    x = as_tensor(data)
    with x.graph.as_default(), name_scope(name or "unsorted_segment_sqrt_n"):
        total = unsorted_segment_sum(x, segment_ids, num_segments)
        return divide(total, sqrt(segment_counts(x, segment_ids, num_segments)))


# Sorted ---------------------------------------------------------------------------------------------------

_UNSORTED = "segment_ids must be sorted and at least 0"
EXTREMES = (unsorted_segment_max, unsorted_segment_min)  # which are not 0 or 1 where there is no row


def _sorted(op: str, reduce: Any, data: Any, segment_ids: Any, name: str | None) -> Tensor:
    """A reduction by sorted ids into last id + 1 segments: with constant ids a fixed number."""
    x, ids = as_tensor(data), as_tensor(segment_ids)
    require_dtype(op, ids.spec, (int32, int64), "segment_ids")
    if ids.shape.ndims not in (1, None):
        raise InvalidArgumentError(f"{op}: segment_ids are {ids.spec}; expected a vector, an id for each row")
    value = ids.spec.value
    if value is not None and value.size and (value.min() < 0 or (np.diff(value) < 0).any()):
        raise InvalidArgumentError(f"{op}: {_UNSORTED}; use unsorted_{op}")
    with x.graph.as_default(), name_scope(name or op):
        if value is None:
            return _of_data(op, reduce, x, reshape(ids, [-1]))
        count = int(value.max(initial=-1)) + 1
        result: Tensor = reduce(x, ids, count)
        present = np.isin(np.arange(count), value)
        if present.all() or reduce not in EXTREMES:
            return result
        return where(constant(present), result, zeros_like(result))


def _of_data(op: str, reduce: Any, x: Tensor, ids: Tensor) -> Tensor:
    """Segments by ids that only a step knows; the greatest and the least of no rows is 0."""
    before, after = (strided_slice(ids, part) for part in (slice(None, -1), slice(1, None)))
    rises = logical_and(reduce_all(less_equal(before, after)), reduce_all(greater_equal(ids, 0)))
    with control_dependencies([asserted(rises, [ids], f"{op}: {_UNSORTED}; use unsorted_{op}")]):
        count = add(strided_slice(concat([constant([-1], ids.dtype), ids], 0), -1), 1)
    result: Tensor = reduce(x, ids, count)
    if reduce not in EXTREMES:
        return result
    return where(greater(unsorted_segment_sum(ones_like(ids), ids, count), 0), result, zeros_like(result))


@checked
def segment_sum(data: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The sum of the rows of `data` with each of the sorted ids, a vector of int32 or int64 [rows].

    Returns [last id + 1, ...], 0 for ids that do not occur. Ids that are not constant give the number of
    segments to the step, which is then in the dynamic mode: `unsorted_segment_sum` takes the number. Raises
    InvalidArgumentError for ids that are not sorted, or negative.
    """
    return _sorted("segment_sum", unsorted_segment_sum, data, segment_ids, name)


@checked
def segment_mean(data: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The mean by segment (floating): see `segment_sum`."""
    return _sorted("segment_mean", unsorted_segment_mean, data, segment_ids, name)


@checked
def segment_max(data: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The greatest element by segment: see `segment_sum`."""
    return _sorted("segment_max", unsorted_segment_max, data, segment_ids, name)


@checked
def segment_min(data: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The least element by segment: see `segment_sum`."""
    return _sorted("segment_min", unsorted_segment_min, data, segment_ids, name)


@checked
def segment_prod(data: Any, segment_ids: Any, name: Name = None) -> Tensor:
    """The product by segment, 1 for ids that do not occur: see `segment_sum`."""
    return _sorted("segment_prod", unsorted_segment_prod, data, segment_ids, name)


# Counts ---------------------------------------------------------------------------------------------------


@checked
def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Positive = 100, dtype: AsDType = int32, name: Name = None
) -> Tensor:
    """Counts of `values` (numeric, any shape) in `nbins` intervals of one width: [nbins].

    value_range: [lowest, highest]; values beyond it count in the first and in the last interval.
    """
    x = as_tensor(values)
    with x.graph.as_default(), name_scope(name or "histogram_fixed_width"):
        bins = _bins(reshape(x, [-1]), value_range, nbins)
        return GatherGrad.tensor(cast(ones_like(bins), dtype), bins, constant([nbins]))


@checked
def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Positive = 100, dtype: AsDType = int32, name: Name = None
) -> Tensor:
    """The interval of each of `values` in `histogram_fixed_width`: int32 or int64 of their shape."""
    if dtype not in (int32, int64):
        raise InvalidArgumentError(f"histogram_fixed_width_bins: dtype {dtype.name}; expected int32 or int64")
    with graph_of([values, value_range]).as_default(), name_scope(name or "histogram_fixed_width_bins"):
        return cast(_bins(as_tensor(values), value_range, nbins), dtype)


def _bins(x: Tensor, value_range: Any, nbins: int) -> Tensor:
    bounds, _ = pair(value_range, 0)
    low, high = (cast(strided_slice(bounds, i), float64) for i in (0, 1))
    scaled = multiply(divide(subtract(cast(x, float64), low), subtract(high, low)), float(nbins))
    return cast(clip_by_value(floor(scaled), 0.0, float(nbins - 1)), int64)


@checked
def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: AsDType = int32,
    name: Name = None,
) -> Tensor:
    """The counts of 0, 1, ... in `arr` (integers, any shape), or the sums of `weights` [like arr]: [length].

    length: the greatest value + 1, at least `minlength`, at most `maxlength`; values beyond are left out, as
    negative ones are. It depends on data unless `minlength` and `maxlength` are equal: see the dynamic mode.
    """
    x = as_tensor(arr)
    require_dtype("bincount", x.spec, (int32, int64), "arr")
    with x.graph.as_default(), name_scope(name or "bincount"):
        values = reshape(x, [-1])
        added = cast(ones_like(values), dtype) if weights is None else reshape(as_tensor(weights), [-1])
        if minlength is not None and minlength is maxlength:
            length = cast(as_tensor(minlength), x.dtype)
        else:
            length = reduce_max(concat([values, constant([-1], x.dtype)], 0))
            length = add(length, 1)
            if minlength is not None:
                length = maximum(length, cast(as_tensor(minlength), x.dtype))
            if maxlength is not None:
                length = minimum(length, cast(as_tensor(maxlength), x.dtype))
        inside = select(less(values, length), values, -1)
        return unsorted_segment_sum(added, inside, length)


@checked
def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: CountOrTensor | None = None,
    dtype: AsDType = int32,
    name: Name = None,
    weights: Any = None,
) -> Tensor:
    """Counts of pairs of a label and a prediction: [num_classes, num_classes], rows are labels.

    labels, predictions: int32 or int64 [examples]; weights: numbers [examples] to add up in place of ones. By
    default num_classes is the greatest class + 1; if that is no constant, the step runs in the dynamic mode.
    A class out of range raises InvalidArgumentError at run time on CPU devices.
    """
    given = [as_tensor(each) for each in (labels, predictions)]
    rows, columns = (cast(each, int64) for each in given)
    with rows.graph.as_default(), name_scope(name or "confusion_matrix"):
        n = _classes_of(given) if num_classes is None else numbers_of(num_classes)[0]
        if is_tensor(n):
            n = cast(n, int64)
        inside = less(maximum(rows, columns), n)
        flat = select(inside, add(multiply(rows, n), columns), -1)
        terms = ones_like(flat) if weights is None else as_tensor(weights)
        cells = reshape(multiply(n, n), [1]) if is_tensor(n) else constant([n * n])
        total = GatherGrad(cast(terms, dtype), flat, cells)
        return reshape(total, [n, n])


def _classes_of(classes: Sequence[Tensor]) -> Any:
    """The greatest class + 1, a number where all are constants."""
    values = [each.spec.value for each in classes]
    if all(value is not None for value in values):
        return max(int(value.max(initial=-1)) for value in values if value is not None) + 1
    every = [reshape(cast(each, int64), [-1]) for each in classes]
    return add(reduce_max(concat([constant([-1], int64), *every], 0)), 1)
