"""GPU kernel of batches made from a data set of pictures: gathered, mirrored, moved and normalised.

Images equal the host's bit for bit: products and differences are rounded separately, never fused. A row out
of range gives a batch of zeros with label 0, for a GPU kernel cannot raise.
"""

from __future__ import annotations

import math

import numpy as np

from tensorbow.kernels.gpu.runtime.call import Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.context import BLOCK
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.examples import PICK, MakeBatch

MOST_ROWS = 65535  # of a grid: more examples are made in turn

MORE = ", top, left, bottom, end, level"  # columns of wide picks
HIDE = "if (y >= pick.top && y < pick.bottom && x >= pick.left && x < pick.end) pixel = pick.level;"

MAKE_BATCH = """
struct Pick { long long row, down, right, mirrored$MORE; };

// A column of blocks for each example.
extern "C" __global__ void make_batch(
    const Pick* picks, const unsigned char* pictures, const long long* labels,
    float* images, long long* targets, long long examples, float scale, float shift, int batch)
{
    for (int number = blockIdx.y; number < batch; number += gridDim.y) {
        const Pick pick = picks[number];
        const bool known = pick.row >= 0 && pick.row < examples;
        const unsigned char* picture = pictures + (known ? pick.row : 0) * (long long)$PIXELS;
        float* image = images + number * (long long)$PIXELS;
        TB_FOR_EACH($I, i, $PIXELS) {
            const long long y = i / ($WIDTH * $CHANNELS), x = i / $CHANNELS % $WIDTH, row = y - pick.down;
            long long column = x - pick.right;
            unsigned char pixel = 0;
            if (row >= 0 && row < $HEIGHT && column >= 0 && column < $WIDTH) {
                if (pick.mirrored) column = $WIDTH - 1 - column;
                pixel = picture[(row * $WIDTH + column) * $CHANNELS + i % $CHANNELS];
            }
            $CHANGE
            image[i] = known ? __fsub_rn(__fmul_rn((float)pixel, scale), shift) : 0.0f;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) targets[number] = known ? labels[pick.row] : 0;
    }
}
"""


def _make_batch(call: GpuCall) -> Enqueue:
    (picks, pictures, labels), context = call.inputs, call.context
    (batch, columns_of_pick), (examples, *shape) = picks.shape, pictures.shape
    wide = columns_of_pick > PICK
    pixels = math.prod(shape)
    height, width, channels = map(str, shape)
    index = index_for(pixels)
    source = CudaSource.of(
        "MakeBatch",
        MAKE_BATCH,
        I=index.name,
        PIXELS=str(pixels),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        MORE=MORE if wide else "",
        CHANGE=HIDE if wide else "",
    )
    columns = max(1, context.blocks(pixels))
    grid = (columns, min(batch, MOST_ROWS)) if batch else 0
    return context.launch(
        source,
        "make_batch",
        grid,
        BLOCK,
        picks,
        pictures,
        labels,
        *call.outputs,
        np.int64(examples),
        np.float32(call.attrs["scale"]),
        np.float32(call.attrs["shift"]),
        np.int32(batch),
    )


gpu_kernel(MakeBatch, _make_batch)
