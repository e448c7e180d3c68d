// Tensors that cross the boundary -> what the kernels take. A tensor of size 0 is absent.
#pragma once

#include <cmath>
#include <vector>

#include "common/isa.h"
#include "common/tensors.h"
#include "policy_loss/policy_loss.h"

namespace rrgkern {

// What `packed_variant` in rrgkern/policy_loss/csrc_launch.py writes.
inline Variant variant_of(const tvm::ffi::TensorView& numbers) {
  const double* v = elements<const double>(numbers, "variant", {14});
  return {static_cast<Surrogate>(static_cast<int>(v[0])),
          static_cast<Level>(static_cast<int>(v[1])),
          static_cast<Kl>(static_cast<int>(v[2])),
          static_cast<SamplerMode>(static_cast<int>(v[3])),
          static_cast<SamplerLevel>(static_cast<int>(v[4])),
          v[5] != 0,
          v[6],
          v[7],
          v[8],
          v[9],
          {v[10], v[11], v[12], v[13]}};
}

struct PolicyTensors {
  tvm::ffi::TensorView advantages, offsets, scale, old_logps, ref, sampler, weight, on_policy, mask;
  bool advantage_per_token, scale_per_token;
  tvm::ffi::TensorView variant;
};

// All but log-probabilities, entropy and results.
inline Policy policy_of(const PolicyTensors& x, int64_t tokens, Float dtype) {
  Policy policy = {};
  const int64_t sequences = x.offsets.size(0) - 1;
  policy.tokens = tokens;
  policy.sequences = sequences;
  policy.dtype = dtype;
  policy.offsets = elements<const int64_t>(x.offsets, "offsets", {sequences + 1});
  if (!rise_to(policy.offsets, sequences, tokens)) {
    TVM_FFI_THROW(ValueError) << "offsets do not rise from 0 to " << tokens;
  }
  policy.advantages = vector_of(x.advantages, "advantages",
                                x.advantage_per_token ? tokens : sequences, dtype);
  policy.scale = vector_of(x.scale, "scale", x.scale_per_token ? tokens : sequences, dtype);
  policy.old_logps = vector_of(x.old_logps, "old", tokens, dtype);
  policy.ref = vector_of(x.ref, "ref", tokens, dtype);
  policy.sampler = vector_of(x.sampler, "sampler", tokens, dtype);
  policy.weight = vector_of(x.weight, "weight", tokens, dtype);
  policy.on_policy = flags_of(x.on_policy, "on_policy", sequences);
  policy.mask = flags_of(x.mask, "mask", tokens);
  policy.advantage_per_token = x.advantage_per_token;
  policy.scale_per_token = x.scale_per_token;
  policy.variant = variant_of(x.variant);
  return policy;
}

inline const PolicyKernels& policy_kernels() { return RRGKERN_OF_THIS_CPU(policy); }

// Loss 0-d and metrics [9] from the sums of parts of a batch, added in their order.
inline void write_sums(const std::vector<PolicySums>& parts, Float dtype, void* loss,
                       void* metrics) {
  PolicySums s;
  for (const PolicySums& part : parts) s.add(part);
  const double some = s.tokens > 1 ? s.tokens : 1;
  // The maximum of lanes passes a NaN over; the sum shows it.
  const double largest = s.ratio == s.ratio ? s.ratio_max : NAN;
  const double values[] = {s.kl / some,
                           s.below / some,
                           s.above / some,
                           s.ratio / some,
                           largest,
                           s.ratio * s.ratio / (some * (s.tokens > 0 ? s.ratio_squares : 1.0)),
                           s.entropy / some,
                           s.active,
                           s.tokens,
                           s.loss};
  for (int i = 0; i < 10; ++i) {
    void* to = i < 9 ? metrics : loss;
    const int at = i < 9 ? i : 0;
    if (dtype == Float::kDouble) {
      static_cast<double*>(to)[at] = values[i];
    } else {
      static_cast<float*>(to)[at] = static_cast<float>(values[i]);
    }
  }
}

}  // namespace rrgkern
