// Tokens of the policy loss, compiled once for each instruction set.
#include "policy_loss/policy_loss.h"

#include "common/simd.h"

namespace rrgkern {
namespace RRGKERN_ISA {
namespace {

template <typename T>
struct Constants {
  explicit Constants(const Variant& v)
      : beta(static_cast<T>(v.beta)),
        entropy_coef(static_cast<T>(v.entropy_coef)),
        lowest(static_cast<T>(v.sampler_min)),
        highest(static_cast<T>(v.sampler_max)) {
    for (int i = 0; i < 4; ++i) p[i] = static_cast<T>(v.p[i]);
  }
  T beta, entropy_coef, lowest, highest, p[4];
};

// A run of tokens in arrays of their own: 0 where nothing is kept, selected and never multiplied, so
// that a NaN at a masked position vanishes.
template <typename T>
struct Tokens {
  static constexpr int64_t kRoom = kTokensAtOnce;
  using Int = typename IntOf<T>::type;
  alignas(64) Int keep[kRoom], injected[kRoom];
  alignas(64) T logps[kRoom], old_logps[kRoom], ref[kRoom], sampler[kRoom], advantage[kRoom],
      weight[kRoom], scale[kRoom], entropy[kRoom], log_ratio[kRoom], log_correction[kRoom],
      log_weight[kRoom];
  int64_t count, room;

  Tokens(const Policy& policy, int64_t begin, int64_t end)
      : count(end - begin), room((count + kLanes<T> - 1) / kLanes<T> * kLanes<T>) {
    for (int64_t i = 0; i < room; ++i) {
      keep[i] = i < count && (policy.mask == nullptr || policy.mask[begin + i]) ? -1 : 0;
      injected[i] = 0;
    }
    take(policy.logps, begin, logps);
    if (policy.old_logps != nullptr) take(policy.old_logps, begin, old_logps);
    if (policy.ref != nullptr) take(policy.ref, begin, ref);
    if (policy.sampler != nullptr) take(policy.sampler, begin, sampler);
    if (policy.weight != nullptr) take(policy.weight, begin, weight);
    if (policy.entropy != nullptr) take(policy.entropy, begin, entropy);
    if (policy.advantage_per_token) take(policy.advantages, begin, advantage);
    if (policy.scale_per_token) take(policy.scale, begin, scale);
    spread(policy, begin, end);
  }

  Mask<T> mask_at(const Int* values, int64_t i) const {
    Mask<T> m;
    memcpy(&m, values + i, sizeof m);
    return m;
  }

 private:
  void take(const void* values, int64_t begin, T* out) {
    memcpy(out, static_cast<const T*>(values) + begin, count * sizeof(T));
    for (int64_t i = count; i < room; ++i) out[i] = 0;
    for (int64_t i = 0; i < room; i += kLanes<T>) {
      store(out + i, choose(mask_at(keep, i), load(out + i), Vector<T>{}));
    }
  }

