// Lesson 15: a vector operation that a CPU core and a GPU can do.

// y = a x + y for n numbers.
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}
