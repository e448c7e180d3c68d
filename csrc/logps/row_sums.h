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

// Contiguous columns as they are summed: groups of four vectors, and the rest. What is not to be read
// where it lies is copied: the group of the target, which becomes -inf, and the rest, whose last
// vector is filled from behind, with -inf before the columns that it adds.
template <typename S, typename T>
struct Columns {
  static constexpr int kGroup = 4 * kLanes<T>;
  const S* z;
  int64_t grouped, apart;  // columns in groups; where the copied group begins, or -1
  int64_t full, ragged;    // further columns in whole vectors, and what remains
  alignas(64) T group[kGroup], rest[kGroup];

  RRGKERN_MEMBER void split(const S* from, int64_t columns, int64_t hidden) {
    const bool here = hidden >= 0 && hidden < columns;
    z = from;
    grouped = columns / kGroup * kGroup;
    full = (columns - grouped) / kLanes<T> * kLanes<T>;
    ragged = columns - grouped - full;
    apart = here && hidden < grouped ? hidden / kGroup * kGroup : -1;
    if (apart >= 0) {
      for (int c = 0; c < kGroup; c += kLanes<T>) store(group + c, load(z + apart + c));
      group[hidden - apart] = T(-INFINITY);
    }
    for (int64_t c = 0; c < full; c += kLanes<T>) store(rest + c, load(z + grouped + c));
    if (ragged > 0) {
      const int64_t first = columns - kLanes<T>, before = kLanes<T> - ragged;
      T* last = rest + full;
      if (first >= 0) store(last, load(z + first));
      for (int64_t c = first < 0 ? -first : 0; first < 0 && c < kLanes<T>; ++c) {
        last[c] = widened(z + first + c);
      }
      for (int64_t c = 0; c < before; ++c) last[c] = T(-INFINITY);
    }
    if (here && hidden >= grouped + full) {
      rest[full + kLanes<T> - (columns - hidden)] = T(-INFINITY);
    } else if (here && hidden >= grouped) {
      rest[hidden - grouped] = T(-INFINITY);
    }
  }

  RRGKERN_MEMBER int64_t rest_size() const { return full + (ragged > 0 ? kLanes<T> : 0); }
};

template <typename S, typename T>
RRGKERN_INLINE T largest(const Columns<S, T>& columns, T least) {
  Vector<T> m[4] = {all<T>(least), all<T>(least), all<T>(least), all<T>(least)};
  const auto four = [&](const auto* z) __attribute__((always_inline)) {
    for (int k = 0; k < 4; ++k) m[k] = larger(load(z + k * kLanes<T>), m[k]);
  };
  for (int64_t c = 0; c < columns.grouped; c += columns.kGroup) {
    c == columns.apart ? four(columns.group) : four(columns.z + c);
  }
  for (int64_t c = 0; c < columns.rest_size(); c += kLanes<T>) {
    m[0] = larger(load(columns.rest + c), m[0]);
  }
  return largest_lane<T>(larger(larger(m[0], m[1]), larger(m[2], m[3])));
}

// Adds exp(x) to *sum and -x exp(x) to *weighted, x = (z - base) / T; KEEP writes exp(x) to `out`,
// which may be where the columns lie.
template <bool ENTROPY, bool KEEP, typename T, typename S>
RRGKERN_INLINE void add_exponentials(const Columns<S, T>& columns, T base, T per_temperature,
                                     T* out, double* sum, double* weighted) {
  Vector<double> total{}, tilt{};
  const bool tempered = per_temperature != T(1);
  const auto one = [&](const auto* z, T* to, Vector<T>* p,
                       Vector<T>* w) __attribute__((always_inline)) {
    Vector<T> x = load(z) - base;
    if (tempered) x = x * per_temperature;
    *p = exp_to_zero<T>(x);
    // A column of probability 0 adds nothing to the entropy: 0 * -inf must not be formed.
    if (ENTROPY) *w = (x < all<T>(T(-kFar)) ? all<T>(T(-kFar)) : x) * *p;
    if (KEEP) store(to, *p);
  };
  const auto four = [&](const auto* z, T* to) __attribute__((always_inline)) {
    Vector<T> p[4], w[4];
    for (int k = 0; k < 4; ++k) one(z + k * kLanes<T>, to + k * kLanes<T>, &p[k], &w[k]);
    // Next to the 1 of a leading column, fp32 would drop a tail of many small ones.
    add_wide(&total, (p[0] + p[1]) + (p[2] + p[3]));
    if (ENTROPY) add_wide(&tilt, (w[0] + w[1]) + (w[2] + w[3]));
  };
  for (int64_t c = 0; c < columns.grouped; c += columns.kGroup) {
    // The arithmetic leaves the memory idle: the block after this one comes meanwhile.
    for (int k = 0; k < 4; ++k) __builtin_prefetch(columns.z + c + k * kLanes<T> + kBlock);
    T* to = KEEP ? out + c : nullptr;
    c == columns.apart ? four(columns.group, to) : four(columns.z + c, to);
  }
  T last[Columns<S, T>::kGroup];
  for (int64_t c = 0; c < columns.rest_size(); c += kLanes<T>) {
    Vector<T> p, w;
    one(columns.rest + c, last + c, &p, &w);
    add_wide(&total, p);
    if (ENTROPY) add_wide(&tilt, w);
  }
  if (KEEP) {
    T* to = out + columns.grouped;
    memcpy(to, last, columns.full * sizeof(T));
    memcpy(to + columns.full, last + columns.full + kLanes<T> - columns.ragged,
           columns.ragged * sizeof(T));
  }
  *sum += sum_of_lanes<double>(total);
  if (ENTROPY) *weighted -= sum_of_lanes<double>(tilt);
}

