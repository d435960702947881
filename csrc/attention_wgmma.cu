// Causal attention of many queries in bfloat16, head size 64, on Hopper's tensor cores (compute capability 9.0).
//
// Warpgroups of a block multiply, and have most registers; a thread of one more copies. Blocks take jobs from a queue,
// those with the most keys first, and copy for the next one while they multiply for the one before. For few tiles of
// queries (wgmma) a job is 64 queries of a head: the warpgroups take blocks of 64 keys in turns, and one merges what
// they have. For many (queue) it is 64 for each warpgroup, which share blocks of 128 keys.
//
// The diagonal block of keys comes first, then the new keys before it, then those of the cache. What a block reads of
// the cache that others write in the same launch it replaces.

#include "attention.cuh"
#include "wgmma.cuh"

namespace {

constexpr int HEAD = 64, ROWS = 64, TILE = ROWS * HEAD * 2;  // values of a head; queries of a tile, and their bytes
// Warpgroups that multiply, and heads whose jobs are taken together, as keys and values then stay in the L2 cache.
[[maybe_unused]] constexpr int WGS = 3, BUNCH = 96, SHARED = 1024 + 28 * TILE;

struct Prompt {
  CUtensorMap qkv, rows, keys, values, out;  // rows: qkv, not permuted
  bf16 *k_cache, *v_cache, *y;
  const int *pos, *pad;
  unsigned *queue;  // jobs taken beyond the first of each block; 0 between launches
  int B, NH, T, P, ldy;
  float scale;  // times log2(e)
};

#ifdef GS_WGMMA
// The stage of a block of keys and values, then of the step-th after it. A wait for a phase must not come before the
// phase before has ended: who waits for a stage waits for each of its blocks, as STAGES is a multiple of step.
template <int KEYS> struct Ring {
  static constexpr int VALUES = KEYS * HEAD * 2, STAGE = 2 * VALUES, STAGES = KEYS == 64 ? 9 : 4;
  uint32_t tiles;
  uint64_t *full, *empty;
  int step, stage, parity;
  __device__ uint32_t keys() const { return tiles + stage * STAGE; }
  __device__ uint32_t values() const { return keys() + VALUES; }
  __device__ void wait() const { mbarrier_wait(full + stage, parity); }
  __device__ void wait_empty() const { mbarrier_wait(empty + stage, parity ^ 1); }
  __device__ void give_back() const { if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + stage); }
  __device__ void next() { if ((stage += step) >= STAGES) stage -= STAGES, parity ^= 1; }
  __device__ void copy(const CUtensorMap &k, const CUtensorMap &v, int k_at, int v_at, int row, int plane) {
    wait_empty();
    mbarrier_expect(shared_address(full + stage), STAGE);
    for (int j = 0; j < KEYS; j += ROWS) {
      copy_box(keys() + j * HEAD * 2, k, k_at, row + j, plane, full + stage);
      copy_box(values() + j * HEAD * 2, v, v_at, row + j, plane, full + stage);
    }
    next();
  }
};

// What a thread has of two queries, 8 apart: sums of weighted values, largest scores, sums of weights.
struct Sums {
  float o[32], m[2], l[2];
};
// The blocks that a warpgroup attends to: new keys, the last ones first, then those of the cache.
struct Span {
  int first, end, fresh;  // from `fresh` on they are the cache's
  int pos, barrier;       // keys in the cache; a named barrier of the warpgroup
  int diagonal, last;     // of this block keys up to `last` count, for the second query 8 more
};

