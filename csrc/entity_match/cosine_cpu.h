// All cosines between two sets of rows on a CPU, as wide as the processor allows; also used by
// edit_plan. Each is the sum of cosine.h, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cpu_features.h"
#include "entity_match/cosine.h"

namespace rrgkern {

constexpr int kGroup = 8;  // lanes of a row that lie together: one cache line
constexpr int kStep = kTile * kGroup;

typedef double Two __attribute__((vector_size(16), may_alias));
typedef double Four __attribute__((vector_size(32), may_alias));
typedef double Eight __attribute__((vector_size(64), may_alias));

// Copies a row of `width` floats to every kTile-th group of `out`, as doubles; returns the square of
// its length.
template <typename Lanes>
__attribute__((always_inline)) inline double widen_row(const float* row, int64_t width,
                                                       int64_t chunks, double* out) {
  constexpr int kWide = sizeof(Lanes) / sizeof(double);
  const int64_t whole = width / kGroup * kGroup;
  Lanes squares = {};
  double square = 0.0;
  for (int64_t column = 0; column < whole; column += kGroup) {
    double* lanes = out + (column % kLanes / kGroup * chunks + column / kLanes) * kStep;
    for (int l = 0; l < kGroup; ++l) lanes[l] = row[column + l];
    for (int l = 0; l < kGroup; l += kWide) {
      const Lanes values = *reinterpret_cast<const Lanes*>(lanes + l);
      squares += values * values;
    }
  }
  for (int64_t column = whole; column < chunks * kLanes; column += kGroup) {
    double* lanes = out + (column % kLanes / kGroup * chunks + column / kLanes) * kStep;
    for (int l = 0; l < kGroup; ++l) {
      lanes[l] = column + l < width ? row[column + l] : 0.0;
      square += lanes[l] * lanes[l];
    }
  }
  for (int l = 0; l < kWide; ++l) square += squares[l];
  return square;
}

// Adds lanes [kHalf, 2 kHalf) to those before them.
template <typename Lanes, int kHalf>
__attribute__((always_inline)) inline void add_halves(double* lanes) {
  constexpr int kWide = sizeof(Lanes) / sizeof(double);
#pragma GCC unroll 8
  for (int lane = 0; lane < kHalf; lane += kWide) {
    *reinterpret_cast<Lanes*>(lanes + lane) += *reinterpret_cast<const Lanes*>(lanes + kHalf + lane);
  }
}

// The sum of kLanes doubles in the order of cosine.h; writes over them.
template <typename Lanes>
__attribute__((always_inline)) inline float sum_of_lanes(double* lanes) {
  add_halves<Lanes, 16>(lanes);
  add_halves<Lanes, 8>(lanes);
  add_halves<Four, 4>(lanes);
  add_halves<Two, 2>(lanes);
  return static_cast<float>(lanes[0] + lanes[1]);
}

// Whether a row of this squared length is of length 1, give or take a hundredth; NaN is not.
inline bool is_unit(double square) { return square > 0.99 * 0.99 && square < 1.01 * 1.01; }

// The 4 x 4 cosines of two tiles. `Lanes` fills a register; the sums of `kRows` rows of a with all
// of b fill the register file.
template <typename Lanes, int kRows>
__attribute__((always_inline)) inline void tile_cosines(const double* a, const double* b,
                                                        int64_t chunks, float* out) {
  constexpr int kWide = sizeof(Lanes) / sizeof(double);
  alignas(64) double sums[kTile][kTile][kLanes];
  for (int first = 0; first < kTile; first += kRows) {
    for (int lane = 0; lane < kLanes; lane += kWide) {
      const int64_t place = lane / kGroup * chunks * kStep + lane % kGroup;
      const double *u = a + place + first * kGroup, *v = b + place;
      Lanes sum[kRows][kTile] = {};
      for (int64_t chunk = 0; chunk < chunks; ++chunk, u += kStep, v += kStep) {
        Lanes right[kTile];
#pragma GCC unroll 4
        for (int j = 0; j < kTile; ++j) right[j] = *reinterpret_cast<const Lanes*>(v + j * kGroup);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          const Lanes left = *reinterpret_cast<const Lanes*>(u + i * kGroup);
#pragma GCC unroll 4
          for (int j = 0; j < kTile; ++j) sum[i][j] += left * right[j];
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kTile; ++j) {
          *reinterpret_cast<Lanes*>(sums[first + i][j] + lane) = sum[i][j];
        }
      }
    }
  }
  for (int pair = 0; pair < kTile * kTile; ++pair) {
    out[pair] = sum_of_lanes<Lanes>(sums[0][0] + pair * kLanes);
  }
}

