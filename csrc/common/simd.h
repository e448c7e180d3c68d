// Vectors of the widest registers of one instruction set, and exp on them.
//
// Included by the sources that are compiled once for each instruction set (`simd.cc`), where
// RRGKERN_ISA names it. Everything is in a namespace of that name, and nothing of the standard
// library's templates is used: the linker keeps one copy of an inline function, and it must not be
// the one with instructions that this machine lacks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "common/floats.h"

namespace rrgkern {
namespace RRGKERN_ISA {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;  // SSE2, NEON
#endif

#define RRGKERN_MEMBER inline __attribute__((always_inline))
#define RRGKERN_INLINE static RRGKERN_MEMBER

template <typename T, int BYTES>
struct VectorOf {
  typedef T type __attribute__((vector_size(BYTES)));
};
template <typename T>
using Vector = typename VectorOf<T, kBytes>::type;
template <typename T>
constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));

template <typename T>
struct IntOf;
template <>
struct IntOf<float> {
  using type = int32_t;
};
template <>
struct IntOf<double> {
  using type = int64_t;
};
// What a comparison of two vectors of T gives: -1 where it holds, 0 elsewhere.
template <typename T>
using Mask = Vector<typename IntOf<T>::type>;

template <typename To, typename From>
RRGKERN_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "one size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <typename T>
RRGKERN_INLINE Vector<T> all(T value) {
  return value - Vector<T>{};
}

template <typename V, typename M>
RRGKERN_INLINE V choose(M where, V yes, V no) {
  return where ? yes : no;
}

// NaN in `right` stays, NaN in `left` goes.
template <typename V>
RRGKERN_INLINE V larger(V left, V right) {
  return left > right ? left : right;
}

// --- loads and stores: the wide type of half, bfloat16 and float is float ---

RRGKERN_INLINE Vector<float> load(const float* from) {
  Vector<float> v;
  memcpy(&v, from, sizeof v);
  return v;
}

RRGKERN_INLINE Vector<double> load(const double* from) {
  Vector<double> v;
  memcpy(&v, from, sizeof v);
  return v;
}

using Words = VectorOf<uint16_t, kBytes / 2>::type;
using Wide = Vector<uint32_t>;

RRGKERN_INLINE Wide load_words(const void* from) {
  Words v;
  memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v, Wide);
}

RRGKERN_INLINE void store_words(void* to, Wide words) {
  const Words v = __builtin_convertvector(words, Words);
  memcpy(to, &v, sizeof v);
}

#if defined(__AVX512F__)
// Of the lanes of an intrinsic: the forms without a mask read a register that GCC 12 calls unset.
constexpr int kAll = -1;
#endif

RRGKERN_INLINE Vector<float> load(const BFloat16* from) {
  return bits<Vector<float>>(load_words(from) << 16);
}

RRGKERN_INLINE Vector<float> load(const Half* from) {
#if defined(__AVX512F__)
  return (Vector<float>)_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__)
  return (Vector<float>)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
  const Wide h = load_words(from), magnitude = h & 0x7fff;
  // The exponents' biases differ by 112; a product restores subnormal numbers too.
  const Vector<float> finite = bits<Vector<float>>(magnitude << 13) * 0x1p112f;
  const Wide special = (magnitude << 13) | 0x7f800000;
  const Wide number = magnitude >= 0x7c00 ? special : bits<Wide>(finite);
  return bits<Vector<float>>(number | ((h & 0x8000) << 16));
#endif
}

RRGKERN_INLINE void store(float* to, Vector<float> v) { memcpy(to, &v, sizeof v); }
RRGKERN_INLINE void store(double* to, Vector<double> v) { memcpy(to, &v, sizeof v); }

// Rounds to nearest, ties to even; a NaN stays one.
RRGKERN_INLINE void store(BFloat16* to, Vector<float> v) {
  const Wide u = bits<Wide>(v);
  const Wide rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  store_words(to, v == v ? rounded : (u >> 16) | 0x40);
}

