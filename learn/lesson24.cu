// Adds two vectors. Each thread adds one element.
__global__ void vector_add(float *out, const float *a, const float *b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

// Adds on the GPU what lies there already.
void add_on_gpu(float *out, const float *a, const float *b, int n) {
  const int threads = 256, blocks = (n + threads - 1) / threads;
  vector_add<<<blocks, threads>>>(out, a, b, n);
  cudaDeviceSynchronize();
}
