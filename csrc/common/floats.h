// The types of 16 bits, and what to call a tensor's dtype in C++.
#pragma once

#include <cstdint>

namespace rrgkern {

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

enum class Float : int { kHalf, kBFloat16, kFloat, kDouble };

}  // namespace rrgkern
