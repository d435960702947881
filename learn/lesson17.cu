// Lesson 17: two kernels whose blocks take dynamic shared memory that they do not use, so that
// fewer of them fit on an SM.

extern __shared__ float unused[];

// y = x, limited by the bandwidth of memory. Each thread has four loads of 16 bytes in flight.
extern "C" __global__ void copy(float4 *y, const float4 *x, long long n) {
  const long long threads = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 4 * threads) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (i + k * threads < n) v[k] = x[i + k * threads];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (i + k * threads < n) y[i + k * threads] = v[k];
  }
}

// Follows chains of indices, limited by the latency of the L2 cache: each load has the address
// from the one before it. A warp follows one chain, with the same address in all lanes.
extern "C" __global__ void chase(unsigned *end, const unsigned *next, int chains, int steps) {
  const int warps = gridDim.x * (blockDim.x / 32);
  for (int c = (blockIdx.x * blockDim.x + threadIdx.x) / 32; c < chains; c += warps) {
    unsigned at = c;
    for (int s = 0; s < steps; s++) at = __ldcg(next + at);
    if (threadIdx.x % 32 == 0) end[c] = at;
  }
}
