"""Rules for ONNX ops on shapes, axes, sums and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import InvalidArgumentError, UnimplementedError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.graph_builder import PROBED, GraphBuilder, line_of, rule
from tensorbow.interop.onnx.held_values import AxisOrder, BatchExtent, Held, flows, without
from tensorbow.interop.onnx.model_file import OnnxNode
from tensorbow.ops.arrays import concat, expand_dims, reshape, squeeze
from tensorbow.ops.broadcasting import broadcast_to, shape, size
from tensorbow.ops.constant import constant
from tensorbow.ops.cumulative import cumsum
from tensorbow.ops.einsum import einsum
from tensorbow.ops.elementwise import abs as absolute
from tensorbow.ops.elementwise import add, less, log, multiply, sqrt, square
from tensorbow.ops.filling import range as number_range
from tensorbow.ops.indexing import gather, one_hot
from tensorbow.ops.matmul import matmul
from tensorbow.ops.nn import bias_add, log_softmax, softmax
from tensorbow.ops.ordering import top_k
from tensorbow.ops.padding import pad
from tensorbow.ops.reductions import (
    argmax,
    argmin,
    reduce_logsumexp,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
)
from tensorbow.ops.selection import cast, select
from tensorbow.ops.shaping import split, tile
from tensorbow.ops.slicing import strided_slice
from tensorbow.specs import int64

FAR = 1 << 31  # ONNX writes "to the end" as a number beyond all extents
REDUCTIONS: dict[str, Any] = {
    "ReduceL1": lambda t, axes, keep: reduce_sum(absolute(t), axes, keep),
    "ReduceL2": lambda t, axes, keep: sqrt(reduce_sum(square(t), axes, keep)),
    "ReduceLogSum": lambda t, axes, keep: log(reduce_sum(t, axes, keep)),
    "ReduceLogSumExp": reduce_logsumexp,
    "ReduceMax": reduce_max,
    "ReduceMean": reduce_mean,
    "ReduceMin": reduce_min,
    "ReduceProd": reduce_prod,
    "ReduceSum": reduce_sum,
    "ReduceSumSquare": lambda t, axes, keep: reduce_sum(square(t), axes, keep),
}


def axes_of(b: GraphBuilder, node: OnnxNode, given: Held | None) -> list[int] | None:
    """Axes given as an attribute (older opsets) or an input."""
    if given is not None:
        return b.numbers(given, "axes")
    found = node.attrs.get("axes")
    return None if found is None else [int(axis) for axis in found]


# Shapes ---------------------------------------------------------------------------------------------


@rule("Constant")
def _constant(b: GraphBuilder, node: OnnxNode) -> Held:
    raise UnimplementedError("expected a value")  # nodes without inputs are evaluated


@rule("Shape")
def _shape(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    part = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    if None not in x.dims[part]:
        return Held(np.array(x.dims[part], np.int64))
    return Held(None, strided_slice(shape(b.tensor(x), out_type=int64), part))


@rule("Size")
def _size(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    if None not in x.dims:
        return Held(np.array(np.prod([d or 0 for d in x.dims], dtype=np.int64)))
    return Held(None, size(b.tensor(x, x.axes), out_type=int64))


def reshaped(b: GraphBuilder, x: Held, dims: Sequence[Any]) -> Held:
    """A value reshaped; without a transpose if its elements lie in ONNX's order already."""
    tensor = b.tensor(x, x.axes) if x.known is None and flows(x) else b.tensor(x)
    return Held(None, reshape(tensor, list(dims)))


@rule("Reshape")
def _reshape(b: GraphBuilder, node: OnnxNode, x: Held, target: Held) -> Held:
    fact = b.fact(node)
    if fact is not None and sum(d is None for d in fact.dims) <= 1:
        return reshaped(b, x, [-1 if d is None else d for d in fact.dims])
    dims = b.extents(target, "the shape")
    if not node.attrs.get("allowzero"):
        dims = [x.dims[axis] if type(d) is int and d == 0 else d for axis, d in enumerate(dims)]
    if sum(d is None for d in dims) > 1 or (None in dims and -1 in dims):
        raise UnimplementedError("the shape keeps several unknown extents; give inputs of known shape")
    return reshaped(b, x, [-1 if d is None else d for d in dims])


