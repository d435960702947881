// Lesson 15: a vector operation that a CPU and a GPU can do.

// y = x + y for n numbers.
extern "C" __global__ void add_to(float *y, const float *x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + y[i];
}
