// TF-IDF weights, saliency between tokenizers, and character spans: the core of CPU and CUDA.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace rrgkern {

// The last part that begins at or before `item`: empty parts are passed over.
RRGKERN_HD int64_t part_of(const int64_t* offsets, int64_t parts, int64_t item) {
  int64_t low = 0, high = parts;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (offsets[middle] <= item ? low : high) = middle;
  }
  return low;
}

// 1 + alpha * tf * idf; the product is rounded to float before the 1 is added, in float.
RRGKERN_HD float tfidf_weight(int64_t count, int64_t length, double log_reports,
                              double log_frequency, double alpha) {
  const double tf = static_cast<double>(count) / static_cast<double>(length);
  return 1.0f + static_cast<float>(alpha * (tf * (log_reports - log_frequency)));
}

// The largest saliency among pieces [first, last) that share a character with [start, end).
RRGKERN_HD float span_max(const float* saliency, const int32_t* pieces, int64_t first, int64_t last,
                          int32_t start, int32_t end) {
  bool any = false;
  float best = 0.0f;
  for (int64_t p = first; p < last; ++p) {
    const int32_t from = start > pieces[2 * p] ? start : pieces[2 * p];
    const int32_t to = end < pieces[2 * p + 1] ? end : pieces[2 * p + 1];
    if (from >= to) continue;
    if (!any || saliency[p] > best) best = saliency[p];
    any = true;
  }
  return best;
}

// Counts characters byte by byte. A byte opens a character unless it may continue the one before
// (Unicode 15, table 3-7), so an ill-formed part counts once, as a decoder that replaces has it.
class Characters {
 public:
  RRGKERN_HD int32_t count() const { return count_; }

  RRGKERN_HD void add(uint8_t byte) {
    if (wanted_ > 0 && byte >= low_ && byte <= high_) {
      --wanted_;
      low_ = 0x80;
      high_ = 0xBF;
      return;
    }
    ++count_;
    wanted_ = byte >= 0xC2 && byte <= 0xDF ? 1
              : byte >= 0xE0 && byte <= 0xEF ? 2
              : byte >= 0xF0 && byte <= 0xF4 ? 3
                                             : 0;
    low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  }

 private:
  int32_t count_ = 0;
  int wanted_ = 0;
  uint8_t low_ = 0x80, high_ = 0xBF;
};

// Spans of the tokens of one report.
RRGKERN_HD void byte_level_spans(const int64_t* ids, int64_t tokens, const uint8_t* bytes,
                                 const int64_t* bounds, int32_t* spans) {
  Characters characters;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t first = bounds[ids[t]], last = bounds[ids[t] + 1];
    spans[2 * t] = characters.count();
    for (int64_t b = first; b < last; ++b) {
      characters.add(bytes[b]);
      if (b == first) spans[2 * t] = characters.count() - 1;
    }
    spans[2 * t + 1] = characters.count();
  }
}

}  // namespace rrgkern
