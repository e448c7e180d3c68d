// The dot product of two unit vectors in one fixed order; also used by edit_plan.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace rrgkern {

constexpr int kLanes = 32;  // one warp

// Lane l sums the products at l, l + 32, l + 64, ...; the lanes are then added in halves, and the
// sum is rounded once. Products of two floats are exact in double, so nothing depends on whether
// a multiply and an add are fused.
inline float cosine(const float* a, const float* b, int64_t width) {
  double lanes[kLanes] = {};
  const int64_t whole = width - width % kLanes;
  for (int64_t k = 0; k < whole; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(a[k + lane]) * static_cast<double>(b[k + lane]);
    }
  }
  for (int64_t k = whole; k < width; ++k) {
    lanes[k - whole] += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return static_cast<float>(lanes[0]);
}

#ifdef __CUDACC__
// The same sum by a whole warp; every thread of it must call. The result is in lane 0.
__device__ inline float warp_cosine(const float* a, const float* b, int64_t width) {
  double sum = 0.0;
  for (int64_t k = threadIdx.x % kLanes; k < width; k += kLanes) {
    sum += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
  return static_cast<float>(sum);
}
#endif

}  // namespace rrgkern
