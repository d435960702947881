// Lesson 19: what is seen of the order of blocks, and two ways to add numbers up.

// Each block notes when its turn came, 0 for the first. Then it waits a little, so that blocks queue up, but never for
// more than 1000 readings of the timer.
extern "C" __global__ void order(unsigned *turns, unsigned *turn) {
  if (threadIdx.x != 0) return;
  turns[blockIdx.x] = atomicAdd(turn, 1u);
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (int i = 0; i < 1000; i++) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start > 2000) break;
  }
}

// Each block adds its part of x up in shared memory, in a fixed order, and writes one number.
// Launched a second time on these, with one block, it gives the sum.
extern "C" __global__ void sum_shared(float *sums, const float *x, int n) {
  __shared__ float part[256];
  float s = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

// Each thread adds its part of x to *sum, whenever its turn comes.
extern "C" __global__ void sum_atomic(float *sum, const float *x, int n) {
  float s = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) s += x[i];
  atomicAdd(sum, s);
}
