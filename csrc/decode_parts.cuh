// What the decode kernels share: vectors in units, the program, and small functions.
#pragma once

#include "decode.cuh"
#include "mbarrier.cuh"
#include "ptx.cuh"
#include "unit.cuh"

namespace decode {  // named: what code for older GPUs does not use is no warning

// A Cut, which says how a width is divided, of gs_decode_one, whose launch runs step p.alone of token p.tokens - 1.
template <typename Of> struct Alone : Of { static constexpr bool ALONE = true; };

}  // namespace decode
using decode::Alone;

namespace {

typedef __nv_bfloat16 bf16;

constexpr int TILES = 32;                    // copies to the ring in flight, at most
constexpr int PAD = 64;                      // bytes between rows of 4C inputs in the ring, or halves of a tile: against bank conflicts
constexpr int HEAD = 64;                     // size of a head
constexpr int SPLITS = 4;
constexpr int LINE = 8;                      // units of a line of the L2 cache; each has one writer
constexpr int KEYS = 16;                     // of a tensor core instruction
constexpr int STEPS = 5;                     // of a layer
constexpr int FIRST_RESIDUAL = 2;            // the first of them that writes the residual stream
constexpr int MOST_BLOCKS = 192;

typedef gs_decode_header Header;
constexpr size_t HEADER = 256;

constexpr int F32S = 3, BF16S = 6;  // values of a unit

// Vectors in units: block b writes per_block of them from b * stride, of `rows` values.
struct Shape {
  int rows;       // values of a block
  int per_block;  // units
  int stride;     // units from a block's first to the next one's
};
// Rows of a block. Of bfloat16 outputs an even number, so that pairs are words.
__host__ __device__ inline int rows_of(int n, int blocks, int values) {
  const int rows = (n + blocks - 1) / blocks;
  return values == BF16S ? (rows + 1) / 2 * 2 : rows;
}

__host__ __device__ inline Shape shape_of(int n, int blocks, int values) {
  Shape s;
  s.rows = rows_of(n, blocks, values);
  s.per_block = (s.rows + values - 1) / values;
  s.stride = (s.per_block + LINE - 1) / LINE * LINE;
  return s;
}

// The split that a block computes in step i of the program, -1 if none, and of which head.
// Attention moves on by as many blocks as it takes, and its last splits among them.
__host__ __device__ inline int split_of(int i, int block, int blocks, int heads, int *head) {
  const int n = ((block - i / STEPS * heads * SPLITS) % blocks + blocks) % blocks;
  *head = n / SPLITS;
  if (n < heads * SPLITS) return (n + i / STEPS) % SPLITS;
  *head = 0;
  return -1;
}

// A part of the attention of a step: of a head of a sequence, and of its keys. Those of a step
// are numbered; a block has every blocks-th of them.
struct Item {
  int row, head, split;
};
// The first one that a block has in step i, one of `items` or more if none.
__host__ __device__ inline int first_item(int i, int block, int blocks, int items) {
  return (int)(((block - (int64_t)(i / STEPS) * items) % blocks + blocks) % blocks);
}
__host__ __device__ inline Item item_of(int n, int i, int heads, int splits) {
  Item item;
  item.row = n / (heads * splits);
  item.head = n / splits - item.row * heads;
  item.split = (n + i / STEPS) % splits;
  return item;
}

struct Program {
  const gs_decode_step *steps;
  const bf16 *wte, *wpe;
  const int *ids;                            // (B) of a prompt
  gs_sampling *sampling;
  int *pos, *token;
  gs_slot *slots;
  float *logits;
  Header *header;
  char *residual, *hidden, *qkv, *attended;  // units
  uint4 *best;                               // (2, blocks, LINE) units, of which each sequence has one: logit, id; or those of decode_sample.cuh
  uint64_t patience;                         // ns
  uint64_t *stamps;                          // (tokens, count + 1, blocks, 4), of kernels that stamp
  int count, C, NH, P, V, slot_count, tokens, ring_bytes;
  int B, ld;                                 // sequences, or rows of a prompt; values from a row of logits to the next one
  int splits, items;                         // of the keys of a head; of the attention of a step
  int row_x, row_h, row_a, row_o;            // bytes of the units of a sequence: residual, hidden, qkv, attended
  int logits_only;                           // gs_sample takes the token
  int tails;                                 // of a block, at most
  int table;                                 // bytes of the steps in shared memory, and of head
  int head;                                  // rows of the logits that a block has, at most
  int kept;                                  // of the logits' rows, the last ones of a block that may stay in the L2 cache; -1 if all weights may
  float eps;
  Shape x, h, a;  // residual stream, hidden layer, qkv
  uint32_t zero;   // 0, which the compiler does not know
  int alone;       // of gs_decode_one: the step; tokens - 1 is its token's place in a launch of gs_decode
  uint32_t epoch;  // and the epoch before the first step of the token
  int draw;                                  // from so many candidates the token is drawn; 0: it is the argmax
  uint4 *lists;                              // (B, blocks, DRAW_UNITS) units: candidates
};

// How many of a block's items of step i have the last split of a head.
__host__ __device__ inline int last_splits(int i, int block, int blocks, const Program &p) {
  int many = 0;
  for (int n = first_item(i, block, blocks, p.items); n < p.items; n += blocks) many += item_of(n, i, p.NH, p.splits).split == p.splits - 1;
  return many;
}

// A step as the block sees it, in shared memory.
struct alignas(16) Local {
  const char *source;      // W at the block's first row; K cache at the first key of the split
  const char *source_v;
  const float *bias, *gain, *sums;
  int kind, in, out, act;
  int row, rows;           // of the block; of attention: head, keys
  int split;               // of attention, or -1 if the block has no part in it
  int tail;                // of attention of the last split: which of the block's tails
  int start;               // of a prompt: the first row that the step computes, 0 or the last one
};

#if __CUDA_ARCH__ >= 900

constexpr int PACE = 16;                      // bytes per clock that a block copies: bursts delay the units of other blocks
constexpr int FREE = 3, FULL = 1, TOKEN = 5, SUMMED = 6;  // numbers of barriers; FREE and FULL are two each

__device__ inline uint32_t pack2(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t *>(&v);
}
__device__ inline float low(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }

// Once a block has waited too long, none waits any more: the launch is over. The kernel runs to
// its end, and its results are marked as void.
template <typename Shared> __device__ inline bool is_over(const Shared &sh) { return *(const volatile int *)&sh.over; }

// Notes the first block that has waited too long.
__device__ inline void note_late(Header *header, uint32_t where) {
  atomicCAS(&header->expired, 0u, 0x80000000u | where);
  __threadfence();
}

// When waits are too long. A thread calls it as a launch and each of its tokens begin.
template <typename Shared> __device__ inline void renew_patience(const Program &p, Shared &sh) { *(volatile uint64_t *)&sh.until = gs_globaltimer() + p.patience; }

// Whether some block has waited too long for units; notes this one if it has, and else that it waits.
template <typename Shared> __device__ inline bool too_late(Header *header, Shared &sh, int step) {
  uint32_t expired = load_relaxed(&header->expired);
  *(volatile int *)&sh.polling = 1;
  if (!expired && gs_globaltimer() > *(volatile uint64_t *)&sh.until) {
    note_late(header, step << 16 | blockIdx.x);
    expired = 1;
  }
  if (expired) *(volatile int *)&sh.over = 1;
  return expired != 0;
}

// Whether to stop waiting for units that a step needs, after so many polls.
template <typename Shared> __device__ inline bool gives_up(Header *header, Shared &sh, unsigned &polls, int step) {
  poll_again();
  if (++polls % 64 != 0) return false;
  return is_over(sh) || (polls % 8192 == 0 && too_late(header, sh, step));
}

// Whether lanes of a warp stop to poll one by one. Where registers allow it they stop together: else the
// warp takes 100 clocks to come together.
template <typename Cut> constexpr bool polls_apart = Cut::MANY;
// Whether to poll again: a lane lacks a unit, and the launch goes on. All lanes of a warp call it.
template <typename Cut, typename Shared> __device__ inline bool polls_on(Header *header, Shared &sh, bool lacks, unsigned &polls, int step) {
  if (polls_apart<Cut>) return lacks && !gives_up(header, sh, polls, step);
  poll_again();
  if (!__any_sync(~0u, lacks)) return false;
  return ++polls % 64 != 0 || !__any_sync(~0u, is_over(sh) || (polls % 8192 == 0 && too_late(header, sh, step)));
}

// Waits for a tile, numbered modulo 2 TILES. Returns where it begins. There is no deadline here: a
// copy that has begun ends, and before it begins the warp that copies looks at the time.
template <typename Shared> __device__ inline uint32_t wait_tile(Shared &sh, unsigned tile) {
  mbarrier_wait(&sh.full[tile % TILES], tile / TILES);
  return sh.base[tile % TILES];
}
// Whether the warp that copies may go on waiting for room in the ring. If no warp of its block has
// waited for units lately, the block waits for weights that have no room, and keeps others waiting
// for its units: it gives up before they do, and is the one named.
template <typename Shared> __device__ inline bool may_wait(const Program &p, Shared &sh, int step) {
  if (is_over(sh)) return false;
  const uint64_t now = gs_globaltimer(), spare = p.patience / 8;
  if (*(volatile int *)&sh.polling) *(volatile int *)&sh.polling = 0, *(volatile uint64_t *)&sh.polled = now;
  if (now < *(volatile uint64_t *)&sh.until - spare || now < *(volatile uint64_t *)&sh.polled + spare) return true;
  note_late(p.header, step << 16 | GS_DECODE_FOR_WEIGHTS | blockIdx.x);
  *(volatile int *)&sh.over = 1;
  return false;
}

// What the warp that copies knows of the ring in shared memory. One lane does all of it, or each has a copy.
template <typename Cut, typename Shared> struct Filling {
  // Bytes of the ring in use, as it were, in a launch that is over: no copy waits for room, so that all
  // warps get their tiles and come to their end. What they read may be overwritten.
  static constexpr int UNLIMITED = -(1 << 30);
  // Whether one lane does all of it. Elsewhere steps took longer with it.
  static constexpr bool ONE = !Cut::MANY && (!Cut::WIDE || Cut::NB == 5);
  const Program &p;
  Shared &sh;
  uint32_t ring, full, empty, base, size;  // addresses
  uint32_t arrives;                        // the mbarrier of the last tile
  int bytes;                               // of the ring
  int lane = ONE ? 0 : threadIdx.x % 32, at = 0, tail = 0, parity = 0, head = 0, used, flying = 0;
  long long due = 0;                       // when the next copy may begin

  __device__ Filling(const Program &p, Shared &sh, const void *begin)
      : p(p), sh(sh), ring(shared_address(begin)), full(shared_address(sh.full)), empty(shared_address(sh.empty)), base(shared_address(sh.base)),
        size(shared_address(sh.size)), bytes(p.ring_bytes), used(is_over(sh) ? UNLIMITED : 0) {
    keep_address(full), keep_address(empty), keep_address(base), keep_address(size);
  }
  // Waits until the tile that is next has been read. Returns false if the launch is over.
  __device__ bool wait_read(int step) {
    unsigned tries = 0;
#pragma unroll 1
    while (!mbarrier_try_wait(empty + tail * 8, parity))
      if (!Cut::ALONE && ++tries % 64 == 0 && !may_wait(p, sh, step)) return false;
    return true;
  }
  // Waits until there is room for a tile of so many bytes, and announces it: so many of them will be copied. Returns
  // where it begins.
  __device__ uint32_t make_room(int step, int tile, int copied) {
    int begin = head, take = tile;
    if (head + tile > bytes) take += bytes - head, begin = 0;
#pragma unroll 1
    while (used + take > bytes || flying == TILES) {
      const int freed = load_shared32(size + tail * 4);
      if (!wait_read(step)) {
        used = UNLIMITED;
        continue;
      }
      used -= freed;
      flying--;
      if (++tail == TILES) tail = 0, parity ^= 1;
    }
    arrives = full + at * 8;
    if (!ONE) __syncwarp();
    if (lane == 0) {
      store_shared32(size + at * 4, take);
      store_shared32(base + at * 4, ring + begin);
      mbarrier_expect(arrives, copied);
    }
    if (!ONE) __syncwarp();
    used += take;
    head = begin + tile;
    flying++;
    if (++at == TILES) at = 0;
    return ring + begin;
  }
  // Waits until a copy of so many bytes may begin, at so many bytes per clock.
  __device__ void pace(int copy, int rate) {
    while (clock64() < due) continue;
    due = clock64() + copy / rate;
  }
};

// The greater logit; the lower id among equals.
__device__ inline void take_better(float &v, int &id, float other, int other_id) {
  if (other > v || (other == v && other_id < id)) v = other, id = other_id;
}
__device__ inline void warp_best(float &v, int &id) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float other = __shfl_xor_sync(~0u, v, o);
    const int other_id = __shfl_xor_sync(~0u, id, o);
    take_better(v, id, other, other_id);
  }
}

