#include <tvm/ffi/function.h>

#include "common/cuda.h"
#include "edit_plan/arguments.h"
#include "entity_match/cosine.h"

namespace rrgkern {

using tvm::ffi::TensorView;

struct Block {
  __device__ int rank() const { return threadIdx.x; }
  __device__ int size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
};

// Four rows against four at a time, a warp each; tiles below the diagonal are mirrored.
__device__ void fill_cosines(const EditedPair& pair, int64_t width) {
  const int lane = threadIdx.x % kLanes;
  const int64_t count = pair.count(), tiles = (count + kTile - 1) / kTile;
  float* matrix = pair.cosine();
  for (int64_t tile = threadIdx.x / kLanes; tile < tiles * tiles; tile += blockDim.x / kLanes) {
    const int64_t first = tile / tiles * kTile, other = tile % tiles * kTile;
    if (other < first) continue;
    const float *mine[kTile], *theirs[kTile];
    for (int i = 0; i < kTile; ++i) {
      mine[i] = pair.embedding(min(first + i, count - 1), width);
      theirs[i] = pair.embedding(min(other + i, count - 1), width);
    }
    const float value = warp_cosines(mine, theirs, width);
    const int64_t e = first + lane / (2 * kTile), u = other + lane / 2 % kTile;
    if (lane % 2 == 0 && e < count && u < count) {
      matrix[e * count + u] = matrix[u * count + e] = value;
    }
  }
}

// A block plans one pair at a time. What it works on lies in shared memory where `slabs` is null,
// else in its own slab of `bytes`. The rules depend on each other and are one thread's: some
// hundred steps on sets of entities.
__global__ void edit_plan_kernel(SentenceRows x, SentenceRows y, const int64_t* seeds,
                                 EditOptions options, uint8_t* slabs, int64_t bytes, Scripts out,
                                 int64_t width) {
  extern __shared__ uint64_t shared[];
  void* space = slabs == nullptr ? static_cast<void*>(shared) : slabs + blockIdx.x * bytes;
  const Block block;
  for (int64_t r = blockIdx.x; r < out.reports; r += gridDim.x) {
    EditedPair pair(x, y, r, options, space);
    pair.read(block);
    fill_cosines(pair, width);
    __syncthreads();
    pair.relate(block);
    if (threadIdx.x == 0) out.count[r] = pair.plan(static_cast<uint64_t>(seeds[r]), out.row(r));
    __syncthreads();
  }
}

// `bytes` is what edit_plan_space says; `slabs` [blocks * bytes] may be empty where that fits into
// the shared memory of any GPU.
void edit_plan_cuda(TensorView x_sentence_offsets, TensorView x_sentence_key,
                    TensorView x_entity_offsets, TensorView x_entity_sentence,
                    TensorView x_presence, TensorView x_key, TensorView x_embedding,
                    TensorView y_sentence_offsets, TensorView y_sentence_key,
                    TensorView y_entity_offsets, TensorView y_entity_sentence,
                    TensorView y_presence, TensorView y_key, TensorView y_embedding,
                    TensorView seeds, double tau, double tau_replace, int64_t max_edits,
                    bool conflict_requires_spurious, int64_t bytes, TensorView slabs,
                    TensorView rule, TensorView sentence, TensorView reference, TensorView count) {
  const int64_t reports = seeds.size(0), width = x_embedding.size(1);
  const SentenceRows x =
      sentence_rows(x_sentence_offsets, x_sentence_key, x_entity_offsets, x_entity_sentence,
                    x_presence, x_key, x_embedding, reports, width);
  const SentenceRows y =
      sentence_rows(y_sentence_offsets, y_sentence_key, y_entity_offsets, y_entity_sentence,
                    y_presence, y_key, y_embedding, reports, width);
  const EditOptions options = {static_cast<float>(tau), static_cast<float>(tau_replace), max_edits,
                               conflict_requires_spurious};
  const Scripts out = scripts(rule, sentence, reference, count);
  const int64_t size = slabs.size(0);
  uint8_t* global = size > 0 ? elements<uint8_t>(slabs, "slabs", {size}) : nullptr;
  if (reports == 0) return;
  const int64_t blocks = size > 0 ? size / bytes : blocks_for(reports * kThreads);
  tvm::ffi::CUDADeviceGuard guard(seeds.device().device_id);
  edit_plan_kernel<<<static_cast<unsigned>(blocks), kThreads, size > 0 ? 0 : bytes,
                     current_stream(seeds)>>>(
      x, y, elements<const int64_t>(seeds, "seeds", {reports}), options, global, bytes, out, width);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_cuda, rrgkern::edit_plan_cuda)
