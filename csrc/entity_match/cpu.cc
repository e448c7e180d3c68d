#include <tvm/ffi/function.h>

#include <atomic>
#include <vector>

#include "common/threads.h"
#include "entity_match/arguments.h"
#include "entity_match/cosine_cpu.h"
#include "entity_match/screen_cpu.h"

namespace rrgkern {

using tvm::ffi::TensorView;

// Brings memory into the cache a few lines at a time, between other work.
class Ahead {
 public:
  void add(const float* begin, int64_t count) {
    if (count > 0) parts_.push_back({begin, begin + count});
    lines_ += count / kLine + 1;
  }
  int64_t lines() const { return lines_; }

  void fetch(int64_t lines) {
    for (; lines > 0 && !parts_.empty(); --lines) {
      Part& part = parts_.back();
      __builtin_prefetch(part.next, 0, 2);
      part.next += kLine;
      --lines_;
      if (part.next >= part.end) parts_.pop_back();
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);
  struct Part {
    const float *next, *end;
  };
  std::vector<Part> parts_;
  int64_t lines_ = 0;
};

// What one thread needs to match a pair.
class PairMatch {
 public:
  PairMatch(int64_t width, size_t kind)
      : width_(width), kernels_(cpu_kernels().at(kind)), screen_(screen_kernels(kind)) {}

  // Finds the best of every entity; returns whether every row is a unit vector.
  bool fill(const EntityRows& x, const EntityRows& y, int64_t report, const Affinity& affinity,
            Ahead* ahead) {
    own_.read(x, report, width_, affinity);
    other_.read(y, report, width_, affinity);
    const int64_t rows = own_.count(), columns = other_.count();
    const int64_t stride = (columns + kTile - 1) / kTile * kTile;
    const auto row_of = [this](const Side& side) {
      return [&side, this](int64_t k) { return side.row(k, width_); };
    };
    if (screen_ != nullptr && worth_screening(rows, columns, width_)) {
      bool unit = integers_[0].fill(rows, width_, *screen_, row_of(own_));
      unit &= integers_[1].fill(columns, width_, *screen_, row_of(other_));
      const int64_t tiles = integers_[0].tiles() * integers_[1].tiles();
      const int64_t lines = ahead->lines() / (3 * tiles) + 1;  // the sums take as long twice over
      products_.resize(integers_[0].tiles() * kTile * stride);
      integer_matrix(integers_[0], integers_[1], products_.data(), stride, *screen_,
                     [&] { ahead->fetch(lines); });
      candidates_.fill(products_.data(), stride, own_.begin, other_.begin, kLowestProduct,
                       screen_margin(width_));
      // One by one a cosine costs about twice what it costs among all.
      if (2 * static_cast<int64_t>(candidates_.places().size()) <= rows * columns) {
        offer_candidates(ahead);
        return unit;
      }
    }
    bool unit = panels_[0].fill(rows, width_, kernels_, row_of(own_));
    unit &= panels_[1].fill(columns, width_, kernels_, row_of(other_));
    matrix_.resize(rows * stride);
    cosine_matrix(panels_[0], panels_[1], false, matrix_.data(), stride, kernels_);
    best_.fill(matrix_.data(), stride, own_.begin, other_.begin, -INFINITY, 0.0f);
    for (const Place& place : best_.places()) {
      offer(place, matrix_[place.row * stride + place.column]);
    }
    return unit;
  }

  // Writes down what was found, and the scores.
  void store(const EntityRows& x, const EntityRows& y, int64_t report, float largest,
             float* scores) const {
    score_report(own_.count() > 0 && other_.count() > 0, own_.store(x, report, largest),
                 other_.store(y, report, largest), scores);
  }

 private:
  // The entities of a report by presence, each kind in rising order, and what each has found.
  struct Side {
    std::vector<int32_t> place;
    std::vector<BestMatch> best;
    Bounds begin;
    const float* embedding;
    const int8_t *presence, *kind;

    void read(const EntityRows& rows, int64_t report, int64_t width, const Affinity& affinity) {
      const int64_t first = rows.offsets[report], count = rows.offsets[report + 1] - first;
      embedding = rows.embedding + first * width;
      presence = rows.presence + first;
      kind = rows.kind + first;
      place.clear();
      best.clear();
      for (int p = 0; p < kPresences; ++p) {
        begin[p] = static_cast<int64_t>(place.size());
        for (int64_t e = 0; e < count; ++e) {
          if (presence[e] + 1 != p) continue;
          place.push_back(static_cast<int32_t>(e));
          best.emplace_back(presence[e], kind[e], affinity);
        }
      }
      begin[kPresences] = count;
    }

