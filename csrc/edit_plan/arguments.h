// The tensors of an edit plan as the core takes them.
#pragma once

#include "common/tensors.h"
#include "edit_plan/edit_plan.h"
#include "edit_plan/released.h"

namespace rrgkern {

inline SentenceRows sentence_rows(const tvm::ffi::TensorView& sentence_offsets,
                                  const tvm::ffi::TensorView& sentence_key,
                                  const tvm::ffi::TensorView& entity_offsets,
                                  const tvm::ffi::TensorView& entity_sentence,
                                  const tvm::ffi::TensorView& presence,
                                  const tvm::ffi::TensorView& key,
                                  const tvm::ffi::TensorView& embedding, int64_t reports,
                                  int64_t width) {
  const int64_t entities = presence.size(0);
  return {elements<const int64_t>(sentence_offsets, "sentence_offsets", {reports + 1}),
          elements<const int64_t>(sentence_key, "sentence_key", {sentence_key.size(0)}),
          elements<const int64_t>(entity_offsets, "entity_offsets", {reports + 1}),
          elements<const int64_t>(entity_sentence, "entity_sentence", {entities}),
          elements<const int8_t>(presence, "presence", {entities}),
          elements<const int64_t>(key, "key", {entities}),
          elements<const float>(embedding, "embedding", {entities, width}),
          width};
}

// Where the scripts of all pairs go, [R, M] each, and how long they are, [R].
struct Scripts {
  int8_t* rule;
  int32_t* sentence;
  int32_t* reference;
  int32_t* count;
  int64_t reports, width;

  RRGKERN_HD EditRow row(int64_t report) const {
    return {rule + report * width, sentence + report * width, reference + report * width};
  }
};

inline Scripts scripts(const tvm::ffi::TensorView& rule, const tvm::ffi::TensorView& sentence,
                       const tvm::ffi::TensorView& reference, const tvm::ffi::TensorView& count) {
  const int64_t reports = rule.size(0), width = rule.size(1);
  return {elements<int8_t>(rule, "rule", {reports, width}),
          elements<int32_t>(sentence, "sentence", {reports, width}),
          elements<int32_t>(reference, "reference", {reports, width}),
          elements<int32_t>(count, "count", {reports}),
          reports,
          width};
}

inline ReleasedOptions released_options(const tvm::ffi::TensorView& affinity, double tau,
                                        double tau_replace, double neg_weight) {
  const int64_t kinds = affinity.size(0);
  return {tau, tau_replace, neg_weight,
          elements<const double>(affinity, "affinity", {kinds, kinds}), kinds};
}

}  // namespace rrgkern
