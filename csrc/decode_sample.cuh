// How the persistent kernel samples a token: as csrc/sample.cu from the same logits, of up to MAX_RANKED candidates, in
// two hops between the blocks. Every block samples by itself, so that none waits for a central one.
//
// * Each block publishes the greatest logits of three groups of its rows. From those of all blocks each finds the same
//   bound: at least k of them reach it, and not many more.
// * Each block publishes its logits that reach the bound, and has those of all in a list. If they are too many, since
//   the greatest logits are in few blocks or equal, blocks first search for a higher bound: a hop for each halving.
//   Where blocks have three rows at most, all have every logit after the first hop.
// * The warps that compute put the k best in order, by counting for each those before it. One warp then sums their p in
//   the CPU's order.
#pragma once

#include "decode_draft.cuh"
#include "decode_parts.cuh"
#include "sample.cuh"

namespace {

constexpr int MAX_SAMPLED = GS_PERSISTENT_CANDIDATES_ALL;  // of which so many are sampled from, at most
constexpr int LIST_PACKETS = MAX_RANKED / 2;     // of the list of a block: two candidates each
constexpr int MAX_COUNT = 1023;                  // the most candidates that a packet's first word can tell
constexpr int MAX_ROWS = 1024;                   // logits of a block, at most
constexpr int BEST_BUFFERS = 5;                  // buffers of a packet of each block

// In the room for parts of x, which is free when all logits of the block are computed.
struct Candidates {
  alignas(16) uint64_t rank[MAX_RANKED + 4];  // in any order, then zeros
  double temperature, top_p, log_sum;
  uint64_t random;
  int count, k;
  float largest;
};
struct SortedCandidates {
  alignas(16) double sum[MAX_SAMPLED + 16];  // p of the candidates in order, then their running sums
  uint16_t at[MAX_SAMPLED];                  // in the list
};
// In the room for outputs of attention. The logits are read before the sums are written.
union LogitsOrSorted {
  float logits[MAX_ROWS];  // of the block's rows
  SortedCandidates sorted;
};
// Of each of several sequences, whose logits are read from memory; in the room for sums and parts of x.
struct SequenceCandidates {
  Candidates list;
  SortedCandidates sorted;
};

// The three best logits of a lane, as keys, and the rows of the best two among those of the block. Zeros are no logit.
struct alignas(16) LaneBest {
  unsigned best, second, third;
  unsigned rows;  // 16 bits each