    int64_t count() const { return begin[kPresences]; }
    const float* row(int64_t k, int64_t width) const { return embedding + place[k] * width; }

    WeightedMean store(const EntityRows& rows, int64_t report, float largest) const {
      const double scale = WeightedMean::scale(largest, count());
      WeightedMean mean = {};
      for (int64_t k = 0; k < count(); ++k) {
        const int64_t e = rows.offsets[report] + place[k];
        best[k].store(rows.cosine + e * kMatches, rows.index + e * kMatches);
        best[k].add_to(&mean, scale);
      }
      return mean;
    }
  };

  // Places come by rising row and column: in each presence by rising entity, as `offer` asks.
  void offer(const Place& at, float cosine) {
    const int32_t e = own_.place[at.row], u = other_.place[at.column];
    own_.best[at.row].offer(cosine, u, other_.presence[u], other_.kind[u]);
    other_.best[at.column].offer(cosine, e, own_.presence[e], own_.kind[e]);
  }

  void offer_candidates(Ahead* ahead) {
    const std::vector<Place>& places = candidates_.places();
    const int64_t lines = 2 * ahead->lines() / (static_cast<int64_t>(places.size()) + 1) + 1;
    for (size_t k = 0; k < places.size();) {
      const size_t next = k + 1 < places.size() && places[k + 1].row == places[k].row ? k + 1 : k;
      const float* rows[kAtOnce] = {other_.row(places[k].column, width_),
                                    other_.row(places[next].column, width_)};
      float found[kAtOnce];
      screen_->cosines(own_.row(places[k].row, width_), rows, width_, found);
      ahead->fetch(lines);
      offer(places[k], found[0]);
      if (next > k) offer(places[next], found[1]);
      k = next + 1;
    }
  }

  const int64_t width_;
  const CpuKernels& kernels_;
  const ScreenKernels* screen_;
  Side own_, other_;
  IntegerPanel integers_[2];
  std::vector<int32_t> products_;
  Shortlist<int32_t> candidates_;
  Panel panels_[2];
  std::vector<float> matrix_;
  Shortlist<float> best_;
};

// With the kernels of one kind of processor, 0 any, -1 the best this one has, on at most `threads`
// threads. Returns whether every input is fine, every row a unit vector; without that nothing that
// was filled in means anything.
bool entity_match_cpu(TensorView x_offsets, TensorView x_presence, TensorView x_embedding,
                      TensorView x_kind, TensorView y_offsets, TensorView y_presence,
                      TensorView y_embedding, TensorView y_kind, TensorView weight,
                      TensorView crossed, TensorView x_cosine, TensorView x_index,
                      TensorView y_cosine, TensorView y_index, TensorView scores, int64_t threads,
                      int64_t kind) {
  const int64_t reports = scores.size(0), width = x_embedding.size(1);
  const EntityRows x = entity_rows(x_offsets, x_presence, x_embedding, x_kind, x_cosine, x_index,
                                   reports, width);
  const EntityRows y = entity_rows(y_offsets, y_presence, y_embedding, y_kind, y_cosine, y_index,
                                   reports, width);
  const Affinity affinity = affinity_tables(weight, crossed);
  float* score = elements<float>(scores, "scores", {reports, kScores});
  if (!x.fine(reports, x_presence.size(0), affinity.kinds) ||
      !y.fine(reports, y_presence.size(0), affinity.kinds) || !affinity.fine()) {
    return false;
  }
  const float largest = affinity.largest();
  double work = 0.0;
  for (int64_t r = 0; r < reports; ++r) {
    work += static_cast<double>((x.offsets[r + 1] - x.offsets[r]) *
                                (y.offsets[r + 1] - y.offsets[r]) * width);
  }
  std::atomic<bool> unit{true};
  Items pairs(reports);
  on_threads(threads_for(work, threads), [&] {
    PairMatch match(width, kind < 0 ? cpu_kernels().size() - 1 : kind);
    for (int64_t first, last; pairs.take(&first, &last);) {
      for (int64_t r = first; r < last; ++r) {
        Ahead ahead;
        if (r + 1 < last) {
          for (const EntityRows* rows : {&x, &y}) {
            const int64_t next = rows->offsets[r + 1];
            ahead.add(rows->embedding + next * width, (rows->offsets[r + 2] - next) * width);
          }
        }
        if (!match.fill(x, y, r, affinity, &ahead)) unit = false;
        match.store(x, y, r, largest, score + r * kScores);
      }
    }
  });
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
