// Best matches between the entities of two reports and RaTEScore's mean of them: the core of CPU
// and CUDA.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"
#include "entity_match/cosine.h"

namespace rrgkern {

constexpr int kMatches = 3;          // among any entity, those of equal, those of opposite presence
constexpr int kScores = 3;           // precision, recall and their harmonic mean
constexpr int kPresences = 3;        // -1 neither, 0 absent, 1 present
constexpr float kNoEntities = 0.5f;  // RaTEScore's value where a report has none

struct EntityRows {
  const int64_t* offsets;   // [R+1]
  const int8_t* presence;   // [E] 1, 0 or -1 for neither
  const float* embedding;   // [E, width]
  const int8_t* kind;       // [E] below K
  float* cosine;            // [E, 3], filled here
  int32_t* index;           // [E, 3], filled here

  // Whether the integers are what they must be before anything is read by them.
  bool fine(int64_t reports, int64_t entities, int64_t kinds) const {
    bool good = offsets[0] == 0 && offsets[reports] == entities;
    for (int64_t r = 0; r < reports; ++r) good &= offsets[r] <= offsets[r + 1];
    for (int64_t e = 0; e < entities; ++e) {
      good &= presence[e] >= -1 && presence[e] <= 1 && kind[e] >= 0 && kind[e] < kinds;
    }
    return good;
  }
};

struct Affinity {
  const float* weight;   // [K, K] share of a match in the mean
  const float* crossed;  // [K, K] what its cosine counts where presence is opposite
  int64_t kinds;

  RRGKERN_HD float largest() const {
    float found = 0.0f;
    for (int64_t place = 0; place < kinds * kinds; ++place) {
      found = fmaxf(found, fmaxf(fabsf(weight[place]), fabsf(crossed[place])));
    }
    return found;
  }

  // Whether every weight is finite and not negative.
  bool fine() const {
    for (int64_t place = 0; place < kinds * kinds; ++place) {
      if (!(weight[place] >= 0.0f && crossed[place] >= 0.0f)) return false;
    }
    return largest() < INFINITY;
  }
};

// RaTEScore's weighted mean over one side of a report. The terms are rounded to a common unit and
// added as integers: no order of the entities changes the sum.
struct WeightedMean {
  int64_t total, mass;

  // A power of two in which `count` terms of at most `largest` stay below 2^62.
  static RRGKERN_HD double scale(float largest, int64_t count) {
    int exponent = 0;
    frexp(static_cast<double>(largest) * static_cast<double>(count), &exponent);
    return ldexp(1.0, 61 - exponent);
  }

  RRGKERN_HD double value() const {
    return mass != 0 ? static_cast<double>(total) / static_cast<double>(mass) : 0.0;
  }
};

// What one entity finds in the other report. Candidates come in rising order: ties keep the first.
class BestMatch {
 public:
  RRGKERN_HD BestMatch(int8_t presence, int8_t kind, const Affinity& affinity)
      : presence_(presence), row_(affinity.kinds * kind), affinity_(affinity) {
    for (int p = 0; p < kPresences; ++p) {
      cosine_[p] = -INFINITY;
      index_[p] = -1;
      kind_[p] = 0;
    }
  }

  RRGKERN_HD void offer(float value, int32_t place, int8_t presence, int8_t kind) {
    const int p = presence + 1;
    if (index_[p] < 0 || value > cosine_[p]) {
      take(p, value, place, kind);
    } else if (value == cosine_[p] && heavier(kind, kind_[p])) {
      kind_[p] = kind;
    }
  }

  // The best of all candidates of presence p - 1, and the heaviest kind among equals.
  RRGKERN_HD void take(int p, float value, int32_t place, int8_t kind) {
    cosine_[p] = value;
    index_[p] = place;
    kind_[p] = kind;
  }

  RRGKERN_HD bool heavier(int8_t one, int8_t other) const {
    const float mine = affinity_.weight[row_ + one], theirs = affinity_.weight[row_ + other];
    return mine != theirs ? mine > theirs
                          : affinity_.crossed[row_ + one] > affinity_.crossed[row_ + other];
  }

  RRGKERN_HD void store(float* cosine, int32_t* index) const {
    int best = 0;
    for (int p = 1; p < kPresences; ++p) {
      const bool first = cosine_[p] == cosine_[best] && index_[p] < index_[best];
      if (index_[p] >= 0 && (index_[best] < 0 || cosine_[p] > cosine_[best] || first)) best = p;
    }
    const int columns[kMatches] = {best, presence_ + 1, 2 - presence_};
    for (int column = 0; column < kMatches; ++column) {
      const bool none = column > 0 && presence_ < 0;
      cosine[column] = none ? -INFINITY : cosine_[columns[column]];
      index[column] = none ? -1 : index_[columns[column]];
    }
  }

  // The term of this entity: of equal cosines one that does not cross presence, of those the
  // heaviest, so that the place of an entity in its report never changes a score.
  RRGKERN_HD void add_to(WeightedMean* mean, double scale) const {
    int best = -1;
    for (int p = 0; p < kPresences; ++p) {
      if (index_[p] >= 0 && (best < 0 || preferred(p, best))) best = p;
    }
    if (best < 0) return;
    const float share = affinity_.weight[row_ + kind_[best]];
    const float gain = crosses(best) ? affinity_.crossed[row_ + kind_[best]] : share;
    const double term = static_cast<double>(cosine_[best]) * static_cast<double>(gain);
    mean->total += nearest(term * scale);
    mean->mass += nearest(static_cast<double>(share) * scale);
  }

 private:
  RRGKERN_HD bool crosses(int p) const { return presence_ >= 0 && p == 2 - presence_; }

  RRGKERN_HD bool preferred(int p, int other) const {
    if (cosine_[p] != cosine_[other]) return cosine_[p] > cosine_[other];
    if (crosses(p) != crosses(other)) return crosses(other);
    return heavier(kind_[p], kind_[other]);
  }

  // A NaN, of an embedding that the caller is told of, has no integer; nothing else is that large.
  static RRGKERN_HD int64_t nearest(double value) {
    return fabs(value) < 0x1p62 ? static_cast<int64_t>(rint(value)) : 0;
  }

  const int8_t presence_;
  const int64_t row_;
  const Affinity& affinity_;
  float cosine_[kPresences];
  int32_t index_[kPresences];
  int8_t kind_[kPresences];
};

// Precision, recall and score of one report.
RRGKERN_HD void score_report(bool both_have_entities, const WeightedMean& x, const WeightedMean& y,
                             float* scores) {
  if (!both_have_entities) {
    for (int k = 0; k < kScores; ++k) scores[k] = kNoEntities;
    return;
  }
  const double precision = x.value(), recall = y.value(), both = precision + recall;
  scores[0] = static_cast<float>(precision);
  scores[1] = static_cast<float>(recall);
  scores[2] = both != 0.0 ? static_cast<float>(2.0 * precision * recall / both) : 0.0f;
}

}  // namespace rrgkern
