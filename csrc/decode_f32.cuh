// Decode steps in one kernel of models in float32: decode_bf16.cuh with other arithmetic. A width is
// compiled by itself, in decode_f32_<width>.cu.
//
// * Steps, units, the ring and the warps are those of decode_bf16.cuh. All vectors are float32, three
//   values a unit.
// * Products are done by fused multiply-adds, since one sequence would leave seven of the eight
//   columns of a tensor core instruction empty, and float32 takes three of these. Of C inputs
//   eight lanes share a row, and a lane has RT rows of each tile; of 4C inputs all lanes share
//   each row. Lanes read 16 bytes of a row side by side, so that rows need no padding in the
//   ring. Sums of several rows and sequences are added across lanes together, half of them in
//   each step.
// * Of several sequences, up to eight, four are computed at once. Of C inputs the weights are in
//   registers, and x is read from shared memory for each sequence; of 4C inputs, for which that
//   has no room, x of four sequences is in registers and weights are read from the ring. They
//   stay there for the next four if there is room, and are copied again if not. The rows of a
//   short prompt are such sequences, which share a cache.
// * The keys and values of a split come in tiles of KEYS_OF_TILE, of which each warp takes
//   KEYS at a time.

#pragma once

#include "decode_parts.cuh"
#include "decode_sample.cuh"

namespace decode_f32 {  // named: what code for older GPUs does not use is no warning

// How a width is divided: WARPS that compute have 32 NB inputs each, of GROUP sequences at once:
// 1, or 4 of up to 8. In registers a lane has RT rows of each of MOST tiles of C inputs. Of 4C
// inputs a tile has ROWS rows. BATCH rows are published together.
template <int WARPS_, int NB_, int RT_, int MOST_, int ROWS_, int BATCH_, int GROUP_ = 1, bool STAMPS_ = false, bool DRAWS_ = false, bool PROMPT_ = false> struct Cut {
  using Weight = float;
  static constexpr int WARPS = WARPS_, NB = NB_, RT = RT_, MOST = MOST_, ROWS = ROWS_, BATCH = BATCH_, GROUP = GROUP_;
  static constexpr bool STAMPS = STAMPS_;  // whether blocks note when they did what
  static constexpr bool ALONE = false;     // whether a launch runs one step only
  static constexpr bool DRAWS = DRAWS_;    // whether tokens are drawn: decode_sample.cuh
  static constexpr bool MANY = GROUP > 1, DRAWS_MANY = DRAWS && MANY;
  static constexpr bool PROMPT = PROMPT_;  // whether sequences are the rows of a prompt of one
  static constexpr int PROMPT_ROWS = PROMPT ? GS_DECODE_ROWS : 1;
  using Stamping = Cut<WARPS, NB, RT, MOST, ROWS, BATCH, GROUP, true, DRAWS, PROMPT>;
  using Many = Cut<WARPS, NB, RT, 3, ROWS, 12 * RT, 4, STAMPS, DRAWS>;
  using Drawing = Cut<WARPS, NB, RT, MOST, ROWS, BATCH, GROUP, STAMPS, true>;
  using Prompt = Cut<WARPS, NB, RT, 3, ROWS, 12 * RT, 4, STAMPS, false, true>;
  static constexpr int C = 32 * WARPS * NB;
  static constexpr int FINISH = !MANY || WARPS == 10 ? 1 : 3;  // warps that finish: registers are given to 4 warps at once
  static constexpr int THREADS = 32 * (WARPS + FINISH + 1);    // they, those that compute, the one that copies
  static constexpr int PARTIES = 32 * (WARPS + FINISH);        // of the barriers between the warps that compute and those that finish
  static constexpr int SMALL = 32 * NB, LARGE = 128 * NB;  // inputs of a warp, of C and of 4C
  static constexpr bool WIDE = NB > 2;
  static constexpr int XU = WIDE ? 2 : 1;             // units that a lane reads of its warp's part of the residual stream
  static constexpr int HU = NB == 1 ? 2 : NB == 2 ? 3 : NB == 4 ? 6 : 8;  // and of the hidden layer
  static constexpr int HEADS = (NB + 2) / 2 - (NB == 2 || NB == 4);       // of which a warp's part of C has values
  static constexpr int TILE_ROWS = 4 * RT;            // of a tile of C inputs
  static constexpr int AT_ONCE = TILE_ROWS * MOST;    // rows of C inputs in registers
  static constexpr int CHUNKS = WARPS == 10 ? 5 : 4;  // tiles of the rows of 4C inputs, side by side
  static constexpr int SHARE = WARPS / CHUNKS;        // warps of a chunk
  static constexpr int MOST_SPLITS = MANY ? 2 : SPLITS;
  static constexpr int PAIR = MANY ? 2 : 1;           // sequences of which a warp has its part of the hidden layer in shared memory
  static constexpr int SEQUENCES = MANY ? GS_DECODE_SEQUENCES : 1;
  static_assert(SEQUENCES * SMALL <= 2 * LARGE, "room for parts of all sequences in that of a pair");
  static_assert(BATCH <= 32 && BATCH % F32S == 0 && BATCH % TILE_ROWS == 0, "a lane finishes a row, and batches are whole units");
  static_assert(!MANY || BATCH == AT_ONCE, "a batch of several sequences has its weights in registers");
};

// Sequences of which a lane has units in registers at once.
template <typename Cut> constexpr int TOGETHER = !Cut::MANY ? 1 : Cut::ALONE || Cut::NB > 4 ? 1 : Cut::WIDE ? 2 : Cut::GROUP;

}  // namespace decode_f32

namespace {

using decode_f32::Cut;

constexpr int ATTENDED = (HEAD + 2 + F32S - 1) / F32S;  // units of an attention output: 64 values, maximum, sum
constexpr int ATTENDED_STRIDE = (ATTENDED + LINE - 1) / LINE * LINE;
constexpr int KEYS_OF_TILE = 4 * KEYS;
constexpr int KEY_BYTES = HEAD * sizeof(float);
constexpr int MOST_ROWS = 24;  // of the residual stream that a block has

template <typename Cut> struct Shared {
  static constexpr int WARPS = Cut::WARPS, SEQUENCES = Cut::SEQUENCES;
  uint64_t full[TILES], empty[TILES];
  uint32_t base[TILES], size[TILES];            // where tiles begin, and their sizes
  float2 stats[2][SEQUENCES][WARPS];            // of its part of x: mean, sum of squared differences from it; those of c_fc lie apart
  uint64_t until;                               // when waiting has been too long
  uint64_t polled;                              // when a warp was last found to wait for units for long
  int over;                                     // whether it has
  int polling;                                  // whether a warp has waited for units for long since `polled`
  int token[SEQUENCES], pos0[SEQUENCES];
  int step;                                     // decode steps that have ended
  float own[SEQUENCES][Cut::MANY ? 32 : 1];     // the block's rows of the residual stream; of one sequence they are in registers
  Found<Cut> found;
};

template <typename Cut> struct Work {
  static constexpr int WARPS = Cut::WARPS, NB = Cut::NB;
  union {
    struct {
      alignas(16) float x[WARPS][Cut::PAIR * Cut::LARGE];  // a warp's part of x
      alignas(16) float out[2][WARPS][HEAD + 2];           // of attention: output, maximum, sum
      alignas(16) float weight[WARPS][KEYS];               // of attention: of keys
      float part[2][WARPS][Cut::GROUP][32];                // sums over a warp's part of K
    };
    alignas(16) unsigned char rooms[Cut::DRAWS_MANY ? GS_DECODE_SEQUENCES * sizeof(DrawRoom) : 1];  // DrawRoom, when the logits are computed
  };
  uint32_t place_x[Cut::XU][WARPS][32], place_h[Cut::HU][WARPS][32];  // packed places of lanes
  uint32_t place_q[3][WARPS * NB / 2][32];          // of q, k and v of a head
};

#if __CUDA_ARCH__ >= 900

__device__ inline float *tail_of(const Program &p, int n) { return reinterpret_cast<float *>(dynamic + p.table) + n * 2 * HEAD * p.tokens; }

__device__ inline const float *wte_of(const Program &p) { return reinterpret_cast<const float *>(p.wte); }
__device__ inline const float *wpe_of(const Program &p) { return reinterpret_cast<const float *>(p.wpe); }

__device__ inline float fma4(const float4 &a, const float4 &b, float sum) { return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum)))); }

