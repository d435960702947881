// CUDA for CPUs: what the persistent kernel and those of prompts on Hopper (prompts.cc) take of the language, the
// runtime and PTX, so that tests run them without a GPU (emulator.cc). A block is a thread of the system, and each of
// its threads a fiber, which goes on until it waits: for other lanes, at a barrier, for a copy, or for another block.
// Time passes slowly, so that deadlines hold.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
  unsigned v = 0;
  for (int i = 0; i < 4; i++) v |= (unsigned)(((uint64_t)y << 32 | x) >> (select >> 4 * i & 7) * 8 & 255) << 8 * i;
  return v;
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;

// ---------------------------------------------------------------- emulator.cc

namespace emulator {

// What a warp's lanes do together. A lane that does another thing than the others is an error.
enum WarpOp { SYNC, SHUFFLE, VOTE, REDUCE, MULTIPLY };
constexpr int MOST = 64;  // bytes of a lane's value

// Gives the value of this lane to the others and waits for theirs. Valid until the lane's next but one call.
const unsigned char (*gather(WarpOp what, const void *value, size_t bytes))[MOST];
void yield();                                                      // lets other fibers run
void arrive(int barrier, int threads, bool wait);                  // at a named barrier
void copy(void *to, const void *from, int bytes, uint64_t *full);  // ends at some later time
void came(int bytes, uint64_t *full, unsigned block);              // that another block stored
uint64_t nanoseconds();
void launch(dim3 grid, dim3 block, size_t shared, unsigned char *(*dynamic)(), bool cooperative,
            const std::function<void()> &kernel);

template <typename T> T lane_value(const unsigned char (*values)[MOST], int lane) {
  T v;
  memcpy(&v, values[lane & 31], sizeof v);
  return v;
}

}  // namespace emulator

// ---------------------------------------------------------------- the language

inline unsigned __float_as_uint(float v) { unsigned i; memcpy(&i, &v, 4); return i; }
inline float __int_as_float(int i) { float v; memcpy(&v, &i, 4); return v; }
inline float __uint_as_float(unsigned i) { float v; memcpy(&v, &i, 4); return v; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
template <typename T> T __ldg(const T *p) { return *p; }
template <typename T> T __ldcs(const T *p) { return *p; }
template <typename T> T __ldcg(const T *p) { return *(const volatile T *)p; }
inline uint4 __ldcg(const uint4 *p) { return *p; }
inline float4 __ldcg(const float4 *p) { return *p; }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned v) {
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
inline unsigned atomicOr(unsigned *p, unsigned v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
long long clock64();  // of waits that count clocks: each look takes 500
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline void __syncthreads() { emulator::arrive(0, (int)blockDim.x, true); }
inline void __syncwarp() { emulator::gather(emulator::SYNC, nullptr, 0); }
template <typename T> T __shfl_sync(unsigned, T v, int lane, int width = 32) {
  const int first = (int)(threadIdx.x % 32) & -width;
  return emulator::lane_value<T>(emulator::gather(emulator::SHUFFLE, &v, sizeof v), first + (lane & (width - 1)));
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int mask) {
  return emulator::lane_value<T>(emulator::gather(emulator::SHUFFLE, &v, sizeof v), (int)(threadIdx.x % 32) ^ mask);
}
template <typename T> T __shfl_up_sync(unsigned, T v, int by) {
  const int lane = (int)(threadIdx.x % 32);
  return emulator::lane_value<T>(emulator::gather(emulator::SHUFFLE, &v, sizeof v), lane >= by ? lane - by : lane);
}
inline unsigned __ballot_sync(unsigned, int v) {
  const auto all = emulator::gather(emulator::VOTE, &v, sizeof v);
  unsigned bits = 0;
  for (int i = 0; i < 32; i++) bits |= (unsigned)(emulator::lane_value<int>(all, i) != 0) << i;
  return bits;
}
inline int __any_sync(unsigned m, int v) { return __ballot_sync(m, v) != 0; }
template <typename T, typename F> T emulator_reduce(T v, F f) {
  const auto all = emulator::gather(emulator::REDUCE, &v, sizeof v);
  T sum = emulator::lane_value<T>(all, 0);
  for (int i = 1; i < 32; i++) sum = f(sum, emulator::lane_value<T>(all, i));
  return sum;
}
template <typename T> T __reduce_add_sync(unsigned, T v) {
  return emulator_reduce(v, [](T a, T b) { return (T)(a + b); });
}
template <typename T> T __reduce_max_sync(unsigned, T v) {
  return emulator_reduce(v, [](T a, T b) { return a > b ? a : b; });
}
template <typename T> T __reduce_min_sync(unsigned, T v) {
  return emulator_reduce(v, [](T a, T b) { return a < b ? a : b; });
}

// ---------------------------------------------------------------- PTX

// Addresses of shared memory have 32 bits: all of a block lies within 2 GiB.
inline uint32_t shared_address(const void *p) { return (uint32_t)(uintptr_t)p; }
inline void *of_shared(uint32_t a) {
  char *near = (char *)&threadIdx;
  asm("" : "+r"(near));  // else the compiler takes the size of that for the room there is (_FORTIFY_SOURCE)
  return near + (int32_t)(a - shared_address(near));
}
inline void *__cvta_shared_to_generic(size_t a) { return of_shared((uint32_t)a); }

inline void gs_let_next() {}
inline void gs_wait() {}
inline uint64_t gs_globaltimer() {
  emulator::yield();
  return emulator::nanoseconds();
}

// ---------------------------------------------------------------- the runtime

typedef int cudaError_t;
typedef void *cudaStream_t;
constexpr cudaError_t cudaSuccess = 0;
enum {
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributePreferredSharedMemoryCarveout,
  cudaLaunchAttributeCooperative
};
enum { cudaSharedmemCarveoutMaxShared, cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaLaunchAttribute {
  int id;
  struct {
    dim3 clusterDim;
    int programmaticStreamSerializationAllowed, sharedMemCarveout, cooperative;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  int numAttrs;
};
struct cudaFuncAttributes {
  int ptxVersion;
};
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void*) { return a->ptxVersion = 90, cudaSuccess; }
template <typename Kernel> cudaError_t cudaFuncSetAttribute(Kernel, int, int) { return cudaSuccess; }

namespace {
unsigned char *emulator_dynamic();  // the dynamic shared memory of the kernels of this file
template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(Params...), Args... args) {
  bool cooperative = false;
  for (int i = 0; i < c->numAttrs; i++) cooperative |= c->attrs[i].id == cudaLaunchAttributeCooperative;
  emulator::launch(c->gridDim, c->blockDim, c->dynamicSmemBytes, emulator_dynamic, cooperative,
                   [&] { kernel(args...); });
  return cudaSuccess;
}
}  // namespace
