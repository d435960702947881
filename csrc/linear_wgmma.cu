// y = x W^T + bias, GELU of it, or y += it, of many rows in bfloat16 on Hopper's tensor cores (compute capability 9.0).
//
// * A block multiplies tiles of BM rows and BN columns, one after another if there are more tiles than run at once. One
//   thread copies x and W, 64 of K at a time, into a ring of stages; a warpgroup multiplies each 64 rows. W depends on
//   no other kernel, so its first stages are copied before gs_wait(). While a tile is stored, the ring fills for the
//   next.
// * SPLIT = 2 or 4: the blocks of a cluster divide K, and each finishes its part of the tile's columns.
// * TURNS, where there are many more tiles than SMs: the two warpgroups take whole tiles in turns, and one stores its
//   tile while the other multiplies.
// * Which tile is taken depends on M, N, K and the number of SMs alone. So does the order of sums.

#include <algorithm>
#include <atomic>

#include "linear.cuh"
#include "wgmma.cuh"

namespace {

constexpr int GROUP = 32;  // tiles along M that blocks take before the next columns: x then stays in the L2 cache

struct Tiles {
  int M, N, K, ldy, act;
  int rows, columns;  // of tiles
  int box;            // rows of x that are copied for a tile; sums of the others do not count
  bool add;           // y += ...
  const float *bias;
  void *y;
};

__host__ __device__ constexpr int per_sm(int BM, int BN) { return BM == 64 && BN == 32 ? 2 : 1; }

// What a block needs. F32 is whether y is float32.
template <bool TURNS, int BM, int BN, int SPLIT, bool F32> struct Block {
  static constexpr int WG = BM / 64, A = BM * 128, STAGE = A + BN * 128;
  // y is stored by boxes of 16 rows and 64 columns, not by lines.
  static constexpr bool BOXES = TURNS && !F32 && BN % 64 == 0;
  static constexpr int CHUNKS = BN / 8, MOST = (CHUNKS + SPLIT - 1) / SPLIT;  // 8 columns; those that a block finishes
  static constexpr int LINE = F32 ? (MOST | 1) * 32 : BN * 2 + (BOXES ? 0 : 16);  // bytes of a row on its way out
  static constexpr int OUT = 64 * WG * LINE;  // after the ring; of SPLIT, where no tile comes after, in it
  static constexpr int PART = MOST * WG * 2048;  // what another block of a cluster hands over
  // Of few rows reading W is all the time: two blocks fit an SM, and begin while the kernel before ends.
  static constexpr int RESIDENT = per_sm(BM, BN);
  static constexpr int MORE = 1024 + (SPLIT > 1 ? (SPLIT - 1) * PART : OUT);
  static constexpr int FIT = ((227 << 10) / RESIDENT - 4096 - MORE) / STAGE, DEEP = BN <= 32 ? 8 : 6;
  static constexpr int STAGES = FIT < DEEP ? FIT : DEEP;
  static constexpr int SHARED = MORE + STAGES * STAGE, THREADS = 128 * (WG + 1);
  static_assert(SPLIT == 1 || STAGES * STAGE >= OUT);
  static_assert(SPLIT == 1 || F32, "bfloat16 is stored in whole lines");
  // The first chunk that a block of a cluster finishes, and the block that finishes a chunk.
  static constexpr __host__ __device__ int first(int part) { return CHUNKS * part / SPLIT; }
  static constexpr __host__ __device__ int owner(int chunk) { return ((chunk + 1) * SPLIT - 1) / CHUNKS; }
};

// The tile with this number: first GROUP rows of tiles, column after column.
struct Place {
  int m, n;
  __device__ Place(const Tiles &p, int tile) {
    const int group = tile / (GROUP * p.columns) * GROUP, in = tile - group * p.columns;
    const int height = min(GROUP, p.rows - group);
    m = group + in % height, n = in / height;
  }
};

#ifdef GS_WGMMA
// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), by the hardware's tanh, whose error is at most 2^-11 of it.
template <int R> __device__ inline void gelu_tanh(float (&v)[R]) {
  constexpr float A = 0.7978845608028654f, B = A * 0.044715f;
#pragma unroll
  for (int i = 0; i < R; i++) {
    const float half = 0.5f * v[i];
    v[i] = fmaf(half, tanh_fast(v[i] * fmaf(B, v[i] * v[i], A)), half);
  }
}
#endif

template <bool TURNS, int BM, int BN, int SPLIT, bool F32>
__global__ void __launch_bounds__(BM * 2 + 128, per_sm(BM, BN))
    linear_wgmma(const gs_stamp stamp, const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                 const __grid_constant__ CUtensorMap y, const Tiles p) {
#ifdef GS_WGMMA
  using R = Block<TURNS, BM, BN, SPLIT, F32>;
  constexpr int WG = R::WG, HALVES = TURNS ? WG : 1;  // warpgroups; 64 rows that one multiplies
  constexpr int TOGETHER = TURNS ? 128 : 128 * WG;  // threads that multiply a tile
  enum { READY = 1, TURN = 3 };  // named barriers; READY + w and TURN + w are of the warpgroup w
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t full[R::STAGES], empty[R::STAGES], other;
  __shared__ float2 biases[2][BN / 2];
  const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
  const int group = threadIdx.x / 128, part = SPLIT > 1 ? cluster_block() : 0;
  const int first = (int)blockIdx.x / SPLIT, step = (int)gridDim.x / SPLIT, tiles = p.rows * p.columns;
  const int deep = (p.K + 63) / 64, k0 = deep * part / SPLIT, steps = deep * (part + 1) / SPLIT - k0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < R::STAGES; i++) mbarrier_init(full + i, 1), mbarrier_init(empty + i, TURNS ? 1 : WG);
    if (SPLIT > 1) {
      mbarrier_init(&other, 1);
      mbarrier_expect(shared_address(&other), (SPLIT - 1) * (R::first(part + 1) - R::first(part)) * WG * 2048);
    }
    mbarrier_show();
    prefetch_map(x), prefetch_map(w);
  }
  __syncthreads();
  if (SPLIT > 1) cluster_arrive();  // this block runs: others may write to its shared memory
  gs_let_next();
  if (group == WG) {
    if (R::RESIDENT == 1) give_registers<WG == 1 ? 64 : 24>();
    if (threadIdx.x == WG * 128) {
      const int early = min(R::RESIDENT > 1 ? R::STAGES : 2, steps);
      int i = 0;
      auto copy_w = [&](int stage, int k, int n) {
        mbarrier_expect(shared_address(full + stage), (p.box + BN) * 128);
        copy_box(ring + stage * R::STAGE + R::A, w, (k0 + k) * 64, n * BN, 0, full + stage);
      };
      for (int k = 0; k < early; k++) copy_w(k, k, Place(p, first).n);
      gs_wait();
      for (int tile = first; tile < tiles; tile += step) {
        const Place at(p, tile);
        for (int k = 0; k < steps; k++, i++) {
          const int stage = i % R::STAGES;
          if (i >= R::STAGES) mbarrier_wait(empty + stage, (i / R::STAGES - 1) & 1);
          if (i >= early) copy_w(stage, k, at.n);
          copy_box(ring + stage * R::STAGE, x, (k0 + k) * 64, at.m * BM, 0, full + stage);
        }
      }
    }
    if (SPLIT > 1) {
      __syncwarp();
      cluster_wait();
    }
    return;
  }
  if (R::RESIDENT == 1) take_registers<240>();
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const gs_stamped<gs_stamp> stamped(stamp);
  int i = 0, turn = 0;
  for (int tile = first; tile < tiles; tile += step, turn++) {
    if (TURNS && turn % 2 != group) {
      i += steps;
      continue;
    }
    const Place at(p, tile);
    const int m = at.m * BM, n = at.n * BN;
    float fetched[(BN + TOGETHER - 1) / TOGETHER] = {};
#pragma unroll
    for (int j = 0, c = threadIdx.x % TOGETHER; c < BN; j++, c += TOGETHER)
      if (p.bias && n + c < p.N) fetched[j] = __ldg(p.bias + n + c);
    if (turn < 2) {
      gs_wait();
      stamped.start();
    }
    float d[HALVES][BN / 2];
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
      for (int j = 0; j < BN / 2; j++) d[h][j] = 0;
    if (TURNS && turn > 0) named_sync<256>(TURN + group);
    for (int k = 0; k < steps; k++, i++) {
      const int stage = i % R::STAGES;
      mbarrier_wait(full + stage, i / R::STAGES & 1);
      const uint64_t a = tile_rows(ring + stage * R::STAGE + (TURNS ? 0 : group * 8192)),
                     b = tile_rows(ring + stage * R::STAGE + R::A);
      wgmma_begin();
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int h = 0; h < HALVES; h++) wgmma<BN>(d[h], a + 512 * h + 2 * q, b + 2 * q, true);
      wgmma_commit();
      wgmma_wait<1>(d[0]);
      if (k > 0 && thread == 0) mbarrier_arrive(empty + (i - 1) % R::STAGES);
    }
    if (TURNS && tile + step < tiles) named_arrive<256>(TURN + 1 - group);