  __device__ void take(float logit, int row) {
    const unsigned key = key_of(logit);
    if (key > best) third = second, second = best, best = key, rows = rows << 16 | row;
    else if (key > second) third = second, second = key, rows = row << 16 | (rows & 0xffff);
    else third = max(third, key);
  }
};

// What a block has found of each sequence, or row of a pass that verifies drafts.
template <typename Traits> struct Found {
  static constexpr int GREEDY = Traits::BATCHED && Traits::GREEDY ? GS_PERSISTENT_SEQUENCES : Traits::ROWS,
                       DRAWN = Traits::BATCHED ? GS_PERSISTENT_SEQUENCES : Traits::ROWS;
  union {
    struct {
      float best[GREEDY][32];  // the best logits of each lane; of one sequence they are in registers
      int best_id[GREEDY][32];
    };
    LaneBest lanes[DRAWN][Traits::SAMPLES ? 32 : 1];  // the same where tokens are sampled
  };
  int drawn[DRAWN];                                 // the tokens, -1 where logits are not finite
  float log_probability[DRAWN];
};

#if __CUDA_ARCH__ >= 900

constexpr int LISTED = 8, RANKED = 9;  // numbers of barriers

template <typename Shared> __device__ inline Candidates &candidates_in(Shared &sh) {
  static_assert(sizeof(Candidates) <= sizeof(sh.x), "room for candidates");
  return *reinterpret_cast<Candidates *>(sh.x);
}
template <typename Work> __device__ inline LogitsOrSorted &logits_or_sorted_in(Work &work) {
  static_assert(sizeof(LogitsOrSorted) <= sizeof(work.out), "room for logits and sums");
  return *reinterpret_cast<LogitsOrSorted *>(work.out);
}

// The packets of a sequence: lists of candidates, sums of exp(logit - the largest).
__device__ inline uint4 *lists_of(const Params &p, int sequence) {
  return p.lists + (size_t)sequence * gridDim.x * LIST_PACKETS;
}
__device__ inline uint4 *parts_of(const Params &p, int sequence) { return p.best + 4 * gridDim.x * LINE + sequence; }

// Forgets what was found of a sequence.
template <typename Traits, typename Shared>
__device__ inline void clear_found(const Params &p, Shared &sh, int sequence) {
  const int lane = threadIdx.x % 32;
  if (samples<Traits>(p)) sh.found.lanes[sequence][Traits::SAMPLES ? lane : 0] = {};
  else if constexpr (Traits::GREEDY && Traits::MANY)
    sh.found.best[sequence][lane] = -INFINITY, sh.found.best_id[sequence][lane] = 0x7fffffff;
}

// A logit of a lane, of a row of all or the at-th of the block: to memory, and among the lane's best.
template <typename Traits, typename Shared, typename Work>
__device__ __forceinline__ void take_logit(const Params &p, Shared &sh, Work &work, int sequence, int row, int at,
                                           float y, float &best, int &best_id) {
  const int lane = threadIdx.x % 32;
  p.logits[(Traits::MANY ? (size_t)sequence * p.ld : 0) + row] = y;
  if constexpr (Traits::SAMPLES)
    if (samples<Traits>(p)) {
      if constexpr (!Traits::MANY) logits_or_sorted_in(work).logits[at] = y;
      return sh.found.lanes[sequence][lane].take(y, at);
    }
  if constexpr (Traits::GREEDY) {
    if constexpr (Traits::MANY) best = sh.found.best[sequence][lane], best_id = sh.found.best_id[sequence][lane];
    if (y < INFINITY) take_better(best, best_id, y, row);
    else best = INFINITY, best_id = -1;  // also if it is not a number
    if constexpr (Traits::MANY) sh.found.best[sequence][lane] = best, sh.found.best_id[sequence][lane] = best_id;
  }
}

// read_all one block after the other, for what is rare: calls f with the first word of each packet of the lane. The
// third word must be z.
template <typename Shared, typename F>
__device__ inline void read_each(const Params &p, Shared &sh, const uint4 *packets, uint32_t epoch, uint32_t z, F f) {
  const int lane = opaque(threadIdx.x % 32);
  delay();
#pragma unroll 1
  for (int i = lane; i < (int)gridDim.x; i += 32) {
    uint4 u;
    unsigned polls = 0;
#pragma unroll 1
    do u = load_packet(packets + (size_t)i * LINE);
    while ((u.w != epoch || u.z != z) && !stops_waiting(p.header, sh, polls, p.count));
    f(u.x);
  }
  __syncwarp();
}

// A warp that computes: puts the k best candidates in their places, with their p.
template <int WARPS> __device__ inline void rank_candidates(uint32_t list_at, uint32_t sums_at) {
  const Candidates *list = (const Candidates *)__cvta_shared_to_generic(list_at);
  SortedCandidates &sorted = ((LogitsOrSorted *)__cvta_shared_to_generic(sums_at))->sorted;
  named_sync<32 * (WARPS + 1)>(LISTED);
  const int n = list->count, k = list->k;
  const double by = list->temperature;
  const double largest = list->largest;
  const int part = threadIdx.x % 4;  // four lanes share a candidate
#pragma unroll 1
  for (int base = 0; base < n; base += 8 * WARPS) {
    const int i = base + threadIdx.x / 4;
    const uint64_t mine = list->rank[min(i, MAX_RANKED)];
    int place = 0;
#pragma unroll 2
    for (int j = 4 * part; j < n; j += 16) {
      const ulonglong2 a = *(const ulonglong2 *)(list->rank + j), b = *(const ulonglong2 *)(list->rank + j + 2);
      place += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
    }
    place += __shfl_xor_sync(~0u, place, 1);
    place += __shfl_xor_sync(~0u, place, 2);
    if (part == 0 && i < n && place < k) {
      sorted.at[place] = (uint16_t)i;
      sorted.sum[place] = exp(((double)of_key(rank_key(mine)) - largest) / by);
    }
  }
  __syncwarp();
  named_arrive<32 * (WARPS + 1)>(RANKED);
}

// The same of all sequences: a lane has a candidate, a warp 32 of one sequence at a time.
template <int WARPS> __device__ inline void rank_each(SequenceCandidates *rooms, int B, int warp) {
  int turn = warp;
#pragma unroll 1
  for (int j = 0; j < B; j++) {
    const Candidates &list = rooms[j].list;
    SortedCandidates &sorted = rooms[j].sorted;
    const int n = list.count, k = list.k;
#pragma unroll 1
    for (int base = 0; base < n; base += 32) {
      if (turn-- > 0) continue;
      turn = WARPS - 1;
      const int i = base + threadIdx.x % 32;
      const uint64_t mine = list.rank[min(i, MAX_RANKED)];
      int place = 0;
#pragma unroll 2
      for (int c = 0; c < n; c += 4) {
        const ulonglong2 a = *(const ulonglong2 *)(list.rank + c), b = *(const ulonglong2 *)(list.rank + c + 2);
        place += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
      }
      if (i < n && place < k) {
        sorted.at[place] = (uint16_t)i;
        sorted.sum[place] = exp(((double)of_key(rank_key(mine)) - (double)list.largest) / list.temperature);
      }
    }
  }
}

// The candidates of a sequence in `list`, in any order, and how they are sampled from. A lane has the best logits of
// its rows; `logits` are those of the block's rows, of which the first is row `first`. Position is that of the token in
// its text. Returns whether the logits are finite; without it there are no candidates. Of a draft that is the likeliest
// token it finds that only.
template <typename Traits, typename Shared>
__device__ bool find_candidates(const Params &p, Shared &sh, Candidates &list, const float *logits, LaneBest own,
                                int sequence, int first, int rows, int t, uint32_t epoch, uint64_t position) {
  const int lane = opaque(threadIdx.x % 32);
  const int b = blockIdx.x, blocks = gridDim.x, k = p.candidates;
  // In two buffers, as those of the greedy kernel: where logits are not finite there is one hop.
  uint4 *const bests = p.best + (t & 1) * blocks * LINE + sequence, *const lists = lists_of(p, sequence);
  auto of_search = [&](unsigned round) { return p.best + (2 + round % 2) * blocks * LINE + sequence; };
  {
    unsigned m[3];
#pragma unroll
    for (int g = 0; g < 3; g++) m[g] = __reduce_max_sync(~0u, lane % 3 == g ? own.best : 0u);
    delay();
    if (lane == 0) store_packet(bests + b * LINE, m[0], m[1], m[2], epoch);
  }
  // While packets are on their way; in shared memory to spare registers.
  list.random = random53(p.sampling->seed, Traits::VERIFY ? 0 : sequence, position), list.top_p = p.sampling->top_p,
  list.temperature = p.sampling->temperature;
  const bool log_probs = p.sampling->log_probs;
  const bool direct = packets_have_all(p);
  uint4 u[BLOCKS_PER_LANE];
  read_all(p, sh, bests, LINE, epoch, u);
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < BLOCKS_PER_LANE; i++) {  // x becomes the greatest of a block
    largest = max(largest, max(max(u[i].x, u[i].y), u[i].z));
    if (direct) continue;
    const unsigned low = min(u[i].x, u[i].y);
    u[i].x = max(u[i].x, u[i].y);
    u[i].y = min(u[i].x, u[i].z);
    u[i].x = max(u[i].x, u[i].z);
    u[i].z = low;
  }
  largest = __reduce_max_sync(~0u, largest);
  const bool finite = largest < PLUS_INFINITY && largest > MINUS_INFINITY;
  if (drafts_likeliest<Traits>(p) && drafts_now(sh)) {
    const float most = of_key(largest), scale = 1.4426950408889634f / (float)list.temperature;
    float sum = 0;
    int id = p.V - 1;  // also in a launch that was aborted
    auto look = [&](unsigned key, int row) {
      if (key) sum += exp2_fast((of_key(key) - most) * scale);
      if (key == largest) id = min(id, row);
    };
#pragma unroll
    for (int i = 0; i < BLOCKS_PER_LANE; i++) {
      const int row = (32 * i + lane) * p.head;
      look(u[i].x, row), look(u[i].y, row + 1), look(u[i].z, row + 2);
    }
    sum = warp_sum(sum), id = __reduce_min_sync(~0u, id);
    if (lane == 0) sh.found.drawn[0] = id, sh.verified.share /= sum;
    return false;
  }
  int n = 0;
  if (finite) {
    // A bound that k to k + k/8 + 2 of the groups' best reach, if the search finds one.
    unsigned bound = 1;
    {
      const bool wide = direct || 2 * k > blocks;  // the blocks' best are not enough
      unsigned least = ~0u, have = 0;
      auto count = [&](unsigned key) {
        unsigned c = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS_PER_LANE; i++) c += u[i].x >= key;
        if (wide) {
#pragma unroll
          for (int i = 0; i < BLOCKS_PER_LANE; i++) c += (u[i].y >= key) + (u[i].z >= key);
        }
        return (int)__reduce_add_sync(~0u, c);
      };
#pragma unroll
      for (int i = 0; i < BLOCKS_PER_LANE; i++) {
        if (u[i].x) least = min(least, u[i].x);
        if (wide && u[i].y) least = min(least, u[i].y);
        if (wide && u[i].z) least = min(least, u[i].z);
      }
      least = __reduce_min_sync(~0u, least);
      have = count(1);
      const int most = k + k / 8 + 2;
      if (k == 1) {
        bound = largest;
      } else if ((int)have >= k) {
        bound = least;
        float low = of_key(least), high = of_key(largest);
#pragma unroll 1
        for (int turn = 0; (int)have > most && turn < 16; turn++) {
          const float middle = 0.5f * low + 0.5f * high;
          const unsigned key = key_of(middle);
          const int c = count(key);
          if (c >= k) low = middle, bound = key, have = c;
          else high = middle;
        }
      }
    }

