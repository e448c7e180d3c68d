#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "edit_plan/arguments.h"
#include "entity_match/cosine.h"

namespace rrgkern {

using tvm::ffi::TensorView;

__device__ const float* embedding_of(const SentenceRows& x, const SentenceRows& y, int64_t report,
                                     int64_t e, int64_t width) {
  const int64_t x_count = x.entity_offsets[report + 1] - x.entity_offsets[report];
  const SentenceRows& side = e < x_count ? x : y;
  const int64_t row = side.entity_offsets[report] + (e < x_count ? e : e - x_count);
  return side.presence[row] >= 0 ? side.embedding + row * width : nullptr;
}

// The block fills the cosines, a warp each; the rules are a few thousand integer steps that
// depend on each other, left to one thread.
__global__ void edit_plan_kernel(SentenceRows x, SentenceRows y, const int64_t* seeds,
                                 EditOptions options, Workspace space, Scripts out,
                                 int64_t width) {
  const int64_t lane = threadIdx.x % kLanes, warps = blockDim.x / kLanes;
  for (int64_t r = blockIdx.x; r < out.reports; r += gridDim.x) {
    float* matrix = space.cosines_of(r);
    const int64_t count = x.entity_offsets[r + 1] - x.entity_offsets[r] +
                          y.entity_offsets[r + 1] - y.entity_offsets[r];
    for (int64_t pair = threadIdx.x / kLanes; pair < count * count; pair += warps) {
      const int64_t e = pair / count, u = pair % count;
      if (u < e) continue;
      const float *a = embedding_of(x, y, r, e, width), *b = embedding_of(x, y, r, u, width);
      if (a == nullptr || b == nullptr) continue;
      const float value = warp_cosine(a, b, width);
      if (lane == 0) matrix[e * count + u] = matrix[u * count + e] = value;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      EditedPair edited(x, y, r, matrix, space.state_of(x, y, r), space.flags_of(x, y, r), options);
      out.count[r] = edited.plan(static_cast<uint64_t>(seeds[r]), out.row(r));
    }
  }
}

void edit_plan_cuda(TensorView x_sentence_offsets, TensorView x_sentence_key,
                    TensorView x_entity_offsets, TensorView x_entity_sentence,
                    TensorView x_presence, TensorView x_key, TensorView x_embedding,
                    TensorView y_sentence_offsets, TensorView y_sentence_key,
                    TensorView y_entity_offsets, TensorView y_entity_sentence,
                    TensorView y_presence, TensorView y_key, TensorView y_embedding,
                    TensorView seeds, double tau, double tau_replace, int64_t max_edits,
                    bool conflict_requires_spurious, TensorView cosine_offsets, TensorView cosines,
                    TensorView state, TensorView flags, TensorView rule, TensorView sentence,
                    TensorView reference, TensorView count) {
  const int64_t reports = seeds.size(0), width = x_embedding.size(1);
  const SentenceRows x =
      sentence_rows(x_sentence_offsets, x_sentence_key, x_entity_offsets, x_entity_sentence,
                    x_presence, x_key, x_embedding, reports, width);
  const SentenceRows y =
      sentence_rows(y_sentence_offsets, y_sentence_key, y_entity_offsets, y_entity_sentence,
                    y_presence, y_key, y_embedding, reports, width);
  const EditOptions options = {static_cast<float>(tau), static_cast<float>(tau_replace), max_edits,
                               conflict_requires_spurious};
  const Workspace space = workspace(cosine_offsets, cosines, state, flags, reports,
                                    x_sentence_key.size(0) + y_sentence_key.size(0),
                                    x_presence.size(0) + y_presence.size(0));
  const Scripts out = scripts(rule, sentence, reference, count);
  if (reports == 0) return;
  tvm::ffi::CUDADeviceGuard guard(seeds.device().device_id);
  edit_plan_kernel<<<blocks_for(reports * kThreads), kThreads, 0, current_stream(seeds)>>>(
      x, y, elements<const int64_t>(seeds, "seeds", {reports}), options, space, out, width);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_cuda, rrgkern::edit_plan_cuda)