#pragma unroll
    for (int h = 0; h < HALVES; h++) wgmma_wait<0>(d[h]);
    if (thread == 0) mbarrier_arrive(empty + (i - 1) % R::STAGES);
    const uint32_t parts = ring + R::STAGES * R::STAGE + threadIdx.x * 16;
    if constexpr (SPLIT > 1) {
      cluster_wait();
#pragma unroll
      for (int j = 0; j < R::CHUNKS; j++) {
        const int to = R::owner(j), slot = part - (part > to);
        if (to != part)
          store_cluster4(parts + slot * R::PART + (j - R::first(to)) * WG * 2048, to, d[0] + 4 * j, &other);
      }
    }
    float2 *const bias = biases[turn % 2];
#pragma unroll
    for (int j = 0, c = threadIdx.x % TOGETHER; c < BN; j++, c += TOGETHER)
      reinterpret_cast<float *>(bias)[c] = fetched[j];
    named_sync<TOGETHER>(READY + (TURNS ? group : 0));  // biases are in shared memory, and the ring of SPLIT is free
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
      const int rows = (TURNS ? h : group) * 64, from = R::first(part), count = R::first(part + 1) - from;
      if (SPLIT > 1) mbarrier_wait(&other, 0);
#pragma unroll
      for (int j = 0; j < R::CHUNKS; j++) {
        if (R::owner(j) != part) continue;
#pragma unroll
        for (int of = 0; of < SPLIT - 1; of++) {
          const float4 v = load_shared4(parts + of * R::PART + (j - from) * WG * 2048);
          d[h][4 * j] += v.x, d[h][4 * j + 1] += v.y, d[h][4 * j + 2] += v.z, d[h][4 * j + 3] += v.w;
        }
        const float2 b = bias[4 * j + lane % 4];
        d[h][4 * j] += b.x, d[h][4 * j + 1] += b.y, d[h][4 * j + 2] += b.x, d[h][4 * j + 3] += b.y;
      }
      if (!F32 && p.act == GS_GELU_TANH) gelu_tanh(d[h]);
      // Each warp stores its 16 rows through shared memory, in whole lines: y += by copies that add, which go on
      // meanwhile, in turns by copies of boxes (lm_head of gpt2 takes 111 us so, 127 where threads store).
      const uint32_t out = ring + (SPLIT > 1 ? 0 : R::STAGES * R::STAGE) + threadIdx.x / 32 * 16 * R::LINE;
      const int row = m + rows + thread / 32 * 16;
      if constexpr (F32) {
        bulk_read();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < R::CHUNKS; j++) {
          if (R::owner(j) != part) continue;
          const uint32_t to = out + lane / 4 * R::LINE + (8 * (j - from) + lane % 4 * 2) * 4;
          store_shared2(to, make_float2(d[h][4 * j], d[h][4 * j + 1]));
          store_shared2(to + 8 * R::LINE, make_float2(d[h][4 * j + 2], d[h][4 * j + 3]));
        }
        show_shared();
        __syncwarp();
        const int column = n + from * 8, bytes = min(count * 8, p.N - column) * 4;
        if (lane < 16 && row + lane < p.M && bytes > 0) {
          float *to = static_cast<float *>(p.y) + (size_t)(row + lane) * p.ldy + column;
          if (p.add) bulk_add(to, out + lane * R::LINE, bytes);
          else bulk_store(to, out + lane * R::LINE, bytes);
        }
        bulk_commit();
      } else {
        if (R::BOXES) bulk_read();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < R::CHUNKS; j += 2) {
          uint32_t r[4];
#pragma unroll
          for (int e = 0; e < 4; e++) r[e] = pack_bf16(d[h][4 * j + 2 * e], d[h][4 * j + 2 * e + 1]);
          const int c = j + lane / 16, at = lane % 16;
          store_matrices(out + (R::BOXES ? c / 8 * 2048 + at * 128 + (c ^ at) % 8 * 16 : at * R::LINE + c * 16), r);
        }
        if constexpr (R::BOXES) {
          show_shared();
          __syncwarp();
          if (lane < BN / 64 && n + lane * 64 < p.N) store_box(y, n + lane * 64, row, 0, out + lane * 2048);
          bulk_commit();
          continue;
        }
        __syncwarp();