  // Hands what a sequence has to its tokens.
  void spread(const Policy& policy, int64_t begin, int64_t end) {
    int64_t s = 0, beyond = policy.sequences;
    while (beyond - s > 1) {  // the last sequence that begins at or before `begin`
      const int64_t middle = s + (beyond - s) / 2;
      if (policy.offsets[middle] <= begin) s = middle; else beyond = middle;
    }
    for (int64_t t = begin; t < end; ++s) {
      const int64_t stop = policy.offsets[s + 1] < end ? policy.offsets[s + 1] : end;
      const int64_t first = t - begin, last = stop - begin;
      const auto fill = [&](T* out, T value) {
        for (int64_t i = first; i < last; ++i) out[i] = keep[i] ? value : T(0);
      };
      if (!policy.advantage_per_token) fill(advantage, static_cast<const T*>(policy.advantages)[s]);
      if (!policy.scale_per_token) fill(scale, static_cast<const T*>(policy.scale)[s]);
      if (policy.log_ratio != nullptr) fill(log_ratio, static_cast<T>(policy.log_ratio[s]));
      if (policy.log_correction != nullptr) {
        fill(log_correction, static_cast<T>(policy.log_correction[s]));
      }
      if (policy.log_weight != nullptr) fill(log_weight, static_cast<T>(policy.log_weight[s]));
      if (policy.on_policy != nullptr && policy.on_policy[s]) {
        for (int64_t i = first; i < last; ++i) injected[i] = -1;
      }
      if (stop > t) t = stop;
    }
    for (int64_t i = count; i < room; ++i) {
      advantage[i] = scale[i] = log_ratio[i] = log_correction[i] = log_weight[i] = 0;
    }
  }
};

// left - right, and 0 where both are the same infinity; NaN stays NaN.
template <typename V>
RRGKERN_INLINE V difference(V left, V right) {
  return left == right ? V{} : left - right;
}

template <typename T>
RRGKERN_INLINE Vector<T> limited(Vector<T> x) {
  const Vector<T> limit = all<T>(T(kLogRatioLimit));
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}

template <typename T>
RRGKERN_INLINE Mask<T> beyond_limit(Vector<T> x) {
  const Vector<T> limit = all<T>(T(kLogRatioLimit));
  return (x > limit) | (x < -limit);
}

// The surrogate of a token: its loss, its slopes by the ratio and by logp at a fixed ratio, and where
// the clip removed the gradient.
template <typename T>
struct Slopes {
  Vector<T> loss{}, by_ratio{}, by_logp{};
  Mask<T> below{}, above{};
};

template <typename T>
RRGKERN_INLINE Slopes<T> surrogate(const Variant& variant, const Constants<T>& c, Vector<T> ratio,
                                   Vector<T> advantage, Vector<T> logps, Vector<T> log_weight) {
  const Vector<T> zero{}, a = all<T>(c.p[0]), b = all<T>(c.p[1]);
  Slopes<T> s;
  Vector<T> factor = advantage;
  switch (variant.surrogate) {
    case Surrogate::kClip:
    case Surrogate::kLuspo: {
      const Vector<T> cap = all<T>(c.p[2]);
      s.below = (advantage < zero) & (ratio < a);
      s.above = (advantage > zero) & (ratio > b);
      const Mask<T> capped = (advantage < zero) & (ratio > cap);
      const Vector<T> used =
          choose(s.below, a, choose(s.above, b, choose(capped, cap, ratio)));
      s.above |= capped;
      s.loss = -used * advantage;
      s.by_ratio = choose(s.below | s.above, zero, -advantage);
      return s;
    }
    case Surrogate::kGmpo:
      s.below = (advantage < zero) & (log_weight < a);
      s.above = (advantage > zero) & (log_weight > b);
      s.loss = -ratio * advantage;
      s.by_ratio = -advantage;
      return s;
    case Surrogate::kSapo: {
      const Vector<T> tau = advantage > zero ? a : b, x = tau * (ratio - T(1));
      const Vector<T> e = exp_of<T>(x < zero ? x : -x);
      const Vector<T> large = T(1) / (e + T(1)), small = e / (e + T(1));
      const Vector<T> gate = x < zero ? small : large, rest = x < zero ? large : small;
      s.loss = -advantage * gate * T(4) / tau;
      s.by_ratio = -advantage * T(4) * gate * rest;
      return s;
    }
    case Surrogate::kCispo: {
      s.below = (advantage != zero) & (ratio < a);
      s.above = (advantage != zero) & (ratio > b);
      const Vector<T> held = ratio < a ? a : ratio;
      factor = advantage * (held > b ? b : held);
      break;
    }
    case Surrogate::kVespo: {
      const Mask<T> up = advantage >= zero;
      const Vector<T> k = choose(up, a, all<T>(c.p[2])), lambda = choose(up, b, all<T>(c.p[3]));
      factor = advantage * exp_of<T>(lambda + k * log_weight - lambda * exp_of<T>(log_weight));
      break;
    }
    case Surrogate::kReinforce: break;
  }
  s.by_logp = -factor;
  // A log-probability of -inf times an advantage of 0 is 0.
  s.loss = -factor * (factor == zero ? zero : logps);
  return s;
}

template <typename T>
RRGKERN_INLINE Vector<T> correction_factor(const Variant& variant, const Constants<T>& c,
                                           Vector<T> log, Mask<T> injected) {
  Vector<T> factor = exp_of<T>(limited<T>(log));
  const Vector<T> low = all<T>(c.lowest), high = all<T>(c.highest);
  if (variant.sampler_mode == SamplerMode::kTruncate) {
    factor = factor < low ? low : factor;
    factor = factor > high ? high : factor;
  } else {
    factor = choose((factor < low) | (factor > high), Vector<T>{}, factor);
  }
  return choose(injected, all<T>(T(1)), factor);
}

template <typename T>
RRGKERN_INLINE void kl_estimate(Kl estimator, Vector<T> log, Vector<T>* kl, Vector<T>* slope) {
  const Vector<T> x = limited<T>(log);
  switch (estimator) {
    case Kl::k1:
      *kl = -x;
      *slope = all<T>(T(1));
      break;
    case Kl::k2:
      *kl = x * x * T(0.5);
      *slope = -x;
      break;
    case Kl::k3: {
      Vector<T> rise{};
      exp_beyond_linear<T>(x, &rise, kl);
      *slope = -rise;
      break;
    }
  }
  *slope = choose(beyond_limit<T>(log), Vector<T>{}, *slope);
}

// Sums in double of values that are 0 in lanes that do not count.
template <typename T>
struct VectorSums {
  Vector<double> kl{}, below{}, above{}, ratio{}, ratio_squares{}, entropy{}, active{}, loss{},
      tokens{};
  Vector<T> ratio_max{};