// How many of N sums over 2 O lanes each lane has in the end: lanes halve them in each step.
template <int N, int O> constexpr int sums_left = O == 0 ? N : (N + 2 * O - 1) / (O == 0 ? 1 : 2 * O);
// Sums of each of N values over the 2 O lanes that differ in the bits below. kept says which ones
// a lane has in the end.
template <int N, int O> __device__ inline void sum_rows(const float (&a)[N], int lane, float (&sums)[sums_left<N, O>]) {
  if constexpr (O == 0) {
#pragma unroll
    for (int k = 0; k < N; k++) sums[k] = a[k];
  } else {
    constexpr int H = (N + 1) / 2;
    float b[H];
#pragma unroll
    for (int k = 0; k < H; k++) {
      const bool upper = (lane & O) != 0;
      if (k + H < N) {
        const float other = __shfl_xor_sync(~0u, upper ? a[k] : a[k + H], O);
        b[k] = (upper ? a[k + H] : a[k]) + other;
      } else {
        b[k] = a[k] + __shfl_xor_sync(~0u, a[k], O);
      }
    }
    sum_rows<H, O / 2>(b, lane, sums);
  }
}
template <int N, int O> __device__ inline float sum_rows(const float (&a)[N], int lane) {
  static_assert(sums_left<N, O> == 1, "more values than lanes");
  float sum[1];
  sum_rows<N, O>(a, lane, sum);
  return sum[0];
}
template <int N, int O> __device__ inline int kept(int lane, int n = 0) {
  if constexpr (O == 0) {
    return n;
  } else {
    constexpr int H = (N + 1) / 2;
    const int k = kept<H, O / 2>(lane, n);
    return (lane & O) != 0 && k + H < N ? k + H : k;
  }
}
// Whether the ring has room for all weights of 4C inputs of a step at once. Those that two groups
// of sequences need stay there then; else they are copied again for the second one.
template <typename Cut> __device__ inline bool fits_ring(const Program &p) {
  const int tiles = (p.x.rows + Cut::ROWS - 1) / Cut::ROWS * Cut::CHUNKS;
  return tiles <= TILES && (tiles + 1) * (Cut::ROWS * (16 * Cut::C / Cut::CHUNKS)) <= p.ring_bytes;
}

// ---------------------------------------------------------------- the warp that copies

// Bytes per clock that a block copies. Layers take about as long as their copies: with PACE they would
// wait for weights.
template <typename Cut> constexpr int RUSH = Cut::WIDE || Cut::MANY ? 32 : 64;

template <typename Cut> __device__ void copy_weights(const Program &p, Shared<Cut> &sh, const Local *steps) {
  constexpr int C = Cut::C, ROW = 4 * C, CHUNK = 4 * ROW / Cut::CHUNKS;
  constexpr bool PACED = !Cut::WIDE || !Cut::MANY;  // but for logits: docs/persistent.md has the times
  Filling<Cut, Shared<Cut>> to(p, sh, tail_of(p, p.tails));
  const uint64_t normal = policy_normal(), kept = policy_last(), streamed = p.kept < 0 ? normal : policy_first();
  // Copies a tile in pieces, `pitch` bytes apart in memory; the last one may be shorter.
  auto copy = [&](int step, const char *from, int piece, int pitch, int bytes, bool paced, uint64_t policy) {
    uint32_t place = to.make_room(step, bytes, bytes);
    const int lanes = to.ONE || paced ? 1 : 32;
    if (to.lane >= lanes) return;
    place += to.lane * piece, from += (size_t)to.lane * pitch;
#pragma unroll 1
    for (int left = bytes - to.lane * piece; left > 0; left -= lanes * piece, place += lanes * piece, from += lanes * pitch) {
      if (paced) to.pace(piece, RUSH<Cut>);
      bulk_copy(place, from, min(piece, left), to.arrives, policy);
    }
  };
#pragma unroll 1
  for (int t = first_token<Cut>(p); t < p.tokens; t++)
#pragma unroll 1
    for (int i = first_step<Cut>(p); i < end_step<Cut>(p); i++) {
      get_stuck(p, sh, t, i);
      const Local &s = steps[i];
      const char *from = s.source;
      if (s.kind == GS_DECODE_ATTENTION) {
        if (s.split < 0) continue;
        int n = s.row;
#pragma unroll 1
        do {
          const Keys keys = Cut::MANY ? keys_of<KEY_BYTES, Cut::PROMPT>(p, sh, item_of(n, i, p.NH, p.splits)) : Keys{0, s.rows};
          from = s.source + keys.first;
          const char *from_v = s.source_v + keys.first;
#pragma unroll 1
          for (int left = keys.count; left > 0; left -= KEYS_OF_TILE) {
            const int bytes = min(left, KEYS_OF_TILE) * KEY_BYTES;
#pragma unroll 1
            for (int half = 0; half < 2; half++) copy(i, half ? from_v : from, bytes, 0, bytes, PACED, normal);
            from += bytes, from_v += bytes;
          }
        } while (Cut::MANY && (n += gridDim.x) < p.items);
        continue;
      }
      if (s.in == GS_DECODE_HIDDEN) {
#pragma unroll 1
        for (int turn = Cut::MANY && !fits_ring<Cut>(p) ? (p.B - start_of<Cut>(s) + Cut::GROUP - 1) / Cut::GROUP : 1; turn > 0; turn--, from = s.source)
#pragma unroll 1
          for (int left = s.rows; left > 0; left -= Cut::ROWS, from += Cut::ROWS * 4 * ROW) {
            const int rows = min(left, Cut::ROWS);
#pragma unroll 1
            for (int k = 0; k < Cut::CHUNKS; k++) copy(i, from + k * CHUNK, CHUNK, 4 * ROW, rows * CHUNK, PACED, streamed);
          }
        continue;
      }
      // Copies of several rows reach more of the memory's bandwidth, but delay what blocks tell each
      // other. Blocks do not wait for each other while logits are computed, so these are not paced.
      const bool logits = s.out == GS_DECODE_LOGITS;
      const int each = logits ? Cut::TILE_ROWS / 2 : 1;
#pragma unroll 1
      for (int left = s.rows; left > 0; left -= Cut::TILE_ROWS, from += Cut::TILE_ROWS * ROW) {
        const int rows = min(left, Cut::TILE_ROWS);
        copy(i, from, each * ROW, each * ROW, rows * ROW, PACED && !logits, logits && left <= p.kept ? kept : streamed);
      }
    }
}

// ---------------------------------------------------------------- the warps that finish