RRGKERN_INLINE void store(Half* to, Vector<float> v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)to,
                      _mm512_maskz_cvtps_ph(kAll, (__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  const Wide u = bits<Wide>(v), magnitude = u & 0x7fffffff;
  const Wide normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 the sum with 1/2 rounds at the place where subnormal numbers end.
  const Wide small = bits<Wide>(bits<Vector<float>>(magnitude) + 0.5f) - 0x3f000000u;
  Wide h = magnitude < (113u << 23) ? small : normal;
  h = magnitude >= 0x477ff000u ? Wide{} + 0x7c00u : h;
  h = magnitude > 0x7f800000u ? Wide{} + 0x7e00u : h;
  store_words(to, h | ((u >> 16) & 0x8000));
#endif
}

// --- sums over lanes, always in the same order ---

// Calls join(low half, high half) until one lane is left; each step is one of narrower registers.
template <typename T, int BYTES, typename Join>
RRGKERN_INLINE T join_lanes(typename VectorOf<T, BYTES>::type v, const Join& join) {
  if constexpr (BYTES == 2 * sizeof(T)) {
    return join(v[0], v[1]);
  } else {
    typename VectorOf<T, BYTES / 2>::type half[2];
    memcpy(half, &v, sizeof v);
    return join_lanes<T, BYTES / 2>(join(half[0], half[1]), join);
  }
}

template <typename T>
RRGKERN_INLINE T sum_of_lanes(Vector<T> v) {
  return join_lanes<T, kBytes>(
      v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

template <typename T>
RRGKERN_INLINE T largest_lane(Vector<T> v) {
  return join_lanes<T, kBytes>(
      v, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

using HalfOfFloats = VectorOf<float, kBytes / 2>::type;

// Adds the lanes of `v` to sums in double, which keep a tail of small ones beside a large one.
RRGKERN_INLINE void add_wide(Vector<double>* sums, Vector<float> v) {
#if defined(__AVX512F__)
  const __m256 low = (__m256)_mm512_maskz_extractf64x4_pd(kAll, (__m512d)v, 0);
  const __m256 high = (__m256)_mm512_maskz_extractf64x4_pd(kAll, (__m512d)v, 1);
  *sums += (Vector<double>)_mm512_maskz_cvtps_pd(kAll, low) +
           (Vector<double>)_mm512_maskz_cvtps_pd(kAll, high);
#else
  HalfOfFloats half[2];
  memcpy(half, &v, sizeof v);
  *sums += __builtin_convertvector(half[0], Vector<double>) +
           __builtin_convertvector(half[1], Vector<double>);
#endif
}
RRGKERN_INLINE void add_wide(Vector<double>* sums, Vector<double> v) { *sums += v; }

// --- exp ---

// x = n ln 2 + r with |r| <= ln 2 / 2. Adding kRound leaves n, plus the exponent's bias, in the low
// bits of the sum; ln 2 is in two parts, of which the first has so few bits that n times it is exact.
template <typename T>
struct Exp;

template <>
struct Exp<float> {
  static constexpr float kRound = 12582912.0f + 127.0f, kLog2E = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440054690583e-4f;
  static constexpr float kLowest = -87.33654f, kHighest = 88.72284f;  // e^x is normal between them
  static constexpr int kMantissa = 23, kHalf = 63;
  // (e^r - 1 - r) / r^2 by a least-maximum fit of e^r: relative error of e^r 4e-9.
  RRGKERN_INLINE Vector<float> series(Vector<float> r) {
    Vector<float> s = r * 0.0013814540579915047f + 0.00836874544620514f;
    s = s * r + 0.04166838899254799f;
    s = s * r + 0.1666652113199234f;
    return s * r + 0.4999999403953552f;
  }
};

template <>
struct Exp<double> {
  static constexpr double kRound = 6755399441055744.0 + 1023.0, kLog2E = 1.44269504088896341;
  static constexpr double kLn2High = 6.93147180369123816490e-01;
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kLowest = -708.396, kHighest = 709.782;
  static constexpr int kMantissa = 52, kHalf = 511;
  RRGKERN_INLINE Vector<double> series(Vector<double> r) {  // Taylor's, relative error 5e-18
    Vector<double> s = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    s = s * r + 1.0 / 39916800.0;
    s = s * r + 1.0 / 3628800.0;
    s = s * r + 1.0 / 362880.0;
    s = s * r + 1.0 / 40320.0;
    s = s * r + 1.0 / 5040.0;
    s = s * r + 1.0 / 720.0;
    s = s * r + 1.0 / 120.0;
    s = s * r + 1.0 / 24.0;
    s = s * r + 1.0 / 6.0;
    return s * r + 0.5;
  }
};

template <typename T>
RRGKERN_INLINE Vector<T> reduced(Vector<T> x, Vector<T>* n_and_bias) {
  using E = Exp<T>;
  const Vector<T> shifted = x * E::kLog2E + E::kRound;
  const Vector<T> n = shifted - E::kRound;
  *n_and_bias = shifted;
  return (x - n * E::kLn2High) - n * E::kLn2Low;
}

template <typename T>
RRGKERN_INLINE Vector<T> power_of_two(Vector<T> n_and_bias) {
  return bits<Vector<T>>(bits<Mask<T>>(n_and_bias) << Exp<T>::kMantissa);
}

// e^r for |r| <= ln 2 / 2.
template <typename T>
RRGKERN_INLINE Vector<T> exp_near_zero(Vector<T> r) {
  return (Exp<T>::series(r) * r + T(1)) * r + T(1);
}

// e^x where it is a normal number, and less than those below, 0 at the latest from -89 on; x <= 88.
// A NaN stays one. At most 1.5 units in the last place off (tests/rrgkern/logps/test_cpu.py).
template <typename T>
RRGKERN_INLINE Vector<T> exp_to_zero(Vector<T> x) {
  Vector<T> n;
  const Vector<T> r = reduced<T>(x, &n);
  return x < all<T>(Exp<T>::kLowest) ? Vector<T>{} : exp_near_zero<T>(r) * power_of_two<T>(n);
}

#if defined(__AVX512F__)
// x = n ln 2 + r with n in sixteenths: their powers of two lie in one register, so that the series
// needs two terms fewer.
template <>
inline __attribute__((always_inline)) Vector<float> exp_to_zero<float>(Vector<float> x) {
  constexpr float kLn2 = 0.6931471824645996f, kBeyondLn2 = -1.904654323148236e-9f;
  constexpr float kSixteenths = 786432.0f;  // 1.5 * 2^19: its last place is 1/16
  // Here 2^n has the bits of 0: below, the result is 0 as well. The other way round NaN goes.
  constexpr float kZero = -88.02969193f;
  const Vector<float> powers = {1.0f,       1.04427373f, 1.09050775f, 1.13878858f,
                                1.18920708f, 1.24185777f, 1.29683955f, 1.35425556f,
                                1.41421354f, 1.47682619f, 1.54221082f, 1.61049032f,
                                1.68179286f, 1.75625217f, 1.8340081f,  1.91520655f};
  const Mask<float> place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  x = (Vector<float>)_mm512_maskz_max_ps(kAll, (__m512)all<float>(kZero), (__m512)x);
  const Vector<float> shifted = x * Exp<float>::kLog2E + kSixteenths;
  const Vector<float> n = shifted - kSixteenths;
  // By name: n kLn2 is not exact, and GCC joins a product and a difference from -O2 on alone.
  const __m512 high =
      _mm512_maskz_fnmadd_ps(kAll, (__m512)n, (__m512)all<float>(kLn2), (__m512)x);
  const Vector<float> r = (Vector<float>)_mm512_maskz_fnmadd_ps(
      kAll, (__m512)n, (__m512)all<float>(kBeyondLn2), high);
  // Shifted so, sixteenths add their number to the mantissa too: the table has less by it.
  const Mask<float> sixteenths = bits<Mask<float>>(shifted);
  const Mask<float> table = bits<Mask<float>>(powers) - (place << 19);
  const auto fraction = _mm512_maskz_permutexvar_epi32(kAll, (__m512i)sixteenths, (__m512i)table);
  const Vector<float> power = bits<Vector<float>>((Mask<float>)fraction + (sixteenths << 19));
  // A least-maximum fit: relative error of e^r 2e-9.
  const Vector<float> rise = (r * 0.1666701f + 0.50001633f) * r + 1.0f;
  return (power * r) * rise + power;
}
#endif

// The same for any x: infinite above kHighest, 0 below twice the least normal number.
template <typename T>
RRGKERN_INLINE Vector<T> exp_of(Vector<T> x) {
  const Vector<T> top = all<T>(Exp<T>::kHighest);
  const Vector<T> within = x > top ? top : x;
  Vector<T> n;
  const Vector<T> r = reduced<T>(within, &n);
  // In two factors: at the upper end 2^n alone is out of range.
  const Vector<T> e = exp_near_zero<T>(r);
  const Vector<T> grown = (e + e) * power_of_two<T>(n - T(1));
  const Vector<T> inside = x > top ? all<T>(T(INFINITY)) : grown;
  return x < all<T>(Exp<T>::kLowest + T(0.7)) ? Vector<T>{} : inside;
}

// e^x - 1 and e^x - 1 - x, exact near 0; |x| <= 20.
template <typename T>
RRGKERN_INLINE void exp_beyond_linear(Vector<T> x, Vector<T>* rise, Vector<T>* bend) {
  Vector<T> n;
  const Vector<T> r = reduced<T>(x, &n);
  const Vector<T> scale = power_of_two<T>(n), tail = Exp<T>::series(r) * r * r;
  const Vector<T> grown = scale * (r + tail) + (scale - T(1));
  *rise = x == x ? grown : x;
  *bend = scale == all<T>(T(1)) ? tail : grown - x;
  *bend = x == x ? *bend : x;
}

// --- log, of numbers in double ---

// For positive normal numbers, 0, infinity and NaN. m 2^n with m in [1/sqrt(2), sqrt(2)), and
// log m = 2 artanh(s), s = (m - 1) / (m + 1): Taylor's series, |s| < 0.172, relative error 1e-18.
RRGKERN_INLINE Vector<double> log_of(Vector<double> x) {
  using Words = Mask<double>;
  constexpr int64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  // Without a sign: a NaN's bits would overflow.
  const Vector<uint64_t> shifted = bits<Vector<uint64_t>>(x) + uint64_t{kOne - kRootHalf};
  const Words rebased = bits<Words>(shifted);
  const Vector<double> n = __builtin_convertvector((rebased >> 52) - 1023, Vector<double>);
  const Vector<double> m = bits<Vector<double>>((rebased & 0x000fffffffffffff) + kRootHalf);
  const Vector<double> f = m - 1.0, s = f / (m + 1.0), z = s * s;
  Vector<double> tail = z * (1.0 / 21.0) + 1.0 / 19.0;
  tail = tail * z + 1.0 / 17.0;
  tail = tail * z + 1.0 / 15.0;
  tail = tail * z + 1.0 / 13.0;
  tail = tail * z + 1.0 / 11.0;
  tail = tail * z + 1.0 / 9.0;
  tail = tail * z + 1.0 / 7.0;
  tail = tail * z + 1.0 / 5.0;
  tail = tail * z + 1.0 / 3.0;
  // 2s = f - s f: f is exact, and so is n times the first part of ln 2.
  const Vector<double> small = s * (2.0 * z * tail - f) + n * kLn2Low;
  const Vector<double> y = n * kLn2High + (f + small);
  const Vector<double> finite = x == Vector<double>{} ? all<double>(-INFINITY) : y;
  return x < all<double>(INFINITY) ? finite : x;
}

// log(1 + x) for x in [0, 1] or NaN, exact near 0: what 1 + x rounds off is put back.
RRGKERN_INLINE Vector<double> log1p_of(Vector<double> x) {
  const Vector<double> sum = x + 1.0;
  return log_of(sum) + (x - (sum - 1.0)) / sum;
}

}  // namespace RRGKERN_ISA
}  // namespace rrgkern
