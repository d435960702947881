// CUDA for CPUs, enough for a first kernel: each thread of a block is a thread of the system, and blocks run one after
// another. 'infer learn FILE.cu' puts it before a reader's file where there is no GPU.
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __ldg(p) (*(p))

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static thread_local dim3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;

namespace emulated {
static std::unique_ptr<std::barrier<>> block, warps[32];
static unsigned char lanes[1024][16];  // what a thread hands to the others of its warp
static thread_local unsigned self;     // in the block

template <typename T> T from(T v, unsigned lane) {
  memcpy(lanes[self], &v, sizeof v);
  warps[self / 32]->arrive_and_wait();
  const unsigned other = self / 32 * 32 + lane;
  if (lane < 32 && other < blockDim.x * blockDim.y) memcpy(&v, lanes[other], sizeof v);
  warps[self / 32]->arrive_and_wait();
  return v;
}

template <typename F> void launch(F kernel) {
  const unsigned threads = blockDim.x * blockDim.y;
  for (unsigned b = 0; b < gridDim.x * gridDim.y; b++) {
    block = std::make_unique<std::barrier<>>(threads);
    for (unsigned w = 0; w * 32 < threads; w++) warps[w] = std::make_unique<std::barrier<>>(threads - w * 32 < 32 ? threads - w * 32 : 32);
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; i++)
      all.emplace_back([=] {
        self = i, blockIdx = {b % gridDim.x, b / gridDim.x, 0}, threadIdx = {i % blockDim.x, i / blockDim.x, 0};
        kernel();
        warps[i / 32]->arrive_and_drop(), block->arrive_and_drop();
      });
    for (auto &t : all) t.join();
  }
}

// The first array is the result, which is written; the others are read.
template <typename F> int run(dim3 grid, dim3 threads, std::vector<size_t> lengths, F kernel) {
  gridDim = grid, blockDim = threads;
  std::vector<std::unique_ptr<float[]>> p;
  for (size_t n : lengths) {
    p.emplace_back(new float[n]);
    if (p.size() == 1) memset(p[0].get(), 0xff, 4 * n);  // not numbers
    else if (fread(p.back().get(), 4, n, stdin) != n) return 3;
  }
  launch([&] { kernel(p); });
  return fwrite(p[0].get(), 4, lengths[0], stdout) != lengths[0];
}
}  // namespace emulated

static inline void __syncthreads() { emulated::block->arrive_and_wait(); }
static inline void __syncwarp(unsigned = ~0u) { emulated::warps[emulated::self / 32]->arrive_and_wait(); }
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return emulated::from(v, lane); }
template <typename T> T __shfl_down_sync(unsigned, T v, unsigned by) { return emulated::from(v, emulated::self % 32 + by); }
template <typename T> T __shfl_xor_sync(unsigned, T v, int by) { return emulated::from(v, emulated::self % 32 ^ by); }
static inline float atomicAdd(float *p, float v) { return std::atomic_ref<float>(*p).fetch_add(v); }
