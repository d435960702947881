// What every kernel file shares: errors, the stream, launches, types, reductions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

#include "../cuda/abi.h"

struct gs_stream {
  int device;
  cudaStream_t stream;
  bool overlap;       // launch with programmatic stream serialization
  int major, minor;   // compute capability
  int processors;     // SMs
  int shared_per_block;  // bytes, after opting in
  struct gs_blas_state *blas;  // of gemm.cu: handle, workspace, kept plans; made on first use
  struct {
    gs_ptr areas;             // 0: kernels do not stamp
    uint32_t count, used;
    struct gs_stamp_taken *taken;  // who asked for areas, also where there was none
  } stamps;
};

// Kernels that can stamp are compiled twice, by the type S of their first parameter:
// even a stamp that is off takes branches on the way to the first read, 45 ns a kernel
// on an H200. S is their last template parameter.

// Where a kernel stamps, by value, so that it is read together with the other
// parameters: nowhere where area is null.
struct gs_stamp {
  uint64_t *area;
};

// The kernel does not stamp, and has no code for it.
struct gs_unstamped {};

// Whether a launcher takes kernels of gs_stamp, else of gs_unstamped. A kernel's first
// launch loads it, each of the two for itself.
inline bool gs_stamping(const gs_stream *s) { return s->stamps.areas != 0; }

// Who took an area.
struct gs_stamp_taken {
  const char *name;
  uint32_t blocks;
};

// The next area of the stream, for the kernel of that name and so many blocks.
gs_stamp gs_next_stamp(gs_stream *s, const char *name, dim3 grid);

// Frees what gemm.cu keeps in a stream.
void gs_blas_release(gs_stream *s);

// Keeps the words of a failure for gs_error and returns the status.
int gs_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Makes a device the calling thread's current one, which launches need.
int gs_use(int device);

// Turns a cudaError_t into a status; what names the call.
int gs_check(cudaError_t e, const char *what);

#define GS_CHECK_SIZE(a)                                                                       \
  do {                                                                                         \
    if ((a)->size != sizeof *(a))                                                              \
      return gs_fail(GS_ARGUMENT, "%s: an argument struct of %u bytes, not %zu", __func__, (a)->size, sizeof *(a)); \
  } while (0)

// What every launcher does first: checks the struct's size, and makes the stream's
// device current.
#define GS_ENTER(s, a)                                    \
  do {                                                    \
    GS_CHECK_SIZE(a);                                     \
    if (int status_ = gs_use((s)->device)) return status_; \
  } while (0)

// How a kernel is launched, beyond its grid.
struct gs_how {
  unsigned cluster = 1;  // blocks, along x, of a thread block cluster
  // As much shared memory and as little L1 cache as there can be. An SM divides its
  // memory anew only when it is idle, so that kernels which follow each other closely
  // must ask for the same. Kernels that read much through the L1 cache are slower so.
  bool most_shared = false;
};

// The first of some types, or void.
template <typename First = void, typename...> struct gs_first {
  using type = First;
};

// Launches a kernel on the stream, overlapping the one before where the stream
// says so. A kernel launched so must call gs_wait() before it touches anything
// that an earlier kernel writes, and before it writes anything at all. A first
// parameter that is a gs_stamp or gs_unstamped is not among the arguments.
template <typename... Params, typename... Args>
int gs_launch_as(gs_stream *s, const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, gs_how how, Args... args) {
  if (int status = gs_use(s->device)) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = s->stream;
  cudaLaunchAttribute attribute[3];
  config.attrs = attribute;
  if (how.cluster > 1) {
    attribute[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attribute[config.numAttrs].val.clusterDim = {how.cluster, 1, 1};
    config.numAttrs++;
  }
  if (s->overlap) {
    attribute[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs++;
  }
  if (s->overlap && how.most_shared) {
    attribute[config.numAttrs].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute[config.numAttrs].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    config.numAttrs++;
  }
  using First = typename gs_first<Params...>::type;
  if constexpr (std::is_same_v<First, gs_stamp>)
    return gs_check(cudaLaunchKernelEx(&config, kernel, gs_next_stamp(s, name, grid), args...), name);
  else if constexpr (std::is_same_v<First, gs_unstamped>)
    return gs_check(cudaLaunchKernelEx(&config, kernel, gs_unstamped(), args...), name);
  else
    return gs_check(cudaLaunchKernelEx(&config, kernel, args...), name);
}

template <typename... Params, typename... Args>
int gs_launch(gs_stream *s, const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  return gs_launch_as(s, name, kernel, grid, block, shared, gs_how(), args...);
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

// Stamps start and end of a block: made before gs_wait(), which hides what it takes to
// find the place; start() comes right after it, or after the first reads that follow,
// which it then does not delay; the scope's end is the block's. One
// thread does it for the block: best one that has nothing to do at the end. That of
// gs_unstamped does nothing.
template <typename S> class gs_stamped;

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
      const bool first = i < GS_STAMP_SLOTS / 2, has = blocks <= GS_STAMP_SLOTS || first || i >= blocks - GS_STAMP_SLOTS / 2;
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

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float to_float(__half v) { return __half2float(v); }
template <typename T> __device__ inline T from_float(float v);
template <> __device__ inline float from_float<float>(float v) { return v; }
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }
template <> __device__ inline __half from_float<__half>(float v) { return __float2half_rn(v); }

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// act(x) by gs_activation.
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
