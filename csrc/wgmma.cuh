// What the kernels of Hopper's tensor cores (compute capability 9.0) have in common: wgmma, which multiplies tiles in
// shared memory, and the copies that bring them there, of boxes of a tensor map. Tiles have rows of 64 values of
// bfloat16, 128 bytes, of which the 16-byte chunks are permuted by chunk ^ (row % 8), and begin at multiples of 1024.
#pragma once

#include <cuda.h>

#include "common.cuh"
#include "mbarrier.cuh"
#include "ptx.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(GS_EMULATED)
#define GS_WGMMA 1
#endif

// Whether the stream's GPU runs these kernels, and the library has their code.
bool gs_has_wgmma(const gs_stream *s);

// Describes (planes, rows, columns) of bfloat16, of which copies take boxes of 64 columns and `box` rows of one plane;
// beyond the edges they get zeros. Rows are ld elements apart, planes `plane`.
int gs_tensor_map(CUtensorMap *map, gs_ptr p, int columns, int rows, int planes, int64_t ld, int64_t plane, int box,
                  bool permuted = true);

#ifdef GS_WGMMA

// The descriptor of a tile whose rows are those of a matrix along M or N. 16 values along K are 2 further.
__device__ inline uint64_t tile_rows(uint32_t a) {
  return (uint64_t)((a & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
// Of one, 64 wide, whose rows are steps along K. 16 of them are 128 further.
__device__ inline uint64_t tile_columns(uint32_t a) {
  return (uint64_t)((a & 0x3ffff) >> 4) | (uint64_t)64 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

#ifdef GS_EMULATED
#include <wgmma.h>
#else

// Copies a box to shared memory; the mbarrier counts its bytes.
__device__ inline void copy_box(uint32_t to, const CUtensorMap &map, int column, int row, int plane, uint64_t *full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(plane), "r"(shared_address(full))
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Stores from shared memory, 16 bytes or a multiple, by copies that go on meanwhile: bulk_commit ends a group of them.
// bulk_add adds float32 to what is there.
__device__ inline void bulk_store(void *to, uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(void *to, uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
// Stores a box, whose rows are permuted as those of a copied one, but for what lies beyond the edges.
__device__ inline void store_box(const CUtensorMap &map, int column, int row, int plane, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
               "r"(column), "r"(row), "r"(plane), "r"(from)
               : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Wait until this thread's copies have read shared memory, or are done.
__device__ inline void bulk_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ inline void bulk_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// The compiler moves no use of these registers past this.
template <int R> __device__ inline void keep_order(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}
// Waits until at most N groups are under way. The registers of the others' results are then valid.
template <int N, int R> __device__ inline void wgmma_wait(float (&d)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
  if (N == 0) keep_order(d);
}

// Shows shared memory that this thread wrote to wgmma and copies.
__device__ inline void show_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// With an error of at most 2^-11 of it.
__device__ inline float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int REGISTERS> __device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Stores four 8 x 8 matrices, each lane its part of them, to rows of 16 bytes of which lane 8 i + r has the address of
// row r of matrix i.
__device__ inline void store_matrices(uint32_t a, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ inline void store_shared4(uint32_t a, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(a), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
__device__ inline float4 load_shared4(uint32_t a) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(a));
  return v;
}

// Of a thread block cluster: the number of this block, a barrier of all its threads in two steps, which orders nothing,
// and a store to another block's shared memory, at the address that it has in this one's: an mbarrier there counts its
// bytes. A barrier with "release" would wait 0.7 us for earlier accesses to device memory.
__device__ inline int cluster_block() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return (int)r;
}
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ inline void store_cluster4(uint32_t a, int block, const float *v, uint64_t *full) {
  uint32_t to, at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(a), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(full)), "r"(block));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   to),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(at)
               : "memory");
}

// A store of one value, and the first step of a barrier after which all blocks see such stores.
__device__ inline void store_cluster1(uint32_t a, int block, float v) {
  uint32_t to;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(a), "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}
__device__ inline void cluster_release() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

// D (64, N) += A (64, 16) B (N, 16)^T of a warpgroup. Without `add`, D is overwritten. Thread t has of D rows r = 16
// (t / 32) + t % 32 / 4 and r + 8: d[4 j], d[4 j + 1] of row r and d[4 j + 2], d[4 j + 3] of the other are columns
// 8 j + 2 (t % 4) and the next.
template <int N> __device__ inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool add);

// Lists of 8 operands: their names in PTX, and the registers.
#define P8(a, b, c, d, e, f, g, h) "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h
#define R8(i)                                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define P32 P8(0, 1, 2, 3, 4, 5, 6, 7) ", " P8(8, 9, 10, 11, 12, 13, 14, 15)
#define R32 R8(0), R8(8)
#define P64 P32 ", " P8(16, 17, 18, 19, 20, 21, 22, 23) ", " P8(24, 25, 26, 27, 28, 29, 30, 31)
#define R64 R32, R8(16), R8(24)
#define P96 P64 ", " P8(32, 33, 34, 35, 36, 37, 38, 39) ", " P8(40, 41, 42, 43, 44, 45, 46, 47)
#define R96 R64, R8(32), R8(40)
#define P112 P96 ", " P8(48, 49, 50, 51, 52, 53, 54, 55)
#define R112 R96, R8(48)
#define P128 P112 ", " P8(56, 57, 58, 59, 60, 61, 62, 63)
#define R128 R112, R8(56)
#define P144 P128 ", " P8(64, 65, 66, 67, 68, 69, 70, 71)
#define R144 R128, R8(64)
#define P160 P144 ", " P8(72, 73, 74, 75, 76, 77, 78, 79)
#define R160 R144, R8(72)
#define P192 P160 ", " P8(80, 81, 82, 83, 84, 85, 86, 87) ", " P8(88, 89, 90, 91, 92, 93, 94, 95)
#define R192 R160, R8(80), R8(88)
#define P200 P192 ", %96, %97, %98, %99"
#define R200 R192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define P208 P192 ", " P8(96, 97, 98, 99, 100, 101, 102, 103)
#define R208 R192, R8(96)

// The operands after D have the numbers A, B and S.
#define WGMMA(N, A, B, S)                                                                                           \
  template <> __device__ inline void wgmma<N>(float(&d)[N / 2], uint64_t a, uint64_t b, bool add) {                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #S                                                            \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" P##N "}, %" #A ", %" #B ", p, 1, " \
                 "1, 0, 0;\n}"                                                                                      \
                 : R##N                                                                                             \
                 : "l"(a), "l"(b), "r"((int)add));                                                                  \
  }
WGMMA(32, 16, 17, 18)
WGMMA(64, 32, 33, 34)
WGMMA(96, 48, 49, 50)
WGMMA(112, 56, 57, 58)
WGMMA(128, 64, 65, 66)
WGMMA(144, 72, 73, 74)
WGMMA(160, 80, 81, 82)
WGMMA(192, 96, 97, 98)
WGMMA(200, 100, 101, 102)
WGMMA(208, 104, 105, 106)

// D (64, 64) += A B with A in registers, arranged as D is, and B's rows being steps along K.
__device__ inline void wgmma_registers(float (&d)[32], const uint32_t *a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" P64
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
      : R64
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef WGMMA
#endif
#endif
