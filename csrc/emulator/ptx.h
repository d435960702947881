// The functions of csrc/ptx.cuh, csrc/mbarrier.cuh and csrc/packet.cuh for CPUs.
#pragma once

#include "../common.cuh"

#include <stdlib.h>

void mbarrier_init(uint64_t *b, int count);
void mbarrier_arrive(uint64_t *b);
void mbarrier_expect(uint32_t b, int bytes);
bool mbarrier_test(uint32_t b, int parity);
bool mbarrier_try_wait(uint32_t b, int parity);
inline void mbarrier_wait(uint64_t *b, int parity) {
  while (!mbarrier_try_wait(shared_address(b), parity)) continue;
}
inline void mbarrier_show() {}

// Packets pass between threads of the system: 16 bytes at once.
typedef int emulator_packet __attribute__((vector_size(16)));
inline uint4 load_packet(const void *p) {
  const emulator_packet v = *(const volatile emulator_packet *)p;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  uint4 u;
  memcpy(&u, &v, sizeof u);
  return u;
}
inline uint4 load_packet_if(bool has, const void *p) { return has ? load_packet(p) : uint4{0, 0, 0, 0}; }
inline void load_packet_to(uint4 &u, bool has, const void *p) {
  if (has) u = load_packet(p);
}
inline void store_packet(void *p, uint32_t x, uint32_t y, uint32_t z, uint32_t epoch) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  *(volatile emulator_packet *)p = emulator_packet{(int)x, (int)y, (int)z, (int)epoch};
}

inline void bulk_copy(uint32_t to, const void *from, int bytes, uint32_t full, uint64_t) {
  emulator::copy(of_shared(to), from, bytes, (uint64_t*)of_shared(full));
}
inline void copy16(uint32_t to, const void *from) { memcpy(of_shared(to), from, 16); }
inline void wait_copies() {}
inline int sm_number() { return blockIdx.x; }
inline int round_trip(char *) { return rand(); }
inline uint64_t policy_normal() { return 0; }
inline uint64_t policy_last() { return 0; }
inline uint64_t policy_first() { return 0; }
template <typename T> T emulator_load(uint32_t a) {
  T v;
  memcpy(&v, of_shared(a), sizeof v);
  return v;
}
inline uint4 load_shared(uint32_t a) { return emulator_load<uint4>(a); }
inline uint32_t load_shared32(uint32_t a) { return emulator_load<uint32_t>(a); }
inline uint2 load_shared64(uint32_t a) { return emulator_load<uint2>(a); }
inline uint32_t load_shared16(uint32_t a) { return emulator_load<uint16_t>(a); }
inline void store_shared8(uint32_t a, int v) { *(signed char *)of_shared(a) = (signed char)v; }
inline void store_shared16(uint32_t a, int v) { memcpy(of_shared(a), &v, 2); }
inline uint32_t add_halves(uint32_t a, uint32_t b) { return (a + (b & 0xffff0000)) & 0xffff0000 | (a + b) & 0xffff; }
inline uint32_t max_halves(uint32_t a, uint32_t b) {
  return (a >> 16 > b >> 16 ? a : b) & 0xffff0000 | ((a & 0xffff) > (b & 0xffff) ? a : b) & 0xffff;
}
inline void store_shared2(uint32_t a, float2 v) { memcpy(of_shared(a), &v, sizeof v); }
inline void store_shared32(uint32_t a, uint32_t v) { memcpy(of_shared(a), &v, sizeof v); }
inline void store_shared64(uint32_t a, uint64_t v) { memcpy(of_shared(a), &v, sizeof v); }
inline void set_zero(uint32_t &v) { v = 0; }
inline void keep_address(uint32_t &) {}

// m16n8k16, twice. Lane 4 g + t has of A rows g and g + 8, of B column g, of D columns 2 t and 2 t + 1; of k 2 t, 2 t +
// 1 and those 8 after them (PTX ISA, "Matrix fragments for mma.m16n8k16").
inline void mma(float (&d)[4], const uint4 &a, const uint4 &b, const uint4 &x) {
  struct {
    uint32_t a[4], b[4], x[4];
  } mine = {{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}, {x.x, x.y, x.z, x.w}};
  const auto all = emulator::gather(emulator::MULTIPLY, &mine, sizeof mine);
  const int g = (int)(threadIdx.x % 32) / 4, t = (int)(threadIdx.x % 4);
  for (int k = 0; k < 4; k++)  // pairs of k of a lane
    for (int of = 0; of < 4; of++) {
      const auto row = emulator::lane_value<decltype(mine)>(all, 4 * g + of);
      for (int n = 0; n < 2; n++) {
        const auto column = emulator::lane_value<decltype(mine)>(all, 4 * (2 * t + n) + of);
        for (int half = 0; half < 2; half++) {
          const auto value = [&](uint32_t pair) { return __uint_as_float(half ? pair & 0xffff0000u : pair << 16); };
          d[n] = fmaf(value(row.a[k]), value(column.x[k]), d[n]);
          d[2 + n] = fmaf(value(row.b[k]), value(column.x[k]), d[2 + n]);
        }
      }
    }
}

inline uint4 widen(const uint2 &bytes, uint32_t scale) {
  const float d = __uint_as_float(scale << 16);
  unsigned pairs[4];
  for (int i = 0; i < 4; i++) {
    const unsigned two = (i < 2 ? bytes.x : bytes.y) >> 16 * (i % 2);
    pairs[i] = pack_bf16((float)(signed char)two * d, (float)(signed char)(two >> 8) * d);
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}
// m16n8k32 of bytes. Lane 4 g + t has of A rows g and g + 8, of B column g, of D columns 2 t and 2 t + 1; of k four from
// 4 t on, and those 16 after them.
inline void mma_bytes(int (&d)[4], const uint2 &a, const uint2 &b, const uint2 &x) {
  struct {
    uint2 rows[2], x;
  } mine = {{a, b}, x};
  const auto all = emulator::gather(emulator::MULTIPLY, &mine, sizeof mine);
  const int g = (int)(threadIdx.x % 32) / 4, t = (int)(threadIdx.x % 4);
  for (int of = 0; of < 4; of++) {
    const auto row = emulator::lane_value<decltype(mine)>(all, 4 * g + of);
    for (int n = 0; n < 2; n++) {
      const auto column = emulator::lane_value<decltype(mine)>(all, 4 * (2 * t + n) + of);
      for (int h = 0; h < 2; h++)
        for (int i = 0; i < 32; i += 8)
          d[2 * h + n] += (signed char)(row.rows[h].x >> i) * (signed char)(column.x.x >> i) +
                          (signed char)(row.rows[h].y >> i) * (signed char)(column.x.y >> i);
    }
  }
}

inline void arrange(uint4 &a, uint4 &b, uint32_t) {
  const uint4 c = {a.x, b.x, a.y, b.y}, d = {a.z, b.z, a.w, b.w};
  a = c, b = d;
}

inline float exp2_fast(float x) { return exp2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }
inline float reciprocal_root(float x) { return 1.0f / sqrtf(x); }

inline void poll_again() { emulator::yield(); }

namespace emulator {
// Whether a block gets no weights.
inline bool stuck() {
  static const bool is = getenv("GS_EMULATED_STUCK") != nullptr;
  return is;
}
}  // namespace emulator

template <int THREADS> void named_sync(int id) { emulator::arrive(id, THREADS, true); }
template <int THREADS> void named_arrive(int id) { emulator::arrive(id, THREADS, false); }

inline void prefetch(const void *) {}
inline uint32_t load_relaxed(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
inline void store_release(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
