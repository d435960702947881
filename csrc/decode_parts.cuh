// What the decode kernels share: vectors in packets, the program, and small functions.
#pragma once

#include "decode.cuh"
#include "mbarrier.cuh"
#include "ptx.cuh"
#include "packet.cuh"
#include "q8.cuh"

namespace decode {  // named: else code for older GPUs has warnings of what it does not use

// The Traits of gs_persistent_one of one row, whose launch runs step p.only_step of token p.tokens - 1.
template <typename Of> struct SingleStep : Of {
  static constexpr bool SINGLE_STEP = true;
};

}  // namespace decode
using decode::SingleStep;

namespace {

constexpr int TILES = 32;  // copies to the ring in flight, at most
constexpr int HEAD = 64;   // size of a head
constexpr int SPLITS = 4;
constexpr int LINE = 8;            // packets of a line of the L2 cache; each has one writer
constexpr int KEYS = 16;           // of a tensor core instruction
constexpr int STEPS = 5;           // of a layer
constexpr int FIRST_RESIDUAL = 2;  // the first of them that writes the residual stream
constexpr int MOST_BLOCKS = 192;

typedef gs_persistent_header Header;
constexpr size_t HEADER = 256;

constexpr int F32_PER_PACKET = 3, BF16_PER_PACKET = 6;  // values of a packet
constexpr int ATTENDED = HEAD / BF16_PER_PACKET + 2;  // packets of an attention output: 64 values, then maximum and sum
constexpr int ATTENDED_STRIDE = (ATTENDED + LINE - 1) / LINE * LINE;

// Vectors in packets: block b writes per_block of them from b * stride, of `rows` values. Packets of the same values of
// `side` vectors lie beside each other.
struct Shape {
  int rows;       // values of a block
  int per_block;  // packets
  int stride;     // packets from a block's first to the next one's
};
// Rows of a block. Of bfloat16 outputs an even number, so that pairs are words. Of 384 outputs whole packets, of which
// lanes have no more then.
__host__ __device__ inline int rows_of(int n, int blocks, int values) {
  const int rows = (n + blocks - 1) / blocks;
  if (values == BF16_PER_PACKET) return (rows + 1) / 2 * 2;
  return n == 384 ? (rows + 2) / 3 * 3 : rows;
}

__host__ __device__ inline Shape shape_of(int n, int blocks, int values, int side) {
  Shape s;
  s.rows = rows_of(n, blocks, values);
  s.per_block = (s.rows + values - 1) / values;
  s.stride = (s.per_block * side + LINE - 1) / LINE * LINE / side;
  return s;
}

// The split that a block computes in step i of the program, -1 if none, and of which head. Attention moves on by as
// many blocks as it takes, and its last splits among them.
__host__ __device__ inline int split_of(int i, int block, int blocks, int heads, int *head) {
  const int n = ((block - i / STEPS * heads * SPLITS) % blocks + blocks) % blocks;
  *head = n / SPLITS;
  if (n < heads * SPLITS) return (n + i / STEPS) % SPLITS;
  *head = 0;
  return -1;
}

// The keys of a split but the last one, of so many.
__host__ __device__ inline int part_of(int keys, int splits) {
  return ((keys + splits - 1) / splits + KEYS - 1) / KEYS * KEYS;
}

// A part of the attention of a step: of a head of a sequence, and of its keys. Those of a step are numbered; a block
// has every blocks-th of them.
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

// Each half of the L2 cache is near one half of the SMs, and home of about every other page of 4 KB. A packet that is
// polled from the far half arrives 200 clocks later. So packets are stored twice: in both pages of a pair, of which
// mostly one is near a block. PAGE is in packets.
constexpr int PAGE = 4096 / 16, PAIR = 2 * PAGE * 16, NEAR_SMS = 256, NEAR_WORDS = 4;
__host__ __device__ inline int first_copy(int packet) { return packet + packet / PAGE * PAGE; }

struct Params {
  const gs_persistent_step *steps;
  const char *wte;  // of the type of weights
  const bf16 *wpe;
  const int *ids;  // (B) of a prompt
  int *text;       // (P + 1) tokens so far; 0 if nothing reads them
  int verify;      // rows of a pass that verifies drafts, at most
  int exit;        // the steps of the layers that draft; 0: drafts are looked up
  int trial;       // after so many passes whose first draft was wrong they draft no more; 0: they do
  gs_sampling *sampling;
  int *pos, *token;
  gs_slot *slots;
  float *logits;
  Header *header;
  char *residual, *hidden, *qkv, *attended;  // packets
  float *own;                                // (B, C) of single steps: the residual stream
  // (2, B, blocks, LINE) packets, the first of a line: logit, id; or (2, blocks, LINE), those of decode_sample.cuh.
  uint4 *best;
  uint64_t timeout;  // ns
  uint64_t *stamps;  // (passes, count + 1, blocks, 4), null if the launch does not stamp
  gs_stamp stamp;    // of a single step
  int count, C, NH, P, V, slot_count, tokens, ring_bytes;
  int B, ld;                       // sequences, rows of a prompt, or of a pass at most; values from a row of logits to the next
  int splits, items;               // of the keys of a head; of the attention of a step
  int side;                        // rows or sequences whose packets lie beside each other, but for those of attended
  int row_o;                       // bytes of the packets of attended of one
  int logits_only;                 // gs_sample takes the token
  int tails;                       // of a block, at most
  int table;                       // bytes of the steps in shared memory, of head and of text
  int text_at;                     // where text begins in it
  int head;                        // rows of the logits that a block has, at most
  int kept;  // of the logits' rows, the last ones of a block that may stay in the L2 cache; -1 if all weights may
  float eps;
  Shape x, h, a;   // residual stream, hidden layer, qkv
  int pair_h, pair_a, pair_o, pairs;  // of pages of packets: the first ones, but for those of x, and how many
  uint32_t *near;                     // (NEAR_SMS, 1 + NEAR_WORDS): of an SM for how many pairs, and which page is near
  uint32_t zero;   // 0, which the compiler does not know
  int only_step;   // of gs_persistent_one: the step, else -1; tokens - 1 is its token's place in a launch of all
  uint32_t epoch;  // and the epoch before the first step of the token
  int candidates;  // from so many the token is sampled; 0: it is the argmax
  uint4 *lists;    // (B, blocks, LIST_PACKETS) packets: candidates
};

// How many of a block's items of step i have the last split of a head.
__host__ __device__ inline int last_splits(int i, int block, int blocks, const Params &p) {
  int many = 0;
  for (int n = first_item(i, block, blocks, p.items); n < p.items; n += blocks)
    many += item_of(n, i, p.NH, p.splits).split == p.splits - 1;
  return many;
}

// A step as the block sees it, in shared memory.
struct alignas(16) BlockStep {
  const char *source;  // W at the block's first row; K cache at the first key of the split
  const char *source_v;
  const float *bias, *gain, *sums;
  int kind, in, out, act;
  int row, rows;  // of the block; of attention: head, keys
  int split;      // of attention, or -1 if the block has no part in it
  int tail;       // of attention of the last split: which of the block's tails
};

// LayerNorm of x: its mean, and 1 over its standard deviation.
struct LayerNormStats {
  float mean, scale;
};

#if __CUDA_ARCH__ >= 900

constexpr int FREE = 3, FULL = 1, TOKEN = 5, SUMMED = 10;  // numbers of barriers; all but TOKEN are two

__device__ inline uint32_t pack2(float a, float b) { return pack_bf16(a, b); }
__device__ inline float low(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }

// A value of which the compiler knows nothing: what depends on it is computed where it is used, not before the loop
// over steps, where registers would hold it.
__device__ inline int opaque(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

// Once a block has waited too long, the launch is aborted: none waits any more, the kernel runs to its end, and its
// results are marked as void.
template <typename Shared> __device__ inline bool is_aborted(const Shared &sh) {
  return *(const volatile int *)&sh.aborted;
}

// Notes the first block that has waited too long.
__device__ inline void record_timeout(Header *header, uint32_t where) {
  atomicCAS(&header->expired, 0u, 0x80000000u | where);
  __threadfence();
}

// When waits are too long. A thread calls it as a launch and each of its passes begin.
template <typename Shared> __device__ inline void restart_timeout(const Params &p, Shared &sh) {
  *(volatile uint64_t *)&sh.deadline = gs_globaltimer() + p.timeout;
}

// Whether some block has waited too long for packets; notes this one if it has, and else that it waits.
template <typename Shared> __device__ inline bool timed_out(Header *header, Shared &sh, int step) {
  uint32_t expired = load_relaxed(&header->expired);
  *(volatile int *)&sh.polling = 1;
  if (!expired && gs_globaltimer() > *(volatile uint64_t *)&sh.deadline) {
    record_timeout(header, step << 16 | blockIdx.x);
    expired = 1;
  }
  if (expired) *(volatile int *)&sh.aborted = 1;
  return expired != 0;
}

// Whether to stop waiting for packets that a step needs, after so many polls.
template <typename Shared> __device__ inline bool stops_waiting(Header *header, Shared &sh, unsigned &polls, int step) {
  poll_again();
  if (++polls % 64 != 0) return false;
  return is_aborted(sh) || (polls % 8192 == 0 && timed_out(header, sh, step));
}

// Whether to end polls, of which this is one more, of which all lanes of a warp call it.
template <typename Shared> __device__ inline bool gives_up(Header *header, Shared &sh, unsigned &polls, int step) {
  poll_again();
  return ++polls % 64 == 0 &&
         __any_sync(~0u, is_aborted(sh) || (polls % 8192 == 0 && timed_out(header, sh, step)));
}

// Polls until all lanes have() what they need, or the launch ends; returns how often, in kernels that stamp after `polls`
// before. Lanes stop together: a warp takes 100 clocks to come together. All lanes of a warp call it.
template <typename Shared, typename Have>
__device__ __forceinline__ unsigned poll_until(Header *header, Shared &sh, int step, Have have, unsigned polls = 0) {
  if constexpr (Shared::STAMPS) {  // in fewer registers, but instructions more once all have it
    bool again;
#pragma unroll 1
    do again = __any_sync(~0u, !have()) && !gives_up(header, sh, polls, step);
    while (again);
  } else {
    polls = 0;
#pragma unroll 1
    while (__any_sync(~0u, !have()))
      if (gives_up(header, sh, polls, step)) break;
  }
  return polls;
}

// Reads packets of a lane, those of bits of `wanted`, until each has had the epoch, and gives each to take() then: its
// number, the packet, and whether it has arrived. All are in flight at once, which the branch between loads and their
// use is for: without it the compiler waits for some before it asks for others.
template <int N, typename Shared, typename At, typename Take, typename Arrival>
__device__ __forceinline__ void take_packets(Header *header, Shared &sh, uint32_t wanted, uint32_t epoch, int step,
                                             At at, Take take, Arrival &arrival) {
  unsigned polls = 0;
  if constexpr (N <= 2) {  // predicates are enough
    uint4 u[N] = {};
    poll_until(header, sh, step, [&] {
      bool lacks = false;
#pragma unroll
      for (int n = 0; n < N; n++) load_packet_to(u[n], wanted & 1u << n && u[n].w != epoch, at(n));
#pragma unroll
      for (int n = 0; n < N; n++) lacks |= wanted & 1u << n && u[n].w != epoch;
      return !lacks;
    });
    arrival.read();
#pragma unroll
    for (int n = 0; n < N; n++) take(n, u[n], wanted & 1u << n);
  } else {
#pragma unroll 1
    do {
      uint4 u[N];
#pragma unroll
      for (int n = 0; n < N; n++) u[n] = load_packet_if(wanted & 1u << n, at(n));
      if (gives_up(header, sh, polls, step)) return;
#pragma unroll
      for (int n = 0; n < N; n++) {
        const bool arrived = u[n].w == epoch;  // the epoch of none that is not read
        take(n, u[n], arrived);
        wanted &= ~((uint32_t)arrived << n);
      }
    } while (__any_sync(~0u, wanted != 0));
    arrival.read();
  }
}
// The same, until all have the epoch at once; u becomes those that are wanted, others 0.
template <int N, typename Shared, typename At>
__device__ __forceinline__ void read_packets(Header *header, Shared &sh, uint4 (&u)[N], uint32_t wanted,
                                             uint32_t epoch, int step, At at) {
  unsigned polls = 0;
  uint32_t lacks;
#pragma unroll 1
  do {
#pragma unroll
    for (int n = 0; n < N; n++) u[n] = load_packet_if(wanted & 1u << n, at(n));
    if (gives_up(header, sh, polls, step)) return;
    lacks = wanted;
#pragma unroll
    for (int n = 0; n < N; n++) lacks &= ~((uint32_t)(u[n].w == epoch) << n);
  } while (__any_sync(~0u, lacks != 0));
}

// Waits for a tile, numbered modulo 2 TILES. Returns where it begins. There is no deadline here: a copy that has begun
// ends, and before it begins the warp that copies looks at the time.
template <typename Shared> __device__ inline uint32_t wait_tile(Shared &sh, unsigned tile) {
  mbarrier_wait(&sh.full[tile % TILES], tile / TILES);
  return sh.base[tile % TILES];
}
// Whether the warp that copies may go on waiting for room in the ring. If no warp of its block has waited for packets
// lately, the block waits for weights that have no room, and keeps others waiting for its packets: it gives up before
// they do, and is the one named.
template <typename Shared> __device__ inline bool may_wait(const Params &p, Shared &sh, int step) {
  if (is_aborted(sh)) return false;
  const uint64_t now = gs_globaltimer(), spare = p.timeout / 8;
  if (*(volatile int *)&sh.polling) *(volatile int *)&sh.polling = 0, *(volatile uint64_t *)&sh.polled = now;
  if (now < *(volatile uint64_t *)&sh.deadline - spare || now < *(volatile uint64_t *)&sh.polled + spare) return true;
  record_timeout(p.header, step << 16 | GS_PERSISTENT_FOR_WEIGHTS | blockIdx.x);
  *(volatile int *)&sh.aborted = 1;
  return false;
}

// The copying warp's view of the ring in shared memory. One lane does all of it, or each has a copy.
template <typename Traits, typename Shared> struct RingWriter {
  // Bytes of the ring in use, as it were, in a launch that was aborted: no copy waits for room, so that all warps get
  // their tiles and come to their end. What they read may be overwritten.
  static constexpr int UNLIMITED = -(1 << 30);
  // Whether one lane does all of it. Elsewhere steps took longer with it: of 8-bit rows it would copy too few bytes.
  static constexpr bool ONE = !Traits::BATCHED && (!Traits::WIDE || (Traits::NB == 5 && !Traits::Q8));
  const Params &p;
  Shared &sh;
  uint32_t ring, full, empty, base, size;  // addresses
  uint32_t arrives;                        // the mbarrier of the last tile
  int bytes;                               // of the ring
  int lane = ONE ? 0 : threadIdx.x % 32, at = 0, tail = 0, parity = 0, head = 0, used, in_flight = 0;
  long long due = 0;  // when the next copy may begin

  __device__ RingWriter(const Params &p, Shared &sh, const void *begin)
      : p(p), sh(sh), ring(shared_address(begin)), full(shared_address(sh.full)), empty(shared_address(sh.empty)),
        base(shared_address(sh.base)), size(shared_address(sh.size)), bytes(p.ring_bytes),
        used(is_aborted(sh) ? UNLIMITED : 0) {
    keep_address(full), keep_address(empty), keep_address(base), keep_address(size);
  }
  // Waits until the tile that is next has been read. Returns false if the launch was aborted.
  __device__ bool wait_until_read(int step) {
    unsigned tries = 0;
#pragma unroll 1
    while (!mbarrier_try_wait(empty + tail * 8, parity))
      if (!Traits::SINGLE_STEP && ++tries % 64 == 0 && !may_wait(p, sh, step)) return false;
    return true;
  }
  // Waits until there is room for a tile of so many bytes, and announces it: so many of them will be copied. Returns
  // where it begins.
  __device__ uint32_t reserve(int step, int tile, int copied) {
    int begin = head, take = tile;
    if (head + tile > bytes) take += bytes - head, begin = 0;
#pragma unroll 1
    while (used + take > bytes || in_flight == TILES) {
      const int freed = load_shared32(size + tail * 4);
      if (!wait_until_read(step)) {
        used = UNLIMITED;
        continue;
      }
      used -= freed;
      in_flight--;
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
    in_flight++;
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
__device__ inline float fast_tanh(float x) {
  return fmaf(-2.0f, reciprocal(exp2_fast(2.0f * 1.4426950408889634f * x) + 1.0f), 1.0f);
}

// In a library for tests (FLAGS=-DGS_PERSISTENT_DELAYS csrc/build.sh) a warp waits up to 4 us, at one call of four,
// before it publishes and before it polls: every order of blocks must give the same results.
__device__ inline void delay() {
#ifdef GS_PERSISTENT_DELAYS
  uint32_t x =
      __shfl_sync(~0u, (uint32_t)clock64(), 0) * 0x9e3779b9u ^ (blockIdx.x * 16 + threadIdx.x / 32) * 0x85ebca6bu;
  x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12;
  if (x % 4 == 0)
    for (const long long until = clock64() + x / 4 % 8000; clock64() < until;) continue;
  __syncwarp();
#endif
}

// In another one (-DGS_PERSISTENT_STUCK), or in the emulator if it is told so, a block of each launch of several tokens
// finds no room for weights: the others must not wait for it forever.
template <typename Shared> __device__ inline void hang_for_test(const Params &p, Shared &sh, int t, int step) {
#if defined(GS_PERSISTENT_STUCK) || defined(GS_EMULATED)
#ifdef GS_EMULATED
  if (!emulator::stuck()) return;
#endif
  if (blockIdx.x == 5 && t == 1 && step == 3)
    while (may_wait(p, sh, step)) continue;
#endif
}

constexpr int BLOCKS_PER_LANE = MOST_BLOCKS / 32;  // packets of all blocks that a lane reads

// Waits until each block has published its packet, a block's `stride` packets after that of the one before, and reads
// those of blocks lane, lane + 32, ... .
template <typename Shared>
__device__ inline void read_all(const Params &p, Shared &sh, const uint4 *packets, int stride, uint32_t epoch,
                                uint4 (&u)[BLOCKS_PER_LANE]) {
  // Addresses are computed here: kept for the whole kernel they would take too many registers.
  const int lane = opaque(threadIdx.x) % 32;
  delay();
  uint32_t wanted = 0;
#pragma unroll
  for (int k = 0; k < BLOCKS_PER_LANE; k++) wanted |= (uint32_t)(32 * k + lane < (int)gridDim.x) << k;
  read_packets(p.header, sh, u, wanted, epoch, p.count,
               [&](int k) { return packets + (size_t)(32 * k + lane) * stride; });
  __syncwarp();
}

// Sums of 12, 10, 8 or 6 values, in pairs: little depends on each other.
template <int N> __device__ __forceinline__ float sum_of(const float (&v)[N]) {
  static_assert(N >= 6 && N <= 12 && N % 2 == 0, "the sum below");
  float y = (v[0] + v[1]) + (v[2] + v[3]);
  if constexpr (N == 6) return y + (v[4] + v[5]);
  else y += (v[4] + v[5]) + (v[6] + v[7]);
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

// The compiler contracts products and sums differently in different kernels. These functions, which all kernels have,
// name each fused operation, so that all have the same bits.

// LayerNorm of x from what each lane of the warps that compute has: the sum of its values' differences from `about`,
// and that of their squares. `about` is a value of x, so that it is at most sqrt(C) deviations from the mean, and the
// difference of the two sums loses a factor of C of the precision at most. Of several rows it is that of row lane % rows.
template <int WARPS>
__device__ __forceinline__ LayerNormStats layernorm_of_lanes(const float2 *lanes, int rows, float about, float over_c,
                                                             float eps) {
  float sums[WARPS], squares[WARPS];
#pragma unroll
  for (int n = 0; n < WARPS; n++) {
    const float2 of = lanes[32 * n + threadIdx.x % 32];
    sums[n] = of.x, squares[n] = of.y;
  }
  float sum = sum_of(sums), square = sum_of(squares);
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    if (o < rows) break;
    sum += __shfl_xor_sync(~0u, sum, o);
    square += __shfl_xor_sync(~0u, square, o);
  }
  const float off = __fmul_rn(sum, over_c);
  return {about + off, reciprocal_root(fmaxf(fmaf(square, over_c, -__fmul_rn(off, off)), 0.0f) + eps)};
}

// An output of a product: LayerNorm applied to y, a row of W (gain x), and the bias. sums is that of the row of W gain.
__device__ __forceinline__ float apply_layernorm(float y, LayerNormStats of, float sums, float bias) {
  return fmaf(of.scale, fmaf(-of.mean, sums, y), bias);
}

// GELU of y, by tanh.
__device__ __forceinline__ float gelu(float y) {
  return 0.5f * y * (1.0f + fast_tanh(0.7978845608028654f * fmaf(0.044715f * y * y, y, y)));
}

// The values of one packet that belong to a warp's part of a vector.
struct Slice {
  int packet;  // of the vector
  int at;      // its first value, relative to the part; may be negative
  int count;   // of its values, 0 if the lane has none
};

// The n-th packet of those that hold values [from, from + length).
__device__ inline Slice slice_of(const Shape &s, int values, int from, int length, int n, int all) {
  const int block = from / s.rows, packet = block * s.per_block + (from - block * s.rows) / values + n;
  const int owner = packet / s.per_block, of = packet - owner * s.per_block, begin = owner * s.rows + of * values;
  Slice p;
  p.packet = owner * s.stride + of;
  p.at = begin - from;
  p.count = p.at < length && begin < all ? min(values, owner * s.rows + s.rows - begin) : 0;
  return p;
}

// A Slice in a word: 16 bits of packet, values in the part as a mask, and the first value's number.
__device__ inline uint32_t packed(const Slice &p, int length) {
  uint32_t mask = 0;
  for (int k = 0; k < p.count; k++) mask |= (p.at + k >= 0 && p.at + k < length) << k;
  return mask == 0 ? 0 : (uint32_t)p.packet << 16 | mask << 10 | (uint32_t)(p.at + 8);
}
__device__ inline int packet_of(uint32_t p) { return p >> 16; }
__device__ inline int at_of(uint32_t p) { return (int)(p & 0x3ff) - 8; }
__device__ inline bool holds(uint32_t p, int k) { return p >> (10 + k) & 1; }

// The table of steps; bias and sums of the logits, which would arrive after a microsecond if they were read for each
// batch of rows, while weights take all of the bandwidth; the text where drafts are verified; tails; the ring. A tail
// has the keys, then the values of the tokens of this launch, of a head of a layer: the block that has the last split
// keeps them.
extern __shared__ __align__(128) unsigned char dynamic[];

// Whether the launch runs one step only, as those of several sequences or rows that stamp can, and whether it samples
// tokens.
template <typename Traits> __device__ inline bool single_step(const Params &p) {
  return Traits::SINGLE_STEP || (Traits::SINGLE_STEPS && p.only_step >= 0);
}
template <typename Traits> __device__ inline bool samples(const Params &p) {
  return Traits::SAMPLES && (!Traits::GREEDY || p.candidates > 0);
}
// The steps [first_step, end_step) of the tokens from first_token on are run.
template <typename Traits> __device__ inline int first_step(const Params &p) {
  return single_step<Traits>(p) ? p.only_step : 0;
}
template <typename Traits> __device__ inline int end_step(const Params &p) {
  return single_step<Traits>(p) ? p.only_step + 1 : p.count;
}
template <typename Traits> __device__ inline int first_token(const Params &p) {
  return single_step<Traits>(p) ? p.tokens - 1 : 0;
}

// The place of sequence j, or of row j, before the tokens of the launch.
template <typename Traits, typename Shared> __device__ inline int place_of(const Shared &sh, int j) {
  return Traits::VERIFY ? sh.pos0[0] + j : sh.pos0[Traits::BATCHED ? j : 0];
}

template <typename Traits> __device__ inline void barrier_sync(int id) { named_sync<Traits::PARTIES>(id); }
template <typename Traits> __device__ inline void barrier_arrive(int id) { named_arrive<Traits::PARTIES>(id); }

// Notes when a block did what in a step: gs_persistent_stamp.
__device__ inline uint64_t *stamps_of(const Params &p, int t, int i) {
  return p.stamps + (((size_t)t * (p.count + 1) + i) * gridDim.x + blockIdx.x) * 4;
}
template <typename Traits> __device__ inline void stamp(const Params &p, int t, int i, int what) {
  if constexpr (Traits::STAMPS)
    if (threadIdx.x % 32 == 0 && !single_step<Traits>(p)) stamps_of(p, t, i)[what] = gs_globaltimer();
}
// When the inputs of a step are there. Each warp that computes notes it when x is on its way, so that the last one's
// time stays, without a condition, which would take as long as reading the clock; in wide models, where registers are
// few, the first warp does. The one that finishes stamps it: it has the time.
template <typename Traits> struct Arrival {
  static constexpr bool ALL = Traits::STAMPS && !Traits::WIDE;
  uint32_t at = 0;
  uint64_t time = 0;
  template <typename Shared> __device__ Arrival(Shared &sh, int buffer) {
    if constexpr (ALL) at = shared_address(&sh.arrived[buffer]), keep_address(at);
  }
  __device__ void read() {
    if constexpr (ALL) time = gs_globaltimer();
  }
  template <typename Shared> __device__ void store(Shared &sh, int warp, int buffer) const {
    if constexpr (ALL) store_shared64(at, time);
    else if (Traits::STAMPS && warp == 0) *(volatile uint64_t *)&sh.arrived[buffer] = gs_globaltimer();
  }
};
template <typename Traits, typename Shared>
__device__ inline void stamp_arrived(const Params &p, const Shared &sh, int t, int i, int buffer) {
  if constexpr (Traits::STAMPS)
    if (threadIdx.x % 32 == 0 && !single_step<Traits>(p))
      stamps_of(p, t, i)[GS_PERSISTENT_ARRIVED] = *(const volatile uint64_t *)&sh.arrived[buffer];
}
// Waits for a tile that a step needs first. In kernels that stamp, a warp for which stamps() holds stamps when the tile
// was there, but only if it was waited for: to read the clock in every step would cost more than the other stamps
// together.
template <typename Traits, typename Shared, typename Stamps>
__device__ inline uint32_t wait_first_tile(const Params &p, Shared &sh, unsigned tile, int i, Stamps stamps) {
  if constexpr (!Traits::STAMPS) return wait_tile(sh, tile);
  uint64_t *const full = &sh.full[tile % TILES];
  if (!mbarrier_test(shared_address(full), tile / TILES)) {
    mbarrier_wait(full, tile / TILES);
    const int pass = Traits::VERIFY ? *(volatile int *)&sh.verified.passes : *(volatile int *)&sh.step;
    if (stamps()) stamp<Traits>(p, pass, i, GS_PERSISTENT_READY);
  }
  return sh.base[tile % TILES];
}

// A row of wte or wpe is read soon.
template <int BYTES> __device__ inline void prefetch_row(const void *table, int row) {
  const char *const from = reinterpret_cast<const char *>(table) + (size_t)row * BYTES;
#pragma unroll
  for (int at = threadIdx.x % 32 * 128; at < BYTES; at += 32 * 128) prefetch(from + at);
}

// The embedding of a token from value c on.
template <typename Traits> struct Embedding {
  const char *at;  // of 8-bit weights the row
  int c;
  __device__ Embedding(const Params &p, size_t token, int c)
      : at(p.wte + token * Traits::ROW_BYTES + (Traits::Q8 ? 0 : c * sizeof(bf16))), c(c) {}
  __device__ float operator[](int k) const {
    return Traits::Q8 ? q8_exact(at, opaque(c + k)) : to_float(__ldg(reinterpret_cast<const bf16 *>(at) + k));
  }
};

// Where, in a row of weights in the ring, those of a lane are in the warp's first block of 32 inputs.
template <typename Traits> __device__ inline uint32_t part_of_row(int block, int q) {
  return Traits::Q8 ? q8_integers(block) + q * 8 : block * 64 + q * 16;
}
// A warp's part of x as integers of 16 bits times a scale, which is 128/127 of the power of two with which they fit. The
// high bytes are in column 0 of the tensor core instructions, the low ones in column 1.
struct Quantiser {
  float scale, inverse;

  // magnitude: of the lane's values, as bits, which are in the order of the values. The scale is no number if one of them
  // is none. Of rows, lanes of the same lane % 4 have one of their own.
  __device__ explicit Quantiser(uint32_t magnitude, bool rows) {
    uint32_t most = magnitude;
    if (rows) {
#pragma unroll
      for (int o = 4; o < 32; o *= 2) most = max(most, __shfl_xor_sync(~0u, most, o));
    } else {
      most = __reduce_max_sync(~0u, most);
    }
    const uint32_t exponent = max(most >> 23, 16u);
    inverse = __uint_as_float((268 - exponent) << 23) * (127.0f / 128);
    scale = fmaf(__uint_as_float(most), 0.0f, __uint_as_float((exponent - 14) << 23) * (128.0f / 127));
  }
  // Adding 1.5 x 2^23 rounds a value to an integer in the low bits.
  __device__ int integer(float v) const { return (int)__float_as_uint(fmaf(v, inverse, 12582912.0f)); }
  // Stores a value's bytes, `low` bytes apart.
  __device__ void store(uint32_t at, int low, float v) const {
    const int t = integer(v);
    store_shared8(at, (t + 128) >> 8), store_shared8(at + low, t);
  }
  // The high bytes of two values, then their low bytes.
  __device__ uint32_t two(float a, float b) const {
    const uint32_t both = __byte_perm(integer(a), integer(b), 0x5410);
    return __byte_perm(add_halves(both, 0x00800080), both, 0x6431);
  }
};
// The high bytes of eight values that lie by twos, or the low ones.
__device__ inline uint2 bytes_of_twos(uint32_t at, int low) {
  const uint4 v = load_shared(at);
  const uint32_t which = low ? 0x7632 : 0x5410;
  uint2 y;
  y.x = __byte_perm(v.x, v.y, which), y.y = __byte_perm(v.z, v.w, which);
  return y;
}

// Replaces N bfloat16 numbers of a warp in shared memory by their high bytes, then their low bytes; returns the scale.
// If ROW is not 0 these are four rows of N, so many numbers apart; a lane has row lane % 4, and its scale. TWOS: bytes
// of two values lie where these did, for which a lane needs no registers.
template <int N, int ROW = 0, bool TWOS = false> __device__ inline float quantise_part(uint32_t at) {
  constexpr int LANES = ROW ? 8 : 32, WORDS = (N / 2 + LANES - 1) / LANES;
  const int lane = ROW ? threadIdx.x % 32 / 4 : threadIdx.x % 32;
  uint32_t w[WORDS], most = 0;
  if (ROW) at += threadIdx.x % 4 * ROW * 2;
  auto load = [&](int i) { return LANES * i + lane < N / 2 ? load_shared32(at + (LANES * i + lane) * 4) : 0; };
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    w[i] = load(i);
    most = max_halves(most, w[i] & 0x7fff7fff);
  }
  const Quantiser quantiser(max(most << 16, most & 0xffff0000), ROW != 0);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < WORDS; i++)
    if (LANES * i + lane < N / 2) {
      const uint32_t to = at + (LANES * i + lane) * 2, v = TWOS ? load(i) : w[i], two = quantiser.two(low(v), high(v));
      if (TWOS) store_shared32(at + (LANES * i + lane) * 4, two);
      else store_shared16(to, two), store_shared16(to + N, two >> 16);
    }
  __syncwarp();
  return quantiser.scale;
}

// Where a lane's 8-bit weights of N blocks are, and their scales: of a part of a row that begins at block `first`, a
// multiple of 4 or 2 if N is one. `at` has part_of_row(first, q). Offsets of groups are added in the loads.
template <int N> struct Q8Part {
  static constexpr int EACH = N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1;  // scales that are read at once
  uint32_t at, scales, in_group;  // of the first block
  __device__ Q8Part(uint32_t at, int first) : at(at) {
    in_group = N % 8 ? first & 7 : 0;
    scales = at - (GS_Q8_SCALES + threadIdx.x % 4 * 8 + in_group * (Q8_BLOCK - 2));
  }
  // Eight times the groups that begin between the first block and block k.
  __device__ uint32_t groups(int k) const { return k / 8 * 8 + (in_group + k / EACH * EACH % 8 & 8); }
  __device__ uint32_t integers(int k) const { return at + k * Q8_BLOCK + groups(k) * (GS_Q8_SCALES / 8); }
  __device__ uint32_t scale(int k) const { return scales + k * 2 + groups(k) * Q8_BLOCK; }
};

// The weights of a lane of N blocks of two rows, as bytes: operands of the tensor cores as they are.
template <typename Traits, int N> struct Bytes {
  uint2 q[2][N];
  uint32_t scales[2][(N + 1) / 2];  // in pairs

  __device__ void clear(int h) {
#pragma unroll
    for (int k = 0; k < N && Traits::BYTES; k++)
      set_zero(q[h][k].x), set_zero(q[h][k].y), set_zero(scales[h][k / 2]);
  }
  // See load_weights.
  __device__ void load(int h, uint32_t at, int first) {
    const Q8Part<N> part(at, first);
#pragma unroll
    for (int k = 0; k < N; k++) {
      q[h][k] = load_shared64(part.integers(k));
      if (part.EACH == 4 && k % 4 == 0) {
        const uint2 v = load_shared64(part.scale(k));
        scales[h][k / 2] = v.x, scales[h][k / 2 + 1] = v.y;
      } else if (part.EACH == 2 && k % 2 == 0) {
        scales[h][k / 2] = load_shared32(part.scale(k));
      } else if (N % 2) {
        const uint32_t v = load_shared16(part.scale(k));
        scales[h][k / 2] = k % 2 ? scales[h][k / 2] | v << 16 : v;
      }
    }
  }
  // Rows g and g + 8 times x without its scale, in the lanes of column 0.
  __device__ float2 times(const uint2 (&x)[N]) const {
    float2 y = make_float2(0, 0);
#pragma unroll
    for (int k = 0; k < N; k++) {
      int d[4] = {};
      mma_bytes(d, q[0][k], q[1][k], x[k]);
      auto scale = [&](int h) { return k % 2 ? high(scales[h][k / 2]) : low(scales[h][k / 2]); };
      y.x = fmaf(scale(0), (float)(d[0] * 256 + d[1]), y.x), y.y = fmaf(scale(1), (float)(d[2] * 256 + d[3]), y.y);
    }
    return y;
  }
};

// The weights of a lane, eight of each block, as bfloat16: of N blocks from block k of its warp's part of a row on,
// which begins at block `first`. `at` has part_of_row(first, q). Parts of 2 and 4 blocks begin at a multiple of that.
template <typename Traits, int N>
__device__ inline void load_weights(uint4 (&w)[N], uint32_t at, int first, int k = 0) {
  if constexpr (Traits::Q8) {
    if (N % 2) first = opaque(first);  // else registers hold what depends on it
    const Q8Part<N> part(at, first);
    constexpr int EACH = part.EACH;
    uint2 scales = {};
#pragma unroll
    for (int n = 0; n < N; n++) {
      if (n % EACH == 0) {
        const uint32_t from = part.scale(k + n);
        if (EACH == 4) scales = load_shared64(from);
        else scales.x = EACH == 2 ? load_shared32(from) : load_shared16(from);
      }
      const uint2 bytes = load_shared64(part.integers(k + n));
      const uint32_t pair = n % EACH < 2 ? scales.x : scales.y;
      w[n] = widen(bytes, n % 2 && EACH > 1 ? pair >> 16 : pair & 0xffff);
    }
  } else {
#pragma unroll
    for (int n = 0; n < N; n++) w[n] = load_shared(at + (k + n) * 64);
  }
}

// The keys of an item in the cache: where they begin, in bytes from the layer's, and how many.
struct Keys {
  size_t first;
  int count;
};
template <int KEY_BYTES, bool PROMPT = false, typename Shared>
__device__ inline Keys keys_of(const Params &p, const Shared &sh, const Item &item) {
  const int row = PROMPT ? 0 : item.row;  // of the cache
  const int pos = sh.pos0[row], part = part_of(pos, p.splits), from = min(pos, item.split * part);
  Keys k;
  k.first = (((size_t)row * p.NH + item.head) * p.P + from) * KEY_BYTES;
  k.count = item.split == p.splits - 1 ? pos - from : min(pos - from, part);
  return k;
}

#endif

// Whether the packets of every part of a vector fit the lanes that read them.
inline bool covered(const Shape &s, int values, int part, int n, int lanes) {
  for (int from = 0; from < n; from += part) {
    const int last = from + part - 1;
    const int a = from / s.rows * s.per_block + from % s.rows / values,
              b = last / s.rows * s.per_block + last % s.rows / values;
    if (b - a >= lanes) return false;
  }
  return true;
}

}  // namespace
