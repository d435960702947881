// y = 2 x of n numbers, a multiple of 512, as PyTorch's vectorized_elementwise_kernel<width, ...> does it: a block of
// 128 threads does 512 elements, each thread 4 of them, by loads of width numbers, which is known when the kernel is
// compiled. It counts its blocks if it is given a counter.

template <int width>
struct alignas(4 * width) vector {
  float at[width];
};

template <int width>
__device__ void vectorized(float *y, const float *x, int n, unsigned *blocks) {
  if (blocks && threadIdx.x == 0) atomicAdd(blocks, 1);
  for (long long first = blockIdx.x * 512LL; first < n; first += gridDim.x * 512LL)
    for (int load = 0; load < 4 / width; load++) {
      const long long at = first / width + load * 128 + threadIdx.x;
      vector<width> v = ((const vector<width> *)x)[at];
      for (int i = 0; i < width; i++) v.at[i] *= 2;
      ((vector<width> *)y)[at] = v;
    }
}

#define KERNEL(width)                                                                                     \
  extern "C" __global__ void vectorized_##width(float *y, const float *x, int n, unsigned *blocks) {      \
    vectorized<width>(y, x, n, blocks);                                                                   \
  }
KERNEL(1)
KERNEL(2)
KERNEL(4)
