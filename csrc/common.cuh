// What every kernel file shares: errors, the stream, launches, types, reductions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "../cuda/abi.h"

struct gs_stream {
  int device;
  cudaStream_t stream;
  bool overlap;       // launch with programmatic stream serialization
  int major, minor;   // compute capability
  int processors;     // SMs
  int shared_per_block;  // bytes, after opting in
  struct gs_blas_state *blas;  // of gemm.cu: handle, workspace, kept plans; made on first use
};

// Frees what gemm.cu keeps in a stream.
void gs_blas_release(gs_stream *s);

// Names of the variants of gs_linear, ended by null.
extern const char *const gs_linear_variants[];

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

// Launches a kernel on the stream, overlapping the one before where the stream
// says so. A kernel launched so must call gs_wait() before it touches anything
// that an earlier kernel writes, and before it writes anything at all.
template <typename... Params, typename... Args>
int gs_launch(gs_stream *s, const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared, Args... args) {
  if (int status = gs_use(s->device)) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = s->stream;
  cudaLaunchAttribute attribute[2];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  // An SM divides its memory into shared memory and L1 cache anew only when it is
  // idle: kernels that ask for different divisions would not overlap.
  attribute[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attribute[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  config.attrs = attribute;
  config.numAttrs = s->overlap ? 2 : 0;
  return gs_check(cudaLaunchKernelEx(&config, kernel, Params(args)...), name);
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