  static void count(Vector<double>* sum, Mask<T> where) {
    add_wide(sum, choose(where, all<T>(T(1)), Vector<T>{}));
  }

  void add_to(PolicySums* sums) const {
    const auto sum = [](Vector<double> lanes) { return sum_of_lanes<double>(lanes); };
    sums->add({sum(kl), sum(below), sum(above), sum(ratio), largest_lane<T>(ratio_max),
               sum(ratio_squares), sum(entropy), sum(active), sum(tokens), sum(loss)});
  }
};

// Writes the lanes of a vector that hold tokens.
template <typename T>
RRGKERN_INLINE void write(void* values, int64_t begin, int64_t i, int64_t count, Vector<T> v) {
  T lanes[kLanes<T>];
  store(lanes, v);
  const int64_t width = count - i < kLanes<T> ? count - i : kLanes<T>;
  memcpy(static_cast<T*>(values) + begin + i, lanes, width * sizeof(T));
}

template <typename T>
void tokens_of(const Policy& policy, int64_t begin, int64_t end, PolicySums* out) {
  const Variant& variant = policy.variant;
  const Constants<T> c(variant);
  Tokens<T> tokens(policy, begin, end);
  VectorSums<T> sums;
  const Vector<T> zero{}, one = all<T>(T(1));
  const bool by_sequence = variant.level == Level::kSequence;
  for (int64_t i = 0; i < tokens.room; i += kLanes<T>) {
    const Mask<T> keep = tokens.mask_at(tokens.keep, i);
    const Mask<T> injected = tokens.mask_at(tokens.injected, i);
    const Vector<T> logps = load(tokens.logps + i), scale = load(tokens.scale + i);
    Vector<T> advantage = load(tokens.advantage + i);
    if (policy.weight != nullptr) advantage *= load(tokens.weight + i);

    // 1. The ratio. An on-policy sequence behaves as if the policy itself had sampled it.
    Vector<T> behaviour = logps;
    if (policy.old_logps != nullptr) behaviour = choose(injected, logps, load(tokens.old_logps + i));
    Vector<T> log_ratio = difference(logps, behaviour), log_weight = log_ratio;
    if (variant.level != Level::kToken) {
      log_ratio = choose(injected, log_ratio, load(tokens.log_ratio + i));
    }
    Vector<T> ratio = one;
    if (policy.old_logps != nullptr || variant.level != Level::kToken) {
      ratio = exp_of<T>(limited<T>(log_ratio));
    } else {
      ratio += log_ratio;  // 0, or NaN
    }
    if (variant.level == Level::kSequenceToken) ratio += difference(logps, logps);

    // 2. The surrogate, and the correction for the rollout engine.
    if (variant.surrogate == Surrogate::kVespo) log_weight = load(tokens.log_weight + i);
    Slopes<T> s = surrogate<T>(variant, c, ratio, advantage, logps, log_weight);
    if (policy.sampler != nullptr && variant.surrogate != Surrogate::kVespo) {
      Vector<T> log = difference(behaviour, load(tokens.sampler + i));
      // NaN: the engine has no value for this token. An on-policy sequence never went through it.
      log = choose((log != log) | injected | ~keep, zero, log);
      if (variant.sampler_level != SamplerLevel::kToken) log = load(tokens.log_correction + i);
      const Vector<T> factor = correction_factor<T>(variant, c, log, injected);
      s.loss *= factor;
      s.by_ratio *= factor;
      s.by_logp *= factor;
    }

    // 3. The divergence from the reference, and the entropy bonus.
    if (policy.ref != nullptr) {
      Vector<T> kl{}, slope{};
      kl_estimate<T>(variant.kl, difference(load(tokens.ref + i), logps), &kl, &slope);
      kl = choose(keep, kl, zero);
      add_wide(&sums.kl, kl);
      if (variant.beta != 0) {
        if (variant.kl_weighted) {
          s.loss += c.beta * kl * ratio;
          s.by_ratio += c.beta * kl;
          s.by_logp += c.beta * slope * ratio;
        } else {
          s.loss += c.beta * kl;
          s.by_logp += c.beta * slope;
        }
      }
    }
    if (policy.entropy != nullptr) {
      const Vector<T> entropy = load(tokens.entropy + i);
      add_wide(&sums.entropy, entropy);
      if (variant.entropy_coef != 0) s.loss -= c.entropy_coef * entropy;
    }

    // 4. The gradient. One ratio for a sequence ties its tokens: what goes through it waits.
    Vector<T> moves = ratio;
    if (variant.level != Level::kSequenceToken) {
      moves = choose(beyond_limit<T>(log_ratio), zero, ratio);
    }
    const Vector<T> through = scale * s.by_ratio * moves;
    Vector<T> coef = scale * s.by_logp;
    if (by_sequence) {
      write<T>(policy.through_ratio, begin, i, tokens.count,
               choose(keep & ~injected, through, zero));
      coef += choose(injected, through, zero);
    } else {
      coef += through;
    }
    coef = choose(keep, coef, zero);
    write<T>(policy.coef, begin, i, tokens.count, coef);
    if (policy.coef_entropy != nullptr) {
      write<T>(policy.coef_entropy, begin, i, tokens.count,
               choose(keep, -c.entropy_coef * scale, zero));
    }

    // 5. The sums.
    ratio = choose(keep, ratio, zero);
    add_wide(&sums.ratio, ratio);
    add_wide(&sums.ratio_squares, ratio * ratio);
    sums.ratio_max = larger(ratio, sums.ratio_max);
    add_wide(&sums.loss, choose(keep, scale * s.loss, zero));
    VectorSums<T>::count(&sums.below, s.below & keep);
    VectorSums<T>::count(&sums.above, s.above & keep);
    VectorSums<T>::count(&sums.tokens, keep);
    if (!by_sequence) VectorSums<T>::count(&sums.active, coef != zero);
  }
  sums.add_to(out);
}

template <typename T>
void pull_of(const Policy& policy, int64_t begin, int64_t end, PolicySums* out) {
  T* coef = static_cast<T*>(policy.coef);
  for (int64_t s = begin; s < end; ++s) {
    const bool injected = policy.on_policy != nullptr && policy.on_policy[s];
    const T pull = injected ? T(0) : static_cast<T>(policy.pull[s]);
    for (int64_t t = policy.offsets[s]; t < policy.offsets[s + 1]; ++t) {
      if ((policy.mask == nullptr || policy.mask[t]) && !policy.clipped[t]) coef[t] += pull;
      out->active += coef[t] != 0;
    }
  }
}

void tokens(const Policy& policy, int64_t begin, int64_t end, PolicySums* sums) {
  (policy.dtype == Float::kDouble ? tokens_of<double> : tokens_of<float>)(policy, begin, end, sums);
}

void pull(const Policy& policy, int64_t begin, int64_t end, PolicySums* sums) {
  (policy.dtype == Float::kDouble ? pull_of<double> : pull_of<float>)(policy, begin, end, sums);
}

}  // namespace
}  // namespace RRGKERN_ISA

#define RRGKERN_JOIN(left, right) left##right
#define RRGKERN_NAME(left, right) RRGKERN_JOIN(left, right)
extern const PolicyKernels RRGKERN_NAME(policy_, RRGKERN_ISA) = {RRGKERN_ISA::tokens,
                                                                 RRGKERN_ISA::pull};

}  // namespace rrgkern
