// Squares of n numbers, three ways, and a change of sign, which moves as many bytes.
// Each thread takes elements until all are done.

__device__ float square_of(float a) { return a * a; }

// As PyTorch does for tensor ** number: common exponents have code of their own.
__device__ float power_of(float a, float exponent) {
  if (exponent == 2.0f) return a * a;
  return powf(a, exponent);
}

#define EACH(i, n)                                                                \
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;     \
       i += gridDim.x * (long long)blockDim.x)

extern "C" __global__ void multiply(float *y, const float *x, long long n) {
  EACH(i, n) y[i] = x[i] * x[i];
}

extern "C" __global__ void square(float *y, const float *x, long long n) {
  EACH(i, n) y[i] = square_of(x[i]);
}

extern "C" __global__ void power(float *y, const float *x, long long n, float exponent) {
  EACH(i, n) y[i] = power_of(x[i], exponent);
}

extern "C" __global__ void negate(float *y, const float *x, long long n) {
  EACH(i, n) y[i] = -x[i];
}
