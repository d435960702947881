// The persistent kernel, which docs/persistent.md describes, with weights in bfloat16 or 8 bits. A width is
// compiled by itself, in decode_<width>.cu and decode_q8_<width>.cu; what stamps or runs a single step in ..._watched.cu.
//
// * The packets of a block are contiguous, in lines of their own: blocks that write parts of one delay each other. So
//   do polls: fewer are better.
// * A float32 x is the sum of two bfloat16 numbers, in columns 0 and 1 of the tensor core instructions (mma.m16n8k16),
//   of row j of drafts in columns 2j and 2j + 1. Of several sequences, up to eight, x passes as bfloat16 numbers, and
//   each has a column. LayerNorm is applied to the sums: see gs_fold_args.
// * Bytes of weights are multiplied by integers (Bytes, Quantiser); of several sequences they are widened to bfloat16.
// * Of several sequences attention has items, one for each split of each head of each sequence, which are dealt out to
//   blocks. The last split of a row of a prompt has keys and values of the rows up to it from the product of this very
//   step; that of the last row writes them all to the cache.
//
// * A token: run_block() makes the block's table of steps, which three kinds of warps walk. copy_weights() fills the
//   ring. compute_steps() leaves sums, or outputs of attention, of parts in shared memory (barrier FULL);
//   finish_steps() adds them, publishes packets for all blocks, and gives the room back (FREE). Then best_each(),
//   finish_token() or sample_each() chooses the token (TOKEN).
// * A pass is walked in spans: one; or with exits those of first_span() and next_span(), where copy_weights() skips the
//   same steps (drafts()). accept() says what the next pass is. Epochs count steps that ran: passes that draft take
//   fewer.
//
// The order of a sum depends on C and the number of SMs alone; in attention also on the position at which the launch
// began.

#pragma once

#include "decode_parts.cuh"
#include "decode_draft.cuh"
#include "decode_sample.cuh"

namespace decode {  // named: what code for older GPUs does not use is no warning

// How a width is divided: WARPS compute warps have NB blocks of 32 inputs each, of one sequence, or of up to 8, whose
// hidden layers are read GROUP at a time. Of one steps have up to ROWS rows, of a token and of drafts: decode_draft.cuh.
template <int WARPS_, int NB_, bool Q8_ = false, int GROUP_ = 1, bool STAMPS_ = false, bool DRAWS_ = false,
          bool PROMPT_ = false, int ROWS_ = 1>
struct Traits {
  static constexpr int WARPS = WARPS_, NB = NB_, GROUP = GROUP_, ROWS = ROWS_;
  static_assert(ROWS == 1 || ROWS == 4, "a lane has row lane % 4");
  static constexpr bool Q8 = Q8_;             // weights are of 8 bits
  static constexpr bool STAMPS = STAMPS_;     // blocks note when they did what
  static constexpr bool SAMPLES = DRAWS_;     // the kernel samples tokens: decode_sample.cuh
  // Or it takes those of the best logits. It does either where it verifies drafts, and of several sequences where it stamps.
  static constexpr bool GREEDY = !SAMPLES || ROWS_ > 1 || (STAMPS_ && GROUP_ > 1);
  // Launches run one step only, or can.
  static constexpr bool SINGLE_STEP = false, SINGLE_STEPS = STAMPS_ && GROUP_ > 1 && GREEDY;
  static constexpr bool PROMPT = PROMPT_;     // sequences are the rows of a prompt of one
  using Stamping = Traits<WARPS, NB, Q8, 1, true>;
  using Batched = Traits<WARPS, NB, Q8, 4, STAMPS, STAMPS>;
  using Sampling = Traits<WARPS, NB, Q8, GROUP, STAMPS, true, false, ROWS>;
  using Prompt = Traits<WARPS, NB, Q8, 4, STAMPS, false, true>;
  using Verify = Traits<WARPS, NB, Q8, 1, STAMPS, true, false, GS_PERSISTENT_VERIFY>;
  static constexpr bool BATCHED = GROUP > 1, VERIFY = ROWS > 1, MANY = BATCHED || VERIFY;
  static constexpr int AT_ONCE = BATCHED ? GS_PERSISTENT_SEQUENCES : ROWS;  // rows of a step that are computed at once
  // Values of a packet of x. Lanes that have packets of the same row of it.
  static constexpr int X_VALUES = BATCHED ? BF16_PER_PACKET : F32_PER_PACKET, ROW_LANES = BATCHED ? 4 : MANY ? 8 : 32;
  static constexpr bool SAMPLES_EACH = SAMPLES && MANY;
  static constexpr bool BYTES = Q8 && !BATCHED;  // bytes are multiplied; of several sequences weights are widened
  // Of prompts of the widest models there is no room for two groups.
  static constexpr int PROMPT_ROWS = !PROMPT ? 1 : NB > 4 ? GROUP : GS_PERSISTENT_ROWS;
  // Tokens of a launch, at most: their keys take room from weights where there are many layers or sequences.
  static constexpr int TOKENS = PROMPT ? 1 : BATCHED || NB > 2 ? GS_PERSISTENT_TOKENS / 2 : GS_PERSISTENT_TOKENS;
  static constexpr int C = 32 * WARPS * NB;
  // Bytes of a row of weights of C inputs, and of 4C.
  static constexpr int ROW_BYTES = Q8 ? GS_Q8_ROW(C) : 2 * C, LONG_BYTES = Q8 ? GS_Q8_ROW(4 * C) : 8 * C;
  static constexpr int FINISH =
      !MANY || WARPS == 10 ? 1 : 3;  // warps that finish: registers are given to 4 warps at once
  static constexpr int THREADS = 32 * (WARPS + FINISH + 1);  // they, those that compute, the one that copies
  static constexpr int PARTIES =
      32 * (WARPS + FINISH);  // of the barriers between the warps that compute and those that finish
  static constexpr int SMALL = 32 * NB, LARGE = 128 * NB;  // inputs of a warp, of C and of 4C
  static constexpr int LB = 4 * NB;                        // blocks of 32 inputs of 4C
  static constexpr int XU = NB > 2 ? 2 : 1;  // packets that a lane reads of its warp's part of the residual stream
  static constexpr int HU = NB > 2 ? 4 : 2;  // and of the hidden layer
  // The same of several rows, where a lane has packets of row lane % 4, of x of sequences lane % 8. Of drafts the last
  // lanes' last packets of x are not of the part.
  static constexpr int XP = BATCHED ? NB > 2 ? NB + 4 : NB + 1 : NB > 2 ? 8 : (SMALL / 3 + 2) / 8 + 1,
                       HP = NB > 4 ? 16 : NB > 2 ? 14 : (LARGE / 6 + 4) / 8 + 1;
  static constexpr int HEADS = (NB + 2) / 2 - (NB == 2 || NB == 4);  // heads of which a warp's part of C has values
  static constexpr bool WIDE = NB > 2;
  static constexpr int GAINS = BATCHED || (WIDE && VERIFY) ? SMALL : 1;  // of a warp's part that are in shared memory
  static constexpr int TILE_ROWS = WIDE ? 8 : 16;      // of a tile of C inputs
  // Bytes between the halves of such a tile: lanes that read at once have two rows of each, which lie in other banks. Of
  // 8-bit weights they are rows STEP apart.
  static constexpr int STEP = Q8 && ROW_BYTES / 16 % 2 ? 2 : 1;
  static constexpr int PAD =
      !Q8 ? 64 : (256 + (STEP * ROW_BYTES % 128 == 64 ? 32 : 64) - TILE_ROWS / 2 * ROW_BYTES % 128) % 128;
  // In the widest kernels of one sequence a step is about as large as the ring. Of 4C inputs a warp has a part of the
  // first half of each row, in registers before x arrives, then one of the second half. Keys of the launch are read back.
  static constexpr bool HALVES = NB == 5 && !BATCHED && !Q8;
  // Of rows there, shared memory has room for one half of x, and registers for a second fragment once x has arrived.
  static constexpr bool TIGHT = NB == 5 && VERIFY, READS_BACK = HALVES || TIGHT;
  // Bytes per clock that a block copies while layers run: bursts delay the packets of other blocks. 0: it is not paced.
  static constexpr int PACE = !WIDE ? 16 : HALVES ? 40 : 0;
  // Tiles of the rows of 4C inputs, side by side; of a half there is one for TILE_ROWS / 2 rows.
  static constexpr int CHUNKS = HALVES ? 2 : WIDE ? WARPS / 2 : 1;
  // Of such a tile: bytes of a row, and from one to the next, against bank conflicts.
  static constexpr int CHUNK_BYTES = LONG_BYTES / CHUNKS;
  static constexpr int CHUNK_PITCH = CHUNK_BYTES + (Q8 ? (160 - CHUNK_BYTES % 128) % 128 : 64);
  // Pairs of blocks of 4C inputs that a warp has in registers before x arrives.
  static constexpr int KEEP = HALVES || !WIDE ? LB / 2 : BATCHED ? (NB > 4 ? 2 : 4) : NB;
  static constexpr bool FOLDS = C <= 1024;  // a block may have at most 8 rows of 4C inputs
  static constexpr int FRAGMENTS = WIDE && BATCHED ? 1 : 2;    // of 16 rows that a warp has in registers
  static constexpr int CHUNK = KEYS * (WARPS - 1);  // keys that are copied at once, if there are several sequences
  // The part of x of a sequence in shared memory, in values: where its low halves begin, and the next sequence. The two
  // halves lie in other banks.
  static constexpr int LOW = MANY && NB % 2 == 0 ? SMALL + 32 : SMALL;
  // Lanes that store packets of several rows at once have banks of their own.
  static constexpr int BANKS = MANY ? 16 : 0, ROW = LARGE / (TIGHT && HALVES ? 2 : 1) + BANKS, QROW = HEAD + BANKS;
  static constexpr int XROW = BATCHED ? SMALL + 8 : 2 * LOW + BANKS;
  static constexpr int X = AT_ONCE * XROW > (MANY ? 4 : 1) * ROW ? AT_ONCE * XROW : (MANY ? 4 : 1) * ROW;
  // Room for the sums of a sequence; of rows also for their outputs of attention, in other steps.
  static constexpr int SUMS = VERIFY && !TIGHT ? HEAD + 8 : BATCHED && WIDE ? 24 : MANY ? 40 : 32;
  // Of attention: room for those of a row; of the widest models that of gains, which are in other steps.
  static constexpr int WEIGHTS = TIGHT ? SMALL / ROWS : VERIFY ? KEYS + 8 : KEYS;
  // Of so many rows those that are published together: whole packets, if there may be more of them.
  __device__ static int batch(int out, int rows) {
    const bool more = WIDE && (BATCHED || rows > 32) && (out == GS_PERSISTENT_QKV || out == GS_PERSISTENT_HIDDEN);
    return 16 * FRAGMENTS - (!more ? 0 : BATCHED ? 4 : 2);
  }
};

// Of a width of 384 one sequence has warps with 64 inputs each: fewer have less to add up.
template <bool Q8, bool STAMPS = false> struct Narrow : Traits<6, 2, Q8, 1, STAMPS> {
  using Stamping = Narrow<Q8, true>;
  using Batched = typename Traits<12, 1, Q8, 1, STAMPS>::Batched;
  using Prompt = typename Traits<12, 1, Q8, 1, STAMPS>::Prompt;
};

}  // namespace decode
using decode::Traits;

