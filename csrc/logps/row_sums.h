// One row's sums over its columns, and what closes them: included by simd.cc.
#pragma once

#include "common/simd.h"
#include "logps/logps.h"

namespace rrgkern {
namespace RRGKERN_ISA {
namespace {

// Nats at which a probability is 0 in double too: -inf is moved up to here before it meets that 0.
constexpr double kFar = 1e4;

RRGKERN_INLINE double as_number(double x) { return x; }
RRGKERN_INLINE double as_number(float x) { return x; }

template <typename S>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};

template <typename S>
RRGKERN_INLINE typename WideOf<S>::type widened(const S* from) {
  using T = typename WideOf<S>::type;
  S lanes[kLanes<T>] = {*from};
  return load(lanes)[0];
}

template <typename S, typename T>
RRGKERN_INLINE void narrow(S* to, T value) {
  S lanes[kLanes<T>];
  store(lanes, all<T>(value));
  *to = lanes[0];
}

template <typename T>
struct RowSums {
  T max;
  double sumexp, weighted;
};

template <typename T>
RRGKERN_INLINE int64_t whole(int64_t columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

// Columns of a row in the wide type, -inf behind its end and at `hidden`, which may be outside.
template <typename S, typename T>
RRGKERN_INLINE void gather(const S* z, int64_t stride, int64_t columns, int64_t hidden, T* scratch) {
  int64_t c = 0;
  if (stride == 1) {
    for (; c + kLanes<T> <= columns; c += kLanes<T>) store(scratch + c, load(z + c));
  }
  for (; c < columns; ++c) scratch[c] = widened(z + c * stride);
  for (; c < whole<T>(columns); ++c) scratch[c] = T(-INFINITY);
  if (hidden >= 0 && hidden < columns) scratch[hidden] = T(-INFINITY);
}

template <typename T, typename S>
RRGKERN_INLINE T largest(const S* z, int64_t columns, T least) {
  Vector<T> m[4] = {all<T>(least), all<T>(least), all<T>(least), all<T>(least)};
  int64_t c = 0;
  for (; c + 4 * kLanes<T> <= columns; c += 4 * kLanes<T>) {
    for (int k = 0; k < 4; ++k) m[k] = larger(load(z + c + k * kLanes<T>), m[k]);
  }
  for (; c < columns; c += kLanes<T>) m[0] = larger(load(z + c), m[0]);
  return largest_lane<T>(larger(larger(m[0], m[1]), larger(m[2], m[3])));
}

// Adds exp(x) to *sum and -x exp(x) to *weighted, x = (z - base) / T; writes exp(x) where asked.
template <bool ENTROPY, bool KEEP, typename T, typename S>
RRGKERN_INLINE void add_exponentials(const S* z, int64_t columns, T base, T per_temperature, T* out,
                                     double* sum, double* weighted) {
  Vector<double> total{}, tilt{};
  int64_t c = 0;
  const auto one = [&](int64_t at, Vector<T>* p, Vector<T>* w) __attribute__((always_inline)) {
    const Vector<T> x = (load(z + at) - base) * per_temperature;
    *p = exp_to_zero<T>(x);
    // A column of probability 0 adds nothing to the entropy: 0 * -inf must not be formed.
    if (ENTROPY) *w = (x < all<T>(T(-kFar)) ? all<T>(T(-kFar)) : x) * *p;
    if (KEEP) store(out + at, *p);
  };
  for (; c + 4 * kLanes<T> <= columns; c += 4 * kLanes<T>) {
    Vector<T> p[4], w[4];
    // The arithmetic leaves the memory idle: the block after this one comes meanwhile.
    for (int k = 0; k < 4; ++k) __builtin_prefetch(z + c + k * kLanes<T> + kBlock);
    for (int k = 0; k < 4; ++k) one(c + k * kLanes<T>, &p[k], &w[k]);
    // Next to the 1 of a leading column, fp32 would drop a tail of many small ones.
    add_wide(&total, (p[0] + p[1]) + (p[2] + p[3]));
    if (ENTROPY) add_wide(&tilt, (w[0] + w[1]) + (w[2] + w[3]));
  }
  for (; c < columns; c += kLanes<T>) {
    Vector<T> p, w;
    one(c, &p, &w);
    add_wide(&total, p);
    if (ENTROPY) add_wide(&tilt, w);
  }
  *sum += sum_of_lanes<double>(total);
  if (ENTROPY) *weighted -= sum_of_lanes<double>(tilt);
}

// Moves what was summed to another maximum. An empty sum is 0 and stays so.
template <typename T>
RRGKERN_INLINE double rescale(RowSums<T>* sums, T base, double temperature) {
  const double drop =
      sums->sumexp > 0 ? (as_number(base) - as_number(sums->max)) / temperature : 0.0;
  const double decay = exp(-drop);
  sums->weighted = (sums->weighted + drop * sums->sumexp) * decay;
  sums->sumexp *= decay;
  return decay;
}

// Adds columns to a row's sums, the target's left out (`hidden`; outside the columns: none is). KEEP
// writes their exponentials to `kept`, which may be `z`, and each block's largest logit so far to
// `bases`.
template <bool ENTROPY, bool KEEP, typename T, typename S>
RRGKERN_INLINE void add_columns(const S* z, int64_t stride, int64_t columns, int64_t hidden,
                                double temperature, RowSums<T>* sums, T* kept = nullptr,
                                T* bases = nullptr) {
  const T per_temperature = static_cast<T>(1.0 / temperature);
  alignas(64) T scratch[kBlock];
  const auto add = [&](const auto* block, int64_t count, T* out) __attribute__((always_inline)) {
    const T top = largest<T>(block, count, sums->max);
    // Logits of -inf only: measured from 0, so that each exponential is 0 and not NaN.
    const T base = top == T(-INFINITY) ? T(0) : top;
    if (top != sums->max) rescale(sums, base, temperature);
    sums->max = top;
    add_exponentials<ENTROPY, KEEP>(block, count, base, per_temperature, out, &sums->sumexp,
                                    &sums->weighted);
    if (KEEP) *bases++ = top;
  };
  for (int64_t begin = 0; begin < columns; begin += kBlock) {
    const int64_t count = columns - begin < kBlock ? columns - begin : kBlock;
    const bool here = hidden >= begin && hidden < begin + count;
    if (stride == 1 && !here && count % kLanes<T> == 0) {
      add(z + begin, count, KEEP ? kept + begin : scratch);
    } else {
      gather(z + begin * stride, stride, count, hidden - begin, scratch);
      add(static_cast<const T*>(scratch), whole<T>(count), scratch);
      if (KEEP) memcpy(kept + begin, scratch, count * sizeof(T));
    }
  }
}

// Results of a row from its sums: `RowSums.close` in Python.
template <typename T>
RRGKERN_INLINE void close(const RowSums<T>& sums, T target_logit, double temperature,
                          const Stats& stats, int64_t row) {
  const double log_sum = log(sums.sumexp), z = target_logit;
  double log_odds = (as_number(sums.max) - z) / temperature + log_sum;
  // An overflow upstream, which must not pass for certainty.
  if (z == INFINITY) log_odds = NAN;
  const double small = log1p(exp(-fabs(log_odds)));
  // NaN passes through both comparisons: it is in `small`.
  const double against = (log_odds > 0 ? log_odds : 0) + small;
  const double in_favour = (log_odds < 0 ? -log_odds : 0) + small;
  const bool leads = z >= as_number(sums.max);
  static_cast<T*>(stats.logps)[row] = static_cast<T>(-against);
  static_cast<T*>(stats.shift)[row] = leads ? target_logit : sums.max;
  static_cast<T*>(stats.lognorm)[row] = static_cast<T>(leads ? against : log_sum + in_favour);
  if (stats.entropy == nullptr) return;
  const double odds = exp(-fabs(log_odds)), major = 1 / (1 + odds), minor = odds / (1 + odds);
  const double p_target = log_odds > 0 ? minor : major, p_others = log_odds > 0 ? major : minor;
  // 0 log 0 = 0: a side of probability 0 has an infinite or undefined logarithm.
  double entropy = p_target > 0 ? p_target * against : 0.0;
  if (p_others > 0) entropy += p_others * (in_favour + log_sum + sums.weighted / sums.sumexp);
  static_cast<T*>(stats.entropy)[row] = static_cast<T>(log_odds == log_odds ? entropy : NAN);
}

}  // namespace
}  // namespace RRGKERN_ISA
}  // namespace rrgkern
