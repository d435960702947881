// Lesson 15: a vector operation that a CPU core and a GPU can do, and a kernel that keeps the
// GPU busy, so that the operation has to wait.

// y = a x + y for n numbers.
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

// Runs for so many nanoseconds, but never for more than most readings of the timer.
extern "C" __global__ void busy(long long ns, int most) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (int i = 0; i < most; i++) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start >= ns) break;
  }
}
