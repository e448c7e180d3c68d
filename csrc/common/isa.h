// The instruction set of this machine, chosen when a kernel is called.
#pragma once

#include <tvm/ffi/error.h>

#include <cstdlib>
#include <cstring>

#include "common/cpu_features.h"

namespace rrgkern {

// A build of its own can leave the others out: the tests' mutants do.
#if defined(__x86_64__) && !defined(RRGKERN_PORTABLE_ONLY)
#define RRGKERN_X86 1
#endif

enum class Isa { portable, avx2, avx512 };

inline Isa best_isa() {
#ifdef RRGKERN_X86
  const CpuFeatures has = cpu_features();
  const bool avx2 = has.avx2 && has.fma;
  const bool avx512 = has.avx512f && has.avx512bw && has.avx512dq && has.avx512vl;
  // F16C came before AVX2; no processor has one and lacks the other.
  return avx2 && avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::portable;
#else
  return Isa::portable;
#endif
}

// RRGKERN_CPU asks for a lesser set than the machine has: read at each call, so that one process can
// compare them.
inline Isa isa() {
  const char* asked = std::getenv("RRGKERN_CPU");
  if (asked == nullptr || *asked == '\0') return best_isa();
  const char* const names[] = {"portable", "avx2", "avx512"};
  const int best = static_cast<int>(best_isa());
  for (int i = 0; i <= best; ++i) {
    if (std::strcmp(asked, names[i]) == 0) return static_cast<Isa>(i);
  }
  TVM_FFI_THROW(ValueError) << "RRGKERN_CPU is '" << asked
                            << "', wanted portable, avx2 or avx512, and on this machine at most "
                            << names[best];
  return Isa::portable;
}

// One of a room's tables, `room_portable` and so on.
#ifdef RRGKERN_X86
#define RRGKERN_OF_THIS_CPU(room) \
  (isa() == Isa::avx512 ? room##_avx512 : isa() == Isa::avx2 ? room##_avx2 : room##_portable)
#else
#define RRGKERN_OF_THIS_CPU(room) (static_cast<void>(isa()), room##_portable)
#endif

}  // namespace rrgkern
