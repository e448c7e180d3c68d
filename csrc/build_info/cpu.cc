// What this binary was compiled from, read by the loader and by `python -m rrgkern`.
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#ifdef __clang__
#define RRGKERN_COMPILER "clang " __clang_version__
#else
#define RRGKERN_COMPILER "gcc " __VERSION__
#endif

namespace rrgkern {

// "rooms|architectures|compiler", for example "mccs:cpu;mccs:cuda|80;90|gcc 12.2.0".
tvm::ffi::String build_info() { return RRGKERN_ROOMS "|" RRGKERN_ARCHS "|" RRGKERN_COMPILER; }

}  // namespace rrgkern

TVM_FFI_DLL_EXPORT_TYPED_FUNC(build_info, rrgkern::build_info)
