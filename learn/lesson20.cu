// Lesson 20: a kernel that takes about as long as the copies of its data.

// Does so many rounds of arithmetic on each of n numbers.
extern "C" __global__ void work(float *x, int n, int rounds) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = x[i];
    for (int r = 0; r < rounds; r++) v = v * 0.999f + 0.5f;
    x[i] = v;
  }
}
