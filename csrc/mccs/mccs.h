// Margin-based cosine of two rows of CheXbert labels (MRG-R1), the one core of CPU and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"

namespace rrgkern {

constexpr int kColumns = 14;  // a row of labels
constexpr int kScored = 13;   // "No Finding", the last column, is left out

// Class ids 0 blank, 1 positive, 2 negative, 3 uncertain stand for 0, +1, -1, +1.
RRGKERN_HD int polarity(int64_t id) { return (id & 1) - (id == 2); }

RRGKERN_HD bool valid_class(int64_t id) { return id >= 0 && id <= 3; }

// Sums of -1, 0 and 1 are exact integers; then one fixed chain of fp64 operations, rounded once.
template <typename T>
RRGKERN_HD float mccs_row(const T* pred, const T* truth, double margin, double both_blank) {
  int dot = 0, pred_square = 0, truth_square = 0;
  for (int column = 0; column < kScored; ++column) {
    const int p = polarity(pred[column]), t = polarity(truth[column]);
    dot += p * t;
    pred_square += p * p;
    truth_square += t * t;
  }
  if (pred_square == 0 && truth_square == 0) return static_cast<float>(both_blank);
  if (pred_square == 0 || truth_square == 0) return 0.0f;
  const double norms = (sqrt(static_cast<double>(pred_square)) + 1e-8) *
                       (sqrt(static_cast<double>(truth_square)) + 1e-8);
  const double above = (dot / norms - margin) / (1.0 - margin);
  return above > 0.0 ? static_cast<float>(above) : 0.0f;
}

}  // namespace rrgkern