#pragma unroll 4
        for (int c = lane; c < 16 * R::CHUNKS; c += 32) {
          const int r = row + c / R::CHUNKS, column = n + c % R::CHUNKS * 8;
          if (r < p.M && column < p.N)
            *reinterpret_cast<uint4 *>(static_cast<bf16 *>(p.y) + (size_t)r * p.ldy + column) =
                load_shared(out + c / R::CHUNKS * R::LINE + c % R::CHUNKS * 16);
        }
      }
    }
  }
  if (F32 || R::BOXES) bulk_written();
#endif
}

// ---------------------------------------------------------------- the choice

template <bool TURNS, int BM, int BN, int SPLIT, bool F32>
int launch(gs_stream *s, const gs_linear_args *a) {
  using R = Block<TURNS, BM, BN, SPLIT, F32>;
  constexpr auto kernel = linear_wgmma<TURNS, BM, BN, SPLIT, F32>;
  int e = gs_allow_shared<kernel>(s, R::SHARED);
  CUtensorMap x, w, y = {};
  const int box = a->M < BM ? (a->M + 7) / 8 * 8 : BM;
  if (!e) e = gs_tensor_map(&x, a->x, a->K, a->M, 1, a->ldx, 0, box);
  if (!e) e = gs_tensor_map(&w, a->w, a->K, a->N, 1, a->K, 0, BN);
  if (!e && R::BOXES) e = gs_tensor_map(&y, a->y, a->N, a->M, 1, a->ldy, 0, 16);
  if (e) return e;
  const Tiles p = {a->M, a->N, a->K, a->ldy, a->act, (a->M + BM - 1) / BM, (a->N + BN - 1) / BN,
                   box, a->accumulate != 0, reinterpret_cast<const float *>(a->bias), reinterpret_cast<void *>(a->y)};
  const int tiles = p.rows * p.columns, most = R::RESIDENT * s->processors;
  const int blocks = SPLIT > 1 || tiles < most ? tiles * SPLIT : most;
  return gs_launch_as(s, "linear_wgmma", kernel, dim3(blocks), dim3(R::THREADS), R::SHARED, {SPLIT, true}, x, w, y, p);
}

