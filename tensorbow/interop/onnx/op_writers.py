"""ONNX nodes for each of this library's ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Operation, Tensor
from tensorbow.interop.onnx.graph_writer import GraphWriter, channels_second, writes
from tensorbow.interop.onnx.held_values import AxisOrder, without
from tensorbow.specs import int64

# Element-wise ops: the chain of nodes for them; each later node takes the result of the one before.
UNARY = {
    "Abs": ("Abs",),
    "Ceil": ("Ceil",),
    "Cos": ("Cos",),
    "Elu": ("Elu",),
    "Erf": ("Erf",),
    "Exp": ("Exp",),
    "Floor": ("Floor",),
    "IsNan": ("IsNaN",),
    "Log": ("Log",),
    "LogicalNot": ("Not",),
    "Neg": ("Neg",),
    "Reciprocal": ("Reciprocal",),
    "Relu": ("Relu",),
    "Round": ("Round",),
    "Rsqrt": ("Sqrt", "Reciprocal"),
    "Sigmoid": ("Sigmoid",),
    "Sign": ("Sign",),
    "Sin": ("Sin",),
    "Softplus": ("Softplus",),
    "Sqrt": ("Sqrt",),
    "Tanh": ("Tanh",),
}
BINARY = {
    "Add": ("Add",),
    "Equal": ("Equal",),
    "Greater": ("Greater",),
    "GreaterEqual": ("GreaterOrEqual",),
    "Less": ("Less",),
    "LessEqual": ("LessOrEqual",),
    "LogicalAnd": ("And",),
    "LogicalOr": ("Or",),
    "Maximum": ("Max",),
    "Minimum": ("Min",),
    "Mul": ("Mul",),
    "NotEqual": ("Equal", "Not"),
    "Pow": ("Pow",),
    "RealDiv": ("Div",),
    "Select": ("Where",),
    "Sub": ("Sub",),
}
REDUCTIONS = {
    "Max": "ReduceMax",
    "Mean": "ReduceMean",
    "Min": "ReduceMin",
    "Prod": "ReduceProd",
    "Sum": "ReduceSum",
}


@writes(*UNARY, *BINARY)
def _elementwise(w: GraphWriter, op: Operation) -> None:
    names, order = w.aligned(op.inputs)
    for node in UNARY.get(op.definition.name) or BINARY[op.definition.name]:
        names = [w.node(node, names)]
    w.name_result(op.outputs[0], names[0], order)


@writes("Square", "IntegerPow")
def _square(w: GraphWriter, op: Operation) -> None:
    names, order = w.aligned(op.inputs)
    if op.definition.name == "Square":
        w.name_result(op.outputs[0], w.node("Mul", [names[0], names[0]]), order)
    else:
        w.name_result(op.outputs[0], w.node("Pow", names), order)


@writes("Expm1", "Log1p", "IsFinite", "LeakyRelu")
def _one_more(w: GraphWriter, op: Operation) -> None:
    (x,), order = w.aligned(op.inputs)
    dtype, name = op.inputs[0].dtype.as_numpy_dtype, op.definition.name
    if name == "Expm1":
        result = w.node("Sub", [w.node("Exp", [x]), w.constant(1, dtype)])
    elif name == "Log1p":
        result = w.node("Log", [w.node("Add", [x, w.constant(1, dtype)])])
    elif name == "LeakyRelu":
        result = w.node("LeakyRelu", [x], alpha=float(op.attrs["alpha"]))
    else:
        result = w.node("Not", [w.node("Or", [w.node("IsNaN", [x]), w.node("IsInf", [x])])])
    w.name_result(op.outputs[0], result, order)


@writes("FloorDiv", "FloorMod")
def _floor(w: GraphWriter, op: Operation) -> None:
    """Division rounded down; ONNX's Div truncates integers and its Mod of floats is another."""
    (x, y), order = w.aligned(op.inputs)
    integers, remainder = op.inputs[0].dtype.is_integer, op.definition.name == "FloorMod"
    if integers:
        rest = w.node("Mod", [x, y])
        result = rest if remainder else w.node("Div", [w.node("Sub", [x, rest]), y])
    else:
        quotient = w.node("Floor", [w.node("Div", [x, y])])
        result = w.node("Sub", [x, w.node("Mul", [quotient, y])]) if remainder else quotient
    w.name_result(op.outputs[0], result, order)


