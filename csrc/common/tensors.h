// Checks of tensors that cross the boundary, and dispatch on their dtype.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "common/floats.h"

namespace rrgkern {

// Python checks what a user can get wrong; this guards memory against a wrong launcher.
inline void check_tensor(const tvm::ffi::TensorView& tensor, const char* name,
                         std::initializer_list<int64_t> sizes) {
  bool fits = tensor.ndim() == static_cast<int32_t>(sizes.size());
  for (int32_t axis = 0; fits && axis < tensor.ndim(); ++axis) {
    fits = tensor.size(axis) == sizes.begin()[axis];
  }
  if (!fits) TVM_FFI_THROW(ValueError) << name << " has the wrong shape " << tensor.shape();
  if (!tensor.IsContiguous()) TVM_FFI_THROW(ValueError) << name << " is not contiguous";
}

template <typename T>
T* data(const tvm::ffi::TensorView& tensor) {
  if (tensor.data_ptr() == nullptr && tensor.numel() > 0) {
    TVM_FFI_THROW(ValueError) << "a tensor of shape " << tensor.shape() << " has no memory";
  }
  return reinterpret_cast<T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
}

template <typename T>
constexpr bool is_dtype(DLDataType dtype) {
  const int code = std::is_floating_point<T>::value ? kDLFloat
                   : std::is_signed<T>::value       ? kDLInt
                                                    : kDLUInt;
  return dtype.code == code && dtype.bits == 8 * sizeof(T) && dtype.lanes == 1;
}

// The elements of a contiguous tensor of T (const or not) of these sizes.
template <typename T>
T* elements(const tvm::ffi::TensorView& tensor, const char* name,
            std::initializer_list<int64_t> sizes) {
  check_tensor(tensor, name, sizes);
  if (!is_dtype<std::remove_const_t<T>>(tensor.dtype())) {
    TVM_FFI_THROW(TypeError) << name << " has dtype code " << static_cast<int>(tensor.dtype().code)
                             << " of " << static_cast<int>(tensor.dtype().bits)
                             << " bits, which the kernel does not take";
  }
  return data<T>(tensor);
}

// Calls visit(T{}) with T the signed integer type of `dtype`.
template <typename Visit>
void dispatch_int(DLDataType dtype, const Visit& visit) {
  if (dtype.code == kDLInt && dtype.lanes == 1) {
    switch (dtype.bits) {
      case 8: return visit(int8_t{});
      case 16: return visit(int16_t{});
      case 32: return visit(int32_t{});
      case 64: return visit(int64_t{});
    }
  }
  TVM_FFI_THROW(TypeError) << "wanted a signed integer tensor, got dtype code "
                           << static_cast<int>(dtype.code) << " of "
                           << static_cast<int>(dtype.bits) << " bits";
}

inline Float float_dtype(const tvm::ffi::TensorView& tensor, const char* name) {
  const DLDataType dtype = tensor.dtype();
  if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16) return Float::kBFloat16;
  if (dtype.lanes == 1 && dtype.code == kDLFloat) {
    if (dtype.bits == 16) return Float::kHalf;
    if (dtype.bits == 32) return Float::kFloat;
    if (dtype.bits == 64) return Float::kDouble;
  }
  TVM_FFI_THROW(TypeError) << name << " has dtype code " << static_cast<int>(dtype.code) << " of "
                           << static_cast<int>(dtype.bits) << " bits, wanted a floating-point one";
  return Float::kFloat;
}

// Whether [parts + 1] offsets begin at 0, never go down and end at `total`.
inline bool rise_to(const int64_t* offsets, int64_t parts, int64_t total) {
  bool rising = offsets[0] == 0 && offsets[parts] == total;
  for (int64_t s = 0; s < parts; ++s) rising &= offsets[s] <= offsets[s + 1];
  return rising;
}

// Whether a tensor is [count] of `dtype`, in the memory of the CPU and without gaps.
inline bool is_plain(const tvm::ffi::TensorView& tensor, int64_t count, DLDataType dtype) {
  const DLDataType own = tensor.dtype();
  return tensor.device().device_type == kDLCPU && tensor.ndim() == 1 && tensor.size(0) == count &&
         own.code == dtype.code && own.bits == dtype.bits && own.lanes == dtype.lanes &&
         tensor.IsContiguous();
}

// The elements of a contiguous [count] tensor of `dtype`; null for a tensor of size 0, which stands
// for one that is absent.
inline void* vector_of(const tvm::ffi::TensorView& tensor, const char* name, int64_t count,
                       Float dtype) {
  if (tensor.numel() == 0) return nullptr;
  check_tensor(tensor, name, {count});
  if (float_dtype(tensor, name) != dtype) TVM_FFI_THROW(TypeError) << name << " has another dtype";
  return data<void>(tensor);
}

inline const bool* flags_of(const tvm::ffi::TensorView& tensor, const char* name, int64_t count) {
  if (tensor.numel() == 0) return nullptr;
  check_tensor(tensor, name, {count});
  if (tensor.dtype().bits != 8) TVM_FFI_THROW(TypeError) << name << " is not of one byte a flag";
  return data<const bool>(tensor);
}

}  // namespace rrgkern