// Of several sequences, warp f of those that finish has sequences f, f + FINISH and so on.
template <typename Cut> __device__ void finish_steps(const Program &p, Shared<Cut> &sh, Work<Cut> &work, const Local *steps, int of) {
  constexpr int WARPS = Cut::WARPS, GROUP = Cut::GROUP, FINISH = Cut::FINISH;
  constexpr bool MANY = Cut::MANY;
  const int lane = threadIdx.x % 32, b = blockIdx.x, f = MANY ? of : 0, B = MANY ? p.B : 1;
  const float over_c = 1.0f / (float)p.C;
  const int first = b * p.x.rows, own = min(p.x.rows, p.C - first);  // of the residual stream; own may be negative
  const uint32_t epoch0 = Cut::ALONE ? p.epoch - first_token<Cut>(p) * p.count : p.header->epoch;
  const Finisher finisher = finisher_of<Cut>(p, f);
  const int pos0 = finisher.pos0;
  int token = *p.token, buffer = 0;
  barrier_arrive<Cut>(FREE);
  barrier_arrive<Cut>(FREE + 1);
#pragma unroll 1
  for (int t = first_token<Cut>(p); t < p.tokens; t++) {
    const uint32_t e0 = epoch0 + t * p.count;
    float x = 0;  // the residual stream at a row of the lane
    float best = -INFINITY;
    int best_id = 0x7fffffff;
#pragma unroll 1
    for (int j = f; j < B; j += FINISH) {
      if (lane < own) {
        if (Cut::ALONE && p.alone > FIRST_RESIDUAL)
          x = own_residual(p, j, lane);
        else
          x = __ldg(wte_of(p) + (size_t)(MANY ? sh.token[j] : max(token, 0)) * p.C + first + lane) + __ldg(wpe_of(p) + (size_t)((MANY ? sh.pos0[j] : pos0) + t) * p.C + first + lane);
      }
      if constexpr (MANY) sh.own[j][lane] = x;
      find_none<Cut>(sh, j);
    }
#pragma unroll 1
    for (int i = first_step<Cut>(p); i < end_step<Cut>(p); i++) {
      const Local &s = steps[i];
      const uint32_t epoch = e0 + i + 1;
      if (s.kind == GS_DECODE_ATTENTION) {
        if (s.split < 0) continue;
        int n = s.row;
#pragma unroll 1
        do {
          barrier_sync<Cut>(FULL + buffer);
          if (f == 0) {
            float most = -INFINITY;
#pragma unroll
            for (int w = 0; w < WARPS; w++) most = fmaxf(most, work.out[buffer][w][HEAD]);
            const int from = F32S * min(lane, ATTENDED - 1);
            float y[F32S] = {}, sum = 0;  // three dimensions of the lane
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
              const float2 of = *reinterpret_cast<const float2 *>(&work.out[buffer][w][HEAD]);
              const float f = exp2f(of.x - most);
#pragma unroll
              for (int k = 0; k < F32S; k++) y[k] = fmaf(f, work.out[buffer][w][from + k], y[k]);
              sum = fmaf(f, of.y, sum);
            }
            const float over = sum > 0 ? 1.0f / sum : 0.0f;  // a split may have no keys
            delay();
            const Item item = MANY ? item_of(n, i, p.NH, p.splits) : Item{0, s.row, s.split};
            char *const to = p.attended + (size_t)item.row * p.row_o + (size_t)(item.head * (MANY ? p.splits : SPLITS) + item.split) * ATTENDED_STRIDE * 16;
            if (lane < ATTENDED) {
              static_assert(ATTENDED * F32S == HEAD + 2, "the last unit has the last value, the maximum and the sum");
              const bool last = lane == ATTENDED - 1;
              store_unit(to + lane * 16, __float_as_uint(y[0] * over), __float_as_uint(last ? most : y[1] * over), __float_as_uint(last ? sum : y[2] * over), epoch);
            }
            stamp<Cut>(p, t, i, GS_DECODE_PUBLISHED);
          }
          barrier_arrive<Cut>(FREE + buffer);
          buffer ^= 1;
        } while (MANY && (n += gridDim.x) < p.items);
        continue;
      }
      const bool norm = s.gain != nullptr;
      const int out = s.out, act = s.act;
      // Warps that compute give all rows of 4C inputs at once.
      const int most = s.in == GS_DECODE_HIDDEN ? MOST_ROWS : Cut::BATCH;
      int row = s.row + lane, unit = lane;
#pragma unroll 1
      for (int rest = s.rows; rest > 0; rest -= most, row += most, unit += most / F32S) {
        const int left = min(rest, most);
        const bool has = lane < left;
        const float bias = has && s.bias ? s.bias[row] : 0.0f, sums = has && norm ? s.sums[row] : 0.0f;
#pragma unroll 1
        for (int group = start_of<Cut>(s); group < B; group += GROUP) {
          barrier_sync<Cut>(FULL + buffer);
#pragma unroll 1
          for (int n = (f + FINISH * GROUP - group) % FINISH; n < GROUP && group + n < B; n += FINISH) {
            const int j = group + n;
            float y = sum_of_parts<WARPS>([&](int w) { return work.part[buffer][w][n][lane]; });
            Normal of = {0, 1};
            if (norm) of = normal_of<WARPS, Cut::SMALL>(sh.stats[out == GS_DECODE_HIDDEN][j], over_c, p.eps);
            y = output_of(y, of, sums, bias);
            // 0.5 y (1 + tanh(z)) = y / (1 + exp(-2 z)), without the loss of digits near tanh(z) = -1.
            if (act) y = __fdividef(y, 1.0f + __expf(-2.0f * 0.7978845608028654f * gelu_cubic(y)));
            delay();
            if (out == GS_DECODE_LOGITS) {
              if (has) take_logit<Cut>(p, sh, work, j, row, row - s.row, y, best, best_id);
            } else {
              float z = y;
              char *to = p.residual + (MANY ? (size_t)j * p.row_x : 0) + (size_t)(b * p.x.stride) * 16;
              if (out == GS_DECODE_RESIDUAL) {
                if constexpr (MANY) {
                  float *const own = sh.own[j] + (row - first);
                  if (has) z = *own += y;
                } else {
                  z = x += y;
                }
              } else if (out == GS_DECODE_QKV) {
                to = p.qkv + (MANY ? (size_t)j * p.row_a : 0) + (size_t)(b * p.a.stride) * 16;
              } else {
                to = p.hidden + (MANY ? (size_t)j * p.row_h : 0) + (size_t)(b * p.h.stride) * 16;
              }
              const int from = F32S * lane;
              const float u0 = __shfl_sync(~0u, z, from & 31), u1 = __shfl_sync(~0u, z, (from + 1) & 31), u2 = __shfl_sync(~0u, z, (from + 2) & 31);
              if (from < left) store_unit(to + unit * 16, __float_as_uint(u0), __float_as_uint(u1), __float_as_uint(u2), epoch);
            }
          }
          if (rest <= most && f == finisher.ends && group + GROUP >= B) stamp<Cut>(p, t, i, GS_DECODE_PUBLISHED);
          barrier_arrive<Cut>(FREE + buffer);
          buffer ^= 1;
        }
      }
    }

    if (Cut::ALONE) return;  // gs_sample takes the token

    finish_token<Cut>(p, sh, work, steps[p.count - 1], finisher, t, e0 + p.count, best, best_id, token);
  }
  finish_launch<Cut>(p, sh, finisher, epoch0, token);
}

// ---------------------------------------------------------------- the warps that compute

