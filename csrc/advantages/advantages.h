// Group-relative advantages: one group, its members in order.
//
// Everything is in double and in the order of the members, as in rrgkern/advantages/reference.py: the
// same bits. Portable scalar code, since a step has a few hundred rewards.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/floats.h"

namespace rrgkern {

enum class Deviation { kNone, kPopulation, kSample };

inline double wide_value(double value) { return value; }
inline double wide_value(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}
inline double wide_value(Half value) {
  const int exponent = (value.bits >> 10) & 31, mantissa = value.bits & 1023;
  const double magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                           : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                          : std::ldexp(mantissa, -24);
  return value.bits & 0x8000 ? -magnitude : magnitude;
}

struct GroupResult {
  int64_t members;
  bool informative;
};

// Members [begin, end) of `rewards`; `valid` may be null. Nothing at an invalid member is read.
template <typename T, typename Result>
GroupResult group_advantages(const T* rewards, const bool* valid, int64_t begin, int64_t end,
                             Deviation deviation, double eps, Result* advantages) {
  const auto kept = [&](int64_t i) { return valid == nullptr || valid[i]; };
  // 1. Mean, and whether the rewards differ: asked of them, since the mean of equal ones can be off.
  int64_t members = 0;
  double total = 0, first = 0;
  bool differs = false;
  for (int64_t i = begin; i < end; ++i) {
    if (!kept(i)) continue;
    const double reward = wide_value(rewards[i]);
    if (members == 0) first = reward;
    differs |= reward != first;  // of a NaN too: it must end in a NaN advantage, never in 0
    total += reward;
    ++members;
  }
  const double mean = total / static_cast<double>(members > 1 ? members : 1);

  // 2. What divides.
  double divisor = 1;
  if (deviation != Deviation::kNone) {
    double squares = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double centred = kept(i) ? wide_value(rewards[i]) - mean : 0.0;
      squares += centred * centred;
    }
    const bool population = deviation == Deviation::kPopulation;
    const int64_t count = population ? members : members - 1;
    const double variance = squares / static_cast<double>(count > 1 ? count : 1);
    divisor = population ? std::sqrt(variance + eps) : std::sqrt(variance) + eps;
  }

  // 3. Advantages.
  const bool informative = members >= 2 && differs;
  for (int64_t i = begin; i < end; ++i) {
    const bool counts = informative && kept(i);
    advantages[i] = counts ? static_cast<Result>((wide_value(rewards[i]) - mean) / divisor) : 0;
  }
  return {members, informative};
}

}  // namespace rrgkern
