// CUDA's mathematical functions over the host's C library, which is at least as exact (1 ulp and better).

#define TB_MATH1(name)                                                      \
    extern "C" double name(double) noexcept;                                \
    extern "C" float name##f(float) noexcept;                               \
    static inline float name(float x) { return name##f(x); }
#define TB_MATH2(name)                                                      \
    extern "C" double name(double, double) noexcept;                        \
    extern "C" float name##f(float, float) noexcept;                        \
    static inline float name(float x, float y) { return name##f(x, y); }

TB_MATH1(exp) TB_MATH1(exp2) TB_MATH1(expm1) TB_MATH1(log) TB_MATH1(log2) TB_MATH1(log10) TB_MATH1(log1p)
TB_MATH1(sqrt) TB_MATH1(cbrt) TB_MATH1(sin) TB_MATH1(cos) TB_MATH1(tan) TB_MATH1(asin) TB_MATH1(acos)
TB_MATH1(atan) TB_MATH1(sinh) TB_MATH1(cosh) TB_MATH1(tanh) TB_MATH1(asinh) TB_MATH1(acosh) TB_MATH1(atanh)
TB_MATH1(erf) TB_MATH1(erfc) TB_MATH1(tgamma) TB_MATH1(lgamma) TB_MATH1(floor) TB_MATH1(ceil) TB_MATH1(trunc)
TB_MATH1(round) TB_MATH1(rint) TB_MATH1(nearbyint) TB_MATH1(fabs) TB_MATH1(logb)
TB_MATH2(pow) TB_MATH2(atan2) TB_MATH2(fmod) TB_MATH2(remainder) TB_MATH2(hypot) TB_MATH2(copysign)
TB_MATH2(fmax) TB_MATH2(fmin) TB_MATH2(fdim) TB_MATH2(nextafter)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double frexp(double, int*) noexcept;
extern "C" float frexpf(float, int*) noexcept;
extern "C" double modf(double, double*) noexcept;
extern "C" float modff(float, float*) noexcept;
static inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
static inline float ldexp(float x, int n) { return ldexpf(x, n); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline double exp10(double x) { return pow(10.0, x); }
static inline float exp10f(float x) { return (float)pow(10.0, (double)x); }
static inline void sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
static inline void sincos(double x, double* s, double* c) { *s = sin(x), *c = cos(x); }
static inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
static inline double sinpi(double x) { return sin(3.14159265358979323846 * remainder(x, 2.0)); }
static inline double cospi(double x) { return cos(3.14159265358979323846 * remainder(x, 2.0)); }
static inline float sinpif(float x) { return (float)sinpi((double)x); }
static inline float cospif(float x) { return (float)cospi((double)x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return (float)normcdf((double)x); }

static inline bool isnan(float x) { return __builtin_isnan(x); }
static inline bool isnan(double x) { return __builtin_isnan(x); }
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
static inline bool isfinite(float x) { return __builtin_isfinite(x); }
static inline bool isfinite(double x) { return __builtin_isfinite(x); }
static inline bool signbit(float x) { return __builtin_signbit(x); }
static inline bool signbit(double x) { return __builtin_signbit(x); }

static inline int abs(int x) { return x < 0 ? -x : x; }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline long long llabs(long long x) { return abs(x); }
static inline float abs(float x) { return fabsf(x); }
static inline double abs(double x) { return fabs(x); }

#define TB_ORDER(T)                                                         \
    static inline T min(T x, T y) { return y < x ? y : x; }                 \
    static inline T max(T x, T y) { return x < y ? y : x; }
TB_ORDER(int)
TB_ORDER(unsigned)
TB_ORDER(long)
TB_ORDER(unsigned long)
TB_ORDER(long long)
TB_ORDER(unsigned long long)
static inline float min(float x, float y) { return fminf(x, y); }
static inline float max(float x, float y) { return fmaxf(x, y); }
static inline double min(double x, double y) { return fmin(x, y); }
static inline double max(double x, double y) { return fmax(x, y); }

// Rounded as they say, never contracted.
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __dsqrt_rn(double x) { return sqrt(x); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline long long __float2ll_rz(float x) { return (long long)x; }
static inline long long __double2ll_rz(double x) { return (long long)x; }