// tanh, to about the precision of float32 in GELU, where it is added to 1.
__device__ inline float fast_tanh(float x) { return fmaf(-2.0f, reciprocal(exp2_fast(2.0f * 1.4426950408889634f * x) + 1.0f), 1.0f); }

// In a library for tests (FLAGS=-DGS_DECODE_DELAYS csrc/build.sh) a warp waits up to 4 us, at one
// call of four, before it publishes and before it polls: every order of blocks must give the
// same results.
__device__ inline void delay() {
#ifdef GS_DECODE_DELAYS
  uint32_t x = __shfl_sync(~0u, (uint32_t)clock64(), 0) * 0x9e3779b9u ^ (blockIdx.x * 16 + threadIdx.x / 32) * 0x85ebca6bu;
  x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12;
  if (x % 4 == 0)
    for (const long long until = clock64() + x / 4 % 8000; clock64() < until;) continue;
  __syncwarp();
#endif
}

// In another one (-DGS_DECODE_STUCK), or in the emulator if it is told so, a block of each launch of several
// tokens finds no room for weights: the others must not wait for it forever.
template <typename Shared> __device__ inline void get_stuck(const Program &p, Shared &sh, int t, int step) {
#if defined(GS_DECODE_STUCK) || defined(GS_EMULATED)
#ifdef GS_EMULATED
  if (!emulator::stuck()) return;
#endif
  if (blockIdx.x == 5 && t == 1 && step == 3)
    while (may_wait(p, sh, step)) continue;
#endif
}

