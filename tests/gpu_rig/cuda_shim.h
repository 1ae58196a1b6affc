// What CUDA C++ has without an include, for g++: enough to run kernels that were written for NVRTC.
//
// Every name that NVRTC does not know is missing here too (no int32_t, no printf). Atomics are there for
// integers only: a sum of floats by atomics would depend on timing. A kernel's parameters are unpacked by the
// templates at the end, so that nothing parses C++.

typedef __SIZE_TYPE__ size_t;

#define __host__
#define __device__
#define __global__
#define __constant__ static const
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(nbytes) alignas(nbytes)
#define __shared__ static __thread
#define __CUDA_ARCH__ 800
#define warpSize 32

// Vector types -----------------------------------------------------------------------------------------

#define TB_VECTOR(T, name, align2, align4)                                              \
    struct name##1 { T x; };                                                            \
    struct alignas(align2) name##2 { T x, y; };                                         \
    struct name##3 { T x, y, z; };                                                      \
    struct alignas(align4) name##4 { T x, y, z, w; };                                   \
    static inline name##1 make_##name##1(T x) { return {x}; }                           \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                   \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }           \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TB_VECTOR(float, float, 8, 16)
TB_VECTOR(double, double, 16, 16)
TB_VECTOR(int, int, 8, 16)
TB_VECTOR(unsigned, uint, 8, 16)
TB_VECTOR(long long, longlong, 16, 16)
TB_VECTOR(unsigned long long, ulonglong, 16, 16)
TB_VECTOR(signed char, char, 2, 4)
TB_VECTOR(unsigned char, uchar, 2, 4)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Where a thread is: one per host thread, set before the emulated thread goes on -------------------------

struct TbPlace {
    uint3 thread, block, threads, blocks;
    void* shared;
};
extern "C" __thread TbPlace tb_emulated_place;
#define threadIdx (tb_emulated_place.thread)
#define blockIdx (tb_emulated_place.block)
#define blockDim (tb_emulated_place.threads)
#define gridDim (tb_emulated_place.blocks)

// Barriers and exchanges within a warp: the support library changes to another fiber in them ---------------

extern "C" int tb_emulated_barrier(int line, int kind, int predicate);
extern "C" unsigned tb_emulated_exchange(int line, unsigned mask, unsigned long long value);
extern "C" unsigned long long tb_emulated_lane(int lane);
extern "C" int tb_emulated_lane_id();

#define __syncthreads() ((void)tb_emulated_barrier(__LINE__, 0, 0))
#define __syncthreads_count(predicate) tb_emulated_barrier(__LINE__, 1, (predicate) != 0)
#define __syncthreads_and(predicate) tb_emulated_barrier(__LINE__, 2, (predicate) != 0)
#define __syncthreads_or(predicate) tb_emulated_barrier(__LINE__, 3, (predicate) != 0)

static inline void tb_syncwarp(int line, unsigned mask = 0xffffffffu) { tb_emulated_exchange(line, mask, 0); }

static inline unsigned tb_ballot(int line, unsigned mask, int predicate) {
    unsigned here = tb_emulated_exchange(line, mask, predicate != 0), result = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (here >> lane & 1 && tb_emulated_lane(lane)) result |= 1u << lane;
    return result;
}
static inline int tb_any(int line, unsigned mask, int p) { return tb_ballot(line, mask, p) != 0; }
static inline int tb_all(int line, unsigned mask, int p) { return tb_ballot(line, mask, !p) == 0; }

// What a lane that is not there would give is undefined: all bits set, so NaN for floats.
template <class T> static inline T tb_shuffled(int line, unsigned mask, T value, int source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles are of 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    unsigned here = tb_emulated_exchange(line, mask, bits);
    unsigned long long got = here >> source & 1 ? tb_emulated_lane(source) : ~0ull;
    __builtin_memcpy(&value, &got, sizeof value);
    return value;
}
template <class T> static inline T tb_shfl(int line, unsigned mask, T value, int from, int width = 32) {
    int lane = tb_emulated_lane_id();
    return tb_shuffled(line, mask, value, (lane & ~(width - 1)) + (from & (width - 1)));
}
template <class T> static inline T tb_shfl_xor(int line, unsigned mask, T value, int bits, int width = 32) {
    int lane = tb_emulated_lane_id(), source = lane ^ bits;
    return tb_shuffled(line, mask, value, source >= (lane & ~(width - 1)) + width ? lane : source);
}
template <class T> static inline T tb_shfl_down(int line, unsigned mask, T value, unsigned n, int width = 32) {
    int lane = tb_emulated_lane_id(), source = lane + (int)n;
    return tb_shuffled(line, mask, value, source >= (lane & ~(width - 1)) + width ? lane : source);
}
template <class T> static inline T tb_shfl_up(int line, unsigned mask, T value, unsigned n, int width = 32) {
    int lane = tb_emulated_lane_id(), source = lane - (int)n;
    return tb_shuffled(line, mask, value, source < (lane & ~(width - 1)) ? lane : source);
}
template <class T, class F> static inline T tb_reduce(int line, unsigned mask, T value, F join) {
    unsigned here = tb_emulated_exchange(line, mask, (unsigned)value);
    bool first = true;
    for (int lane = 0; lane < 32; ++lane)
        if (here >> lane & 1) value = first ? (T)tb_emulated_lane(lane) : join(value, (T)tb_emulated_lane(lane)), first = false;
    return value;
}
#define __syncwarp(...) tb_syncwarp(__LINE__ __VA_OPT__(,) __VA_ARGS__)
#define __ballot_sync(...) tb_ballot(__LINE__, __VA_ARGS__)
#define __any_sync(...) tb_any(__LINE__, __VA_ARGS__)
#define __all_sync(...) tb_all(__LINE__, __VA_ARGS__)
#define __shfl_sync(...) tb_shfl(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) tb_shfl_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) tb_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) tb_shfl_up(__LINE__, __VA_ARGS__)
#define __reduce_add_sync(...) tb_reduce(__LINE__, __VA_ARGS__, [](auto a, auto b) { return a + b; })
#define __reduce_max_sync(...) tb_reduce(__LINE__, __VA_ARGS__, [](auto a, auto b) { return a > b ? a : b; })
#define __reduce_min_sync(...) tb_reduce(__LINE__, __VA_ARGS__, [](auto a, auto b) { return a < b ? a : b; })