@writes("Cast")
def _cast(w: GraphWriter, op: Operation) -> None:
    (x,), order = w.aligned(op.inputs)
    w.name_result(op.outputs[0], _converted(w, x, op.attrs["dtype"]), order)


def _converted(w: GraphWriter, name: str, dtype: Any) -> str:
    kind = w.onnx.helper.np_dtype_to_tensor_dtype(dtype.as_numpy_dtype)
    return w.node("Cast", [name], to=kind)


# Matrices ---------------------------------------------------------------------------------------------


@writes("MatMul", "BatchMatMulV2")
def _matmul(w: GraphWriter, op: Operation) -> None:
    keys = ("transpose_a", "transpose_b") if op.definition.name == "MatMul" else ("adj_x", "adj_y")
    names = [_matrix(w, tensor, op.attrs[key]) for tensor, key in zip(op.inputs, keys, strict=True)]
    w.name_result(op.outputs[0], w.node("MatMul", names))


def _matrix(w: GraphWriter, tensor: Tensor, swapped: bool) -> str:
    rank = len(tensor.spec.dims)
    return w.name(tensor, (*range(rank - 2), rank - 1, rank - 2) if swapped else None)


@writes("BiasAdd")
def _bias_add(w: GraphWriter, op: Operation) -> None:
    value, bias = op.inputs
    order = w.order(value)
    rank = len(order)
    x = w.name(value, order)
    last = w.nodes[-1] if w.nodes else None
    if last is not None and last.op_type == "Conv" and list(last.output) == [x] and w.readers[value] == 1:
        last.input.append(w.name(bias))
        w.name_result(op.outputs[0], x, order)
        return
    behind = rank - 1 - order.index(rank - 1)
    offset, known = w.name(bias), w.known(bias)
    if behind:
        dims = [-1, *[1] * behind]
        offset = (
            w.constant(known.reshape(dims))
            if known is not None
            else w.node("Reshape", [offset, w.constant(dims, np.int64)])
        )
    w.name_result(op.outputs[0], w.node("Add", [x, offset]), order)


# Images -----------------------------------------------------------------------------------------------

IMAGES: AxisOrder = (0, 3, 1, 2)


