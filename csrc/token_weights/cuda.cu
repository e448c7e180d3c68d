#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "common/tensors.h"
#include "token_weights/token_weights.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// A thread counts its token through the reports of its group: a few hundred ids each, in L2.
__global__ void tfidf_weights_kernel(const int64_t* ids, int64_t tokens, const int64_t* offsets,
                                     int64_t reports, const int64_t* group_offsets, int64_t groups,
                                     const double* logs, double alpha, float* weights) {
  for (int64_t t = first_item(); t < tokens; t += stride()) {
    const int64_t own = part_of(offsets, reports, t);
    const int64_t group = part_of(group_offsets, groups, own);
    int64_t count = 0, frequency = 0;
    for (int64_t s = group_offsets[group]; s < group_offsets[group + 1]; ++s) {
      int64_t found = 0;
      for (int64_t u = offsets[s]; u < offsets[s + 1]; ++u) found += ids[u] == ids[t];
      frequency += found > 0;
      if (s == own) count = found;
    }
    weights[t] = tfidf_weight(count, offsets[own + 1] - offsets[own],
                              logs[group_offsets[group + 1] - group_offsets[group]],
                              logs[frequency], alpha);
  }
}

__global__ void span_max_kernel(const float* saliency, const int32_t* piece_spans,
                                const int64_t* piece_offsets, const int32_t* token_spans,
                                const int64_t* token_offsets, int64_t tokens, int64_t reports,
                                float* result) {
  for (int64_t t = first_item(); t < tokens; t += stride()) {
    const int64_t s = part_of(token_offsets, reports, t);
    result[t] = span_max(saliency, piece_spans, piece_offsets[s], piece_offsets[s + 1],
                         token_spans[2 * t], token_spans[2 * t + 1]);
  }
}

// A report is one thread's: every span depends on the bytes before it.
__global__ void byte_level_spans_kernel(const int64_t* ids, const int64_t* offsets, int64_t reports,
                                        const uint8_t* bytes, const int64_t* bounds,
                                        int32_t* spans) {
  for (int64_t s = first_item(); s < reports; s += stride()) {
    byte_level_spans(ids + offsets[s], offsets[s + 1] - offsets[s], bytes, bounds,
                     spans + 2 * offsets[s]);
  }
}

void tfidf_weights_cuda(TensorView token_ids, TensorView offsets, TensorView group_offsets,
                        TensorView logs, double alpha, TensorView weights) {
  const int64_t tokens = token_ids.size(0), reports = offsets.size(0) - 1;
  const int64_t groups = group_offsets.size(0) - 1;
  if (tokens == 0) return;
  tvm::ffi::CUDADeviceGuard guard(token_ids.device().device_id);
  tfidf_weights_kernel<<<blocks_for(tokens), kThreads, 0, current_stream(token_ids)>>>(
      elements<const int64_t>(token_ids, "token_ids", {tokens}), tokens,
      elements<const int64_t>(offsets, "offsets", {reports + 1}), reports,
      elements<const int64_t>(group_offsets, "group_offsets", {groups + 1}), groups,
      elements<const double>(logs, "logs", {reports + 1}), alpha,
      elements<float>(weights, "weights", {tokens}));
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

void span_max_cuda(TensorView saliency, TensorView piece_spans, TensorView piece_offsets,
                   TensorView token_spans, TensorView token_offsets, TensorView result) {
  const int64_t pieces = saliency.size(0), tokens = token_spans.size(0);
  const int64_t reports = token_offsets.size(0) - 1;
  if (tokens == 0) return;
  tvm::ffi::CUDADeviceGuard guard(saliency.device().device_id);
  span_max_kernel<<<blocks_for(tokens), kThreads, 0, current_stream(saliency)>>>(
      elements<const float>(saliency, "saliency", {pieces}),
      elements<const int32_t>(piece_spans, "piece_spans", {pieces, 2}),
      elements<const int64_t>(piece_offsets, "piece_offsets", {reports + 1}),
      elements<const int32_t>(token_spans, "token_spans", {tokens, 2}),
      elements<const int64_t>(token_offsets, "token_offsets", {reports + 1}), tokens, reports,
      elements<float>(result, "result", {tokens}));
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

void byte_level_spans_cuda(TensorView token_ids, TensorView offsets, TensorView vocabulary_bytes,
                           TensorView vocabulary_offsets, TensorView spans) {
  const int64_t tokens = token_ids.size(0), reports = offsets.size(0) - 1;
  const int64_t size = vocabulary_bytes.size(0), words = vocabulary_offsets.size(0) - 1;
  if (reports == 0) return;
  tvm::ffi::CUDADeviceGuard guard(token_ids.device().device_id);
  byte_level_spans_kernel<<<blocks_for(reports), kThreads, 0, current_stream(token_ids)>>>(
      elements<const int64_t>(token_ids, "token_ids", {tokens}),
      elements<const int64_t>(offsets, "offsets", {reports + 1}), reports,
      elements<const uint8_t>(vocabulary_bytes, "vocabulary_bytes", {size}),
      elements<const int64_t>(vocabulary_offsets, "vocabulary_offsets", {words + 1}),
      elements<int32_t>(spans, "spans", {tokens, 2}));
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(tfidf_weights_cuda, rrgkern::tfidf_weights_cuda)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(span_max_cuda, rrgkern::span_max_cuda)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(byte_level_spans_cuda, rrgkern::byte_level_spans_cuda)
