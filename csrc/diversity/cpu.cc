#include <tvm/ffi/function.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "common/tensors.h"
#include "diversity/diversity.h"

namespace rrgkern {

using tvm::ffi::TensorView;

void diagnostic_diversity_cpu(TensorView positive, TensorView factor, TensorView radical,
                              TensorView roots, TensorView result) {
  const int64_t studies = positive.size(0), samples = positive.size(1), classes = positive.size(2);
  const uint8_t* labels =
      elements<const uint8_t>(positive, "positive", {studies, samples, classes});
  const Deviations deviations = {elements<const int64_t>(factor, "factor", {samples + 1}),
                                 elements<const int64_t>(radical, "radical", {samples + 1}),
                                 elements<const double>(roots, "roots", {roots.size(0)}),
                                 samples,
                                 classes,
                                 roots.size(0)};
  double* out = elements<double>(result, "result", {studies});
  for (int64_t s = 0; s < studies; ++s) {
    out[s] = diversity_of(labels + s * samples * classes, deviations);
  }
}

void rank_sample_cpu(TensorView diversity, int64_t seed, TensorView index, TensorView rank) {
  const int64_t studies = diversity.size(0), count = index.size(0);
  const double* values = elements<const double>(diversity, "diversity", {studies});
  int64_t* drawn = elements<int64_t>(index, "index", {count});
  int64_t* ranks = elements<int64_t>(rank, "rank", {studies});
  std::vector<StudyDraw> draws;
  for (int64_t s = 0; s < studies; ++s) {
    draws.push_back(study_draw(s, static_cast<uint64_t>(seed)));
  }
  std::vector<int64_t> order(studies);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::tie(values[b], draws[a].tie, a) < std::tie(values[a], draws[b].tie, b);
  });
  std::vector<double> keys(studies);
  for (int64_t place = 0; place < studies; ++place) {
    const int64_t s = order[place];
    ranks[s] = place + 1;
    keys[s] = race_key(draws[s].exponential, place + 1);
  }
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    return std::tie(keys[a], a) < std::tie(keys[b], b);
  });
  std::copy(order.begin(), order.begin() + count, drawn);
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(diagnostic_diversity_cpu, rrgkern::diagnostic_diversity_cpu)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(rank_sample_cpu, rrgkern::rank_sample_cpu)