constexpr int OF_LANE = MOST_BLOCKS / 32;  // units of all blocks that a lane reads

// Waits until each block has published its unit, a block's `stride` units after that of the
// one before, and reads those of blocks lane, lane + 32, ... .
template <typename Shared> __device__ inline void read_all(const Program &p, Shared &sh, const uint4 *units, int stride, uint32_t epoch, uint4 (&u)[OF_LANE]) {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));  // addresses are computed here: kept for the whole kernel they would take too many registers
  delay();
  bool wait;
  unsigned polls = 0;
#pragma unroll 1
  do {
    wait = false;
#pragma unroll
    for (int k = 0; k < OF_LANE; k++)
      if (32 * k + lane < (int)gridDim.x) u[k] = load_unit(units + (size_t)(32 * k + lane) * stride);
#pragma unroll
    for (int k = 0; k < OF_LANE; k++) wait |= 32 * k + lane < (int)gridDim.x && u[k].w != epoch;
  } while (wait && !gives_up(p.header, sh, polls, p.count));
  __syncwarp();
}

// Sums of 12, 10 or 8 values, in pairs: little depends on each other.
template <int N> __device__ __forceinline__ float sum_of(const float (&v)[N]) {
  static_assert(N >= 8 && N <= 12 && N % 2 == 0, "the sum below");
  float y = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  if (N == 10) y += v[8] + v[9];
  if (N == 12) y += (v[8] + v[9]) + (v[N - 2] + v[N - 1]);
  return y;
}