    // Where the lane's candidates begin in the list, if it has so many; n becomes the number of all.
    auto place = [&](int many) {
      int to = many;
#pragma unroll
      for (int o = 1; o < 32; o *= 2) {
        const int other = __shfl_up_sync(~0u, to, o);
        if (lane >= o) to += other;
      }
      n = __shfl_sync(~0u, to, 31);
      return to - many;
    };
    auto publish_part = [&] {
      float part = 0;
#pragma unroll 4
      for (int at = lane; at < rows; at += 32) part += expf(logits[at] - of_key(largest));
      part = (float)warp_sum((double)part);
      if (lane == 0) store_packet(parts_of(p, sequence) + b * LINE, __float_as_uint(part), 0, 0, epoch);
    };
    if (direct) {
      if (log_probs) publish_part();
      int many = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS_PER_LANE; i++) many += (u[i].x >= bound) + (u[i].y >= bound) + (u[i].z >= bound);
      uint64_t *to = list.rank + place(many);
#pragma unroll
      for (int i = 0; i < BLOCKS_PER_LANE; i++) {
        const int row = (32 * i + lane) * p.head;
        if (u[i].x >= bound) *to++ = rank_of(u[i].x, row);
        if (u[i].y >= bound) *to++ = rank_of(u[i].y, row + 1);
        if (u[i].z >= bound) *to++ = rank_of(u[i].z, row + 2);
      }
      __syncwarp();
    }
    uint64_t low = (uint64_t)bound << 32;
    uint32_t mark = epoch;
