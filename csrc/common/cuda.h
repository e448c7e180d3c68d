// Launching on the stream and device that PyTorch is using, and grid-stride loops.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/cuda/device_guard.h>

#include <cstdint>

namespace rrgkern {

inline cudaStream_t current_stream(const tvm::ffi::TensorView& tensor) {
  const DLDevice device = tensor.device();
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
}

constexpr int kThreads = 256;

// Blocks for a grid-stride loop over `items`; capped, so any int64 count fits the grid.
inline unsigned blocks_for(int64_t items) {
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65535 ? blocks : 65535);
}

#ifdef __CUDACC__
// A thread's first item and the step to its next, in a grid-stride loop.
__device__ inline int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
#endif

}  // namespace rrgkern
