"""Convolution and its two derivatives as products of matrices that are gathered tile by tile (implicit GEMM).

The result [rows, columns] is a sum over the depth of left [rows, depth] times right [depth, columns]:

    forward         windows x outputs   over the elements of a window    images, filters
    to images       pixels x channels   over the windows that see it     flow, filters
    to filters      elements x outputs  over all windows                 images, flow

A block computes a tile of the result, with both operands' tiles in shared memory, the next ones on the way
in registers. float32 by multiply-adds, or tensor cores that read tf32 or bf16; where there are none, the same
in plain code. Every sum runs in a fixed order, whatever the tile: depths in turn, or, for filters, in parts
that a second kernel adds in order. All extents are constants of the program, so that no index is divided by a
variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, in_order
from tensorbow.kernels.gpu.runtime.context import GpuContext
from tensorbow.kernels.gpu.runtime.program import CudaSource
from tensorbow.kernels.gpu.source.direct_convolution import Convolution
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.kernels.gpu.source.tensor_cores import BY_TENSOR_CORES, INSTRUCTIONS
from tensorbow.kernels.gpu.source.words import elements_per_word

THREADS = 128
DEPTH = 16  # of a tile
DEPTH_PER_PART = 512  # at least, of a gradient of filters that is summed in parts
MAXIMUM_PARTS = 32
MAXIMUM_PARTIAL = 2**19  # elements of all parts
FULL = 2  # blocks per multiprocessor below which smaller tiles are taken


class Pass(IntEnum):
    """Convolution, or one of its derivatives."""

    FORWARD = 0
    TO_IMAGES = 1
    TO_FILTERS = 2


@dataclass(frozen=True)
class BlockTile:
    """Rows and columns of a block's tile."""

    rows: int
    columns: int

    @property
    def of_thread(self) -> tuple[int, int]:
        """Rows and columns of a thread that multiplies in float32."""
        columns = max(2, min(4, self.rows * self.columns // THREADS // 2))
        return self.rows * self.columns // THREADS // columns, columns

    @property
    def warps(self) -> tuple[int, int]:
        """Warps along rows and columns, for tensor cores."""
        down = 4 if self.rows == 128 or (self.rows == 64 and self.columns < 64) else 2
        return down, THREADS // 32 // down


SOURCE = """
constexpr int PASS = $PASS, HEIGHT = $HEIGHT, WIDTH = $WIDTH, CHANNELS = $CHANNELS, OUTPUTS = $OUTPUTS;
constexpr int DOWN = $DOWN, ACROSS = $ACROSS, RATE_DOWN = $RATE_DOWN, RATE_ACROSS = $RATE_ACROSS;
constexpr int BEFORE_DOWN = $BEFORE_DOWN, BEFORE_ACROSS = $BEFORE_ACROSS;
constexpr int WINDOWS_DOWN = $WINDOWS_DOWN, WINDOWS_ACROSS = $WINDOWS_ACROSS, WINDOW_WIDTH = $WINDOW_WIDTH;
typedef $I I;
constexpr I ROWS = $ROWS, DEPTH = $DEPTH, PER_PART = $PER_PART;
constexpr int COLUMNS = $COLUMNS, TILES_ACROSS = $TILES_ACROSS;
constexpr int BM = $TILE_ROWS, BN = $TILE_COLUMNS, BK = $TILE_DEPTH, THREADS = $THREADS, PAD = $PAD;
constexpr int ROW_M = BM + PAD, ROW_N = BN + PAD;
// Contiguous elements that a thread reads at once: of the left operand along the depth, but for filters along
// the rows; of the right one along the columns, but for images along the depth.
constexpr int WORD_A = $WORD_A, WORD_B = $WORD_B, WORD_C = $WORD_C;
constexpr bool DEEP_A = PASS != 2, DEEP_B = PASS == 1;
constexpr int INNER = PASS == 1 ? OUTPUTS : CHANNELS;  // channels of the depth, or of the rows

constexpr int A_WORDS = (DEEP_A ? BK : BM) / WORD_A, A_STEP = THREADS / A_WORDS;
constexpr int B_WORDS = (DEEP_B ? BK : BN) / WORD_B, B_STEP = THREADS / B_WORDS;
constexpr int A_LINES = DEEP_A ? BM : BK, B_LINES = DEEP_B ? BN : BK;
constexpr int A_PASSES = A_LINES > A_STEP ? A_LINES / A_STEP : 1;
constexpr int B_PASSES = B_LINES > B_STEP ? B_LINES / B_STEP : 1;

template <int N> struct alignas(4 * N) Word { float of[N]; };

template <int N> __device__ inline Word<N> read(const float* from, bool inside) {
    Word<N> word;
    if (inside) return *reinterpret_cast<const Word<N>*>(from);
#pragma unroll
    for (int i = 0; i < N; ++i) word.of[i] = 0.0f;
    return word;
}

// Where an element of a window meets an image, or a flow: `find` tells the offset, and whether there is one.
struct Tap { int h, w, channel; };
struct Spot { I base; int y, x; };

__device__ inline Tap tap_of(I depth) {
    const int number = (int)(depth / INNER), h = number / WINDOW_WIDTH;
    return {h, number - h * WINDOW_WIDTH, (int)(depth - (I)number * INNER)};
}

__device__ inline Spot window_of(I window) {
    const I line = window / WINDOWS_ACROSS, image = line / WINDOWS_DOWN;
    return {image * HEIGHT * WIDTH * CHANNELS, (int)(line - image * WINDOWS_DOWN) * DOWN - BEFORE_DOWN,
            (int)(window - line * WINDOWS_ACROSS) * ACROSS - BEFORE_ACROSS};
}

__device__ inline Spot pixel_of(I pixel) {
    const I line = pixel / WIDTH, image = line / HEIGHT;
    return {image * WINDOWS_DOWN * WINDOWS_ACROSS * OUTPUTS, (int)(line - image * HEIGHT) + BEFORE_DOWN,
            (int)(pixel - line * WIDTH) + BEFORE_ACROSS};
}

__device__ inline bool find(const Spot& spot, const Tap& tap, I& offset) {
    if constexpr (PASS == 1) {
        const int down = spot.y - tap.h * RATE_DOWN, across = spot.x - tap.w * RATE_ACROSS;
        const int row = down / DOWN, column = across / ACROSS;
        offset = spot.base + ((I)row * WINDOWS_ACROSS + column) * OUTPUTS + tap.channel;
        return down >= 0 && across >= 0 && row < WINDOWS_DOWN && column < WINDOWS_ACROSS
            && row * DOWN == down && column * ACROSS == across;
    } else {
        const int y = spot.y + tap.h * RATE_DOWN, x = spot.x + tap.w * RATE_ACROSS;
        offset = spot.base + ((I)y * WIDTH + x) * CHANNELS + tap.channel;
        return y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH;
    }
}

$MULTIPLY

extern "C" __global__ void __launch_bounds__(THREADS, 4) implicit_gemm(
    float* result, const float* left, const float* right
) {
    __shared__ float4 a_memory[2][BK * ROW_M / 4];
    __shared__ float4 b_memory[2][BK * ROW_N / 4];
    const int thread = threadIdx.x;
    const int tile = blockIdx.y % TILES_ACROSS, part = blockIdx.y / TILES_ACROSS;
    const I first_row = (I)blockIdx.x * BM;
    const int first_column = tile * BN;
    const I begin = part * PER_PART, end = begin + PER_PART < DEPTH ? begin + PER_PART : DEPTH;

    const int a_word = thread % A_WORDS * WORD_A, a_line = thread / A_WORDS;
    const int b_word = thread % B_WORDS * WORD_B, b_line = thread / B_WORDS;
    Spot spots[A_PASSES];
    Tap own = {0, 0, 0};
    if constexpr (DEEP_A) {
#pragma unroll
        for (int p = 0; p < A_PASSES; ++p) {
            const I row = first_row + a_line + p * A_STEP;
            spots[p] = PASS == 1 ? pixel_of(row) : window_of(row);
        }
    } else {
        own = tap_of(first_row + a_word);
    }

    Word<WORD_A> a_next[A_PASSES];
    Word<WORD_B> b_next[B_PASSES];
    auto fetch = [&](I depth) {
        Tap tap = own;
        if constexpr (DEEP_A) tap = tap_of(depth + a_word);
#pragma unroll
        for (int p = 0; p < A_PASSES; ++p) {
            const int line = a_line + p * A_STEP;
            const I row = DEEP_A ? first_row + line : first_row + a_word;
            const I at = DEEP_A ? depth + a_word : depth + line;
            Spot spot;
            if constexpr (DEEP_A) spot = spots[p];
            else spot = window_of(at);
            I offset;
            const bool inside = find(spot, tap, offset) && row < ROWS && at < end && line < A_LINES;
            a_next[p] = read<WORD_A>(left + offset, inside);
        }
#pragma unroll
        for (int p = 0; p < B_PASSES; ++p) {
            const int line = b_line + p * B_STEP;
            const int column = first_column + (DEEP_B ? line : b_word);
            const I at = depth + (DEEP_B ? b_word : line);
            I offset = at * COLUMNS + column;
            if constexpr (DEEP_B) {
                const I number = at / INNER;
                offset = (number * COLUMNS + column) * INNER + (at - number * INNER);
            }
            b_next[p] = read<WORD_B>(right + offset, column < COLUMNS && at < end && line < B_LINES);
        }
    };
    auto keep = [&](int buffer) {
        float* a = reinterpret_cast<float*>(a_memory[buffer]);
        float* b = reinterpret_cast<float*>(b_memory[buffer]);
#pragma unroll
        for (int p = 0; p < A_PASSES; ++p) {
            const int line = a_line + p * A_STEP;
            if (line >= A_LINES) continue;
            if constexpr (DEEP_A) {
#pragma unroll
                for (int i = 0; i < WORD_A; ++i) a[(a_word + i) * ROW_M + line] = a_next[p].of[i];
            } else {
                *reinterpret_cast<Word<WORD_A>*>(a + line * ROW_M + a_word) = a_next[p];
            }
        }
#pragma unroll
        for (int p = 0; p < B_PASSES; ++p) {
            const int line = b_line + p * B_STEP;
            if (line >= B_LINES) continue;
            if constexpr (DEEP_B) {
#pragma unroll
                for (int i = 0; i < WORD_B; ++i) b[(b_word + i) * ROW_N + line] = b_next[p].of[i];
            } else {
                *reinterpret_cast<Word<WORD_B>*>(b + line * ROW_N + b_word) = b_next[p];
            }
        }
    };

    Sums sums;
    sums.clear();
    fetch(begin);
    keep(0);
    __syncthreads();
    int buffer = 0;
    for (I depth = begin; depth < end; depth += BK) {
        const bool more = depth + BK < end;
        if (more) fetch(depth + BK);
        const float4* a = a_memory[buffer];
        const float4* b = b_memory[buffer];
        sums.add(reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b), thread);
        if (more) keep(buffer ^ 1);
        __syncthreads();
        buffer ^= 1;
    }
    sums.write(result + part * ROWS * COLUMNS, first_row, first_column, thread);
}
$SUM_PARTS
"""

SUM_PARTS = """
extern "C" __global__ void sum_parts(float* result, const float* partial) {
    constexpr I COUNT = ROWS * COLUMNS;
    TB_FOR_EACH(I, i, COUNT) {
        float sum = partial[i];
        for (int part = 1; part < $PARTS; ++part) sum += partial[part * COUNT + i];
        result[i] = sum;
    }
}
"""

# A thread has TM x TN sums, in pieces of up to four neighbours.
IN_FLOAT32 = """
constexpr int TM = $THREAD_ROWS, TN = $THREAD_COLUMNS, PM = TM < 4 ? TM : 4, PN = TN;
struct Sums {
    float of[TM][TN];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) of[i][j] = 0.0f;
    }

    __device__ static int row(int i, int thread) {
        return i / PM * (BM / (TM / PM)) + thread / (BN / TN) * PM + i % PM;
    }

    __device__ static int column(int thread) { return thread % (BN / TN) * TN; }

    __device__ void add(const float* a, const float* b, int thread) {
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            Word<PM> left[TM / PM];
#pragma unroll
            for (int i = 0; i < TM / PM; ++i)
                left[i] = *reinterpret_cast<const Word<PM>*>(a + k * ROW_M + row(i * PM, thread));
            const Word<PN> right = *reinterpret_cast<const Word<PN>*>(b + k * ROW_N + column(thread));
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) of[i][j] += left[i / PM].of[i % PM] * right.of[j];
        }
    }

    __device__ void write(float* result, I first_row, int first_column, int thread) const {
        const int at = first_column + column(thread);
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            const I line = first_row + row(i, thread);
            if (line >= ROWS) continue;
#pragma unroll
            for (int j = 0; j < TN; j += WORD_C) {
                if (at + j >= COLUMNS) continue;
                Word<WORD_C> word;
#pragma unroll
                for (int n = 0; n < WORD_C; ++n) word.of[n] = of[i][j + n];
                *reinterpret_cast<Word<WORD_C>*>(result + line * COLUMNS + at + j) = word;
            }
        }
    }
};
"""

PADS = {"fp32": 4, "tf32": 8, "bf16": 4}  # floats behind a row of a tile, against conflicts of banks


@dataclass(frozen=True)
class ConvolutionProduct:
    """Extents of a pass as a product. inner: contiguous channels of the depth, but for filters of the rows.

    per_part: depth of each of the parts in which it is summed.
    """

    rows: int
    columns: int
    depth: int
    inner: int
    per_part: int

    @classmethod
    def of(cls, which: Pass, what: Convolution) -> ConvolutionProduct:
        """The product of a convolution's pass. Parts go by its shape only, so that bits do."""
        windows, pixels = what.pixels, what.batch * what.rows.extent * what.columns.extent
        seen = what.rows.window * what.columns.window * what.outputs
        if which is Pass.FORWARD:
            return cls(windows, what.outputs, what.depth, what.channels, what.depth)
        if which is Pass.TO_IMAGES:
            return cls(pixels, what.channels, seen, what.outputs, seen)
        most = min(MAXIMUM_PARTS, MAXIMUM_PARTIAL // max(1, what.depth * what.outputs))
        parts = max(1, min(most, windows // DEPTH_PER_PART))
        per_part = -(-windows // (parts * DEPTH)) * DEPTH
        return cls(what.depth, what.outputs, windows, what.channels, per_part)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return -(-self.depth // self.per_part)

    def tile(self, wanted: int) -> BlockTile:
        """The largest tile that gives `wanted` blocks, or the smallest."""
        width = 64 if self.columns > 32 else 32 if self.columns > 16 else 16
        most = 64 if width == 64 or self.inner % 4 else 128  # reading single elements takes more registers
        for height in (128, 64):
            blocks = -(-self.rows // height) * -(-self.columns // width) * self.parts
            if height <= most and height < 2 * self.rows and blocks >= wanted:
                return BlockTile(height, width)
        return BlockTile(32, width)


def implicit_gemm(
    context: GpuContext,
    op: str,
    which: Pass,
    what: Convolution,
    left: DeviceArray,
    right: DeviceArray,
    result: DeviceArray,
    partial: DeviceArray | None = None,
    replicas: int = 1,
) -> Enqueue:
    """Fills `result`, float32, in the precision of the context's options; none of the arrays is empty.

    left, right: see the module. partial: memory for a result of each of the product's parts, where there are
    several. replicas: how many do the same in one launch, each with blocks of its own.
    """
    product, compute = ConvolutionProduct.of(which, what), context.options.compute
    wanted = FULL * context.runtime.properties.multiprocessors
    tile = product.tile(-(-wanted // replicas))
    target = (
        result if product.parts == 1 or partial is None else partial.reshape(product.parts, *result.shape)
    )
    multiply = (
        BY_TENSOR_CORES.replace("$INSTRUCTIONS", INSTRUCTIONS[compute])
        if compute in INSTRUCTIONS
        else IN_FLOAT32
    )
    template = SOURCE.replace("$MULTIPLY", multiply)
    template = template.replace("$SUM_PARTS", SUM_PARTS if product.parts > 1 else "")
    vectors = {
        "WORD_A": elements_per_word(4, [left.address], [product.inner]),
        "WORD_B": elements_per_word(
            4, [right.address], [product.inner if which is Pass.TO_IMAGES else product.columns]
        ),
        "WORD_C": min(
            tile.of_thread[1] if compute == "fp32" else 2,
            elements_per_word(4, [target.address], [product.columns]),
        ),
    }
    constants = {**_shape(which, what), **_sizes(product, tile), **vectors, "PAD": PADS[compute]}
    index = index_for(left.size, right.size, target.size, product.rows + tile.rows)
    code = CudaSource.of(
        op, template, I=index.name, **{key: str(number) for key, number in constants.items()}
    )
    across = -(-product.columns // tile.columns)
    grid = (-(-product.rows // tile.rows), across * product.parts)
    launch = context.launch(code, "implicit_gemm", grid, THREADS, target, left, right)
    if product.parts == 1:
        return launch
    total = context.launch(code, "sum_parts", context.blocks(result.size), 256, result, target)
    return in_order(launch, total)


def _shape(which: Pass, what: Convolution) -> dict[str, int]:
    down, across = what.rows, what.columns
    return {
        "PASS": which.value,
        "HEIGHT": down.extent,
        "WIDTH": across.extent,
        "CHANNELS": what.channels,
        "OUTPUTS": what.outputs,
        "DOWN": down.stride,
        "ACROSS": across.stride,
        "RATE_DOWN": down.rate,
        "RATE_ACROSS": across.rate,
        "BEFORE_DOWN": down.before,
        "BEFORE_ACROSS": across.before,
        "WINDOWS_DOWN": down.count,
        "WINDOWS_ACROSS": across.count,
        "WINDOW_WIDTH": across.window,
    }


def _sizes(product: ConvolutionProduct, tile: BlockTile) -> dict[str, int]:
    return {
        "ROWS": product.rows,
        "COLUMNS": product.columns,
        "DEPTH": product.depth,
        "PER_PART": product.per_part,
        "PARTS": product.parts,
        "TILES_ACROSS": -(-product.columns // tile.columns),
        "TILE_ROWS": tile.rows,
        "TILE_COLUMNS": tile.columns,
        "TILE_DEPTH": DEPTH,
        "THREADS": THREADS,
        "THREAD_ROWS": tile.of_thread[0],
        "THREAD_COLUMNS": tile.of_thread[1],
        "WARPS_DOWN": tile.warps[0],
        "WARPS_ACROSS": tile.warps[1],
    }
