// Diagnostic diversity (DEER eq. 3 and 4) and the keys of a draw by rank (eq. 5): the core of CPU
// and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"
#include "common/philox.h"

namespace rrgkern {

// n of K samples positive deviate by sqrt(n (K - n)) / K = factor[n] * roots[radical[n]] / K, the
// roots being of different numbers without a square in them.
struct Deviations {
  const int64_t* factor;   // [K+1]
  const int64_t* radical;  // [K+1]
  const double* roots;     // [B]
  int64_t samples, classes, radicals;
};

// Sum of the standard deviations of one study, [samples, classes]. The factors of each root are
// added as integers first: studies that are equally diverse get the same number, whatever the
// classes.
RRGKERN_HD double diversity_of(const uint8_t* positive, const Deviations& d) {
  double total = 0.0;
  for (int64_t b = 0; b < d.radicals; ++b) {
    int64_t factor = 0;
    for (int64_t c = 0; c < d.classes; ++c) {
      int64_t count = 0;
      for (int64_t k = 0; k < d.samples; ++k) count += positive[k * d.classes + c];
      if (d.radical[count] == b) factor += d.factor[count];
    }
    total += static_cast<double>(factor) * d.roots[b];
  }
  return total / static_cast<double>(d.samples);
}

// The natural logarithm of a positive number from basic operations alone: no two libraries agree on
// its last bit. With m in [sqrt 1/2, sqrt 2): ln m = 2 artanh s = 2 s (1 + s^2/3 + s^4/5 + ...),
// s = (m - 1) / (m + 1); eleven terms leave less than 1e-18 of it.
RRGKERN_HD double plain_log(double value) {
  int exponent = 0;
  double m = frexp(value, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), square = s * s;
  double tail = 0.0;
  for (int odd = 23; odd > 1; odd -= 2) tail = (tail + 1.0 / odd) * square;
  return static_cast<double>(exponent) * 0.69314718055994531 + 2.0 * s * (1.0 + tail);
}

// What study `index` draws: 63 bits that order equals, and an exponential variate.
struct StudyDraw {
  int64_t tie;
  double exponential;
};

RRGKERN_HD StudyDraw study_draw(int64_t index, uint64_t seed) {
  const uint64_t counter = static_cast<uint64_t>(index);
  const PhiloxWords words =
      philox(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0, seed);
  const uint64_t first = words.word[0] | static_cast<uint64_t>(words.word[1]) << 32;
  const uint64_t second = words.word[2] | static_cast<uint64_t>(words.word[3]) << 32;
  // An odd multiple of 2^-53: exact, and neither 0 nor 1.
  const double uniform = static_cast<double>(2 * (second >> 12) + 1) * (1.0 / 9007199254740992.0);
  return {static_cast<int64_t>(first >> 1), -plain_log(uniform)};
}

// The smallest of these are drawn: an exponential race is a draw without replacement with
// probability proportional to 1 / ln(rank + 1).
RRGKERN_HD double race_key(double exponential, int64_t rank) {
  return exponential * plain_log(static_cast<double>(rank + 1));
}

}  // namespace rrgkern
