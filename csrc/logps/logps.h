// Rows of logits: the sums of a softmax, what follows from them, and the gradient.
//
// The target stays out of the sums, so nothing cancels where the softmax has collapsed on it;
// rrgkern/logps/online_softmax.py derives the formulas. A row is one thread's: its bits depend on
// nothing but the row.
#pragma once

#include <cstdint>

#include "common/floats.h"

namespace rrgkern {

// Logits [B, L, V] with any strides, in elements; row r is row r % L of batch r / L.
struct Rows {
  char* data;
  Float dtype;
  int64_t rows_per_batch, batch_stride, row_stride, column_stride, vocabulary;
};

// [N] each, float, or double for logits in double; entropy is null where it is not asked for.
struct Stats {
  void *logps, *entropy, *shift, *lognorm;
};

// Columns handled at a time: in the first-level cache with the next ones, which are fetched meanwhile.
constexpr int64_t kBlock = 2048;

struct SoftmaxForward {
  Rows logits;
  const int64_t* targets;
  const bool* keep;  // null: every row; the statistics of the others are 0
  double temperature;
  Stats stats;
};

struct SoftmaxBackward {
  Rows logits, gradient;  // the same memory, or none in common
  const int64_t* targets;
  const void *coef, *coef_entropy;  // [N]; coef_entropy may be null
  double temperature;
  Stats stats;
};

// Sums over the columns of a row that were seen so far, all rows in [N]: as `RowSums` in Python.
struct Sums {
  double *max, *sumexp, *weighted;
  void* target_logit;
};

// Products [R, C] of a head, contiguous, float or double; columns of the vocabulary from `first`.
struct Tile {
  void* z;
  Float dtype;
  int64_t columns, first;
  const int64_t* targets;
  double temperature;
};

// One of each instruction set. Rows are [begin, end).
struct LogpsKernels {
  void (*forward)(const SoftmaxForward&, int64_t begin, int64_t end);
  void (*backward)(const SoftmaxBackward&, int64_t begin, int64_t end);
  // The same for float and double, the forward leaving in the gradient, which may be the logits,
  // exp((z - base) / T) of each column and 0 at the target, and in `bases` the base of each block.
  // The entropy's gradient cannot be made of them.
  void (*forward_keeping)(const SoftmaxForward&, const Rows& gradient, void* bases, int64_t begin,
                          int64_t end);
  void (*backward_of_kept)(const SoftmaxBackward&, void* bases, int64_t begin, int64_t end);
  void (*add_tile)(const Tile&, const Sums&, bool entropy, int64_t begin, int64_t end);
  // Leaves exp((z - max) / T) in the tile, `max` with this tile, and the factor of earlier ones.
  void (*exponentials)(const Tile&, const Sums&, bool entropy, void* decay, int64_t begin, int64_t end);
  void (*tile_gradient)(const Tile&, const SoftmaxBackward&, int64_t begin, int64_t end);
  // Multiplies the rows marked `active` by the factor.
  void (*scale)(const Rows&, const bool* active, double factor, int64_t begin, int64_t end);
};

extern const LogpsKernels logps_portable, logps_avx2, logps_avx512;

// Rows that a thread takes at once: enough to be worth the hand-over, few enough to share.
inline int64_t rows_at_once(int64_t vocabulary) {
  const int64_t rows = (1 << 16) / (vocabulary < 1 ? 1 : vocabulary);
  return rows < 1 ? 1 : rows;
}

}  // namespace rrgkern
