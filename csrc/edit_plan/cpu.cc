#include <tvm/ffi/function.h>

#include "edit_plan/arguments.h"
#include "entity_match/cosine.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// Cosines between the entities of a pair that take part; the matrix is symmetric to the bit.
void fill_cosines(const SentenceRows& x, const SentenceRows& y, int64_t report, int64_t width,
                  float* matrix) {
  const int64_t x_first = x.entity_offsets[report], y_first = y.entity_offsets[report];
  const int64_t x_count = x.entity_offsets[report + 1] - x_first;
  const int64_t count = x_count + y.entity_offsets[report + 1] - y_first;
  const auto embedding = [&](int64_t e) -> const float* {
    const int64_t row = e < x_count ? x_first + e : y_first + e - x_count;
    const SentenceRows& side = e < x_count ? x : y;
    return side.presence[row] >= 0 ? side.embedding + row * width : nullptr;
  };
  for (int64_t e = 0; e < count; ++e) {
    const float* a = embedding(e);
    if (a == nullptr) continue;
    for (int64_t u = e; u < count; ++u) {
      const float* b = embedding(u);
      if (b == nullptr) continue;
      matrix[e * count + u] = matrix[u * count + e] = cosine(a, b, width);
    }
  }
}

void edit_plan_cpu(TensorView x_sentence_offsets, TensorView x_sentence_key,
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
  const int64_t* seed = elements<const int64_t>(seeds, "seeds", {reports});
  for (int64_t r = 0; r < reports; ++r) {
    float* matrix = space.cosines_of(r);
    fill_cosines(x, y, r, width, matrix);
    EditedPair pair(x, y, r, matrix, space.state_of(x, y, r), space.flags_of(x, y, r), options);
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