// Multiplies queries by keys, and weights by values while those of the next keys are computed.
template <int KEYS>
__device__ inline Sums attend(Ring<KEYS> &ring, const Span &at, uint64_t q, float scale) {
  Sums r = {{}, {-INFINITY, -INFINITY}, {}};
  float s[KEYS / 2], shrink[2];
  bool grown;
  uint32_t weights[KEYS / 4];
  if (at.first >= at.end) return r;
  auto multiply_keys = [&] {
    ring.wait();
    wgmma_begin();
    for (int j = 0; j < 4; j++) wgmma<KEYS>(s, q + 2 * j, tile_rows(ring.keys()) + 2 * j, j > 0);
    wgmma_commit();
  };
  auto multiply_values = [&](uint32_t values) {
    for (int j = 0; j < KEYS / 16; j++) wgmma_registers(r.o, weights + 4 * j, tile_columns(values) + 128 * j);
    wgmma_commit();
  };
  auto weigh = [&](int i) {
    const int from = (i - at.fresh) * KEYS;  // the position of the block's first key, if it is cached
    const bool cut = from >= 0 && from + KEYS > at.pos;
    if (i == at.diagonal || cut) {
      const int last = (cut ? at.pos - from - 1 : at.last) - threadIdx.x % 4 * 2, more = cut ? 0 : 8;
      for (int j = 0; j < KEYS / 2; j++)
        if (j / 4 * 8 + j % 2 > last + j / 2 % 2 * more) s[j] = -INFINITY;
    }
    float top[4] = {r.m[0], r.m[1], r.m[0], r.m[1]}, sum[4] = {};  // of halves of a row's values
    for (int j = 0; j < KEYS / 2; j += 2) top[j / 2 % 4] = fmaxf(top[j / 2 % 4], fmaxf(s[j], s[j + 1]));
    for (int h = 0; h < 2; h++) top[h] = fmaxf(top[h], top[h + 2]);
    // Weights are relative to the largest score of before, until one would exceed 2^8: o and l seldom change so.
    grown = __any_sync(0xffffffffu, (top[0] - r.m[0]) * scale > 8 || (top[1] - r.m[1]) * scale > 8);
    for (int h = 0; h < 2 && grown; h++) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
      shrink[h] = exp2_fast((r.m[h] - top[h]) * scale), r.l[h] *= shrink[h], r.m[h] = top[h];
    }
    for (int j = 0; j < KEYS / 2; j++) {
      s[j] = exp2_fast(fmaf(s[j], scale, -r.m[j / 2 % 2] * scale));
      sum[j / 2 % 4] += s[j];
    }
    for (int h = 0; h < 2; h++) r.l[h] += sum[h] + sum[h + 2];
    if (cut) {  // the rows of the cache from pos on hold anything, and 0 times that need not be 0
#pragma unroll 1
      for (int c = (at.pos - from) * 128 + threadIdx.x % 128 * 16; c < ring.VALUES; c += 2048)
        store_shared4(ring.values() + c, 0, 0, 0, 0);
      show_shared();
      named_sync<128>(at.barrier);
    }
  };
  auto pack = [&] { for (int j = 0; j < KEYS / 4; j++) weights[j] = pack_bf16(s[2 * j], s[2 * j + 1]); };
  multiply_keys();
  wgmma_wait<0>(s);
  weigh(at.first);
  pack();
  for (int i = at.first + ring.step; i < at.end; i += ring.step) {
    const auto before = ring;
    ring.next();
    keep_order(r.o);
    multiply_keys();
    multiply_values(before.values());
    wgmma_wait<1>(s);
    keep_order(s);
    weigh(i);
    wgmma_wait<0>(r.o);
    before.give_back();
    if (grown)
      for (int j = 0; j < 32; j++) r.o[j] *= shrink[j / 2 % 2];
    pack();
  }
  keep_order(r.o);
  wgmma_begin();
  multiply_values(ring.values());
  wgmma_wait<0>(r.o);
  ring.give_back();
  ring.next();
  return r;
}

