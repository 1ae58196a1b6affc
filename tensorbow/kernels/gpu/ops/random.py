"""GPU kernels of the random ops as `tensorbow.ops.sampling` defines them, one Philox block per thread.

Words, integers, uniforms, masks and permutations equal the reference bit for bit; normals differ by the
rounding of log, sin and cos. An empty integer range gives its lower bound, as kernels cannot raise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorbow.kernels.gpu.runtime.call import DeviceArray, Enqueue, GpuCall, gpu_kernel
from tensorbow.kernels.gpu.runtime.program import CudaSource, c_type
from tensorbow.kernels.gpu.source.bitonic_sort import permutation_scratch, prepare_sort
from tensorbow.kernels.gpu.source.index_types import index_for
from tensorbow.ops.philox import ROUNDS, WORD
from tensorbow.ops.random import (
    DropoutMask,
    RandomPermutation,
    RandomStandardNormal,
    RandomUniform,
    RandomUniformInt,
    TruncatedNormal,
)
from tensorbow.ops.sampling import ATTEMPTS, TRUNCATION

# Salmon et al. (SC 2011), section 3.3, as in tensorbow.ops.philox.
_PHILOX = """\
struct tb_block { unsigned int word[4]; };
static __device__ inline tb_block tb_philox(tb_block c, unsigned int k0, unsigned int k1) {
    for (int round = 0; round < $ROUNDS; ++round) {
        const unsigned long long left = 0xD2511F53ull * c.word[0], right = 0xCD9E8D57ull * c.word[2];
        const tb_block next = {{
            (unsigned int)(right >> 32) ^ c.word[1] ^ k0, (unsigned int)right,
            (unsigned int)(left >> 32) ^ c.word[3] ^ k1, (unsigned int)left}};
        c = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}
// The words of one block of one op of one replica at one step.
struct tb_stream {
    unsigned int k0, k1, step_low, step_high;
    __device__ tb_stream(unsigned int seed_low, unsigned int seed_high, unsigned int op_low,
                         unsigned int op_high, long long replica, long long step) {
        const unsigned long long r = (unsigned long long)replica, s = (unsigned long long)step;
        const tb_block seeds = {{seed_low, seed_high, op_low, op_high}};
        const tb_block key = tb_philox(seeds, (unsigned int)r, (unsigned int)(r >> 32));
        k0 = key.word[0];
        k1 = key.word[1];
        step_low = (unsigned int)s;
        step_high = (unsigned int)(s >> 32);
    }
    __device__ tb_block draw(unsigned int block, unsigned int attempt) const {
        const tb_block counter = {{block, attempt, step_low, step_high}};
        return tb_philox(counter, k0, k1);
    }
};
[[maybe_unused]] static __device__ inline unsigned long long tb_wide(const tb_block& words, int lane) {
    return (unsigned long long)words.word[2 * lane] << 32 | words.word[2 * lane + 1];
}
[[maybe_unused]] static __device__ inline void tb_uniforms(const tb_block& words, float* numbers) {
    for (int lane = 0; lane < 4; ++lane)
        numbers[lane] = (float)(words.word[lane] >> 8) * (1.0f / 16777216.0f);
}
[[maybe_unused]] static __device__ inline void tb_uniforms(const tb_block& words, double* numbers) {
    for (int lane = 0; lane < 2; ++lane)
        numbers[lane] = (double)(tb_wide(words, lane) >> 11) * (1.0 / 9007199254740992.0);
}
// Box and Muller (1958): pairs of uniforms to pairs of normals.
[[maybe_unused]] static __device__ inline void tb_pair(float& u, float& v) {
    const float radius = sqrtf(logf(1.0f - u) * -2.0f), angle = v * 6.283185307179586f;
    u = radius * cosf(angle);
    v = radius * sinf(angle);
}
[[maybe_unused]] static __device__ inline void tb_pair(double& u, double& v) {
    const double radius = sqrt(log(1.0 - u) * -2.0), angle = v * 6.283185307179586;
    u = radius * cos(angle);
    v = radius * sin(angle);
}
"""

_KERNEL = (
    _PHILOX
    + """\
extern "C" __global__ void tb_draw(
        const long long* replica, const long long* step, unsigned int seed_low, unsigned int seed_high,
        unsigned int op_low, unsigned int op_high, $parameters $R* result, $I count) {
    const tb_stream stream(seed_low, seed_high, op_low, op_high, *replica, *step);
    $before
    TB_FOR_EACH($I, block, (count + $LANES - 1) / $LANES) {
        $R numbers[$LANES];
        $body
        for (int lane = 0; lane < $LANES; ++lane)
            if ($LANES * block + lane < count) result[$LANES * block + lane] = numbers[lane];
    }
}
"""
)
_UNIFORM = "tb_uniforms(stream.draw(block, 0), numbers);"
_NORMAL = """\
tb_uniforms(stream.draw(block, 0), numbers);
        for (int lane = 0; lane < $LANES; lane += 2) tb_pair(numbers[lane], numbers[lane + 1]);"""
_TRUNCATED = (
    _NORMAL
    + """
        for (unsigned int attempt = 1; attempt < $ATTEMPTS; ++attempt) {
            bool outside = false;
            for (int lane = 0; lane < $LANES; ++lane)
                outside = outside || numbers[lane] > ($R)$LIMIT || numbers[lane] < -($R)$LIMIT;
            if (!outside) break;
            $R again[$LANES];
            tb_uniforms(stream.draw(block, attempt), again);
            for (int lane = 0; lane < $LANES; lane += 2) tb_pair(again[lane], again[lane + 1]);
            for (int lane = 0; lane < $LANES; ++lane)
                if (numbers[lane] > ($R)$LIMIT || numbers[lane] < -($R)$LIMIT) numbers[lane] = again[lane];
        }
        for (int lane = 0; lane < $LANES; ++lane)
            numbers[lane] = numbers[lane] > ($R)$LIMIT ? ($R)$LIMIT
                : numbers[lane] < -($R)$LIMIT ? -($R)$LIMIT : numbers[lane];"""
)
_RANGE = """\
const unsigned long long offset = (unsigned long long)(long long)*low;
    const unsigned long long extent = *low < *high ? (unsigned long long)(long long)*high - offset : 1;"""
_INTEGERS = """\
const tb_block words = stream.draw(block, 0);
        for (int lane = 0; lane < 2; ++lane) numbers[lane] = ($R)(tb_wide(words, lane) % extent + offset);"""
_RATE = """\
const double share = (double)*rate;
    const bool sound = 0.0 <= share && share < 1.0;
    const unsigned long long limit = sound ? (unsigned long long)ceil(share * 16777216.0) << 8 : 0;
    const $R scale = sound ? ($R)(1.0 / (1.0 - share)) : ($R)TB_NAN;"""
_MASK = """\
const tb_block words = stream.draw(block, 0);
        for (int lane = 0; lane < 4; ++lane) numbers[lane] = words.word[lane] >= limit ? scale : ($R)0;"""
# Sort keys: random bits, then the element's position; padding sorts last.
_KEYS = """\
const tb_block words = stream.draw(block, 0);
        for (int lane = 0; lane < 2; ++lane) {
            const unsigned long long position = 2ull * block + lane;
            numbers[lane] = position < size ? (tb_wide(words, lane) & ~low) | position : ~0ull;
        }"""


def _prepare(
    name: str,
    body: str,
    call: GpuCall,
    result: DeviceArray,
    lanes: int,
    before: str = "",
    arguments: dict[str, tuple[str, DeviceArray | np.generic]] | None = None,
) -> Enqueue:
    """The launch that fills `result`; arguments: types and values of further parameters."""
    given = arguments or {}
    index = index_for(result.size)
    kind = "unsigned long long" if result.dtype == np.uint64 else c_type(result.dtype)
    values = {
        "R": kind,
        "LANES": str(lanes),
        "ATTEMPTS": str(ATTEMPTS),
        "LIMIT": str(TRUNCATION),
    }
    filled = {"body": body, "before": before}
    for key, value in values.items():
        filled = {part: text.replace(f"${key}", value) for part, text in filled.items()}
    source = CudaSource.of(
        f"random {name}",
        _KERNEL,
        I=index.name,
        ROUNDS=str(ROUNDS),
        R=kind,
        LANES=str(lanes),
        parameters="".join(f"{kind} {key}, " for key, (kind, _) in given.items()),
        **filled,
    )
    seeds = [int(call.attrs["seed"]), int(call.attrs["seed2"])]
    halves = [np.uint32(half) for seed in seeds for half in (seed & WORD, seed >> 32 & WORD)]
    return call.context.launch(
        source,
        "tb_draw",
        call.context.blocks(-(-result.size // lanes)),
        256,
        call.state["random_stream"],
        call.state["counter"],
        *halves,
        *(value for _, value in given.values()),
        result,
        index.make(result.size),
    )


def _floating(name: str, body: str) -> Callable[[GpuCall], Enqueue]:
    def prepare(call: GpuCall) -> Enqueue:
        (result,) = call.outputs
        return _prepare(name, body, call, result, 4 if result.dtype == np.float32 else 2)

    return prepare


def _integers(call: GpuCall) -> Enqueue:
    _, low, high = call.inputs
    kind = f"const {c_type(low.dtype)}*"
    bounds: dict[str, tuple[str, DeviceArray | np.generic]] = {"low": (kind, low), "high": (kind, high)}
    return _prepare("integers", _INTEGERS, call, call.outputs[0], 2, _RANGE, bounds)


def _mask(call: GpuCall) -> Enqueue:
    rate = call.inputs[1]
    kind = f"const {c_type(rate.dtype)}*"
    return _prepare("mask", _MASK, call, call.outputs[0], 4, _RATE, {"rate": (kind, rate)})


def _permutation(call: GpuCall) -> Enqueue:
    (order,), (scratch,) = call.outputs, call.scratch
    low = np.uint64((1 << max(order.size - 1, 0).bit_length()) - 1)
    keys = DeviceArray(scratch.address, scratch.shape if order.size else (0,), np.dtype(np.uint64))
    kind = "unsigned long long"
    limits: dict[str, tuple[str, DeviceArray | np.generic]] = {
        "size": (kind, np.uint64(order.size)),
        "low": (kind, low),
    }
    fill = _prepare("keys", _KEYS, call, keys, 2, "", limits)
    sort = prepare_sort(call, keys, order, low)

    def enqueue() -> None:
        fill()
        sort()

    return enqueue


gpu_kernel(RandomUniform, _floating("uniform", _UNIFORM))
gpu_kernel(RandomStandardNormal, _floating("normal", _NORMAL))
gpu_kernel(TruncatedNormal, _floating("truncated normal", _TRUNCATED))
gpu_kernel(RandomUniformInt, _integers)
gpu_kernel(DropoutMask, _mask)
gpu_kernel(RandomPermutation, _permutation, scratch=permutation_scratch)
