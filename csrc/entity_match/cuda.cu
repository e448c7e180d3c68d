#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "entity_match/arguments.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// Every entity of `mine` in this report against all of `theirs`; a warp takes one entity.
__device__ void match_side(const EntityRows& mine, const EntityRows& theirs, int64_t report,
                           int64_t width) {
  const int lane = threadIdx.x % kLanes, warps = blockDim.x / kLanes;
  const int64_t first = theirs.offsets[report], last = theirs.offsets[report + 1];
  for (int64_t e = mine.offsets[report] + threadIdx.x / kLanes; e < mine.offsets[report + 1];
       e += warps) {
    float cosine[kMatches];
    int32_t index[kMatches];
    clear(cosine, index);
    for (int64_t u = first; u < last; ++u) {
      const float value =
          warp_cosine(mine.embedding + e * width, theirs.embedding + u * width, width);
      offer(cosine, index, value, static_cast<int32_t>(u - first), mine.presence[e],
            theirs.presence[u]);
    }
    if (lane == 0) {
      for (int column = 0; column < kMatches; ++column) {
        mine.cosine[e * kMatches + column] = cosine[column];
        mine.index[e * kMatches + column] = index[column];
      }
    }
  }
}

__global__ void entity_match_kernel(EntityRows x, EntityRows y, Affinity affinity, float* scores,
                                    int64_t reports, int64_t width) {
  for (int64_t report = blockIdx.x; report < reports; report += gridDim.x) {
    match_side(x, y, report, width);
    match_side(y, x, report, width);
    __syncthreads();
    if (threadIdx.x == 0) score_report(x, y, report, affinity, scores + report * kScores);
  }
}

void entity_match_cuda(TensorView x_offsets, TensorView x_presence, TensorView x_embedding,
                       TensorView x_kind, TensorView y_offsets, TensorView y_presence,
                       TensorView y_embedding, TensorView y_kind, TensorView weight,
                       TensorView crossed, TensorView x_cosine, TensorView x_index,
                       TensorView y_cosine, TensorView y_index, TensorView scores) {
  const int64_t reports = scores.size(0), width = x_embedding.size(1);
  const EntityRows x = entity_rows(x_offsets, x_presence, x_embedding, x_kind, x_cosine, x_index,
                                   reports, width);
  const EntityRows y = entity_rows(y_offsets, y_presence, y_embedding, y_kind, y_cosine, y_index,
                                   reports, width);
  const Affinity affinity = affinity_tables(weight, crossed);
  float* score = elements<float>(scores, "scores", {reports, kScores});
  if (reports == 0) return;
  tvm::ffi::CUDADeviceGuard guard(scores.device().device_id);
  entity_match_kernel<<<blocks_for(reports * kThreads), kThreads, 0, current_stream(scores)>>>(
      x, y, affinity, score, reports, width);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(entity_match_cuda, rrgkern::entity_match_cuda)
