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

// matrix[i * columns + j], four rows against four at a time, a warp each; where `mirrored` the two
// sides are the same, and tiles below the diagonal are copies.
template <typename RowOf, typename ColumnOf>
__device__ void fill_cosines(int64_t rows, int64_t columns, const RowOf& row_of,
                             const ColumnOf& column_of, bool mirrored, float* matrix,
                             int64_t width) {
  const int lane = threadIdx.x % kLanes;
  const int64_t high = (rows + kTile - 1) / kTile, wide = (columns + kTile - 1) / kTile;
  for (int64_t tile = threadIdx.x / kLanes; tile < high * wide; tile += blockDim.x / kLanes) {
    const int64_t first = tile / wide * kTile, other = tile % wide * kTile;
    if (mirrored && other < first) continue;
    const float *mine[kTile], *theirs[kTile];
    for (int i = 0; i < kTile; ++i) {
      mine[i] = row_of(min(first + i, rows - 1));
      theirs[i] = column_of(min(other + i, columns - 1));
    }
    const float value = warp_cosines(mine, theirs, width);
    const int64_t e = first + lane / (2 * kTile), u = other + lane / 2 % kTile;
    if (lane % 2 == 0 && e < rows && u < columns) {
      matrix[e * columns + u] = value;
      if (mirrored && other > first) matrix[u * columns + e] = value;
    }
  }
  __syncthreads();
}

__device__ inline void* space_of_block(uint8_t* slabs, int64_t bytes) {
  extern __shared__ uint64_t shared[];
  return slabs == nullptr ? static_cast<void*>(shared) : slabs + blockIdx.x * bytes;
}

// A block plans one pair at a time. What it works on lies in shared memory where `slabs` is null,
// else in its own slab of `bytes`. The rules depend on each other and are one thread's: some
// hundred steps on sets of entities.
__global__ void edit_plan_kernel(SentenceRows x, SentenceRows y, const int64_t* seeds,
                                 EditOptions options, uint8_t* slabs, int64_t bytes, Scripts out) {
  void* space = space_of_block(slabs, bytes);
  const Block block;
  for (int64_t r = blockIdx.x; r < out.reports; r += gridDim.x) {
    EditedPair pair(x, y, r, options, space);
    pair.read(block);
    const auto row = [&](int64_t k) { return pair.embedding(k); };
    fill_cosines(pair.count(), pair.count(), row, row, true, pair.cosine(), x.width);
    pair.relate(block);
    if (threadIdx.x == 0) out.count[r] = pair.plan(static_cast<uint64_t>(seeds[r]), out.row(r));
    __syncthreads();
  }
}

// Likewise by the rule of the published code.
__global__ void edit_plan_released_kernel(SentenceRows x, const int8_t* x_kind, SentenceRows y,
                                          const int8_t* y_kind, const int64_t* seeds,
                                          ReleasedOptions options, uint8_t* slabs, int64_t bytes,
                                          Scripts out) {
  void* space = space_of_block(slabs, bytes);
  const Block block;
  for (int64_t r = blockIdx.x; r < out.reports; r += gridDim.x) {
    const ReleasedPair pair(x, x_kind, y, y_kind, r, options, space);
    fill_cosines(
        pair.own(), pair.wanted(), [&](int64_t e) { return pair.own_embedding(e); },
        [&](int64_t f) { return pair.wanted_embedding(f); }, false, pair.cosine(), x.width);
    pair.relate(block);
    if (threadIdx.x == 0) out.count[r] = pair.plan(static_cast<uint64_t>(seeds[r]), out.row(r));
    __syncthreads();
  }
}

// Where the blocks of a launch work, and how many there are: in shared memory where `slabs` is
// empty, else each in a slab of `bytes`.
struct Workspace {
  uint8_t* slabs;
  int64_t shared;
  unsigned blocks;
};

Workspace workspace(const TensorView& slabs, int64_t bytes, int64_t reports) {
  const int64_t size = slabs.size(0);
  if (size == 0) return {nullptr, bytes, blocks_for(reports * kThreads)};
  return {elements<uint8_t>(slabs, "slabs", {size}), 0, static_cast<unsigned>(size / bytes)};
}

// `bytes` is what edit_plan_space says; `slabs` [blocks * bytes] may be empty where that fits into
// the shared memory of any GPU.
void edit_plan_cuda(const Pairs& pairs, double tau, double tau_replace, int64_t max_edits,
                    bool conflict_requires_spurious, int64_t bytes, TensorView slabs,
                    TensorView rule, TensorView sentence, TensorView reference, TensorView count) {
  const EditOptions options = {static_cast<float>(tau), static_cast<float>(tau_replace), max_edits,
                               conflict_requires_spurious};
  const Scripts out = scripts(rule, sentence, reference, count);
  if (pairs.reports == 0) return;
  const Workspace space = workspace(slabs, bytes, pairs.reports);
  tvm::ffi::CUDADeviceGuard guard(pairs.device.device().device_id);
  edit_plan_kernel<<<space.blocks, kThreads, space.shared, current_stream(pairs.device)>>>(
      pairs.x, pairs.y, pairs.seeds, options, space.slabs, bytes, out);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

void edit_plan_released_cuda(const Pairs& pairs, TensorView affinity, double tau,
                             double tau_replace, double neg_weight, int64_t bytes,
                             TensorView slabs, TensorView rule, TensorView sentence,
                             TensorView reference, TensorView count) {
  const ReleasedOptions options = released_options(affinity, tau, tau_replace, neg_weight);
  const Scripts out = scripts(rule, sentence, reference, count);
  if (pairs.reports == 0) return;
  const Workspace space = workspace(slabs, bytes, pairs.reports);
  tvm::ffi::CUDADeviceGuard guard(pairs.device.device().device_id);
  edit_plan_released_kernel<<<space.blocks, kThreads, space.shared, current_stream(pairs.device)>>>(
      pairs.x, pairs.x_kind, pairs.y, pairs.y_kind, pairs.seeds, options, space.slabs, bytes, out);
  TVM_FFI_CHECK_CUDA_ERROR(cudaGetLastError());
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_cuda,
                              (rrgkern::FromTensors<rrgkern::edit_plan_cuda, 15>::call))
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_released_cuda,
                              (rrgkern::FromTensors<rrgkern::edit_plan_released_cuda, 17>::call))
