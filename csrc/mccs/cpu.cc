#include "mccs/mccs.h"

#include <tvm/ffi/function.h>

#include "common/tensors.h"

namespace rrgkern {

using tvm::ffi::TensorView;

template <typename T>
void check_classes(const T* ids, const char* name, int64_t rows) {
  for (int64_t i = 0; i < rows * kColumns; ++i) {
    if (valid_class(ids[i])) continue;
    TVM_FFI_THROW(ValueError) << "mccs: " << name << "[" << i / kColumns << ", " << i % kColumns
                              << "] is " << static_cast<int64_t>(ids[i])
                              << ", wanted a class id 0 (blank), 1 (positive), 2 (negative) or 3 "
                                 "(uncertain)";
  }
}

void mccs_cpu(TensorView pred, TensorView truth, double margin, double both_blank,
              TensorView reward) {
  const int64_t rows = pred.size(0);
  check_tensor(pred, "pred", {rows, kColumns});
  check_tensor(truth, "truth", {rows, kColumns});
  check_tensor(reward, "reward", {rows});
  dispatch_int(pred.dtype(), [&](auto kind) {
    using T = decltype(kind);
    const T *p = data<T>(pred), *t = data<T>(truth);
    float* out = data<float>(reward);
    check_classes(p, "pred", rows);
    check_classes(t, "truth", rows);
    for (int64_t row = 0; row < rows; ++row) {
      out[row] = mccs_row(p + row * kColumns, t + row * kColumns, margin, both_blank);
    }
  });
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(mccs_cpu, rrgkern::mccs_cpu)
