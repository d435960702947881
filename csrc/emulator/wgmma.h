// The functions of csrc/wgmma.cuh for CPUs. Multiplications are done when they are waited for, and copies when they
// happen to be: a tile that is given back too early, or read too early, gives wrong sums.
#pragma once

#include "ptx.h"

#include <vector>

namespace emulator {
unsigned char *tiles();  // the dynamic shared memory of the block, which the file of the kernels has

// Where the hardware has the 16 bytes at an address of a permuted tile.
inline uint32_t permuted(uint32_t a) { return a ^ (a >> 7 & 7) << 4; }
// An address in a descriptor has 18 bits.
inline uint32_t whole(uint64_t a) { return shared_address(tiles()) + (((uint32_t)a - shared_address(tiles())) & 0x3ffff); }

inline float value(uint32_t a) {
  bf16 v;
  memcpy(&v, of_shared(permuted(a)), sizeof v);
  return to_float(v);
}
// Element (row, k) of an operand by its descriptor; K is the other dimension of rows of 128 bytes if `columns`.
inline float element(uint64_t descriptor, int row, int k, bool columns) {
  if (columns) std::swap(row, k);
  const uint32_t start = whole((descriptor & 0x3fff) << 4), stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
  return value(start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8) * 128 + (uint32_t)k * 2);
}

struct Multiplication {
  float *d;
  int columns;
  uint64_t a, b;
  bool add, registers;
  uint32_t rows[4];  // A, if it is in registers
};
struct Thread {
  std::vector<std::vector<Multiplication>> groups;
  std::vector<Multiplication> group;
};
inline Thread &thread_of_block() {
  static thread_local Thread threads[1024];
  return threads[threadIdx.x];
}

inline void multiply(const Multiplication &m) {
  const int t = (int)threadIdx.x % 128, first = t / 32 * 16 + t % 32 / 4;
  float a[2][16];
  // A in registers is of the lanes that share a row.
  float all[4][2][4];
  if (m.registers) {
    const auto lanes = gather(MULTIPLY, m.rows, sizeof m.rows);
    for (int l = 0; l < 4; l++)
      for (int i = 0; i < 4; i++) {
        uint32_t pair;
        memcpy(&pair, lanes[t % 32 / 4 * 4 + l] + 4 * i, 4);
        all[l][i % 2][i / 2 * 2] = __uint_as_float(pair << 16);
        all[l][i % 2][i / 2 * 2 + 1] = __uint_as_float(pair & 0xffff0000u);
      }
  }
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < 16; k++)
      a[half][k] = m.registers ? all[k % 8 / 2][half][k / 8 * 2 + k % 2] : element(m.a, first + 8 * half, k, false);
  for (int i = 0; i < m.columns / 2; i++) {
    const int n = i / 4 * 8 + t % 4 * 2 + i % 2;
    float sum = m.add ? m.d[i] : 0;
    for (int k = 0; k < 16; k++) sum = fmaf(a[i / 2 % 2][k], element(m.b, n, k, m.registers), sum);
    m.d[i] = sum;
  }
}

extern int cluster;  // blocks
void cluster_barrier(bool wait);
unsigned char *cluster_tiles(int block);
}  // namespace emulator

inline void copy_box(uint32_t to, const CUtensorMap &map, int column, int row, int plane, uint64_t *full) {
  static thread_local std::vector<std::vector<unsigned char>> boxes;
  for (int r = 0; r < map.boxes[1]; r++) {
    boxes.emplace_back(144);
    unsigned char *line = boxes.back().data();
    line += -(uintptr_t)line % 16;
    for (int c = 0; c < 64; c++) {
      const bool in = column + c >= 0 && column + c < map.sizes[0] && row + r >= 0 && row + r < map.sizes[1];
      const uint32_t at = map.permuted ? emulator::permuted(to + (uint32_t)r * 128 + (uint32_t)c * 2) % 128 : 2 * c;
      if (in) memcpy(line + at, map.from + plane * map.strides[2] + (row + r) * map.strides[1] + (column + c) * 2, 2);
    }
    emulator::copy(of_shared(to + (uint32_t)r * 128), line, 128, full);
  }
}
inline void prefetch_map(const CUtensorMap &) {}

