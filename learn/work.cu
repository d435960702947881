// Does so many rounds of arithmetic on each of n numbers, so that a kernel can be given a length that fits its data.
extern "C" __global__ void work(float *x, int n, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = x[i];
    for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.5f;
    x[i] = v;
  }
}
