#include <tvm/ffi/function.h>

#include <cassert>

#include "common/cuda.h"
#include "common/tensors.h"
#include "mccs/mccs.h"

namespace rrgkern {

using tvm::ffi::TensorView;

template <typename T>
__global__ void mccs_kernel(const T* pred, const T* truth, double margin, double both_blank,
                            float* reward, int64_t rows) {
  for (int64_t row = first_item(); row < rows; row += stride()) {
    const T *p = pred + row * kColumns, *t = truth + row * kColumns;
    for (int column = 0; column < kColumns; ++column) {
      assert(valid_class(p[column]) && "mccs: a class id of pred is outside 0..3");
      assert(valid_class(t[column]) && "mccs: a class id of truth is outside 0..3");
    }
    reward[row] = mccs_row(p, t, margin, both_blank);
  }
}

void mccs_cuda(TensorView pred, TensorView truth, double margin, double both_blank,
               TensorView reward) {
  const int64_t rows = pred.size(0);
  check_tensor(pred, "pred", {rows, kColumns});
  check_tensor(truth, "truth", {rows, kColumns});
  check_tensor(reward, "reward", {rows});
  if (rows == 0) return;
  tvm::ffi::CUDADeviceGuard guard(reward.device().device_id);
  dispatch_int(pred.dtype(), [&](auto kind) {
    using T = decltype(kind);
    mccs_kernel<T><<<blocks_for(rows), kThreads, 0, current_stream(reward)>>>(
        data<T>(pred), data<T>(truth), margin, both_blank, data<float>(reward), rows);
  });
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(mccs_cuda, rrgkern::mccs_cuda)