// The sum of a row over the parts of K that warps have.
template <int WARPS, typename Part> __device__ __forceinline__ float sum_of_parts(Part part) {
  float v[WARPS];
#pragma unroll
  for (int w = 0; w < WARPS; w++) v[w] = part(w);
  return sum_of(v);
}

// The compiler contracts products and sums differently in different kernels. These functions, which
// all kernels have, name each fused operation, so that all have the same bits.

// Mean of a part of x, and sum of squared differences from it: `about` is a value near the mean, sum and
// squares are those of differences from `about`, over is 1 over the number of values.
__device__ __forceinline__ float2 stats_of(float about, float sum, float squares, float over) {
  return make_float2(fmaf(sum, over, about), fmaxf(fmaf(-sum, sum * over, squares), 0.0f));
}

// LayerNorm of x: its mean, and 1 over its standard deviation.
struct Normal {
  float mean, scale;
};

// LayerNorm of x from the stats of WARPS equal parts of it, which are combined (T. Chan, G. Golub,
// R. LeVeque, Algorithms for computing the sample variance, 1983).
template <int WARPS, int PART> __device__ __forceinline__ Normal normal_of(const float2 *stats, float over_c, float eps) {
  float d[WARPS], within[WARPS], squares[WARPS];
  const float about = stats[0].x;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    const float2 of = stats[w];
    d[w] = of.x - about, within[w] = of.y, squares[w] = __fmul_rn(d[w], d[w]);
  }
  const float2 all = stats_of(about, sum_of(d), sum_of(squares), 1.0f / WARPS);
  return {all.x, reciprocal_root(fmaf(fmaf((float)PART, all.y, sum_of(within)), over_c, eps))};
}

