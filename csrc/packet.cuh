// A packet: 16 bytes that blocks of a running kernel exchange, 12 of values and the epoch, which is the number of the
// step that wrote them. Loads and stores are atomic, so a block that finds the epoch it needs has the values too. No
// step has epoch 0, and none that of an earlier step: the host clears all packets before epochs of 32 bits are used up.
// Single steps begin anew without that, since each writes its packets again.
#pragma once

#include "common.cuh"

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900 && !defined(GS_EMULATED)  // csrc/emulator has its own

// The packet at p, a multiple of 16; w is its epoch.
__device__ inline uint4 load_packet(const void *p) {
  uint64_t a, b;
  asm volatile("{\n .reg .b128 q;\n ld.relaxed.gpu.global.b128 q, [%2];\n mov.b128 {%0, %1}, q;\n}"
               : "=l"(a), "=l"(b)
               : "l"(p));
  return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
// The packet at p, or zeros. A load by predicate leaves no branch, so that several are in flight.
__device__ inline uint4 load_packet_if(bool has, const void *p) {
  uint64_t a, b;
  asm volatile(
      "{\n .reg .b128 q;\n .reg .pred has;\n setp.ne.u32 has, %3, 0;\n mov.b128 q, {%4, %4};\n @has "
      "ld.relaxed.gpu.global.b128 q, [%2];\n mov.b128 {%0, %1}, q;\n}"
      : "=l"(a), "=l"(b)
      : "l"(p), "r"((uint32_t)has), "l"(uint64_t(0)));
  return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
// Reads the packet at p into u, or leaves u as it is.
__device__ inline void load_packet_to(uint4 &u, bool has, const void *p) {
  uint64_t a = u.x | (uint64_t)u.y << 32, b = u.z | (uint64_t)u.w << 32;
  asm volatile(
      "{\n .reg .b128 q;\n .reg .pred has;\n setp.ne.u32 has, %3, 0;\n mov.b128 q, {%0, %1};\n @has "
      "ld.relaxed.gpu.global.b128 q, [%2];\n mov.b128 {%0, %1}, q;\n}"
      : "+l"(a), "+l"(b)
      : "l"(p), "r"((uint32_t)has));
  u = make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
__device__ inline void store_packet(void *p, uint32_t x, uint32_t y, uint32_t z, uint32_t epoch) {
  asm volatile("{\n .reg .b128 q;\n mov.b128 q, {%1, %2};\n st.relaxed.gpu.global.b128 [%0], q;\n}" ::"l"(p),
               "l"((uint64_t)x | (uint64_t)y << 32), "l"((uint64_t)z | (uint64_t)epoch << 32)
               : "memory");
}

#endif
