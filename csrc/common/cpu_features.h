// What this machine lets a kernel use, asked of the processor itself: __builtin_cpu_supports is
// answered by the compiler's run-time library, and zig's, which builds the wheels, says no to all.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rrgkern {

struct CpuFeatures {
  bool avx2, fma, avx512f, avx512bw, avx512dq, avx512vl;
};

inline CpuFeatures cpu_features() {
#if defined(__x86_64__)
  static const CpuFeatures features = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const auto bit = [](unsigned word, int place) { return ((word >> place) & 1u) != 0; };
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d)) return CpuFeatures{};
    const bool fma = bit(c, 12);
    if (!bit(c, 27) || !bit(c, 28)) return CpuFeatures{};  // no XGETBV, no AVX
    // Which registers the system saves when it changes threads.
    unsigned saved = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const bool ymm = (saved & 0x6u) == 0x6u, zmm = (saved & 0xe6u) == 0xe6u;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return CpuFeatures{};
    return CpuFeatures{ymm && bit(b, 5),  ymm && fma,        zmm && bit(b, 16),
                       zmm && bit(b, 30), zmm && bit(b, 17), zmm && bit(b, 31)};
  }();
  return features;
#else
  return {};
#endif
}

}  // namespace rrgkern