// LayerNorm of x from what each lane of the warps that compute has: the sum of its values' differences from
// `about`, and that of their squares. `about` is a value of x, so that it is at most sqrt(C) deviations from the
// mean, and the difference of the two sums loses a factor of C of the precision at most.
template <int WARPS> __device__ __forceinline__ Normal normal_of_lanes(const float2 (*lanes)[32], float about, float over_c, float eps) {
  const int lane = threadIdx.x % 32;
  float sums[WARPS], squares[WARPS];
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    const float2 of = lanes[w][lane];
    sums[w] = of.x, squares[w] = of.y;
  }
  float sum = sum_of(sums), square = sum_of(squares);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    sum += __shfl_xor_sync(~0u, sum, o);
    square += __shfl_xor_sync(~0u, square, o);
  }
  const float off = __fmul_rn(sum, over_c);
  return {about + off, reciprocal_root(fmaxf(fmaf(square, over_c, -__fmul_rn(off, off)), 0.0f) + eps)};
}

// An output of a product: LayerNorm applied to y, a row of W (gain x), and the bias. sums is that of the
// row of W gain.
__device__ __forceinline__ float output_of(float y, Normal of, float sums, float bias) { return fmaf(of.scale, fmaf(-of.mean, sums, y), bias); }

// y + 0.044715 y^3, of GELU.
__device__ __forceinline__ float gelu_cubic(float y) { return fmaf(0.044715f * y * y, y, y); }

// Where a lane finds values of a warp's part of a vector.
struct Place {
  int unit;   // of the vector
  int at;     // its first value, relative to the part; may be negative
  int count;  // of its values, 0 if the lane has none
};

// The n-th unit of those that hold values [from, from + length).
__device__ inline Place place_of(const Shape &s, int values, int from, int length, int n, int all) {
  const int block = from / s.rows, unit = block * s.per_block + (from - block * s.rows) / values + n;
  const int owner = unit / s.per_block, of = unit - owner * s.per_block, begin = owner * s.rows + of * values;
  Place p;
  p.unit = owner * s.stride + of;
  p.at = begin - from;
  p.count = p.at < length && begin < all ? min(values, owner * s.rows + s.rows - begin) : 0;
  return p;
}

// A place in a word: unit, values in the part as a mask, and the first value's number.
__device__ inline uint32_t packed(const Place &p, int length) {
  uint32_t mask = 0;
  for (int k = 0; k < p.count; k++) mask |= (p.at + k >= 0 && p.at + k < length) << k;
  return mask == 0 ? 0 : (uint32_t)p.unit << 20 | mask << 14 | (uint32_t)(p.at + 8);
}
__device__ inline int unit_of(uint32_t p) { return p >> 20; }
__device__ inline int at_of(uint32_t p) { return (int)(p & 0x3fff) - 8; }
__device__ inline bool holds(uint32_t p, int k) { return p >> (14 + k) & 1; }

// The table of steps, then bias and sums of the logits: read from memory for each batch of
// rows, while weights take all of its bandwidth, they would arrive after a microsecond.
// Tails, the ring. A tail has the keys, then the values of the tokens
// of this launch, of a head of a layer: the block that has the last split keeps them.
extern __shared__ __align__(128) unsigned char dynamic[];

// The steps [first_step, end_step) of the tokens from first_token on are run.
template <typename Cut> __device__ inline int first_step(const Program &p) { return Cut::ALONE ? p.alone : 0; }
template <typename Cut> __device__ inline int end_step(const Program &p) { return Cut::ALONE ? p.alone + 1 : p.count; }
template <typename Cut> __device__ inline int first_token(const Program &p) { return Cut::ALONE ? p.tokens - 1 : 0; }

// The first row of a prompt that a step computes: of the last layer only keys and values of all are needed.
template <typename Cut> __device__ inline int first_row(const Program &p, int step) { return Cut::PROMPT && step > p.count - 1 - STEPS ? p.B - 1 : 0; }
// The first sequence that a step computes.
template <typename Cut> __device__ inline int start_of(const Local &s) { return Cut::PROMPT ? *(const volatile int *)&s.start : 0; }

template <typename Cut> __device__ inline void barrier_sync(int id) {
  named_sync<Cut::PARTIES>(id);
}
template <typename Cut> __device__ inline void barrier_arrive(int id) {
  named_arrive<Cut::PARTIES>(id);
}