inline void bulk_check(const void *to, uint32_t from, int bytes) {
  if (bytes <= 0 || bytes % 16 || (uintptr_t)to % 16 || from % 16) abort();
}
inline void bulk_store(void *to, uint32_t from, int bytes) {
  bulk_check(to, from, bytes);
  memcpy(to, of_shared(from), (size_t)bytes);
}
inline void bulk_add(void *to, uint32_t from, int bytes) {
  bulk_check(to, from, bytes);
  for (int i = 0; i < bytes / 4; i++) ((float *)to)[i] += ((float *)of_shared(from))[i];
}
inline void store_box(const CUtensorMap &map, int column, int row, int plane, uint32_t from) {
  if (from % 1024) abort();
  for (int r = 0; r < map.boxes[1]; r++)
    for (int c = 0; c < 64; c++)
      if (column + c < map.sizes[0] && row + r < map.sizes[1])
        memcpy(const_cast<char *>(map.from) + plane * map.strides[2] + (row + r) * map.strides[1] + (column + c) * 2,
               of_shared(emulator::permuted(from + (uint32_t)r * 128 + (uint32_t)c * 2)), 2);
}
inline void bulk_commit() {}
inline void bulk_read() {}
inline void bulk_written() {}

template <int N> void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) {
  emulator::thread_of_block().group.push_back({d, N, a, b, add, false, {}});
}
inline void wgmma_registers(float (&d)[32], const uint32_t *a, uint64_t b) {
  emulator::thread_of_block().group.push_back({d, 64, 0, b, true, true, {a[0], a[1], a[2], a[3]}});
}
inline void wgmma_begin() {}
inline void wgmma_commit() {
  auto &t = emulator::thread_of_block();
  t.groups.push_back(std::move(t.group));
  t.group.clear();
}
// A group ends for all four warps at once.
template <int N, int R> void wgmma_wait(float (&)[R]) {
  auto &groups = emulator::thread_of_block().groups;
  while ((int)groups.size() > N) {
    for (auto &m : groups.front()) emulator::multiply(m);
    groups.erase(groups.begin());
    emulator::arrive(12 + (int)threadIdx.x / 128, 128, true);
  }
}
inline void show_shared() {}
inline float tanh_fast(float x) { return std::tanh(x); }
template <int R> void keep_order(float (&)[R]) {}
template <int> void give_registers() {}
template <int> void take_registers() {}

inline void store_matrices(uint32_t a, const uint32_t (&r)[4]) {
  const auto all = emulator::gather(emulator::MULTIPLY, &a, sizeof a);
  const int lane = (int)threadIdx.x % 32;
  for (int i = 0; i < 4; i++)
    store_shared32(emulator::lane_value<uint32_t>(all, 8 * i + lane / 4) + (uint32_t)lane % 4 * 4, r[i]);
}
inline void store_shared4(uint32_t a, float x, float y, float z, float w) {
  const float4 v = {x, y, z, w};
  memcpy(of_shared(a), &v, sizeof v);
}
inline float4 load_shared4(uint32_t a) { return emulator_load<float4>(a); }

inline int cluster_block() { return (int)blockIdx.x % emulator::cluster; }
inline void cluster_arrive() { emulator::cluster_barrier(false); }
inline void cluster_release() { emulator::cluster_barrier(false); }
inline void cluster_wait() { emulator::cluster_barrier(true); }
// Thread-local storage, which is the shared memory, has the same layout in all blocks.
inline void store_cluster4(uint32_t a, int block, const float *v, uint64_t *full) {
  const ptrdiff_t there = emulator::cluster_tiles(block) - emulator::tiles();
  memcpy((char *)of_shared(a) + there, v, 16);
  const unsigned first = blockIdx.x / emulator::cluster * emulator::cluster;
  emulator::came(16, (uint64_t *)((char *)full + there), first + (unsigned)block);
}
inline void store_cluster1(uint32_t a, int block, float v) {
  memcpy(emulator::cluster_tiles(block) + (int32_t)(a - shared_address(emulator::tiles())), &v, 4);
}
