// Philox 4x32-10 (Salmon et al., SC 2011) and an unbiased draw below n from it.
#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace rrgkern {

struct PhiloxWords {
  uint32_t word[4];
};

RRGKERN_HD PhiloxWords philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Multiply-high with rejection (Lemire, 2019): draw d of an edit is the word at counter (edit, d).
RRGKERN_HD uint32_t uniform_below(uint32_t n, uint64_t seed, uint32_t edit) {
  const uint32_t reject_below = (0u - n) % n;  // 2^32 mod n
  for (uint32_t draw = 0;; ++draw) {
    const uint64_t product = static_cast<uint64_t>(philox(edit, draw, 0, 0, seed).word[0]) * n;
    if (static_cast<uint32_t>(product) >= reject_below) return static_cast<uint32_t>(product >> 32);
  }
}

}  // namespace rrgkern