struct CpuKernels {
  double (*widen)(const float* row, int64_t width, int64_t chunks, double* out);
  void (*tile)(const double* a, const double* b, int64_t chunks, float* out);
};

#define RRGKERN_CPU_KERNELS(NAME, TARGET, LANES, ROWS)                                         \
  TARGET inline double widen_##NAME(const float* row, int64_t width, int64_t chunks,            \
                                    double* out) {                                             \
    return widen_row<LANES>(row, width, chunks, out);                                          \
  }                                                                                            \
  TARGET inline void tile_##NAME(const double* a, const double* b, int64_t chunks, float* out) { \
    tile_cosines<LANES, ROWS>(a, b, chunks, out);                                              \
  }

RRGKERN_CPU_KERNELS(portable, , Two, 2)
#if defined(__x86_64__)
RRGKERN_CPU_KERNELS(avx2, __attribute__((target("avx2"))), Four, 2)
RRGKERN_CPU_KERNELS(avx512, __attribute__((target("avx512f,avx512bw"))), Eight, 4)
#endif
#undef RRGKERN_CPU_KERNELS

// What this processor runs, the widest last.
inline const std::vector<CpuKernels>& cpu_kernels() {
  static const std::vector<CpuKernels> kernels = [] {
    std::vector<CpuKernels> found{{widen_portable, tile_portable}};
#if defined(__x86_64__)
    if (cpu_features().avx2) found.push_back({widen_avx2, tile_avx2});
    if (cpu_features().avx512f && cpu_features().avx512bw) {
      found.push_back({widen_avx512, tile_avx512});
    }
#endif
    return found;
  }();
  return kernels;
}

// Rows as doubles: [tile][group of lanes][chunk of 32 columns][row of the tile][8 lanes]. Filled up
// with zeros, whose products leave a lane as it is: it starts at +0 and never is -0.
class Panel {
 public:
  int64_t rows() const { return rows_; }
  int64_t chunks() const { return chunks_; }
  int64_t tiles() const { return (rows_ + kTile - 1) / kTile; }
  int64_t tile_size() const { return chunks_ * kTile * kLanes; }
  const double* tile(int64_t t) const { return begin_ + t * tile_size(); }

  // `row(k)` points to row k. Returns whether each is of length 1, give or take a hundredth.
  template <typename RowOf>
  bool fill(int64_t rows, int64_t width, const CpuKernels& kernels, const RowOf& row) {
    rows_ = rows;
    chunks_ = (width + kLanes - 1) / kLanes;
    const size_t wanted = tiles() * tile_size() + kGroup;
    if (storage_.size() < wanted) storage_.resize(wanted);
    const size_t past = reinterpret_cast<uintptr_t>(storage_.data()) / sizeof(double) % kGroup;
    begin_ = storage_.data() + (kGroup - past) % kGroup;
    bool unit = true;
    for (int64_t k = 0; k < tiles() * kTile; ++k) {
      double* out = begin_ + k / kTile * tile_size() + k % kTile * kGroup;
      const bool there = k < rows;
      const double square = kernels.widen(there ? row(k) : nullptr, there ? width : 0, chunks_, out);
      unit &= !there || is_unit(square);
    }
    return unit;
  }

 private:
  std::vector<double> storage_;
  double* begin_ = nullptr;
  int64_t rows_ = 0, chunks_ = 0;
};

// out[i * stride + j] = cosine of row i of `a` and row j of `b`. With `half`, where both are the
// same, tiles below the diagonal are left out.
inline void cosine_matrix(const Panel& a, const Panel& b, bool half, float* out, int64_t stride,
                          const CpuKernels& kernels) {
  // Some tiles of b stay in the second-level cache while all of a passes by.
  const int64_t block = 1 + 384 * 1024 / (sizeof(double) * b.tile_size() + 1);
  for (int64_t first = 0; first < b.tiles(); first += block) {
    for (int64_t i = 0; i < a.tiles(); ++i) {
      for (int64_t j = half && first < i ? i : first; j < first + block && j < b.tiles(); ++j) {
        float tile[kTile * kTile];
        kernels.tile(a.tile(i), b.tile(j), a.chunks(), tile);
        for (int64_t e = i * kTile; e < i * kTile + kTile && e < a.rows(); ++e) {
          for (int64_t u = j * kTile; u < j * kTile + kTile && u < b.rows(); ++u) {
            out[e * stride + u] = tile[(e - i * kTile) * kTile + u - j * kTile];
          }
        }
      }
    }
  }
}

}  // namespace rrgkern
