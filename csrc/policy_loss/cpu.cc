#include "policy_loss/policy_loss.h"

#include <optional>
#include <tvm/ffi/function.h>

#include "common/memory.h"
#include "common/threads.h"
#include "logps/arguments.h"
#include "policy_loss/arguments.h"

namespace rrgkern {

using tvm::ffi::TensorView;
using Maybe = tvm::ffi::Optional<TensorView>;

namespace {

// TRL keeps VESPO's log-weights above log(1e-8).
const double kVespoFloor = std::log(1e-8);

double clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// The sequences' own numbers, where a variant ties their tokens: sums in double, in order.
template <typename T>
class TiedSequences {
 public:
  explicit TiedSequences(Policy* policy) : policy_(*policy), numbers_(4 * policy->sequences) {
    const int64_t sequences = policy->sequences;
    policy->log_ratio = numbers_.data();
    policy->log_correction = policy->log_ratio + sequences;
    policy->log_weight = policy->log_correction + sequences;
    policy->pull = policy->log_weight + sequences;
    if (policy->variant.level == Level::kSequence) {
      through_.resize(policy->tokens);
      policy->through_ratio = through_.data();
      clipped_.resize(policy->tokens);
      policy->clipped = clipped_.data();
    }
  }

  void begin(int64_t s) {
    double ratios = 0, corrections = 0, weights = 0, count = 0;
    const bool injected = policy_.on_policy != nullptr && policy_.on_policy[s];
    for (int64_t t = policy_.offsets[s]; t < policy_.offsets[s + 1]; ++t) {
      if (!kept(t)) continue;
      const T logp = at(policy_.logps, t);
      const T behaviour =
          policy_.old_logps == nullptr || injected ? logp : at(policy_.old_logps, t);
      T ratio = difference(logp, behaviour), correction = 0;
      if (policy_.variant.surrogate == Surrogate::kGmpo) {
        T advantage = at(policy_.advantages, policy_.advantage_per_token ? t : s);
        if (policy_.weight != nullptr) advantage *= at(policy_.weight, t);
        const T low = policy_.variant.p[0], high = policy_.variant.p[1];
        const bool below = advantage < 0 && ratio < low, above = advantage > 0 && ratio > high;
        clipped_[t] = below || above;
        ratio = below ? low : above ? high : ratio;
      }
      const bool corrected = policy_.sampler != nullptr && !injected;
      if (corrected) {
        correction = difference(behaviour, at(policy_.sampler, t));
        // NaN: the engine has no value for this token.
        if (correction != correction) correction = 0;
      }
      ratios += ratio;
      corrections += correction;
      if (policy_.variant.surrogate == Surrogate::kVespo) {
        weights += clamped(ratio, -kLogRatioLimit, kLogRatioLimit);
        // Without a correction the bounds bound nothing, those that leave out 1 included.
        if (corrected) weights += clamped(log_of_factor(correction), kVespoFloor, kLogRatioLimit);
      }
      count += 1;
    }
    policy_.log_ratio[s] = ratios / (count > 1 ? count : 1);
    const bool mean = policy_.variant.sampler_level == SamplerLevel::kGeometric && count > 1;
    policy_.log_correction[s] = corrections / (mean ? count : 1);
    policy_.log_weight[s] = clamped(weights, kVespoFloor, kLogRatioLimit);
  }

  // One ratio for a sequence: each token gets the mean of what all of them hand to it.
  void pull(int64_t s) {
    double sum = 0, count = 0;
    for (int64_t t = policy_.offsets[s]; t < policy_.offsets[s + 1]; ++t) {
      sum += through_[t];
      count += kept(t);
    }
    policy_.pull[s] = sum / (count > 1 ? count : 1);
  }

 private:
  bool kept(int64_t t) const { return policy_.mask == nullptr || policy_.mask[t]; }
  static T at(const void* values, int64_t t) { return static_cast<const T*>(values)[t]; }
  static T difference(T left, T right) { return left == right ? T(0) : left - right; }

  // The logarithm of the correction within its bounds; -inf where it is masked out.
  double log_of_factor(double log) const {
    const Variant& v = policy_.variant;
    const double factor = std::exp(clamped(log, -kLogRatioLimit, kLogRatioLimit));
    if (v.sampler_mode == SamplerMode::kTruncate) {
      return std::log(clamped(factor, v.sampler_min, v.sampler_max));
    }
    return factor < v.sampler_min || factor > v.sampler_max ? -INFINITY : std::log(factor);
  }