// Reads the residual stream, or the embedding, of up to GROUP sequences, of a warp's part: values
// times the gain of LayerNorm go to shared memory. Gives the sums of a lane's values of each,
// relative to one of the warp's part, which goes to stats; then those of their squares.
template <typename Cut>
__device__ inline void read_residual(const Program &p, Shared<Cut> &sh, const Local &s, int group, int warp, int lane, int rows, uint32_t need, int step, float *to,
                                     float2 (*stats)[Cut::WARPS], const uint32_t (&px)[Cut::XU], const float (&gain)[Cut::XU][F32S], float (&sums)[2 * Cut::GROUP]) {
  constexpr int GROUP = Cut::GROUP, XU = Cut::XU, TOGETHER = decode_f32::TOGETHER<Cut>;
#pragma unroll
  for (int first = 0; first < GROUP; first += TOGETHER) {
    float v[TOGETHER][XU][F32S];
    if (s.in == GS_DECODE_EMBEDDING) {
      const int t = *(volatile int *)&sh.step;
#pragma unroll
      for (int j = 0; j < TOGETHER; j++) {
        const int of = group + min(first + j, rows - 1);
        const size_t token = ((volatile int *)sh.token)[of], at = ((volatile int *)sh.pos0)[of] + t;
#pragma unroll
        for (int n = 0; n < XU; n++) {
          const float *e = wte_of(p) + token * Cut::C + warp * Cut::SMALL + at_of(px[n]), *w = wpe_of(p) + at * Cut::C + warp * Cut::SMALL + at_of(px[n]);
#pragma unroll
          for (int k = 0; k < F32S; k++) v[j][n][k] = holds(px[n], k) ? __ldg(e + k) + __ldg(w + k) : 0.0f;
        }
      }
    } else {
      const char *const from = Cut::MANY ? units_of(p.residual, group + first, p.row_x) : p.residual;
      uint4 u[TOGETHER][XU];
      bool wait;
      unsigned polls = 0;
      // A load by predicate that is alone becomes a branch: lanes without a unit read that of lane 0.
      constexpr bool ONE = !Cut::MANY && XU == 1;
      const uint32_t some = ONE ? __shfl_sync(~0u, px[0], 0) : 0;
      const char *const one = from + (unsigned)(unit_of(px[0] ? px[0] : some) * 16);
#pragma unroll 1
      do {
        wait = false;
        if (ONE) u[0][0] = load_unit(one);
#pragma unroll
        for (int j = 0; j < TOGETHER && !ONE; j++)
#pragma unroll
          for (int n = 0; n < XU; n++)
            u[j][n] = load_unit_if(px[n] && first + j < rows, from + (Cut::MANY ? (unsigned)(j * p.row_x) : 0u) + (unsigned)(unit_of(px[n]) * 16));
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
#pragma unroll
          for (int n = 0; n < XU; n++) wait |= px[n] && first + j < rows && u[j][n].w != need;
      } while (polls_on<Cut>(p.header, sh, wait, polls, step));
#pragma unroll
      for (int j = 0; j < TOGETHER; j++)
#pragma unroll
        for (int n = 0; n < XU; n++) v[j][n][0] = __uint_as_float(u[j][n].x), v[j][n][1] = __uint_as_float(u[j][n].y), v[j][n][2] = __uint_as_float(u[j][n].z);
    }
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
      const float about = __shfl_sync(~0u, v[j][0][0], 8);
      if (lane == 0 && first + j < rows) stats[first + j][warp].x = about;
      float sum = 0, squares = 0;
#pragma unroll
      for (int n = 0; n < XU; n++)
#pragma unroll
        for (int k = 0; k < F32S; k++)
          if (holds(px[n], k)) {
            to[(first + j) * Cut::SMALL + at_of(px[n]) + k] = v[j][n][k] * gain[n][k];
            const float z = v[j][n][k] - about;
            sum += z, squares = fmaf(z, z, squares);
          }
      sums[first + j] = sum, sums[GROUP + first + j] = squares;
    }
  }
}
// Of these sums mean, and sum of squared differences from it, of the warp's part.
template <typename Cut> __device__ inline void note_stats(float2 (*stats)[Cut::WARPS], int warp, int lane, int rows, const float (&sums)[2 * Cut::GROUP]) {
  constexpr int GROUP = Cut::GROUP;
  const int j = kept<2 * GROUP, 16>(lane);
  // The lower half of the lanes has sums, the upper one those of squares.
  const float sum = sum_rows<2 * GROUP, 16>(sums, lane), squares = __shfl_xor_sync(~0u, sum, 16);
  if (lane % (16 / GROUP) == 0 && j < rows && j < GROUP) {
    float2 *const to = &stats[j][warp];
    *to = stats_of(to->x, sum, squares, 1.0f / Cut::SMALL);
  }
}

// Reads the output of attention of up to GROUP sequences, of a warp's part, and merges its splits.
template <typename Cut>
__device__ inline void read_attended(const Program &p, Shared<Cut> &sh, const char *attended, int warp, int lane, int rows, uint32_t need, int step, float *to) {
  constexpr int GROUP = Cut::GROUP, HEADS = Cut::HEADS, SMALL = Cut::SMALL, MOST_SPLITS = Cut::MOST_SPLITS, UNIT_BYTES = 16;
  const int head = warp * SMALL / HEAD, splits = Cut::MANY ? here(p.splits) : SPLITS, pitch = Cut::MANY ? here(p.row_o) : 0;  // bytes from a sequence to the next one
  bool wait;
  unsigned polls = 0;
  // Most blocks come here early. They poll the last unit of each split only: polls of all
  // delay what they wait for.
  static_assert(MOST_SPLITS * HEADS * GROUP <= 32, "a lane for each split");
  const int of = lane / (MOST_SPLITS * HEADS), split = lane % MOST_SPLITS;
  const bool asks = of < rows && of < GROUP && split < splits;
  const char *const last = attended + (asks ? (unsigned)(of * pitch) : 0u) + ((size_t)(head * splits + (asks ? lane / MOST_SPLITS % HEADS * splits + split : 0)) * ATTENDED_STRIDE + ATTENDED - 1) * UNIT_BYTES;
#pragma unroll 1
  do wait = load_unit(last).w != need && asks;
  while (polls_on<Cut>(p.header, sh, wait, polls, step));
  if (polls_apart<Cut>) __syncwarp();
  constexpr int TOGETHER = decode_f32::TOGETHER<Cut>;
#pragma unroll
  for (int first = 0; first < GROUP; first += TOGETHER) {
    uint4 u[TOGETHER][HEADS][MOST_SPLITS];
#pragma unroll 1
    do {
      wait = false;
      const char *const own = attended + (unsigned)((head * splits * ATTENDED_STRIDE + lane) * UNIT_BYTES);
      auto each = [&](auto &&f) {
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
#pragma unroll
          for (int n = 0; n < HEADS; n++)
#pragma unroll
            for (int k = 0; k < MOST_SPLITS; k++) f(j, n, k, own + (unsigned)((first + j) * pitch + (n * splits + k) * (ATTENDED_STRIDE * UNIT_BYTES)));
      };
      if constexpr (Cut::MANY) {
        each([&](int j, int n, int k, const char *from) { u[j][n][k] = load_unit_if(lane < ATTENDED && first + j < rows && k < splits, from); });
        each([&](int j, int n, int k, const char *) { wait |= lane < ATTENDED && first + j < rows && k < splits && u[j][n][k].w != need; });
      } else if (lane < ATTENDED) {
        each([&](int j, int n, int k, const char *from) { u[j][n][k] = load_unit(from); });
        each([&](int j, int n, int k, const char *) { wait |= u[j][n][k].w != need; });
      }
    } while (polls_on<Cut>(p.header, sh, wait, polls, step));
    if (polls_apart<Cut>) __syncwarp();
#pragma unroll
    for (int j = 0; j < TOGETHER; j++) {
      if (first + j >= rows) break;
#pragma unroll
      for (int n = 0; n < HEADS; n++) {
        float m[MOST_SPLITS], f[MOST_SPLITS], most = -INFINITY, sum = 0;
#pragma unroll
        for (int k = 0; k < MOST_SPLITS; k++) {
          m[k] = __uint_as_float(__shfl_sync(~0u, u[j][n][k].y, ATTENDED - 1)), f[k] = __uint_as_float(__shfl_sync(~0u, u[j][n][k].z, ATTENDED - 1));
          if (k >= splits) m[k] = -INFINITY;
          most = fmaxf(most, m[k]);
        }
#pragma unroll
        for (int k = 0; k < MOST_SPLITS; k++) f[k] = __fmul_rn(f[k], exp2f(m[k] - most)), sum += f[k];
        const float over = 1.0f / sum;
        float y[F32S] = {};
#pragma unroll
        for (int k = 0; k < MOST_SPLITS; k++) {
          const float by = f[k] * over;
          y[0] = fmaf(by, __uint_as_float(u[j][n][k].x), y[0]), y[1] = fmaf(by, __uint_as_float(u[j][n][k].y), y[1]), y[2] = fmaf(by, __uint_as_float(u[j][n][k].z), y[2]);
        }
        constexpr int skip = Cut::NB % 2 * HEAD / 2;  // parts of odd warps begin in the middle of a head
        const int at = n * HEAD + F32S * lane - (warp % 2 ? skip : 0);
#pragma unroll
        for (int k = 0; k < F32S; k++)
          if (F32S * lane + k < HEAD && at + k >= 0 && at + k < SMALL) to[(first + j) * SMALL + at + k] = y[k];
      }
    }
  }
}

// Puts the values of a unit where they belong in a part of a vector.
__device__ inline void put(uint32_t at, const uint4 &u, float *to) {
  to += at_of(at);
  if (holds(at, 0)) to[0] = __uint_as_float(u.x);
  if (holds(at, 1)) to[1] = __uint_as_float(u.y);
  if (holds(at, 2)) to[2] = __uint_as_float(u.z);
}