#pragma unroll 1
    for (int turn = 0; !direct; turn++) {
      // The block's candidates. Mostly a lane has two at most, which are its best.
      const bool all = __any_sync(~0u, own.third >= (unsigned)(low >> 32));
      int count = 0;
#pragma unroll 1
      for (int base = 0; base < (all ? rows : 64); base += 32) {
        const int at = all ? base + lane : (int)(base ? own.rows >> 16 : own.rows & 0xffff);
        const unsigned key = !all ? base ? own.second : own.best : at < rows ? key_of(logits[at]) : 0;
        const uint64_t rank = rank_of(key, first + at);
        const bool hit = key != 0 && rank >= low;
        const unsigned hits = __ballot_sync(~0u, hit);
        const int to = count + __popc(hits & ((1u << lane) - 1));
        if (hit && to < MAX_RANKED) list.rank[to] = rank;
        count += __popc(hits);
      }
      __syncwarp();
      delay();
      const int listed = min(count, MAX_RANKED);
#pragma unroll 1
      for (int i = lane; i == 0 || 2 * i < listed; i += 32) {
        const ulonglong2 two = *(const ulonglong2 *)(list.rank + 2 * i);
        const bool has = 2 * i < listed, more = 2 * i + 1 < listed;
        const uint32_t row = has ? rank_id(two.x) - first : 0, other = more ? rank_id(two.y) - first : 0;
        store_packet(lists + (size_t)b * LIST_PACKETS + i, (uint32_t)min(count, MAX_COUNT) << 22 | other << 11 | row,
                     has ? rank_key(two.x) : 0, more ? rank_key(two.y) : 0, mark);
      }
      // All blocks read the row of wte of the token that is sampled.
#pragma unroll 1
      for (int i = 0; i < min(listed, 4); i++) prefetch_row<Traits::ROW_BYTES>(p.wte, rank_id(list.rank[i]));
      if (log_probs && turn == 0) publish_part();
      __syncwarp();  // the list has been read

      read_all(p, sh, lists, LIST_PACKETS, mark, u);
      int to = 0, most = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS_PER_LANE; i++) {
        const int of = 32 * i + lane < blocks ? u[i].x >> 22 : 0;
        to += of, most = max(most, of);
      }
      to = place(to);
      if (n <= MAX_RANKED || turn > 0) {
        n = min(n, MAX_RANKED);
        auto put = [&](int block, unsigned key, uint32_t row) {
          if (to < MAX_RANKED) list.rank[to] = rank_of(key, block * p.head + (int)(row & 2047));
          to++;
        };
        auto of = [&](int i) { return 32 * i + lane < blocks ? min((int)(u[i].x >> 22), MAX_RANKED) : 0; };
#pragma unroll
        for (int i = 0; i < BLOCKS_PER_LANE; i++) {
          if (of(i) > 0) put(32 * i + lane, u[i].y, u[i].x);
          if (of(i) > 1) put(32 * i + lane, u[i].z, u[i].x >> 11);
        }
        // Further ones of blocks with many: a packet of several blocks at a time.
#pragma unroll 1
        for (int c = 2; __any_sync(~0u, c < min(most, MAX_RANKED)); c += 2) {
          constexpr int AT_ONCE = BLOCKS_PER_LANE / 2;
#pragma unroll
          for (int first = 0; first < BLOCKS_PER_LANE; first += AT_ONCE) {
            uint4 v[AT_ONCE];
            bool wait;
            unsigned polls = 0;
#pragma unroll 1
            do {
              wait = false;
#pragma unroll
              for (int i = 0; i < AT_ONCE; i++)
                v[i] = load_packet_if(c < of(first + i),
                                      lists + (unsigned)((32 * (first + i) + lane) * LIST_PACKETS + c / 2));
#pragma unroll
              for (int i = 0; i < AT_ONCE; i++) wait |= c < of(first + i) && v[i].w != mark;
            } while (wait && !stops_waiting(p.header, sh, polls, p.count));
            __syncwarp();
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
              if (of(first + i) > c) put(32 * (first + i) + lane, v[i].y, v[i].x);
              if (of(first + i) > c + 1) put(32 * (first + i) + lane, v[i].z, v[i].x >> 11);
            }
          }
        }
        __syncwarp();
        break;
      }
      // Too many: a bound among all ranks. It is reached, as ranks differ.
      uint64_t above = (uint64_t)(largest + 1) << 32;
