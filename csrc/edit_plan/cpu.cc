#include <tvm/ffi/function.h>

#include <algorithm>
#include <vector>

#include "edit_plan/arguments.h"
#include "entity_match/cosine_cpu.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// The bytes that the largest of the pairs needs; [R+1] offsets on the host, whatever the device of
// the plan.
int64_t edit_plan_space(TensorView x_sentence_offsets, TensorView y_sentence_offsets,
                        TensorView x_entity_offsets, TensorView y_entity_offsets) {
  const int64_t bounds = x_sentence_offsets.size(0);
  const auto offsets = [&](const TensorView& tensor) {
    return elements<const int64_t>(tensor, "offsets", {bounds});
  };
  const int64_t *xs = offsets(x_sentence_offsets), *ys = offsets(y_sentence_offsets);
  const int64_t *xe = offsets(x_entity_offsets), *ye = offsets(y_entity_offsets);
  int64_t bytes = 0;
  for (int64_t r = 0; r + 1 < bounds; ++r) {
    bytes = std::max(bytes, pair_sizes(xs, ys, xe, ye, r).bytes());
  }
  return (bytes + 7) / 8 * 8;
}

void edit_plan_cpu(TensorView x_sentence_offsets, TensorView x_sentence_key,
                   TensorView x_entity_offsets, TensorView x_entity_sentence,
                   TensorView x_presence, TensorView x_key, TensorView x_embedding,
                   TensorView y_sentence_offsets, TensorView y_sentence_key,
                   TensorView y_entity_offsets, TensorView y_entity_sentence,
                   TensorView y_presence, TensorView y_key, TensorView y_embedding,
                   TensorView seeds, double tau, double tau_replace, int64_t max_edits,
                   bool conflict_requires_spurious, TensorView rule, TensorView sentence,
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
  const Scripts out = scripts(rule, sentence, reference, count);
  const int64_t* seed = elements<const int64_t>(seeds, "seeds", {reports});
  const CpuKernels& kernels = cpu_kernels().back();
  const OneThread alone;
  std::vector<uint64_t> space;
  Panel panel;
  for (int64_t r = 0; r < reports; ++r) {
    const PairSizes sizes = pair_sizes(x.sentence_offsets, y.sentence_offsets, x.entity_offsets,
                                       y.entity_offsets, r);
    if (space.size() < static_cast<size_t>(sizes.bytes() / 8 + 1)) {
      space.resize(sizes.bytes() / 8 + 1);
    }
    EditedPair pair(x, y, r, options, space.data());
    pair.read(alone);
    const int64_t n = pair.count();
    panel.fill(n, width, kernels, [&](int64_t k) { return pair.embedding(k, width); });
    float* matrix = pair.cosine();
    cosine_matrix(panel, panel, true, matrix, n, kernels);
    for (int64_t e = 0; e < n; ++e) {
      for (int64_t u = e + 1; u < n; ++u) matrix[u * n + e] = matrix[e * n + u];
    }
    pair.relate(alone);
    out.count[r] = pair.plan(static_cast<uint64_t>(seed[r]), out.row(r));
  }
}

// The draw alone, for tests: scripts never have enough choices to reach a rejection.
int64_t edit_plan_draw(int64_t n, int64_t seed, int64_t edit) {
  return uniform_below(static_cast<uint32_t>(n), static_cast<uint64_t>(seed),
                       static_cast<uint32_t>(edit));
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_cpu, rrgkern::edit_plan_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_draw, rrgkern::edit_plan_draw)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_space, rrgkern::edit_plan_space)
