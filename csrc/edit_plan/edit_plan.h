// The editing rules of EditGRPO (a to e) on one report pair: the core of CPU and CUDA.
//
// A sentence of the report under edit is a slot: ~i stands for its own sentence i, j >= 0 for
// reference sentence j. Sentences of equal text share the slot of the first such reference
// sentence, so "already in the report" is a comparison of numbers. Entities are numbered those of
// the report first, then those of the reference.
#pragma once

#include <cstdint>

#include "common/host_device.h"
#include "edit_plan/philox.h"

namespace rrgkern {

enum Rule : int8_t { kConflict = 1, kReplacement, kDeletion, kAddition, kFill };

struct SentenceRows {
  const int64_t* sentence_offsets;  // [R+1]
  const int64_t* sentence_key;      // [T]
  const int64_t* entity_offsets;    // [R+1]
  const int64_t* entity_sentence;   // [E] counted in its report
  const int8_t* presence;           // [E] 1, 0 or -1 for no part
  const int64_t* key;               // [E] text and type
  const float* embedding;           // [E, width]
};

struct EditOptions {
  float tau, tau_replace;
  int64_t max_edits;  // 0: to the fixed point
  bool conflict_requires_spurious;
};

// Where the edits of one pair go: [M] each.
struct EditRow {
  int8_t* rule;
  int32_t* sentence;
  int32_t* reference;
};

class EditedPair {
 public:
  // `state` holds 3 (Tx + Ty) integers and `flags` 2 (Ex + Ey) bytes of this pair, `cosine` the
  // (Ex + Ey)^2 cosines, read between entities that take part only.
  RRGKERN_HD EditedPair(const SentenceRows& x, const SentenceRows& y, int64_t report,
                        const float* cosine, int32_t* state, int8_t* flags,
                        const EditOptions& options)
      : x_(x),
        y_(y),
        options_(options),
        x_sentence_(x.sentence_offsets[report]),
        y_sentence_(y.sentence_offsets[report]),
        x_entity_(x.entity_offsets[report]),
        y_entity_(y.entity_offsets[report]),
        own_(static_cast<int32_t>(x.sentence_offsets[report + 1] - x_sentence_)),
        references_(static_cast<int32_t>(y.sentence_offsets[report + 1] - y_sentence_)),
        x_count_(x.entity_offsets[report + 1] - x_entity_),
        count_(x_count_ + y.entity_offsets[report + 1] - y_entity_),
        cosine_(cosine),
        first_(state),
        reference_in_(state + references_),
        own_in_(state + 2 * references_),
        slots_(state + 2 * references_ + own_),
        active_(flags),
        spurious_(flags + count_) {
    read_sentences();
    read_entities();
  }

  // Plans all edits; returns how many.
  RRGKERN_HD int32_t plan(uint64_t seed, const EditRow& out) {
    // More than one edit could undo itself for ever: then what equals a reference sentence stays.
    const bool lock = options_.max_edits != 1;
    int32_t done = 0;
    while (wanted_ && (options_.max_edits == 0 || done < options_.max_edits)) {
      Edit edit = {};
      if (!conflict(seed, done, lock, &edit) && !replacement(&edit) &&
          !deletion(seed, done, &edit) && !addition(seed, done, &edit)) {
        break;
      }
      out.rule[done] = edit.rule;
      out.sentence[done] = edit.sentence;
      out.reference[done] = edit.reference;
      apply(edit);
      ++done;
    }
    return done;
  }

 private:
  struct Edit {
    Rule rule;
    int32_t sentence, reference;
  };

  RRGKERN_HD void read_sentences() {
    const int64_t* keys = y_.sentence_key + y_sentence_;
    for (int32_t j = 0; j < references_; ++j) {
      first_[j] = 0;
      while (keys[first_[j]] != keys[j]) ++first_[j];
      reference_in_[j] = 0;
    }
    length_ = own_;
    for (int32_t i = 0; i < own_; ++i) {
      int32_t j = 0;
      while (j < references_ && keys[j] != x_.sentence_key[x_sentence_ + i]) ++j;
      slots_[i] = j < references_ ? j : ~i;
      own_in_[i] = 0;
      ++in_report(slots_[i]);
    }
  }

