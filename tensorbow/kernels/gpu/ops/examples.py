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
from tensorbow.ops.examples import (
    COLOUR_BITS,
    COLOUR_ONE,
    GREY,
    PICK,
    ROTATION_BITS,
    ROTATION_ONE,
    MakeBatch,
)

MOST_ROWS = 65535  # of a grid: more examples are made in turn

MOVES = """
struct Pick { long long row, down, right, mirrored; };

__device__ int changed(const Pick& pick, const unsigned char* picture, long long y, long long x, int channel)
{
    const long long row = y - pick.down;
    long long column = x - pick.right;
    if (row < 0 || row >= $HEIGHT || column < 0 || column >= $WIDTH) return 0;
    if (pick.mirrored) column = $WIDTH - 1 - column;
    return picture[(row * $WIDTH + column) * $CHANNELS + channel];
}
"""

CHANGES = f"""
struct Pick {{
    long long row, down, right, mirrored, top, left, bottom, end, level;
    long long sine, versine, saturation, gain, offset, upside_down;
}};

__device__ int pixel_at(
    const Pick& pick, const unsigned char* picture, long long row, long long column, int channel)
{{
    if (row < 0 || row >= $HEIGHT || column < 0 || column >= $WIDTH) return 0;
    if (pick.mirrored) column = $WIDTH - 1 - column;
    if (pick.upside_down) row = $HEIGHT - 1 - row;
    return picture[(row * $WIDTH + column) * $CHANNELS + channel];
}}

// Rotated and moved: between the four nearest pixels.
__device__ int placed(const Pick& pick, const unsigned char* picture, long long y, long long x, int channel)
{{
    y -= pick.down;
    x -= pick.right;
    if (y < 0 || y >= $HEIGHT || x < 0 || x >= $WIDTH) return 0;
    const long long down = 2 * y - ($HEIGHT - 1), right = 2 * x - ($WIDTH - 1);
    const long long cosine = {ROTATION_ONE} - pick.versine;
    const long long row = cosine * down + pick.sine * right + ($HEIGHT - 1) * {ROTATION_ONE}LL;
    const long long column = cosine * right - pick.sine * down + ($WIDTH - 1) * {ROTATION_ONE}LL;
    const long long below = row >> {ROTATION_BITS + 1 - COLOUR_BITS} & {COLOUR_ONE - 1};
    const long long after = column >> {ROTATION_BITS + 1 - COLOUR_BITS} & {COLOUR_ONE - 1};
    long long total = {COLOUR_ONE * COLOUR_ONE // 2};
    for (int corner = 0; corner < 4; ++corner) {{
        const int to_row = corner >> 1, to_column = corner & 1;
        const long long of_row = to_row ? below : {COLOUR_ONE} - below;
        const long long of_column = to_column ? after : {COLOUR_ONE} - after;
        total += of_row * of_column * pixel_at(pick, picture, (row >> {ROTATION_BITS + 1}) + to_row,
            (column >> {ROTATION_BITS + 1}) + to_column, channel);
    }}
    return (int)(total >> {2 * COLOUR_BITS});
}}

__device__ int level_of(long long sum)
{{
    sum = (sum + {COLOUR_ONE // 2}) >> {COLOUR_BITS};
    return sum < 0 ? 0 : sum > 255 ? 255 : (int)sum;
}}

__device__ int changed(const Pick& pick, const unsigned char* picture, long long y, long long x, int channel)
{{
    if (y >= pick.top && y < pick.bottom && x >= pick.left && x < pick.end) return (int)pick.level;
    int level = placed(pick, picture, y, x, channel);
    if (pick.saturation && $CHANNELS == 3) {{
        const int grey = level_of({GREY[0]} * placed(pick, picture, y, x, 0) +
            {GREY[1]} * placed(pick, picture, y, x, 1) + {GREY[2]} * placed(pick, picture, y, x, 2));
        level = level_of(level * ({COLOUR_ONE} + pick.saturation) - grey * pick.saturation);
    }}
    return level_of(level * ({COLOUR_ONE} + pick.gain) + pick.offset);
}}
"""

EACH_PIXEL = """
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
            const int pixel = changed(
                pick, picture, i / ($WIDTH * $CHANNELS), i / $CHANNELS % $WIDTH, (int)(i % $CHANNELS));
            image[i] = known ? __fsub_rn(__fmul_rn((float)pixel, scale), shift) : 0.0f;
        }
        if (blockIdx.x == 0 && threadIdx.x == 0) targets[number] = known ? labels[pick.row] : 0;
    }
}
"""


def _make_batch(call: GpuCall) -> Enqueue:
    (picks, pictures, labels), context = call.inputs, call.context
    (batch, columns_of_pick), (examples, *shape) = picks.shape, pictures.shape
    of_pixel = MOVES if columns_of_pick == PICK else CHANGES
    pixels = math.prod(shape)
    height, width, channels = map(str, shape)
    index = index_for(pixels)
    source = CudaSource.of(
        "MakeBatch",
        of_pixel + EACH_PIXEL,
        I=index.name,
        PIXELS=str(pixels),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
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
