// The rows' kernels, compiled once for each instruction set.
#include "logps/logps.h"

#include "common/simd.h"

namespace rrgkern {
namespace RRGKERN_ISA {
namespace {

// Columns handled at a time: in the first-level cache, and summed before the next are read.
constexpr int64_t kBlock = 4096;
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

// Adds columns to a row's sums, the target's left out (`hidden`; outside the columns: none is).
template <bool ENTROPY, typename T, typename S>
RRGKERN_INLINE void add_columns(const S* z, int64_t stride, int64_t columns, int64_t hidden,
                                double temperature, RowSums<T>* sums) {
  const T per_temperature = static_cast<T>(1.0 / temperature);
  alignas(64) T scratch[kBlock];
  const auto add = [&](const auto* block, int64_t count) __attribute__((always_inline)) {
    const T top = largest<T>(block, count, sums->max);
    // Logits of -inf only: measured from 0, so that each exponential is 0 and not NaN.
    const T base = top == T(-INFINITY) ? T(0) : top;
    if (top != sums->max) rescale(sums, base, temperature);
    sums->max = top;
    add_exponentials<ENTROPY, false>(block, count, base, per_temperature, scratch, &sums->sumexp,
                                     &sums->weighted);
  };
  for (int64_t begin = 0; begin < columns; begin += kBlock) {
    const int64_t count = columns - begin < kBlock ? columns - begin : kBlock;
    const bool here = hidden >= begin && hidden < begin + count;
    if (stride == 1 && !here && count % kLanes<T> == 0) {
      add(z + begin, count);
    } else {
      gather(z + begin * stride, stride, count, hidden - begin, scratch);
      add(static_cast<const T*>(scratch), whole<T>(count));
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

template <typename S>
RRGKERN_INLINE S* row_of(const Rows& rows, int64_t row) {
  const int64_t batch = row / rows.rows_per_batch, within = row % rows.rows_per_batch;
  return reinterpret_cast<S*>(rows.data) + batch * rows.batch_stride + within * rows.row_stride;
}

template <bool ENTROPY, typename S>
void forward_rows(const SoftmaxForward& call, int64_t begin, int64_t end) {
  using T = typename WideOf<S>::type;
  const Rows& rows = call.logits;
  for (int64_t row = begin; row < end; ++row) {
    if (call.keep != nullptr && !call.keep[row]) {
      void* const parts[] = {call.stats.logps, call.stats.entropy, call.stats.shift,
                             call.stats.lognorm};
      for (void* part : parts) {
        if (part != nullptr) static_cast<T*>(part)[row] = 0;
      }
      continue;
    }
    const S* z = row_of<S>(rows, row);
    RowSums<T> sums = {T(-INFINITY), 0.0, 0.0};
    const int64_t target = call.targets[row];
    add_columns<ENTROPY>(z, rows.column_stride, rows.vocabulary, target, call.temperature, &sums);
    close(sums, widened(z + target * rows.column_stride), call.temperature, call.stats, row);
  }
}

// Numbers of a row that its gradient is made of; both coefficients carry their 1/T.
template <typename T>
struct RowGradient {
  T coef, coef_entropy, entropy, shift, lognorm, at_target;
};

template <typename T>
RRGKERN_INLINE RowGradient<T> row_gradient(const SoftmaxBackward& call, int64_t row) {
  const auto number = [&](const void* values) { return static_cast<const T*>(values)[row]; };
  const double logp = number(call.stats.logps), coef = number(call.coef) / call.temperature;
  RowGradient<T> g = {static_cast<T>(coef),         T(0), T(0), number(call.stats.shift),
                      number(call.stats.lognorm), static_cast<T>(coef * -expm1(logp))};
  if (call.coef_entropy != nullptr) {
    const double bonus = number(call.coef_entropy) / call.temperature;
    g.coef_entropy = static_cast<T>(bonus);
    g.entropy = number(call.stats.entropy);
    const double above = logp < -kFar ? -kFar : logp;
    g.at_target = static_cast<T>(coef * -expm1(logp) -
                                 bonus * exp(logp) * (above + as_number(g.entropy)));
  }
  return g;
}

template <bool ENTROPY, typename T, typename S>
RRGKERN_INLINE void gradient_of_columns(const S* z, int64_t columns, const RowGradient<T>& g,
                                        T per_temperature, S* out) {
  const Vector<T> coef = all<T>(-g.coef);
  for (int64_t c = 0; c < columns; c += kLanes<T>) {
    const Vector<T> log_p = (load(z + c) - g.shift) * per_temperature - g.lognorm;
    const Vector<T> p = exp_to_zero<T>(log_p);
    if (ENTROPY) {
      // -inf is moved up before it meets a probability of 0.
      const Vector<T> above = log_p < all<T>(T(-kFar)) ? all<T>(T(-kFar)) : log_p;
      store(out + c, p * (coef - g.coef_entropy * (above + g.entropy)));
    } else {
      store(out + c, p * coef);
    }
  }
}

// The gradient of a row; d logp / dz_j = (1[j = t] - p_j) / T, d H / dz_j = -p_j (log p_j + H) / T.
template <bool ENTROPY, typename S>
RRGKERN_INLINE void gradient_of_row(const S* z, int64_t stride, int64_t columns, int64_t target,
                                    const RowGradient<typename WideOf<S>::type>& g,
                                    double temperature, S* out, int64_t out_stride) {
  using T = typename WideOf<S>::type;
  const T per_temperature = static_cast<T>(1.0 / temperature);
  const int64_t direct = stride == 1 && out_stride == 1 ? columns / kLanes<T> * kLanes<T> : 0;
  gradient_of_columns<ENTROPY, T>(z, direct, g, per_temperature, out);
  for (int64_t begin = direct; begin < columns; begin += kBlock) {
    const int64_t count = columns - begin < kBlock ? columns - begin : kBlock;
    alignas(64) S copy[kBlock];
    for (int64_t c = 0; c < count; ++c) copy[c] = z[(begin + c) * stride];
    for (int64_t c = count; c < whole<T>(count); ++c) copy[c] = copy[0];
    gradient_of_columns<ENTROPY, T>(copy, whole<T>(count), g, per_temperature, copy);
    for (int64_t c = 0; c < count; ++c) out[(begin + c) * out_stride] = copy[c];
  }
  if (target >= 0 && target < columns) narrow(out + target * out_stride, g.at_target);
}

template <typename T>
RRGKERN_INLINE bool is_active(const SoftmaxBackward& call, int64_t row) {
  // `!(x == 0)`: NaN is active.
  if (!(static_cast<const T*>(call.coef)[row] == 0)) return true;
  return call.coef_entropy != nullptr && !(static_cast<const T*>(call.coef_entropy)[row] == 0);
}

template <typename S>
void backward_rows(const SoftmaxBackward& call, int64_t begin, int64_t end) {
  using T = typename WideOf<S>::type;
  const int64_t columns = call.logits.vocabulary;
  for (int64_t row = begin; row < end; ++row) {
    S* out = row_of<S>(call.gradient, row);
    const int64_t stride = call.logits.column_stride, out_stride = call.gradient.column_stride;
    if (!is_active<T>(call, row)) {
      if (out_stride == 1) {
        memset(static_cast<void*>(out), 0, columns * sizeof(S));
      } else {
        for (int64_t c = 0; c < columns; ++c) out[c * out_stride] = S{};
      }
      continue;
    }
    const S* z = row_of<const S>(call.logits, row);
    const RowGradient<T> g = row_gradient<T>(call, row);
    (call.coef_entropy != nullptr ? gradient_of_row<true, S> : gradient_of_row<false, S>)(
        z, stride, columns, call.targets[row], g, call.temperature, out, out_stride);
  }
}

template <typename T>
RRGKERN_INLINE RowSums<T> take_target(const Tile& tile, const Sums& sums, int64_t row, T** z) {
  *z = static_cast<T*>(tile.z) + row * tile.columns;
  const int64_t target = tile.targets[row] - tile.first;
  if (target >= 0 && target < tile.columns) {
    static_cast<T*>(sums.target_logit)[row] = (*z)[target];
    (*z)[target] = T(-INFINITY);
  }
  return {static_cast<T>(sums.max[row]), sums.sumexp[row], sums.weighted[row]};
}

template <typename T>
RRGKERN_INLINE void put_back(const RowSums<T>& row_sums, const Sums& sums, int64_t row) {
  sums.max[row] = row_sums.max;
  sums.sumexp[row] = row_sums.sumexp;
  sums.weighted[row] = row_sums.weighted;
}

template <bool ENTROPY, typename T>
void add_tile_rows(const Tile& tile, const Sums& sums, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T* z = static_cast<T*>(tile.z) + row * tile.columns;
    const int64_t target = tile.targets[row] - tile.first;
    const bool here = target >= 0 && target < tile.columns;
    if (here) static_cast<T*>(sums.target_logit)[row] = z[target];
    RowSums<T> row_sums = {static_cast<T>(sums.max[row]), sums.sumexp[row], sums.weighted[row]};
    add_columns<ENTROPY>(static_cast<const T*>(z), 1, tile.columns, target, tile.temperature,
                         &row_sums);
    put_back(row_sums, sums, row);
  }
}

template <bool ENTROPY, typename T>
void exponentials_rows(const Tile& tile, const Sums& sums, T* decay, int64_t begin, int64_t end) {
  const T per_temperature = static_cast<T>(1.0 / tile.temperature);
  for (int64_t row = begin; row < end; ++row) {
    T* z;
    RowSums<T> row_sums = take_target(tile, sums, row, &z);
    const int64_t direct = tile.columns / kLanes<T> * kLanes<T>, rest = tile.columns - direct;
    alignas(64) T tail[kLanes<T>];
    gather(z + direct, 1, rest, -1, tail);
    T top = largest<T>(z, direct, row_sums.max);
    top = largest<T>(tail, whole<T>(rest), top);
    const T base = top == T(-INFINITY) ? T(0) : top;
    decay[row] = static_cast<T>(rescale(&row_sums, base, tile.temperature));
    row_sums.max = top;
    add_exponentials<ENTROPY, true>(z, direct, base, per_temperature, z, &row_sums.sumexp,
                                    &row_sums.weighted);
    add_exponentials<ENTROPY, true>(tail, whole<T>(rest), base, per_temperature, tail,
                                    &row_sums.sumexp, &row_sums.weighted);
    memcpy(z + direct, tail, rest * sizeof(T));
    put_back(row_sums, sums, row);
  }
}

template <typename T>
void tile_gradient_rows(const Tile& tile, const SoftmaxBackward& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    T* z = static_cast<T*>(tile.z) + row * tile.columns;
    const RowGradient<T> g = row_gradient<T>(call, row);
    (call.coef_entropy != nullptr ? gradient_of_row<true, T> : gradient_of_row<false, T>)(
        z, 1, tile.columns, tile.targets[row] - tile.first, g, tile.temperature, z, 1);
  }
}

template <typename S>
void scale_rows(const Rows& rows, const bool* active, double factor, int64_t begin, int64_t end) {
  using T = typename WideOf<S>::type;
  for (int64_t row = begin; row < end; ++row) {
    if (!active[row]) continue;
    S* z = row_of<S>(rows, row);
    const int64_t stride = rows.column_stride;
    int64_t c = 0;
    if (stride == 1) {
      for (; c + kLanes<T> <= rows.vocabulary; c += kLanes<T>) {
        store(z + c, load(z + c) * static_cast<T>(factor));
      }
    }
    for (; c < rows.vocabulary; ++c) {
      narrow(z + c * stride, widened(z + c * stride) * static_cast<T>(factor));
    }
  }
}

// Calls visit(S{}) with the type of the logits.
template <typename Visit>
RRGKERN_INLINE void with_type(Float dtype, const Visit& visit) {
  switch (dtype) {
    case Float::kHalf: return visit(Half{});
    case Float::kBFloat16: return visit(BFloat16{});
    case Float::kFloat: return visit(float{});
    case Float::kDouble: return visit(double{});
  }
}

void forward(const SoftmaxForward& call, int64_t begin, int64_t end) {
  with_type(call.logits.dtype, [&](auto kind) {
    using S = decltype(kind);
    (call.stats.entropy != nullptr ? forward_rows<true, S> : forward_rows<false, S>)(call, begin, end);
  });
}

void backward(const SoftmaxBackward& call, int64_t begin, int64_t end) {
  with_type(call.logits.dtype, [&](auto kind) { backward_rows<decltype(kind)>(call, begin, end); });
}

void add_tile(const Tile& tile, const Sums& sums, bool entropy, int64_t begin, int64_t end) {
  if (tile.dtype == Float::kDouble) {
    (entropy ? add_tile_rows<true, double> : add_tile_rows<false, double>)(tile, sums, begin, end);
  } else {
    (entropy ? add_tile_rows<true, float> : add_tile_rows<false, float>)(tile, sums, begin, end);
  }
}

void exponentials(const Tile& tile, const Sums& sums, bool entropy, void* decay, int64_t begin,
                  int64_t end) {
  if (tile.dtype == Float::kDouble) {
    (entropy ? exponentials_rows<true, double> : exponentials_rows<false, double>)(
        tile, sums, static_cast<double*>(decay), begin, end);
  } else {
    (entropy ? exponentials_rows<true, float> : exponentials_rows<false, float>)(
        tile, sums, static_cast<float*>(decay), begin, end);
  }
}

void tile_gradient(const Tile& tile, const SoftmaxBackward& call, int64_t begin, int64_t end) {
  (tile.dtype == Float::kDouble ? tile_gradient_rows<double> : tile_gradient_rows<float>)(
      tile, call, begin, end);
}

void scale(const Rows& rows, const bool* active, double factor, int64_t begin, int64_t end) {
  with_type(rows.dtype,
            [&](auto kind) { scale_rows<decltype(kind)>(rows, active, factor, begin, end); });
}

}  // namespace
}  // namespace RRGKERN_ISA

#define RRGKERN_JOIN(left, right) left##right
#define RRGKERN_NAME(left, right) RRGKERN_JOIN(left, right)
extern const LogpsKernels RRGKERN_NAME(logps_, RRGKERN_ISA) = {
    RRGKERN_ISA::forward,      RRGKERN_ISA::backward, RRGKERN_ISA::add_tile,
    RRGKERN_ISA::exponentials, RRGKERN_ISA::tile_gradient, RRGKERN_ISA::scale};

}  // namespace rrgkern