#pragma unroll 1
      for (unsigned round = 1; n > MAX_RANKED && round <= 64; round++) {
        const uint64_t middle = low + (above - low) / 2;
        unsigned c = 0;
#pragma unroll 4
        for (int at = lane; at < rows; at += 32) c += rank_of(key_of(logits[at]), first + at) >= middle;
        c = __reduce_add_sync(~0u, c);
        delay();
        if (lane == 0) store_packet(of_search(round) + b * LINE, c, 0, round, epoch);
        c = 0;
        read_each(p, sh, of_search(round), epoch, round, [&](uint32_t of) { c += of; });
        c = __reduce_add_sync(~0u, c);
        if ((int)c >= k) low = middle, n = c;
        else above = middle;
      }
      mark = epoch - 1;  // no other packets of the lists have this epoch
    }
  }
  if (lane < 4) list.rank[n + lane] = 0;
  if (lane == 0) list.count = n, list.k = k, list.largest = of_key(largest);
  __syncwarp();
  return finite;
}

// Notes the logarithm of the sum of exp(logit), if log-probabilities are wanted.
template <typename Shared>
__device__ inline void sum_row(const Params &p, Shared &sh, Candidates &list, int sequence, uint32_t epoch) {
  if (!p.sampling->log_probs) return;
  double sum = 0;
  read_each(p, sh, parts_of(p, sequence), epoch, 0, [&](uint32_t part) { sum += (double)__uint_as_float(part); });
  list.log_sum = (double)list.largest + log(warp_sum(sum));
  __syncwarp();
}

