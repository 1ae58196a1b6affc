"""Rules for ONNX's convolutions, pools and normalisations, with channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbow.errors import UnimplementedError
from tensorbow.graph import Tensor
from tensorbow.interop.onnx.graph_builder import GraphBuilder, rule
from tensorbow.interop.onnx.held_values import Held, channels_last
from tensorbow.interop.onnx.model_file import OnnxNode
from tensorbow.ops.arrays import expand_dims, reshape, squeeze
from tensorbow.ops.average_pooling import avg_pool
from tensorbow.ops.conv import conv2d
from tensorbow.ops.depthwise import depthwise_conv2d
from tensorbow.ops.elementwise import add, multiply, rsqrt, square, subtract
from tensorbow.ops.nn import bias_add
from tensorbow.ops.normalization import fused_batch_norm, layer_norm, moments
from tensorbow.ops.padding import pad
from tensorbow.ops.pooling import max_pool
from tensorbow.ops.reductions import reduce_max, reduce_mean

LOWEST = float(np.finfo(np.float32).min)


class PaddedWindow(NamedTuple):
    """One spatial axis: its elements in a window lie `dilation` apart; windows begin `stride` apart."""

    size: int
    stride: int
    dilation: int
    before: int
    after: int

    def windows(self, extent: int, up: bool = False) -> int:
        """Number of windows; `up` counts one that begins on the padded image and ends behind it."""
        span = (self.size - 1) * self.dilation + 1
        room = extent + self.before + self.after - span
        count = (-(-room // self.stride) if up else room // self.stride) + 1
        if up and (count - 1) * self.stride >= extent + self.before:
            count -= 1
        return count


def _images(b: GraphBuilder, x: Held) -> Tensor:
    """Images [batch, height, width, channels]; sequences [batch, 1, width, channels]."""
    if x.rank not in (3, 4):
        raise UnimplementedError(f"expected images or sequences (rank 4 or 3), got {list(x.dims)}")
    tensor = b.tensor(x, channels_last(x.rank))
    return expand_dims(tensor, 1) if x.rank == 3 else tensor


def _result(images: Tensor, rank: int) -> Held:
    return Held(None, squeeze(images, [1]) if rank == 3 else images, channels_last(rank))


def _windows(node: OnnxNode, x: Held, sizes: Sequence[int]) -> list[PaddedWindow]:
    """The windows over the spatial axes, with the padding that the attributes ask for."""
    count = len(sizes)
    strides = node.attrs.get("strides", (1,) * count)
    dilations = node.attrs.get("dilations", (1,) * count)
    pads = node.attrs.get("pads", (0,) * (2 * count))
    mode = node.attrs.get("auto_pad", "NOTSET")
    result = []
    for i in range(count):
        before, after = pads[i], pads[i + count]
        if mode == "VALID":
            before = after = 0
        elif mode in ("SAME_UPPER", "SAME_LOWER"):
            extent = x.dims[i + 2]
            if extent is None:
                raise UnimplementedError(f"auto_pad {mode}: axis {i + 2} of {list(x.dims)} must be known")
            span = (sizes[i] - 1) * dilations[i] + 1
            total = max((-(-extent // strides[i]) - 1) * strides[i] + span - extent, 0)
            before, after = total // 2, total - total // 2
            if mode == "SAME_LOWER":
                before, after = after, before
        result.append(PaddedWindow(sizes[i], strides[i], dilations[i], before, after))
    return [PaddedWindow(1, 1, 1, 0, 0), *result] if count == 1 else result


def _padding(images: Tensor, windows: Sequence[PaddedWindow]) -> str | None:
    """The op's own padding that gives the same windows, or None."""
    if not any(w.before or w.after for w in windows):
        return "VALID"
    for extent, w in zip(images.spec.dims[1:3], windows, strict=True):
        if extent is None:
            return None
        count = -(-extent // w.stride)
        total = max((count - 1) * w.stride + (w.size - 1) * w.dilation + 1 - extent, 0)
        if count != w.windows(extent) or total // 2 != w.before:
            return None
    return "SAME"


def _padded(images: Tensor, windows: Sequence[PaddedWindow], value: float = 0.0) -> Tensor:
    sides = [[0, 0], *([w.before, w.after] for w in windows), [0, 0]]
    return pad(images, sides, constant_values=value) if any(map(any, sides)) else images


@rule("Conv")
def _conv(b: GraphBuilder, node: OnnxNode, x: Held, kernel: Held, bias: Held | None = None) -> Held:
    images, rank = _images(b, x), x.rank
    filters = b.tensor(kernel, (*range(2, rank), 1, 0))
    filters = expand_dims(filters, 0) if rank == 3 else filters
    windows = _windows(node, x, [int(d or 0) for d in kernel.dims[2:]])
    padding = _padding(images, windows)
    if padding is None:
        images, padding = _padded(images, windows), "VALID"
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    groups, (outputs, inputs) = node.attrs.get("group", 1), kernel.dims[:2]
    single = max(strides) == 1 or max(dilations) == 1
    if groups > 1 and inputs == 1 and outputs is not None and single and strides[0] == strides[1]:
        height, width = (w.size for w in windows)
        each = reshape(filters, [height, width, groups, outputs // groups])
        result = depthwise_conv2d(images, each, [1, *strides, 1], padding, dilations)
    else:
        result = conv2d(images, filters, strides, padding, dilations=dilations)
    if bias is not None and (bias.known is None or bias.known.any()):
        result = bias_add(result, b.tensor(bias))
    return _result(result, rank)


def _pool_windows(node: OnnxNode, x: Held) -> list[PaddedWindow]:
    """The windows of a pool, with more padding behind where it rounds their number up."""
    windows = _windows(node, x, node.attrs["kernel_shape"])
    if not node.attrs.get("ceil_mode"):
        return windows
    result = []
    for extent, w in zip((1, *x.dims[2:])[-2:] if x.rank == 3 else x.dims[2:], windows, strict=True):
        if extent is None:
            raise UnimplementedError(f"ceil_mode: the height and width of {list(x.dims)} must be known")
        span = (w.size - 1) * w.dilation + 1
        needed = (w.windows(extent, up=True) - 1) * w.stride + span - extent - w.before
        result.append(w._replace(after=max(w.after, needed)))
    return result


@rule("MaxPool")
def _max_pool(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    windows, images = _pool_windows(node, x), _images(b, x)
    if len(node.outputs) > 1 or any(w.dilation > 1 for w in windows):
        raise UnimplementedError("positions of maxima and dilations are not supported")
    padding = _padding(images, windows)
    if padding is None:
        images, padding = _padded(images, windows, LOWEST), "VALID"
    result = max_pool(images, [w.size for w in windows], [w.stride for w in windows], padding)
    return _result(result, x.rank)


@rule("AveragePool")
def _average_pool(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    windows, images = _pool_windows(node, x), _images(b, x)
    if any(w.dilation > 1 for w in windows):
        raise UnimplementedError("dilations are not supported; export without them")
    sizes, strides = [w.size for w in windows], [w.stride for w in windows]
    asked = _windows(node, x, node.attrs["kernel_shape"])
    padding = _padding(images, windows)
    counted = bool(node.attrs.get("count_include_pad"))
    if padding == "VALID" or (padding == "SAME" and not counted):
        return _result(avg_pool(images, sizes, strides, padding), x.rank)
    result = avg_pool(_padded(images, windows), sizes, strides, "VALID")
    shares = [
        _shares(extent, w, own, counted)
        for extent, w, own in zip(images.spec.dims[1:3], windows, asked, strict=True)
    ]
    factor = np.outer(*shares)[:, :, None].astype(np.float32)
    return _result(result if (factor == 1).all() else multiply(result, factor), x.rank)


def _shares(extent: int | None, window: PaddedWindow, asked: PaddedWindow, counted: bool) -> Any:
    """Size of each window over the number of its elements that count."""
    if extent is None:
        raise UnimplementedError("the height and width of padded images must be known")
    low, high = (-asked.before, extent + asked.after) if counted else (0, extent)
    starts = np.arange(window.windows(extent)) * window.stride - window.before
    return window.size / (np.minimum(starts + window.size, high) - np.maximum(starts, low))


@rule("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(b: GraphBuilder, node: OnnxNode, x: Held) -> Held:
    function = reduce_mean if node.op == "GlobalAveragePool" else reduce_max
    axes = [x.position(axis) for axis in range(2, x.rank)]
    return Held(None, function(b.tensor(x, x.axes), axes, keepdims=True), x.order)


# Normalisations ---------------------------------------------------------------------------------------


@rule("BatchNormalization")
def _batch_norm(b: GraphBuilder, node: OnnxNode, x: Held, *vectors: Held) -> Held:
    order = channels_last(x.rank)
    tensor = b.tensor(x, order)
    scale, offset, mean, variance = (b.tensor(held) for held in vectors)
    epsilon = node.attrs.get("epsilon", 1e-5)
    if not b.training:
        result, *_ = fused_batch_norm(tensor, scale, offset, mean, variance, epsilon, is_training=False)
        return Held(None, result, order)
    result, *batch = fused_batch_norm(tensor, scale, offset, epsilon=epsilon)
    moving = [b.file.weights.get(name) for name in node.inputs[3:5]]
    for weight, value in zip(moving, batch, strict=True):
        if weight is not None:
            b.statistics.append((weight, value, node.attrs.get("momentum", 0.9)))
    return Held(None, result, order)


@rule("LayerNormalization")
def _layer_norm(b: GraphBuilder, node: OnnxNode, x: Held, scale: Held, offset: Held | None = None) -> Held:
    if len(node.outputs) > 1:
        raise UnimplementedError("mean and deviation as outputs are not supported")
    result = layer_norm(
        b.tensor(x),
        b.tensor(scale),
        None if offset is None else b.tensor(offset),
        node.attrs.get("epsilon", 1e-5),
        node.attrs.get("axis", -1),
    )
    return Held(None, result)


@rule("RMSNormalization")
def _rms_norm(b: GraphBuilder, node: OnnxNode, x: Held, scale: Held) -> Held:
    tensor = b.tensor(x)
    first = node.attrs.get("axis", -1) % x.rank
    squares = reduce_mean(square(tensor), list(range(first, x.rank)), keepdims=True)
    normal = multiply(tensor, rsqrt(add(squares, node.attrs.get("epsilon", 1e-5))))
    return Held(None, multiply(normal, b.tensor(scale)))


@rule("InstanceNormalization", "GroupNormalization")
def _group_norm(b: GraphBuilder, node: OnnxNode, x: Held, scale: Held, offset: Held) -> Held:
    channels = x.dims[1]
    if channels is None:
        raise UnimplementedError(f"the number of channels of {list(x.dims)} must be known")
    groups = node.attrs.get("num_groups", channels)
    order = channels_last(x.rank)
    tensor = b.tensor(x, order)
    dims = [-1 if d is None else d for d in tensor.spec.dims]
    grouped = reshape(tensor, [*dims[:-1], groups, channels // groups])
    axes = [*range(1, x.rank - 1), x.rank]
    mean, variance = moments(grouped, axes, keep_dims=True)
    factor = rsqrt(add(variance, node.attrs.get("epsilon", 1e-5)))
    normal = reshape(multiply(subtract(grouped, mean), factor), dims)
    weights = [b.tensor(held) for held in (scale, offset)]
    if scale.dims != (channels,):  # opset 18: one for each group
        weights = [
            reshape(multiply(reshape(w, [groups, 1]), np.ones((1, channels // groups), np.float32)), [-1])
            for w in weights
        ]
    return Held(None, bias_add(multiply(normal, weights[0]), weights[1]), order)