// Warpgroups hand their parts to the one of rank 0; whether it is this one.
__device__ inline bool merge(Sums &r, int rank, uint32_t parts, uint64_t *handed, uint64_t *read, int k, float scale) {
  constexpr int PART = 9 * 2048;  // bytes of outputs, maxima and sums
  parts += threadIdx.x % 128 * 16;
  mbarrier_wait(read, (k & 1) ^ 1);  // all of the job before have been handed over, too
  if (rank > 0) {
    parts += (rank - 1) * PART;
    for (int j = 0; j < 32; j += 4) store_shared4(parts + j * 512, r.o[j], r.o[j + 1], r.o[j + 2], r.o[j + 3]);
    store_shared4(parts + 8 * 2048, r.m[0], r.m[1], r.l[0], r.l[1]);
    mbarrier_arrive(handed);
    return false;
  }
  mbarrier_wait(handed, k & 1);
  for (int g = 0; g < WGS - 1; g++, parts += PART) {
    const float4 of = load_shared4(parts + 8 * 2048);
    const float m[2] = {of.x, of.y}, l[2] = {of.z, of.w};
    float mine[2], other[2];  // what the parts count
    for (int h = 0; h < 2; h++) {
      const float top = fmaxf(r.m[h], m[h]);
      mine[h] = exp2_fast((r.m[h] - top) * scale), other[h] = exp2_fast((m[h] - top) * scale), r.m[h] = top;
      r.l[h] = r.l[h] * mine[h] + l[h] * other[h];
    }
    for (int j = 0; j < 32; j += 4) {
      const float4 v = load_shared4(parts + j * 512);
      r.o[j] = r.o[j] * mine[0] + v.x * other[0], r.o[j + 1] = r.o[j + 1] * mine[0] + v.y * other[0];
      r.o[j + 2] = r.o[j + 2] * mine[1] + v.z * other[1], r.o[j + 3] = r.o[j + 3] * mine[1] + v.w * other[1];
    }
  }
  mbarrier_arrive(read);
  return true;
}

// Divides by the sums of weights. Each warp stores its 16 of a warpgroup's 64 rows through shared memory, by a box.
__device__ inline void store_rows(const CUtensorMap &out, Sums &sums, int column, int row, int plane, uint32_t tile) {
  auto &[o, m, l] = sums;
  for (int h = 0; h < 2; h++) {
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 1);
    l[h] = 1.0f / (l[h] + __shfl_xor_sync(0xffffffffu, l[h], 2));
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, line = lane % 16;
  const uint32_t at = tile + warp * 2048;
  for (int j = 0; j < 8; j += 2) {
    uint32_t r[4];
    for (int e = 0; e < 4; e++) r[e] = pack_bf16(o[4 * j + 2 * e] * l[e % 2], o[4 * j + 2 * e + 1] * l[e % 2]);
    store_matrices(at + line * 128 + ((j + lane / 16) ^ line) % 8 * 16, r);
  }
  show_shared();
  __syncwarp();
  if (lane == 0) store_box(out, column, row + warp * 16, plane, at);
  bulk_commit();
}
#endif

