#include <tvm/ffi/function.h>

#include <vector>

#include "entity_match/arguments.h"
#include "entity_match/cosine_cpu.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// The entities of a report by presence, each in rising order: what is looked for among them needs
// no branch for each candidate.
struct ByPresence {
  std::vector<int32_t> places[kPresences];

  void read(const EntityRows& rows, int64_t report) {
    for (auto& list : places) list.clear();
    for (int64_t e = rows.offsets[report]; e < rows.offsets[report + 1]; ++e) {
      places[rows.presence[e] + 1].push_back(static_cast<int32_t>(e - rows.offsets[report]));
    }
  }
};

// Every entity of `mine` in this report against all of `theirs`; the cosine of e and u stands at
// e * row + u * column of the matrix.
WeightedMean match_side(const EntityRows& mine, const EntityRows& theirs, int64_t report,
                        const ByPresence& candidates, const Affinity& affinity, float largest,
                        const float* matrix, int64_t row, int64_t column) {
  const int64_t first = mine.offsets[report], last = mine.offsets[report + 1];
  const int8_t* kind = theirs.kind + theirs.offsets[report];
  const double scale = WeightedMean::scale(largest, last - first);
  WeightedMean mean = {};
  for (int64_t e = first; e < last; ++e, matrix += row) {
    BestMatch best(mine.presence[e], mine.kind[e], affinity);
    for (int p = 0; p < kPresences; ++p) {
      float cosine = -INFINITY;
      int32_t place = -1;
      for (const int32_t u : candidates.places[p]) {
        const float value = matrix[u * column];
        if (value > cosine) {
          cosine = value;
          place = u;
        }
      }
      if (place < 0) continue;
      int8_t heaviest = kind[place];
      if (affinity.kinds > 1) {
        for (const int32_t u : candidates.places[p]) {
          if (matrix[u * column] == cosine && best.heavier(kind[u], heaviest)) heaviest = kind[u];
        }
      }
      best.take(p, cosine, place, heaviest);
    }
    best.store(mine.cosine + e * kMatches, mine.index + e * kMatches);
    best.add_to(&mean, scale);
  }
  return mean;
}

// Returns whether every row is a unit vector.
bool entity_match_cpu(TensorView x_offsets, TensorView x_presence, TensorView x_embedding,
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
  const float largest = affinity.largest();
  const CpuKernels& kernels = cpu_kernels().back();
  Panel left, right;
  ByPresence x_places, y_places;
  std::vector<float> matrix;
  bool unit = true;
  for (int64_t r = 0; r < reports; ++r) {
    const auto row_of = [&](const EntityRows& rows) {
      return [&rows, r, width](int64_t k) { return rows.embedding + (rows.offsets[r] + k) * width; };
    };
    unit &= left.fill(x.offsets[r + 1] - x.offsets[r], width, kernels, row_of(x));
    unit &= right.fill(y.offsets[r + 1] - y.offsets[r], width, kernels, row_of(y));
    matrix.resize(left.rows() * right.rows());
    cosine_matrix(left, right, false, matrix.data(), right.rows(), kernels);
    x_places.read(x, r);
    y_places.read(y, r);
    const int64_t columns = right.rows();
    const WeightedMean precision =
        match_side(x, y, r, y_places, affinity, largest, matrix.data(), columns, 1);
    const WeightedMean recall =
        match_side(y, x, r, x_places, affinity, largest, matrix.data(), 1, columns);
    score_report(!matrix.empty(), precision, recall, score + r * kScores);
  }
  return unit;
}

// The cosines alone, with the kernels of one kind of processor, for tests: 0 is any processor.
int64_t entity_match_cosines(TensorView a, TensorView b, TensorView cosines, int64_t kind) {
  const int64_t rows = a.size(0), columns = b.size(0), width = a.size(1);
  const CpuKernels& kernels = cpu_kernels().at(kind);
  const float* left_rows = elements<const float>(a, "a", {rows, width});
  const float* right_rows = elements<const float>(b, "b", {columns, width});
  Panel left, right;
  left.fill(rows, width, kernels, [&](int64_t k) { return left_rows + k * width; });
  right.fill(columns, width, kernels, [&](int64_t k) { return right_rows + k * width; });
  cosine_matrix(left, right, false, elements<float>(cosines, "cosines", {rows, columns}), columns,
                kernels);
  return cpu_kernels().size();
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(entity_match_cpu, rrgkern::entity_match_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(entity_match_cosines, rrgkern::entity_match_cosines)
