// z = x + y of n numbers. Thread i of the grid adds elements i, i + threads, ...: any number of threads does the whole.
extern "C" __global__ void add(float *z, const float *x, const float *y, int n) {
  const int threads = gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) z[i] = x[i] + y[i];
}
