// The one edit that EditGRPO's published code makes of a report pair: the core of CPU and CUDA.
//
// Two entities are alike where cosine times affinity (times `neg_weight` across a negation) reaches
// tau. Every comparison is in double, as the published code has it.
#pragma once

#include <cstdint>

#include "common/host_device.h"
#include "common/philox.h"
#include "edit_plan/edit_plan.h"

namespace rrgkern {

struct ReleasedOptions {
  double tau, tau_replace, neg_weight;
  const double* affinity;  // [kinds, kinds], the report's kind first
  int64_t kinds;
};

struct ReleasedSizes {
  int64_t own, wanted;  // entities of the report, of the reference

  RRGKERN_HD int64_t bytes() const { return 4 * own * wanted + 4 * wanted + own + 2 * wanted; }
};

RRGKERN_HD ReleasedSizes released_sizes(const int64_t* x_entities, const int64_t* y_entities,
                                        int64_t r) {
  return {x_entities[r + 1] - x_entities[r], y_entities[r + 1] - y_entities[r]};
}

// Every thread of a team makes its own; what they share lies in `space`, aligned to 4 bytes. First
// the cosines are filled in, then `relate`, then one thread plans.
class ReleasedPair {
 public:
  RRGKERN_HD ReleasedPair(const SentenceRows& x, const int8_t* x_kind, const SentenceRows& y,
                          const int8_t* y_kind, int64_t report, const ReleasedOptions& options,
                          void* space)
      : x_(x, x_kind, report),
        y_(y, y_kind, report),
        options_(options),
        width_(x.width),
        cosine_(static_cast<float*>(space)) {
    leader_ = reinterpret_cast<int32_t*>(cosine_ + x_.entities * y_.entities);
    spurious_ = reinterpret_cast<int8_t*>(leader_ + y_.entities);
    missing_ = spurious_ + x_.entities;
    contradicted_ = missing_ + y_.entities;
  }

  RRGKERN_HD int64_t own() const { return x_.entities; }
  RRGKERN_HD int64_t wanted() const { return y_.entities; }
  RRGKERN_HD const float* own_embedding(int64_t e) const { return x_.embedding + e * width_; }
  RRGKERN_HD const float* wanted_embedding(int64_t f) const { return y_.embedding + f * width_; }
  // [own, wanted]
  RRGKERN_HD float* cosine() const { return cosine_; }

  // Which entities are spurious, which missing.
  template <typename Team>
  RRGKERN_HD void relate(const Team& team) const {
    for (int64_t f = team.rank(); f < wanted(); f += team.size()) {
      bool found = false;
      for (int64_t e = 0; e < own(); ++e) found |= alike(e, f);
      missing_[f] = !found;
      contradicted_[f] = false;
      int64_t first = 0;
      while (y_.text(first) != y_.text(f)) ++first;
      leader_[f] = static_cast<int32_t>(first);
    }
    team.sync();
    for (int64_t e = team.rank(); e < own(); e += team.size()) {
      bool found = false;
      int64_t best = 0;
      for (int64_t f = 0; f < wanted(); ++f) {
        found |= alike(e, f);
        if (likeness(e, f) > likeness(e, best)) best = f;
      }
      spurious_[e] = !found;
      // Several entities may contradict the same one: all write the same byte.
      if (wanted() > 0 && crosses(e, best) && plain(e, best) >= options_.tau) {
        contradicted_[best] = true;
      }
    }
    team.sync();
    for (int64_t f = team.rank(); f < wanted(); f += team.size()) {
      for (int64_t g = 0; missing_[f] && g < wanted(); ++g) {
        missing_[f] = !(contradicted_[g] && y_.key[g] == y_.key[f] && y_.text(g) == y_.text(f));
      }
    }
    team.sync();
  }

  // Plans the edit, if there is one; returns how many there are.
  RRGKERN_HD int32_t plan(uint64_t seed, const EditRow& out) const {
    if (x_.sentences == 0) return 0;
    int64_t first = -1;
    for (int64_t e = 0; e < own(); ++e) {
      if (!spurious_[e]) continue;
      if (first < 0) first = e;
      const int64_t group = replacement(e);
      if (group >= 0) return put(out, kReplacement, x_.place(x_.text(e)), reference(group));
    }
    if (first >= 0) {
      const int64_t text = x_.text(first);
      int64_t donor = -1;
      if (x_.holds_only(text)) donor = drawn(seed, true, text);
      return put(out, kDeletionOfCopies, x_.place(text), donor < 0 ? -1 : reference(donor));
    }
    const int64_t chosen = drawn(seed, false, 0);
    if (chosen < 0 || x_.place(y_.text(chosen)) >= 0) return 0;
    return put(out, kAddition, static_cast<int32_t>(x_.sentences), reference(chosen));
  }