template <bool QUEUE>
__global__ void __launch_bounds__(128 * WGS + 128, 1)
    attention_wgmma(const gs_stamp stamp, const __grid_constant__ Prompt p) {
#ifdef GS_WGMMA
  constexpr int KEYS = QUEUE ? 128 : 64, PER = QUEUE ? WGS : 1, STAGES = Ring<KEYS>::STAGES;  // PER: tiles of a job
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t full[STAGES], empty[STAGES], q_full[2], q_empty[2], own, handed, read;
  __shared__ int jobs[2][4];  // the tile of queries after the job's, sequence, head, position
  // Queries of two jobs, keys and values of a job's rows on their way to the cache, the ring, parts to merge.
  const uint32_t q_tiles = (shared_address(shared) + 1023) & ~1023u, rows = q_tiles + 2 * PER * TILE;
  const uint32_t keys = rows + 2 * PER * TILE, parts = keys + STAGES * Ring<KEYS>::STAGE;
  // From a lane, so that the compiler knows that it is that of the whole warp.
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), thread = threadIdx.x % 128, lane = thread % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1), mbarrier_init(empty + i, PER);
    for (int i = 0; i < 2; i++) mbarrier_init(q_full + i, 2), mbarrier_init(q_empty + i, 128 * WGS);
    mbarrier_init(&own, 1), mbarrier_init(&handed, 128 * (WGS - 1)), mbarrier_init(&read, 128);
    mbarrier_show();
    prefetch_map(p.qkv), prefetch_map(p.rows), prefetch_map(p.out);
  }
  __syncthreads();
  gs_let_next();
  // Rows before pad, which no kernel writes, are idle. A head's first job has fewer tiles if they do not come out even.
  const int pad = p.pad ? __ldcg(p.pad) : 0, tiles = (p.T - pad + ROWS - 1) / ROWS, depth = (tiles + PER - 1) / PER;
  if (group == WGS) {
    give_registers<32>();
    if (thread > 0) return;
    Ring<KEYS> ring = {keys, full, empty, 1, 0, 0};
    const int all = p.B * p.NH * depth;
    for (int taken = blockIdx.x, k = 0;; k++) {
      const int slot = k & 1;
      mbarrier_wait(q_empty + slot, (k / 2 + 1) & 1);
      if (taken >= all) {
        jobs[slot][0] = 0;
        mbarrier_arrive(q_full + slot), mbarrier_arrive(q_full + slot);
        return bulk_written();
      }
      const int first = taken / (BUNCH * depth) * BUNCH, height = min(BUNCH, p.B * p.NH - first),
                in = taken - first * depth, end = tiles - in / height * PER, of = first + in % height, b = of / p.NH,
                h = of % p.NH, fresh = (end * ROWS + KEYS - 1) / KEYS;
      if (k == 0) gs_wait();
      const int pos = __ldcg(p.pos + b);
      mbarrier_expect(shared_address(q_full + slot), PER * TILE);
#pragma unroll 1
      for (int g = 0; g < PER; g++)
        copy_box(q_tiles + (slot * PER + g) * TILE, p.qkv, h * HEAD, pad + (end - PER + g) * ROWS, b, q_full + slot);
      auto copy_new = [&](int i) {
        ring.copy(p.qkv, p.qkv, (p.NH + h) * HEAD, (2 * p.NH + h) * HEAD, pad + (fresh - 1 - i) * KEYS, b);
      };
      copy_new(0);
      bulk_read();
      mbarrier_expect(shared_address(&own), 2 * PER * TILE);
#pragma unroll 1
      for (int g = 0; g < 2 * PER; g++)
        copy_box(rows + g * TILE, p.rows, ((1 + g % 2) * p.NH + h) * HEAD, pad + (end - PER + g / 2) * ROWS, b, &own);
      jobs[slot][0] = end, jobs[slot][1] = b, jobs[slot][2] = h, jobs[slot][3] = pos;  // which has come meanwhile
      mbarrier_arrive(q_full + slot);
      for (int i = 1; i < fresh; i++) copy_new(i);
      for (int row = 0; row < pos; row += KEYS) ring.copy(p.keys, p.values, 0, 0, row, of);
      mbarrier_wait(&own, k & 1);
      show_shared();
#pragma unroll 1
      for (int g = 0; g < 2 * PER; g++) {
        const int row = (jobs[k & 1][0] - PER + g / 2) * ROWS, to = jobs[k & 1][3] + row,
                  count = min(ROWS, min(p.T - pad - row, p.P - to));
        if (row >= 0 && count > 0)
          bulk_store((g % 2 ? p.v_cache : p.k_cache) + ((int64_t)of * p.P + to) * HEAD, rows + g * TILE,
                     count * HEAD * 2);
      }
      bulk_commit();
      ring.wait_empty();  // the next job is taken when there is room for its keys: long ones begin first everywhere
      taken = (int)(gridDim.x + atomicAdd(p.queue, 1));
      if (taken == (int)gridDim.x + all - 1) *p.queue = 0;  // nobody takes one after this
    }
  }
  take_registers<160>();
  const gs_stamped<gs_stamp> stamped(stamp);
  gs_wait();
  stamped.start();
  Ring<KEYS> ring = {keys, full, empty, WGS / PER, QUEUE ? 0 : group, 0};
  for (int k = 0, next = group;; k++) {
    const int *const job = jobs[k & 1];  // read again where it is needed again, which saves registers
    mbarrier_wait(q_full + (k & 1), k / 2 & 1);
    if (k > 0) bulk_read(), mbarrier_arrive(q_empty + 1 - (k & 1));
    if (job[0] == 0) break;
    auto tile = [&] { return job[0] - PER + (QUEUE ? group : 0); };
    const int fresh = (job[0] * ROWS + KEYS - 1) / KEYS, pos = job[3], blocks = fresh + (pos + KEYS - 1) / KEYS;
    if (job[0] <= PER)  // the head's last job
      for (int i = threadIdx.x; i < pad * 8; i += 128 * WGS)
        *reinterpret_cast<uint4 *>(p.y + ((int64_t)job[1] * p.T + i / 8) * p.ldy + job[2] * HEAD + i % 8 * 8) = {};
    const int diagonal = !QUEUE ? 0 : tile() < 0 ? blocks : fresh - 1 - tile() * ROWS / KEYS;
    for (int i = 0; i < diagonal; i++) ring.wait(), ring.give_back(), ring.next();  // keys after its rows
    const uint32_t q_tile = q_tiles + ((k & 1) * PER + (QUEUE ? group : 0)) * TILE;
    const int rank = next;  // the first block that this warpgroup takes; that of 0 merges
    next = (rank + (WGS - 1) * blocks) % WGS;
    const Span span = {QUEUE ? diagonal : rank, blocks, fresh, pos, 1 + group,
                       diagonal, tile() * ROWS % KEYS + thread / 32 * 16 + lane / 4};
    Sums r = attend(ring, span, tile_rows(q_tile), p.scale);
    if (QUEUE ? tile() < 0 : !merge(r, rank, parts, &handed, &read, k, p.scale)) continue;
    if (QUEUE) named_sync<128>(1 + group);  // all have read the queries: y takes their place
    store_rows(p.out, r, job[2] * HEAD, pad + tile() * ROWS, job[1], q_tile);
  }
  bulk_written();