def window_attributes(op: Operation, images: Tensor, window: Sequence[int]) -> dict[str, Any]:
    """The attributes of a sliding window."""
    strides, padding = op.attrs["strides"][1:3], op.attrs["padding"]
    dilations = op.attrs.get("dilations", (1, 1, 1, 1))[1:3]
    attrs: dict[str, Any] = {"kernel_shape": list(window), "strides": list(strides)}
    if max(dilations) > 1:
        attrs["dilations"] = list(dilations)
    dims = images.spec.dims[1:3]
    if padding == "VALID":
        return attrs
    if None in dims:
        return {**attrs, "auto_pad": "SAME_UPPER"}
    sides = []
    for extent, size, stride, rate in zip(dims, window, strides, dilations, strict=True):
        span = (size - 1) * rate + 1
        total = max((-(-(extent or 0) // stride) - 1) * stride + span - (extent or 0), 0)
        sides.append((total // 2, total - total // 2))
    return {**attrs, "pads": [before for before, _ in sides] + [after for _, after in sides]}


@writes("Conv2D")
def _conv(w: GraphWriter, op: Operation) -> None:
    images, filters = op.inputs
    height, width, *_ = (int(d or 0) for d in filters.spec.dims)
    kernel = w.name(filters, (3, 2, 0, 1))
    result = w.node(
        "Conv", [w.name(images, IMAGES), kernel], **window_attributes(op, images, (height, width))
    )
    w.name_result(op.outputs[0], result, IMAGES)


@writes("DepthwiseConv2dNative")
def _depthwise(w: GraphWriter, op: Operation) -> None:
    images, filters = op.inputs
    height, width, channels, multiplier = (int(d or 0) for d in filters.spec.dims)
    dims = [channels * multiplier, 1, height, width]
    order, known = (2, 3, 0, 1), w.known(filters)
    if known is not None:
        kernel = w.store("depthwise_kernel", np.transpose(known, order).reshape(dims))
    else:
        kernel = w.node("Reshape", [w.name(filters, order), w.constant(dims, np.int64)])
    attrs = window_attributes(op, images, (height, width))
    result = w.node("Conv", [w.name(images, IMAGES), kernel], group=channels, **attrs)
    w.name_result(op.outputs[0], result, IMAGES)


@writes("MaxPool", "AvgPool")
def _pool(w: GraphWriter, op: Operation) -> None:
    images = op.inputs[0]
    node = "MaxPool" if op.definition.name == "MaxPool" else "AveragePool"
    attrs = window_attributes(op, images, op.attrs["ksize"][1:3])
    w.name_result(op.outputs[0], w.node(node, [w.name(images, IMAGES)], **attrs), IMAGES)


@writes("FusedBatchNorm")
def _batch_norm(w: GraphWriter, op: Operation) -> None:
    if op.attrs["is_training"]:
        raise UnimplementedError(
            "it uses the statistics of a batch; export a graph built with training=False"
        )
    x, *vectors = op.inputs
    order = channels_second(len(x.spec.dims))
    names = [w.name(x, order), *(w.name(vector) for vector in vectors)]
    result = w.node("BatchNormalization", names, epsilon=float(op.attrs["epsilon"]))
    w.name_result(op.outputs[0], result, order)


@writes("Softmax", "LogSoftmax")
def _softmax(w: GraphWriter, op: Operation) -> None:
    w.name_result(op.outputs[0], w.node(op.definition.name, [w.name(op.inputs[0])], axis=-1))


# Shapes and parts -------------------------------------------------------------------------------------


@writes("Reshape")
def _reshape(w: GraphWriter, op: Operation) -> None:
    x, target = op.inputs
    dims = op.outputs[0].spec.shape
    more = {"allowzero": 1} if dims is not None and 0 in dims else {}
    w.name_result(op.outputs[0], w.node("Reshape", [_flowing(w, x), w.shape_vector(target, dims)], **more))


def _flowing(w: GraphWriter, x: Tensor) -> str:
    """A value whose elements lie in the tensor's order: as written if only axes of extent 1 moved."""
    order, dims = w.order(x), x.spec.dims
    moved = [axis for axis in order if dims[axis] != 1]
    return w.name(x, order if moved == sorted(moved) else None)


@writes("ExpandDims")
def _expand_dims(w: GraphWriter, op: Operation) -> None:
    w.name_result(
        op.outputs[0], w.node("Unsqueeze", [w.name(op.inputs[0]), w.constant([op.attrs["axis"]], np.int64)])
    )


@writes("Squeeze")
def _squeeze(w: GraphWriter, op: Operation) -> None:
    (x,) = op.inputs
    axes = op.attrs["axis"] or [axis for axis, extent in enumerate(x.spec.dims) if extent == 1]
    places = w.constant(w.written_axes(x, axes), np.int64)
    result = w.node("Squeeze", [w.name(x, w.order(x)), places])
    w.name_result(op.outputs[0], result, without(w.order(x), [axis % len(x.spec.dims) for axis in axes]))


@writes("Transpose")
def _transpose(w: GraphWriter, op: Operation) -> None:
    (x,) = op.inputs
    order = w.order(x)
    perm = tuple(op.attrs["perm"] or reversed(range(len(order))))
    w.name_result(op.outputs[0], w.name(x, order), tuple(perm.index(axis) for axis in order))


@writes("ConcatV2")
def _concat(w: GraphWriter, op: Operation) -> None:
    names, order = w.aligned(op.inputs)
    order = order or tuple(range(len(op.inputs[0].spec.dims)))
    axis = order.index(op.attrs["axis"] % len(order))
    w.name_result(op.outputs[0], w.node("Concat", names, axis=axis), order)


@writes("Split")
def _split(w: GraphWriter, op: Operation) -> None:
    (x,) = op.inputs
    order, axis = w.order(x), op.attrs["axis"] % len(x.spec.dims)
    sizes = [tensor.spec.dims[axis] for tensor in op.outputs]
    if None in sizes:
        raise UnimplementedError(f"the extent of axis {axis} of {x.spec} must be known")
    inputs = [w.name(x, order), w.constant(sizes, np.int64)]
    names = w.node_of_several("Split", inputs, len(sizes), axis=order.index(axis))
    for tensor, name in zip(op.outputs, names, strict=True):
        w.name_result(tensor, name, order)


@writes("StridedSlice")
def _strided_slice(w: GraphWriter, op: Operation) -> None:
    (x,) = op.inputs
    rank = len(x.spec.dims)
    items = list(op.attrs["index"])
    items = items if "..." in items else [*items, "..."]
    gap, used = items.index("..."), sum(item not in ("...", "new") for item in items)
    items[gap : gap + 1] = [(None, None, None)] * (rank - used)
    rows: list[tuple[int, int, int, int]] = []  # start, end, axis, step
    removed: list[int] = []
    added: list[int] = []
    axis = kept = 0
    far = (1 << 63) - 1
    for item in items:
        if item == "new":
            added.append(kept)
            kept += 1
            continue
        if isinstance(item, tuple):
            start, end, step = item[0], item[1], item[2] or 1
            extent = x.spec.dims[axis]
            if step < 0 and extent is not None and not len(range(*slice(start, end, step).indices(extent))):
                start, end, step = 0, 0, 1  # ONNX begins with element 0 before the first one, too
            if (start, end, step) != (None, None, 1):
                first = (0 if step > 0 else far) if start is None else start
                last = (far if step > 0 else -far) if end is None else end
                rows.append((first, last, axis, step))
            kept += 1
        else:
            rows.append((item, far if item == -1 else item + 1, axis, 1))
            removed.append(axis)
        axis += 1
    name = w.name(x)
    if rows:
        starts, ends, axes, steps = (w.constant(column, np.int64) for column in zip(*rows, strict=True))
        name = w.node("Slice", [name, starts, ends, axes, steps])
    if removed:
        name = w.node("Squeeze", [name, w.constant(removed, np.int64)])
    w.name_result(op.outputs[0], w.node("Unsqueeze", [name, w.constant(added, np.int64)]) if added else name)


@writes("Slice")
def _slice(w: GraphWriter, op: Operation) -> None:
    x, begin, size = op.inputs
    known = w.known(size)
    start = w.vector(begin)
    if known is not None and (known >= 0).all():
        first = w.known(begin)
        end = (
            w.constant(first + known, np.int64)
            if first is not None
            else w.node("Add", [start, w.vector(size)])
        )
    else:
        extents = w.vector(size)
        far = w.constant(np.full(len(x.spec.dims), (1 << 63) - 1))
        rest = w.node("Less", [extents, w.constant(np.zeros(len(x.spec.dims), np.int64))])
        end = w.node("Where", [rest, far, w.node("Add", [start, extents])])
    w.name_result(op.outputs[0], w.node("Slice", [w.name(x), start, end]))


@writes("Pad")
def _pad(w: GraphWriter, op: Operation) -> None:
    x, paddings = op.inputs
    order, known = w.order(x), w.known(paddings)
    if known is None:
        raise UnimplementedError("paddings are computed; expected constants")
    pads = w.constant(np.asarray(known)[list(order)].T.reshape(-1), np.int64)
    value = w.constant(op.attrs["constant_values"], x.dtype.as_numpy_dtype)
    w.name_result(op.outputs[0], w.node("Pad", [w.name(x, order), pads, value]), order)


@writes("GatherV2")
def _gather(w: GraphWriter, op: Operation) -> None:
    params, indices = op.inputs
    if op.attrs["allow_unused"]:
        raise UnimplementedError("an index -1 stands for no row; export a table in one part")
    positions = w.name(indices)
    if indices.dtype.name == "uint8":
        positions = _converted(w, positions, int64)
    w.name_result(op.outputs[0], w.node("Gather", [w.name(params), positions], axis=int(op.attrs["axis"])))


@writes("OneHot")
def _one_hot(w: GraphWriter, op: Operation) -> None:
    attrs, dtype = op.attrs, op.attrs["dtype"].as_numpy_dtype
    values = w.constant([attrs["off_value"], attrs["on_value"]], dtype)
    depth, positions = w.constant(attrs["depth"], np.int64), w.name(op.inputs[0])
    if op.inputs[0].dtype != int64:
        positions = _converted(w, positions, int64)
    if op.inputs[0].dtype.name != "uint8":  # ONNX counts those below 0 from the end; here they stand for none
        is_none = w.node("Less", [positions, w.constant(0, np.int64)])
        positions = w.node("Where", [is_none, depth, positions])
    if op.inputs[0].spec.rank:
        w.name_result(op.outputs[0], w.node("OneHot", [positions, depth, values], axis=int(attrs["axis"])))
        return
    one = w.node("OneHot", [w.node("Reshape", [positions, w.constant([1], np.int64)]), depth, values], axis=0)
    w.name_result(op.outputs[0], w.node("Reshape", [one, w.constant([attrs["depth"]], np.int64)]))


@writes("Tile")
def _tile(w: GraphWriter, op: Operation) -> None:
    w.name_result(op.outputs[0], w.node("Tile", [w.name(op.inputs[0]), w.vector(op.inputs[1])]))


@writes("BroadcastTo")
def _broadcast(w: GraphWriter, op: Operation) -> None:
    x, target = op.inputs
    dims = op.outputs[0].spec.shape
    known = dims is not None and None not in dims
    w.name_result(
        op.outputs[0],
        w.node("Expand", [w.name(x), w.constant(list(dims or ()), np.int64) if known else w.vector(target)]),
    )


@writes("Fill")
def _fill(w: GraphWriter, op: Operation) -> None:
    dims, value = op.inputs
    w.name_result(op.outputs[0], w.node("Expand", [w.name(value), w.vector(dims)]))


@writes("Range")
def _range(w: GraphWriter, op: Operation) -> None:
    w.name_result(op.outputs[0], w.node("Range", [w.name(tensor) for tensor in op.inputs]))


@writes("ReverseV2")
def _reverse(w: GraphWriter, op: Operation) -> None:
    (x,) = op.inputs
    axes = w.written_axes(x, op.attrs["axis"])
    columns = [-1] * len(axes), [-(1 << 63) + 1] * len(axes), axes, [-1] * len(axes)
    limits = [w.constant(column, np.int64) for column in columns]
    w.name_result(op.outputs[0], w.node("Slice", [w.name(x, w.order(x)), *limits]), w.order(x))


@writes("Shape", "Size")
def _shape(w: GraphWriter, op: Operation) -> None:
    name = w.node(op.definition.name, [w.name(op.inputs[0])])
    dtype = op.attrs["out_type"]
    w.name_result(op.outputs[0], name if dtype == int64 else _converted(w, name, dtype))


# Reductions -------------------------------------------------------------------------------------------


@writes(*REDUCTIONS, "Any", "All")
def _reduce(w: GraphWriter, op: Operation) -> None:
    order, keep = w.order(op.inputs[0]), bool(op.attrs["keepdims"])
    rank, name = len(order), w.name(op.inputs[0], w.order(op.inputs[0]))
    chosen = op.attrs["axis"]
    axes = list(range(rank)) if chosen is None else [axis % rank for axis in chosen]
    places = w.constant([order.index(axis) for axis in axes], np.int64)
    kind = op.definition.name
    if not axes:
        w.name_result(op.outputs[0], name, order)
        return
    if kind in REDUCTIONS:
        result = w.node(REDUCTIONS[kind], [name, places], keepdims=int(keep))
    else:  # of bools, as 0 and 1
        numbers = w.node("Cast", [name], to=w.onnx.TensorProto.UINT8)
        number = w.node("ReduceMax" if kind == "Any" else "ReduceMin", [numbers, places], keepdims=int(keep))
        result = w.node("Cast", [number], to=w.onnx.TensorProto.BOOL)
    w.name_result(op.outputs[0], result, order if keep else without(order, axes))


@writes("ArgMax")
def _argmax(w: GraphWriter, op: Operation) -> None:
    result = w.node("ArgMax", [w.name(op.inputs[0])], axis=int(op.attrs["axis"]), keepdims=0)
    dtype = op.attrs["output_type"]
    w.name_result(op.outputs[0], result if dtype == int64 else _converted(w, result, dtype))


@writes("TopKV2")
def _top_k(w: GraphWriter, op: Operation) -> None:
    count = w.constant([op.attrs["k"]], np.int64)
    values, positions = w.node_of_several("TopK", [w.name(op.inputs[0]), count], 2)
    w.name_result(op.outputs[0], values)
    w.name_result(op.outputs[1], _converted(w, positions, op.outputs[1].dtype))


@writes("Cumsum")
def _cumsum(w: GraphWriter, op: Operation) -> None:
    axis = w.constant(op.attrs["axis"], np.int64)
    attrs = {key: int(op.attrs[key]) for key in ("exclusive", "reverse")}
    w.name_result(op.outputs[0], w.node("CumSum", [w.name(op.inputs[0]), axis], **attrs))