// Moves what was summed to another maximum. An empty sum is 0 and stays so.
template <typename T>
RRGKERN_INLINE double rescale(RowSums<T>* sums, T base, double temperature) {
  if (!(sums->sumexp > 0)) return 1.0;
  const double drop = (as_number(base) - as_number(sums->max)) / temperature;
  const double decay = exp(-drop);
  // Far above the earlier maximum the product would be inf * 0.
  sums->weighted = decay > 0 ? (sums->weighted + drop * sums->sumexp) * decay : 0.0;
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
  const auto add = [&](auto* part, T* out) __attribute__((always_inline)) {
    const T top = largest(*part, sums->max);
    // Logits of -inf only: measured from 0, so that each exponential is 0 and not NaN.
    const T base = top == T(-INFINITY) ? T(0) : top;
    if (top != sums->max) rescale(sums, base, temperature);
    sums->max = top;
    add_exponentials<ENTROPY, KEEP>(*part, base, per_temperature, out, &sums->sumexp,
                                    &sums->weighted);
    if (KEEP) *bases++ = top;
  };
  for (int64_t begin = 0; begin < columns; begin += kBlock) {
    const int64_t count = columns - begin < kBlock ? columns - begin : kBlock;
    T* out = KEEP ? kept + begin : nullptr;
    if (stride == 1) {
      Columns<S, T> part;
      part.split(z + begin, count, hidden - begin);
      add(&part, out);
    } else {
      T scratch[kBlock];
      for (int64_t c = 0; c < count; ++c) scratch[c] = widened(z + (begin + c) * stride);
      Columns<T, T> part;
      part.split(scratch, count, hidden - begin);
      add(&part, out);
    }
  }
}

// Rows whose sums are complete, as many as a vector has lanes: their logarithms are taken at once.
template <typename T>
struct Complete {
  static constexpr int kMost = kLanes<double>;
  int count = 0;
  int64_t rows[kMost];
  T max[kMost], target_logit[kMost];
  double sumexp[kMost] = {}, weighted[kMost];
};

// Results of rows from their sums: `RowSums.close` in Python. The rows are then taken off.
template <typename T>
RRGKERN_INLINE void close(Complete<T>* complete, double temperature, const Stats& stats) {
  constexpr int kMost = Complete<T>::kMost;
  double above[kMost] = {}, log_sums[kMost], odds[kMost], small[kMost];
  for (int i = 0; i < complete->count; ++i) {
    above[i] = (as_number(complete->max[i]) - as_number(complete->target_logit[i])) / temperature;
  }
  store(log_sums, log_of(load(complete->sumexp)));
  const Vector<double> either = load(above) + load(log_sums);
  const Vector<double> ratio = exp_to_zero<double>(either > Vector<double>{} ? -either : either);
  store(odds, ratio);
  store(small, log1p_of(ratio));
  for (int i = 0; i < complete->count; ++i) {
    if (fabs(either[i]) > 700) {  // below the least normal number the vectors' exp is 0
      odds[i] = exp(-fabs(either[i]));
      small[i] = log1p(odds[i]);
    }
    const int64_t row = complete->rows[i];
    const T max = complete->max[i], target_logit = complete->target_logit[i];
    // An overflow upstream must not pass for certainty. NaN passes through all comparisons below.
    const double small_part = target_logit == T(INFINITY) ? NAN : small[i];
    const double log_sum = log_sums[i], log_odds = above[i] + log_sum;
    const double against = (log_odds > 0 ? log_odds : 0) + small_part;
    const double in_favour = (log_odds < 0 ? -log_odds : 0) + small_part;
    const bool leads = as_number(target_logit) >= as_number(max);
    static_cast<T*>(stats.logps)[row] = static_cast<T>(-against);
    static_cast<T*>(stats.shift)[row] = leads ? target_logit : max;
    static_cast<T*>(stats.lognorm)[row] = static_cast<T>(leads ? against : log_sum + in_favour);
    if (stats.entropy == nullptr) continue;
    const double major = 1 / (1 + odds[i]), minor = odds[i] / (1 + odds[i]);
    const double p_target = log_odds > 0 ? minor : major, p_others = log_odds > 0 ? major : minor;
    // 0 log 0 = 0: a side of probability 0 has an infinite or undefined logarithm.
    double entropy = p_target > 0 ? p_target * against : 0.0;
    if (p_others > 0) {
      entropy += p_others * (in_favour + log_sum + complete->weighted[i] / complete->sumexp[i]);
    }
    static_cast<T*>(stats.entropy)[row] = static_cast<T>(against == against ? entropy : NAN);
  }
  complete->count = 0;
}

}  // namespace
}  // namespace RRGKERN_ISA
}  // namespace rrgkern
