// The editing rules of EditGRPO (a to e) on one report pair: the core of CPU and CUDA.
//
// A sentence of the report under edit is a slot: ~i stands for its own sentence i, j >= 0 for
// reference sentence j. Sentences of equal text share the slot of the first such reference
// sentence, so "already in the report" is a comparison of numbers. Entities that take part are
// numbered anew, those of the report first; sets of them are bits, 64 a word.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/host_device.h"
#include "common/philox.h"

namespace rrgkern {

enum Rule : int8_t { kConflict = 1, kReplacement, kDeletion, kAddition, kFill, kDeletionOfCopies };

struct SentenceRows {
  const int64_t* sentence_offsets;  // [R+1]
  const int64_t* sentence_key;      // [T]
  const int64_t* entity_offsets;    // [R+1]
  const int64_t* entity_sentence;   // [E] counted in its report
  const int8_t* presence;           // [E] 1, 0 or -1 for no part
  const int64_t* key;               // [E] text and type
  const float* embedding;           // [E, width]
  int64_t width;
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

// The threads that work on a pair: one on a CPU, a block on a GPU.
struct OneThread {
  RRGKERN_HD int rank() const { return 0; }
  RRGKERN_HD int size() const { return 1; }
  RRGKERN_HD void sync() const {}
};

struct PairSizes {
  int64_t own, references, entities;  // sentences of the report, of the reference; entities of both

  RRGKERN_HD int64_t words() const { return (entities + 63) / 64; }
  RRGKERN_HD int64_t sets() const { return entities + own + 2 * references + 6; }
  RRGKERN_HD int64_t numbers() const { return 4 + 2 * own + 3 * references + 2 * entities; }
  // What an EditedPair of these sizes, or of smaller ones, needs.
  RRGKERN_HD int64_t bytes() const {
    return 8 * sets() * words() + 4 * (entities * entities + numbers());
  }
};

RRGKERN_HD PairSizes pair_sizes(const int64_t* x_sentences, const int64_t* y_sentences,
                                const int64_t* x_entities, const int64_t* y_entities, int64_t r) {
  return {x_sentences[r + 1] - x_sentences[r], y_sentences[r + 1] - y_sentences[r],
          x_entities[r + 1] - x_entities[r] + y_entities[r + 1] - y_entities[r]};
}

// Every thread of a team makes its own; what they share lies in `space`, aligned to 8 bytes.
// First `read`, then the cosines are filled in, then `relate`, then one thread plans.
class EditedPair {
 public:
  RRGKERN_HD EditedPair(const SentenceRows& x, const SentenceRows& y, int64_t report,
                        const EditOptions& options, void* space)
      : x_(x),
        y_(y),
        options_(options),
        x_sentence_(x.sentence_offsets[report]),
        y_sentence_(y.sentence_offsets[report]),
        x_entity_(x.entity_offsets[report]),
        y_entity_(y.entity_offsets[report]),
        x_entities_(x.entity_offsets[report + 1] - x_entity_),
        sizes_(pair_sizes(x.sentence_offsets, y.sentence_offsets, x.entity_offsets,
                          y.entity_offsets, report)),
        own_(static_cast<int32_t>(sizes_.own)),
        references_(static_cast<int32_t>(sizes_.references)),
        words_(sizes_.words()) {
    near_ = static_cast<uint64_t*>(space);
    members_ = near_ + sizes_.entities * words_;
    about_ = members_ + (sizes_.own + sizes_.references) * words_;
    present_ = about_ + sizes_.references * words_;
    wanted_ = present_ + words_;
    spurious_ = wanted_ + words_;
    distinct_ = spurious_ + words_;
    held_ = distinct_ + words_;
    found_ = held_ + words_;
    cosine_ = reinterpret_cast<float*>(found_ + words_);
    counts_ = reinterpret_cast<int32_t*>(cosine_ + sizes_.entities * sizes_.entities);
    first_ = counts_ + 4;
    reference_in_ = first_ + references_;
    own_in_ = reference_in_ + references_;
    slots_ = own_in_ + own_;
    entity_ = slots_ + own_ + references_;
    slot_ = entity_ + sizes_.entities;
  }