// Reads keys and values of the first `rows` rows of a prompt, of a head, which this step's product wrote:
// to the tail.
template <typename Shared> __device__ inline void read_rows(const Program &p, Shared &sh, uint32_t pk, uint32_t pv, int rows, uint32_t need, int step, float *tail) {
  constexpr int TOGETHER = 4;
#pragma unroll 1
  for (int first = 0; first < rows; first += TOGETHER) {
    const char *const from = units_of(p.qkv, first, p.row_a);
    uint4 k[TOGETHER], v[TOGETHER];
    bool wait;
    unsigned polls = 0;
#pragma unroll 1
    do {
      wait = false;
#pragma unroll
      for (int r = 0; r < TOGETHER; r++) {
        k[r] = load_unit_if(pk && first + r < rows, from + (unsigned)(r * p.row_a + unit_of(pk) * 16));
        v[r] = load_unit_if(pv && first + r < rows, from + (unsigned)(r * p.row_a + unit_of(pv) * 16));
      }
#pragma unroll
      for (int r = 0; r < TOGETHER; r++) wait |= first + r < rows && ((pk && k[r].w != need) || (pv && v[r].w != need));
    } while (wait && !gives_up(p.header, sh, polls, step));
#pragma unroll
    for (int r = 0; r < TOGETHER; r++)
      if (first + r < rows) put(pk, k[r], tail + (first + r) * HEAD), put(pv, v[r], tail + (p.B + first + r) * HEAD);
  }
}

