// Which cosines of a report pair can matter to a match, told by integers on a CPU.
//
// Rows are rounded to 16 bits; their dot products, exact in 32, are near the cosines at a quarter of
// the cost. A cosine that is then too far below the best of its row and of its column is nobody's
// match. Only the others are taken, in the one order of cosine.h: the screen changes no bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "entity_match/cosine_cpu.h"
#include "entity_match/entity_match.h"

namespace rrgkern {

// A component of a unit row, give or take a hundredth, fits 16 bits; the product of two rows 32.
constexpr float kIntegerScale = 32000.0f;
constexpr int32_t kLowestProduct = -(1 << 30);
constexpr int kAtOnce = 2;  // cosines of one row taken together

// How far below the best product one may lie whose cosine is not below the best cosine.
//
// With S the scale, a component is off by at most 0.502, a row of length 1.011 hence (Cauchy and
// Schwarz) a product by 2 · 1.011 S · 0.502 √d + 0.502² d; the best product too, and fp32 rounds
// both cosines, by 64 of these units.
inline int32_t screen_margin(int64_t width) {
  const double columns = static_cast<double>(width);
  const double error = 1.02 * kIntegerScale * std::sqrt(columns) + 0.26 * columns + 64.0;
  return static_cast<int32_t>(2.0 * error);
}

// Where it pays: with fewer columns the sums cost no more than the screen, more than these could
// overflow, and a few products are no choice.
inline bool worth_screening(int64_t rows, int64_t columns, int64_t width) {
  return width >= 96 && width <= 1 << 16 && rows * columns >= 36 && rows * columns <= 1 << 20;
}

struct ScreenKernels {
  // Rounds a row to integers, filled up with zeros to a multiple of kLanes, in an order that is the
  // same for all rows; returns the square of its length.
  float (*round)(const float* row, int64_t width, int16_t* out);
  // The 4 x 4 products of two tiles of rows of `columns` integers.
  void (*tile)(const int16_t* a, const int16_t* b, int64_t columns, int32_t* out, int64_t stride);
  // The cosines of a row with kAtOnce others.
  void (*cosines)(const float* a, const float* const* b, int64_t width, float* out);
};

#if defined(__x86_64__)
#define RRGKERN_AVX2 __attribute__((target("avx2")))
#define RRGKERN_AVX512 __attribute__((target("avx512f,avx512bw")))

// What the kernels below do to a register, by its width. The masks that leave nothing out and the
// way through memory avoid intrinsics that set off a false warning in GCC 12.
RRGKERN_AVX2 inline __m256i avx2_integers(__m256 values) { return _mm256_cvtps_epi32(values); }
RRGKERN_AVX512 inline __m512i avx512_integers(__m512 values) {
  return _mm512_maskz_cvtps_epi32(__mmask16(-1), values);
}
RRGKERN_AVX2 inline __m256d avx2_doubles(const float* from) {
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
}
RRGKERN_AVX512 inline __m512d avx512_doubles(const float* from) {
  return _mm512_maskz_cvtps_pd(__mmask8(-1), _mm256_loadu_ps(from));
}
RRGKERN_AVX2 inline __m256i avx2_half(__m256i value) { return value; }
RRGKERN_AVX512 inline __m256i avx512_half(__m512i value) {
  alignas(64) __m256i halves[2];
  *reinterpret_cast<__m512i*>(halves) = value;
  return _mm256_add_epi32(halves[0], halves[1]);
}

// The sums of four registers.
RRGKERN_AVX2 inline __m128i sums_of(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// The same steps for registers of 256 and of 512 bits; as many sums as they hold are kept at once.
#define RRGKERN_SCREEN(NAME, TARGET, P, FLOATS, INTS, DOUBLES, LANES, ROWS)                       \
  TARGET inline float round_##NAME(const float* row, int64_t width, int16_t* out) {               \
    constexpr int64_t kFloats = sizeof(FLOATS) / sizeof(float);                                   \
    const FLOATS scale = P##_set1_ps(kIntegerScale);                                              \
    FLOATS squares = P##_setzero_ps();                                                            \
    int64_t k = 0;                                                                                \
    for (; k + 2 * kFloats <= width; k += 2 * kFloats) {                                          \
      const FLOATS low = P##_loadu_ps(row + k), high = P##_loadu_ps(row + k + kFloats);           \
      squares = P##_add_ps(squares, P##_mul_ps(low, low));                                        \
      squares = P##_add_ps(squares, P##_mul_ps(high, high));                                      \
      *reinterpret_cast<INTS*>(out + k) = P##_packs_epi32(                                        \
          NAME##_integers(P##_mul_ps(low, scale)), NAME##_integers(P##_mul_ps(high, scale)));     \
    }                                                                                             \
    float square = 0.0f, parts[kFloats];                                                          \
    P##_storeu_ps(parts, squares);                                                                \
    for (int64_t l = 0; l < kFloats; ++l) square += parts[l];                                     \
    for (; k < width || k % kLanes != 0; ++k) {                                                   \
      const float value = k < width ? row[k] : 0.0f, rounded = std::rint(value * kIntegerScale);  \
      square += value * value;                                                                    \
      out[k] = std::fabs(rounded) < 32768.0f ? static_cast<int16_t>(rounded) : int16_t{0};        \
    }                                                                                             \
    return square;                                                                                \
  }                                                                                               \
  TARGET inline void integers_##NAME(const int16_t* a, const int16_t* b, int64_t columns,         \
                                     int32_t* out, int64_t stride) {                              \
    constexpr int64_t kWide = sizeof(INTS) / sizeof(int16_t);                                     \
    for (int first = 0; first < kTile; first += ROWS) {                                           \
      INTS sums[ROWS][kTile] = {};                                                                \
      const int16_t* left_row = a + first * columns;                                              \
      for (int64_t k = 0; k < columns; k += kWide) {                                              \
        INTS right[kTile];                                                                        \
        _Pragma("GCC unroll 4") for (int j = 0; j < kTile; ++j) {                                 \
          right[j] = *reinterpret_cast<const INTS*>(b + j * columns + k);                         \
        }                                                                                         \
        _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; ++i) {                                  \
          const INTS left = *reinterpret_cast<const INTS*>(left_row + i * columns + k);           \
          _Pragma("GCC unroll 4") for (int j = 0; j < kTile; ++j) {                               \
            sums[i][j] = P##_add_epi32(sums[i][j], P##_madd_epi16(left, right[j]));               \
          }                                                                                       \
        }                                                                                         \
      }                                                                                           \
      _Pragma("GCC unroll 4") for (int i = 0; i < ROWS; ++i) {                                    \
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (first + i) * stride),                  \
                         sums_of(NAME##_half(sums[i][0]), NAME##_half(sums[i][1]),                \
                                 NAME##_half(sums[i][2]), NAME##_half(sums[i][3])));              \
      }                                                                                           \
    }                                                                                             \
  }                                                                                               \
  TARGET inline void cosines_##NAME(const float* a, const float* const* b, int64_t width,         \
                                    float* out) {                                                 \
    constexpr int kWide = sizeof(DOUBLES) / sizeof(double), kSums = kLanes / kWide;               \
    constexpr int kGroups = kSums < 4 ? kSums : 4;                                                \
    alignas(64) double lanes[kAtOnce][kLanes];                                                    \
    float tails[1 + kAtOnce][kLanes] = {};                                                        \
    const int64_t whole = width / kLanes * kLanes;                                                \
    for (int64_t k = whole; k < width; ++k) {                                                     \
      tails[0][k - whole] = a[k];                                                                 \
      for (int j = 0; j < kAtOnce; ++j) tails[1 + j][k - whole] = b[j][k];                        \
    }                                                                                             \
    for (int lane = 0; lane < kLanes; lane += kGroups * kWide) {                                  \
      DOUBLES sums[kAtOnce][kGroups] = {};                                                        \
      for (int64_t k = 0; k < width; k += kLanes) {                                               \
        const bool tail = k == whole;                                                             \
        const float* left = (tail ? tails[0] : a + k) + lane;                                     \
        const float* one = (tail ? tails[1] : b[0] + k) + lane;                                   \
        const float* other = (tail ? tails[2] : b[1] + k) + lane;                                 \
        _Pragma("GCC unroll 4") for (int g = 0; g < kGroups; ++g) {                               \
          const DOUBLES mine = NAME##_doubles(left + g * kWide);                                  \
          sums[0][g] += mine * NAME##_doubles(one + g * kWide);                                   \
          sums[1][g] += mine * NAME##_doubles(other + g * kWide);                                 \
        }                                                                                         \
      }                                                                                           \
      _Pragma("GCC unroll 4") for (int g = 0; g < kGroups; ++g) {                                 \
        *reinterpret_cast<DOUBLES*>(lanes[0] + lane + g * kWide) = sums[0][g];                    \
        *reinterpret_cast<DOUBLES*>(lanes[1] + lane + g * kWide) = sums[1][g];                    \
      }                                                                                           \
    }                                                                                             \
    for (int j = 0; j < kAtOnce; ++j) out[j] = sum_of_lanes<LANES>(lanes[j]);                     \
  }

