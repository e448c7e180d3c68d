#include <tvm/ffi/function.h>

#include <algorithm>
#include <vector>

#include "common/tensors.h"
#include "token_weights/token_weights.h"

namespace rrgkern {

using tvm::ffi::TensorView;

struct Occurrence {
  int64_t id, report, place;

  bool operator<(const Occurrence& other) const {
    return id != other.id ? id < other.id : report < other.report;
  }
};

// Sorts the tokens of each group by id and report: runs give both counts at once.
void tfidf_weights_cpu(TensorView token_ids, TensorView offsets, TensorView group_offsets,
                       TensorView logs, double alpha, TensorView weights) {
  const int64_t count = token_ids.size(0), groups = group_offsets.size(0) - 1;
  const int64_t bounds = offsets.size(0);
  const int64_t* ids = elements<const int64_t>(token_ids, "token_ids", {count});
  const int64_t* report_start = elements<const int64_t>(offsets, "offsets", {bounds});
  const int64_t* group_start =
      elements<const int64_t>(group_offsets, "group_offsets", {groups + 1});
  const double* log_of = elements<const double>(logs, "logs", {bounds});
  float* out = elements<float>(weights, "weights", {count});
  std::vector<Occurrence> tokens;
  for (int64_t g = 0; g < groups; ++g) {
    tokens.clear();
    for (int64_t s = group_start[g]; s < group_start[g + 1]; ++s) {
      for (int64_t t = report_start[s]; t < report_start[s + 1]; ++t) {
        tokens.push_back({ids[t], s, t});
      }
    }
    std::sort(tokens.begin(), tokens.end());
    const double log_reports = log_of[group_start[g + 1] - group_start[g]];
    for (auto begin = tokens.begin(); begin != tokens.end();) {
      const auto differs = [&](const Occurrence& o) { return o.id != begin->id; };
      const auto end = std::find_if(begin, tokens.end(), differs);
      int64_t frequency = 0;
      for (auto o = begin; o != end; ++o) frequency += o == begin || o->report != (o - 1)->report;
      while (begin != end) {
        const int64_t s = begin->report;
        const auto next = std::find_if(begin, end, [&](const Occurrence& o) {
          return o.report != s;
        });
        const float weight = tfidf_weight(next - begin, report_start[s + 1] - report_start[s],
                                          log_reports, log_of[frequency], alpha);
        for (; begin != next; ++begin) out[begin->place] = weight;
      }
    }
  }
}

void span_max_cpu(TensorView saliency, TensorView piece_spans, TensorView piece_offsets,
                  TensorView token_spans, TensorView token_offsets, TensorView result) {
  const int64_t piece_count = saliency.size(0), token_count = token_spans.size(0);
  const int64_t reports = token_offsets.size(0) - 1;
  const float* value = elements<const float>(saliency, "saliency", {piece_count});
  const int32_t* pieces = elements<const int32_t>(piece_spans, "piece_spans", {piece_count, 2});
  const int64_t* piece_start =
      elements<const int64_t>(piece_offsets, "piece_offsets", {reports + 1});
  const int32_t* tokens = elements<const int32_t>(token_spans, "token_spans", {token_count, 2});
  const int64_t* token_start =
      elements<const int64_t>(token_offsets, "token_offsets", {reports + 1});
  float* out = elements<float>(result, "result", {token_count});
  for (int64_t s = 0; s < reports; ++s) {
    for (int64_t t = token_start[s]; t < token_start[s + 1]; ++t) {
      out[t] = span_max(value, pieces, piece_start[s], piece_start[s + 1], tokens[2 * t],
                        tokens[2 * t + 1]);
    }
  }
}

void byte_level_spans_cpu(TensorView token_ids, TensorView offsets, TensorView vocabulary_bytes,
                          TensorView vocabulary_offsets, TensorView spans) {
  const int64_t tokens = token_ids.size(0), reports = offsets.size(0) - 1;
  const int64_t size = vocabulary_bytes.size(0), words = vocabulary_offsets.size(0) - 1;
  const int64_t* ids = elements<const int64_t>(token_ids, "token_ids", {tokens});
  const int64_t* start = elements<const int64_t>(offsets, "offsets", {reports + 1});
  const uint8_t* bytes = elements<const uint8_t>(vocabulary_bytes, "vocabulary_bytes", {size});
  const int64_t* bounds =
      elements<const int64_t>(vocabulary_offsets, "vocabulary_offsets", {words + 1});
  int32_t* out = elements<int32_t>(spans, "spans", {tokens, 2});
  for (int64_t s = 0; s < reports; ++s) {
    byte_level_spans(ids + start[s], start[s + 1] - start[s], bytes, bounds, out + 2 * start[s]);
  }
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(tfidf_weights_cpu, rrgkern::tfidf_weights_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(span_max_cpu, rrgkern::span_max_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(byte_level_spans_cpu, rrgkern::byte_level_spans_cpu)
