// Tensors that cross the boundary -> what the kernels take.
#pragma once

#include "common/isa.h"
#include "common/tensors.h"
#include "logps/logps.h"

namespace rrgkern {

inline Float wide(Float dtype) { return dtype == Float::kDouble ? dtype : Float::kFloat; }

inline Rows rows_of(const tvm::ffi::TensorView& logits, const char* name) {
  if (logits.ndim() != 2 && logits.ndim() != 3) {
    TVM_FFI_THROW(ValueError) << name << " has the wrong shape " << logits.shape();
  }
  const int axis = logits.ndim() - 2;
  return {data<char>(logits),
          float_dtype(logits, name),
          logits.size(axis) > 0 ? logits.size(axis) : 1,
          axis > 0 ? logits.stride(0) : 0,
          logits.stride(axis),
          logits.stride(axis + 1),
          logits.size(axis + 1)};
}

// The first row that is kept and whose target is no column; -1: there is none.
inline int64_t wrong_target(const int64_t* targets, const bool* keep, int64_t rows,
                            int64_t vocabulary) {
  for (int64_t row = 0; row < rows; ++row) {
    const bool inside = targets[row] >= 0 && targets[row] < vocabulary;
    if (!inside && (keep == nullptr || keep[row])) return row;
  }
  return -1;
}

inline const LogpsKernels& logps_kernels() { return RRGKERN_OF_THIS_CPU(logps); }

// Multiply-adds of `rows` rows: an exponential is a dozen of them.
inline double softmax_work(int64_t rows, int64_t columns) {
  return 12.0 * static_cast<double>(rows) * static_cast<double>(columns);
}

}  // namespace rrgkern
