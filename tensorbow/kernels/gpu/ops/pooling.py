"""Max pooling of NHWC images, its gradient, and the gradient of that: one thread per result.

The maximum of a window is its first element in row-major order that is not less than the maximum, as on the
CPU, so ties and NaN select exactly one element. Gradients are gathered: each thread visits the windows of
its element and adds their contributions in the CPU's order, which gives the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from tensorbow.graph import Attrs, Kernel, KernelCall
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.channel_cut import cut_rows
from tensorbow.kernels.gpu.source.column_sums import Own, column_sums
from tensorbow.kernels.gpu.source.elements import Element
from tensorbow.kernels.gpu.source.index_types import IndexType, index_for
from tensorbow.kernels.gpu.source.reduction_plans import lowest
from tensorbow.ops.pooling import MaxPool, MaxPoolGrad, MaxPoolGradGrad
from tensorbow.ops.sliding_windows import Windows
from tensorbow.program.nodes import Node
from tensorbow.specs import Array, as_dtype

POOL_FIELDS = ("height", "width", "channels", "rows", "columns", "top", "left")

# Head of both pooling sources. Extents and strides of windows are constants, so that loops unroll.
POOL = """
typedef $T T;
typedef $I I;
struct Pool { I height, width, channels, rows, columns, top, left; };  // top, left: the padding in front

// Of an element of the images, or of the windows.
struct Coordinates { I image, row, column, channel; };
__device__ inline Coordinates coordinates_of(I i, I rows, I columns, I channels) {
    Coordinates at;
    at.channel = i % channels;
    i /= channels;
    at.column = i % columns;
    i /= columns;
    at.row = i % rows;
    at.image = i / rows;
    return at;
}
__device__ inline I image_index(const Pool& pool, I image, I row, I column, I channel) {
    return ((image * pool.height + row) * pool.width + column) * pool.channels + channel;
}
__device__ inline I window_index(const Pool& pool, I image, I row, I column, I channel) {
    return ((image * pool.rows + row) * pool.columns + column) * pool.channels + channel;
}

// The windows along an axis that have an element, given its position on the padded axis.
__device__ inline I first_window(I padded, I window, I stride) {
    return padded < window ? 0 : (padded - window) / stride + 1;
}
__device__ inline I last_window(I padded, I stride, I count) {
    return tb_minimum(padded / stride, count - 1);
}
"""

# The gradient of one element of the images.
GRADIENT_AT = """
// The first element on the image of a window that is not less than the maximum; -1 where there is none.
__device__ inline I chosen(const T* images, T best, const Pool& pool, I image, I top, I left, I channel) {
    for (int r = 0; r < $ROWS; ++r) {
        if (top + r < 0 || top + r >= pool.height) continue;
        for (int c = 0; c < $COLUMNS; ++c) {
            if (left + c < 0 || left + c >= pool.width) continue;
            I i = image_index(pool, image, top + r, left + c, channel);
            if (!(images[i] < best)) return i;
        }
    }
    return -1;
}

// Element i of the gradient.
__device__ inline T gradient_at(
    const T* images, const T* pooled, const T* gradient, const Pool& pool, I i
) {
    Coordinates at = coordinates_of(i, pool.height, pool.width, pool.channels);
    I y = at.row + pool.top, x = at.column + pool.left;
    I first_row = first_window(y, $ROWS, $DOWN), first_column = first_window(x, $COLUMNS, $ACROSS);
    T value = images[i], total = 0;
    for (I row = last_window(y, $DOWN, pool.rows); row >= first_row; --row) {
        for (I column = last_window(x, $ACROSS, pool.columns); column >= first_column; --column) {
            I window = window_index(pool, at.image, row, column, at.channel);
            T best = pooled[window];
            if (value < best) continue;
            I top = row * $DOWN - pool.top, left = column * $ACROSS - pool.left;
            I from = chosen(images, best, pool, at.image, top, left, at.channel);
            if (from == i) total += gradient[window];
        }
    }
    return total;
}
"""

MAX_POOL = (
    BLOCKS
    + POOL
    + GRADIENT_AT
    + """
extern "C" __global__ void max_pool(const T* images, T* pooled, Pool pool, I size) {
    TB_FOR_EACH(I, i, size) {
        Coordinates at = coordinates_of(i, pool.rows, pool.columns, pool.channels);
        T best = $LEAST;
        for (int r = 0; r < $ROWS; ++r) {
            I row = at.row * $DOWN - pool.top + r;
            if (row < 0 || row >= pool.height) continue;
            for (int c = 0; c < $COLUMNS; ++c) {
                I column = at.column * $ACROSS - pool.left + c;
                if (column < 0 || column >= pool.width) continue;
                best = tb_maximum(best, images[image_index(pool, at.image, row, column, at.channel)]);
            }
        }
        pooled[i] = best;
    }
}

extern "C" __global__ void max_pool_grad(
    const T* images, const T* pooled, const T* gradient, T* result, Pool pool, I size
) {
    TB_FOR_EACH(I, i, size) result[i] = gradient_at(images, pooled, gradient, pool, i);
}