 private:
  struct Side {
    int64_t sentences, entities;
    const int64_t *sentence_key, *sentence, *key;
    const int8_t *presence, *kind;
    const float* embedding;

    RRGKERN_HD Side(const SentenceRows& rows, const int8_t* kinds, int64_t report)
        : sentences(rows.sentence_offsets[report + 1] - rows.sentence_offsets[report]),
          entities(rows.entity_offsets[report + 1] - rows.entity_offsets[report]),
          sentence_key(rows.sentence_key + rows.sentence_offsets[report]),
          sentence(rows.entity_sentence + rows.entity_offsets[report]),
          key(rows.key + rows.entity_offsets[report]),
          presence(rows.presence + rows.entity_offsets[report]),
          kind(kinds + rows.entity_offsets[report]),
          embedding(rows.embedding + rows.entity_offsets[report] * rows.width) {}

    RRGKERN_HD int64_t text(int64_t entity) const { return sentence_key[sentence[entity]]; }
    // The first sentence of this text; -1 where there is none.
    RRGKERN_HD int32_t place(int64_t wanted) const {
      for (int64_t i = 0; i < sentences; ++i) {
        if (sentence_key[i] == wanted) return static_cast<int32_t>(i);
      }
      return -1;
    }
    RRGKERN_HD bool holds_only(int64_t wanted) const {
      for (int64_t i = 0; i < sentences; ++i) {
        if (sentence_key[i] != wanted) return false;
      }
      return true;
    }
  };

  RRGKERN_HD double plain(int64_t e, int64_t f) const { return cosine_[e * wanted() + f]; }
  RRGKERN_HD bool crosses(int64_t e, int64_t f) const {
    return x_.presence[e] >= 0 && y_.presence[f] >= 0 && x_.presence[e] != y_.presence[f];
  }
  RRGKERN_HD double likeness(int64_t e, int64_t f) const {
    const double weighed = plain(e, f) * options_.affinity[x_.kind[e] * options_.kinds + y_.kind[f]];
    return weighed * (crosses(e, f) ? options_.neg_weight : 1.0);
  }
  RRGKERN_HD bool alike(int64_t e, int64_t f) const { return likeness(e, f) >= options_.tau; }
  RRGKERN_HD int32_t reference(int64_t f) const { return y_.place(y_.text(f)); }

  // The first of the reference's texts, in the order of their first entities, that is nearest to e;
  // -1 where none but that of e itself is near enough. A cosine below 0 counts as 0.
  RRGKERN_HD int64_t replacement(int64_t e) const {
    double nearest = -1.0;
    int64_t found = -1;
    for (int64_t f = 0; f < wanted(); ++f) {
      if (y_.text(f) == x_.text(e)) continue;
      const double value = plain(e, f) > 0.0 ? plain(e, f) : 0.0;
      if (value > nearest || (value == nearest && leader_[f] < found)) found = leader_[f];
      if (value > nearest) nearest = value;
    }
    return nearest >= options_.tau_replace ? found : -1;
  }

  // One of the missing entities, drawn; of those in another text where `elsewhere`. -1 for none.
  RRGKERN_HD int64_t drawn(uint64_t seed, bool elsewhere, int64_t text) const {
    uint32_t count = 0;
    for (int64_t f = 0; f < wanted(); ++f) count += donates(f, elsewhere, text);
    if (count == 0) return -1;
    uint32_t chosen = uniform_below(count, seed, 0);
    int64_t f = 0;
    while (!donates(f, elsewhere, text) || chosen-- != 0) ++f;
    return f;
  }
  RRGKERN_HD bool donates(int64_t f, bool elsewhere, int64_t text) const {
    return missing_[f] && !(elsewhere && y_.text(f) == text);
  }

  static RRGKERN_HD int32_t put(const EditRow& out, Rule rule, int32_t sentence,
                                int32_t reference) {
    *out.rule = rule;
    *out.sentence = sentence;
    *out.reference = reference;
    return 1;
  }

  const Side x_, y_;
  const ReleasedOptions& options_;
  const int64_t width_;
  float* cosine_;
  int32_t* leader_;       // [wanted] the first entity in a sentence of equal text
  int8_t* spurious_;      // [own]
  int8_t* missing_;       // [wanted]
  int8_t* contradicted_;  // [wanted]
};

}  // namespace rrgkern
