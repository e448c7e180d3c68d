// The preference loss: sums over the tokens of a sequence, and the pairs of sequences.
//
// Formulas are those of rrgkern/preference_loss/reference.py, sums and pairs in double. A sequence is
// one thread's: its bits depend on nothing but its tokens, and a pair's on its two sequences.
#pragma once

#include <cstdint>

#include "common/floats.h"

namespace rrgkern {

// [N] tokens of [S] sequences, float or double; `mask` may be null.
struct Preference {
  Float dtype;
  const int64_t* offsets;
  const void *logps, *ref;
  const bool* mask;
  double tau;
  bool length_normalized;
  // [S]: scored tokens (at least 1, or 1), implicit reward, and what the pairs pay a sequence.
  double *divisor, *reward, *advantage;
  void* coef;
};

struct PreferenceKernels {
  // Rewards and divisors of sequences [begin, end).
  void (*rewards)(const Preference&, int64_t begin, int64_t end);
  // Coefficients of their tokens, from `advantage`.
  void (*coefficients)(const Preference&, int64_t begin, int64_t end);
};

extern const PreferenceKernels preference_portable, preference_avx2, preference_avx512;

}  // namespace rrgkern