// Notes when a block did what in a step: gs_decode_stamp.
__device__ inline uint64_t *stamps_of(const Program &p, int t, int i) { return p.stamps + (((size_t)t * (p.count + 1) + i) * gridDim.x + blockIdx.x) * 4; }
template <typename Cut> __device__ inline void stamp(const Program &p, int t, int i, int what) {
  if constexpr (Cut::STAMPS)
    if (threadIdx.x % 32 == 0) stamps_of(p, t, i)[what] = gs_globaltimer();
}
// The inputs of a step are there. The first warp that computes notes when, and the one that finishes stamps it: it has the time.
template <typename Cut, typename Shared> __device__ inline void note_arrived(Shared &sh, int warp, int buffer) {
  if (Cut::STAMPS && warp == 0) *(volatile uint64_t *)&sh.arrived[buffer] = gs_globaltimer();
}
template <typename Cut, typename Shared> __device__ inline void stamp_arrived(const Program &p, const Shared &sh, int t, int i, int buffer) {
  if constexpr (Cut::STAMPS)
    if (threadIdx.x % 32 == 0) stamps_of(p, t, i)[GS_DECODE_ARRIVED] = *(const volatile uint64_t *)&sh.arrived[buffer];
}
// Waits for a tile that a step needs first. In kernels that stamp, a warp for which stamps() holds stamps when the tile was
// there, but only if it was waited for: to read the clock in every step would cost more than the other stamps together.
template <typename Cut, typename Shared, typename Stamps> __device__ inline uint32_t wait_first_tile(const Program &p, Shared &sh, unsigned tile, int i, Stamps stamps) {
  if constexpr (!Cut::STAMPS) return wait_tile(sh, tile);
  uint64_t *const full = &sh.full[tile % TILES];
  if (!mbarrier_test(shared_address(full), tile / TILES)) {
    mbarrier_wait(full, tile / TILES);
    if (stamps()) stamp<Cut>(p, *(volatile int *)&sh.step, i, GS_DECODE_READY);
  }
  return sh.base[tile % TILES];
}

// A value of which the compiler knows nothing: what is computed of it is computed in its place, not
// before the loop over steps, where registers would hold it.
__device__ inline int here(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

// A row of wte or wpe is read soon.
template <typename Cut> __device__ inline void prefetch_row(const void *table, int row) {
  constexpr int BYTES = Cut::C * sizeof(bf16);
  const char *const from = reinterpret_cast<const char *>(table) + (size_t)row * BYTES;
#pragma unroll
  for (int at = threadIdx.x % 32 * 128; at < BYTES; at += 32 * 128) prefetch(from + at);
}

// The units of a sequence of those that a vector has.
__device__ inline const char *units_of(const char *vector, int sequence, int stride) {
  return vector + (size_t)(unsigned)(here(sequence) * stride);
}

// The keys of an item in the cache: where they begin, in bytes from the layer's, and how many.
struct Keys {
  size_t first;
  int count;
};
template <int KEY_BYTES, bool PROMPT = false, typename Shared> __device__ inline Keys keys_of(const Program &p, const Shared &sh, const Item &item) {
  const int row = PROMPT ? 0 : item.row;  // of the cache
  const int pos = sh.pos0[row], part = ((pos + p.splits - 1) / p.splits + KEYS - 1) / KEYS * KEYS, from = min(pos, item.split * part);
  Keys k;
  k.first = (((size_t)row * p.NH + item.head) * p.P + from) * KEY_BYTES;
  k.count = item.split == p.splits - 1 ? pos - from : min(pos - from, part);
  return k;
}

// A row of the residual stream of this block, as it published it.
__device__ inline float own_residual(const Program &p, int sequence, int row) {
  return __ldcg(reinterpret_cast<const float *>(p.residual + (size_t)sequence * p.row_x + (size_t)(blockIdx.x * p.x.stride + row / F32S) * 16) + row % F32S);
}

#endif

// Whether the units of every part of a vector fit the lanes that read them.
inline bool covered(const Shape &s, int values, int part, int n, int lanes) {
  for (int from = 0; from < n; from += part) {
    const int last = from + part - 1;
    const int a = from / s.rows * s.per_block + from % s.rows / values, b = last / s.rows * s.per_block + last % s.rows / values;
    if (b - a >= lanes) return false;
  }
  return true;
}

}  // namespace
