// Marks the functions that cpu.cc and cuda.cu of a room share.
#pragma once

#ifdef __CUDACC__
#define RRGKERN_HD __host__ __device__ inline
#else
#define RRGKERN_HD inline
#endif