  const Policy& policy_;
  std::vector<double> numbers_;
  std::vector<T> through_;
  std::vector<char> clipped_;
};

// Calls work(k) for k in [0, count), on as many threads as `tokens` tokens are worth.
template <typename Work>
void on_parts(int64_t count, int64_t tokens, int64_t threads, const Work& work) {
  Items items(count, 1);
  on_threads(threads_for(60.0 * static_cast<double>(tokens), threads), [&] {
    for (int64_t begin, end; items.take(&begin, &end);) work(begin);
  });
}

template <typename T>
std::vector<PolicySums> sums_of(Policy policy, bool ties, int64_t threads) {
  const PolicyKernels& kernels = policy_kernels();
  const int64_t chunks = (policy.tokens + kTokensAtOnce - 1) / kTokensAtOnce;
  std::vector<PolicySums> parts(chunks + (ties ? policy.sequences : 0));
  std::optional<TiedSequences<T>> tied;
  if (ties) {
    tied.emplace(&policy);
    on_parts(policy.sequences, policy.tokens, threads, [&](int64_t s) { tied->begin(s); });
  }
  on_parts(chunks, policy.tokens, threads, [&](int64_t k) {
    const int64_t begin = k * kTokensAtOnce;
    kernels.tokens(policy, begin, std::min(begin + kTokensAtOnce, policy.tokens), &parts[k]);
  });
  if (policy.variant.level == Level::kSequence) {
    on_parts(policy.sequences, policy.tokens, threads, [&](int64_t s) {
      tied->pull(s);
      kernels.pull(policy, s, s + 1, &parts[chunks + s]);
    });
  }
  return parts;
}

}  // namespace

void policy_loss_cpu(TensorView logps, TensorView entropy, TensorView advantages,
                     TensorView offsets, TensorView scale, TensorView old_logps, TensorView ref,
                     TensorView sampler, TensorView weight, TensorView on_policy, TensorView mask,
                     bool advantage_per_token, bool scale_per_token, TensorView variant,
                     TensorView loss, TensorView coef, TensorView coef_entropy, TensorView metrics,
                     int64_t threads) {
  const int64_t count = logps.size(0);
  const Float dtype = float_dtype(logps, "logps");
  if (dtype != wide(dtype)) TVM_FFI_THROW(TypeError) << "logps is of 16 bits, wanted 32 or 64";
  Policy policy = policy_of({advantages, offsets, scale, old_logps, ref, sampler, weight, on_policy,
                             mask, advantage_per_token, scale_per_token, variant},
                            count, dtype);
  policy.logps = vector_of(logps, "logps", count, dtype);
  policy.entropy = vector_of(entropy, "entropy", count, dtype);
  policy.coef = vector_of(coef, "coef", count, dtype);
  policy.coef_entropy = vector_of(coef_entropy, "coef_entropy", count, dtype);
  const Variant& v = policy.variant;
  const bool tied = v.level != Level::kToken || v.surrogate == Surrogate::kVespo ||
                    (policy.sampler != nullptr && v.sampler_level != SamplerLevel::kToken);
  const auto sums = dtype == Float::kDouble ? sums_of<double> : sums_of<float>;
  write_sums(sums(policy, tied, threads), dtype, data<void>(loss), vector_of(metrics, "metrics", 9, dtype));
}

// The same from what a caller of the public function passed, None for what is absent. Returns false,
// and has done nothing, where anything is wrong or must be converted first: Python then checks
// argument by argument and says which.
bool policy_loss_as_passed_cpu(TensorView logps, Maybe entropy, TensorView advantages,
                               TensorView offsets, TensorView scale, Maybe old_logps, Maybe ref,
                               Maybe sampler, Maybe weight, Maybe on_policy, Maybe mask,
                               TensorView variant, TensorView loss, TensorView coef,
                               TensorView coef_entropy, TensorView metrics, int64_t threads) {
  const DLDataType dtype = logps.dtype(), flag = {kDLBool, 8, 1};
  if (logps.ndim() != 1 || dtype.code != kDLFloat || dtype.bits < 32 || offsets.ndim() != 1 ||
      offsets.size(0) == 0) {
    return false;
  }
  const int64_t count = logps.size(0), sequences = offsets.size(0) - 1;
  const auto per_token = [&](const TensorView& x) { return x.numel() != sequences; };
  const auto fits = [&](const Maybe& x, int64_t size, DLDataType wanted) {
    return !x.has_value() || is_plain(*x, size, wanted);
  };
  const Variant v = variant_of(variant);
  if (!is_plain(logps, count, dtype) || !is_plain(offsets, sequences + 1, {kDLInt, 64, 1}) ||
      !rise_to(data<const int64_t>(offsets), sequences, count) ||
      !is_plain(advantages, per_token(advantages) ? count : sequences, dtype) ||
      !is_plain(scale, per_token(scale) ? count : sequences, dtype) ||
      !fits(entropy, count, dtype) || !fits(old_logps, count, dtype) || !fits(ref, count, dtype) ||
      !fits(sampler, count, dtype) || !fits(weight, count, dtype) ||
      !fits(on_policy, sequences, flag) || !fits(mask, count, flag) ||
      (v.beta != 0 && !ref.has_value()) || (v.entropy_coef != 0 && !entropy.has_value())) {
    return false;
  }
  int64_t shape = 0, stride = 1;
  DLTensor absent = {};
  absent.ndim = 1;
  absent.shape = &shape;
  absent.strides = &stride;
  const auto or_nothing = [&](const Maybe& x) { return x.has_value() ? *x : TensorView(&absent); };
  policy_loss_cpu(logps, or_nothing(entropy), advantages, offsets, scale, or_nothing(old_logps),
                  or_nothing(ref), or_nothing(sampler), or_nothing(weight), or_nothing(on_policy),
                  or_nothing(mask), per_token(advantages), per_token(scale), variant, loss, coef,
                  coef_entropy, metrics, threads);
  return true;
}

// Token-level variants: a few rows at a time, so that their logits, read once, are still in the cache
// when they become their gradient. `gradient` is the logits, or fresh memory, or of size 0: no
// gradient. Returns the first row with a wrong target, and then does nothing; else -1.
int64_t policy_loss_from_logits_cpu(TensorView logits, TensorView targets, TensorView advantages,
                                    TensorView offsets, TensorView scale, TensorView old_logps,
                                    TensorView ref, TensorView sampler, TensorView weight,
                                    TensorView on_policy, TensorView mask,
                                    bool advantage_per_token, bool scale_per_token,
                                    TensorView variant, double temperature, bool with_entropy,
                                    TensorView gradient, TensorView loss, TensorView active,
                                    TensorView metrics, int64_t threads) {
  const int64_t count = targets.size(0);
  const Rows rows = rows_of(logits, "logits");
  const Float dtype = wide(rows.dtype);
  Policy policy = policy_of({advantages, offsets, scale, old_logps, ref, sampler, weight, on_policy,
                             mask, advantage_per_token, scale_per_token, variant},
                            count, dtype);
  const int64_t* target = elements<const int64_t>(targets, "targets", {count});
  check_tensor(active, "active", {count});
  bool* has_gradient = data<bool>(active);
  const int64_t wrong = wrong_target(target, policy.mask, count, rows.vocabulary);
  if (wrong >= 0) return wrong;

  const bool bonus = policy.variant.entropy_coef != 0;
  const int64_t width = dtype == Float::kDouble ? 8 : 4;
  std::vector<char> memory(6 * count * width);
  const auto part = [&](int k) { return memory.data() + k * count * width; };
  const Stats stats = {part(0), with_entropy ? part(1) : nullptr, part(2), part(3)};
  policy.logps = stats.logps;
  policy.entropy = stats.entropy;
  policy.coef = part(4);
  policy.coef_entropy = bonus ? part(5) : nullptr;
  const bool backward = gradient.numel() > 0;
  const SoftmaxForward reading = {rows, target, policy.mask, temperature, stats};
  const SoftmaxBackward writing = {rows,        backward ? rows_of(gradient, "gradient") : rows,
                                   target,      policy.coef,
                                   policy.coef_entropy, temperature,
                                   stats};
  if (backward && (writing.gradient.dtype != rows.dtype || gradient.numel() != logits.numel())) {
    TVM_FFI_THROW(ValueError) << "gradient is no tensor like the logits";
  }
  if (backward && writing.gradient.data != rows.data) {
    expect_first_touch(writing.gradient.data, gradient.numel() * gradient.dtype().bits / 8);
  }

  const LogpsKernels& softmax = logps_kernels();
  const PolicyKernels& kernels = policy_kernels();
  const int64_t at_once = std::min(rows_at_once(rows.vocabulary), kTokensAtOnce);
  // Where the gradient can hold them, the exponentials of the forward become the gradient. That of
  // the entropy needs the logits, and 16 bits would round them.
  const bool keeps = backward && policy.coef_entropy == nullptr &&
                     writing.gradient.dtype == dtype && writing.gradient.column_stride == 1;
  const int64_t blocks = (rows.vocabulary + kBlock - 1) / kBlock;
  std::vector<PolicySums> parts((count + at_once - 1) / at_once);
  Items items(static_cast<int64_t>(parts.size()), 1);
  on_threads(threads_for(2 * softmax_work(count, rows.vocabulary), threads), [&] {
    std::vector<double> bases(keeps ? at_once * blocks : 0);
    for (int64_t k, next; items.take(&k, &next);) {
      const int64_t begin = k * at_once, end = std::min(begin + at_once, count);
      if (keeps) {
        softmax.forward_keeping(reading, writing.gradient, bases.data(), begin, end);
      } else {
        softmax.forward(reading, begin, end);
      }
      kernels.tokens(policy, begin, end, &parts[k]);
      if (keeps) {
        softmax.backward_of_kept(writing, bases.data(), begin, end);
      } else if (backward) {
        softmax.backward(writing, begin, end);
      }
    }
  });
  write_sums(parts, dtype, data<void>(loss), vector_of(metrics, "metrics", 9, dtype));
  const auto nonzero = [&](const void* values, int64_t t) {
    if (values == nullptr) return false;
    return dtype == Float::kDouble ? static_cast<const double*>(values)[t] != 0
                                   : static_cast<const float*>(values)[t] != 0;
  };
  for (int64_t t = 0; t < count; ++t) {
    has_gradient[t] = nonzero(policy.coef, t) || nonzero(policy.coef_entropy, t);
  }
  return -1;
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(policy_loss_cpu, rrgkern::policy_loss_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(policy_loss_as_passed_cpu, rrgkern::policy_loss_as_passed_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(policy_loss_from_logits_cpu, rrgkern::policy_loss_from_logits_cpu)