@rule("Flatten")
def _flatten(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    dims, axis = x.dims, node.attrs.get("axis", 1)
    axis = axis + len(dims) if axis < 0 else axis
    rows, columns = (list(part) for part in (dims[:axis], dims[axis:]))
    if None in columns:
        raise UnimplementedError(f"the extents of {list(dims)} from axis {axis} on must be known")
    count = int(np.prod([d or 0 for d in columns], dtype=np.int64))
    return reshaped(
        b, x, [-1 if None in rows else int(np.prod([d or 0 for d in rows], dtype=np.int64)), count]
    )


@rule("Squeeze")
def _squeeze(b: GraphBuilder, node: OnnxNode, x: Held, given: Held | None = None) -> Held:
    chosen = axes_of(b, node, given)
    axes = [i for i, d in enumerate(x.dims) if d == 1] if chosen is None else [a % x.rank for a in chosen]
    if not axes:
        return x
    result = squeeze(b.tensor(x, x.axes), [x.position(axis) for axis in axes])
    return Held(None, result, without(x.order, axes))


@rule("Unsqueeze")
def _unsqueeze(b: GraphBuilder, node: OnnxNode, x: Held, given: Held | None = None) -> Held:
    axes = axes_of(b, node, given) or []
    tensor, rank = b.tensor(x), x.rank + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        tensor = expand_dims(tensor, axis)
    return Held(None, tensor)


@rule("Transpose")
def _transpose(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    perm: AxisOrder = tuple(node.attrs.get("perm", reversed(range(x.rank))))
    return Held(None, b.tensor(x, x.axes), tuple(perm.index(axis) for axis in x.order))


@rule("Expand")
def _expand(b: GraphBuilder, node: OnnxNode, x: Held, target: Held) -> Held:
    wanted = b.extents(target, "the shape")
    lead = max(len(wanted) - x.rank, 0)
    dims = list(wanted)
    for axis in range(lead, len(wanted)):
        own = x.dims[axis - lead]
        if type(wanted[axis]) is int and wanted[axis] == 1:
            if own is None:
                raise UnimplementedError(f"axis {axis - lead} of {list(x.dims)} must be known")
            dims[axis] = own
    return Held(None, broadcast_to(b.tensor(x), dims))


@rule("ConstantOfShape")
def _constant_of_shape(b: GraphBuilder, node: OnnxNode, target: Held) -> Held:
    value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(())
    return Held(None, broadcast_to(constant(value), b.extents(target, "the shape")))


@rule("Tile")
def _tile(b: GraphBuilder, node: OnnxNode, x: Held, repeats: Held) -> Held:
    return Held(None, tile(b.tensor(x), b.extents(repeats, "repeats")))


@rule("Range")
def _range(b: GraphBuilder, node: OnnxNode, start: Held, limit: Held, delta: Held) -> Held:
    return Held(None, number_range(b.tensor(start), b.tensor(limit), b.tensor(delta)))


# Parts ------------------------------------------------------------------------------------------------


@rule("Concat")
def _concat(b: GraphBuilder, node: OnnxNode, *values: Held) -> Held:
    orders = [held.axes for held in values if held.axes is not None]
    order = orders[0] if orders else tuple(range(values[0].rank))
    tensors = [b.tensor(held, order) if held.known is None else _exact(held, order) for held in values]
    return Held(None, concat(tensors, order.index(node.attrs["axis"] % len(order))), order)


def _exact(held: Held, order: AxisOrder) -> Tensor:
    if held.known is None or held.known.dtype == object:
        raise UnimplementedError("parts of a shape beside data; give a batch of known size")
    return constant(np.ascontiguousarray(np.transpose(held.known, order)))


@rule("Split")
def _split(b: GraphBuilder, node: OnnxNode, x: Held, given: Held | None = None) -> list[Held]:
    axis = node.attrs.get("axis", 0) % x.rank
    sizes: Any = b.numbers(given, "the sizes") if given is not None else node.attrs.get("split")
    if sizes is None:
        extent, count = x.dims[axis], len(node.outputs)
        if extent is None:
            raise UnimplementedError(f"axis {axis} of {list(x.dims)} must be known")
        piece = -(-extent // count)
        sizes = [piece] * (count - 1) + [extent - piece * (count - 1)]
    parts = split(b.tensor(x, x.axes), list(sizes), x.position(axis))
    return [Held(None, part, x.axes) for part in parts]


@rule("Slice")
def _slice(b: GraphBuilder, node: OnnxNode, x: Held, *given: Held | None) -> Held:
    if given:
        limits = [None if held is None else b.numbers(held, "a limit") for held in given]
    else:
        limits = [list(node.attrs[key]) for key in ("starts", "ends")] + [node.attrs.get("axes")]
    starts, ends, axes, steps = (*limits, None, None)[:4]
    index: list[slice] = [slice(None)] * x.rank
    for i, (start, end) in enumerate(zip(starts or [], ends or [], strict=True)):
        axis, step = (axes[i] if axes else i), (steps[i] if steps else 1)
        part = slice(_near(start), _near(end), step)
        if x.dims[axis] is None and not _is_alike_for_all(part, b.extent(node.inputs[0], axis)):
            raise UnimplementedError(
                f"part {part.start}:{part.stop} of axis {axis}, of which small batches have fewer, so that "
                "the extent is not known; give a batch of known size"
            )
        index[x.position(axis)] = part
    return Held(None, strided_slice(b.tensor(x, x.axes), tuple(index)), x.axes)


def _is_alike_for_all(part: slice, extent: BatchExtent | None) -> bool:
    """False if the probed batches tell of a part's length what does not hold for all others from 1 on.

    extent: of the whole axis.
    """
    if extent is None or extent.per_example < 1:
        return False
    lengths = [len(range(extent.of(batch))[part]) for batch in PROBED]
    line = line_of(lengths)
    limits = (abs(limit) for limit in (part.start, part.stop) if limit)
    near = ((limit - extent.rest) // extent.per_example for limit in limits)  # batches
    others = {*range(1, PROBED[-1]), *(batch + more for batch in near for more in (0, 1, 2))}
    return line is None or all(
        len(range(extent.of(batch))[part]) == line.of(batch) for batch in others if batch > 0
    )


def _near(limit: int) -> int | None:
    return limit if -FAR < limit < FAR else None


@rule("Gather")
def _gather(b: GraphBuilder, node: OnnxNode, x: Held, indices: Held) -> Held:
    axis = node.attrs.get("axis", 0) % x.rank
    if indices.known is None or indices.known.dtype == object:
        return Held(None, gather(b.tensor(x), b.tensor(indices), axis=axis))
    if indices.known.ndim == 0:
        index: list[Any] = [slice(None)] * x.rank
        index[x.position(axis)] = int(indices.known)
        return Held(None, strided_slice(b.tensor(x, x.axes), tuple(index)), without(x.order, [axis]))
    extent, positions = x.dims[axis], indices.known
    if extent is None and (positions < 0).any():
        raise UnimplementedError(f"axis {axis} of {list(x.dims)} must be known for indices from its end")
    return Held(
        None, gather(b.tensor(x), np.where(positions < 0, positions + (extent or 0), positions), axis=axis)
    )


@rule("Pad")
def _pad(
    b: GraphBuilder,
    node: OnnxNode,
    x: Held,
    pads: Held | None = None,
    value: Held | None = None,
    axes: Held | None = None,
) -> Held:
    mode = node.attrs.get("mode", "constant")
    if mode not in ("constant", "reflect"):
        raise UnimplementedError(f"mode {mode} is not supported, expected constant or reflect")
    amounts = b.numbers(pads, "pads") if pads is not None else list(node.attrs["pads"])
    chosen = range(x.rank) if axes is None else [a % x.rank for a in b.numbers(axes, "axes")]
    count = len(amounts) // 2
    sides = [[0, 0] for _ in range(x.rank)]
    for i, axis in enumerate(chosen):
        sides[x.position(axis)] = [amounts[i], amounts[count + i]]
    if any(side < 0 for pair in sides for side in pair):
        raise UnimplementedError(f"pads {amounts}: negative ones are not supported; use Slice")
    filling = b.number(value, "the value", node.attrs.get("value", 0.0))
    return Held(None, pad(b.tensor(x, x.axes), sides, mode, constant_values=filling), x.axes)


@rule("Trilu")
def _trilu(b: GraphBuilder, node: OnnxNode, x: Held, diagonal: Held | None = None) -> Held:
    rows, columns = x.dims[-2:]
    if rows is None or columns is None:
        raise UnimplementedError(f"the last two extents of {list(x.dims)} must be known")
    k = b.number(diagonal, "k", 0)
    upper = node.attrs.get("upper", 1)
    kept = np.triu(np.ones((rows, columns), bool), k) if upper else np.tri(rows, columns, k, dtype=bool)
    return Held(None, select(kept, b.tensor(x), 0))


@rule("OneHot")
def _one_hot(b: GraphBuilder, node: OnnxNode, indices: Held, depth: Held, values: Held) -> Held:
    if values.known is None:
        raise UnimplementedError("values depend on data, expected constants")
    off, on = values.known.reshape(-1).tolist()
    count, positions = b.numbers(depth, "depth")[0], b.tensor(indices)
    if positions.dtype.name != "uint8":  # those below 0 count from the end
        positions = cast(positions, int64)
        positions = select(less(positions, 0), add(positions, count), positions)
    result = one_hot(
        positions,
        count,
        on,
        off,
        node.attrs.get("axis", -1),
        values.known.dtype,
    )
    return Held(None, result)


# Reductions -------------------------------------------------------------------------------------------


@rule(*REDUCTIONS)
def _reduce(b: GraphBuilder, node: OnnxNode, x: Held, given: Held | None = None) -> Held:
    chosen, keep = axes_of(b, node, given), bool(node.attrs.get("keepdims", 1))
    if not chosen:
        if node.attrs.get("noop_with_empty_axes"):
            return x
        chosen = list(range(x.rank))
    axes = [axis % x.rank for axis in chosen]
    result = REDUCTIONS[node.op](b.tensor(x, x.axes), [x.position(axis) for axis in axes], keep)
    return Held(None, result, x.order if keep else without(x.order, axes))


@rule("ArgMax", "ArgMin")
def _argmax(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    if node.attrs.get("select_last_index"):
        raise UnimplementedError("select_last_index is not supported; export without it")
    function = argmax if node.op == "ArgMax" else argmin
    axis = node.attrs.get("axis", 0) % x.rank
    result = function(b.tensor(x), axis, output_type=int64)
    return Held(None, expand_dims(result, axis) if node.attrs.get("keepdims", 1) else result)


@rule("TopK")
def _top_k(b: GraphBuilder, node: OnnxNode, x: Held, k: Held) -> list[Held]:
    axis = node.attrs.get("axis", -1) % x.rank
    if not node.attrs.get("largest", 1):
        raise UnimplementedError("largest=0 is not supported; negate the input")
    order = (*(a for a in range(x.rank) if a != axis), axis)
    values, positions = top_k(b.tensor(x, order), b.numbers(k, "k")[0])
    return [Held(None, values, order), Held(None, cast(positions, int64), order)]


@rule("Softmax", "LogSoftmax")
def _softmax(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    axis = node.attrs.get("axis", -1 if b.file.opset >= 13 else 1) % x.rank
    if b.file.opset < 13 and axis != x.rank - 1:
        raise UnimplementedError(
            f"axis {axis} of {x.rank} in opset {b.file.opset} takes later axes as one; export to opset 13"
        )
    order = x.order
    if order[-1] != axis:
        order = (*(a for a in range(x.rank) if a != axis), axis)
    function = softmax if node.op == "Softmax" else log_softmax
    return Held(None, function(b.tensor(x, order)), order)


@rule("CumSum")
def _cumsum(b: GraphBuilder, node: OnnxNode, x: Held, axis: Held) -> Held:
    position = x.position(b.number(axis, "axis"))
    exclusive, backwards = bool(node.attrs.get("exclusive")), bool(node.attrs.get("reverse"))
    return Held(None, cumsum(b.tensor(x, x.axes), position, exclusive, backwards), x.axes)


# Matrices ---------------------------------------------------------------------------------------------


def _matrix(b: GraphBuilder, held: Held) -> tuple[Tensor, bool]:
    """A matrix or a stack, and whether its matrices lie transposed."""
    swapped = (*range(held.rank - 2), held.rank - 1, held.rank - 2)
    if held.known is None and held.axes == swapped:
        return held.tensor, True
    return b.tensor(held), False


@rule("MatMul")
def _matmul(b: GraphBuilder, node: OnnxNode, x: Held, y: Held) -> Held:
    if min(x.rank, y.rank) == 0:
        raise InvalidArgumentError("expected vectors, matrices or stacks, got a number")
    left, transpose_left = _matrix(b, x) if x.rank > 1 else (expand_dims(b.tensor(x), 0), False)
    right, transpose_right = _matrix(b, y) if y.rank > 1 else (expand_dims(b.tensor(y), 1), False)
    result = matmul(left, right, transpose_left, transpose_right)
    if x.rank == 1:
        result = squeeze(result, [-2])
    return Held(None, squeeze(result, [-1]) if y.rank == 1 else result)


@rule("Gemm")
def _gemm(b: GraphBuilder, node: OnnxNode, x: Held, y: Held, bias: Held | None = None) -> Held:
    (left, swap_left), (right, swap_right) = _matrix(b, x), _matrix(b, y)
    transposes = [
        bool(node.attrs.get(key)) != swap for key, swap in (("transA", swap_left), ("transB", swap_right))
    ]
    result = matmul(left, right, *transposes)
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    result = result if alpha == 1.0 else multiply(result, alpha)
    if bias is None or beta == 0.0:
        return Held(None, result)
    offset = b.tensor(bias) if beta == 1.0 else multiply(b.tensor(bias), beta)
    columns = result.spec.dims[-1]
    biased = bias_add if bias.rank == 1 and columns is not None and bias.dims == (columns,) else add
    return Held(None, biased(result, offset))


@rule("Einsum")
def _einsum(b: GraphBuilder, node: OnnxNode, *values: Held) -> Held:
    return Held(None, einsum(node.attrs["equation"].replace(" ", ""), *[b.tensor(held) for held in values]))
