// Common to all kernel files: errors, the stream, launches, types, reductions.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

#include "../cuda/abi.h"

struct gs_stream {
  int device;
  cudaStream_t stream;
  bool overlap;       // launches use programmatic stream serialization
  bool ordered;       // but not the next one, which reads constants that the one before it writes
  int major, minor;   // compute capability of the library's code for the GPU: kernels for later ones are empty there
  int processors;     // SMs
  int shared_per_block;  // bytes, the most that a kernel can be allowed
  int l2_bytes;
  struct gs_blas_state *blas;  // of gemm.cu: handle, workspace, products; created at the first use
  struct {
    gs_ptr areas;             // 0: kernels do not stamp
    uint32_t count, used;
    struct gs_stamp_taken *taken;  // the kernels that took areas, or would have if there were more
  } stamps;
};

// The first parameter of a kernel that can stamp is a gs_stamp. Those that decode steps run in each layer are compiled
// twice, with a gs_unstamped too: the branches of a stamp that is off delay the first read of a kernel by 45 ns on an
// H200. The type S is their last template parameter.

// Where a kernel stamps; nowhere if area is null. A kernel parameter, so that it is read together with the others.
struct gs_stamp {
  uint64_t *area;
};

// The kernel has no code that stamps.
struct gs_unstamped {};

// Calls f with a gs_stamp if the stream's kernels stamp, else with a gs_unstamped. Checks (GS_CHECK) compile the
// kernels of gs_stamp only, which have the code of the others.
template <typename F> int gs_with_stamps(const gs_stream *s, F f) {
#ifndef GS_CHECK
  if (!s->stamps.areas) return f(gs_unstamped());
#endif
  return f(gs_stamp());
}

// The kernel that took an area.
struct gs_stamp_taken {
  const char *name;
  uint32_t blocks;
};

// Takes the next area of the stream for a kernel and its grid.
gs_stamp gs_next_stamp(gs_stream *s, const char *name, dim3 grid);

// Frees what gemm.cu keeps in a stream.
void gs_blas_release(gs_stream *s);

// Keeps the message of a failure for gs_error and returns the status.
int gs_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Makes a device the current one of the calling thread, as launches need.
int gs_use(int device);

// Finds a function of the driver, by its name.
int gs_driver_function(const char *name, void **out);

// Converts a cudaError_t to a status; what names the call.
int gs_check(cudaError_t e, const char *what);

#define GS_CHECK_SIZE(a)                                                                       \
  do {                                                                                         \
    if ((a)->size != sizeof *(a))                                                              \
      return gs_fail(GS_ARGUMENT, "%s: an argument struct of %u bytes, not %zu", __func__, (a)->size, sizeof *(a)); \
  } while (0)

// The first line of every launcher: checks the size of the struct and makes the stream's device current.
#define GS_ENTER(s, a)                                    \
  do {                                                    \
    GS_CHECK_SIZE(a);                                     \
    if (int status_ = gs_use((s)->device)) return status_; \
  } while (0)

// How a kernel is launched, beyond its grid.
struct gs_how {
  unsigned cluster = 1;  // blocks, along x, of a thread block cluster
  // Prefer the most shared memory and the least L1 cache. An SM changes the division of its memory only while it is
  // idle, so kernels that overlap must ask for the same one. Kernels that read much through the L1 cache become slower.
  bool most_shared = false;
  bool cooperative = false;  // all blocks are resident at once, after all kernels before, or the launch fails
};

// The first of the types, or void.
template <typename First = void, typename...> struct gs_first {
  using type = First;
};

// Launches a kernel on the stream; it overlaps the kernel before it if the stream allows that. The kernel must call
// gs_wait() before it reads or writes what an earlier kernel writes, and before it writes anything. If its first
// parameter is a gs_stamp or a gs_unstamped, that is not among the arguments.
template <typename... Params, typename... Args>
int gs_launch_as(gs_stream *s, const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                 gs_how how, Args... args) {
  if (int status = gs_use(s->device)) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = s->stream;
  cudaLaunchAttribute attributes[3];
  config.attrs = attributes;
  auto value = [&](auto id) -> auto & {
    attributes[config.numAttrs].id = id;
    return attributes[config.numAttrs++].val;
  };
  if (how.cluster > 1) value(cudaLaunchAttributeClusterDimension).clusterDim = {how.cluster, 1, 1};
  if (how.cooperative) value(cudaLaunchAttributeCooperative).cooperative = 1;
  if (s->overlap && !s->ordered && !how.cooperative)
    value(cudaLaunchAttributeProgrammaticStreamSerialization).programmaticStreamSerializationAllowed = 1;
  if (s->overlap && how.most_shared)
    value(cudaLaunchAttributePreferredSharedMemoryCarveout).sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  s->ordered = false;
  using First = typename gs_first<Params...>::type;
  if constexpr (std::is_same_v<First, gs_stamp>)
    return gs_check(cudaLaunchKernelEx(&config, kernel, gs_next_stamp(s, name, grid), args...), name);
  else if constexpr (std::is_same_v<First, gs_unstamped>)
    return gs_check(cudaLaunchKernelEx(&config, kernel, gs_unstamped(), args...), name);
  else
    return gs_check(cudaLaunchKernelEx(&config, kernel, args...), name);
}

template <typename... Params, typename... Args>
int gs_launch(gs_stream *s, const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
              Args... args) {
  return gs_launch_as(s, name, kernel, grid, block, shared, gs_how(), args...);
}