// Atomics on integers; fences ---------------------------------------------------------------------------

#define TB_ATOMIC(name, builtin)                                                                         \
    static inline int name(int* p, int v) { return builtin(p, v, __ATOMIC_RELAXED); }                    \
    static inline unsigned name(unsigned* p, unsigned v) { return builtin(p, v, __ATOMIC_RELAXED); }     \
    static inline unsigned long long name(unsigned long long* p, unsigned long long v) {                 \
        return builtin(p, v, __ATOMIC_RELAXED);                                                          \
    }
TB_ATOMIC(atomicAdd, __atomic_fetch_add)
TB_ATOMIC(atomicAnd, __atomic_fetch_and)
TB_ATOMIC(atomicOr, __atomic_fetch_or)
TB_ATOMIC(atomicXor, __atomic_fetch_xor)
TB_ATOMIC(atomicExch, __atomic_exchange_n)
static inline int atomicSub(int* p, int v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicSub(unsigned* p, unsigned v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
#define TB_COMPARED(T)                                                                                   \
    static inline T atomicCAS(T* p, T compare, T value) {                                                \
        __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);      \
        return compare;                                                                                  \
    }                                                                                                    \
    static inline T atomicMax(T* p, T v) {                                                               \
        T old = *p;                                                                                      \
        while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old;                                                                                      \
    }                                                                                                    \
    static inline T atomicMin(T* p, T v) {                                                               \
        T old = *p;                                                                                      \
        while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {} \
        return old;                                                                                      \
    }
TB_COMPARED(int)
TB_COMPARED(unsigned)
TB_COMPARED(long long)
TB_COMPARED(unsigned long long)
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Bits ----------------------------------------------------------------------------------------------------

template <class To, class From> static inline To tb_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __int_as_float(int x) { return tb_bits<float>(x); }
static inline int __float_as_int(float x) { return tb_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return tb_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return tb_bits<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return tb_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return tb_bits<long long>(x); }
static inline double __hiloint2double(int high, int low) {
    return tb_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}
static inline int __double2hiint(double x) { return (int)(tb_bits<long long>(x) >> 32); }
static inline int __double2loint(double x) { return (int)tb_bits<long long>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline void __stcs(T* p, T value) { *p = value; }
template <class T> static inline void __stcg(T* p, T value) { *p = value; }

#include "cuda_shim_math.h"

// Kernels as functions of an array of pointers to their arguments --------------------------------------------

template <int... I> struct TbNumbers {};
template <int N> using TbFirst = TbNumbers<__integer_pack(N)...>;
template <class T> struct TbPointer { static constexpr unsigned char value = 0; };
template <class T> struct TbPointer<T*> { static constexpr unsigned char value = 1; };

template <auto F> struct TbKernel;
template <class... P, void (*F)(P...)> struct TbKernel<F> {
    static constexpr unsigned sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    static constexpr unsigned char pointers[sizeof...(P) + 1] = {TbPointer<P>::value..., 0};
    template <int... I> static void unpack(void** a, TbNumbers<I...>) { F(*(P*)a[I]...); }
    static void thread(void** a) { unpack(a, TbFirst<sizeof...(P)>{}); }
};
#define TB_EXPORT extern "C" __attribute__((visibility("default")))
#define TB_KERNEL(name)                                                                     \
    TB_EXPORT void tb_thread_##name(void** a) { TbKernel<&name>::thread(a); }               \
    TB_EXPORT const unsigned* tb_sizes_##name() { return TbKernel<&name>::sizes; }          \
    TB_EXPORT const unsigned char* tb_pointers_##name() { return TbKernel<&name>::pointers; }
