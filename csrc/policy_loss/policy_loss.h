// The policy loss: what one token contributes, and the sums over a batch.
//
// Names and formulas are those of rrgkern/policy_loss/terms.py and reference.py.
#pragma once

#include <cstdint>

#include "common/floats.h"

namespace rrgkern {

// In the order of rrgkern/policy_loss/spec.py.
enum class Surrogate { kClip, kCispo, kSapo, kReinforce, kLuspo, kVespo, kGmpo };
enum class Level { kToken, kSequence, kSequenceToken };
enum class Kl { k1, k2, k3 };
enum class SamplerLevel { kToken, kSequence, kGeometric };
enum class SamplerMode { kTruncate, kMask };

struct Variant {
  Surrogate surrogate;
  Level level;
  Kl kl;
  SamplerMode sampler_mode;
  SamplerLevel sampler_level;
  bool kl_weighted;
  double beta, entropy_coef, sampler_min, sampler_max;
  // By surrogate: lower bound, upper bound, cap ("clip", "cispo", "gmpo"); temperatures for positive
  // and other advantages ("sapo"); k and lambda for advantages >= 0, then below ("vespo").
  double p[4];
};

// [N] tokens of [S] sequences. Arrays without a type are of float or double, all the same one; what
// is not given is null.
struct Policy {
  int64_t tokens, sequences;
  Float dtype;
  const int64_t* offsets;
  const void *logps, *entropy;
  const void *advantages, *scale, *old_logps, *ref, *sampler, *weight;
  const bool *on_policy, *mask;
  bool advantage_per_token, scale_per_token;
  Variant variant;
  // [S], of variants that tie the tokens of a sequence: its log-ratio, the logarithm of its sampler
  // correction, VESPO's log-weight, and the gradient that its ratio hands to each token.
  double *log_ratio, *log_correction, *log_weight, *pull;
  // [N], what each token adds to its sequence's `pull`, and, for "gmpo", which get none of it.
  void* through_ratio;
  char* clipped;
  void *coef, *coef_entropy;
};

// Sums over scored tokens; the first nine are in the order of METRICS in Python.
struct PolicySums {
  double kl = 0, below = 0, above = 0, ratio = 0, ratio_max = 0, ratio_squares = 0, entropy = 0,
         active = 0, tokens = 0, loss = 0;

  void add(const PolicySums& other) {
    kl += other.kl;
    below += other.below;
    above += other.above;
    ratio += other.ratio;
    ratio_max = ratio_max > other.ratio_max ? ratio_max : other.ratio_max;
    ratio_squares += other.ratio_squares;
    entropy += other.entropy;
    active += other.active;
    tokens += other.tokens;
    loss += other.loss;
  }
};

constexpr int64_t kTokensAtOnce = 256;
// Beyond 20 nats a ratio says only that the two policies have nothing to do with each other.
constexpr double kLogRatioLimit = 20.0;

struct PolicyKernels {
  // Writes coef and coef_entropy of tokens [begin, end), at most kTokensAtOnce, and adds their sums.
  void (*tokens)(const Policy&, int64_t begin, int64_t end, PolicySums*);
  // At the level of sequences: adds `pull` to the coef of tokens, and counts those that are active.
  void (*pull)(const Policy&, int64_t begin, int64_t end, PolicySums*);
};

extern const PolicyKernels policy_portable, policy_avx2, policy_avx512;

}  // namespace rrgkern