// Allows a kernel `bytes` of dynamic shared memory, more than the default of 48 KB: once per kernel and device, which
// `allowed` notes. Concurrent calls do no harm.
inline int gs_allow_shared(const gs_stream *s, const void *kernel, uint64_t *allowed, size_t bytes) {
  const uint64_t bit = s->device < 64 ? uint64_t(1) << s->device : 0;
  if (__atomic_load_n(allowed, __ATOMIC_RELAXED) & bit) return GS_OK;
  const int status = gs_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
                              "cudaFuncSetAttribute");
  if (status == GS_OK) __atomic_fetch_or(allowed, bit, __ATOMIC_RELAXED);
  return status;
}
template <auto kernel> int gs_allow_shared(const gs_stream *s, size_t bytes) {
  static uint64_t allowed;
  return gs_allow_shared(s, (const void *)kernel, &allowed, bytes);
}

// The names of each op's variants, null-terminated, by gs_variant's n.
extern const char *const gs_embed_variants[];
extern const char *const gs_layernorm_variants[];
extern const char *const gs_linear_variants[];
extern const char *const gs_attention_variants[];
extern const char *const gs_activation_variants[];
extern const char *const gs_add_variants[];
extern const char *const gs_sample_variants[];

#ifdef __CUDACC__

#ifndef GS_EMULATED  // csrc/emulator has its own
// Lets the next kernel of the stream start, up to its gs_wait().
__device__ inline void gs_let_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels before this one are complete and their writes visible.
__device__ inline void gs_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline uint64_t gs_globaltimer() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)::"memory");
  return t;
}

__device__ inline uint32_t shared_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Returns 2^x with an error of at most 2 ulp; results below 2^-126 become 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x and 1 / sqrt(x) with errors of at most 1 and 2 ulp, for x and results from 2^-126 on.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float reciprocal_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

// Stamps start and end of a block. The constructor runs before gs_wait(), which hides the time it takes; start() comes
// right after gs_wait(). One thread stamps for the block, best one that is idle at the end.
template <typename S> class gs_stamped;
template <typename S> gs_stamped(S, unsigned = 0) -> gs_stamped<S>;

template <> class gs_stamped<gs_unstamped> {
 public:
  __device__ explicit gs_stamped(gs_unstamped, unsigned = 0) {}
  __device__ void start() const {}
};

template <> class gs_stamped<gs_stamp> {
 public:
  __device__ explicit gs_stamped(gs_stamp s, unsigned thread = 0) : slot(nullptr) {
    if (s.area && threadIdx.x == thread) {
      const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
      unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      const bool first = i < GS_STAMP_SLOTS / 2,
                 has = blocks <= GS_STAMP_SLOTS || first || i >= blocks - GS_STAMP_SLOTS / 2;
      if (blocks > GS_STAMP_SLOTS && !first) i -= blocks - GS_STAMP_SLOTS;
      if (has) slot = s.area + 2 * i;
    }
  }
  __device__ void start() const {
    if (slot) slot[0] = gs_globaltimer();
  }
  __device__ ~gs_stamped() {
    if (slot) slot[1] = gs_globaltimer();
  }

 private:
  uint64_t *slot;
};

// A bfloat16: the upper half of a float32. To include CUDA's own takes a third of what compiling a small file takes.
struct bf16 {
  uint16_t bits;
};

#ifndef GS_EMULATED
__device__ inline bf16 __ldg(const bf16 *p) { return {__ldg(&p->bits)}; }
#endif

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(bf16 v) {
#if __CUDA_ARCH__ >= 900 && !defined(GS_EMULATED)
  float f;
  asm("cvt.f32.bf16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
#else
  return __uint_as_float((uint32_t)v.bits << 16);
#endif
}
template <typename T> __device__ inline T from_float(float v);
template <> __device__ inline float from_float<float>(float v) { return v; }
// Rounded to nearest, ties to even.
template <> __device__ inline bf16 from_float<bf16>(float v) {
#if __CUDA_ARCH__ >= 800 && !defined(GS_EMULATED)
  bf16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(v));
  return b;
#else
  const uint32_t u = __float_as_uint(v);
  return {(uint16_t)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16)};
#endif
}
// Two values as bfloat16 in a register, the first in its lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800 && !defined(GS_EMULATED)
  uint32_t u;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(u) : "f"(low), "f"(high));
  return u;
#else
  return from_float<bf16>(low).bits | (uint32_t)from_float<bf16>(high).bits << 16;
#endif
}

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800  // which have no instruction for it
__device__ inline unsigned __reduce_add_sync(unsigned mask, unsigned v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(mask, v, o);
  return v;
}
__device__ inline unsigned __reduce_min_sync(unsigned mask, unsigned v) {
  for (int o = 16; o > 0; o >>= 1) v = min(v, __shfl_xor_sync(mask, v, o));
  return v;
}
__device__ inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
  for (int o = 16; o > 0; o >>= 1) v = max(v, __shfl_xor_sync(mask, v, o));
  return v;
}
#endif

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// act(x), act being a gs_activation:
//   GS_GELU_TANH  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   GS_GELU_ERF   x/2 (1 + erf(x / sqrt(2)))
__device__ inline float activate(float x, int act) {
  switch (act) {
    case GS_GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    case GS_GELU_ERF: return 0.5f * x * (1.0f + erff(0.7071067811865476f * x));
    case GS_RELU: return fmaxf(x, 0.0f);
    default: return x;
  }
}

#endif
