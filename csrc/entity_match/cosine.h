// The dot product of two unit vectors in one fixed order; also used by edit_plan.
//
// Lane l sums the products at l, l + 32, l + 64, ... front to back; the lanes are then added in
// halves (l and l + 16, l and l + 8, ...), and the sum is rounded once. Products of two floats are
// exact in double, so nothing depends on whether a multiply and an add are fused.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace rrgkern {

constexpr int kLanes = 32;  // one warp
constexpr int kTile = 4;    // rows that are multiplied with as many others at once

#ifdef __CUDACC__
// The 4 x 4 cosines of rows a and rows b by a warp, every thread of which must call: the thread in
// lane l gets that of a[l / 8] and b[l / 2 % 4].
__device__ inline float warp_cosines(const float* const (&a)[kTile], const float* const (&b)[kTile],
                                     int64_t width) {
  const int lane = threadIdx.x % kLanes;
  double sums[kTile * kTile] = {};
  for (int64_t k = lane; k < width; k += kLanes) {
    double mine[kTile], theirs[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      mine[i] = static_cast<double>(a[i][k]);
      theirs[i] = static_cast<double>(b[i][k]);
    }
#pragma unroll
    for (int pair = 0; pair < kTile * kTile; ++pair) {
      sums[pair] += mine[pair / kTile] * theirs[pair % kTile];
    }
  }
  // Each step halves the sums that a thread holds and adds the lanes that are `half` apart: of
  // the sums it holds the upper thread of two keeps the upper half.
#pragma unroll
  for (int half = kLanes / 2, kept = kTile * kTile / 2; kept > 0; half /= 2, kept /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int s = 0; s < kept; ++s) {
      const double given = upper ? sums[s] : sums[s + kept];
      sums[s] = (upper ? sums[s + kept] : sums[s]) + __shfl_xor_sync(~0u, given, half);
    }
  }
  return static_cast<float>(sums[0] + __shfl_xor_sync(~0u, sums[0], 1));
}
#endif

}  // namespace rrgkern
