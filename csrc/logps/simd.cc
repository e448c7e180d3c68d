// The rows' kernels, compiled once for each instruction set.
#include "logps/logps.h"

#include "common/simd.h"
#include "logps/row_sums.h"

namespace rrgkern {
namespace RRGKERN_ISA {
namespace {

template <typename S>
RRGKERN_INLINE S* row_of(const Rows& rows, int64_t row) {
  const int64_t batch = row / rows.rows_per_batch, within = row % rows.rows_per_batch;
  return reinterpret_cast<S*>(rows.data) + batch * rows.batch_stride + within * rows.row_stride;
}

template <typename T>
RRGKERN_INLINE T* bases_of(void* bases, int64_t columns, int64_t place) {
  return static_cast<T*>(bases) + place * ((columns + kBlock - 1) / kBlock);
}

template <bool ENTROPY, bool KEEP, typename S>
void forward_rows(const SoftmaxForward& call, const Rows& kept, void* bases, int64_t begin,
                  int64_t end) {
  using T = typename WideOf<S>::type;
  const Rows& rows = call.logits;
  Complete<T> complete;
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
    const T target_logit = widened(z + target * rows.column_stride);
    add_columns<ENTROPY, KEEP>(z, rows.column_stride, rows.vocabulary, target, call.temperature,
                               &sums, KEEP ? row_of<T>(kept, row) : nullptr,
                               KEEP ? bases_of<T>(bases, rows.vocabulary, row - begin) : nullptr);
    const int place = complete.count++;
    complete.rows[place] = row;
    complete.max[place] = sums.max;
    complete.target_logit[place] = target_logit;
    complete.sumexp[place] = sums.sumexp;
    complete.weighted[place] = sums.weighted;
    if (complete.count == complete.kMost) close(&complete, call.temperature, call.stats);
  }
  close(&complete, call.temperature, call.stats);
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

// The same where `out` holds what the forward kept of the row.
template <typename T>
RRGKERN_INLINE void gradient_of_kept(T* out, const T* bases, int64_t columns, int64_t target,
                                     const RowGradient<T>& g, double temperature) {
  for (int64_t begin = 0; begin < columns; begin += kBlock) {
    const int64_t end = begin + kBlock < columns ? begin + kBlock : columns;
    const double above = (as_number(*bases++) - as_number(g.shift)) / temperature;
    const T factor = static_cast<T>(-g.coef * exp(above - as_number(g.lognorm)));
    int64_t c = begin;
    for (; c + kLanes<T> <= end; c += kLanes<T>) store(out + c, load(out + c) * factor);
    for (; c < end; ++c) out[c] *= factor;
  }
  out[target] = g.at_target;
}

template <bool KEPT, typename S>
void backward_rows(const SoftmaxBackward& call, void* bases, int64_t begin, int64_t end) {
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
    const RowGradient<T> g = row_gradient<T>(call, row);
    if constexpr (KEPT) {
      gradient_of_kept(out, bases_of<T>(bases, columns, row - begin), columns, call.targets[row], g,
                       call.temperature);
      continue;
    }
    const S* z = row_of<const S>(call.logits, row);
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
    add_columns<ENTROPY, false>(static_cast<const T*>(z), 1, tile.columns, target, tile.temperature,
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
    Columns<T, T> columns;
    columns.split(z, tile.columns, -1);
    const T top = largest(columns, row_sums.max);
    const T base = top == T(-INFINITY) ? T(0) : top;
    decay[row] = static_cast<T>(rescale(&row_sums, base, tile.temperature));
    row_sums.max = top;
    add_exponentials<ENTROPY, true>(columns, base, per_temperature, z, &row_sums.sumexp,
                                    &row_sums.weighted);
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
    (call.stats.entropy != nullptr ? forward_rows<true, false, S> : forward_rows<false, false, S>)(
        call, {}, nullptr, begin, end);
  });
}

void backward(const SoftmaxBackward& call, int64_t begin, int64_t end) {
  with_type(call.logits.dtype,
            [&](auto kind) { backward_rows<false, decltype(kind)>(call, nullptr, begin, end); });
}

// Calls visit(T{}) with the type of statistics.
template <typename Visit>
RRGKERN_INLINE void with_wide(Float dtype, const Visit& visit) {
  if (dtype == Float::kDouble) return visit(double{});
  visit(float{});
}

void forward_keeping(const SoftmaxForward& call, const Rows& kept, void* bases, int64_t begin,
                     int64_t end) {
  with_wide(call.logits.dtype, [&](auto kind) {
    using T = decltype(kind);
    (call.stats.entropy != nullptr ? forward_rows<true, true, T> : forward_rows<false, true, T>)(
        call, kept, bases, begin, end);
  });
}

void backward_of_kept(const SoftmaxBackward& call, void* bases, int64_t begin, int64_t end) {
  with_wide(call.gradient.dtype,
            [&](auto kind) { backward_rows<true, decltype(kind)>(call, bases, begin, end); });
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
    RRGKERN_ISA::forward,          RRGKERN_ISA::backward, RRGKERN_ISA::forward_keeping,
    RRGKERN_ISA::backward_of_kept, RRGKERN_ISA::add_tile, RRGKERN_ISA::exponentials,
    RRGKERN_ISA::tile_gradient,    RRGKERN_ISA::scale};

}  // namespace rrgkern