#endif
}

template <bool QUEUE> int launch(gs_stream *s, const gs_attention_args *a) {
  const int C = a->NH * HEAD, heads = a->B * a->NH, tiles = (a->T + ROWS - 1) / ROWS,
            jobs = heads * (QUEUE ? (tiles + WGS - 1) / WGS : tiles);
  Prompt p = {{}, {}, {}, {}, {}, (bf16 *)a->k_cache, (bf16 *)a->v_cache, (bf16 *)a->y,
              (const int *)a->pos, (const int *)a->pad, (unsigned *)a->work, a->B, a->NH, a->T, a->P, a->ldy,
              a->scale * 1.4426950408889634f};
  int e = gs_allow_shared<attention_wgmma<QUEUE>>(s, SHARED);
  if (!e) e = gs_tensor_map(&p.qkv, a->qkv, 3 * C, a->T, a->B, a->ldqkv, (int64_t)a->T * a->ldqkv, ROWS);
  if (!e) e = gs_tensor_map(&p.rows, a->qkv, 3 * C, a->T, a->B, a->ldqkv, (int64_t)a->T * a->ldqkv, ROWS, false);
  if (!e) e = gs_tensor_map(&p.keys, a->k_cache, HEAD, a->P, heads, HEAD, (int64_t)a->P * HEAD, ROWS);
  if (!e) e = gs_tensor_map(&p.values, a->v_cache, HEAD, a->P, heads, HEAD, (int64_t)a->P * HEAD, ROWS);
  if (!e) e = gs_tensor_map(&p.out, a->y, C, a->T, a->B, a->ldy, (int64_t)a->T * a->ldy, 16);
  return e ? e : gs_launch(s, "attention_wgmma", attention_wgmma<QUEUE>,
                           dim3(jobs < s->processors ? jobs : s->processors), dim3(128 * WGS + 128), SHARED, p);
}

}  // namespace

bool gs_attention_wgmma_takes(const gs_stream *s, const gs_attention_args *a) {
  return a->dtype == GS_BF16 && a->HS == HEAD && a->Q == a->T && a->T > 1 && gs_has_wgmma(s);
}

// Of few tiles the queue's longest job takes longer than all else.
int gs_attention_wgmma(gs_stream *s, const gs_attention_args *a, int queue) {
  if (queue < 0) queue = (int64_t)a->B * a->NH * ((a->T + ROWS - 1) / ROWS) >= 4 * s->processors;
  return queue ? launch<true>(s, a) : launch<false>(s, a);
}
