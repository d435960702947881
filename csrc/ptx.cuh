// Instructions of PTX that the decode kernels use, as functions. csrc/emulator has the same for CPUs.
#pragma once

#ifdef GS_EMULATED
#include <ptx.h>
#else

#include "common.cuh"

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900

// Copies bytes of memory to shared memory, both multiples of 16; the mbarrier counts them.
__device__ inline void bulk_copy(uint32_t to, const void *from, int bytes, uint32_t full, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(full), "l"(policy)
      : "memory");
}
// Copies 16 bytes of memory, by way of the L2 cache, to shared memory; wait_copies() waits for a thread's copies.
__device__ inline void copy16(uint32_t to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// How the L2 cache treats a copy: as other data, or as the first to be replaced.
__device__ inline uint64_t policy_normal() {
  uint64_t p;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p));
  return p;
}
__device__ inline uint64_t policy_last() {
  uint64_t p;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
  return p;
}
__device__ inline uint64_t policy_first() {
  uint64_t p;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
  return p;
}
// Loads of shared memory by its address, which takes one register instead of two.
__device__ inline uint4 load_shared(uint32_t a) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a));
  return v;
}
__device__ inline uint32_t load_shared32(uint32_t a) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a));
  return v;
}
__device__ inline uint2 load_shared64(uint32_t a) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a));
  return v;
}
__device__ inline uint32_t load_shared16(uint32_t a) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(a));
  return v;
}
// Stores to it.
__device__ inline void store_shared8(uint32_t a, int v) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
__device__ inline void store_shared16(uint32_t a, int v) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
// Of both halves.
__device__ inline uint32_t add_halves(uint32_t a, uint32_t b) {
  asm("add.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ inline uint32_t max_halves(uint32_t a, uint32_t b) {
  asm("max.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
__device__ inline void store_shared2(uint32_t a, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(a), "f"(v.x), "f"(v.y) : "memory");
}
__device__ inline void store_shared32(uint32_t a, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory");
}
__device__ inline void store_shared64(uint32_t a, uint64_t v) {  // several threads may store there at once
  asm volatile("st.volatile.shared.u64 [%0], %1;" ::"r"(a), "l"(v) : "memory");
}
// A zero that is set where it is needed: others the compiler sets before a branch, whichever way it goes.
__device__ inline void set_zero(uint32_t &v) { asm volatile("mov.u32 %0, 0;" : "=r"(v)); }
// Keeps an address in shared memory in a register: else it is computed at each use, from a special register.
__device__ inline void keep_address(uint32_t &a) { asm volatile("" : "+r"(a)); }

// D += A B by tensor cores, of 16 rows, 32 of k and 8 columns.
__device__ inline void mma(float (&d)[4], const uint4 &a, const uint4 &b, const uint4 &x) {  // rows g of a, g + 8 of b
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(b.x), "r"(a.y), "r"(b.y), "r"(x.x), "r"(x.y));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.z), "r"(b.z), "r"(a.w), "r"(b.w), "r"(x.z), "r"(x.w));
}

// The same of bytes, of 16 rows, 32 of k and 8 columns.
__device__ inline void mma_bytes(int (&d)[4], const uint2 &a, const uint2 &b, const uint2 &x) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a.x), "r"(b.x), "r"(a.y), "r"(b.y), "r"(x.x), "r"(x.y));
}

// Puts the operands a and b of both instructions of mma in their order in registers, so that they are not moved there
// when x arrives. zero must be 0, unknown to the compiler.
__device__ inline void arrange(uint4 &a, uint4 &b, uint32_t zero) {
  uint4 c = make_uint4(a.x, b.x, a.y, b.y), d = make_uint4(a.z, b.z, a.w, b.w);
  asm volatile("xor.b32 %0, %0, %4;\n xor.b32 %1, %1, %4;\n xor.b32 %2, %2, %4;\n xor.b32 %3, %3, %4;"
               : "+r"(c.x), "+r"(c.y), "+r"(c.z), "+r"(c.w)
               : "r"(zero));
  asm volatile("xor.b32 %0, %0, %4;\n xor.b32 %1, %1, %4;\n xor.b32 %2, %2, %4;\n xor.b32 %3, %3, %4;"
               : "+r"(d.x), "+r"(d.y), "+r"(d.z), "+r"(d.w)
               : "r"(zero));
  a = c, b = d;
}

// Eight 8-bit weights as bfloat16. 0x43 before the byte of an integer plus 128 makes the bfloat16 number v of 128 plus
// the byte, or twice the byte from 128 on. The integer is v / 2 - 128 where that is positive, else v - 256: of its two
// parts one is 0, and each is multiplied by the scale as it is computed. Integer operations would take twice the time.
__device__ inline uint4 widen(const uint2 &bytes, uint32_t scale) {
  uint4 y;
  asm volatile(
      "{\n .reg .b32 s, h, l, m, n, p, v;\n prmt.b32 s, %5, 0, 0x1010;\n"
      " mul.rn.bf16x2 h, s, %6;\n mul.rn.bf16x2 l, s, %7;\n neg.bf16x2 m, s;\n mul.rn.bf16x2 n, s, %8;\n"
#define WIDEN(y, bytes, select)                                                            \
  " prmt.b32 v, " bytes ", 0x43434343, " select ";\n fma.rn.relu.bf16x2 p, v, h, l;\n"     \
  " fma.rn.relu.bf16x2 v, v, m, n;\n sub.rn.bf16x2 " y ", p, v;\n"
      WIDEN("%0", "%4", "0x4140") WIDEN("%1", "%4", "0x4342") WIDEN("%2", "%9", "0x4140") WIDEN("%3", "%9", "0x4342")
#undef WIDEN
      "}"
      : "=&r"(y.x), "=&r"(y.y), "=&r"(y.z), "=&r"(y.w)
      : "r"(bytes.x ^ 0x80808080u), "r"(scale), "r"(0x3f003f00u), "r"(0xc300c300u), "r"(0x43804380u),
        "r"(bytes.y ^ 0x80808080u));
  return y;
}

// Barriers of some of a block's warps, by number.
template <int THREADS> __device__ inline void named_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}
template <int THREADS> __device__ inline void named_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// Shows initialised mbarriers to copies.
__device__ inline void mbarrier_show() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Comes before what another block writes is read again.
__device__ inline void poll_again() {}

__device__ inline int sm_number() {
  uint32_t n;
  asm("mov.u32 %0, %%smid;" : "=r"(n));
  return n;
}
// The clocks that four atomic additions of 0 take, one after another.
__device__ inline int round_trip(char *p) {
  const long long from = clock64();
#pragma unroll 1
  for (int n = 0; n < 4; n++) {
    uint32_t v;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
    p += v == 0x80000001u ? 4 : 0;  // so that the next one waits for it
  }
  return (int)(clock64() - from);
}

// 128 bytes will be read soon.
__device__ inline void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// A word that other blocks write.
__device__ inline uint32_t load_relaxed(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
// Shows the host what was written before.
__device__ inline void store_release(uint64_t *p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

#endif
#endif

// mma of operands that arrange has arranged.
#if defined(GS_EMULATED) || defined(__CUDACC__) && __CUDA_ARCH__ >= 900
__device__ inline void mma_arranged(float (&d)[4], const uint4 &a, const uint4 &b, const uint4 &x) {
  mma(d, make_uint4(a.x, a.z, b.x, b.z), make_uint4(a.y, a.w, b.y, b.w), x);
}
#endif