RRGKERN_SCREEN(avx2, RRGKERN_AVX2, _mm256, __m256, __m256i, __m256d, Four, 2)
RRGKERN_SCREEN(avx512, RRGKERN_AVX512, _mm512, __m512, __m512i, __m512d, Eight, 4)
#undef RRGKERN_SCREEN
#undef RRGKERN_AVX2
#undef RRGKERN_AVX512
#endif

// The screen of each of `cpu_kernels()`; null where there is none.
inline const ScreenKernels* screen_kernels([[maybe_unused]] size_t kind) {
#if defined(__x86_64__)
  static const ScreenKernels kernels[] = {{round_avx2, integers_avx2, cosines_avx2},
                                          {round_avx512, integers_avx512, cosines_avx512}};
  if (kind > 0) return &kernels[kind - 1];
#endif
  return nullptr;
}

// Rows as integers, filled up with rows of zeros to whole tiles.
class IntegerPanel {
 public:
  int64_t tiles() const { return tiles_; }
  int64_t columns() const { return columns_; }
  const int16_t* tile(int64_t t) const { return begin_ + t * kTile * columns_; }

  // `row(k)` points to row k. Returns whether each is of length 1, give or take a hundredth.
  template <typename RowOf>
  bool fill(int64_t rows, int64_t width, const ScreenKernels& kernels, const RowOf& row) {
    tiles_ = (rows + kTile - 1) / kTile;
    columns_ = (width + kLanes - 1) / kLanes * kLanes;
    const size_t wanted = tiles_ * kTile * columns_ + kLanes;
    if (storage_.size() < wanted) storage_.resize(wanted);
    const size_t past = reinterpret_cast<uintptr_t>(storage_.data()) / sizeof(int16_t) % kLanes;
    begin_ = storage_.data() + (kLanes - past) % kLanes;
    bool unit = true;
    for (int64_t k = 0; k < rows; ++k) {
      unit &= is_unit(kernels.round(row(k), width, begin_ + k * columns_));
    }
    std::fill(begin_ + rows * columns_, begin_ + tiles_ * kTile * columns_, int16_t{0});
    return unit;
  }