template <typename Cut> __device__ void compute_steps(const Program &p, Shared<Cut> &sh, Work<Cut> &work, const Local *steps, int warp) {
  constexpr int WARPS = Cut::WARPS, NB = Cut::NB, SMALL = Cut::SMALL, LARGE = Cut::LARGE, XU = Cut::XU, HU = Cut::HU, C = Cut::C, RT = Cut::RT, MOST = Cut::MOST, ROWS = Cut::ROWS;
  constexpr int GROUP = Cut::GROUP, TILED = MOST * RT;  // rows of C inputs that a lane has at once
  constexpr bool MANY = Cut::MANY;
  const int lane = threadIdx.x % 32;
  float *const xs = work.x[warp];  // the part of x
  uint32_t need = Cut::ALONE ? p.epoch + p.alone : p.header->epoch;  // the epoch of what the next step reads
#pragma unroll 1
  for (int n = 0; n < XU; n++) work.place_x[n][warp][lane] = packed(place_of(p.x, F32S, warp * SMALL, SMALL, 32 * n + lane, p.C), SMALL);
#pragma unroll 1
  for (int n = 0; n < HU; n++) work.place_h[n][warp][lane] = packed(place_of(p.h, F32S, warp * LARGE, LARGE, 32 * n + lane, 4 * p.C), LARGE);
#pragma unroll 1
  for (int n = threadIdx.x; n < 3 * WARPS * NB / 2 * 32; n += 32 * WARPS) {
    const int head = n / 32;  // of all q, then k, then v
    (&work.place_q[0][0][0])[n] = packed(place_of(p.a, F32S, head * HEAD, HEAD, n % 32, 3 * p.C), HEAD);
  }
  named_sync<32 * WARPS>(7);
  unsigned tile = 0, buffer = 0;  // how many tiles were taken, modulo 2 TILES
  static_assert((TILES & (TILES - 1)) == 0, "a power of 2");
  auto next = [&] { tile = (tile + 1) % (2 * TILES); };
  auto free_tile = [&] {  // once all lanes have read it
    if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
    next();
  };
  // A warp waits for tiles of others too: else it could be so far ahead of them that it would
  // free the same place twice.
  auto pass_tile = [&] { wait_tile(sh, tile), free_tile(); };
  auto note = [&](int step, int what) {
    if (Cut::STAMPS && (Cut::PROMPT ? here(warp) : warp) == 0) stamp<Cut>(p, sh.step, step, what);
  };
  const int B = MANY ? p.B : 1;
  // The decode step of this launch. A register for it would be one too many.
  const volatile int &t = sh.step;
#pragma unroll 1
  while (t < p.tokens) {
#pragma unroll 1
    for (int i = first_step<Cut>(p); i < end_step<Cut>(p); i++, need++) {
      const Local &s = steps[i];
      if (s.kind == GS_DECODE_ATTENTION) {
        if (s.split < 0) continue;
        // Each warp but the last one has sixteen keys of the cache at a time; the last warp has
        // those of this launch.
        const int number = Cut::PROMPT || Cut::ALONE ? here(warp) : warp;  // else registers are spilled
        const bool launch = number == WARPS - 1;
        int item_at = s.row;
#pragma unroll 1
        do {
          // What is rarely needed is computed where it is: registers hold keys and values.
          auto item = [&] { return MANY ? item_of(item_at, i, p.NH, p.splits) : Item{0, s.row, s.split}; };
          auto of_cache = [&] { return MANY ? keys_of<KEY_BYTES, Cut::PROMPT>(p, sh, item()) : Keys{0, s.rows}; };
          // With two splits a block has one item at most.
          // Of a prompt the tail has the keys of its rows, which are not needed after the item.
          auto tail = [&] { return tail_of(p, Cut::PROMPT ? 0 : s.tail + (MANY ? (item_at - s.row) / (int)gridDim.x : 0)); };
          const int keys = of_cache().count;
          const bool last = item().split == (MANY ? p.splits : SPLITS) - 1;
          const int own = launch ? (last ? (Cut::PROMPT ? item().row : (int)t) + 1 : 0) : keys;  // keys that the warp may have
          const int begin = launch ? 0 : number * KEYS;
          // A lane has an eighth of the dimensions of four keys, and two dimensions of all values.
          float4 k0[4] = {}, k1[4] = {};
          float2 v[KEYS] = {};
          auto load = [&](uint32_t kb, uint32_t vb, int count) {
            const int at = here(lane);
#pragma unroll
            for (int n = 0; n < 4; n++) {
              const uint32_t row = kb + min(at / 8 * 4 + n, count - 1) * KEY_BYTES + at % 8 * 16;
              k0[n] = load_shared4(row), k1[n] = load_shared4(row + 128);
            }
#pragma unroll
            for (int n = 0; n < KEYS; n++) v[n] = load_shared2(vb + min(n, count - 1) * KEY_BYTES + at * 8);
          };
          // Frees tiles up to a key. No warp keeps one that it does not need: the ring may be full.
          constexpr int ROUND = (WARPS - 1) * KEYS;
          int passed = 0;
          auto pass = [&](int until) {
#pragma unroll 1
            for (; passed + KEYS_OF_TILE <= until && passed < keys; passed += KEYS_OF_TILE) pass_tile(), pass_tile();
          };
          // Loads the warp's keys from `at` on, and frees tiles up to `until`.
          auto go_to = [&](int at, int until) {
            pass(at);
            if (at < keys) {
              const uint32_t kb = wait_tile(sh, tile), vb = wait_tile(sh, (tile + 1) % (2 * TILES));
              load(kb + (at - passed) * KEY_BYTES, vb + (at - passed) * KEY_BYTES, min(KEYS, keys - at));
              __syncwarp();
            }
            pass(until);
          };
          // Before q has arrived, no warp waits for tiles behind those of the first round: others may
          // still hold these, and the ring have room for no more.
          if (launch)
            pass(ROUND);
          else
            go_to(begin, min(begin + ROUND, (ROUND + KEYS_OF_TILE - 1) / KEYS_OF_TILE * KEYS_OF_TILE));
          note(i, GS_DECODE_READY);
          barrier_sync<Cut>(FREE + buffer);
          float most = -1e30f, sum = 0, y0 = 0, y1 = 0;
          // The first warp waits for q even if it has no keys: a block that did not would
          // write its next output before this one is read.
          if (begin < own || warp == 0) {
            delay();
            const int head = item().head;
            const char *const qkv = p.qkv + (MANY ? (size_t)item().row * p.row_a : 0);
            const int unit = here(lane);
            // Loads the keys and values of this launch, and tells the cache of those of tokens [first, end).
            auto take = [&](int first, int end) {
              float *const tail_k = tail(), *const tail_v = tail_k + (Cut::PROMPT ? B : p.tokens) * HEAD;
              const size_t behind = of_cache().first + (size_t)(keys + first) * KEY_BYTES;
              float *cache_k = (float *)(const_cast<char *>(s.source) + behind), *cache_v = (float *)(const_cast<char *>(s.source_v) + behind);
#pragma unroll 1
              for (int r = first; r < end; r++, cache_k += HEAD, cache_v += HEAD) {
                reinterpret_cast<float2 *>(cache_k)[lane] = reinterpret_cast<const float2 *>(tail_k + r * HEAD)[lane];
                reinterpret_cast<float2 *>(cache_v)[lane] = reinterpret_cast<const float2 *>(tail_v + r * HEAD)[lane];
              }
              load(shared_address(tail_k), shared_address(tail_v), own);
            };
            // Of a prompt keys and values of all rows up to its own are read before q: registers do not hold them all.
            if (Cut::PROMPT && launch) {
              read_rows(p, sh, work.place_q[1][head][unit], work.place_q[2][head][unit], own, need, i, tail());
              __syncwarp();
              take(own == B ? 0 : own, own);  // the last row has those of all
            }
            const bool with_q = !Cut::PROMPT && launch;
            const uint32_t pq = work.place_q[0][head][unit], pk = with_q ? work.place_q[1][head][unit] : 0, pv = with_q ? work.place_q[2][head][unit] : 0;
            uint4 uq = {}, uk = {}, uv = {};
            bool wait;
            unsigned polls = 0;
#pragma unroll 1
            do {
              load_unit_to(uq, pq && (MANY || uq.w != need), qkv + (size_t)unit_of(pq) * 16);
              load_unit_to(uk, pk && (MANY || uk.w != need), qkv + (size_t)unit_of(pk) * 16);
              load_unit_to(uv, pv && (MANY || uv.w != need), qkv + (size_t)unit_of(pv) * 16);
              wait = (pq && uq.w != need) || (pk && uk.w != need) || (pv && uv.w != need);
            } while (polls_on<Cut>(p.header, sh, wait, polls, i));
            note(i, GS_DECODE_ARRIVED);
            put(pq, uq, xs);
            if (with_q) put(pk, uk, tail() + t * HEAD), put(pv, uv, tail() + (p.tokens + t) * HEAD);
            __syncwarp();
            if (with_q) {
              const int token = t;
              take(token, token + 1);
            }
            const uint32_t of8 = shared_address(work.x[here(warp)]) + here(lane) % 8 * 16;
            const float4 q0 = load_shared4(of8), q1 = load_shared4(of8 + 128);
#pragma unroll 1
            for (int at = begin; at < own;) {
              float d[4];
#pragma unroll
              for (int n = 0; n < 4; n++) d[n] = fma4(k1[n], q1, fma4(k0[n], q0, 0.0f));
              const int key = 4 * (here(lane) / 8) + kept<4, 4>(here(lane));
              // Scores in powers of 2.
              float score = sum_rows<4, 4>(d, here(lane)) * (0.125f * 1.4426950408889634f);
              if (at + key >= own) score = -1e30f;
              float top = score;
#pragma unroll
              for (int o = 2; o < 32; o *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
              top = fmaxf(most, top);
              const float fade = exp2f(most - top);
              work.weight[warp][key] = exp2f(score - top);
              __syncwarp();
              most = top, y0 *= fade, y1 *= fade, sum *= fade;
#pragma unroll
              for (int k = 0; k < KEYS; k += 4) {
                const float4 w = *reinterpret_cast<const float4 *>(&work.weight[warp][k]);
                y0 = fmaf(w.x, v[k].x, y0), y1 = fmaf(w.x, v[k].y, y1);
                y0 = fmaf(w.y, v[k + 1].x, y0), y1 = fmaf(w.y, v[k + 1].y, y1);
                y0 = fmaf(w.z, v[k + 2].x, y0), y1 = fmaf(w.z, v[k + 2].y, y1);
                y0 = fmaf(w.w, v[k + 3].x, y0), y1 = fmaf(w.w, v[k + 3].y, y1);
                sum += (w.x + w.y) + (w.z + w.w);
              }
              __syncwarp();
              at += ROUND;
              if (!launch && at < own) go_to(at, at + ROUND);
            }
          }
          *reinterpret_cast<float2 *>(&work.out[buffer][warp][2 * lane]) = make_float2(y0, y1);
          if (lane == 0) *reinterpret_cast<float2 *>(&work.out[buffer][warp][HEAD]) = make_float2(most, sum);
          barrier_arrive<Cut>(FULL + buffer);
          pass(keys + KEYS_OF_TILE);
          buffer ^= 1;
        } while (MANY && (item_at += gridDim.x) < p.items);
        continue;
      }

      if (s.in == GS_DECODE_HIDDEN) {  // a product of 4C inputs, of at most MOST_ROWS rows
        if (s.rows <= 0) continue;
        const int mine = warp / Cut::SHARE;
        auto ph = [&](int n) { return *(const volatile uint32_t *)&work.place_h[n][warp][here(lane)]; };
        if constexpr (MANY) {
          const unsigned first_tile = tile;
          const int start = start_of<Cut>(s);
#pragma unroll 1
          for (int group = start; group < B; group += GROUP) {
            const int many = B - group;  // may be more than GROUP
            const bool again = group > start && fits_ring<Cut>(p), keep = many > GROUP && fits_ring<Cut>(p);
            if (again) tile = first_tile;
            auto pass_other = [&] {
              if (again)
                next();
              else
                pass_tile();
            };
            float4 x[GROUP][NB] = {};
#pragma unroll 1
            for (int from = 0; from < s.rows; from += ROWS) {
              const int rows = min(s.rows - from, ROWS);
#pragma unroll 1
              for (int n = 0; n < mine; n++) pass_other();
              const uint32_t base = wait_tile(sh, tile) + warp % Cut::SHARE * LARGE * 4 + here(lane) * 16;
              if (from == 0) {
                if (group == start) note(i, GS_DECODE_READY);
                barrier_sync<Cut>(FREE + buffer);
                delay();
                constexpr int PAIR = Cut::PAIR;
#pragma unroll
                for (int first = 0; first < GROUP; first += PAIR) {
                  if (first >= many) break;
                  const char *const units = units_of(p.hidden, group + first, p.row_h);
                  uint4 u[PAIR][HU];
                  bool wait;
                  unsigned polls = 0;
#pragma unroll 1
                  do {
                    wait = false;
#pragma unroll
                    for (int m = 0; m < PAIR; m++)
#pragma unroll
                      for (int n = 0; n < HU; n++)
                        u[m][n] = load_unit_if(ph(n) && first + m < many, units + (unsigned)(m * p.row_h + unit_of(ph(n)) * 16));
#pragma unroll
                    for (int m = 0; m < PAIR; m++)
#pragma unroll
                      for (int n = 0; n < HU; n++) wait |= ph(n) && first + m < many && u[m][n].w != need;
                  } while (polls_on<Cut>(p.header, sh, wait, polls, i));
                  if (polls_apart<Cut>) __syncwarp();
#pragma unroll
                  for (int m = 0; m < PAIR; m++)
#pragma unroll
                    for (int n = 0; n < HU; n++) put(ph(n), u[m][n], xs + m * LARGE);
                  __syncwarp();
#pragma unroll
                  for (int m = 0; m < PAIR; m++)
#pragma unroll
                    for (int k = 0; k < NB; k++) x[first + m][k] = load_shared4(shared_address(xs) + here(lane) * 16 + m * LARGE * 4 + k * 512);
                }
                if (group == start) note(i, GS_DECODE_ARRIVED);
              }
              float d[GROUP * ROWS];
#pragma unroll
              for (int r = 0; r < ROWS; r++) {
                float4 w[NB];
#pragma unroll
                for (int k = 0; k < NB; k++) w[k] = load_shared4(base + min(r, rows - 1) * (16 * C / Cut::CHUNKS) + k * 512);
#pragma unroll
                for (int n = 0; n < GROUP; n++) d[n * ROWS + r] = 0;
#pragma unroll
                for (int n = 0; n < GROUP; n++) {
                  if (n >= 2 && many <= 2) break;
#pragma unroll
                  for (int k = 0; k < NB; k++) d[n * ROWS + r] = fma4(w[k], x[n][k], d[n * ROWS + r]);
                }
              }
              __syncwarp();
              if (keep)
                next();
              else
                free_tile();
#pragma unroll 1
              for (int n = mine + 1; n < Cut::CHUNKS; n++) pass_other();
              const int of_lane = here(lane), of = kept<GROUP * ROWS, 16>(of_lane);
              work.part[buffer][warp][of / ROWS][from + of % ROWS] = sum_rows<GROUP * ROWS, 16>(d, of_lane);
            }
            barrier_arrive<Cut>(FULL + buffer);
            buffer ^= 1;
          }
          continue;
        }
        float4 x[NB] = {};
#pragma unroll 1
        for (int from = 0; from < s.rows; from += ROWS) {
          const int rows = min(s.rows - from, ROWS);
          float4 w[ROWS][NB];
#pragma unroll 1
          for (int n = 0; n < mine; n++) pass_tile();
          const uint32_t base = wait_tile(sh, tile) + warp % Cut::SHARE * LARGE * 4 + here(lane) * 16;
#pragma unroll
          for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < NB; k++) w[r][k] = load_shared4(base + min(r, rows - 1) * (16 * C / Cut::CHUNKS) + k * 512);
          __syncwarp();
          free_tile();
#pragma unroll 1
          for (int n = mine + 1; n < Cut::CHUNKS; n++) pass_tile();
          if (from == 0) {
            note(i, GS_DECODE_READY);
            barrier_sync<Cut>(FREE + buffer);
            delay();
            uint4 u[HU] = {};
            bool wait;
            unsigned polls = 0;
#pragma unroll 1
            do {
              wait = false;
#pragma unroll
              for (int n = 0; n < HU; n++) load_unit_to(u[n], ph(n) && (Cut::WIDE || u[n].w != need), p.hidden + (unsigned)(unit_of(ph(n)) * 16));
#pragma unroll
              for (int n = 0; n < HU; n++) wait |= ph(n) && u[n].w != need;
            } while (polls_on<Cut>(p.header, sh, wait, polls, i));
            note(i, GS_DECODE_ARRIVED);
#pragma unroll
            for (int n = 0; n < HU; n++) put(ph(n), u[n], xs);
            __syncwarp();
            const uint32_t of32 = shared_address(xs) + here(lane) * 16;
#pragma unroll
            for (int k = 0; k < NB; k++) x[k] = load_shared4(of32 + k * 512);
          }
          float d[ROWS];
#pragma unroll
          for (int r = 0; r < ROWS; r++) {
            d[r] = 0;
#pragma unroll
            for (int k = 0; k < NB; k++) d[r] = fma4(w[r][k], x[k], d[r]);
          }
          work.part[buffer][Cut::ALONE ? here(warp) : warp][0][from + kept<ROWS, 16>(here(lane))] = sum_rows<ROWS, 16>(d, here(lane));
        }
        barrier_arrive<Cut>(FULL + buffer);
        buffer ^= 1;
        continue;
      }

      // A product of C inputs, up to BATCH rows at a time.
      const bool norm = s.gain != nullptr;
      uint32_t px[XU];
      float gain[XU][F32S];
      auto load_gain = [&] {
#pragma unroll
        for (int n = 0; n < XU; n++) {
          px[n] = *(const volatile uint32_t *)&work.place_x[n][warp][here(lane)];
#pragma unroll
          for (int k = 0; k < F32S; k++) gain[n][k] = norm && holds(px[n], k) ? __ldg(s.gain + here(warp) * SMALL + at_of(px[n]) + k) : 0.0f;
        }
      };
      constexpr bool LATE = MANY || Cut::WIDE;  // registers are needed for weights
      if (!LATE) load_gain();
      float4 x[NB] = {};
#pragma unroll 1
      for (int left = s.rows; left > 0; left -= Cut::BATCH) {
        const int batch = min(left, Cut::BATCH);
#pragma unroll 1
        for (int from = 0; from < batch; from += Cut::AT_ONCE) {
          const int rest = batch - from;
          // Whether x is still to be read. Spares a register.
          auto first = [&] { return left == *(const volatile int *)&s.rows && from == 0; };
          float4 w[MOST][RT][NB];
#pragma unroll
          for (int m = 0; m < MOST; m++) {
            const int rows = rest - m * Cut::TILE_ROWS;
            if (rows <= 0) {
#pragma unroll
              for (int r = 0; r < RT; r++)
#pragma unroll
                for (int k = 0; k < NB; k++) w[m][r][k] = make_float4(0, 0, 0, 0);
              continue;
            }
            const int at = here(lane), g = at / 8;
            const uint32_t base = wait_tile(sh, tile) + here(warp) * SMALL * 4 + at % 8 * 16;
#pragma unroll
            for (int r = 0; r < RT; r++)
#pragma unroll
              for (int k = 0; k < NB; k++) w[m][r][k] = load_shared4(base + min(4 * r + g, rows - 1) * (4 * C) + k * 128);
            __syncwarp();
            free_tile();
          }
          if (first()) note(i, GS_DECODE_READY);
#pragma unroll 1
          for (int group = start_of<Cut>(s); group < B; group += GROUP) {
            const int many = MANY ? B - group : 1;  // may be more than GROUP
            const int slot = (Cut::PROMPT ? group & GROUP : group) * SMALL;  // of x: there is room for two groups
            if (from == 0) barrier_sync<Cut>(FREE + buffer);
            auto stats = [&] { return sh.stats[s.out == GS_DECODE_HIDDEN] + here(group); };
            float of_stats[2 * GROUP];
            if (first()) {
              delay();
              float *const to = xs + slot;
              if (s.in == GS_DECODE_ATTENDED) {
                read_attended<Cut>(p, sh, MANY ? units_of(p.attended, group, p.row_o) : p.attended, here(warp), here(lane), many, need, i, to);
              } else {
                if (LATE) load_gain();
                read_residual<Cut>(p, sh, s, group, here(warp), here(lane), many, need, i, to, stats(), px, gain, of_stats);
                if (Cut::ALONE && norm) note_stats<Cut>(stats(), here(warp), here(lane), many, of_stats);
              }
              __syncwarp();
              if (group == start_of<Cut>(s)) note(i, GS_DECODE_ARRIVED);
            }
            const uint32_t of8 = shared_address(work.x[here(warp)] + slot) + here(lane) % 8 * 16;
            float d[GROUP * TILED];
#pragma unroll
            for (int n = 0; n < GROUP; n++) {
#pragma unroll
              for (int r = 0; r < TILED; r++) d[n * TILED + r] = 0;
              if (n >= many) continue;
              if (!MANY && first()) {
#pragma unroll
                for (int k = 0; k < NB; k++) x[k] = load_shared4(of8 + k * 128);
              }
#pragma unroll
              for (int k = 0; k < NB; k++) {
                if (MANY) x[k] = load_shared4(of8 + n * (SMALL * 4) + k * 128);
#pragma unroll
                for (int m = 0; m < MOST; m++) {
                  if (!(MANY && Cut::WIDE) && rest <= m * Cut::TILE_ROWS) continue;  // its weights are zeros
#pragma unroll
                  for (int r = 0; r < RT; r++) d[n * TILED + m * RT + r] = fma4(w[m][r][k], x[k], d[n * TILED + m * RT + r]);
                }
              }
            }
            // While products are under way; a launch of one step has no registers for that.
            if (!Cut::ALONE && norm && first()) note_stats<Cut>(stats(), here(warp), here(lane), many, of_stats);
            constexpr int LEFT = sums_left<GROUP * TILED, 4>;
            float sums[LEFT];
            const int at = here(lane), to = here(warp);
            sum_rows<GROUP * TILED, 4>(d, at, sums);
#pragma unroll
            for (int k = 0; k < LEFT; k++) {
              const int of = kept<GROUP * TILED, 4>(at, k);
              work.part[buffer][to][of / TILED][from + 4 * (of % TILED) + at / 8] = sums[k];
            }
            if (MANY || rest <= Cut::AT_ONCE) {
              barrier_arrive<Cut>(FULL + buffer);
              buffer ^= 1;
            }
          }
        }
      }
    }
    if (Cut::ALONE) return;
    if constexpr (Cut::DRAWS_MANY) {
      const Local &s = steps[p.count - 1];
      const int step = t;  // it changes after the barrier
      barrier_sync<Cut>(LISTED);
      draw_each<Cut>(p, sh, reinterpret_cast<DrawRoom *>(work.rooms), warp, s.row, s.rows, step, need);
    } else if constexpr (Cut::DRAWS)
      rank_candidates<WARPS>(shared_address(&draw_list(work)), shared_address(&draw_sums(work)));
    barrier_sync<Cut>(TOKEN);
  }
}