  // Equal text means equal entities: those of a later copy in the reference take no part, nor do
  // those of a sentence that the report shares with the reference.
  RRGKERN_HD void read_entities() {
    wanted_ = false;
    for (int64_t e = 0; e < count_; ++e) {
      const int32_t s = sentence(e);
      const bool counted = of_report(e) ? slots_[s] == ~s : first_[s] == s;
      active_[e] = counted && presence(e) >= 0;
      wanted_ |= active_[e] && !of_report(e);
    }
    for (int64_t e = 0; e < count_; ++e) {
      spurious_[e] = 0;
      if (!active_[e] || !of_report(e)) continue;
      spurious_[e] = 1;
      for (int64_t f = x_count_; f < count_; ++f) {
        if (active_[f] && near(e, f) && presence(e) == presence(f)) spurious_[e] = 0;
      }
    }
  }

  // (a) draws one of the (sentence, reference sentence) pairs in conflict.
  RRGKERN_HD bool conflict(uint64_t seed, int32_t number, bool lock, Edit* edit) const {
    uint32_t found = 0;
    for (int32_t i = 0; i < length_; ++i) {
      for (int32_t j = 0; j < references_; ++j) found += conflicts(i, j, lock);
    }
    if (found == 0) return false;
    uint32_t chosen = uniform_below(found, seed, number);
    for (int32_t i = 0; i < length_; ++i) {
      for (int32_t j = 0; j < references_; ++j) {
        if (conflicts(i, j, lock) && chosen-- == 0) {
          *edit = {kConflict, i, j};
          return true;
        }
      }
    }
    return false;
  }

  RRGKERN_HD bool conflicts(int32_t i, int32_t j, bool lock) const {
    const int32_t slot = slots_[i];
    if (!unused(j) || (lock && slot >= 0)) return false;
    for (int64_t e = 0; e < count_; ++e) {
      if (!holds(slot, e) || (options_.conflict_requires_spurious && !spurious_[e])) continue;
      for (int64_t f = x_count_; f < count_; ++f) {
        if (holds(first_[j], f) && near(e, f) && presence(e) != presence(f)) return true;
      }
    }
    return false;
  }

  // (b) the first sentence that a reference sentence about the same thing can replace.
  RRGKERN_HD bool replacement(Edit* edit) const {
    for (int32_t i = 0; i < length_; ++i) {
      if (!holds_spurious(i)) continue;
      float best = 0.0f;
      int32_t best_j = -1;
      for (int32_t j = 0; j < references_; ++j) {
        if (!unused(j) || !holds_any(first_[j])) continue;
        const float mean = likeness(slots_[i], first_[j]);
        if (best_j < 0 || mean > best) {
          best = mean;
          best_j = j;
        }
      }
      if (best_j >= 0 && best >= options_.tau_replace) {
        *edit = {kReplacement, i, best_j};
        return true;
      }
    }
    return false;
  }

  // Mean over the distinct spurious entities of a slot of the best cosine to an entity that is
  // within tau of reference sentence j, in the report as it stands or in the reference.
  RRGKERN_HD float likeness(int32_t slot, int32_t j) const {
    double total = 0.0;
    int32_t distinct = 0;
    for (int64_t e = 0; e < x_count_; ++e) {
      if (!holds(slot, e) || !spurious_[e] || named_before(e)) continue;
      bool any = false;
      float best = 0.0f;
      for (int64_t u = 0; u < count_; ++u) {
        if (!in_universe(u) || !about(u, j)) continue;
        const float value = cosine_[e * count_ + u];
        if (!any || value > best) best = value;
        any = true;
      }
      total += static_cast<double>(best);
      ++distinct;
    }
    return static_cast<float>(total / distinct);
  }

  // (c) deletes the first sentence with a spurious entity; (e) a report is not left empty.
  RRGKERN_HD bool deletion(uint64_t seed, int32_t number, Edit* edit) {
    for (int32_t i = 0; i < length_; ++i) {
      if (!holds_spurious(i)) continue;
      *edit = {kDeletion, i, -1};
      if (length_ == 1) {
        --in_report(slots_[i]);
        edit->reference = donor(seed, number);
        ++in_report(slots_[i]);
      }
      return true;
    }
    return false;
  }

  // (d) appends what is missing; (e) an empty report becomes it.
  RRGKERN_HD bool addition(uint64_t seed, int32_t number, Edit* edit) const {
    const int32_t j = donor(seed, number);
    if (j < 0) return false;
    *edit = {length_ > 0 ? kAddition : kFill, length_ > 0 ? length_ : -1, j};
    return true;
  }

