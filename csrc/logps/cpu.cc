#include "logps/logps.h"

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include "common/memory.h"
#include "common/threads.h"
#include "logps/arguments.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// Calls work(begin, end) on rows, a few at a time, on as many threads as they are worth.
template <typename Work>
void on_rows(int64_t rows, int64_t columns, int64_t threads, const Work& work) {
  Items items(rows, rows_at_once(columns));
  on_threads(threads_for(softmax_work(rows, columns), threads), [&] {
    for (int64_t begin, end; items.take(&begin, &end);) work(begin, end);
  });
}

Stats stats_of(const TensorView& logps, const TensorView& entropy, const TensorView& shift,
               const TensorView& lognorm, int64_t rows, Float dtype) {
  return {vector_of(logps, "logps", rows, dtype), vector_of(entropy, "entropy", rows, dtype),
          vector_of(shift, "shift", rows, dtype), vector_of(lognorm, "lognorm", rows, dtype)};
}

// Tensors of size 0 are absent. Returns the first row with a wrong target, and then does nothing;
// else -1.
int64_t token_logps_cpu(TensorView logits, TensorView targets, TensorView keep, double temperature,
                        TensorView logps, TensorView entropy, TensorView shift, TensorView lognorm,
                        int64_t threads) {
  const int64_t count = targets.size(0);
  const Rows rows = rows_of(logits, "logits");
  const SoftmaxForward call = {rows, elements<const int64_t>(targets, "targets", {count}),
                               flags_of(keep, "keep", count), temperature,
                               stats_of(logps, entropy, shift, lognorm, count, wide(rows.dtype))};
  const int64_t wrong = wrong_target(call.targets, call.keep, count, rows.vocabulary);
  if (wrong >= 0) return wrong;
  const LogpsKernels& kernels = logps_kernels();
  on_rows(count, rows.vocabulary, threads,
          [&](int64_t begin, int64_t end) { kernels.forward(call, begin, end); });
  return -1;
}

// `gradient` is the logits themselves, or fresh memory.
void token_logps_bwd_cpu(TensorView coef, TensorView coef_entropy, TensorView logits,
                         TensorView targets, TensorView logps, TensorView entropy, TensorView shift,
                         TensorView lognorm, double temperature, TensorView gradient,
                         int64_t threads) {
  const int64_t count = targets.size(0);
  const Rows rows = rows_of(logits, "logits"), out = rows_of(gradient, "gradient");
  const Float dtype = wide(rows.dtype);
  if (out.dtype != rows.dtype || logits.numel() != gradient.numel()) {
    TVM_FFI_THROW(ValueError) << "gradient is no tensor like the logits";
  }
  const SoftmaxBackward call = {rows,
                                out,
                                elements<const int64_t>(targets, "targets", {count}),
                                vector_of(coef, "coef", count, dtype),
                                vector_of(coef_entropy, "coef_entropy", count, dtype),
                                temperature,
                                stats_of(logps, entropy, shift, lognorm, count, dtype)};
  if (out.data != rows.data) {
    expect_first_touch(out.data, gradient.numel() * gradient.dtype().bits / 8);
  }
  const LogpsKernels& kernels = logps_kernels();
  on_rows(count, rows.vocabulary, threads,
          [&](int64_t begin, int64_t end) { kernels.backward(call, begin, end); });
}

Tile tile_of(const TensorView& z, const TensorView& targets, int64_t first, double temperature) {
  const int64_t rows = targets.size(0), columns = z.size(1);
  check_tensor(z, "z", {rows, columns});
  const Float dtype = float_dtype(z, "z");
  if (dtype != wide(dtype)) TVM_FFI_THROW(TypeError) << "z is of 16 bits, wanted 32 or 64";
  return {data<void>(z), dtype, columns, first, elements<const int64_t>(targets, "targets", {rows}),
          temperature};
}

Sums sums_of(const Tile& tile, const TensorView& max, const TensorView& sumexp,
             const TensorView& weighted, const TensorView& target_logit, int64_t rows) {
  return {elements<double>(max, "max", {rows}), elements<double>(sumexp, "sumexp", {rows}),
          elements<double>(weighted, "weighted", {rows}),
          vector_of(target_logit, "target_logit", rows, tile.dtype)};
}

void add_tile_cpu(TensorView z, TensorView targets, int64_t first, double temperature, bool entropy,
                  TensorView max, TensorView sumexp, TensorView weighted, TensorView target_logit,
                  int64_t threads) {
  const int64_t rows = targets.size(0);
  const Tile tile = tile_of(z, targets, first, temperature);
  const Sums sums = sums_of(tile, max, sumexp, weighted, target_logit, rows);
  const LogpsKernels& kernels = logps_kernels();
  on_rows(rows, tile.columns, threads, [&](int64_t begin, int64_t end) {
    kernels.add_tile(tile, sums, entropy, begin, end);
  });
}

void exponentials_cpu(TensorView z, TensorView targets, int64_t first, double temperature,
                      bool entropy, TensorView max, TensorView sumexp, TensorView weighted,
                      TensorView target_logit, TensorView decay, int64_t threads) {
  const int64_t rows = targets.size(0);
  const Tile tile = tile_of(z, targets, first, temperature);
  const Sums sums = sums_of(tile, max, sumexp, weighted, target_logit, rows);
  void* factors = vector_of(decay, "decay", rows, tile.dtype);
  const LogpsKernels& kernels = logps_kernels();
  on_rows(rows, tile.columns, threads, [&](int64_t begin, int64_t end) {
    kernels.exponentials(tile, sums, entropy, factors, begin, end);
  });
}

void tile_gradient_cpu(TensorView z, TensorView targets, int64_t first, double temperature,
                       TensorView coef, TensorView coef_entropy, TensorView logps,
                       TensorView entropy, TensorView shift, TensorView lognorm, int64_t threads) {
  const int64_t rows = targets.size(0);
  const Tile tile = tile_of(z, targets, first, temperature);
  const SoftmaxBackward call = {{},
                                {},
                                tile.targets,
                                vector_of(coef, "coef", rows, tile.dtype),
                                vector_of(coef_entropy, "coef_entropy", rows, tile.dtype),
                                temperature,
                                stats_of(logps, entropy, shift, lognorm, rows, tile.dtype)};
  const LogpsKernels& kernels = logps_kernels();
  on_rows(rows, tile.columns, threads,
          [&](int64_t begin, int64_t end) { kernels.tile_gradient(tile, call, begin, end); });
}

void scale_rows_cpu(TensorView gradient, TensorView active, double factor, int64_t threads) {
  const int64_t count = active.size(0);
  const Rows rows = rows_of(gradient, "gradient");
  const bool* chosen = flags_of(active, "active", count);
  if (chosen == nullptr || factor == 1.0) return;
  const LogpsKernels& kernels = logps_kernels();
  on_rows(count, rows.vocabulary, threads,
          [&](int64_t begin, int64_t end) { kernels.scale(rows, chosen, factor, begin, end); });
}

// The instruction set of the kernels that have several, here and now.
tvm::ffi::String cpu_isa() {
  const char* const names[] = {"portable", "avx2", "avx512"};
  return names[static_cast<int>(isa())];
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(token_logps_cpu, rrgkern::token_logps_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(token_logps_bwd_cpu, rrgkern::token_logps_bwd_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_tile_cpu, rrgkern::add_tile_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(exponentials_cpu, rrgkern::exponentials_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tile_gradient_cpu, rrgkern::tile_gradient_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale_rows_cpu, rrgkern::scale_rows_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cpu_isa, rrgkern::cpu_isa)