struct Tile {
  bool turns;
  int rows, columns, split;
  int (*launch[2])(gs_stream *, const gs_linear_args *);  // into bfloat16, float32
};
#define TILE(...) {__VA_ARGS__, {launch<__VA_ARGS__, false>, launch<__VA_ARGS__, true>}}
#define INTO_F32(...) {__VA_ARGS__, {nullptr, launch<__VA_ARGS__, true>}}
#define INTO_BF16(...) {__VA_ARGS__, {launch<__VA_ARGS__, false>, nullptr}}
const Tile tiles[] = {
    TILE(false, 64, 32, 1),         INTO_F32(false, 64, 32, 4),    INTO_F32(false, 64, 32, 2),
    INTO_F32(false, 64, 64, 2),     TILE(false, 64, 96, 1),        INTO_F32(false, 64, 128, 1),
    INTO_F32(false, 128, 96, 2),    TILE(false, 128, 112, 1),      INTO_BF16(false, 128, 128, 1),
    INTO_F32(false, 128, 128, 2),   INTO_BF16(false, 128, 144, 1), INTO_BF16(true, 128, 160, 1),
    INTO_BF16(false, 128, 192, 1),  INTO_BF16(true, 128, 208, 1), INTO_BF16(true, 128, 192, 1),
    INTO_F32(false, 64, 192, 2),    INTO_F32(false, 128, 200, 2),
};

