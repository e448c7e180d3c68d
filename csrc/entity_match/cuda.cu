#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "entity_match/arguments.h"

namespace rrgkern {

using tvm::ffi::TensorView;

__device__ void add(WeightedMean* shared, const WeightedMean& mean) {
  using Word = unsigned long long;  // the type atomicAdd takes; a sum of integers has no order
  atomicAdd(reinterpret_cast<Word*>(&shared->total), static_cast<Word>(mean.total));
  atomicAdd(reinterpret_cast<Word*>(&shared->mass), static_cast<Word>(mean.mass));
}

// Four entities of `mine` from `first` on against all of `theirs`, by one warp: lane i gathers what
// entity i finds.
__device__ void match_tile(const EntityRows& mine, const EntityRows& theirs, int64_t report,
                           int64_t first, const Affinity& affinity, double scale, int64_t width,
                           WeightedMean* mean) {
  const int lane = threadIdx.x % kLanes;
  const int64_t last = mine.offsets[report + 1];
  const int64_t start = theirs.offsets[report], end = theirs.offsets[report + 1];
  const float *left[kTile], *right[kTile];
  for (int i = 0; i < kTile; ++i) {
    left[i] = mine.embedding + min(first + i, last - 1) * width;
  }
  const int64_t own = min(first + lane % kTile, last - 1);
  BestMatch best(mine.presence[own], mine.kind[own], affinity);
  for (int64_t u = start; u < end; u += kTile) {
    for (int j = 0; j < kTile; ++j) right[j] = theirs.embedding + min(u + j, end - 1) * width;
    const float cosine = warp_cosines(left, right, width);
    for (int j = 0; j < kTile; ++j) {
      const float value = __shfl_sync(~0u, cosine, lane % kTile * 2 * kTile + 2 * j);
      if (u + j < end) {
        best.offer(value, static_cast<int32_t>(u + j - start), theirs.presence[u + j],
                   theirs.kind[u + j]);
      }
    }
  }
  if (lane < kTile && first + lane < last) {
    best.store(mine.cosine + own * kMatches, mine.index + own * kMatches);
    WeightedMean term = {};
    best.add_to(&term, scale);
    add(mean, term);
  }
}

__global__ void entity_match_kernel(EntityRows x, EntityRows y, Affinity affinity, float* scores,
                                    int64_t reports, int64_t width) {
  __shared__ WeightedMean means[2];
  __shared__ float largest;
  if (threadIdx.x == 0) largest = affinity.largest();
  for (int64_t r = blockIdx.x; r < reports; r += gridDim.x) {
    if (threadIdx.x < 2) means[threadIdx.x] = {};
    __syncthreads();
    const int64_t x_count = x.offsets[r + 1] - x.offsets[r];
    const int64_t y_count = y.offsets[r + 1] - y.offsets[r];
    const int64_t x_tiles = (x_count + kTile - 1) / kTile, y_tiles = (y_count + kTile - 1) / kTile;
    const double x_scale = WeightedMean::scale(largest, x_count);
    const double y_scale = WeightedMean::scale(largest, y_count);
    for (int64_t tile = threadIdx.x / kLanes; tile < x_tiles + y_tiles;
         tile += blockDim.x / kLanes) {
      if (tile < x_tiles) {
        match_tile(x, y, r, x.offsets[r] + tile * kTile, affinity, x_scale, width, &means[0]);
      } else {
        match_tile(y, x, r, y.offsets[r] + (tile - x_tiles) * kTile, affinity, y_scale, width,
                   &means[1]);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      score_report(x_count > 0 && y_count > 0, means[0], means[1], scores + r * kScores);
    }
    __syncthreads();
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