  // Entities that take part, and the embedding of each.
  RRGKERN_HD int64_t count() const { return counts_[kCount]; }
  RRGKERN_HD const float* embedding(int64_t k) const {
    return of_report(k) ? x_.embedding + (x_entity_ + entity_[k]) * x_.width
                        : y_.embedding + (y_entity_ + entity_[k] - x_entities_) * y_.width;
  }
  // [count, count], symmetric.
  RRGKERN_HD float* cosine() const { return cosine_; }

  // Equal text means equal entities: those of a later copy in the reference take no part, nor do
  // those of a sentence that the report shares with the reference.
  template <typename Team>
  RRGKERN_HD void read(const Team& team) {
    const int64_t *keys = y_.sentence_key + y_sentence_, *own_keys = x_.sentence_key + x_sentence_;
    for (int32_t j = team.rank(); j < references_; j += team.size()) {
      int32_t first = 0;
      while (keys[first] != keys[j]) ++first;
      first_[j] = first;
      reference_in_[j] = 0;
    }
    team.sync();
    for (int32_t i = team.rank(); i < own_; i += team.size()) {
      int32_t j = 0;
      while (j < references_ && keys[j] != own_keys[i]) ++j;
      slots_[i] = j < references_ ? j : ~i;
      own_in_[i] = 0;
    }
    team.sync();
    for (int64_t e = team.rank(); e < sizes_.entities; e += team.size()) {
      const bool mine = e < x_entities_;
      const int64_t row = mine ? x_entity_ + e : y_entity_ + e - x_entities_;
      const int64_t s = mine ? x_.entity_sentence[row] : y_.entity_sentence[row];
      const bool counted = mine ? slots_[s] == ~s : first_[s] == s;
      const int8_t presence = mine ? x_.presence[row] : y_.presence[row];
      entity_[e] = counted && presence >= 0 ? presence : kNoPart;
      slot_[e] = static_cast<int32_t>(mine ? ~s : s);
    }
    const int64_t sets = sizes_.own + 2 * sizes_.references + 6;
    for (int64_t w = team.rank(); w < sets * words_; w += team.size()) members_[w] = 0;
    team.sync();
    if (team.rank() == 0) number_entities();
    team.sync();
  }

  // Who is near whom, once the cosines stand.
  template <typename Team>
  RRGKERN_HD void relate(const Team& team) {
    for (int64_t place = team.rank(); place < count() * words_; place += team.size()) {
      const float* row = cosine_ + place / words_ * count();
      const int64_t first = place % words_ * 64;
      const int64_t last = first + 64 < count() ? first + 64 : count();
      uint64_t bits = 0;
      for (int64_t u = first; u < last; ++u) {
        bits |= static_cast<uint64_t>(row[u] > options_.tau) << (u - first);
      }
      near_[place] = bits;
    }
    team.sync();
    for (int64_t place = team.rank(); place < sizes_.references * words_; place += team.size()) {
      const int64_t word = place % words_;
      const uint64_t* held = members_ + (sizes_.own + place / words_) * words_;
      uint64_t bits = 0;
      for (int64_t f = next(held, 0); f < count(); f = next(held, f + 1)) {
        bits |= near_[f * words_ + word];
      }
      about_[place] = bits;
    }
    for (int64_t word = team.rank(); word < words_; word += team.size()) find_spurious(word);
    team.sync();
    for (int64_t word = team.rank(); word < words_; word += team.size()) find_distinct(word);
    team.sync();
  }

