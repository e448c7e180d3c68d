#include "advantages/advantages.h"

#include <tvm/ffi/function.h>

#include "common/tensors.h"
#include "common/threads.h"

namespace rrgkern {

using tvm::ffi::TensorView;
using Maybe = tvm::ffi::Optional<TensorView>;

namespace {

template <typename Visit>
void dispatch_float(Float dtype, const Visit& visit) {
  switch (dtype) {
    case Float::kHalf: return visit(Half{});
    case Float::kBFloat16: return visit(BFloat16{});
    case Float::kFloat: return visit(float{});
    case Float::kDouble: return visit(double{});
  }
}

template <typename T>
bool all_finite(const T* rewards, const bool* valid, int64_t count) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= (valid != nullptr && !valid[i]) || std::isfinite(wide_value(rewards[i]));
  }
  return finite;
}

}  // namespace

// Returns false, and has done nothing, where an argument is wrong or must be converted first: Python
// then checks them one by one. `finite`: a valid reward that is not finite is wrong.
bool group_advantages_cpu(TensorView rewards, TensorView offsets, Maybe valid, int64_t deviation,
                          double eps, bool finite, TensorView advantages, TensorView members,
                          TensorView informative, int64_t threads) {
  const DLDataType dtype = rewards.dtype();
  if (rewards.ndim() != 1 || offsets.ndim() != 1 || offsets.size(0) == 0) return false;
  const int64_t count = rewards.size(0), groups = offsets.size(0) - 1;
  if (!is_plain(rewards, count, dtype) || !is_plain(offsets, groups + 1, {kDLInt, 64, 1}) ||
      !rise_to(data<const int64_t>(offsets), groups, count) ||
      (valid.has_value() && !is_plain(*valid, count, {kDLBool, 8, 1}))) {
    return false;
  }
  const int64_t* starts = data<const int64_t>(offsets);
  const bool* keep = valid.has_value() ? data<const bool>(*valid) : nullptr;
  int64_t* sizes = elements<int64_t>(members, "members", {groups});
  check_tensor(informative, "informative", {groups});
  bool* differ = data<bool>(informative);
  bool right = true;
  dispatch_float(float_dtype(rewards, "rewards"), [&](auto kind) {
    using T = decltype(kind);
    using Result = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Result* out = elements<Result>(advantages, "advantages", {count});
    const T* values = data<const T>(rewards);
    right = !finite || all_finite(values, keep, count);
    if (!right) return;
    Items items(groups);
    on_threads(threads_for(10.0 * static_cast<double>(count), threads), [&] {
      for (int64_t begin, end; items.take(&begin, &end);) {
        for (int64_t g = begin; g < end; ++g) {
          const GroupResult result =
              group_advantages(values, keep, starts[g], starts[g + 1],
                               static_cast<Deviation>(deviation), eps, out);
          sizes[g] = result.members;
          differ[g] = result.informative;
        }
      }
    });
  });
  return right;
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(group_advantages_cpu, rrgkern::group_advantages_cpu)