// The token that is sampled from the candidates in their order, and its log-probability if it is wanted.
__device__ inline int choose(const Params &p, const Candidates &list, SortedCandidates &sorted,
                             float *log_probability) {
  const int lane = opaque(threadIdx.x % 32);
  const int k = p.candidates;
  int choice = 0;
  if (k > 1) {
    if (lane == 0) {
      // One after the other, as the CPU adds them, for the same roundings. Some are loaded at once, also past the last,
      // so that only the additions wait for each other.
      double total = 0.0;
#pragma unroll 1
      for (int i = 0; i < k; i += 8) {
        double v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = sorted.sum[i + j];
#pragma unroll
        for (int j = 0; j < 8; j++) sorted.sum[i + j] = total += v[j];
      }
    }
    __syncwarp();
    // The first of so many whose running sum reaches a bound, or exceeds it; the last one if none does.
    auto first_of = [&](int count, double bound, bool exceeds) {
#pragma unroll 1
      for (int base = 0; base < count; base += 32) {
        const int i = base + lane;
        const unsigned found =
            __ballot_sync(~0u, i < count && (exceeds ? sorted.sum[i] > bound : sorted.sum[i] >= bound));
        if (found) return base + __ffs(found) - 1;
      }
      return count - 1;
    };
    const double top_p = list.top_p;
    int last = k - 1;
    if (top_p > 0.0 && top_p < 1.0) last = first_of(k, top_p * sorted.sum[last], false);
    choice = first_of(last + 1, (double)list.random * 0x1p-53 * sorted.sum[last], true);
  }
  const uint64_t rank = list.rank[min((int)sorted.at[choice], MAX_RANKED - 1)];
  const int token = rank_id(rank);
  if (p.sampling->log_probs) *log_probability = (float)((double)of_key(rank_key(rank)) - list.log_sum);
  return (unsigned)token < (unsigned)p.V ? token : -1;
}

// The finishing warp, of one sequence: the token, -1 if the logits are not finite, and its log-probability if it is
// wanted.
template <typename Traits, typename Shared, typename Work>
__device__ int sample_token(const Params &p, Shared &sh, Work &work, LaneBest own, int first, int rows, int t,
                            uint32_t epoch, uint64_t position, float *log_probability) {
  Candidates &list = candidates_in(sh);
  LogitsOrSorted &sums = logits_or_sorted_in(work);
  const bool finite = find_candidates<Traits>(p, sh, list, sums.logits, own, 0, first, rows, t, epoch, position);
  named_arrive<Traits::PARTIES>(LISTED);
  if (finite) sum_row(p, sh, list, 0, epoch);
  named_sync<Traits::PARTIES>(RANKED);
  *log_probability = __int_as_float(0x7fc00000);
  return finite ? choose(p, list, sums.sorted, log_probability) : -1;
}

// The warps that compute, of several sequences or rows: warp j samples the token of number j, and all put candidates
// in order.
template <typename Traits, typename Shared>
__device__ void sample_each(const Params &p, Shared &sh, SequenceCandidates *rooms, int warp, int first, int rows,
                            int t, uint32_t epoch) {
  constexpr int WARPS = Traits::WARPS;
  const int B = Traits::VERIFY ? rows_of_pass(sh) : p.B;
  const int row = Traits::VERIFY && B == 1 ? *(const volatile int *)&sh.verified.row : warp;
  bool finite = false;
  if (warp < B) {
    Candidates &list = rooms[warp].list;
    finite = find_candidates<Traits>(p, sh, list, p.logits + (size_t)warp * p.ld + first,
                                     sh.found.lanes[warp][threadIdx.x % 32], warp, first, rows,
                                     Traits::VERIFY ? sh.verified.passes : t, epoch,
                                     p.sampling->offset + place_of<Traits>(sh, row) + t + 1);
    if (finite) sum_row(p, sh, list, warp, epoch);
  }
  if (drafts_likeliest<Traits>(p) && drafts_now(sh)) return;
  named_sync<32 * WARPS>(RANKED);
  rank_each<WARPS>(rooms, B, warp);
  named_sync<32 * WARPS>(RANKED);
  if (warp < B) {
    float log_probability = __int_as_float(0x7fc00000);
    const int token = finite ? choose(p, rooms[warp].list, rooms[warp].sorted, &log_probability) : -1;
    if (threadIdx.x % 32 == 0) {
      if (!Traits::VERIFY) sh.token[warp] = max(token, 0);
      sh.found.drawn[warp] = token, sh.found.log_probability[warp] = log_probability;
    }
  }
}

