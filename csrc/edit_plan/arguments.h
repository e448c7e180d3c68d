// The tensors of an edit plan as the core takes them.
#pragma once

#include <utility>

#include "common/tensors.h"
#include "edit_plan/edit_plan.h"
#include "edit_plan/released.h"

namespace rrgkern {

// The reports, the references and the seeds of R pairs; the kinds are null under the paper's rules.
struct Pairs {
  SentenceRows x, y;
  const int8_t *x_kind, *y_kind;
  const int64_t* seeds;
  int64_t reports, width;
  tvm::ffi::TensorView device;  // a tensor on it
};

// Fills it from the tensors of x, of y, and the seeds, in the order of the op: each side is
// sentence offsets, sentence key, entity offsets, entity sentence, presence, key, embedding and,
// where there are 17 in all, kind.
template <size_t kTensors>
Pairs pairs_of(const tvm::ffi::TensorView (&tensors)[kTensors]) {
  constexpr size_t kSide = kTensors / 2;
  const tvm::ffi::TensorView& seeds = tensors[kTensors - 1];
  const int64_t reports = seeds.size(0), width = tensors[6].size(1);
  const auto rows = [&](const tvm::ffi::TensorView* side) -> SentenceRows {
    const int64_t entities = side[4].size(0);
    return {elements<const int64_t>(side[0], "sentence_offsets", {reports + 1}),
            elements<const int64_t>(side[1], "sentence_key", {side[1].size(0)}),
            elements<const int64_t>(side[2], "entity_offsets", {reports + 1}),
            elements<const int64_t>(side[3], "entity_sentence", {entities}),
            elements<const int8_t>(side[4], "presence", {entities}),
            elements<const int64_t>(side[5], "key", {entities}),
            elements<const float>(side[6], "embedding", {entities, width}),
            width};
  };
  const auto kind = [&](const tvm::ffi::TensorView* side) -> const int8_t* {
    if (kSide == 7) return nullptr;
    return elements<const int8_t>(side[7], "kind", {side[4].size(0)});
  };
  const tvm::ffi::TensorView *x = tensors, *y = tensors + kSide;
  return {rows(x), rows(y), kind(x), kind(y),
          elements<const int64_t>(seeds, "seeds", {reports}), reports, width, seeds};
}

// FromTensors<plan, n>::call takes n tensors and what plan(pairs, ...) takes beside the pairs.
template <size_t>
using TensorAt = tvm::ffi::TensorView;

template <auto plan, size_t kTensors, typename = std::make_index_sequence<kTensors>,
          typename = decltype(plan)>
struct FromTensors;

template <auto plan, size_t kTensors, size_t... kIndex, typename... Rest>
struct FromTensors<plan, kTensors, std::index_sequence<kIndex...>,
                   void (*)(const Pairs&, Rest...)> {
  static void call(TensorAt<kIndex>... tensors, Rest... rest) {
    plan(pairs_of<kTensors>({tensors...}), rest...);
  }
};

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
