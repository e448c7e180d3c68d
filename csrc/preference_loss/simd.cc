// Tokens of the preference loss, compiled once for each instruction set.
#include "preference_loss/preference_loss.h"

#include "common/simd.h"

namespace rrgkern {
namespace RRGKERN_ISA {
namespace {

RRGKERN_INLINE void add_difference(Vector<double>* sums, Vector<double> left, Vector<double> right) {
  *sums += left - right;
}

// Of floats the difference is taken in double, where it is exact.
RRGKERN_INLINE void add_difference(Vector<double>* sums, Vector<float> left, Vector<float> right) {
  Vector<double> l{}, r{};
  HalfOfFloats lefts[2], rights[2];
  memcpy(lefts, &left, sizeof left);
  memcpy(rights, &right, sizeof right);
  for (int half = 0; half < 2; ++half) {
    l = __builtin_convertvector(lefts[half], Vector<double>);
    r = __builtin_convertvector(rights[half], Vector<double>);
    *sums += l - r;
  }
}

// Selected, never multiplied: a NaN at a masked token vanishes.
template <typename T>
RRGKERN_INLINE Vector<T> where(const bool* keep, Vector<T> values) {
  T lanes[kLanes<T>];
  store(lanes, values);
  for (int i = 0; i < kLanes<T>; ++i) lanes[i] = keep[i] ? lanes[i] : T(0);
  return load(lanes);
}

template <typename T>
double gain_of(const T* logps, const T* ref, const bool* mask, int64_t count) {
  constexpr int kWide = kLanes<T>;
  Vector<double> sums{};
  int64_t t = 0;
  for (; t + kWide <= count; t += kWide) {
    Vector<T> left = load(logps + t), right = load(ref + t);
    if (mask != nullptr) {
      left = where<T>(mask + t, left);
      right = where<T>(mask + t, right);
    }
    add_difference(&sums, left, right);
  }
  double gain = sum_of_lanes<double>(sums);
  for (; t < count; ++t) {
    if (mask == nullptr || mask[t]) gain += static_cast<double>(logps[t]) - ref[t];
  }
  return gain;
}

template <typename T>
void rewards_of(const Preference& x, int64_t begin, int64_t end) {
  for (int64_t s = begin; s < end; ++s) {
    const int64_t first = x.offsets[s], count = x.offsets[s + 1] - first;
    const bool* mask = x.mask == nullptr ? nullptr : x.mask + first;
    int64_t scored = count;
    if (mask != nullptr) {
      scored = 0;
      for (int64_t t = 0; t < count; ++t) scored += mask[t];
    }
    x.divisor[s] = x.length_normalized && scored > 1 ? static_cast<double>(scored) : 1.0;
    const double gain = gain_of<T>(static_cast<const T*>(x.logps) + first,
                                   static_cast<const T*>(x.ref) + first, mask, count);
    x.reward[s] = x.tau * gain / x.divisor[s];
  }
}

template <typename T>
void coefficients_of(const Preference& x, int64_t begin, int64_t end) {
  T* coef = static_cast<T*>(x.coef);
  for (int64_t s = begin; s < end; ++s) {
    const T each = static_cast<T>(-(x.advantage[s] / x.divisor[s]));
    for (int64_t t = x.offsets[s]; t < x.offsets[s + 1]; ++t) {
      coef[t] = x.mask == nullptr || x.mask[t] ? each : T(0);
    }
  }
}

void rewards(const Preference& x, int64_t begin, int64_t end) {
  (x.dtype == Float::kDouble ? rewards_of<double> : rewards_of<float>)(x, begin, end);
}

void coefficients(const Preference& x, int64_t begin, int64_t end) {
  (x.dtype == Float::kDouble ? coefficients_of<double> : coefficients_of<float>)(x, begin, end);
}

}  // namespace
}  // namespace RRGKERN_ISA

#define RRGKERN_JOIN(left, right) left##right
#define RRGKERN_NAME(left, right) RRGKERN_JOIN(left, right)
extern const PreferenceKernels RRGKERN_NAME(preference_, RRGKERN_ISA) = {RRGKERN_ISA::rewards,
                                                                         RRGKERN_ISA::coefficients};

}  // namespace rrgkern