// The clocks of a product with a tile, fitted to those of an H100 and an H200: each wave of tiles has steps of 64 along
// K, bound by the tensor cores, by copies or by shared memory, and an end, which only the last tile has to itself where
// another one is multiplied meanwhile.
int64_t clocks(const gs_stream *s, const gs_linear_args *a, const Tile &t) {
  const int64_t blocks = (int64_t)((a->M + t.rows - 1) / t.rows) * ((a->N + t.columns - 1) / t.columns) * t.split;
  // Blocks of a split in four share SMs, where there is room for nearly as many clusters.
  const int most = t.split == 4 ? 2 * s->processors * 10 / 11 : s->processors;
  if (t.split > 1 && (blocks > most || a->K <= 64 * (t.split - 1))) return INT64_MAX;
  const int64_t waves = (blocks + s->processors - 1) / s->processors,
                steps = (a->K + 64 * t.split - 1) / (64 * t.split);
  const int copied = (a->M < t.rows ? a->M : t.rows) + t.columns, area = t.rows * t.columns;
  int step = std::max({area / 32, 160 + copied * 7 / 4, 80 + t.rows + t.columns + t.rows / 64 * (64 + t.columns)});
  if (t.turns && t.columns % 64 != 0) step += step / 8;  // threads that store take time from those that multiply
  const bool beside = t.turns || per_sm(t.rows, t.columns) > 1;
  return waves * steps * step + (beside ? 1 : waves) * (3 * area / 10) +
         (t.split > 1 ? 2000 : t.turns ? 1500 : 0);
}

}  // namespace

bool gs_linear_wgmma_takes(const gs_stream *s, const gs_linear_args *a) {
  const int y = a->y_type == GS_BF16 ? 8 : 4;  // elements in 16 bytes
  // The code of other activations, unrolled, would be most of a kernel's, and reading code takes time too.
  const bool act = a->act == GS_ACT_NONE || (a->act == GS_GELU_TANH && a->y_type == GS_BF16);
  return a->dtype == GS_BF16 && act && !a->gain && (a->bias || !a->bias_bf16) && a->K % 8 == 0 && a->ldx % 8 == 0 &&
         a->N % y == 0 && a->ldy % y == 0 && (a->x | a->w | a->y) % 16 == 0 && gs_has_wgmma(s);
}

int gs_linear_wgmma(gs_stream *s, const gs_linear_args *a) {
  if (!gs_linear_wgmma_takes(s, a))
    return gs_fail(GS_UNSUPPORTED,
                   "linear: variant wgmma takes bfloat16, no activation but tanh-GELU into bfloat16, and rows of "
                   "whole 16 bytes, on GPUs of compute capability 9.0");
  const Tile *best = nullptr;
  int64_t least = INT64_MAX;
  const bool f32 = a->y_type == GS_F32;
  for (const Tile &t : tiles) {
    if (!t.launch[f32]) continue;
    const int64_t c = clocks(s, a, t);
    if (c < least) least = c, best = &t;
  }
  return best->launch[f32](s, a);
}

// ---------------------------------------------------------------- of all kernels of wgmma.cuh

bool gs_has_wgmma(const gs_stream *s) { return s->major == 9 && s->minor == 0; }

int gs_tensor_map(CUtensorMap *map, gs_ptr p, int columns, int rows, int planes, int64_t ld, int64_t plane, int box,
                  bool permuted) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static std::atomic<Encode> found{nullptr};
  Encode encode = found.load();
  if (!encode) {
    if (int e = gs_driver_function("cuTensorMapEncodeTiled", (void **)&encode)) return e;
    found.store(encode);
  }
  const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)planes};
  const cuuint64_t strides[] = {(cuuint64_t)ld * 2, (cuuint64_t)(planes > 1 ? plane : ld) * 2};
  const cuuint32_t boxes[] = {64, (cuuint32_t)box, 1}, every[] = {1, 1, 1};
  const CUresult e = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, reinterpret_cast<void *>(p), sizes, strides,
                            boxes, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            permuted ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return e == CUDA_SUCCESS ? (int)GS_OK : gs_fail((int)e, "cuTensorMapEncodeTiled: error %d", (int)e);
}
