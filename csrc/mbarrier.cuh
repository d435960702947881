// Barriers in shared memory (mbarrier, compute capability 9.0): a phase ends when `count` threads have arrived and the
// bytes that they expect have been copied.
#pragma once

#include "common.cuh"

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900 && !defined(GS_EMULATED)  // csrc/emulator has its own

__device__ inline void mbarrier_init(uint64_t *b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ inline void mbarrier_arrive(uint64_t *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives, and lets the phase wait for bytes that bulk copies will write. b is an address in shared memory.
__device__ inline void mbarrier_expect(uint32_t b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
// Whether the phase of this parity has ended.
__device__ inline bool mbarrier_test(uint32_t b, int parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n"
      " mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(b), "r"(parity)
      : "memory");
  return done;
}
// Waits for the end of the phase of this parity, but not for long. Returns whether it has ended.
__device__ inline bool mbarrier_try_wait(uint32_t b, int parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n"
      " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(b), "r"(parity)
      : "memory");
  return done;
}
__device__ inline void mbarrier_wait(uint64_t *b, int parity) {
#pragma unroll 1
  while (!mbarrier_try_wait(shared_address(b), parity)) continue;
}

#endif
