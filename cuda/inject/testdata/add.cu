// Vector addition in CUDA C++.
#include <cstdio>
#include <vector>

__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 1 << 20;
  std::vector<float> x(n, 1.f), y(n, 2.f), z(n);
  float *a, *b, *c;
  cudaMalloc(&a, n * sizeof(float)), cudaMalloc(&b, n * sizeof(float)), cudaMalloc(&c, n * sizeof(float));
  for (int i = 0; i < 20; i++) {
    cudaMemcpy(a, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(b, y.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    add<<<n / 256, 256>>>(a, b, c, n);
    cudaMemcpy(z.data(), c, n * sizeof(float), cudaMemcpyDeviceToHost);
  }
  printf("%g\n", z[n - 1]);
  cudaFree(a), cudaFree(b), cudaFree(c);
  return z[n - 1] != 3.f;
}