// Copies the keys and values of the tokens of the launch of gs_decode that came before this one.
template <typename Cut> __device__ void load_tail(const Program &p, const Shared<Cut> &sh, const Local &s) {
  if (s.kind != GS_DECODE_ATTENTION || s.split < 0) return;
  int n = s.row;
  do {
    const Item item = Cut::MANY ? item_of(n, p.alone, p.NH, p.splits) : Item{0, s.row, s.split};
    if (item.split != (Cut::MANY ? p.splits : SPLITS) - 1) continue;
    const Keys keys = Cut::MANY ? keys_of<KEY_BYTES>(p, sh, item) : Keys{0, s.rows};
    const size_t from = keys.first + keys.count * (size_t)KEY_BYTES;
    const float *k = reinterpret_cast<const float *>(s.source + from), *v = reinterpret_cast<const float *>(s.source_v + from);
    float *const tail = tail_of(p, s.tail + (Cut::MANY ? (n - s.row) / (int)gridDim.x : 0));
    for (int i = threadIdx.x; i < (p.tokens - 1) * HEAD; i += Cut::THREADS) tail[i] = k[i], tail[p.tokens * HEAD + i] = v[i];
  } while (Cut::MANY && (n += gridDim.x) < p.items);
}

// What a block of a launch does.
template <typename Cut> __device__ __forceinline__ void run_block(const Program &p) {
  constexpr int WARPS = Cut::WARPS;
  __shared__ Shared<Cut> sh;
  __shared__ Work<Cut> work;
  Local *steps = reinterpret_cast<Local *>(dynamic);
  const int b = blockIdx.x, blocks = gridDim.x, warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < TILES; i++) mbarrier_init(&sh.full[i], 1), mbarrier_init(&sh.empty[i], WARPS);
    mbarrier_show();
    for (int j = 0; j < (Cut::MANY ? p.B : 1); j++) {
      sh.token[j] = max(Cut::PROMPT ? p.ids[j] : p.token[j], 0);
      sh.pos0[j] = Cut::PROMPT ? *p.pos + j : p.pos[j] - first_token<Cut>(p);
    }
    sh.step = first_token<Cut>(p);
    sh.over = p.header->expired != 0;
    sh.polling = 0, sh.polled = 0;
    renew_patience(p, sh);
  }
  // The block's part of each step. Attention moves on by as many blocks as it takes.
  const int pos0 = *p.pos - first_token<Cut>(p), part = ((pos0 + SPLITS - 1) / SPLITS + KEYS - 1) / KEYS * KEYS;