extern "C" __global__ void max_pool_grad_grad(
    const T* images, const T* pooled, const T* gradient, T* result, Pool pool, I size
) {
    TB_FOR_EACH(I, i, size) {
        Coordinates at = coordinates_of(i, pool.rows, pool.columns, pool.channels);
        I top = at.row * $DOWN - pool.top, left = at.column * $ACROSS - pool.left;
        I from = chosen(images, pooled[i], pool, at.image, top, left, at.channel);
        result[i] = from < 0 ? 0 : gradient[from];
    }
}
"""
)


def pool_source(
    name: str,
    template: str,
    typed: DeviceArray,
    images: Sequence[int],
    attrs: Attrs,
    index: IndexType,
    keys: Mapping[str, str] | None = None,
) -> CudaSource:
    """Fills in a template headed by POOL, for windows of these attributes.

    typed: an array of the images' dtype. images: their extents. keys: further ones of the template.
    """
    windows = _window_keys(images, attrs)
    named = {"T": c_type(typed.dtype), "I": index.name, "LEAST": lowest(typed.dtype)}
    return CudaSource.of(name, template, **named, **windows, **(keys or {}))


def _window_keys(images: Sequence[int], attrs: Attrs) -> dict[str, str]:
    windows = Windows.of_pool(images, attrs)
    rows, columns = windows.rows, windows.columns
    return {
        "ROWS": str(rows.window),
        "COLUMNS": str(columns.window),
        "DOWN": str(rows.stride),
        "ACROSS": str(columns.stride),
    }


def pool_argument(images: Sequence[int], attrs: Attrs, index: IndexType) -> Array:
    """A `Pool` struct for images of these extents, as a kernel argument."""
    _, height, width, channels = images
    windows = Windows.of_pool(images, attrs)
    rows, columns = windows.rows, windows.columns
    argument = np.zeros((), [(name, index.make) for name in POOL_FIELDS])
    values = (height, width, channels, rows.count, columns.count, rows.before, columns.before)
    for name, value in zip(POOL_FIELDS, values, strict=True):
        argument[name] = value
    return argument


def _prepare(call: GpuCall, function: str) -> Enqueue:
    images, result = call.inputs[0], call.outputs[0]
    index = index_for(max(images.size, result.size))
    return call.context.launch(
        pool_source(function, MAX_POOL, images, images.shape, call.attrs, index),
        function,
        call.context.blocks(result.size),
        BLOCK,
        *call.inputs,
        result,
        pool_argument(images.shape, call.attrs, index),
        index.make(result.size),
    )


# Of windows that do not overlap: each element is computed once.
MAX_POOL_OF = (
    BLOCKS
    + POOL
    + """
$ELEMENT
extern "C" __global__ void max_pool_of(T* pooled, T* kept, Pool pool, I size$TAKEN) {
    TB_FOR_EACH(I, i, size) {
        Coordinates at = coordinates_of(i, pool.rows, pool.columns, pool.channels);
        T best = $LEAST;
        for (int r = 0; r < $ROWS; ++r) {
            for (int c = 0; c < $COLUMNS; ++c) {
                I k = image_index(pool, at.image, at.row * $ROWS + r, at.column * $COLUMNS + c, at.channel);
                T value = Expression::element(k, k / pool.channels, at.channel, 0$GIVEN);
                if (kept != nullptr) kept[k] = value;
                best = tb_maximum(best, value);
            }
        }
        pooled[i] = best;
    }
}
"""
)


def pooled(node: Node, element: Element) -> Kernel | None:
    """The kernel of MaxPool of an expression of its inputs, whose elements are a second result.

    None where windows overlap, or do not cover the images.
    """
    spec, attrs = node.inputs[0].spec, node.attrs
    windows = Windows.of_pool(spec.extents, attrs)
    for axis in (windows.rows, windows.columns):
        if axis.window != axis.stride or axis.before or axis.covered != axis.extent:
            return None

    def prepare(call: GpuCall) -> Enqueue:
        result, *keep = call.outputs
        index = index_for(spec.size)
        keys = element.keys([as_dtype(array.dtype) for array in call.inputs], spec.dtype, index)
        return call.context.launch(
            pool_source("max_pool_of", MAX_POOL_OF, result, spec.extents, attrs, index, keys),
            "max_pool_of",
            call.context.blocks(result.size),
            BLOCK,
            result,
            keep[0] if keep else None,
            pool_argument(spec.extents, attrs, index),
            index.make(result.size),
            *element.arrays(call.inputs),
        )

    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare))


def summed_gradient(node: Node, element: Element) -> Kernel:
    """The kernel of BiasAddGrad of an expression of MaxPoolGrad, `node`, whose elements are a second result.

    Its inputs are MaxPoolGrad's, then the expression's.
    """
    spec, attrs = node.outputs[0].spec, node.attrs

    def prepare(call: GpuCall) -> Enqueue:
        sums, *keep = call.outputs
        taken, arrays = call.inputs[:3], call.inputs[3:]
        index = index_for(max(array.size for array in (*taken, *keep)))
        keys = element.keys([as_dtype(array.dtype) for array in arrays], spec.dtype, index)
        keys |= _window_keys(spec.extents, attrs)
        own = Own(
            "gradient_at(images, pooled, gradient, pool, i)",
            POOL + GRADIENT_AT,
            ", const T* images, const T* pooled, const T* gradient, Pool pool",
            ", images, pooled, gradient, pool",
            (*taken, pool_argument(spec.extents, attrs, index)),
        )
        name, kept = "BiasAddGrad of MaxPoolGrad", keep[0] if keep else None
        given = element.arrays(arrays)
        return column_sums(call.context, name, spec.extents, sums, kept, call.scratch, keys, given, own)

    scratch = cut_rows(spec.extents).scratch(1, spec.dtype)
    return Kernel(prepare=cast("Callable[[KernelCall], Enqueue]", prepare), scratch=lambda _: scratch)


gpu_kernel(MaxPool, lambda call: _prepare(call, "max_pool"))
gpu_kernel(MaxPoolGrad, lambda call: _prepare(call, "max_pool_grad"))
gpu_kernel(MaxPoolGradGrad, lambda call: _prepare(call, "max_pool_grad_grad"))