 private:
  std::vector<int16_t> storage_;
  int16_t* begin_ = nullptr;
  int64_t tiles_ = 0, columns_ = 0;
};

// All products of two panels, at out[i * stride + j], for a stride of whole tiles; calls `meanwhile`
// after each tile.
template <typename Meanwhile>
inline void integer_matrix(const IntegerPanel& a, const IntegerPanel& b, int32_t* out,
                           int64_t stride, const ScreenKernels& kernels,
                           const Meanwhile& meanwhile) {
  for (int64_t i = 0; i < a.tiles(); ++i) {
    for (int64_t j = 0; j < b.tiles(); ++j) {
      kernels.tile(a.tile(i), b.tile(j), a.columns(), out + (i * stride + j) * kTile, stride);
      meanwhile();
    }
  }
}

// Entities of one side sorted by presence: those of presence p - 1 are [begin[p], begin[p + 1]).
using Bounds = int64_t[kPresences + 1];

struct Place {
  int32_t row, column;
};

// The places of a matrix near enough to a best that a match reads: of integers, or of cosines.
template <typename Value>
class Shortlist {
 public:
  // By rising row, and in a row by rising column.
  const std::vector<Place>& places() const { return places_; }

  void fill(const Value* matrix, int64_t stride, const Bounds& rows, const Bounds& columns,
            Value lowest, Value margin) {
    const int64_t width = columns[kPresences];
    row_limits_.resize(rows[kPresences] * kPresences);
    column_limits_.assign(kPresences * width, lowest);
    for (int p = 0; p < kPresences; ++p) {
      Value* of_columns = column_limits_.data() + p * width;
      for (int64_t i = rows[p]; i < rows[p + 1]; ++i) {
        const Value* row = matrix + i * stride;
        Value best[kPresences];
        for (int q = 0; q < kPresences; ++q) {
          best[q] = lowest;
          for (int64_t j = columns[q]; j < columns[q + 1]; ++j) best[q] = larger(best[q], row[j]);
        }
        set_limits(p, margin, best, 1, row_limits_.data() + i * kPresences);
        for (int64_t j = 0; j < width; ++j) of_columns[j] = larger(of_columns[j], row[j]);
      }
    }
    for (int q = 0; q < kPresences; ++q) {
      for (int64_t j = columns[q]; j < columns[q + 1]; ++j) {
        Value* limits = column_limits_.data() + j;
        const Value best[kPresences] = {limits[0], limits[width], limits[2 * width]};
        set_limits(q, margin, best, width, limits);
      }
    }
    places_.clear();
    for (int p = 0; p < kPresences; ++p) {
      const Value* of_columns = column_limits_.data() + p * width;
      for (int64_t i = rows[p]; i < rows[p + 1]; ++i) {
        const Value* row = matrix + i * stride;
        for (int q = 0; q < kPresences; ++q) {
          const Value limit = row_limits_[i * kPresences + q];
          for (int64_t j = columns[q]; j < columns[q + 1]; ++j) {
            if (row[j] >= smaller(limit, of_columns[j])) {
              places_.push_back({static_cast<int32_t>(i), static_cast<int32_t>(j)});
            }
          }
        }
      }
    }
  }

 private:
  // From the best of each presence what must be reached, for an entity of presence `own` - 1: the
  // best of an equal or opposite presence, or, where either has none, the best of all.
  static void set_limits(int own, Value margin, const Value (&best)[kPresences], int64_t stride,
                         Value* limits) {
    const Value all = larger(best[0], larger(best[1], best[2]));
    for (int p = 0; p < kPresences; ++p) {
      limits[p * stride] = (own > 0 && p > 0 ? best[p] : all) - margin;
    }
  }

  // One instruction each, and no branch; a NaN on the right is not taken.
  static Value larger(Value a, Value b) { return b > a ? b : a; }
  static Value smaller(Value a, Value b) { return b < a ? b : a; }

  std::vector<Value> row_limits_, column_limits_;
  std::vector<Place> places_;
};

}  // namespace rrgkern
