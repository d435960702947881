// Lesson 14: the same numbers are read several times, from device memory or, through the
// link, from pinned host memory.

// Adds the sum of x to *sum. A warp reads 512 consecutive bytes at a time.
extern "C" __global__ void add_up(float *sum, const float4 *x, long long n) {
  float s = 0;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    const float4 v = x[i];
    s += v.x + v.y + v.z + v.w;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) s += __shfl_down_sync(0xffffffff, s, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, s);
}
