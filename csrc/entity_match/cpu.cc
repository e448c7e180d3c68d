#include <tvm/ffi/function.h>

#include "entity_match/arguments.h"

namespace rrgkern {

using tvm::ffi::TensorView;

void entity_match_cpu(TensorView x_offsets, TensorView x_presence, TensorView x_embedding,
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
  for (int64_t e = 0; e < x_presence.size(0); ++e) {
    clear(x.cosine + e * kMatches, x.index + e * kMatches);
  }
  for (int64_t u = 0; u < y_presence.size(0); ++u) {
    clear(y.cosine + u * kMatches, y.index + u * kMatches);
  }
  for (int64_t r = 0; r < reports; ++r) {
    for (int64_t e = x.offsets[r]; e < x.offsets[r + 1]; ++e) {
      for (int64_t u = y.offsets[r]; u < y.offsets[r + 1]; ++u) {
        const float value = cosine(x.embedding + e * width, y.embedding + u * width, width);
        offer(x.cosine + e * kMatches, x.index + e * kMatches, value,
              static_cast<int32_t>(u - y.offsets[r]), x.presence[e], y.presence[u]);
        offer(y.cosine + u * kMatches, y.index + u * kMatches, value,
              static_cast<int32_t>(e - x.offsets[r]), y.presence[u], x.presence[e]);
      }
    }
    score_report(x, y, r, affinity, score + r * kScores);
  }
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(entity_match_cpu, rrgkern::entity_match_cpu)