// A warp: the token of the best logit, -1 if the logits are not finite, from the best ones of the block's lanes and the
// packets of all blocks, which every block reads by itself.
template <typename Traits, typename Shared>
__device__ __forceinline__ int best_token(const Params &p, Shared &sh, uint4 *bests, float best, int best_id,
                                          uint32_t epoch) {
  const int lane = opaque(threadIdx.x) % 32;  // computed here: no register holds what depends on it elsewhere
  warp_best(best, best_id);
  delay();
  if (lane == 0) store_packet(bests + blockIdx.x * LINE, __float_as_uint(best), best_id, 0, epoch);
  // All blocks read the row of wte of the token that is found.
  if ((unsigned)best_id < (unsigned)p.V) prefetch_row<Traits::ROW_BYTES>(p.wte, best_id);
  best = -INFINITY, best_id = 0x7fffffff;
  uint4 u[BLOCKS_PER_LANE];
  read_all(p, sh, bests, LINE, epoch, u);
#pragma unroll
  for (int k = 0; k < BLOCKS_PER_LANE; k++)
    if (32 * k + lane < (int)gridDim.x) take_better(best, best_id, __uint_as_float(u[k].x), (int)u[k].y);
  __syncwarp();
  warp_best(best, best_id);
  return best == -INFINITY || (unsigned)best_id >= (unsigned)p.V ? -1 : best_id;
}

// The packets of best_token, in two buffers, since some blocks have nothing else to do in a step.
__device__ inline uint4 *bests_of(const Params &p, int pass, int sequence) {
  return p.best + ((pass & 1) * p.B + sequence) * gridDim.x * LINE;
}

// The warps that compute, of several sequences or rows: warp j has number j, of a prompt the first one its last row.
template <typename Traits, typename Shared>
__device__ void best_each(const Params &p, Shared &sh, int warp, int t, uint32_t epoch) {
  const int lane = opaque(threadIdx.x) % 32, B = Traits::VERIFY ? rows_of_pass(sh) : p.B;
  const int j = Traits::PROMPT && warp == 0 ? B - 1 : warp;
  if (warp >= (Traits::PROMPT ? 1 : B)) return;
  const int token = best_token<Traits>(p, sh, bests_of(p, Traits::VERIFY ? sh.verified.passes : t, j),
                                       sh.found.best[j][lane], sh.found.best_id[j][lane], epoch);
  if (!Traits::VERIFY && lane == 0) sh.token[j] = max(token, 0);
  if (lane == 0) sh.found.drawn[j] = token;
}

// A warp that finishes, one of FINISH: it has sequences f, f + FINISH and so on.
struct Finisher {
  int f, sequences;
  int mine;  // the first one whose token is reported, of a prompt the last row
  int pos0;  // of a token of the launch, of the first sequence
  uint64_t step0;
  bool
      reports;  // whether the block tells the host: the last one, which has the fewest rows, so that others do not wait
};
template <typename Traits> __device__ __forceinline__ Finisher finisher_of(const Params &p, int f) {
  Finisher of;
  of.f = f, of.sequences = Traits::BATCHED ? p.B : 1;
  of.mine = !Traits::PROMPT ? f : f == 0 ? of.sequences - 1 : of.sequences;
  of.pos0 = *p.pos - first_token<Traits>(p), of.step0 = p.sampling->step;
  of.reports = blockIdx.x == gridDim.x - 1;
  return of;
}

