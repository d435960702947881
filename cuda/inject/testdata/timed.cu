// add.cu's kernel, whose blocks note globaltimer at their start and end: how long a launch takes without a tool, and beside
// what a tool says of the same launch. timed LAUNCHES COPIES: so many, each awaited, then so many with copies, as in add.cu;
// prints the ns of each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

typedef unsigned long long ns;

__device__ ns now() {
  ns t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__global__ void add(const float *a, const float *b, float *c, int n, ns *t) {
  if (threadIdx.x == 0) t[2 * blockIdx.x] = now();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
  if (threadIdx.x == 0) t[2 * blockIdx.x + 1] = now();
}

int main(int argc, char **argv) {
  const int n = 1 << 20, blocks = n / 256, launches = atoi(argv[1]), copies = atoi(argv[2]);
  std::vector<float> x(n, 1.f), y(n, 2.f), z(n);
  std::vector<ns> s(2 * blocks);
  float *a, *b, *c;
  ns *t;
  cudaMalloc(&a, n * sizeof(float)), cudaMalloc(&b, n * sizeof(float)), cudaMalloc(&c, n * sizeof(float));
  cudaMalloc(&t, s.size() * sizeof(ns));
  cudaMemset(a, 0, n * sizeof(float)), cudaMemset(b, 0, n * sizeof(float));
  for (int i = 0; i < launches + copies; i++) {
    if (i >= launches) {
      cudaMemcpy(a, x.data(), n * sizeof(float), cudaMemcpyHostToDevice);
      cudaMemcpy(b, y.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    }
    add<<<blocks, 256>>>(a, b, c, n, t);
    cudaMemcpy(s.data(), t, s.size() * sizeof(ns), cudaMemcpyDeviceToHost);
    if (i >= launches) cudaMemcpy(z.data(), c, n * sizeof(float), cudaMemcpyDeviceToHost);
    ns first = ~0ull, last = 0;
    for (int k = 0; k < blocks; k++) first = std::min(first, s[2 * k]), last = std::max(last, s[2 * k + 1]);
    printf("%llu ", last - first);
  }
  printf("\n");
  return cudaGetLastError() != cudaSuccess;
}
