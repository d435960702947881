// Lesson 18: the same arithmetic behind branches of several kinds. PATH is one of 32 paths, each
// with constants of its own, so that the compiler cannot merge them.

#define PATH(k)                                                                                          \
  case k:                                                                                                \
    for (int i = 0; i < rounds; i++) {                                                                   \
      _Pragma("unroll") for (int j = 0; j < 16; j++) asm volatile("fma.rn.f32 %0, %0, %1, %2;"           \
                                                                  : "+f"(x)                              \
                                                                  : "f"(1.0f - 0.001f * k), "f"(0.5f + k)); \
    }                                                                                                    \
    break;
#define FOUR(k) PATH(k) PATH(k + 1) PATH(k + 2) PATH(k + 3)

// Each thread takes one of 2^bits paths, by bits of its number from shift on: with shift 0
// neighbouring lanes take different paths, with shift 5 whole warps do. All paths do the same
// work.
extern "C" __global__ void paths(float *y, int rounds, int bits, int shift) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  float x = t;
  switch ((threadIdx.x >> shift) & ((1 << bits) - 1)) {
    FOUR(0) FOUR(4) FOUR(8) FOUR(12) FOUR(16) FOUR(20) FOUR(24) FOUR(28)
  }
  y[t] = x;
}

// A short branch in each round: the compiler computes both sides and selects one, without a jump.
// Lanes differ if mask is 1, and agree if it is 0.
extern "C" __global__ void predicated(float *y, int rounds, int mask) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  const bool odd = threadIdx.x & mask;
  float x = t;
  for (int i = 0; i < 16 * rounds; i++) {
    if (odd)
      x = x * 0.999f + 0.5f;
    else
      x = x * 0.998f + 1.5f;
  }
  y[t] = x;
}