namespace {

template <typename Traits> struct Shared {
  static constexpr int WARPS = Traits::WARPS;
  static constexpr bool STAMPS = Traits::STAMPS;
  uint64_t full[TILES], empty[TILES];
  uint32_t base[TILES], size[TILES];                  // where tiles begin, their sizes
  union {
    struct {
      alignas(16) float part[2][WARPS][Traits::AT_ONCE][Traits::SUMS];  // sums over a warp's part of K
      alignas(16) uint16_t x[WARPS][16 + Traits::X];  // a warp's part of x, with room for packets that overlap its ends
    };
    // SequenceCandidates, when the logits are computed.
    alignas(16) unsigned char rooms[Traits::SAMPLES_EACH ? Traits::AT_ONCE * sizeof(SequenceCandidates) : 1];
  };
  // Of a lane's values of x: the sum of differences from `about`, and that of their squares.
  float2 lanes[Traits::ROWS * WARPS][32];
  float about[Traits::ROWS];  // the first value of x; of sequences 0
  uint64_t deadline;  // when waiting has been too long
  uint64_t polled;    // when a warp was last found to wait for packets for long
  int aborted;        // a block has waited too long
  int polling;        // whether a warp has waited for packets for long since `polled`
  int token[Traits::AT_ONCE], pos0[Traits::BATCHED ? 8 : 1];
  Verified verified;
  int step;  // decode steps that have ended
  float own[Traits::AT_ONCE][16];  // the block's rows of the residual stream; of one row they are in registers
  LayerNormStats norm[Traits::ROWS];  // of a step
  Found<Traits> found;
  uint64_t arrived[2];  // when the inputs of a step had
  uint32_t near[NEAR_WORDS];  // a bit for each pair of pages: the second one is near
  int near_known;             // from launches before
};

// Steps [from, to) of a pass, of so many rows.
struct Span {
  int from, to, rows;
};

template <typename Traits> struct Work {
  static constexpr int WARPS = Traits::WARPS, NB = Traits::NB;
  // Of attention: output, maximum, sum; with room for LogitsOrSorted where there are few warps.
  alignas(16) float out[2][Traits::VERIFY ? 1 : WARPS < 8 ? 8 : WARPS][HEAD + 4];
  alignas(16) float weight[WARPS][Traits::ROWS][Traits::WEIGHTS];           // of attention: of keys
  alignas(8) float gains[Traits::TIGHT ? 1 : WARPS][Traits::GAINS];
  // Of a warp, of LayerNorm, where registers would spill.
  __device__ float *gain(int warp) { return Traits::TIGHT ? weight[warp][0] : gains[Traits::TIGHT ? 0 : warp]; }
  uint32_t slice_x[Traits::XU][WARPS][32], slice_h[Traits::HU][WARPS][32];  // packed places of lanes
  uint32_t slice_q[3][WARPS * NB / 2][16];                                  // of q, k and v of a head
  uint32_t slice_o[Traits::AT_ONCE][WARPS * NB / 2];  // the first packet of attention's output of a head
};

#if __CUDA_ARCH__ >= 900

// The spans of a pass: in kernels that verify drafts the layers that draft, of one row, then either the logits of that
// row or the other layers of all rows.
template <typename Traits> __device__ inline Span next_span(const Params &p, const Shared<Traits> &sh) {
  return {drafts_now(sh) ? p.count - 1 : p.exit, p.count, rows_of_pass(sh)};
}
template <typename Traits> __device__ inline Span first_span(const Params &p, const Shared<Traits> &sh) {
  if constexpr (!Traits::VERIFY) return {first_step<Traits>(p), end_step<Traits>(p), 1};
  else if (p.exit == 0) return next_span<Traits>(p, sh);
  return {0, p.exit, 1};
}
// The rows of a span that has ROWS at most; the first one of a span of one.
template <int ROWS, typename Shared> __device__ inline int rows_of(const Shared &sh) {
  return ROWS > 1 ? rows_of_pass(sh) : 1;
}
template <typename Traits, int ROWS> __device__ inline int first_row_of(const Shared<Traits> &sh) {
  return Traits::VERIFY && ROWS == 1 ? *(const volatile int *)&sh.verified.row : 0;
}

// Finds out which pages are near this SM, once for all launches of a session.
template <typename Traits> __device__ inline void find_near(const Params &p, Shared<Traits> &sh) {
  uint32_t *const known = p.near + sm_number() % NEAR_SMS * (1 + NEAR_WORDS);
  if (threadIdx.x == 0) {
    sh.near_known = (int)known[0] >= p.pairs;
    for (int n = 0; n < NEAR_WORDS; n++) sh.near[n] = sh.near_known ? known[1 + n] : 0;
  }
  __syncthreads();
  if (sh.near_known) return;
  if (threadIdx.x % 32 == 0)
    for (int pair = threadIdx.x / 32; pair < min(p.pairs, 32 * NEAR_WORDS); pair += Traits::THREADS / 32) {
      char *const page = p.residual + pair * PAIR + sm_number() % (PAGE / LINE) * (LINE * 16);
      int first = 1 << 30, second = first;
      for (int n = 0; n < 3; n++)
        first = min(first, round_trip(page)), second = min(second, round_trip(page + PAIR / 2));
      if (second < first) atomicOr(&sh.near[pair / 32], 1u << pair % 32);
    }
  __syncthreads();
  if (threadIdx.x < NEAR_WORDS) known[1 + threadIdx.x] = sh.near[threadIdx.x];
  if (threadIdx.x == 0) known[0] = p.pairs;
}
// The same as p.side.
template <typename Traits> __device__ inline int side_of(const Params &p) {
  return Traits::BATCHED ? p.side : Traits::AT_ONCE;
}
// Where the near copy of a packet of a vector lies whose first pair of pages this is.
template <typename Traits> __device__ inline int near_copy(const Shared<Traits> &sh, int pair, int packet) {
  const int page = packet / PAGE, at = pair + page;
  return packet + (page + (at < 32 * NEAR_WORDS && sh.near[at / 32] >> at % 32 & 1)) * PAGE;
}

__device__ inline bf16 *tail_of(const Params &p, int n) {
  return reinterpret_cast<bf16 *>(dynamic + p.table) + n * 2 * HEAD * p.tokens;
}

// The output of attention of a warp: of a row, if there are several.
template <typename Traits>
__device__ inline float *out_of(Shared<Traits> &sh, Work<Traits> &work, int buffer, int warp, int row) {
  // Of the widest models where low halves of x are in other steps; x of the next step has none.
  if (Traits::TIGHT) return reinterpret_cast<float *>(&sh.x[warp][8 + row * Traits::XROW + Traits::LOW]);
  return Traits::VERIFY ? sh.part[buffer][warp][Traits::VERIFY ? row : 0] : work.out[buffer][Traits::VERIFY ? 0 : warp];
}

// A value. In kernels that would spill registers, what depends on it is computed where it is used.
template <bool SPILLS> __device__ inline int opaque_if(int v) { return SPILLS ? opaque(v) : v; }

// Where a row of a tile of C inputs begins.
template <typename Traits> __device__ inline uint32_t place_of_row(int row) {
  return row * Traits::ROW_BYTES + (row < Traits::TILE_ROWS / 2 ? 0 : Traits::PAD);
}

// ---------------------------------------------------------------- the warp that copies

template <typename Traits> __device__ void copy_weights(const Params &p, Shared<Traits> &sh, const BlockStep *steps) {
  RingWriter<Traits, Shared<Traits>> to(p, sh, tail_of(p, p.tails));
  const uint64_t normal = policy_normal(), kept = policy_last(), streamed = p.kept < 0 ? normal : policy_first();
#pragma unroll 1
  for (int t = first_token<Traits>(p); Traits::VERIFY ? comes(sh, t) : t < p.tokens; t++)
#pragma unroll 1
    for (int i = first_step<Traits>(p); i < end_step<Traits>(p); i++) {
      if (Traits::VERIFY && p.exit > 0 && i == p.exit && drafts<Traits>(p, sh, t)) i = p.count - 1;
      hang_for_test(p, sh, t, i);
      const BlockStep &s = steps[i];
      if (s.kind == GS_PERSISTENT_ATTENTION) {
        if (s.split < 0) continue;
        auto copy_keys = [&](const char *from, int keys) {
          const int bytes = keys * 2 * HEAD;
          const uint32_t place = to.reserve(i, bytes, bytes);
          if (to.lane == 0) bulk_copy(place, from, bytes, to.arrives, normal);
        };
        if constexpr (Traits::BATCHED) {
#pragma unroll 1
          for (int n = s.row; n < p.items; n += gridDim.x) {
            const Keys keys = keys_of<2 * HEAD, Traits::PROMPT>(p, sh, item_of(n, i, p.NH, p.splits));
#pragma unroll 1
            for (int k = 0; k < keys.count; k += Traits::CHUNK) {
              const size_t from = keys.first + k * (HEAD * sizeof(bf16));
              copy_keys(s.source + from, min(keys.count - k, Traits::CHUNK));
              copy_keys(s.source_v + from, min(keys.count - k, Traits::CHUNK));
            }
          }
        } else if (s.rows > 0) {
          copy_keys(s.source, s.rows);
          copy_keys(s.source_v, s.rows);
        }
        continue;
      }
      // Rows of W in tiles, or parts of rows side by side if they are long.
      const bool hidden = s.in == GS_PERSISTENT_HIDDEN;
      constexpr int C = Traits::C;
      constexpr int HALF = Traits::TILE_ROWS / 2;
      const int row_bytes = hidden ? Traits::CHUNK_BYTES : Traits::ROW_BYTES;
      const int pitch = hidden ? Traits::LONG_BYTES : Traits::ROW_BYTES;  // of W
      const char *from = s.source;
      int left = hidden ? Traits::CHUNKS * s.rows : s.rows;
      const bool halves = Traits::HALVES && hidden;
      const int batch = hidden ? s.rows : Traits::batch(s.out, s.rows);
      int batch_left = min(left, batch);
#pragma unroll 1
      while (left > 0) {
        const int rows = hidden && !halves ? s.rows : min(batch_left, halves ? HALF : Traits::TILE_ROWS);
        const int room = hidden ? rows * Traits::CHUNK_PITCH : rows * row_bytes + Traits::PAD;
        const uint32_t place = to.reserve(i, room, rows * row_bytes);
        // A copy takes this warp 100 ns whatever its size, and copies of several rows reach more of the memory's
        // bandwidth. Blocks do not wait for each other while logits are computed, so these are not paced, but for the
        // first ones of kernels that verify, which are copied while the last layer runs.
        const bool logits = s.out == GS_PERSISTENT_LOGITS,
                   paced = Traits::PACE > 0 && (!logits || (Traits::VERIFY && s.rows - left < 64));
        const int each = hidden ? 1 : logits || Traits::HALVES ? HALF : C <= 768 ? 4 : 1;
        const uint64_t policy = logits && left <= p.kept ? kept : streamed;
        const int lanes = to.ONE || paced ? 1 : 32;
#pragma unroll 1
        for (int row = to.lane * each; row < (to.lane < lanes ? rows : 0); row += lanes * each) {
          if (paced) to.pace(each * row_bytes, Traits::PACE);
          const int at = hidden ? row * Traits::CHUNK_PITCH : row * row_bytes + (row < HALF ? 0 : Traits::PAD);
          bulk_copy(place + at, from + row * pitch, min(each, rows - row) * row_bytes, to.arrives, policy);
        }
        left -= rows;
        from += hidden && !halves ? row_bytes : rows * pitch;
        if ((batch_left -= rows) == 0) batch_left = min(left, batch), from = halves ? s.source + row_bytes : from;
      }
    }
}

// ---------------------------------------------------------------- the warps that finish

// LayerNorm of a row: of sequences lane r has that of row r.
template <typename Traits>
__device__ inline LayerNormStats norm_of(const Shared<Traits> &sh, const LayerNormStats &lane, int r) {
  if constexpr (!Traits::BATCHED) return sh.norm[r];
  else return {__shfl_sync(~0u, lane.mean, r), __shfl_sync(~0u, lane.scale, r)};
}

// Publishes outputs [from, from + left) of rows, from the sums of a batch, when wait() has returned. A lane has row
// lane % 4 of four and one of six outputs: packets of all rows lie beside each other, a warp writes whole lines.
template <typename Traits, typename Wait>
__device__ __forceinline__ void finish_rows(const Params &p, Shared<Traits> &sh, const BlockStep &s, int f, int buffer,
                                            int from, int left, int rows, uint32_t epoch, const LayerNormStats &each_lane,
                                            Wait wait) {
  constexpr int EACH = 6;
  const int lane = threadIdx.x % 32, o = min(lane / 4, EACH - 1), out = s.out, act = s.act;
  const bool residual = out == GS_PERSISTENT_RESIDUAL, norm = s.gain != nullptr,
             wide = !Traits::BATCHED && residual;  // in float32
  const Shape &shape = residual ? p.x : out == GS_PERSISTENT_QKV ? p.a : p.h;
  char *const vector = residual ? p.residual : out == GS_PERSISTENT_QKV ? p.qkv : p.hidden;
  bool waited = false;
  const int turns = wide ? 1 : 2;  // groups of six that fill a line
  const int eight = Traits::BATCHED && rows > 4;  // two fours: by shifts, as divisions take 100 clocks
#pragma unroll 1
  for (int n = f; (n >> eight) * turns * EACH < left; n += Traits::FINISH) {
    const int group = (n >> eight) * turns, r = (n & eight) * 4 + lane % 4;
    float y[2] = {}, sums[2], bias[2], own[2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
      const int row = s.row + from + min((group + m) * EACH + o, left - 1);
      sums[m] = norm ? s.sums[row] : 0.0f, bias[m] = s.bias ? s.bias[row] : 0.0f;
    }
    const bool stores = lane < 8 && group * EACH + lane / 4 * (wide ? 3 : EACH) < left && r < rows;
    uint32_t part = shared_address(&sh.part[buffer][0][r][group * EACH + o]);
    const int packet = blockIdx.x * shape.stride + from / BF16_PER_PACKET + (wide ? 2 : 1) * group + lane / 4;
    char *to = vector + (size_t)(first_copy(packet * side_of<Traits>(p)) + r) * 16;
    asm volatile("" : "+l"(to), "+r"(part));  // they are computed before the sums
    if (!waited) wait();
    waited = true;
    LayerNormStats of = {0, 1};
    if (norm) of = norm_of<Traits>(sh, each_lane, r);
#pragma unroll
    for (int m = 0; m < 2; m++) {  // there may be one, but the other one is there as soon
      own[m] = residual ? sh.own[r][min((group + m) * EACH + o, 15)] : 0;
      y[m] = sum_of_parts<Traits::WARPS>([&](int w) {
        return __uint_as_float(load_shared32(part + m * EACH * 4 + w * (int)sizeof(sh.part[0][0])));
      });
      y[m] = apply_layernorm(y[m], of, sums[m], bias[m]);
    }
#pragma unroll
    for (int m = 0; m < 2 && act; m++) y[m] = gelu(y[m]);
    delay();
    uint32_t u[3];
    if (residual) {
#pragma unroll
      for (int m = 0; m < (Traits::BATCHED ? 2 : 1); m++) {
        const int at = (group + m) * EACH + o;
        y[m] += own[m];
        __syncwarp();
        if (at < left) sh.own[r][at] = y[m];
        if (single_step<Traits>(p) && at < left && r < rows) p.own[r * Traits::C + s.row + at] = y[m];
      }
    }
    if (wide) {
#pragma unroll
      for (int k = 0; k < 3; k++) u[k] = __float_as_uint(__shfl_sync(~0u, y[0], (lane / 4 % 2 * 3 + k) * 4 + r));
    } else {
#pragma unroll
      for (int m = 0; m < 2; m++) {
        const uint32_t pair = pack2(y[m], __shfl_xor_sync(~0u, y[m], 4));  // of an even output and the next one
#pragma unroll
        for (int k = 0; k < 3; k++) {
          const uint32_t v = __shfl_sync(~0u, pair, 8 * k + lane % 4);
          if (m == 0 || lane / 4 == m) u[k] = v;
        }
      }
    }
    if (stores)
      for (int copy = 0; copy < 2; copy++)
        store_packet(to + copy * (PAIR / 2), u[0], u[1], u[2], epoch);
  }
  if (!waited) wait();
}

// The steps of a span, of ROWS rows at once. Of several in LayerNorm and logits warp f of those that finish has numbers
// f, f + FINISH and so on; other outputs of rows are published by finish_rows(). x is the residual stream at a row of
// the lane, where there is one row.
template <typename Traits, int ROWS>
__device__ __forceinline__ void finish_span(const Params &p, Shared<Traits> &sh, Work<Traits> &work,
                                            const BlockStep *steps, int f, int pass, Span span, int &buffer, uint32_t e0,
                                            float &x, float &best, int &best_id) {
  constexpr int WARPS = Traits::WARPS, FINISH = Traits::FINISH;
  constexpr int MINE = ROWS > FINISH ? 2 : 1;  // rows of a warp, at once
  constexpr bool BATCHED = Traits::BATCHED, MANY = ROWS > 1, VERIFY = MANY && !BATCHED;
  const int lane = threadIdx.x % 32, b = blockIdx.x;
  const int row0 = first_row_of<Traits, ROWS>(sh), side = side_of<Traits>(p);
  const float over_c = 1.0f / (float)p.C;
  // The lane's packet of those that are stored, and of a packet its copy: half a warp stores each.
  const int l = lane % 16;
  auto copy_of = [&](int packet) { return first_copy(packet) + lane / 16 * PAGE; };
#pragma unroll 1
  for (int i = span.from; i < span.to; i++) {
    const BlockStep &s = steps[i];
    const uint32_t epoch = e0 + i + 1;
    if (s.kind == GS_PERSISTENT_ATTENTION) {
      if (s.split < 0) continue;
      int n = s.row;
#pragma unroll 1
      do {
        const Item item = BATCHED ? item_of(n, i, p.NH, p.splits) : Item{0, s.row, s.split};
        const int packet = (item.head * (BATCHED ? p.splits : SPLITS) + item.split) * ATTENDED_STRIDE;
        char *to = p.attended + (size_t)item.row * p.row_o + (size_t)(first_copy(packet) + l) * 16;
        asm volatile("" : "+l"(to));  // it is computed before the sums
        barrier_sync<Traits>(FULL + buffer);
        // Half a warp has a row, a lane four dimensions. Of one row each half adds up half of the parts, in the same
        // order, and stores a copy.
        static_assert(ATTENDED <= 16, "a lane for each packet");
        const int half = lane / 16, rows = VERIFY ? rows_of_pass(sh) : 1;
#pragma unroll 1
        for (int first = 2 * f; first < rows; first += 2 * FINISH) {
          const int j = VERIFY ? first + half : 0;
          constexpr int HALF = WARPS / 2;
          float most = -INFINITY, sum[2] = {}, y[2][4] = {};
#pragma unroll
          for (int w = 0; w < WARPS; w++) most = fmaxf(most, out_of(sh, work, buffer, w, j)[HEAD]);
#pragma unroll
          for (int w = 0; w < (VERIFY ? WARPS : HALF); w++) {
            const float *const out = out_of(sh, work, buffer, VERIFY ? w : w + half * HALF, j);
            const float2 of = *reinterpret_cast<const float2 *>(out + HEAD);
            const float4 v = *reinterpret_cast<const float4 *>(out + 4 * l);
            const float by = exp2_fast(of.x - most);
            float *const to = y[w / HALF];
            to[0] = fmaf(by, v.x, to[0]), to[1] = fmaf(by, v.y, to[1]);
            to[2] = fmaf(by, v.z, to[2]), to[3] = fmaf(by, v.w, to[3]);
            sum[w / HALF] = fmaf(by, of.y, sum[w / HALF]);
          }
          auto both = [](const float &a, float b) { return a + (VERIFY ? b : __shfl_xor_sync(~0u, a, 16)); };
          const float all = both(sum[0], sum[1]), over = all > 0 ? reciprocal(all) : 0.0f;  // a split may have no keys
#pragma unroll
          for (int e = 0; e < 4; e++) y[0][e] = both(y[0][e], y[1][e]) * over;
          const uint32_t pair[2] = {pack2(y[0][0], y[0][1]), pack2(y[0][2], y[0][3])};
          delay();
          uint32_t u[3];
#pragma unroll
          for (int k = 0; k < 3; k++) {
            const int from = 3 * l + k;  // of all pairs; the last packets have others too
            const uint32_t even = __shfl_sync(~0u, pair[0], from / 2 % 16, 16),
                           odd = __shfl_sync(~0u, pair[1], from / 2 % 16, 16);
            u[k] = from % 2 ? odd : even;
          }
          if (l == ATTENDED - 1) u[0] = __float_as_uint(most), u[1] = __float_as_uint(all), u[2] = 0;
          for (int copy = VERIFY ? 0 : half; l < ATTENDED && j < rows && copy <= (VERIFY ? 1 : half); copy++)
            store_packet(to + j * p.row_o + copy * (PAIR / 2), u[0], u[1], u[2], epoch);
        }
        if (f == 0) {
          stamp<Traits>(p, pass, i, GS_PERSISTENT_PUBLISHED);
          stamp_arrived<Traits>(p, sh, pass, i, buffer);
        }
        barrier_arrive<Traits>(FREE + buffer);
        buffer ^= 1;
      } while (BATCHED && (n += gridDim.x) < p.items);
      continue;
    }
    const bool norm = s.gain != nullptr;
    const int out = s.out, act = s.act;
    const int batch = Traits::batch(out, s.rows);
    int row = s.row + lane, packet = l;
    LayerNormStats one = {0, 1};  // of one row; of sequences that of row lane % side
#pragma unroll 1
    for (int rest = s.rows; rest > 0; rest -= batch, row += batch, packet += batch / BF16_PER_PACKET) {
      const int left = min(rest, batch);
      const bool has = lane < left;
      const float bias = has && s.bias ? s.bias[row] : 0.0f, sums = has && norm ? s.sums[row] : 0.0f;
      const int rows = BATCHED ? p.B : rows_of<ROWS>(sh);
      char *to = out == GS_PERSISTENT_QKV ? p.qkv + (size_t)copy_of((b * p.a.stride + packet) * side) * 16
                                          : p.hidden + (size_t)copy_of((b * p.h.stride + packet) * side) * 16;
      if (!MANY) asm volatile("" : "+l"(to));  // it is computed before the sums
      auto wait = [&] {
        if (norm && rest == s.rows) {
          barrier_sync<Traits>(SUMMED + (BATCHED ? buffer : 0));
          if constexpr (VERIFY) {
#pragma unroll 1
            for (int n = f; n < rows; n += FINISH * MINE) {
              LayerNormStats of[MINE];
#pragma unroll
              for (int m = 0; m < MINE; m++) {
                const int j = min(n + m * FINISH, ROWS - 1);
                of[m] = layernorm_of_lanes<WARPS>(sh.lanes[j * WARPS], 1, sh.about[j], over_c, p.eps);
              }
              // Stored after both are computed, which waits for the loads of both at once.
#pragma unroll
              for (int m = 0; m < MINE; m++)
                if (n + m * FINISH < ROWS) sh.norm[n + m * FINISH] = of[m];
            }
          } else if (BATCHED || f == 0) {
            one = layernorm_of_lanes<WARPS>(sh.lanes[0], BATCHED ? side : 1, BATCHED ? 0 : sh.about[0], over_c, p.eps);
          }
        }
        barrier_sync<Traits>(FULL + buffer);
      };
      const bool beside = MANY && out != GS_PERSISTENT_LOGITS;
      if (beside) {
        if constexpr (MANY)
          finish_rows<Traits>(p, sh, s, f, buffer, s.rows - rest, left, rows, epoch, one, wait);
      } else {
        wait();
      }
      // Of a prompt the last row has logits.
#pragma unroll 1
      for (int n0 = beside || (f > 0 && (!MANY || Traits::PROMPT)) ? rows : Traits::PROMPT ? rows - 1 : f; n0 < rows;
           n0 += FINISH * MINE) {
        float y[MINE];
#pragma unroll
        for (int m = 0; m < MINE; m++) {
          const int n = MANY ? min(n0 + m * FINISH, ROWS - 1) : n0;
          LayerNormStats of = one;
          if (MANY && norm) of = norm_of(sh, one, n);
          const uint32_t at = shared_address(&sh.part[buffer][0][n][lane]);
          y[m] = sum_of_parts<WARPS>(
              [&](int w) { return __uint_as_float(load_shared32(at + w * (int)sizeof(sh.part[0][0]))); });
          y[m] = apply_layernorm(y[m], of, sums, bias);
          if (act) y[m] = gelu(y[m]);
        }
        delay();
#pragma unroll
        for (int m = 0; m < MINE; m++) {
          const int n = n0 + m * FINISH;
          if (MANY && n >= rows) break;
          if (MANY || out == GS_PERSISTENT_LOGITS) {
            if (has) take_logit<Traits>(p, sh, work, n, row, row - s.row, y[m], best, best_id);
          } else if (out == GS_PERSISTENT_RESIDUAL) {
            if constexpr (Traits::MANY) {
              x = y[m] + sh.own[row0][lane % 16];
              __syncwarp();
              if (has) sh.own[row0][lane] = x;
            } else {
              x += y[m];
              if (single_step<Traits>(p) && has) p.own[row] = x;
            }
            const int from = F32_PER_PACKET * l;
            const float u0 = __shfl_sync(~0u, x, from & 31), u1 = __shfl_sync(~0u, x, (from + 1) & 31),
                        u2 = __shfl_sync(~0u, x, (from + 2) & 31);
            if (from < left)
              store_packet(p.residual + (size_t)(copy_of((b * p.x.stride + l) * side) + row0) * 16,
                           __float_as_uint(u0), __float_as_uint(u1), __float_as_uint(u2), epoch);
          } else {
            const int from = BF16_PER_PACKET * l;
            const uint32_t pair = pack2(y[m], __shfl_xor_sync(~0u, y[m], 1));  // of an even lane and the next one
            const uint32_t u0 = __shfl_sync(~0u, pair, from & 31), u1 = __shfl_sync(~0u, pair, (from + 2) & 31),
                           u2 = __shfl_sync(~0u, pair, (from + 4) & 31);
            if (from < left) store_packet(to, u0, u1, u2, epoch);
          }
        }
      }
      if (rest <= batch && f == 0) stamp<Traits>(p, pass, i, GS_PERSISTENT_PUBLISHED);
      if (rest == s.rows && f == 0) stamp_arrived<Traits>(p, sh, pass, i, buffer);
      barrier_arrive<Traits>(FREE + buffer);
      buffer ^= 1;
    }
  }
}

template <typename Traits>
__device__ void finish_steps(const Params &p, Shared<Traits> &sh, Work<Traits> &work, const BlockStep *steps, int of) {
  constexpr int FINISH = Traits::FINISH;
  constexpr bool VERIFY = Traits::VERIFY;
  const int lane = threadIdx.x % 32, f = Traits::MANY ? of : 0;
  const int first = blockIdx.x * p.x.rows, own = min(p.x.rows, p.C - first);  // of the residual stream; may be negative
  const bool single = single_step<Traits>(p);
  const uint32_t epoch0 = single ? p.epoch - first_token<Traits>(p) * p.count : p.header->epoch;
  uint32_t epoch = epoch0;  // in kernels that verify, whose passes differ in how many steps they have
  const Finisher finisher = finisher_of<Traits>(p, f);
  const int pos0 = finisher.pos0;
  int token = *p.token, buffer = 0;
  barrier_arrive<Traits>(FREE);
  barrier_arrive<Traits>(FREE + 1);
  int pass = first_token<Traits>(p);
#pragma unroll 1
  for (int t = pass; t < p.tokens; pass++, t = VERIFY ? *(const volatile int *)&sh.step : t + 1) {
    float x = 0;
    float best = -INFINITY;
    int best_id = 0x7fffffff;
    const int rows = VERIFY ? rows_of_pass(sh) : Traits::BATCHED ? p.B : 1;
    for (int j = f; j < rows; j += FINISH) clear_found<Traits>(p, sh, j);
    if constexpr (Traits::MANY) {
      // After layers that draft a pass has the residual stream of the rows before its last one.
      const bool one = VERIFY && p.exit > 0;
#pragma unroll 1
      for (int n = f; n < (one ? 1 : rows); n += FINISH) {
        const int j = one ? *(const volatile int *)&sh.verified.row : n;
        if (single && p.only_step > FIRST_RESIDUAL) {
          if (lane < own) sh.own[j][lane] = p.own[j * Traits::C + first + lane];
        } else if (lane < own)
          sh.own[j][lane] = Embedding<Traits>(p, sh.token[j], first + lane)[0] +
                            to_float(__ldg(p.wpe + (size_t)(place_of<Traits>(sh, j) + t) * p.C + first + lane));
      }
    } else if (single && p.only_step > FIRST_RESIDUAL) {
      if (lane < own) x = p.own[first + lane];
    } else if (lane < own) {
      x = Embedding<Traits>(p, max(token, 0), first + lane)[0] +
          to_float(__ldg(p.wpe + (size_t)(pos0 + t) * p.C + first + lane));
    }
    Span span = first_span<Traits>(p, sh);
#pragma unroll 1
    while (true) {
      const uint32_t e0 = VERIFY ? epoch - span.from : epoch0 + pass * p.count;
      if constexpr (!VERIFY)
        finish_span<Traits, Traits::AT_ONCE>(p, sh, work, steps, f, pass, span, buffer, e0, x, best, best_id);
      else if (span.rows > 1)
        finish_span<Traits, Traits::AT_ONCE>(p, sh, work, steps, f, pass, span, buffer, e0, x, best, best_id);
      else
        finish_span<Traits, 1>(p, sh, work, steps, f, pass, span, buffer, e0, x, best, best_id);
      epoch += span.to - span.from;
      if (!VERIFY || span.to == p.count) break;
      span = next_span<Traits>(p, sh);
    }

    if (single) return;  // gs_sample takes the token

    finish_token<Traits>(p, sh, work, steps[p.count - 1], finisher, t, pass,
                         VERIFY ? epoch : epoch0 + (pass + 1) * p.count, best, best_id, token);
  }
  finish_launch<Traits>(p, sh, finisher, VERIFY ? epoch : epoch0 + pass * p.count, token);
}

// ---------------------------------------------------------------- the warps that compute

// What a warp that computes has from one step to the next.
struct Progress {
  uint32_t need;          // the epoch of what the next step reads
  unsigned tile, buffer;  // how many tiles were taken, modulo 2 TILES; of the barriers
  bool freed;             // in kernels that verify: barrier FREE of the buffer was waited for
};

// The steps of a span, of ROWS rows at once.
template <typename Traits, int ROWS>
__device__ __forceinline__ void compute_span(const Params &p, Shared<Traits> &sh, Work<Traits> &work,
                                             const BlockStep *steps, int warp, Span span, Progress &progress) {
  constexpr int WARPS = Traits::WARPS, NB = Traits::NB, SMALL = Traits::SMALL, LARGE = Traits::LARGE, LB = Traits::LB,
                XU = Traits::XU, HU = Traits::HU, C = Traits::C;
  constexpr int GROUP = Traits::GROUP, FRAGMENTS = Traits::FRAGMENTS;
  constexpr bool BATCHED = Traits::BATCHED, MANY = ROWS > 1, VERIFY = MANY && !BATCHED;
  // Else registers hold what depends on it between spans.
  constexpr bool SPILLS = Traits::BATCHED || Traits::TIGHT || (Traits::VERIFY && NB == 2);
  // Whether there should be few instructions before x arrives: then the compiler knows that a lane is not negative, and
  // gains have an address for each packet. Elsewhere steps took longer with it, or registers would spill.
  constexpr bool FEW = !BATCHED && (Traits::WIDE || Traits::VERIFY);
  const int id = opaque_if<SPILLS>(threadIdx.x), lane = FEW ? id & 31 : id % 32, g = lane / 4, q = lane % 4;
  warp = opaque_if<Traits::TIGHT || (NB >= 4 && Traits::Q8 && Traits::PROMPT && Traits::STAMPS)>(warp);
  uint16_t *const xs = sh.x[warp] + 8;  // the part of x, high halves, then low
  const uint32_t fragment = shared_address(xs) + q * 16;
  uint32_t &need = progress.need;
  unsigned &tile = progress.tile, &buffer = progress.buffer;
  static_assert((TILES & (TILES - 1)) == 0, "a power of 2");
  auto next = [&] { tile = (tile + 1) % (2 * TILES); };
  auto wait_free = [&] {
    if (!Traits::VERIFY || !progress.freed) barrier_sync<Traits>(FREE + buffer);
    progress.freed = false;
  };
  const int B = BATCHED ? p.B : 1;
  // Stores the values of a packet. It begins at an even one, so that pairs are words.
  auto put = [&](uint32_t at, const uint4 &u, uint16_t *to) {
    uint32_t *words = reinterpret_cast<uint32_t *>(to + at_of(at));
    if (holds(at, 0)) words[0] = u.x;
    if (holds(at, 2)) words[1] = u.y;
    if (holds(at, 4)) words[2] = u.z;
  };
  // The decode step of this launch. A register for it would be one too many.
  const volatile int &t = sh.step;
  auto place = [&] { return (int)t + first_row_of<Traits, ROWS>(sh); };  // of the first row in the launch
#pragma unroll 1
  for (int i = span.from; i < span.to; i++, need++) {
    const BlockStep &s = steps[i];
    if (s.kind == GS_PERSISTENT_ATTENTION) {
      if (s.split < 0) continue;
      // All warps but the last have sixteen keys of the cache at a time; that one has those of this launch.
      const bool launch = opaque_if < Traits::PROMPT && Traits::NB == 4 > (warp) == WARPS - 1;
      constexpr int QUERIES = VERIFY ? ROWS : 1;  // of an item
      const int many = rows_of<QUERIES>(sh);
      int n = s.row;
#pragma unroll 1
      do {
        const Item item = BATCHED ? item_of(n, i, p.NH, p.splits) : Item{0, s.row, s.split};
        const Keys of_cache = BATCHED ? keys_of<2 * HEAD, Traits::PROMPT>(p, sh, item) : Keys{0, s.rows};
        const int keys = of_cache.count, head = item.head;
        const bool last = item.split == (BATCHED ? p.splits : SPLITS) - 1;
        const char *const qkv = p.qkv + item.row * 16;
        // With two splits a block has one item at most.
        // Of a prompt the tail has the keys of its rows, which are not needed after the item.
        bf16 *const tail_k = tail_of(p, Traits::PROMPT ? 0 : s.tail + (BATCHED ? (n - s.row) / (int)gridDim.x : 0)),
                    *const tail_v = tail_k + (Traits::PROMPT ? p.B : p.tokens) * HEAD;
        uint32_t kb = shared_address(tail_k), vb = shared_address(tail_v);
        auto take = [&](uint32_t &to, bool first) {  // waits for keys, or values
          const uint32_t at = wait_first_tile<Traits>(p, sh, tile, i, [&] { return first && warp == 0; });
          if (!launch) to = at;
          next();
        };
        auto give = [&] {
          for (int n = 1; lane == 0 && keys > 0 && n <= 2; n++) mbarrier_arrive(&sh.empty[(tile - n) % TILES]);
        };
        if (keys > 0) take(kb, true), take(vb, true);
        const size_t behind = of_cache.first + (size_t)keys * (HEAD * sizeof(bf16));
        bf16 *const cache_k = (bf16 *)(const_cast<char *>(s.source) + behind),
                    *const cache_v = (bf16 *)(const_cast<char *>(s.source_v) + behind);
        auto write_cache = [&](int first, int rows) {
#pragma unroll 1
          for (int at = first * HEAD, end = at + rows * HEAD; at < end; at += HEAD) {
            reinterpret_cast<uint32_t *>(cache_k + at)[lane] = reinterpret_cast<const uint32_t *>(tail_k + at)[lane];
            reinterpret_cast<uint32_t *>(cache_v + at)[lane] = reinterpret_cast<const uint32_t *>(tail_v + at)[lane];
          }
        };
        int have = launch    ? (last ? (Traits::PROMPT ? item.row : place()) + many : 0)
                   : BATCHED ? min(keys, Traits::CHUNK)
                             : keys;
        const int begin = opaque_if<(Traits::SAMPLES || VERIFY)>(launch ? 0 : warp * KEYS);
        uint4 a0 = {}, b0 = {}, a1 = {}, b1 = {};
        uint32_t v[KEYS];
#pragma unroll
        for (int k = 0; k < KEYS && Traits::READS_BACK; k++) v[k] = 0;  // else registers hold it between steps
        // Odd keys, and columns of q, begin with the second half of the dimensions, which lies in other banks.
        const int odd = BATCHED ? g % 2 : 0;
        auto load = [&](int at) {
          const uint32_t row = kb + min(at + g, have - 1) * 128 + q * 16 + odd * 64,
                         row8 = kb + min(at + g + 8, have - 1) * 128 + q * 16 + odd * 64;
          a0 = load_shared(row), b0 = load_shared(row8);
          a1 = load_shared(row + 64 - odd * 128), b1 = load_shared(row8 + 64 - odd * 128);
#pragma unroll
          for (int k = 0; k < KEYS; k++) v[k] = load_shared32(vb + min(at + k, have - 1) * 128 + lane * 4);
        };
        // Of 8-bit weights and rows registers would spill.
        constexpr bool EARLY = !BATCHED && !(Traits::Q8 && VERIFY);
        constexpr bool LATE = EARLY && VERIFY;  // of rows these loads delay the warps that finish the product before
        if (Traits::READS_BACK && launch && last)
#pragma unroll 1
          for (int at = lane * 16; at < place() * (HEAD * 2); at += 32 * 16)
            copy16(kb + at, (const char *)cache_k + at), copy16(vb + at, (const char *)cache_v + at);
        if (LATE) barrier_sync<Traits>(FREE + (buffer ^ 1));
        if (EARLY && !launch && begin < have) load(begin);
        wait_free();
        progress.freed = LATE;
        float most = -1e30f, sum = 0, y0[QUERIES] = {}, y1[QUERIES] = {};  // most and sum of row lane % 4
        uint4 q0 = {}, q1 = {};
        // The first warp waits for q even if it has no keys: a block that did not would write its next output before
        // this one is read.
        Arrival<Traits> arrival(sh, buffer);
        if (begin < have || warp == 0) {
          delay();
          if constexpr (VERIFY) {
            // q of the lane's row, and in the last warp the new key and value.
            const int r = lane % 4;
            uint32_t at[6], wanted = 0;
#pragma unroll
            for (int n = 0; n < 6; n++) {
              at[n] = (n < 2 || launch) && r < many ? work.slice_q[n / 2][head][n % 2 * 8 + lane / 4] : 0;
              wanted |= (uint32_t)(at[n] != 0) << n;
            }
            uint16_t *const to[3] = {xs + r * Traits::QROW, reinterpret_cast<uint16_t *>(tail_k + (place() + r) * HEAD),
                                     reinterpret_cast<uint16_t *>(tail_v + (place() + r) * HEAD)};
            take_packets<6>(
                p.header, sh, wanted, need, i,
                [&](int n) { return qkv + (unsigned)(packet_of(at[n]) + r) * 16; },
                [&](int n, const uint4 &u, bool arrived) { put(arrived ? at[n] : 0, u, to[n / 2]); },
                arrival);
          } else {
            // q, and in the last warp the new key (lanes 0 to 15) and value; of a prompt those of all rows up to its
            // own.
            const uint32_t pq = lane < 16 ? work.slice_q[0][head][lane] : 0,
                           pn = launch ? work.slice_q[1 + lane / 16][head][lane % 16] : 0;
            constexpr int KEY_ROWS = Traits::PROMPT_ROWS;
            const int rows = Traits::PROMPT ? item.row + 1 : 1;
            uint16_t *const tail = reinterpret_cast<uint16_t *>(lane < 16 ? tail_k : tail_v) +
                                   (Traits::PROMPT ? 0 : place() * HEAD);
            take_packets<1 + KEY_ROWS>(
                p.header, sh, (pq != 0) | (pn ? (2u << rows) - 2 : 0), need, i,
                [&](int n) {
                  return n == 0 ? qkv + (size_t)packet_of(pq) * 16
                                : (Traits::PROMPT ? p.qkv + (n - 1) * 16 : qkv) + (size_t)packet_of(pn) * 16;
                },
                [&](int n, const uint4 &u, bool arrived) {
                  if (n == 0) put(arrived ? pq : 0, u, xs);
                  else put(arrived ? pn : 0, u, tail + (n - 1) * HEAD);
                },
                arrival);
          }
          if (Traits::READS_BACK) wait_copies();
          __syncwarp();
          if (Traits::PROMPT ? launch && item.row == p.B - 1 : BATCHED && launch)  // the last row has them all
            write_cache(Traits::PROMPT ? 0 : (int)t, Traits::PROMPT ? p.B : 1);
          // Of several rows, columns 2j and 2j + 1 have that of row j: a lane then has the scores of row q.
          const uint32_t from = fragment + (VERIFY ? g / 2 * (Traits::QROW * 2) : 0) + odd * 64;
          q0 = load_shared(from), q1 = load_shared(from + 64 - odd * 128);
          arrival.store(sh, warp, buffer);
        }
        int done = 0;  // keys of chunks before
#pragma unroll 1
        do {
#pragma unroll 1
          for (int at = begin; at < have; at += (WARPS - 1) * KEYS) {
            if (!EARLY || launch || at > begin) load(at);
            float d0[4] = {}, d1[4] = {};
            mma(d0, a0, b0, q0);
            mma(d1, a1, b1, q1);
            // Keys g and g + 8: of column 0 in the lanes of q = 0, of several rows that of row q. In powers of 2.
            const float scale = 0.125f * 1.4426950408889634f;
            const int end = VERIFY && launch ? have - many + 1 + q : have;  // a row has keys up to its own
            const float s0 = at + g < end ? (odd ? d0[1] + d1[1] : d0[0] + d1[0]) * scale : -1e30f,
                        s1 = at + g + 8 < end ? (odd ? d0[3] + d1[3] : d0[2] + d1[2]) * scale : -1e30f;
            float top = fmaxf(s0, s1);  // of one row all columns are equal
#pragma unroll
            for (int o = 4; o < 32; o *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
            top = fmaxf(most, top);
            const float fade = exp2_fast(most - top);
            if (VERIFY || q == 0) {
              float *const weight = work.weight[warp][VERIFY ? q : 0];
              weight[g] = exp2_fast(s0 - top), weight[g + 8] = exp2_fast(s1 - top);
            }
            __syncwarp();
            most = top;
            auto weights_of = [&](int r, int k) { return *reinterpret_cast<const float4 *>(&work.weight[warp][r][k]); };
#pragma unroll
            for (int r = 0; r < QUERIES; r++) {
              const float by = VERIFY ? __shfl_sync(~0u, fade, r) : fade;
              y0[r] *= by, y1[r] *= by;
#pragma unroll
              for (int k = 0; k < KEYS; k += 4) {
                const float4 w = weights_of(r, k);
                y0[r] = fmaf(w.x, low(v[k]), y0[r]), y1[r] = fmaf(w.x, high(v[k]), y1[r]);
                y0[r] = fmaf(w.y, low(v[k + 1]), y0[r]), y1[r] = fmaf(w.y, high(v[k + 1]), y1[r]);
                y0[r] = fmaf(w.z, low(v[k + 2]), y0[r]), y1[r] = fmaf(w.z, high(v[k + 2]), y1[r]);
                y0[r] = fmaf(w.w, low(v[k + 3]), y0[r]), y1[r] = fmaf(w.w, high(v[k + 3]), y1[r]);
              }
            }
#pragma unroll
            for (int k = 0; k < KEYS; k += 4) {
              const float4 w = weights_of(VERIFY ? q : 0, k);
              const float all = (w.x + w.y) + (w.z + w.w);
              sum = k == 0 ? fmaf(sum, fade, all) : sum + all;
            }
            __syncwarp();
          }
          if constexpr (!BATCHED) break;
          __syncwarp();
          give();
          done += Traits::CHUNK;
          if (done >= keys) break;
          take(kb, false), take(vb, false);
          have = launch ? 0 : min(keys - done, Traits::CHUNK);
        } while (true);
#pragma unroll
        for (int r = 0; r < QUERIES; r++)
          *reinterpret_cast<float2 *>(out_of(sh, work, buffer, warp, r) + 2 * lane) = make_float2(y0[r], y1[r]);
        if (lane < QUERIES)
          *reinterpret_cast<float2 *>(out_of(sh, work, buffer, warp, lane) + HEAD) = make_float2(most, sum);
        if (!BATCHED) give();
        barrier_arrive<Traits>(FULL + buffer);
        if (!BATCHED && launch && last) write_cache(place(), many);  // nobody waits for it
        buffer ^= 1;
      } while (BATCHED && (n += gridDim.x) < p.items);
      continue;
    }

    if (s.in == GS_PERSISTENT_HIDDEN) {  // a product of 4C inputs, of at most 16 rows
      if (s.rows <= 0) continue;
      constexpr int KEEP = Traits::KEEP;
      constexpr bool BYTES = Traits::BYTES;
      uint4 a[KEEP], b[KEEP];
      Bytes<Traits, BYTES ? LB : 1> bytes;
      constexpr bool HALVES = Traits::HALVES;
      const int mine = Traits::CHUNKS > 1 && !HALVES ? warp / 2 : 0;
#pragma unroll 1
      for (int n = 0; n < mine; n++) {
        if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
        next();
      }
      // The ring may have no room for the last tiles before the first ones were used, which only is after x has
      // arrived: warps wait for each other first. Not if registers have all weights.
      constexpr bool SOON = Traits::WIDE && !BYTES;
      if (SOON) wait_free();
      const uint32_t begin = wait_first_tile<Traits>(p, sh, tile, i, [&] { return warp == 0; });
      const unsigned this_tile = tile % TILES;
      const int side = opaque_if<(MANY || Traits::Q8)>(Traits::CHUNKS > 1 && !HALVES ? warp % 2 : warp);
      const int first = side * (HALVES ? KEEP : LB);
      const uint32_t stride = Traits::CHUNK_PITCH, base = begin + part_of_row<Traits>(first, q);
      // Of at most eight outputs rows g + 8 of the first operand are rows g too: they have the odd blocks of inputs, and
      // odd columns have x of these.
      const bool fold = Traits::FOLDS && s.rows <= 8, held = fold && 2 * KEEP >= LB;  // registers have all of W
      uint32_t row = base + min(g, s.rows - 1) * stride, row8 = base + min(fold ? g : g + 8, s.rows - 1) * stride;
      auto load_block = [&](uint4 &a, uint4 &b, int k) {
        uint4 v[1];
        load_weights<Traits>(v, row, first, fold ? 2 * k : k), a = v[0];
        load_weights<Traits>(v, row8, first, fold ? 2 * k + 1 : k), b = v[0];
      };
      // Waits for a half, whose first tile is the next one, and gives tiles back.
      constexpr int EACH = Traits::TILE_ROWS / 2;
      auto take_half = [&] {
#pragma unroll 1
        for (int n = 0; n < s.rows; n += EACH) wait_tile(sh, (tile + n / EACH) % (2 * TILES));
        auto place = [&](int r) { return sh.base[(tile + r / EACH) % TILES] + r % EACH * stride + base - begin; };
        row = place(min(g, s.rows - 1)), row8 = place(min(g + 8, s.rows - 1));
      };
      auto give = [&](bool last) {
        __syncwarp();
        if (!HALVES && lane == 0 && last) mbarrier_arrive(&sh.empty[this_tile]);
#pragma unroll 1
        for (int n = 0; HALVES && n < s.rows; n += EACH, next())
          if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
      };
      if (HALVES) take_half();
      if constexpr (BYTES) {
        bytes.load(0, row, first);
        if (s.rows > 8) bytes.load(1, row8, first);
        else bytes.clear(1);
      } else {
#pragma unroll
        for (int k = 0; k < KEEP; k++) load_block(a[k], b[k], k), arrange(a[k], b[k], p.zero);
      }
      if (held || BYTES || HALVES) give(true);
      if (!HALVES) next();
#pragma unroll 1
      for (int n = mine + 1; n < Traits::CHUNKS && !HALVES; n++) {
        if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
        next();
      }
      if (!SOON) wait_free();
      Arrival<Traits> arrival(sh, buffer);
      delay();
#pragma unroll 1
      for (int group = 0; group < B; group += GROUP) {
        constexpr bool TIGHT = Traits::TIGHT && VERIFY;
        constexpr int TURNS = !TIGHT ? 1 : HALVES ? 2 : 4, HP = MANY ? Traits::HP / TURNS : HU;
        const int r = MANY ? lane % 4 : 0;  // the lane's row
        auto take_x = [&](int turn) {
          uint32_t ph[HP], wanted = 0;
          const bool has = r < (BATCHED ? B - group : rows_of<ROWS>(sh));
#pragma unroll
          for (int n = 0; n < HP; n++) {
            ph[n] = MANY ? work.slice_h[turn * (HP / 4) + n / 4][warp][n % 4 * 8 + lane / 4]
                         : work.slice_h[n][warp][lane];
            wanted |= (uint32_t)(ph[n] && has) << n;
          }
          const char *const packets = p.hidden + (group + r) * 16;
          take_packets<HP>(
              p.header, sh, wanted, need, i,
              [&](int n) { return packets + (size_t)packet_of(opaque_if<TIGHT>(ph[n])) * 16; },
              [&](int n, const uint4 &u, bool arrived) {
                const int at = HALVES && !TIGHT ? n / (HU / 2) * (LARGE / 2) : 0;
                put(arrived ? ph[n] : 0, u, xs + r * Traits::ROW + at);
              },
              arrival);
        };
#pragma unroll 1
        for (int turn = 0; turn < (HALVES ? 1 : TURNS); turn++) take_x(turn);
        __syncwarp();
        if constexpr (BYTES) {
          const uint32_t at = shared_address(xs);
          const float scale = quantise_part<LARGE, VERIFY ? Traits::ROW : 0, TIGHT>(at);
          const uint32_t from = at + (VERIFY ? g / 2 * (Traits::ROW * 2) : 0);
          uint2 x[LB];
#pragma unroll
          for (int k = 0; k < LB; k++)
            x[k] = TIGHT ? bytes_of_twos(from + k * 64 + q * 16, g % 2)
                         : load_shared64(from + g % 2 * LARGE + k * 32 + q * 8);
          const float2 y = bytes.times(x);
          arrival.store(sh, warp, buffer);
          float *const to = sh.part[buffer][warp][VERIFY ? q : 0];
          if (VERIFY || q == 0) to[g] = y.x * scale, to[g + 8] = y.y * scale;
          break;
        }
        const uint32_t from = fragment + (MANY ? g / 2 * (Traits::ROW * 2) : 0) + (fold ? g % 2 * 64 : 0);
        const int pitch = fold ? 128 : 64;
        float d[4][4] = {};
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
          const uint4 x = load_shared(from + k * pitch);
          mma_arranged(d[k % 4], a[k], b[k], x);
        }
        if (group == 0) arrival.store(sh, warp, buffer);
        if (!held) {
          if (TIGHT && HALVES) __syncwarp(), take_x(1), __syncwarp();  // the first half was read
          if (HALVES) take_half();
          constexpr int UNROLL = Traits::FOLDS || BATCHED ? 2 : LB - KEEP;  // more take registers that hold weights
#pragma unroll 1
          for (int n = KEEP; n < (fold ? LB / 2 : LB); n += UNROLL) {
#pragma unroll
            for (int k = 0; k < UNROLL; k++) {
              uint4 a, b;
              const int at = n + k - (HALVES ? KEEP : 0);
              load_block(a, b, at);
              mma(d[(KEEP + k) % 4], a, b, load_shared(from + (TIGHT ? at : n + k) * pitch));
            }
          }
          give(group + GROUP >= B);
        }
        if (MANY || q == 0) {
          float *const to = sh.part[buffer][warp][MANY ? group + q : 0];
          auto sum = [&](int e) { return (d[0][e] + d[1][e]) + (d[2][e] + d[3][e]); };
          if (fold) to[g] = sum(0) + sum(3);
          else to[g] = sum(0), to[g + 8] = sum(2);
        }
        if (BATCHED) __syncwarp();  // fragments are read before the next group is written
      }
      barrier_arrive<Traits>(FULL + buffer);
      buffer ^= 1;
      continue;
    }

    // A product of C inputs, up to 32 rows at a time. Of a tile, lanes of even g have rows of the first half, lanes
    // of odd g rows of the second one, which lies in other banks.
    const bool few = BATCHED && p.side == 4;
    // Lanes that have packets of the same row of x; the lane's row, and which of them it is.
    const int row_lanes = !MANY ? 32 : !BATCHED || few ? 8 : 4, l = opaque_if<Traits::SINGLE_STEPS>(lane),
              r = !MANY ? 0 : !BATCHED || few ? l % 4 : l % 8, of_row = !MANY ? l : !BATCHED || few ? l / 4 : l / 8;
    const int mine = g % 2 * (Traits::TILE_ROWS / 2) + (Traits::STEP == 2 ? g / 2 % 2 * 2 + g / 4 : g / 2);
    const bool norm = s.gain != nullptr;
    constexpr int XP = MANY ? Traits::XP : XU;
    uint32_t px[XP];
    float gain[XP][F32_PER_PACKET] = {};
    constexpr bool APART = Traits::GAINS > 1;
#pragma unroll 1
    for (int c = lane; norm && APART && c < SMALL; c += 32) work.gain(warp)[c] = __ldg(s.gain + warp * SMALL + c);
    auto load_px = [&] {
#pragma unroll
      for (int n = 0; n < XP; n++) {
        const int at = n * row_lanes + of_row;
        px[n] = few && n >= (XP + 1) / 2 ? 0 : work.slice_x[at / 32][warp][at % 32];
      }
    };
    if (!APART) load_px();
#pragma unroll
    for (int n = 0; n < XP && !APART; n++) {
      const float *from = s.gain + warp * SMALL + at_of(px[n]);
      if (FEW) asm volatile("" : "+l"(from));
      if (FEW && !norm) continue;
#pragma unroll
      for (int k = 0; k < F32_PER_PACKET; k++) gain[n][k] = norm && holds(px[n], k) ? __ldg(from + k) : 0.0f;
    }
    auto gain_of = [&](int n, int k) {
      return !APART ? gain[n][k] : holds(px[n], k) ? work.gain(warp)[at_of(px[n]) + k] : 0.0f;
    };
    uint4 x[NB] = {};
    constexpr bool BYTES = Traits::BYTES;
    uint2 x_bytes[NB] = {};
    float x_scale = 0;
    bool first = true;
    // Of several sequences it is read again: no register holds it.
    auto batch = [&] { return Traits::batch(BATCHED ? *(const volatile int *)&s.out : s.out, s.rows); };
#pragma unroll 1
    for (int rest = s.rows; rest > 0; rest -= batch()) {
      const int left = min(rest, batch());
      uint4 a[FRAGMENTS][NB], b[FRAGMENTS][NB];
      Bytes<Traits, BYTES ? NB : 1> bytes[FRAGMENTS];
      auto load_fragment = [&](int m) {
        if (left <= 16 * m) {
          bytes[m].clear(0), bytes[m].clear(1);
#pragma unroll
          for (int k = 0; k < NB; k++) a[m][k] = b[m][k] = make_uint4(0, 0, 0, 0);
          return;
        }
        const int rows = min(left - 16 * m, 16);
        const uint32_t begin = wait_first_tile<Traits>(p, sh, tile, i, [&] { return first && warp == 0; });
        const int block = opaque_if<(Traits::PROMPT ? NB != 4 : Traits::Q8 && NB == 5 && !BYTES)>(warp) * NB;
        const uint32_t base = begin + part_of_row<Traits>(block, q);
        const uint32_t row = base + place_of_row<Traits>(min(mine, rows - 1));
        if (Traits::TILE_ROWS == 16) {
          const uint32_t row8 = base + place_of_row<Traits>(min(mine + 4, rows - 1));
          if constexpr (BYTES) bytes[m].load(0, row, block), bytes[m].load(1, row8, block);
          else load_weights<Traits>(a[m], row, block), load_weights<Traits>(b[m], row8, block);
        } else if constexpr (BYTES) {
          bytes[m].load(0, row, block);
        } else {
          load_weights<Traits>(a[m], row, block);
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
        next();
        if (Traits::TILE_ROWS == 16) return;
        if (rows <= 8) {
          bytes[m].clear(1);
#pragma unroll
          for (int k = 0; k < NB; k++) b[m][k] = make_uint4(0, 0, 0, 0);
          return;
        }
        const uint32_t row8 = wait_first_tile<Traits>(p, sh, tile, i, [&] { return first && warp == 0; }) +
                              part_of_row<Traits>(Traits::Q8 ? block : warp * NB, q) +
                              place_of_row<Traits>(min(mine, rows - 9));
        if constexpr (BYTES) bytes[m].load(1, row8, block);
        else load_weights<Traits>(b[m], row8, block);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&sh.empty[tile % TILES]);
        next();
      };
      auto arrange_fragment = [&](int m) {
#pragma unroll
        for (int k = 0; k < NB && !BYTES; k++) arrange(a[m][k], b[m][k], p.zero);
      };
      constexpr int AHEAD = Traits::TIGHT && Traits::HALVES && VERIFY ? 1 : FRAGMENTS;  // of fragments, before x arrives
#pragma unroll
      for (int m = 0; m < AHEAD; m++) load_fragment(m);
#pragma unroll
      for (int m = 0; m < AHEAD; m++) arrange_fragment(m);
      wait_free();
      Arrival<Traits> arrival(sh, buffer);
      float v[XP][F32_PER_PACKET] = {}, about = 0;
      uint32_t sums_at = 0, about_at = 0;
      auto load_x = [&] {
        // Column 0 has the high halves of x, column 1 the low ones; of drafts, columns 2j and 2j + 1. Sequences j and
        // j + 4, which lie in other banks, have columns 2j and 2j + 1.
        const uint32_t row = BATCHED ? (g / 2 + g % 2 * 4) * (Traits::XROW * 2) : MANY ? g / 2 * (Traits::XROW * 2) : 0,
                       from = fragment + row + (!BATCHED && norm && g % 2 ? Traits::LOW * 2 : 0);
#pragma unroll
        for (int k = 0; k < NB; k++)
          if (BYTES) x_bytes[k] = load_shared64(shared_address(xs) + row + g % 2 * SMALL + k * 32 + q * 8);
          else x[k] = load_shared(from + k * 64);
      };
      if (first) {
        delay();
        if (APART) load_px();
        const int many = BATCHED ? B : rows_of<ROWS>(sh);
        if (s.in == GS_PERSISTENT_ATTENDED) {
          constexpr int HEADS = Traits::HEADS;
          constexpr bool OPAQUE = (Traits::SAMPLES || MANY) && Traits::NB != 4;
          const int head = opaque_if<OPAQUE>(warp) * SMALL / HEAD;
          constexpr int skip = NB % 2 * HEAD / 2;  // parts of odd warps begin in the middle of a head
          if constexpr (MANY) {
            // Eight lanes, of more than four sequences four, have the packets of all splits of a head of a row.
            constexpr int U = (ATTENDED + Traits::ROW_LANES - 1) / Traits::ROW_LANES, MOST = BATCHED ? 2 : SPLITS;
            const int EACH = row_lanes, row = BATCHED && !few ? lane / 4 : lane / 8, of = lane % EACH,
                      splits = BATCHED ? p.splits : SPLITS;
            uint16_t *const to = xs + row * Traits::XROW;
#pragma unroll 1
            for (int n = 0; n < HEADS; n++) {
              uint4 u[U * MOST];
              const char *const from = p.attended + (work.slice_o[row][head + n] + of) * 16;
              uint32_t wanted = 0;
#pragma unroll
              for (int m = 0; m < U; m++)
                if (row < many && m * EACH + of < ATTENDED) wanted |= ((1 << splits) - 1) << m * MOST;
              read_packets(p.header, sh, u, wanted, need, i,
                           [&](int m) { return from + (m % MOST * ATTENDED_STRIDE + m / MOST * EACH) * 16; });
              arrival.read();
              float f[SPLITS] = {}, largest[SPLITS];
#pragma unroll
              for (int k = 0; k < SPLITS; k++) {
                largest[k] = -INFINITY;
                if (k >= MOST) continue;
                const uint4 &last = u[(U - 1) * MOST + k], &sooner = u[MOST + k];
                const float top = __uint_as_float(__shfl_sync(~0u, few ? sooner.x : last.x, (ATTENDED - 1) % EACH, EACH));
                if (k < splits) largest[k] = top;
                f[k] = __uint_as_float(__shfl_sync(~0u, few ? sooner.y : last.y, (ATTENDED - 1) % EACH, EACH));
              }
              const float most = fmaxf(fmaxf(largest[0], largest[2]), fmaxf(largest[1], largest[3]));
#pragma unroll
              for (int k = 0; k < SPLITS; k++) f[k] = __fmul_rn(f[k], exp2_fast(largest[k] - most));
              const float over = reciprocal((f[0] + f[2]) + (f[1] + f[3]));
#pragma unroll
              for (int k = 0; k < SPLITS; k++) f[k] *= over;
#pragma unroll
              for (int m = 0; m < U; m++) {
                if (m > 1 && few) break;
                auto w = [&](int k) { return k < MOST ? u[m * MOST + k] : make_uint4(0, 0, 0, 0); };
                const int packet = EACH * m + of, at = n * HEAD + BF16_PER_PACKET * packet - (warp % 2 ? skip : 0);
                // The compiler would contract it as it likes.
                auto put_pair = [&](int k, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3) {
                  const float y0 = fmaf(f[0], low(w0), __fmul_rn(f[2], low(w2))) +
                                   fmaf(f[1], low(w1), __fmul_rn(f[3], low(w3))),
                              y1 = fmaf(f[0], high(w0), __fmul_rn(f[2], high(w2))) +
                                   fmaf(f[1], high(w1), __fmul_rn(f[3], high(w3)));
                  if (packet < ATTENDED - 1 && BF16_PER_PACKET * packet + 2 * k < HEAD && at + 2 * k >= 0 &&
                      at + 2 * k < SMALL)
                    reinterpret_cast<uint32_t *>(to)[at / 2 + k] = pack2(y0, y1);
                };
                put_pair(0, w(0).x, w(1).x, w(2).x, w(3).x);
                put_pair(1, w(0).y, w(1).y, w(2).y, w(3).y);
                put_pair(2, w(0).z, w(1).z, w(2).z, w(3).z);
              }
            }
          } else {
            // Half a warp has the packets of a split of a head, and of the split two further.
            const int split = opaque(lane);  // else registers would spill
            const char *const last =
                p.attended +
                (work.slice_o[0][head + split / SPLITS % HEADS] + split % SPLITS * ATTENDED_STRIDE + ATTENDED - 1) *
                    16;
            // Most blocks have no part in attention and come here early. They poll the last packet of each split
            // only: polls of all delay what they wait for.
            const unsigned polls = poll_until(p.header, sh, i, [&] { return load_packet(last).w == need; });
            int packet = lane % 16, half = lane / 16;
            if (Traits::SAMPLES) asm volatile("" : "+r"(packet), "+r"(half));
            uint4 u[HEADS][2] = {};
            const auto take = [&] {
              bool wait = false;
              auto lacks = [&](int n, int k) { return packet < ATTENDED && u[n][k].w != need; };
#pragma unroll
              for (int n = 0; n < HEADS; n++) {
                const char *from = p.attended + (work.slice_o[0][head + n] + half * ATTENDED_STRIDE + packet) * 16;
                load_packet_to(u[n][0], lacks(n, 0), from),
                    load_packet_to(u[n][1], lacks(n, 1), from + 2 * ATTENDED_STRIDE * 16);
              }
#pragma unroll
              for (int n = 0; n < HEADS; n++) wait |= lacks(n, 0) || lacks(n, 1);
              return !wait;
            };
            poll_until(p.header, sh, i, take, polls);
            arrival.read();
#pragma unroll
            for (int n = 0; n < HEADS; n++) {
              const uint4 &p0 = u[n][0], &p1 = u[n][1];
              const float m0 = __uint_as_float(__shfl_sync(~0u, p0.x, ATTENDED - 1, 16)),
                          m1 = __uint_as_float(__shfl_sync(~0u, p1.x, ATTENDED - 1, 16));
              float f0 = __uint_as_float(__shfl_sync(~0u, p0.y, ATTENDED - 1, 16)),
                    f1 = __uint_as_float(__shfl_sync(~0u, p1.y, ATTENDED - 1, 16));
              float most = fmaxf(m0, m1);
              most = fmaxf(most, __shfl_xor_sync(~0u, most, 16));
              f0 = __fmul_rn(f0, exp2_fast(m0 - most)), f1 = __fmul_rn(f1, exp2_fast(m1 - most));
              float sum = f0 + f1;
              sum += __shfl_xor_sync(~0u, sum, 16);
              const float over = reciprocal(sum);
              f0 *= over, f1 *= over;
              const uint32_t w0[3] = {p0.x, p0.y, p0.z}, w1[3] = {p1.x, p1.y, p1.z};
              const int at = n * HEAD + BF16_PER_PACKET * packet - (warp % 2 ? skip : 0);
#pragma unroll
              for (int k = 0; k < 3; k++) {
                // The compiler would contract it as it likes.
                float y0 = fmaf(f0, low(w0[k]), __fmul_rn(f1, low(w1[k]))),
                      y1 = fmaf(f0, high(w0[k]), __fmul_rn(f1, high(w1[k])));
                y0 += __shfl_xor_sync(~0u, y0, 16), y1 += __shfl_xor_sync(~0u, y1, 16);
                if (half == 0 && packet < ATTENDED - 1 && BF16_PER_PACKET * packet + 2 * k < HEAD &&
                    at + 2 * k >= 0 && at + 2 * k < SMALL)
                  reinterpret_cast<uint32_t *>(xs)[at / 2 + k] = pack2(y0, y1);
              }
            }
          }
          if constexpr (BYTES) {
            __syncwarp();
            x_scale = quantise_part<SMALL, VERIFY ? Traits::XROW : 0>(shared_address(xs));
          }
        } else {
          uint16_t *const to = xs + r * Traits::XROW;
          // Addresses are computed before x arrives.
          sums_at = shared_address(BATCHED ? &sh.lanes[warp][l] : &sh.lanes[r * WARPS + warp][of_row]);
          about_at = shared_address(&sh.about[r]);
          keep_address(sums_at), keep_address(about_at);
          float sums[XP] = {}, squares[XP] = {};  // of sequences, of a packet each
          // Read before a packet is stored: shared memory keeps the order of loads and stores.
          auto gains_of = [&](uint32_t packet, int k) {
            const float *const at = &work.gain(warp)[holds(packet, 2 * k) ? at_of(packet) + 2 * k : 0];
            return *reinterpret_cast<const float2 *>(at);
          };
          auto take = [&](int n, const uint4 &u, bool arrived) {
            const uint32_t w[3] = {u.x, u.y, u.z}, has = arrived ? px[n] : 0;
            float2 gains[3] = {};
#pragma unroll
            for (int k = 0; k < 3 && BATCHED && NB != 5; k++) gains[k] = gains_of(has, k);
#pragma unroll
            for (int k = 0; k < 3; k++)
              if (!BATCHED) {
                if (arrived) v[n][k] = __uint_as_float(w[k]);
              } else if (holds(has, 2 * k)) {
                const float y = low(w[k]), z = high(w[k]);
                if (NB == 5) gains[k] = gains_of(has, k);  // else registers would spill
                sums[n] += y + z, squares[n] = fmaf(y, y, fmaf(z, z, squares[n]));
                reinterpret_cast<uint32_t *>(to + at_of(has))[k] =
                    pack2(__fmul_rn(y, gains[k].x), __fmul_rn(z, gains[k].y));
              }
          };
          if (s.in == GS_PERSISTENT_EMBEDDING) {
            const int row = min(r, many - 1),
                      token = ((volatile int *)sh.token)[first_row_of<Traits, ROWS>(sh) + row],
                      pos = ((volatile int *)sh.pos0)[BATCHED ? row : 0] + place() + (BATCHED ? 0 : row);
#pragma unroll
            for (int n = 0; n < XP; n++) {
              const int c = opaque_if < Traits::Q8 && NB == 5 > (warp)*SMALL + at_of(px[n]);
              const Embedding<Traits> e(p, token, c);
              const bf16 *w = p.wpe + (size_t)pos * C + c;
              auto value = [&](int k) { return holds(px[n], k) ? e[k] + to_float(__ldg(w + k)) : 0.0f; };
              auto word = [&](int k) {
                return BATCHED ? pack2(value(2 * k), value(2 * k + 1)) : __float_as_uint(value(k));
              };
              take(n, make_uint4(word(0), word(1), word(2), 0), true);
            }
            if (!BATCHED) about = Embedding<Traits>(p, token, 0)[0] + to_float(__ldg(p.wpe + (size_t)pos * C));
            arrival.read();
          } else {
            // Rows but the last one have drafted since they were in these layers.
            const uint32_t apart = VERIFY && i == p.exit ? p.exit + 1 : 0;
            const uint32_t epoch = VERIFY ? need - (many - 1 - r) * apart : need;
            // Lanes without a packet, of which the last one is always, read the first packet of x.
            static_assert(BATCHED || SMALL / F32_PER_PACKET + 2 < (MANY ? 8 : 32) * XP,
                          "the last lane's last packet is not of the part");
            const char *const from = p.residual + (first_row_of<Traits, ROWS>(sh) + r) * 16;
            auto packet = [&](int n) {
              return from + (size_t)packet_of(opaque_if<(Traits::SAMPLES || Traits::Q8) && VERIFY>(px[n])) * 16;
            };
            if constexpr (XP == 1) {  // a load by predicate that is alone would become a branch
              uint4 u;
              poll_until(p.header, sh, i, [&] { return (u = load_packet(packet(0))).w == epoch; });
              arrival.read();
              take(0, u, true);
            } else {
              uint32_t wanted = 0;
#pragma unroll
              for (int n = 0; n < XP; n++) wanted |= (uint32_t)(r < many && (!BATCHED || px[n])) << n;
              take_packets<XP>(p.header, sh, wanted, epoch, i, packet, take, arrival);
            }
            if (!BATCHED) about = __shfl_sync(~0u, v[XP - 1][0], MANY ? 28 + r : 31);
          }
          if constexpr (BATCHED) {
#pragma unroll
            for (int n = 1; n < XP; n++) sums[0] += sums[n], squares[0] += squares[n];
            store_shared2(sums_at, make_float2(sums[0], squares[0]));
          }
          if constexpr (BYTES) {
            uint32_t most = 0;
#pragma unroll
            for (int n = 0; n < XP; n++)
#pragma unroll
              for (int k = 0; k < F32_PER_PACKET; k++) {
                v[n][k] = holds(px[n], k) ? v[n][k] : 0.0f;
                most = max(most, __float_as_uint(__fmul_rn(v[n][k], gain_of(n, k))) & 0x7fffffff);
              }
            const Quantiser quantiser(most, VERIFY);
            x_scale = quantiser.scale;
#pragma unroll
            for (int n = 0; n < XP; n++)
#pragma unroll
              for (int k = 0; k < F32_PER_PACKET; k++)
                if (holds(px[n], k))
                  quantiser.store(shared_address(to) + at_of(px[n]) + k, SMALL, __fmul_rn(v[n][k], gain_of(n, k)));
          }
#pragma unroll
          for (int n = 0; n < XP && !BYTES && !BATCHED; n++)
#pragma unroll
            for (int k = 0; k < F32_PER_PACKET; k++)
              if (holds(px[n], k)) {
                const float y = __fmul_rn(v[n][k], gain_of(n, k));
                const uint32_t upper = pack2(y, 0);
                to[at_of(px[n]) + k] = (uint16_t)upper;
                to[Traits::LOW + at_of(px[n]) + k] = (uint16_t)pack2(y - low(upper), 0);
              } else {
                v[n][k] = 0.0f;
              }
        }
        __syncwarp();
        load_x();
        arrival.store(sh, warp, buffer);
        if (norm) {
          // Of rows of drafts a lane stores for those of a step of one row that have its packets there.
          constexpr int OF = !VERIFY ? 1 : XP < 4 ? XP : 4;
#pragma unroll
          for (int e = 0; e < OF && !BATCHED; e++) {
            float sum = 0, squares = 0;
#pragma unroll
            for (int n = e; n < XP; n += VERIFY ? 4 : 1)
#pragma unroll
              for (int k = 0; k < F32_PER_PACKET; k++) {
                const float z = holds(px[n], k) ? v[n][k] - about : 0.0f;
                sum += z, squares = fmaf(z, z, squares);
              }
            store_shared2(sums_at + e * 8 * (int)sizeof(float2), make_float2(sum, squares));
          }
          // The last lanes have no packet of the part.
          if (!BATCHED && lane / ROWS == 31 / ROWS) store_shared32(about_at, __float_as_uint(about));
          barrier_arrive<Traits>(SUMMED + (BATCHED ? buffer : 0));
        }
      } else if (BATCHED) {
        load_x();
      }
      if constexpr (BYTES) {
        first = false;
#pragma unroll
        for (int m = 0; m < 2; m++) {
          if (left <= 16 * m) break;
          const float2 y = bytes[m].times(x_bytes);
          float *const to = sh.part[buffer][warp][VERIFY ? q : 0] + 16 * m + mine;
          if (VERIFY || q == 0) to[0] = y.x * x_scale, to[Traits::TILE_ROWS == 16 ? 4 : 8] = y.y * x_scale;
        }
        barrier_arrive<Traits>(FULL + buffer);
        buffer ^= 1;
        continue;
      }
      constexpr int SUMS = NB > 2 ? 2 : NB;
      float d[FRAGMENTS][SUMS][4] = {};
#pragma unroll
      for (int m = 0; m < FRAGMENTS; m++) {
        if (m > 0 && left <= 16 * m) break;
        if (m >= AHEAD) load_fragment(m), arrange_fragment(m);
#pragma unroll
        for (int k = 0; k < NB; k++) mma_arranged(d[m][k % SUMS], a[m][k], b[m][k], x[k]);
      }
      if (MANY || q == 0) {
#pragma unroll
        for (int e = 0; e < 2 * FRAGMENTS; e++) {
          float y = d[e / 2][0][e % 2 * 2], z = d[e / 2][0][e % 2 * 2 + 1];
#pragma unroll
          for (int k = 1; k < SUMS; k++) y += d[e / 2][k][e % 2 * 2], z += d[e / 2][k][e % 2 * 2 + 1];
          const int to = 16 * (e / 2) + e % 2 * (Traits::TILE_ROWS == 16 ? 4 : 8) + mine;
          float(*const part)[Traits::SUMS] = sh.part[buffer][warp];
          if constexpr (BATCHED) part[q][to] = y, part[q + 4][to] = z;
          else part[MANY ? q : 0][to] = norm ? y + z : y;
        }
      }
      barrier_arrive<Traits>(FULL + buffer);
      buffer ^= 1;
      first = false;
    }
  }
}

template <typename Traits>
__device__ void compute_steps(const Params &p, Shared<Traits> &sh, Work<Traits> &work, const BlockStep *steps,
                              int warp) {
  constexpr int WARPS = Traits::WARPS, NB = Traits::NB, SMALL = Traits::SMALL, LARGE = Traits::LARGE;
  constexpr bool VERIFY = Traits::VERIFY;
  static_assert(LARGE + 8 <= 1 << 10, "packed() has 10 bits for a place in a part");
  const int lane = threadIdx.x % 32;
  Progress progress = {single_step<Traits>(p) ? p.epoch + p.only_step : p.header->epoch, 0, 0, false};
  auto slice = [&](int pair, Slice s) {
    s.packet = near_copy(sh, pair, s.packet * side_of<Traits>(p));
    return s;
  };
#pragma unroll 1
  for (int n = 0; n < Traits::XU; n++) {
    const uint32_t at =
        packed(slice(0, slice_of(p.x, Traits::X_VALUES, warp * SMALL, SMALL, 32 * n + lane, p.C)), SMALL);
    // A lane without a packet reads the first one, but not of sequences.
    work.slice_x[n][warp][lane] = at || Traits::BATCHED ? at : (uint32_t)near_copy(sh, 0, 0) << 16;
  }
#pragma unroll 1
  for (int n = 0; n < Traits::HU; n++) {
    constexpr int PARTS = Traits::HALVES ? 2 : 1, LENGTH = LARGE / PARTS, EACH = Traits::HU / PARTS;
    const int from = (n / EACH * WARPS + warp) * LENGTH;
    work.slice_h[n][warp][lane] = packed(
        slice(p.pair_h, slice_of(p.h, BF16_PER_PACKET, from, LENGTH, 32 * (n % EACH) + lane, 4 * p.C)), LENGTH);
  }
#pragma unroll 1
  for (int n = threadIdx.x; VERIFY && n < Traits::ROWS * WARPS * 32; n += 32 * WARPS)
    (&sh.lanes[0][0])[n] = {};  // of lanes that have no packet
#pragma unroll 1
  for (int n = threadIdx.x; n < 3 * WARPS * NB / 2 * 16; n += 32 * WARPS) {
    const int head = n / 16;  // of all q, then k, then v
    (&work.slice_q[0][0][0])[n] =
        packed(slice(p.pair_a, slice_of(p.a, BF16_PER_PACKET, head * HEAD, HEAD, n % 16, 3 * p.C)), HEAD);
  }
#pragma unroll 1
  for (int n = threadIdx.x; n < p.B * p.NH; n += 32 * WARPS) {
    const int row = n / p.NH, head = n % p.NH;
    work.slice_o[row][head] = row * (p.row_o / 16) + near_copy(sh, p.pair_o + row * (p.row_o / PAIR),
                                                               head * p.splits * ATTENDED_STRIDE);
  }
  named_sync<32 * WARPS>(7);
  const volatile int &t = sh.step;
#pragma unroll 1
  while (t < p.tokens) {
    Span span = first_span<Traits>(p, sh);
#pragma unroll 1
    while (true) {
      if constexpr (!VERIFY) compute_span<Traits, Traits::AT_ONCE>(p, sh, work, steps, warp, span, progress);
      else if (span.rows > 1) compute_span<Traits, Traits::AT_ONCE>(p, sh, work, steps, warp, span, progress);
      else compute_span<Traits, 1>(p, sh, work, steps, warp, span, progress);
      if (!VERIFY || span.to == p.count) break;
      span = next_span<Traits>(p, sh);
    }
    if (single_step<Traits>(p)) return;
    if constexpr (Traits::MANY) {
      const int step = t;  // it changes after the barrier
      barrier_sync<Traits>(LISTED);
      if constexpr (Traits::SAMPLES)
        if (samples<Traits>(p)) {
          const BlockStep &s = steps[p.count - 1];
          sample_each<Traits>(p, sh, reinterpret_cast<SequenceCandidates *>(sh.rooms), warp, s.row, s.rows, step,
                              progress.need);
          if (VERIFY) named_sync<32 * WARPS>(RANKED);
          if (VERIFY && warp == 0) accept(p, sh, step);
        }
      if constexpr (Traits::GREEDY)
        if (!samples<Traits>(p)) {
          best_each<Traits>(p, sh, warp, step, progress.need);
          if (VERIFY) named_arrive<32 * (WARPS + 1)>(RANKED);
        }
    } else if (samples<Traits>(p))
      rank_candidates<WARPS>(shared_address(&candidates_in(sh)), shared_address(&logits_or_sorted_in(work)));
    barrier_sync<Traits>(TOKEN);
  }
}

// Copies the keys and values of the tokens of the launch of gs_persistent that came before this one.
template <typename Traits> __device__ void load_tail(const Params &p, const Shared<Traits> &sh, const BlockStep &s) {
  if (s.kind != GS_PERSISTENT_ATTENTION || s.split < 0) return;
  int n = s.row;
  do {
    const Item item = Traits::BATCHED ? item_of(n, p.only_step, p.NH, p.splits) : Item{0, s.row, s.split};
    if (item.split != p.splits - 1) continue;
    const Keys keys = Traits::BATCHED ? keys_of<2 * HEAD, Traits::PROMPT>(p, sh, item) : Keys{0, s.rows};
    const size_t from = keys.first + keys.count * (HEAD * sizeof(bf16));
    const bf16 *k = reinterpret_cast<const bf16 *>(s.source + from),
               *v = reinterpret_cast<const bf16 *>(s.source_v + from);
    bf16 *const tail = tail_of(p, s.tail + (Traits::BATCHED ? (n - s.row) / (int)gridDim.x : 0));
    for (int i = threadIdx.x; i < (p.tokens - 1) * HEAD; i += Traits::THREADS)
      tail[i] = k[i], tail[p.tokens * HEAD + i] = v[i];
  } while (Traits::BATCHED && (n += gridDim.x) < p.items);
}

// What a block of a launch does.
template <typename Traits> __device__ __forceinline__ void run_block(const Params &p) {
  constexpr int WARPS = Traits::WARPS;
  __shared__ Shared<Traits> sh;
  __shared__ Work<Traits> work;
  BlockStep *steps = reinterpret_cast<BlockStep *>(dynamic);
  const int b = blockIdx.x, blocks = gridDim.x, warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    for (int i = 0; i < TILES; i++) mbarrier_init(&sh.full[i], 1), mbarrier_init(&sh.empty[i], WARPS);
    mbarrier_show();
    for (int j = 0; j < (Traits::BATCHED ? p.B : 1); j++) {
      sh.token[j] = max(Traits::PROMPT ? p.ids[j] : p.token[j], 0);
      sh.pos0[j] = Traits::PROMPT ? *p.pos + j : p.pos[j] - first_token<Traits>(p);
    }
    sh.verified = {};
    sh.step = first_token<Traits>(p);
    sh.aborted = p.header->expired != 0;
    sh.polling = 0, sh.polled = 0;
    restart_timeout(p, sh);
  }
  find_near(p, sh);
  // The block's part of each step. Attention moves on by as many blocks as it takes.
  const int pos0 = *p.pos - first_token<Traits>(p), part = part_of(pos0, SPLITS);
#pragma unroll 1
  for (int i = first_step<Traits>(p) + threadIdx.x; i < end_step<Traits>(p); i += Traits::THREADS) {
    BlockStep l = {};
    const gs_persistent_step &s = p.steps[i];
    l.kind = s.kind, l.in = s.in, l.out = s.out, l.act = s.act;
    if (s.kind == GS_PERSISTENT_ATTENTION && Traits::BATCHED) {
      l.row = first_item(i, b, blocks, p.items);
      l.split = l.row < p.items ? 0 : -1;
      l.source = (const char *)s.k_cache, l.source_v = (const char *)s.v_cache;
    } else if (s.kind == GS_PERSISTENT_ATTENTION) {
      l.split = split_of(i, b, blocks, p.NH, &l.row);
      const int from = min(pos0, max(l.split, 0) * part);
      l.rows = l.split == SPLITS - 1 ? pos0 - from : min(pos0 - from, part);
      const size_t first = ((size_t)l.row * p.P + from) * HEAD * sizeof(bf16);
      l.source = (const char *)s.k_cache + first, l.source_v = (const char *)s.v_cache + first;
    } else {
      const int rows = rows_of(
          s.N, blocks, s.out == GS_PERSISTENT_QKV || s.out == GS_PERSISTENT_HIDDEN ? BF16_PER_PACKET
                       : s.out == GS_PERSISTENT_RESIDUAL                          ? Traits::X_VALUES
                                                                                  : F32_PER_PACKET);
      l.row = b * rows;
      l.rows = max(0, min(rows, s.N - l.row));
      l.source = (const char *)s.w + (size_t)l.row * (s.K == p.C ? Traits::ROW_BYTES : Traits::LONG_BYTES);
      l.bias = (const float *)s.bias, l.gain = (const float *)s.gain, l.sums = (const float *)s.sums;
    }
    steps[i] = l;
  }
  __syncthreads();
  if (!Traits::PROMPT && !Traits::READS_BACK && threadIdx.x == 0)
    for (int i = first_step<Traits>(p), n = 0; i < end_step<Traits>(p); i++)
      if (steps[i].kind == GS_PERSISTENT_ATTENTION) {
        steps[i].tail = n;
        n += Traits::BATCHED ? last_splits(i, b, blocks, p) : steps[i].split == SPLITS - 1;
      }
  BlockStep &logits = steps[p.count - 1];
  float *const head = reinterpret_cast<float *>(steps + p.count);
  const bool has_logits = end_step<Traits>(p) == p.count;
#pragma unroll 1
  for (int i = threadIdx.x; has_logits && i < logits.rows; i += Traits::THREADS) {
    head[i] = logits.bias ? logits.bias[logits.row + i] : 0.0f;
    head[p.head + i] = logits.sums ? logits.sums[logits.row + i] : 0.0f;
  }
  __syncthreads();
  if (has_logits && threadIdx.x == 0) logits.bias = head - logits.row, logits.sums = head + p.head - logits.row;
  if (single_step<Traits>(p) && !Traits::PROMPT && !Traits::READS_BACK) load_tail<Traits>(p, sh, steps[p.only_step]);
  if constexpr (Traits::VERIFY) {
    for (int i = threadIdx.x; p.exit == 0 && i <= pos0; i += Traits::THREADS) text_of(p)[i] = p.text[i];
    __syncthreads();
    if (warp == 0) draft(p, sh, 0);
  }
  __syncthreads();
  if (warp == WARPS + Traits::FINISH) {
    if (!RingWriter<Traits, Shared<Traits>>::ONE || threadIdx.x % 32 == 0) copy_weights<Traits>(p, sh, steps);
  } else if (warp >= WARPS) finish_steps<Traits>(p, sh, work, steps, warp - WARPS);
  else compute_steps<Traits>(p, sh, work, steps, warp);
  __syncthreads();  // no warp ends while others wait at barriers
}

#endif

template <typename Traits>
__global__ void __launch_bounds__(Traits::THREADS, 1) decode_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  if constexpr (Traits::SINGLE_STEP || Traits::SINGLE_STEPS) {
    // Blocks of a single step wait for no other block: what they read was written by launches before.
    auto stamp = [&](int what) {
      if (p.stamp.area && opaque(threadIdx.x) == 0) p.stamp.area[2 * opaque(blockIdx.x) + what] = gs_globaltimer();
    };
    gs_wait();
    stamp(0);
    run_block<Traits>(p);
    stamp(1);
  } else {
    run_block<Traits>(p);
  }
#endif
}

}  // namespace
