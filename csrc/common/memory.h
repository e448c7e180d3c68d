// Huge pages for fresh memory: most of the time of writing it first is that of page faults.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace rrgkern {

// Asks for huge pages where memory that nobody has touched yet will be written from end to end.
// Advice only: a system that has none to give goes on with small ones.
inline void expect_first_touch(void* data, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHuge * kHuge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(data);
  static_cast<void>(bytes);
#endif
}

}  // namespace rrgkern