  // Plans all edits; returns how many.
  RRGKERN_HD int32_t plan(uint64_t seed, const EditRow& out) {
    // More than one edit could undo itself for ever: then what equals a reference sentence stays.
    const bool lock = options_.max_edits != 1;
    int32_t done = 0;
    while (counts_[kCount] > counts_[kOwnCount] &&
           (options_.max_edits == 0 || done < options_.max_edits)) {
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
  enum { kCount, kOwnCount, kLength };  // what stands in `counts_`
  static constexpr int32_t kNoPart = -1;

  struct Edit {
    Rule rule;
    int32_t sentence, reference;
  };

  // Numbers the entities that take part; until here `entity_` holds their presence.
  RRGKERN_HD void number_entities() {
    counts_[kLength] = own_;
    for (int32_t i = 0; i < own_; ++i) ++in_report(slots_[i]);
    int32_t k = 0;
    counts_[kOwnCount] = 0;
    for (int32_t e = 0; e < sizes_.entities; ++e) {
      const int32_t presence = entity_[e];
      if (presence == kNoPart) continue;
      entity_[k] = e;
      slot_[k] = slot_[e];
      set(of_slot(slot_[k]), k);
      if (presence == 1) set(present_, k);
      if (slot_[k] >= 0) set(wanted_, k);
      counts_[kOwnCount] += slot_[k] < 0;
      ++k;
    }
    counts_[kCount] = k;
  }

  RRGKERN_HD void find_spurious(int64_t word) {
    for (int64_t e = 64 * word; e < 64 * word + 64 && of_report(e); ++e) {
      bool agreed = false;
      for (int64_t w = 0; w < words_; ++w) agreed |= (near_[e * words_ + w] & same(e, w)) != 0;
      if (!agreed) set(spurious_, e);
    }
  }

  // Of the spurious entities of a sentence with equal text and type the first.
  RRGKERN_HD void find_distinct(int64_t word) {
    const int64_t* keys = x_.key + x_entity_;
    for (int64_t e = 64 * word; e < 64 * word + 64 && of_report(e); ++e) {
      bool first = has(spurious_, e);
      for (int64_t d = 0; first && d < e; ++d) {
        first = !(has(spurious_, d) && slot_[d] == slot_[e] && keys[entity_[d]] == keys[entity_[e]]);
      }
      if (first) set(distinct_, e);
    }
  }

  // (a) draws one of the (sentence, reference sentence) pairs in conflict.
  RRGKERN_HD bool conflict(uint64_t seed, int32_t number, bool lock, Edit* edit) const {
    uint32_t found = 0;
    for (int32_t i = 0; i < length(); ++i) {
      if (!contradicted(i, lock)) continue;
      for (int32_t j = 0; j < references_; ++j) found += unused(j) && meets(of_slot(first_[j]));
    }
    if (found == 0) return false;
    uint32_t chosen = uniform_below(found, seed, static_cast<uint32_t>(number));
    for (int32_t i = 0; i < length(); ++i) {
      if (!contradicted(i, lock)) continue;
      for (int32_t j = 0; j < references_; ++j) {
        if (unused(j) && meets(of_slot(first_[j])) && chosen-- == 0) {
          *edit = {kConflict, i, j};
          return true;
        }
      }
    }
    return false;
  }

  // Leaves in `found_` the reference's entities that an entity of sentence i contradicts.
  RRGKERN_HD bool contradicted(int32_t i, bool lock) const {
    if (lock && slots_[i] >= 0) return false;
    const uint64_t* held = of_slot(slots_[i]);
    for (int64_t w = 0; w < words_; ++w) found_[w] = 0;
    bool any = false;
    for (int64_t e = next(held, 0); e < count(); e = next(held, e + 1)) {
      if (options_.conflict_requires_spurious && !has(spurious_, e)) continue;
      any = true;
      for (int64_t w = 0; w < words_; ++w) {
        found_[w] |= near_[e * words_ + w] & wanted_[w] & ~same(e, w);
      }
    }
    return any;
  }

  // (b) the first sentence that a reference sentence about the same thing can replace.
  RRGKERN_HD bool replacement(Edit* edit) const {
    hold();
    for (int32_t i = 0; i < length(); ++i) {
      if (!holds_spurious(i)) continue;
      float best = 0.0f;
      int32_t best_j = -1;
      for (int32_t j = 0; j < references_; ++j) {
        if (!unused(j) || empty(of_slot(first_[j]))) continue;
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
  // within tau of reference sentence j, in the report as it stands or in the reference. The
  // cosines are added as integers, in units of 2^-44: their order does not matter.
  RRGKERN_HD float likeness(int32_t slot, int32_t j) const {
    constexpr double kUnits = 17592186044416.0;  // 2^44
    const uint64_t *held = of_slot(slot), *about = about_ + j * words_;
    int64_t total = 0, distinct = 0;
    for (int64_t e = next(held, 0); e < count(); e = next(held, e + 1)) {
      if (!has(distinct_, e)) continue;
      bool any = false;
      float best = 0.0f;
      for (int64_t w = 0; w < words_; ++w) {
        for (uint64_t left = about[w] & (held_[w] | wanted_[w]); left != 0; left &= left - 1) {
          const float value = cosine_[e * count() + 64 * w + lowest(left)];
          if (!any || value > best) best = value;
          any = true;
        }
      }
      total += static_cast<int64_t>(rint(static_cast<double>(best) * kUnits));
      ++distinct;
    }
    return static_cast<float>(static_cast<double>(total) / (static_cast<double>(distinct) * kUnits));
  }

  // (c) deletes the first sentence with a spurious entity; (e) a report is not left empty.
  RRGKERN_HD bool deletion(uint64_t seed, int32_t number, Edit* edit) {
    for (int32_t i = 0; i < length(); ++i) {
      if (!holds_spurious(i)) continue;
      *edit = {kDeletion, i, -1};
      if (length() == 1) {
        --in_report(slots_[i]);
        edit->reference = donor(seed, number, 0);
        ++in_report(slots_[i]);
      }
      return true;
    }
    return false;
  }

  // (d) appends what is missing; (e) an empty report becomes it.
  RRGKERN_HD bool addition(uint64_t seed, int32_t number, Edit* edit) const {
    const int32_t j = donor(seed, number, length());
    if (j < 0) return false;
    *edit = {length() > 0 ? kAddition : kFill, length() > 0 ? length() : -1, j};
    return true;
  }

  // Draws an unused reference sentence with an entity that the first `sentences` of the report
  // miss; -1 where there is none.
  RRGKERN_HD int32_t donor(uint64_t seed, int32_t number, int32_t sentences) const {
    for (int64_t w = 0; w < words_; ++w) found_[w] = wanted_[w];
    for (int32_t i = 0; i < sentences; ++i) {
      const uint64_t* held = of_slot(slots_[i]);
      for (int64_t e = next(held, 0); e < count(); e = next(held, e + 1)) {
        for (int64_t w = 0; w < words_; ++w) found_[w] &= ~(near_[e * words_ + w] & same(e, w));
      }
    }
    uint32_t donors = 0;
    for (int32_t j = 0; j < references_; ++j) donors += unused(j) && meets(of_slot(first_[j]));
    if (donors == 0) return -1;
    uint32_t chosen = uniform_below(donors, seed, static_cast<uint32_t>(number));
    int32_t j = 0;
    while (!(unused(j) && meets(of_slot(first_[j]))) || chosen-- != 0) ++j;
    return j;
  }

  RRGKERN_HD void apply(const Edit& edit) {
    const bool appends = edit.rule == kAddition || edit.rule == kFill;
    const int32_t place = appends ? length() : edit.sentence;
    if (!appends) --in_report(slots_[place]);
    if (edit.reference >= 0) {
      slots_[place] = first_[edit.reference];
      ++in_report(slots_[place]);
      counts_[kLength] += appends;
      return;
    }
    --counts_[kLength];
    for (int32_t i = place; i < length(); ++i) slots_[i] = slots_[i + 1];
  }

  // Leaves in `held_` the entities of the report as it stands.
  RRGKERN_HD void hold() const {
    for (int64_t w = 0; w < words_; ++w) {
      held_[w] = 0;
      for (int32_t i = 0; i < length(); ++i) held_[w] |= of_slot(slots_[i])[w];
    }
  }

  RRGKERN_HD int32_t length() const { return counts_[kLength]; }
  RRGKERN_HD bool of_report(int64_t k) const { return k < counts_[kOwnCount]; }
  RRGKERN_HD int32_t& in_report(int32_t slot) const {
    return slot >= 0 ? reference_in_[slot] : own_in_[~slot];
  }
  RRGKERN_HD bool unused(int32_t j) const { return reference_in_[first_[j]] == 0; }
  RRGKERN_HD uint64_t* of_slot(int32_t slot) const {
    return members_ + (slot >= 0 ? own_ + slot : ~slot) * words_;
  }
  // The word of all reference entities whose presence equals that of e.
  RRGKERN_HD uint64_t same(int64_t e, int64_t word) const {
    return wanted_[word] & (has(present_, e) ? present_[word] : ~present_[word]);
  }
  RRGKERN_HD bool holds_spurious(int32_t i) const {
    const uint64_t* held = of_slot(slots_[i]);
    for (int64_t w = 0; w < words_; ++w) {
      if (held[w] & spurious_[w]) return true;
    }
    return false;
  }
  RRGKERN_HD bool meets(const uint64_t* set) const {
    for (int64_t w = 0; w < words_; ++w) {
      if (set[w] & found_[w]) return true;
    }
    return false;
  }
  RRGKERN_HD bool empty(const uint64_t* set) const {
    for (int64_t w = 0; w < words_; ++w) {
      if (set[w]) return false;
    }
    return true;
  }
  // The first member of a set from `from` on; `count()` where there is none.
  RRGKERN_HD int64_t next(const uint64_t* set, int64_t from) const {
    for (int64_t w = from / 64; w < words_; ++w) {
      const uint64_t left = w == from / 64 ? set[w] & (~uint64_t{0} << (from % 64)) : set[w];
      if (left != 0) return 64 * w + lowest(left);
    }
    return count();
  }
  static RRGKERN_HD int lowest(uint64_t word) {
#ifdef __CUDA_ARCH__
    return __ffsll(static_cast<long long>(word)) - 1;
#else
    return __builtin_ctzll(word);
#endif
  }
  static RRGKERN_HD bool has(const uint64_t* set, int64_t k) { return set[k / 64] >> (k % 64) & 1; }
  static RRGKERN_HD void set(uint64_t* bits, int64_t k) { bits[k / 64] |= uint64_t{1} << (k % 64); }

  const SentenceRows& x_;
  const SentenceRows& y_;
  const EditOptions& options_;
  const int64_t x_sentence_, y_sentence_, x_entity_, y_entity_, x_entities_;
  const PairSizes sizes_;
  const int32_t own_, references_;
  const int64_t words_;
  // Sets of entities.
  uint64_t* near_;      // [entities] those within tau of each
  uint64_t* members_;   // [own + references] those of each slot
  uint64_t* about_;     // [references] those within tau of one of the sentence
  uint64_t* present_;
  uint64_t* wanted_;    // the reference's
  uint64_t* spurious_;
  uint64_t* distinct_;  // of spurious ones of equal text and type in a sentence the first
  uint64_t* held_;      // the report's, as it stands
  uint64_t* found_;
  float* cosine_;
  int32_t* counts_;
  int32_t* first_;         // [references] the first reference sentence of equal text
  int32_t* reference_in_;  // [references] how often it stands in the report
  int32_t* own_in_;        // [own] whether the report's own sentence still stands
  int32_t* slots_;         // the sentence list, at most own + references long
  int32_t* entity_;        // [count] which of the pair's entities
  int32_t* slot_;          // [count] the slot that holds it
};

}  // namespace rrgkern
