// Lesson 16: blocks that compute nothing, each on one SM.

// Runs for so many nanoseconds, but never for more than most readings of the timer. Each block
// writes the number of the SM that it ran on.
extern "C" __global__ void spin(unsigned *sm, long long ns, int most) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (int i = 0; i < most; i++) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - start >= ns) break;
  }
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  if (threadIdx.x == 0) sm[blockIdx.x] = id;
}