// The tokens of a step whose logits the block has computed: those of all blocks' best logits, or sampled. Of one
// sequence best, best_id and token are in registers.
template <typename Traits, typename Shared, typename Work>
__device__ __forceinline__ void finish_token(const Params &p, Shared &sh, Work &work, const BlockStep &logits,
                                             const Finisher &of, int t, int pass, uint32_t epoch, float best,
                                             int best_id, int &token) {
  constexpr int FINISH = Traits::FINISH;
  constexpr bool BATCHED = Traits::BATCHED, VERIFY = Traits::VERIFY;
  const int lane = threadIdx.x % 32, B = VERIFY ? rows_of_pass(sh) : of.sequences;
  float log_probability = __int_as_float(0x7fc00000);
  if constexpr (Traits::MANY) {
    barrier_sync<Traits>(LISTED);  // the warps that compute go on
    if (!VERIFY && of.f == 0 && lane == 0) *(volatile int *)&sh.step = t + 1;
    if (VERIFY && !samples<Traits>(p) && of.f == 0) {
      named_sync<32 * (Traits::WARPS + 1)>(RANKED);
      accept(p, sh, t);
    }
  } else {
    if constexpr (Traits::SAMPLES)
      if (samples<Traits>(p))
        token = sample_token<Traits>(p, sh, work, sh.found.lanes[0][lane], logits.row, logits.rows, t, epoch,
                                     p.sampling->offset + of.pos0 + t + 1, &log_probability);
    if constexpr (Traits::GREEDY)
      if (!samples<Traits>(p)) token = best_token<Traits>(p, sh, bests_of(p, pass, 0), best, best_id, epoch);
    if (lane == 0) sh.token[0] = max(token, 0), *(volatile int *)&sh.step = t + 1;
  }
  barrier_sync<Traits>(TOKEN);
  if (of.f == 0) stamp<Traits>(p, pass, p.count, GS_PERSISTENT_PUBLISHED);
  if (of.f == 0 && lane == 0) restart_timeout(p, sh);
  const int taken = VERIFY && of.f == 0 ? *(volatile int *)&sh.verified.taken : VERIFY ? 0 : B;
  if (VERIFY && Traits::STAMPS && of.f == 0 && lane == 0)
    stamps_of(p, pass, p.count)[GS_PERSISTENT_MADE] = taken << 8 | B;
  if (VERIFY && of.reports && of.f == 0 && lane == 0 && taken == 0) sh.verified.drafted = gs_globaltimer();
  if (of.reports && lane == 0 && !p.logits_only) {
    __threadfence();
    const uint32_t expired = *(volatile uint32_t *)&p.header->expired;
#pragma unroll 1
    for (int j = of.mine; j < taken; j += VERIFY ? 1 : FINISH) {
      const uint64_t step = of.step0 + t + (VERIFY ? j : 0);
      gs_slot *slot = p.slots + step % p.slot_count * (Traits::PROMPT || VERIFY ? 1 : B) +
                      (Traits::PROMPT || VERIFY ? 0 : j);
      if constexpr (VERIFY) slot->rows = j == 0 ? B : -1,
                              slot->verify =
                                  p.exit > 0 && B > 1 ? (int32_t)(gs_globaltimer() - sh.verified.drafted) : 0;
      if constexpr (Traits::MANY) token = sh.found.drawn[j];
      if (Traits::SAMPLES_EACH && samples<Traits>(p)) log_probability = sh.found.log_probability[j];
      if (BATCHED) p.token[Traits::PROMPT ? 0 : j] = token;
      slot->token = expired ? GS_SLOT_TIMEOUT : token;
      slot->log_probability = log_probability;
      slot->position = expired ? (int64_t)(expired & 0x7fffffffu)
                               : (int64_t)p.sampling->offset + place_of<Traits>(sh, j) + t + 1;
      slot->time = gs_globaltimer();
      store_release(&slot->sequence, step + 1);
      if (!BATCHED && p.text) p.text[place_of<Traits>(sh, j) + t + 1] = max(token, 0);
    }
  }
  // The row of wpe that the step after the next one needs; a prompt has none.
  if (!Traits::PROMPT && !VERIFY && of.reports && t + 2 < p.tokens)
#pragma unroll 1
    for (int j = of.mine; j < B; j += FINISH)
      prefetch_row<2 * Traits::C>(p.wpe, (BATCHED ? sh.pos0[j] : of.pos0) + t + 2);
}

// Positions, token and step after a launch, for the next one.
template <typename Traits, typename Shared>
__device__ __forceinline__ void finish_launch(const Params &p, const Shared &sh, const Finisher &of, uint32_t epoch,
                                              int token) {
  if (!of.reports || threadIdx.x % 32 != 0 || (Traits::VERIFY && of.f != 0)) return;
  if (!p.logits_only) {
#pragma unroll 1
    for (int j = of.mine; j < of.sequences; j += Traits::FINISH)
      p.pos[Traits::PROMPT ? 0 : j] = (Traits::BATCHED ? sh.pos0[j] : of.pos0) + p.tokens;
    if (!Traits::BATCHED) *p.token = token;
    if (of.f == 0) p.sampling->step = of.step0 + p.tokens;
  }
  if (of.f == 0) p.header->epoch = epoch;
}

#endif

}  // namespace