#pragma unroll 1
  for (int i = first_step<Cut>(p) + threadIdx.x; i < end_step<Cut>(p); i += Cut::THREADS) {
    Local l = {};
    const gs_decode_step &s = p.steps[i];
    l.kind = s.kind, l.in = s.in, l.out = s.out, l.act = s.act;
    l.start = first_row<Cut>(p, i);
    if (s.kind == GS_DECODE_ATTENTION && Cut::MANY) {
      l.row = first_item(i, b, blocks, p.items);
      if constexpr (Cut::PROMPT)
        while (l.row < l.start * p.NH * p.splits) l.row += blocks;
      l.split = l.row < p.items ? 0 : -1;
      l.source = (const char *)s.k_cache, l.source_v = (const char *)s.v_cache;
    } else if (s.kind == GS_DECODE_ATTENTION) {
      l.split = split_of(i, b, blocks, p.NH, &l.row);
      const int from = min(pos0, max(l.split, 0) * part);
      l.rows = l.split == SPLITS - 1 ? pos0 - from : min(pos0 - from, part);
      const size_t first = ((size_t)l.row * p.P + from) * KEY_BYTES;
      l.source = (const char *)s.k_cache + first, l.source_v = (const char *)s.v_cache + first;
    } else {
      const int rows = rows_of(s.N, blocks, F32S);
      l.row = b * rows;
      l.rows = max(0, min(rows, s.N - l.row));
      l.source = (const char *)s.w + (size_t)l.row * s.K * sizeof(float);
      l.bias = (const float *)s.bias, l.gain = (const float *)s.gain, l.sums = (const float *)s.sums;
    }
    steps[i] = l;
  }
  __syncthreads();
  if (!Cut::PROMPT && threadIdx.x == 0)
    for (int i = first_step<Cut>(p), n = 0; i < end_step<Cut>(p); i++)
      if (steps[i].kind == GS_DECODE_ATTENTION) {
        steps[i].tail = n;
        n += Cut::MANY ? last_splits(i, b, blocks, p) : steps[i].split == SPLITS - 1;
      }
  Local &logits = steps[p.count - 1];
  float *const head = reinterpret_cast<float *>(steps + p.count);
  const bool has_logits = end_step<Cut>(p) == p.count;
#pragma unroll 1
  for (int i = threadIdx.x; has_logits && i < logits.rows; i += Cut::THREADS) {
    head[i] = logits.bias ? logits.bias[logits.row + i] : 0.0f;
    head[p.head + i] = logits.sums ? logits.sums[logits.row + i] : 0.0f;
  }
  __syncthreads();
  if (has_logits && threadIdx.x == 0) logits.bias = head - logits.row, logits.sums = head + p.head - logits.row;
  if constexpr (Cut::ALONE && !Cut::PROMPT) load_tail<Cut>(p, sh, steps[p.alone]);
  __syncthreads();
  if (warp == WARPS + Cut::FINISH) {
    if (!Filling<Cut, Shared<Cut>>::ONE || threadIdx.x % 32 == 0) copy_weights<Cut>(p, sh, steps);
  } else if (warp >= WARPS)
    finish_steps<Cut>(p, sh, work, steps, warp - WARPS);
  else
    compute_steps<Cut>(p, sh, work, steps, warp);
  __syncthreads();  // no warp ends while others wait at barriers
}

#endif

template <typename Cut> __global__ void __launch_bounds__(Cut::THREADS, 1) decode_kernel(const __grid_constant__ Program p) {
#if __CUDA_ARCH__ >= 900
  run_block<Cut>(p);
#endif
}

// Blocks wait for no other block: what they read was written by launches before.
template <typename Cut> __global__ void __launch_bounds__(Cut::THREADS, 1) decode_one_kernel(const gs_stamp stamp, const __grid_constant__ Program p) {
#if __CUDA_ARCH__ >= 900
  const gs_stamped<gs_stamp> stamped(stamp);
  gs_wait();
  stamped.start();
  run_block<Cut>(p);
#endif
}

typedef float Weight;
constexpr int VALUES = F32S, SEQUENCES = GS_DECODE_SEQUENCES;

// Whether residual stream, hidden layer and qkv of these shapes fit.
template <typename Cut> bool fits(const Shape &x, const Shape &h, const Shape &q) {
  return x.rows <= MOST_ROWS && covered(x, F32S, Cut::SMALL, Cut::C, 32 * Cut::XU) && covered(h, F32S, Cut::LARGE, 4 * Cut::C, 32 * Cut::HU) && covered(q, F32S, HEAD, 3 * Cut::C, 32);
}

// Two tiles are needed at once, wherever in the ring they begin; of several sequences all tiles of
// the rows of 4C inputs, as each warp has its own before the first one is free.
template <typename Cut> int64_t ring_at_least(const Program &p) {
  const int64_t rows = Cut::TILE_ROWS * (int64_t)(4 * p.C), wide = Cut::ROWS * (int64_t)(16 * p.C / Cut::CHUNKS), keys = KEYS_OF_TILE * KEY_BYTES;
  const int64_t tile = rows > wide ? rows : wide;
  int64_t least = 3 * (tile > keys ? tile : keys);
  const int64_t part = (p.x.rows < Cut::ROWS ? p.x.rows : Cut::ROWS) * (int64_t)(16 * p.C / Cut::CHUNKS);
  if (Cut::MANY && least < (Cut::CHUNKS + 1) * part) least = (Cut::CHUNKS + 1) * part;
  return least;
}

}  // namespace

#include "decode_host.cuh"