  // Draws an unused reference sentence with a missing entity; -1 where there is none.
  RRGKERN_HD int32_t donor(uint64_t seed, int32_t number) const {
    uint32_t found = 0;
    for (int32_t j = 0; j < references_; ++j) found += unused(j) && holds_missing(first_[j]);
    if (found == 0) return -1;
    uint32_t chosen = uniform_below(found, seed, number);
    int32_t j = 0;
    while (!(unused(j) && holds_missing(first_[j])) || chosen-- != 0) ++j;
    return j;
  }

  RRGKERN_HD bool holds_missing(int32_t j) const {
    for (int64_t f = x_count_; f < count_; ++f) {
      if (!holds(j, f)) continue;
      bool covered = false;
      for (int64_t u = 0; u < count_ && !covered; ++u) {
        covered = held(u) && near(u, f) && presence(u) == presence(f);
      }
      if (!covered) return true;
    }
    return false;
  }

  RRGKERN_HD void apply(const Edit& edit) {
    const bool appends = edit.rule == kAddition || edit.rule == kFill;
    const int32_t place = appends ? length_ : edit.sentence;
    if (!appends) --in_report(slots_[place]);
    if (edit.reference >= 0) {
      slots_[place] = first_[edit.reference];
      ++in_report(slots_[place]);
      length_ += appends;
      return;
    }
    --length_;
    for (int32_t i = place; i < length_; ++i) slots_[i] = slots_[i + 1];
  }

  RRGKERN_HD bool of_report(int64_t e) const { return e < x_count_; }
  RRGKERN_HD int32_t sentence(int64_t e) const {
    return static_cast<int32_t>(of_report(e) ? x_.entity_sentence[x_entity_ + e]
                                             : y_.entity_sentence[y_entity_ + e - x_count_]);
  }
  RRGKERN_HD int8_t presence(int64_t e) const {
    return of_report(e) ? x_.presence[x_entity_ + e] : y_.presence[y_entity_ + e - x_count_];
  }
  RRGKERN_HD int32_t& in_report(int32_t slot) const {
    return slot >= 0 ? reference_in_[slot] : own_in_[~slot];
  }
  RRGKERN_HD bool unused(int32_t j) const { return reference_in_[first_[j]] == 0; }
  RRGKERN_HD int32_t slot_of(int64_t e) const { return of_report(e) ? ~sentence(e) : sentence(e); }
  RRGKERN_HD bool holds(int32_t slot, int64_t e) const { return active_[e] && slot_of(e) == slot; }
  RRGKERN_HD bool held(int64_t e) const { return active_[e] && in_report(slot_of(e)) > 0; }
  RRGKERN_HD bool in_universe(int64_t e) const { return of_report(e) ? held(e) : active_[e] != 0; }
  RRGKERN_HD bool near(int64_t e, int64_t u) const {
    return cosine_[e * count_ + u] > options_.tau;
  }
  RRGKERN_HD bool holds_any(int32_t slot) const {
    for (int64_t e = 0; e < count_; ++e) {
      if (holds(slot, e)) return true;
    }
    return false;
  }
  RRGKERN_HD bool holds_spurious(int32_t i) const {
    for (int64_t e = 0; e < x_count_; ++e) {
      if (holds(slots_[i], e) && spurious_[e]) return true;
    }
    return false;
  }
  RRGKERN_HD bool about(int64_t u, int32_t j) const {
    for (int64_t f = x_count_; f < count_; ++f) {
      if (holds(j, f) && near(u, f)) return true;
    }
    return false;
  }
  RRGKERN_HD bool named_before(int64_t e) const {
    const int64_t* keys = x_.key + x_entity_;
    for (int64_t d = 0; d < e; ++d) {
      if (spurious_[d] && sentence(d) == sentence(e) && keys[d] == keys[e]) return true;
    }
    return false;
  }

  const SentenceRows& x_;
  const SentenceRows& y_;
  const EditOptions& options_;
  const int64_t x_sentence_, y_sentence_, x_entity_, y_entity_;
  const int32_t own_, references_;
  const int64_t x_count_, count_;
  const float* const cosine_;
  int32_t* const first_;         // [references] the first reference sentence of equal text
  int32_t* const reference_in_;  // [references] how often it stands in the report
  int32_t* const own_in_;        // [own] whether the report's own sentence still stands
  int32_t* const slots_;         // the sentence list, at most own + references long
  int8_t* const active_;         // [count] takes part
  int8_t* const spurious_;       // [count]
  int32_t length_ = 0;
  bool wanted_ = false;
};

}  // namespace rrgkern
