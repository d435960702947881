// The kernels of the tasks over arrays. Arrays are float32 and aligned to 16 bytes.
//
// A tuned kernel moves 16 bytes with each instruction, has several loads on the way before it waits for the first, and
// reads and writes past the L1 cache, since nothing is used twice. Beside it stands the kernel of one thread.

typedef long long int64;

constexpr int THREADS = 256; // of a block
constexpr int LOADS = 4;     // of 4 values each, that a thread has on the way of each array
constexpr int VALUES = THREADS * LOADS * 4; // of a block

__device__ float4 load(const float4 *p) {
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}

template <bool add>
__device__ float f(float x, float y) {
  return add ? x + y : x * x;
}

// z[i] = x[i] + y[i], or x[i]^2
template <bool add>
__device__ void map_tuned(float *z, const float *x, const float *y, int64 n) {
  const int64 first = (int64)blockIdx.x * VALUES;
  if (first + VALUES <= n) {
    const float4 *x4 = (const float4 *)(x + first), *y4 = (const float4 *)(y + first);
    float4 *z4 = (float4 *)(z + first);
    float4 a[LOADS], b[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      a[u] = load(x4 + u * THREADS + threadIdx.x);
      if (add) b[u] = load(y4 + u * THREADS + threadIdx.x);
    }
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      const float4 v = a[u], w = add ? b[u] : v;
      const float4 r = make_float4(f<add>(v.x, w.x), f<add>(v.y, w.y), f<add>(v.z, w.z), f<add>(v.w, w.w));
      __stcs(z4 + u * THREADS + threadIdx.x, r);
    }
    return;
  }
  for (int64 i = first + threadIdx.x; i < n; i += THREADS) z[i] = f<add>(x[i], add ? y[i] : 0);
}

extern "C" __global__ void __launch_bounds__(THREADS) add_tuned(float *z, const float *x, const float *y, int64 n) {
  map_tuned<true>(z, x, y, n);
}
extern "C" __global__ void add_thread(float *z, const float *x, const float *y, int64 n) {
  for (int64 i = 0; i < n; i++) z[i] = x[i] + y[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) square_tuned(float *z, const float *x, int64 n) {
  map_tuned<false>(z, x, x, n);
}
extern "C" __global__ void square_thread(float *z, const float *x, int64 n) {
  for (int64 i = 0; i < n; i++) z[i] = x[i] * x[i];
}

// The sum of v over the threads of a block, in thread 0: over each warp by shuffles, then over the warps.
template <typename T>
__device__ T block_sum(T v) {
  __shared__ T warps[32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_down_sync(0xffffffffu, v, lanes);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < (blockDim.x + 31) / 32 ? warps[threadIdx.x] : (T)0;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_down_sync(0xffffffffu, v, lanes);
  }
  return v;
}

constexpr int SUM_LOADS = 8;
constexpr int SUM_VALUES = THREADS * SUM_LOADS * 4; // that a block reads at a time

// partial[b] = the sum of what block b reads of x, in an order that depends on n and on the number of blocks alone.
extern "C" __global__ void __launch_bounds__(THREADS, 4) sum_partial(float *partial, const float *x, int64 n) {
  float4 s[SUM_LOADS] = {};
  const int64 turn = (int64)gridDim.x * SUM_VALUES;
  int64 at = (int64)blockIdx.x * SUM_VALUES;
  for (; at + SUM_VALUES <= n; at += turn) {
    const float4 *x4 = (const float4 *)(x + at);
    float4 a[SUM_LOADS];
#pragma unroll
    for (int u = 0; u < SUM_LOADS; u++) a[u] = load(x4 + u * THREADS + threadIdx.x);
#pragma unroll
    for (int u = 0; u < SUM_LOADS; u++) s[u].x += a[u].x, s[u].y += a[u].y, s[u].z += a[u].z, s[u].w += a[u].w;
  }
  float sum = 0;
  for (int64 i = at + threadIdx.x; i < n; i += THREADS) sum += x[i]; // of the last values, if they are this block's
#pragma unroll
  for (int u = 0; u < SUM_LOADS; u++) sum += (s[u].x + s[u].y) + (s[u].z + s[u].w);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// out[0] = the sum of partial, in float64, by one block
extern "C" __global__ void sum_final(float *out, const float *partial, int64 n) {
  double sum = 0;
  for (int64 i = threadIdx.x; i < n; i += blockDim.x) sum += (double)partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[0] = (float)sum;
}

// out[0] = the sum of x
extern "C" __global__ void sum_thread(float *out, const float *x, int64 n) {
  float sum = 0;
  for (int64 i = 0; i < n; i++) sum += x[i];
  out[0] = sum;
}

// c[i][j] = the sum over l of a[i][l] b[j][l], for (M, K) a, (N, K) b, (M, N) c: one thread for each c
extern "C" __global__ void product_naive(float *c, const float *a, const float *b, int M, int N, int K) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= M || j >= N) return;
  float sum = 0;
  for (int l = 0; l < K; l++) sum += a[(int64)i * K + l] * b[(int64)j * K + l];
  c[(int64)i * N + j] = sum;
}
