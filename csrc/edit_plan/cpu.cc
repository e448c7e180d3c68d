#include <tvm/ffi/function.h>

#include <algorithm>
#include <vector>

#include "common/threads.h"
#include "edit_plan/arguments.h"
#include "entity_match/cosine_cpu.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// The bytes that the largest of the pairs needs; [R+1] offsets on the host, whatever the device of
// the plan.
int64_t edit_plan_space(TensorView x_sentence_offsets, TensorView y_sentence_offsets,
                        TensorView x_entity_offsets, TensorView y_entity_offsets, bool released) {
  const int64_t bounds = x_sentence_offsets.size(0);
  const auto offsets = [&](const TensorView& tensor) {
    return elements<const int64_t>(tensor, "offsets", {bounds});
  };
  const int64_t *xs = offsets(x_sentence_offsets), *ys = offsets(y_sentence_offsets);
  const int64_t *xe = offsets(x_entity_offsets), *ye = offsets(y_entity_offsets);
  int64_t bytes = 0;
  for (int64_t r = 0; r + 1 < bounds; ++r) {
    bytes = std::max(bytes, released ? released_sizes(xe, ye, r).bytes()
                                     : pair_sizes(xs, ys, xe, ye, r).bytes());
  }
  return (bytes + 7) / 8 * 8;
}

// Plans every pair, on as many threads as the work is worth: each makes a plan of its own, a function
// of the pair that holds what it works on.
template <typename MakePlan>
void plan_all(const Pairs& pairs, int64_t threads, const MakePlan& make_plan) {
  double work = 0.0;
  for (int64_t r = 0; r < pairs.reports; ++r) {
    const ReleasedSizes sizes = released_sizes(pairs.x.entity_offsets, pairs.y.entity_offsets, r);
    const double entities = static_cast<double>(sizes.own + sizes.wanted);
    work += entities * entities * static_cast<double>(pairs.width) / 2.0;
  }
  Items reports(pairs.reports);
  on_threads(threads_for(work, threads), [&] {
    auto plan = make_plan();
    for (int64_t first, last; reports.take(&first, &last);) {
      for (int64_t r = first; r < last; ++r) plan(r);
    }
  });
}

struct Space {
  std::vector<uint64_t> words;

  void* of(int64_t bytes) {
    if (words.size() < static_cast<size_t>(bytes / 8 + 1)) words.resize(bytes / 8 + 1);
    return words.data();
  }
};

void edit_plan_cpu(const Pairs& pairs, double tau, double tau_replace, int64_t max_edits,
                   bool conflict_requires_spurious, TensorView rule, TensorView sentence,
                   TensorView reference, TensorView count, int64_t threads) {
  const SentenceRows &x = pairs.x, &y = pairs.y;
  const EditOptions options = {static_cast<float>(tau), static_cast<float>(tau_replace), max_edits,
                               conflict_requires_spurious};
  const Scripts out = scripts(rule, sentence, reference, count);
  const CpuKernels& kernels = cpu_kernels().back();
  const OneThread alone;
  plan_all(pairs, threads, [&] {
    return [&, space = Space(), panel = Panel()](int64_t r) mutable {
      const int64_t bytes = pair_sizes(x.sentence_offsets, y.sentence_offsets, x.entity_offsets,
                                       y.entity_offsets, r)
                                .bytes();
      EditedPair pair(x, y, r, options, space.of(bytes));
      pair.read(alone);
      const int64_t n = pair.count();
      panel.fill(n, pairs.width, kernels, [&](int64_t k) { return pair.embedding(k); });
      float* matrix = pair.cosine();
      cosine_matrix(panel, panel, true, matrix, n, kernels);
      for (int64_t e = 0; e < n; ++e) {
        for (int64_t u = e + 1; u < n; ++u) matrix[u * n + e] = matrix[e * n + u];
      }
      pair.relate(alone);
      out.count[r] = pair.plan(static_cast<uint64_t>(pairs.seeds[r]), out.row(r));
    };
  });
}

void edit_plan_released_cpu(const Pairs& pairs, TensorView affinity, double tau, double tau_replace,
                            double neg_weight, TensorView rule, TensorView sentence,
                            TensorView reference, TensorView count, int64_t threads) {
  const SentenceRows &x = pairs.x, &y = pairs.y;
  const ReleasedOptions options = released_options(affinity, tau, tau_replace, neg_weight);
  const Scripts out = scripts(rule, sentence, reference, count);
  const CpuKernels& kernels = cpu_kernels().back();
  plan_all(pairs, threads, [&] {
    return [&, space = Space(), left = Panel(), right = Panel()](int64_t r) mutable {
      const int64_t bytes = released_sizes(x.entity_offsets, y.entity_offsets, r).bytes();
      const ReleasedPair pair(x, pairs.x_kind, y, pairs.y_kind, r, options, space.of(bytes));
      left.fill(pair.own(), pairs.width, kernels, [&](int64_t e) { return pair.own_embedding(e); });
      right.fill(pair.wanted(), pairs.width, kernels,
                 [&](int64_t f) { return pair.wanted_embedding(f); });
      cosine_matrix(left, right, false, pair.cosine(), pair.wanted(), kernels);
      pair.relate(OneThread());
      out.count[r] = pair.plan(static_cast<uint64_t>(pairs.seeds[r]), out.row(r));
    };
  });
}

// The draw alone, for tests: scripts never have enough choices to reach a rejection.
int64_t edit_plan_draw(int64_t n, int64_t seed, int64_t edit) {
  return uniform_below(static_cast<uint32_t>(n), static_cast<uint64_t>(seed),
                       static_cast<uint32_t>(edit));
}

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_cpu,
                              (rrgkern::FromTensors<rrgkern::edit_plan_cpu, 15>::call))
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_released_cpu,
                              (rrgkern::FromTensors<rrgkern::edit_plan_released_cpu, 17>::call))
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_draw, rrgkern::edit_plan_draw)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(edit_plan_space, rrgkern::edit_plan_space)
