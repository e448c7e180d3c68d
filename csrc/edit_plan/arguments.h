// The tensors of an edit plan as the core takes them.
#pragma once

#include "common/tensors.h"
#include "edit_plan/edit_plan.h"

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
          elements<const float>(embedding, "embedding", {entities, width})};
}

// Scratch space of all pairs; that of pair r begins where its offsets say.
struct Workspace {
  const int64_t* cosine_offsets;  // [R+1] running sum of (Ex + Ey)^2
  float* cosine;
  int32_t* state;  // 3 (Tx + Ty)
  int8_t* flags;   // 2 (Ex + Ey)

  RRGKERN_HD float* cosines_of(int64_t report) const { return cosine + cosine_offsets[report]; }
  RRGKERN_HD int32_t* state_of(const SentenceRows& x, const SentenceRows& y, int64_t report) const {
    return state + 3 * (x.sentence_offsets[report] + y.sentence_offsets[report]);
  }
  RRGKERN_HD int8_t* flags_of(const SentenceRows& x, const SentenceRows& y, int64_t report) const {
    return flags + 2 * (x.entity_offsets[report] + y.entity_offsets[report]);
  }
};

inline Workspace workspace(const tvm::ffi::TensorView& cosine_offsets,
                           const tvm::ffi::TensorView& cosine, const tvm::ffi::TensorView& state,
                           const tvm::ffi::TensorView& flags, int64_t reports, int64_t sentences,
                           int64_t entities) {
  return {elements<const int64_t>(cosine_offsets, "cosine_offsets", {reports + 1}),
          elements<float>(cosine, "cosine", {cosine.size(0)}),
          elements<int32_t>(state, "state", {3 * sentences}),
          elements<int8_t>(flags, "flags", {2 * entities})};
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

}  // namespace rrgkern
