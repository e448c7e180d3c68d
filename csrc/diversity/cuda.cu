#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "common/tensors.h"
#include "diversity/diversity.h"

namespace rrgkern {

using tvm::ffi::TensorView;

__global__ void diversity_kernel(const uint8_t* positive, Deviations deviations, double* result,
                                 int64_t studies) {
  const int64_t size = deviations.samples * deviations.classes;
  for (int64_t s = first_item(); s < studies; s += stride()) {
    result[s] = diversity_of(positive + s * size, deviations);
  }
}

__global__ void draw_kernel(uint64_t seed, int64_t* tie, double* exponential, int64_t studies) {
  for (int64_t s = first_item(); s < studies; s += stride()) {
    const StudyDraw draw = study_draw(s, seed);
    tie[s] = draw.tie;
    exponential[s] = draw.exponential;
  }
}

__global__ void key_kernel(const double* exponential, const int64_t* rank, double* key,
                           int64_t studies) {
  for (int64_t s = first_item(); s < studies; s += stride()) {
    key[s] = race_key(exponential[s], rank[s]);
  }
}

void diagnostic_diversity_cuda(TensorView positive, TensorView factor, TensorView radical,
                               TensorView roots, TensorView result) {
  const int64_t studies = positive.size(0), samples = positive.size(1), classes = positive.size(2);
  const uint8_t* labels =
      elements<const uint8_t>(positive, "positive", {studies, samples, classes});
  const Deviations deviations = {elements<const int64_t>(factor, "factor", {samples + 1}),
                                 elements<const int64_t>(radical, "radical", {samples + 1}),
                                 elements<const double>(roots, "roots", {roots.size(0)}),
                                 samples,
                                 classes,
                                 roots.size(0)};
  double* out = elements<double>(result, "result", {studies});
  if (studies == 0) return;
  tvm::ffi::CUDADeviceGuard guard(result.device().device_id);
  diversity_kernel<<<blocks_for(studies), kThreads, 0, current_stream(result)>>>(labels, deviations,
                                                                                 out, studies);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

void rank_sample_draws_cuda(int64_t seed, TensorView tie, TensorView exponential) {
  const int64_t studies = tie.size(0);
  int64_t* ties = elements<int64_t>(tie, "tie", {studies});
  double* variates = elements<double>(exponential, "exponential", {studies});
  if (studies == 0) return;
  tvm::ffi::CUDADeviceGuard guard(tie.device().device_id);
  draw_kernel<<<blocks_for(studies), kThreads, 0, current_stream(tie)>>>(
      static_cast<uint64_t>(seed), ties, variates, studies);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

void rank_sample_keys_cuda(TensorView exponential, TensorView rank, TensorView key) {
  const int64_t studies = rank.size(0);
  const double* variates = elements<const double>(exponential, "exponential", {studies});
  const int64_t* ranks = elements<const int64_t>(rank, "rank", {studies});
  double* keys = elements<double>(key, "key", {studies});
  if (studies == 0) return;
  tvm::ffi::CUDADeviceGuard guard(rank.device().device_id);
  key_kernel<<<blocks_for(studies), kThreads, 0, current_stream(rank)>>>(variates, ranks, keys,
                                                                         studies);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(diagnostic_diversity_cuda, rrgkern::diagnostic_diversity_cuda)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rank_sample_draws_cuda, rrgkern::rank_sample_draws_cuda)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rank_sample_keys_cuda, rrgkern::rank_sample_keys_cuda)
