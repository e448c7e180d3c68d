#include "preference_loss/preference_loss.h"

#include <tvm/ffi/function.h>

#include <cmath>
#include <vector>

#include "common/isa.h"
#include "common/tensors.h"
#include "common/threads.h"

namespace rrgkern {

using tvm::ffi::TensorView;
using Maybe = tvm::ffi::Optional<TensorView>;

namespace {

struct Pairs {
  int64_t count;
  const int64_t *positive, *negative;
  const void* weight;
  Float dtype;

  double weight_of(int64_t p) const {
    return dtype == Float::kDouble ? static_cast<const double*>(weight)[p]
                                   : static_cast<const float*>(weight)[p];
  }
  bool name_sequences(int64_t sequences) const {
    bool inside = true;
    for (int64_t p = 0; p < count; ++p) {
      inside &= positive[p] >= 0 && positive[p] < sequences;
      inside &= negative[p] >= 0 && negative[p] < sequences;
    }
    return inside;
  }
  bool are_weighed() const {
    bool fine = true;
    for (int64_t p = 0; p < count; ++p) fine &= std::isfinite(weight_of(p)) && weight_of(p) >= 0;
    return fine;
  }
};

// In the order of METRICS in Python: margin, share above 0, rewards of both sides, pairs.
struct PairSums {
  double loss = 0, metrics[5] = {};
};

// All pairs in their order: a sequence's advantage is the sum of those that name it.
PairSums sums_of_pairs(const Preference& x, const Pairs& pairs) {
  PairSums sums;
  for (int64_t p = 0; p < pairs.count; ++p) {
    const double weight = pairs.weight_of(p);
    if (weight == 0) continue;  // takes no part, whatever stands in its sequences
    const double better = x.reward[pairs.positive[p]], worse = x.reward[pairs.negative[p]];
    const double margin = better - worse, small = std::exp(-std::fabs(margin));
    // -log sigma(m), and sigma(-m) formed from exp(-|m|): neither overflows nor cancels.
    sums.loss += weight * ((margin < 0 ? -margin : 0.0) + std::log1p(small));
    const double pull = x.tau * weight * (margin < 0 ? 1.0 : small) / (1.0 + small);
    x.advantage[pairs.positive[p]] += pull;
    x.advantage[pairs.negative[p]] -= pull;
    const double values[] = {margin, margin > 0 ? 1.0 : 0.0, better, worse, 1.0};
    for (int i = 0; i < 5; ++i) sums.metrics[i] += values[i];
  }
  for (int i = 0; i < 4; ++i) sums.metrics[i] /= sums.metrics[4] > 1 ? sums.metrics[4] : 1.0;
  return sums;
}

void write(Float dtype, void* to, const double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == Float::kDouble) {
      static_cast<double*>(to)[i] = values[i];
    } else {
      static_cast<float*>(to)[i] = static_cast<float>(values[i]);
    }
  }
}

}  // namespace

// Returns false, and has done nothing, where an argument is wrong or must be converted first: Python
// then checks them one by one. `check_weights`: a weight that is negative or not finite is wrong.
bool preference_loss_cpu(TensorView logps, TensorView ref, TensorView offsets, TensorView positive,
                         TensorView negative, TensorView weight, Maybe mask, double tau,
                         bool length_normalized, bool check_weights, TensorView loss,
                         TensorView coef, TensorView advantages, TensorView metrics,
                         int64_t threads) {
  const DLDataType dtype = logps.dtype(), index = {kDLInt, 64, 1};
  if (logps.ndim() != 1 || dtype.code != kDLFloat || dtype.bits < 32 || offsets.ndim() != 1 ||
      offsets.size(0) == 0 || positive.ndim() != 1) {
    return false;
  }
  const int64_t tokens = logps.size(0), sequences = offsets.size(0) - 1, count = positive.size(0);
  if (!is_plain(logps, tokens, dtype) || !is_plain(ref, tokens, dtype) ||
      !is_plain(offsets, sequences + 1, index) ||
      !rise_to(data<const int64_t>(offsets), sequences, tokens) ||
      !is_plain(positive, count, index) || !is_plain(negative, count, index) ||
      !is_plain(weight, count, dtype) ||
      (mask.has_value() && !is_plain(*mask, tokens, {kDLBool, 8, 1}))) {
    return false;
  }
  const Float kind = float_dtype(logps, "logps");
  const Pairs pairs = {count, data<const int64_t>(positive), data<const int64_t>(negative),
                       data<const void>(weight), kind};
  if (!pairs.name_sequences(sequences) || (check_weights && !pairs.are_weighed())) return false;

  std::vector<double> numbers(3 * sequences);
  double* const own = numbers.data();
  const Preference x = {kind,
                        data<const int64_t>(offsets),
                        data<const void>(logps),
                        data<const void>(ref),
                        mask.has_value() ? data<const bool>(*mask) : nullptr,
                        tau,
                        length_normalized,
                        own,
                        own + sequences,
                        own + 2 * sequences,
                        vector_of(coef, "coef", tokens, kind)};
  const PreferenceKernels& kernels = RRGKERN_OF_THIS_CPU(preference);
  const auto on_sequences = [&](void (*work)(const Preference&, int64_t, int64_t)) {
    Items items(sequences, 4);
    on_threads(threads_for(4.0 * static_cast<double>(tokens), threads), [&] {
      for (int64_t begin, end; items.take(&begin, &end);) work(x, begin, end);
    });
  };
  on_sequences(kernels.rewards);
  const PairSums sums = sums_of_pairs(x, pairs);
  on_sequences(kernels.coefficients);
  write(kind, data<void>(loss), &sums.loss, 1);
  write(kind, vector_of(advantages, "advantages", sequences, kind), x.advantage, sequences);
  write(kind, vector_of(metrics, "metrics", 5, kind), sums.metrics, 5);
  return true;
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(preference_loss_cpu, rrgkern::preference_loss_cpu)
