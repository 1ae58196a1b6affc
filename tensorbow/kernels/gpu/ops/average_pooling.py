"""Average pooling of NHWC images and its gradient, one thread per result; padding is not counted."""

from __future__ import annotations

from tensorbow.kernels.gpu.ops.pooling import POOL, pool_argument, pool_source
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.source.blocks import BLOCKS
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.average_pooling import AvgPool, AvgPoolGrad

AVERAGE_POOL = (
    BLOCKS
    + POOL
    + """
// The part of a window along an axis that is on the image.
struct Span { I first, end; };
__device__ inline Span span_of(I window, I stride, I before, I length, I extent) {
    I start = window * stride - before;
    return {start < 0 ? 0 : start, tb_minimum(start + length, extent)};
}

extern "C" __global__ void average_pool(const T* images, T* pooled, Pool pool, I size) {
    TB_FOR_EACH(I, i, size) {
        Coordinates at = coordinates_of(i, pool.rows, pool.columns, pool.channels);
        Span down = span_of(at.row, $DOWN, pool.top, $ROWS, pool.height);
        Span across = span_of(at.column, $ACROSS, pool.left, $COLUMNS, pool.width);
        T total = 0;
        for (I row = down.first; row < down.end; ++row) {
            for (I column = across.first; column < across.end; ++column) {
                total += images[image_index(pool, at.image, row, column, at.channel)];
            }
        }
        pooled[i] = total * ((T)1 / (T)((down.end - down.first) * (across.end - across.first)));
    }
}

extern "C" __global__ void average_pool_grad(const T* gradient, T* result, Pool pool, I size) {
    TB_FOR_EACH(I, i, size) {
        Coordinates at = coordinates_of(i, pool.height, pool.width, pool.channels);
        I y = at.row + pool.top, x = at.column + pool.left;
        I first_row = first_window(y, $ROWS, $DOWN), first_column = first_window(x, $COLUMNS, $ACROSS);
        T total = 0;
        for (I row = last_window(y, $DOWN, pool.rows); row >= first_row; --row) {
            Span down = span_of(row, $DOWN, pool.top, $ROWS, pool.height);
            for (I column = last_window(x, $ACROSS, pool.columns); column >= first_column; --column) {
                Span across = span_of(column, $ACROSS, pool.left, $COLUMNS, pool.width);
                T share = (T)1 / (T)((down.end - down.first) * (across.end - across.first));
                total += gradient[window_index(pool, at.image, row, column, at.channel)] * share;
            }
        }
        result[i] = total;
    }
}
"""
)


def _prepare(call: GpuCall, function: str, images: DeviceArray, given: DeviceArray) -> Enqueue:
    (result,) = call.outputs
    index = index_for(max(given.size, result.size))
    return call.context.launch(
        pool_source(function, AVERAGE_POOL, images, images.shape, call.attrs, index),
        function,
        call.context.blocks(result.size),
        BLOCK,
        given,
        result,
        pool_argument(images.shape, call.attrs, index),
        index.make(result.size),
    )


gpu_kernel(AvgPool, lambda call: _prepare(call, "average_pool", call.inputs[0], call.inputs[0]))
gpu_kernel(AvgPoolGrad, lambda call: _prepare(call, "average_pool_grad", call.outputs[0], call.inputs[1]))
