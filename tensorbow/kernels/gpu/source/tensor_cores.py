"""Products of a block's tiles by tensor cores, in tf32 or bf16; without them the same sums in plain code.

`INSTRUCTIONS` has, by precision, what stands for `$INSTRUCTIONS` in `BY_TENSOR_CORES`.
"""

# A warp has tiles of 16 x 8 sums; of each, a lane has two neighbours in the rows lane / 4 and lane / 4 + 8.
BY_TENSOR_CORES = """
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800
#define TENSOR_CORES
#endif
constexpr int DOWN_M = BM / $WARPS_DOWN / 16, ACROSS_N = BN / $WARPS_ACROSS / 8;
$INSTRUCTIONS
struct Sums {
    float of[DOWN_M][ACROSS_N][4];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < DOWN_M; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS_N; ++j)
#pragma unroll
                for (int n = 0; n < 4; ++n) of[i][j][n] = 0.0f;
    }

    __device__ static int row(int i, int thread) {
        return (thread / 32 % $WARPS_DOWN * DOWN_M + i) * 16 + thread % 32 / 4;
    }

    __device__ static int column(int j, int thread) {
        return (thread / 32 / $WARPS_DOWN * ACROSS_N + j) * 8 + thread % 4 * 2;
    }

    __device__ void add(const float* a, const float* b, int thread) {
        const int lane = thread % 32, group = lane / 4, member = lane % 4;
#pragma unroll
        for (int k = 0; k < BK; k += STEP) {
            unsigned left[DOWN_M][4], right[ACROSS_N][2];
#pragma unroll
            for (int i = 0; i < DOWN_M; ++i) read_left(left[i], a + k * ROW_M + row(i, thread), member);
#pragma unroll
            for (int j = 0; j < ACROSS_N; ++j)
                read_right(right[j], b + k * ROW_N + column(j, thread) - member * 2 + group, member);
#pragma unroll
            for (int i = 0; i < DOWN_M; ++i)
#pragma unroll
                for (int j = 0; j < ACROSS_N; ++j) multiply(of[i][j], left[i], right[j], lane);
        }
    }

    __device__ void write(float* result, I first_row, int first_column, int thread) const {
#pragma unroll
        for (int i = 0; i < DOWN_M; ++i)
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const I line = first_row + row(i, thread) + n * 8;
                if (line >= ROWS) continue;
#pragma unroll
                for (int j = 0; j < ACROSS_N; ++j) {
                    const int at = first_column + column(j, thread);
                    float* to = result + line * COLUMNS + at;
                    const Word<2> two = {of[i][j][n * 2], of[i][j][n * 2 + 1]};
                    if (WORD_C > 1 && at < COLUMNS) {
                        *reinterpret_cast<Word<2>*>(to) = two;
                    } else {
                        if (at < COLUMNS) to[0] = two.of[0];
                        if (at + 1 < COLUMNS) to[1] = two.of[1];
                    }
                }
            }
    }
};
"""

# The two instructions, and the same in plain code: a lane's part of the operands is as the PTX manual has it
# for `mma`. Infinities and NaN stay what they are.
INSTRUCTIONS = {
    "tf32": """
constexpr int STEP = 8;
__device__ inline unsigned converted(float x) {
    unsigned bits;
#ifdef TENSOR_CORES
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
    bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
#endif
    return bits;
}
__device__ inline void read_left(unsigned* to, const float* a, int member) {
    to[0] = converted(a[member * ROW_M]);
    to[1] = converted(a[member * ROW_M + 8]);
    to[2] = converted(a[(member + 4) * ROW_M]);
    to[3] = converted(a[(member + 4) * ROW_M + 8]);
}
__device__ inline void read_right(unsigned* to, const float* b, int member) {
    to[0] = converted(b[member * ROW_N]);
    to[1] = converted(b[(member + 4) * ROW_N]);
}
__device__ inline void multiply(float* sum, const unsigned* left, const unsigned* right, int lane) {
#ifdef TENSOR_CORES
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#else
    for (int k = 0; k < STEP; ++k)
        for (int n = 0; n < 4; ++n) {
            const unsigned a = __shfl_sync(~0u, left[k / 4 * 2 + n / 2], lane / 4 * 4 + k % 4);
            const unsigned b = __shfl_sync(~0u, right[k / 4], (lane % 4 * 2 + n % 2) * 4 + k % 4);
            sum[n] += __uint_as_float(a) * __uint_as_float(b);
        }
#endif
}
""",
    "bf16": """
constexpr int STEP = 16;
__device__ inline unsigned upper_half(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits >> 16 : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
__device__ inline unsigned converted(float low, float high) {
    unsigned bits;
#ifdef TENSOR_CORES
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
    bits = upper_half(high) << 16 | upper_half(low);
#endif
    return bits;
}
__device__ inline void read_left(unsigned* to, const float* a, int member) {
    const float* from = a + 2 * member * ROW_M;
    to[0] = converted(from[0], from[ROW_M]);
    to[1] = converted(from[8], from[ROW_M + 8]);
    to[2] = converted(from[8 * ROW_M], from[9 * ROW_M]);
    to[3] = converted(from[8 * ROW_M + 8], from[9 * ROW_M + 8]);
}
__device__ inline void read_right(unsigned* to, const float* b, int member) {
    const float* from = b + 2 * member * ROW_N;
    to[0] = converted(from[0], from[ROW_N]);
    to[1] = converted(from[8 * ROW_N], from[9 * ROW_N]);
}
__device__ inline void multiply(float* sum, const unsigned* left, const unsigned* right, int lane) {
#ifdef TENSOR_CORES
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#else
    for (int k = 0; k < STEP; ++k)
        for (int n = 0; n < 4; ++n) {
            const unsigned a = __shfl_sync(~0u, left[k / 8 * 2 + n / 2], lane / 4 * 4 + k % 8 / 2);
            const unsigned b = __shfl_sync(~0u, right[k / 8], (lane % 4 * 2 + n % 2) * 4 + k % 8 / 2);
            const int shift = k % 2 ? 0 : 16;
            sum[n] += __uint_as_float(a << shift & 0xffff0000u) * __uint_as_float(b << shift & 0xffff0000u);
        }
#endif
}
""",
}
