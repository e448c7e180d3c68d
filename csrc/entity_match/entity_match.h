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
constexpr float kNoEntities = 0.5f;  // RaTEScore's value where a report has none

struct EntityRows {
  const int64_t* offsets;   // [R+1]
  const int8_t* presence;   // [E] 1, 0 or -1 for neither
  const float* embedding;   // [E, width]
  const int8_t* kind;       // [E] below K
  float* cosine;            // [E, 3], filled here
  int32_t* index;           // [E, 3], filled here
};

struct Affinity {
  const float* weight;   // [K, K] share of a match in the mean
  const float* crossed;  // [K, K] what its cosine counts where presence is opposite
  int64_t kinds;
};

RRGKERN_HD bool opposite(int8_t mine, int8_t theirs) {
  return mine >= 0 && theirs >= 0 && mine != theirs;
}

RRGKERN_HD void clear(float* cosine, int32_t* index) {
  for (int column = 0; column < kMatches; ++column) {
    cosine[column] = -INFINITY;
    index[column] = -1;
  }
}

// Offers a candidate to one row of results. Candidates come in rising order: ties keep the first.
RRGKERN_HD void offer(float* cosine, int32_t* index, float value, int32_t place, int8_t mine,
                      int8_t theirs) {
  const bool known = mine >= 0 && theirs >= 0;
  const bool eligible[kMatches] = {true, known && mine == theirs, known && mine != theirs};
  for (int column = 0; column < kMatches; ++column) {
    if (eligible[column] && (index[column] < 0 || value > cosine[column])) {
      cosine[column] = value;
      index[column] = place;
    }
  }
}

// Sum of cosine * gain over sum of share, in the order of the entities; 0 without a share.
RRGKERN_HD double weighted_mean(const EntityRows& mine, const EntityRows& theirs, int64_t report,
                                const Affinity& affinity) {
  double total = 0.0, mass = 0.0;
  for (int64_t e = mine.offsets[report]; e < mine.offsets[report + 1]; ++e) {
    const int64_t u = theirs.offsets[report] + mine.index[e * kMatches];
    const int64_t place = mine.kind[e] * affinity.kinds + theirs.kind[u];
    const float share = affinity.weight[place];
    const bool crosses = opposite(mine.presence[e], theirs.presence[u]);
    const float gain = crosses ? affinity.crossed[place] : share;
    total += static_cast<double>(mine.cosine[e * kMatches]) * static_cast<double>(gain);
    mass += static_cast<double>(share);
  }
  return mass != 0.0 ? total / mass : 0.0;
}

// Precision, recall and score of one report, once its best matches stand.
RRGKERN_HD void score_report(const EntityRows& x, const EntityRows& y, int64_t report,
                             const Affinity& affinity, float* scores) {
  if (x.offsets[report] == x.offsets[report + 1] || y.offsets[report] == y.offsets[report + 1]) {
    for (int k = 0; k < kScores; ++k) scores[k] = kNoEntities;
    return;
  }
  const double precision = weighted_mean(x, y, report, affinity);
  const double recall = weighted_mean(y, x, report, affinity);
  const double both = precision + recall;
  scores[0] = static_cast<float>(precision);
  scores[1] = static_cast<float>(recall);
  scores[2] = both != 0.0 ? static_cast<float>(2.0 * precision * recall / both) : 0.0f;
}

}  // namespace rrgkern
