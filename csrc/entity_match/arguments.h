// The tensors of an entity match as the core takes them.
#pragma once

#include "common/tensors.h"
#include "entity_match/entity_match.h"

namespace rrgkern {

inline EntityRows entity_rows(const tvm::ffi::TensorView& offsets,
                              const tvm::ffi::TensorView& presence,
                              const tvm::ffi::TensorView& embedding,
                              const tvm::ffi::TensorView& kind, const tvm::ffi::TensorView& cosine,
                              const tvm::ffi::TensorView& index, int64_t reports, int64_t width) {
  const int64_t entities = presence.size(0);
  return {elements<const int64_t>(offsets, "offsets", {reports + 1}),
          elements<const int8_t>(presence, "presence", {entities}),
          elements<const float>(embedding, "embedding", {entities, width}),
          elements<const int8_t>(kind, "kind", {entities}),
          elements<float>(cosine, "cosine", {entities, kMatches}),
          elements<int32_t>(index, "index", {entities, kMatches})};
}

inline Affinity affinity_tables(const tvm::ffi::TensorView& weight,
                                const tvm::ffi::TensorView& crossed) {
  const int64_t kinds = weight.size(0);
  return {elements<const float>(weight, "weight", {kinds, kinds}),
          elements<const float>(crossed, "crossed", {kinds, kinds}), kinds};
}

}  // namespace rrgkern
