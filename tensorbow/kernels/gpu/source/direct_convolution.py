"""Convolution and its derivatives as direct sums over windows, one launch each: no library, no workspace.

Images are NHWC, filters HWIO, channels may be in groups: depthwise convolution has one group per
channel, and its filter [height, width, channels, multiplier] is the same memory as [height, width, 1,
channels * multiplier]. All sums run in a fixed order, so equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tensorbow.graph import Attrs
from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.sliding_windows import Axis, Windows

if TYPE_CHECKING:
    from tensorbow.kernels.gpu.runtime.context import GpuContext

THREADS = 512  # of a block that sums over all windows
PIXELS_PER_THREAD = 32  # windows per thread above which the sum is cut into parts
MAXIMUM_PARTS = 32
MAXIMUM_PARTIAL = 2**19  # elements of all parts' filters; large filters have enough blocks


@dataclass(frozen=True)
class Convolution:
    """Extents of images [batch, rows.extent, columns.extent, channels] and of the convolution's result."""

    batch: int
    channels: int
    outputs: int
    rows: Axis
    columns: Axis
    groups: int = 1

    @classmethod
    def of(
        cls, images: Sequence[int], filters: Sequence[int], attrs: Attrs, depthwise: bool = False
    ) -> Convolution:
        """The convolution of images and filters of these shapes."""
        windows = Windows.of(images, filters, attrs["strides"], attrs["padding"], attrs["dilations"])
        outputs, groups = (filters[2] * filters[3], filters[2]) if depthwise else (filters[3], 1)
        return cls(images[0], images[3], outputs, windows.rows, windows.columns, groups)

    @property
    def depth(self) -> int:
        """Elements of a window that contribute to one output."""
        return self.rows.window * self.columns.window * self.inputs

    @property
    def inputs(self) -> int:
        """Channels of a group."""
        return self.channels // max(1, self.groups)

    @property
    def pixels(self) -> int:
        """Windows of all images."""
        return self.batch * self.rows.count * self.columns.count

    @property
    def parts(self) -> int:
        """Number of parts in which the filter's gradient is summed, each by its own blocks."""
        size = max(1, self.depth * self.outputs)
        wanted = self.pixels // (PIXELS_PER_THREAD * THREADS // _lanes(self.outputs))
        return max(1, min(MAXIMUM_PARTS, wanted, MAXIMUM_PARTIAL // size))

    def framed(self) -> Convolution:
        """The same windows over images that include their padding."""
        rows, columns = (
            replace(axis, extent=max(axis.covered, axis.before + axis.extent), before=0)
            for axis in (self.rows, self.columns)
        )
        return replace(self, rows=rows, columns=columns)


def _lanes(outputs: int) -> int:
    """Threads of a block along the output channels."""
    return min(32, 1 << max(0, outputs - 1).bit_length())


EXTENTS = """
struct Extents {
    int height, width, channels, rows, columns, outputs, window_height, window_width;
    int stride_down, stride_across, rate_down, rate_across, before_down, before_across;
    int inputs, results;  // channels and outputs of a group
};
"""

FORWARD = (
    EXTENTS
    + """
extern "C" __global__ void convolve($T* out, const $T* images, const $T* filters, Extents e, $I count) {
    TB_FOR_EACH($I, i, count) {
        $I rest = i / e.outputs;
        int output = i - rest * e.outputs;
        int column = rest % e.columns;
        rest /= e.columns;
        int row = rest % e.rows;
        $I image = rest / e.rows;
        int channel = output / e.results * e.inputs;
        $T sum = 0;
        for (int h = 0; h < e.window_height; ++h) {
            int y = row * e.stride_down + h * e.rate_down - e.before_down;
            if (y < 0 || y >= e.height) continue;
            for (int w = 0; w < e.window_width; ++w) {
                int x = column * e.stride_across + w * e.rate_across - e.before_across;
                if (x < 0 || x >= e.width) continue;
                const $T* pixel = images + ((image * e.height + y) * e.width + x) * e.channels + channel;
                const $T* weight = filters + ($I)(h * e.window_width + w) * e.inputs * e.outputs + output;
                for (int c = 0; c < e.inputs; ++c) sum += pixel[c] * weight[($I)c * e.outputs];
            }
        }
        out[i] = sum;
    }
}
"""
)

BACKWARD_INPUT = (
    EXTENTS
    + """
extern "C" __global__ void to_images($T* images, const $T* filters, const $T* flow, Extents e, $I count) {
    TB_FOR_EACH($I, i, count) {
        $I rest = i / e.channels;
        int channel = i - rest * e.channels;
        int x = rest % e.width;
        rest /= e.width;
        int y = rest % e.height;
        $I image = rest / e.height;
        int group = channel / e.inputs, first = group * e.results;
        $T sum = 0;
        for (int h = 0; h < e.window_height; ++h) {
            int down = y + e.before_down - h * e.rate_down, row = down / e.stride_down;
            if (down < 0 || row >= e.rows || row * e.stride_down != down) continue;
            for (int w = 0; w < e.window_width; ++w) {
                int across = x + e.before_across - w * e.rate_across, column = across / e.stride_across;
                if (across < 0 || column >= e.columns || column * e.stride_across != across) continue;
                const $T* pixel = flow + ((image * e.rows + row) * e.columns + column) * e.outputs + first;
                const $T* weight = filters + first
                    + (($I)(h * e.window_width + w) * e.inputs + (channel - group * e.inputs)) * e.outputs;
                for (int j = 0; j < e.results; ++j) sum += pixel[j] * weight[j];
            }
        }
        images[i] = sum;
    }
}
"""
)

# A block computes $LANES outputs of one input channel at one window element, over the pixels of its part.
BACKWARD_FILTER = (
    EXTENTS
    + """
extern "C" __global__ void to_filters(
    $T* filters, const $T* images, const $T* flow, Extents e, $I pixels, $I per_part, $I size) {
    __shared__ $T sums[$SLICES][$LANES];
    int element = blockIdx.x / e.inputs, input = blockIdx.x - element * e.inputs;
    int h = element / e.window_width, w = element - h * e.window_width;
    int output = blockIdx.y * $LANES + threadIdx.x;
    $T sum = 0;
    if (output < e.outputs) {
        int channel = output / e.results * e.inputs + input;
        $I end = (blockIdx.z + 1) * per_part < pixels ? (blockIdx.z + 1) * per_part : pixels;
        for ($I pixel = blockIdx.z * per_part + threadIdx.y; pixel < end; pixel += $SLICES) {
            $I rest = pixel / e.columns;
            int column = pixel - rest * e.columns;
            $I image = rest / e.rows;
            int row = rest - image * e.rows;
            int y = row * e.stride_down + h * e.rate_down - e.before_down;
            int x = column * e.stride_across + w * e.rate_across - e.before_across;
            if (y >= 0 && y < e.height && x >= 0 && x < e.width)
                sum += images[((image * e.height + y) * e.width + x) * e.channels + channel]
                    * flow[pixel * e.outputs + output];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int half = $SLICES / 2; half > 0; half /= 2) {
        if (threadIdx.y < half) sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + half][threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && output < e.outputs)
        filters[blockIdx.z * size + ($I)blockIdx.x * e.outputs + output] = sums[0][threadIdx.x];
}
extern "C" __global__ void sum_parts($T* filters, const $T* partial, int parts, $I size) {
    TB_FOR_EACH($I, i, size) {
        $T sum = partial[i];
        for (int part = 1; part < parts; ++part) sum += partial[part * size + i];
        filters[i] = sum;
    }
}
"""
)


def _extents(convolution: Convolution) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    rows, columns, outputs = convolution.rows, convolution.columns, convolution.outputs
    numbers = [rows.extent, columns.extent, convolution.channels, rows.count, columns.count, outputs]
    numbers += [rows.window, columns.window, rows.stride, columns.stride, rows.rate, columns.rate]
    numbers += [rows.before, columns.before, convolution.inputs, outputs // max(1, convolution.groups)]
    return np.array(numbers, np.int32)


def forward(
    context: GpuContext,
    op: str,
    convolution: Convolution,
    images: DeviceArray,
    filters: DeviceArray,
    out: DeviceArray,
) -> Enqueue:
    """Fills `out` with the convolution, each output summed by one thread."""
    return _each(context, op, FORWARD, "convolve", convolution, out, images, filters)


def backward_input(
    context: GpuContext,
    op: str,
    convolution: Convolution,
    filters: DeviceArray,
    flow: DeviceArray,
    images: DeviceArray,
) -> Enqueue:
    """Fills `images` with their gradient, each element summed by one thread."""
    return _each(context, op, BACKWARD_INPUT, "to_images", convolution, images, filters, flow)


def _each(
    context: GpuContext,
    op: str,
    template: str,
    function: str,
    convolution: Convolution,
    target: DeviceArray,
    first: DeviceArray,
    second: DeviceArray,
) -> Enqueue:
    index = index_for(target.size, first.size, second.size)
    code = CudaSource.of(op, template, I=index.name, T=c_type(target.dtype))
    count = index.make(target.size)
    blocks = context.blocks(target.size)
    return context.launch(code, function, blocks, 256, target, first, second, _extents(convolution), count)


def backward_filter(
    context: GpuContext,
    op: str,
    convolution: Convolution,
    images: DeviceArray,
    flow: DeviceArray,
    filters: DeviceArray,
    partial: DeviceArray,
) -> Enqueue:
    """Fills `filters` with their gradient, summed over the windows by slices, then by parts.

    partial: [parts, filter's elements] if there are several parts, else unused.
    """
    lanes = _lanes(convolution.outputs)
    index = index_for(images.size, flow.size, filters.size * convolution.parts)
    code = CudaSource.of(
        op,
        BACKWARD_FILTER,
        I=index.name,
        T=c_type(filters.dtype),
        LANES=str(lanes),
        SLICES=str(THREADS // lanes),
    )
    parts, size = convolution.parts, index.make(filters.size)
    first = context.launch(
        code,
        "to_filters",
        (convolution.depth, -(-convolution.outputs // lanes), parts),
        (lanes, THREADS // lanes),
        filters if parts == 1 else partial,
        images,
        flow,
        _extents(convolution),
        index.make(convolution.pixels),
        index.make(-(-convolution.pixels // parts)),
        size,
    )
    if parts == 1:
        return first
    blocks = context.blocks(filters.size)
    second = context.launch(code, "sum_parts", blocks, 256, filters, partial, np.int32(parts), size)
    return in_order(first, second)
