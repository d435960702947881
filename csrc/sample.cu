// Samples the next token of each sequence from its row of logits, in the order and arithmetic of gpt2.Sampler:
//
//   temperature 0 or top_k 1: the largest logit, the lowest id among equals
//   else: the top_k candidates in order of descending logit, then ascending id
//         p = exp((logit - largest) / temperature)                    float64
//         top_p keeps the fewest whose sum of p is at least top_p * total
//         the token is the first whose cumulative p exceeds u * total
//         u = 53 bits of Philox4x32-10 (key seed, counter position and sequence)
//   log-probability = logit - log(sum over V of exp(logit)), at temperature 1
//
// Several CTAs share a row. Each leaves its best (logit, id), its sum of exponentials and, if top_k is at most LIST,
// its top_k best logits in any order, with a few more. The CTA that arrives last combines these, and samples:
//
// * top_k up to LIST: it picks the top_k best of what the CTAs left, unless that is too much, sorts them, and sums p in
//   the CPU's order.
// * Otherwise a histogram over the distance from the largest logit finds the bin in which a count or a mass is reached.
//   Masses are p in fixed point, so that sums do not depend on their order. If u or top_p is within about 1e-9 of a
//   boundary between two tokens, fixed point and the CPU's float64 may sample different ones of the two.
//
// Other kernels run between two launches, so that this one's code is fetched from L2 each time: it is kept small.

#include "rows.cuh"
#include "sample.cuh"

// Both names stand for the same kernel.
const char *const gs_sample_variants[] = {"auto", "naive", nullptr};

namespace {

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int HELD = 8;          // logits that a thread keeps in registers
constexpr int SPAN = THREADS * HELD;  // logits of a CTA, unless the row is too long for MOST_SPLITS
constexpr int MOST_SPLITS = 32;  // CTAs of a row: one per lane when they are combined
constexpr int LIST = 1024;       // candidates that are sorted
constexpr int COUNTED = 320;     // up to this many, each candidate finds its place by counting those before it
constexpr int MANY = 32;         // candidates per thread at most, when those of the CTAs are combined
constexpr int NEAR = 1024;       // bins over the distance from the largest logit
constexpr int DIGIT = 2048;      // values of a digit: 11 bits

struct Partial {
  uint64_t best;  // rank of the best element
  double sum;     // of exp(logit - the best logit); only if log-probabilities are requested
  uint64_t least; // all ranks of the CTA from this one on are candidates: at least top_k, or all of them if it is 0
};

struct Sample {
  const float *logits;
  gs_sampling *sampling;
  int *pos;
  const int *pad;
  int *tokens;
  gs_slot *slots;
  unsigned *done;      // (1) sequences that are done
  unsigned *arrived;   // (B) CTAs that left their partial result
  Partial *partials;   // (B, splits)
  uint64_t *candidates;  // (B, splits, room_for(top_k)) ranks, in room for (B, splits, LIST)
  int B, V, ld, T, count;
  int splits, span;
  bool wide;           // rows are 16-byte aligned
  const gs_persistent_header *decode;  // of the kernel that made the logits, or null
};

// How many candidates each of several CTAs leaves at most: more than the k that must be among them, so that the first
// search of pick is mostly enough.
__device__ inline int room_for(int k) { return min(LIST, (k + k / 2 + 31) / 32 * 32); }

// Logits i to i + 3; 0 from end on.
__device__ inline float4 load_up_to(const float *row, int i, int end, bool wide) {
  float4 v = make_float4(0, 0, 0, 0);
  if (wide && i + 4 <= end) {
    v = load4(row + i);
  } else {
    if (i < end) v.x = row[i];
    if (i + 1 < end) v.y = row[i + 1];
    if (i + 2 < end) v.z = row[i + 2];
    if (i + 3 < end) v.w = row[i + 3];
  }
  return v;
}

// Calls f(id, logit) for logits [begin, end) of a row; begin is a multiple of 4. Each thread has 4 neighbours of every
// 2048, and loads DEPTH times 4 before it uses the first. UNROLL 1 keeps the code small if f is large.
template <int DEPTH, int UNROLL, typename F>
__device__ inline void each(const float *row, int begin, int end, bool wide, F f) {
#pragma unroll 1
  for (int base = begin + 4 * threadIdx.x; base < end; base += 4 * THREADS * DEPTH) {
    float4 v[DEPTH];
#pragma unroll
    for (int j = 0; j < DEPTH; j++) v[j] = load_up_to(row, base + j * 4 * THREADS, end, wide);
#pragma unroll UNROLL
    for (int j = 0; j < DEPTH; j++) {
      const int i = base + j * 4 * THREADS;
      float4 u = v[0];  // v[j], without an index that would put v into local memory
#pragma unroll
      for (int k = 1; k < DEPTH; k++) u = j == k ? v[k] : u;
      if (i < end) f(i, u.x);
      if (i + 1 < end) f(i + 1, u.y);
      if (i + 2 < end) f(i + 2, u.z);
      if (i + 3 < end) f(i + 3, u.w);
    }
  }
}

// The ranks of the logits in [begin, end) that each() gives to this thread, padded with 0. end - begin is at most SPAN.
__device__ inline void hold(const float *row, int begin, int end, bool wide, uint64_t (&ranks)[HELD]) {
#pragma unroll
  for (int j = 0; j < HELD; j += 4) {
    const int i = begin + 4 * threadIdx.x + j * THREADS;
    const float4 v = load_up_to(row, i, end, wide);
    ranks[j] = i < end ? rank_of(key_of(v.x), i) : 0;
    ranks[j + 1] = i + 1 < end ? rank_of(key_of(v.y), i + 1) : 0;
    ranks[j + 2] = i + 2 < end ? rank_of(key_of(v.z), i + 2) : 0;
    ranks[j + 3] = i + 3 < end ? rank_of(key_of(v.w), i + 3) : 0;
  }
}

__device__ inline uint64_t warp_best(uint64_t v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const uint64_t w = __shfl_xor_sync(0xffffffffu, v, o);
    v = w > v ? w : v;
  }
  return v;
}

// Adds 1 and returns the value before. Writes of this thread, and of its CTA before a barrier that this thread has
// passed, are visible to those who add later. Writes of those who added before are visible to this CTA after its next
// barrier.
__device__ inline unsigned arrive(unsigned *counter) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// A histogram of count and mass. A mass is 64 bits in two words, as atomic additions in shared memory are fast for
// words only.
template <int BINS> struct Histogram {
  unsigned count[BINS], low[BINS], high[BINS];

  __device__ void clear() {
    for (int i = threadIdx.x; i < BINS; i += THREADS) count[i] = low[i] = high[i] = 0;
  }
  __device__ void add(int bin, uint64_t mass) {
    atomicAdd(&count[bin], 1u);
    const unsigned part = mass;
    if (mass) {
      const unsigned before = atomicAdd(&low[bin], part);
      const unsigned carry = (unsigned)(mass >> 32) + (before + part < before);
      if (carry) atomicAdd(&high[bin], carry);
    }
  }
  __device__ uint64_t mass(int bin) const { return (uint64_t)high[bin] << 32 | low[bin]; }
};

// The bin in which a goal is reached.
struct Found {
  int bin;
  unsigned count;  // in the bins before
  uint64_t mass;   // in the bins before
};

struct Shared {
  Histogram<NEAR> near;
  union {
    Histogram<DIGIT> digit;
    struct {
      alignas(16) uint64_t rank[LIST];
      union {
        double p[LIST];        // later their running sums
        Histogram<LIST> each;  // one bin per element
      };
    } list;
  };
  unsigned scan_count[WARPS];
  uint64_t scan_mass[WARPS];
  uint64_t best[WARPS];
  unsigned least[WARPS];
  unsigned tally[2][WARPS];
  double sum[WARPS];
  Found found;
  uint64_t total;
  double row_sum;      // of exp(logit - largest) over V
  uint64_t row_best, row_least;
  unsigned listed;
  int last, choice;
};

// The first bin at which the running count (or mass) reaches goal >= 1; all threads get it. s.total becomes the mass of
// all bins.
template <int BINS> __device__ Found find(Shared &s, const Histogram<BINS> &h, bool by_mass, uint64_t goal) {
  constexpr int EACH = BINS / THREADS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = threadIdx.x * EACH;
  __syncthreads();  // the histogram is complete
  unsigned own_count = 0;
  uint64_t own_mass = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) own_count += h.count[first + i], own_mass += h.mass(first + i);
  unsigned count = own_count;  // running sums, including this thread's
  uint64_t mass = own_mass;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const unsigned c = __shfl_up_sync(0xffffffffu, count, o);
    const uint64_t m = __shfl_up_sync(0xffffffffu, mass, o);
    if (lane >= o) count += c, mass += m;
  }
  if (lane == 31) s.scan_count[warp] = count, s.scan_mass[warp] = mass;
  __syncthreads();
  for (int w = 0; w < warp; w++) count += s.scan_count[w], mass += s.scan_mass[w];
  if (threadIdx.x == THREADS - 1) s.total = mass;
  count -= own_count;
  mass -= own_mass;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const unsigned c = h.count[first + i];
    const uint64_t m = h.mass(first + i);
    const uint64_t before = by_mass ? mass : count;
    if (before < goal && goal <= before + (by_mass ? m : c)) {
      s.found.bin = first + i;
      s.found.count = count;
      s.found.mass = mass;
    }
    count += c;
    mass += m;
  }
  __syncthreads();
  return s.found;
}

// A row and how it is sampled.
struct Row {
  const float *logits;
  int V;
  bool wide;
  double largest, temperature;
  double inverse;   // of the temperature, finite
  double scale;     // 2^62 / V, a power of two: masses sum to 2^62 at most
  double bins;      // per unit of logit, in the histogram over distance

  __device__ double p(float v) const { return exp(((double)v - largest) / temperature); }
  // A product instead of the quotient in p: much faster, and it differs by one rounding.
  __device__ uint64_t mass(float v) const {
    return (uint64_t)__double2ll_rn(exp(((double)v - largest) * inverse) * scale);
  }
  // The bin of a logit, which increases with the distance from the largest logit. In the last bin p is at most e^-44,
  // which is less than half of 1/scale: it has no mass.
  __device__ int near(float v) const { return (int)fmin((largest - v) * bins, NEAR - 1.0); }
};

// What descend finds: the logit at which a goal is reached, and what is above it.
struct Level {
  unsigned key;
  unsigned count;  // of greater logits
  uint64_t mass;   // of greater logits
};

// Searches the logits of a bin of the near histogram, digit by digit of their keys, for the one at which a goal is
// reached. `goal` and the result count from the largest logit down.
__device__ Level descend(Shared &s, const Row &r, int bin, Level above, bool by_mass, uint64_t goal) {
  Histogram<DIGIT> &h = s.digit;
  unsigned known = 0, prefix = 0;  // mask of the digits that are known; their values
#pragma unroll 1
  for (int pass = 0; pass < 3; pass++) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const unsigned digits = pass == 2 ? 1023 : 2047;
    h.clear();
    __syncthreads();
    each<4, 1>(r.logits, 0, r.V, r.wide, [&](int, float v) {
      const unsigned key = key_of(v);
      if ((key & known) != prefix || r.near(v) != bin) return;
      h.add(digits - (key >> shift & digits), r.mass(v));
    });
    const Found f = find(s, h, by_mass, goal - (by_mass ? above.mass : above.count));
    above.count += f.count;
    above.mass += f.mass;
    known |= digits << shift;
    prefix |= (digits - f.bin) << shift;
    __syncthreads();  // found and the histogram have been read
  }
  above.key = prefix;
  return above;
}

// The id of the n-th of the logits with this key, from 0, in order of ascending id.
__device__ int nth_of_key(Shared &s, const Row &r, unsigned key, unsigned n) {
  Histogram<DIGIT> &h = s.digit;
  unsigned known = 0, prefix = 0, before = 0;
  int shift = 0;
  while ((r.V - 1) >> shift >> 11) shift += 11;
#pragma unroll 1
  for (; shift >= 0; shift -= 11) {
    __syncthreads();
    h.clear();
    __syncthreads();
    each<4, 1>(r.logits, 0, r.V, r.wide, [&](int id, float v) {
      if (key_of(v) == key && (id & known) == prefix) atomicAdd(&h.count[id >> shift & 2047], 1u);
    });
    const Found f = find(s, h, false, n + 1 - before);
    before += f.count;
    known |= 2047u << shift;
    prefix |= (unsigned)f.bin << shift;
  }
  __syncthreads();
  return prefix;
}

// How many of the ranks of all threads are `from` or greater. Consecutive calls alternate between two tallies, so that
// a call needs one barrier.
template <int N>
__device__ inline unsigned count_from(Shared &s, const uint64_t (&ranks)[N], uint64_t from, unsigned turn) {
  unsigned n = 0;
#pragma unroll
  for (int j = 0; j < N; j++) n += ranks[j] >= from;
  n = __reduce_add_sync(0xffffffffu, n);
  if (threadIdx.x % 32 == 0) s.tally[turn % 2][threadIdx.x / 32] = n;
  __syncthreads();
  return __reduce_add_sync(0xffffffffu, threadIdx.x % 32 < WARPS ? s.tally[turn % 2][threadIdx.x % 32] : 0);
}

// Writes the greatest `want` of the ranks that the threads hold to `to` (room), in any order, possibly with some that
// come next, and 0 to the rest of it. Ranks differ from each other, except for 0, which stands for none. At least
// `want` are low or greater, none is high or greater. Returns how many were written, and raises low to the bound that
// they reach.
//
// A binary search finds a bound that `want` of the threads' greatest ranks reach, as counting one rank per thread takes
// only a barrier. If too many ranks reach it, because many are in few threads, the search goes on over all ranks. The
// last bits of a rank are the id, so equal logits have different ranks.
template <int N>
__device__ __forceinline__ unsigned pick(Shared &s, const uint64_t (&ranks)[N], uint64_t &low, uint64_t high,
                                         unsigned want, unsigned room, uint64_t *to) {
  if (threadIdx.x == 0) s.listed = 0;
#pragma unroll 1
  for (unsigned i = want + threadIdx.x; i < room; i += THREADS) to[i] = 0;
  uint64_t most = 0;
#pragma unroll
  for (int j = 0; j < N; j++) most = ranks[j] > most ? ranks[j] : most;
  unsigned n = __syncthreads_count(most >= low);
  uint64_t above = high;
  // This ends, as the n > want ranks from low to above differ.
#pragma unroll 1
  while (n > want + want / 8) {
    const uint64_t middle = low + (above - low) / 2;
    const unsigned c = __syncthreads_count(most >= middle);
    if (c >= want) low = middle, n = c;
    else above = middle;
  }
#pragma unroll 1
  for (;;) {
    unsigned own = 0;
#pragma unroll
    for (int j = 0; j < N; j++) own += ranks[j] >= low;
    if (own) {
      unsigned at = atomicAdd(&s.listed, own);
#pragma unroll
      for (int j = 0; j < N; j++)
        if (ranks[j] >= low && at < room) to[at++] = ranks[j];
    }
    __syncthreads();
    n = s.listed;
    if (n <= room) return n;
    uint64_t middle = above;  // the bound is probably near the end of the first search
    above = high;
#pragma unroll 1
    for (unsigned turn = 0; n > room; turn++) {
      const unsigned c = count_from(s, ranks, middle, turn);
      if (c >= want) low = middle, n = c;
      else above = middle;
      middle = low + (above - low) / 2;
    }
    // All threads have read s.listed before the barriers of the search.
    if (threadIdx.x == 0) s.listed = 0;
#pragma unroll 1
    for (unsigned i = n + threadIdx.x; i < room; i += THREADS) to[i] = 0;
    __syncthreads();
  }
}

// Loads the n candidates that the CTAs of a row left, each thread some of them; 0 for none.
template <int N> __device__ inline void gather(const uint64_t *candidates, int n, uint64_t (&ranks)[N]) {
#pragma unroll
  for (int j = 0; j < N; j++) {
    const int i = threadIdx.x + j * THREADS;
    ranks[j] = i < n ? __ldcg(candidates + i) : 0;
  }
}

// Clears the list for n ranks; returns how many will be sorted, a power of two.
__device__ int clear_list(Shared &s, int n) {
  int size = 4;
  while (size < n) size *= 2;
  for (int i = threadIdx.x; i < size; i += THREADS) s.list.rank[i] = 0;
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  return size;
}

// Sorts the list, the best first, by a bitonic sort (K. Batcher, Sorting networks and their applications, 1968).
__device__ void sort_list(Shared &s, int size) {
#pragma unroll 1
  for (int width = 2; width <= size; width *= 2)
#pragma unroll 1
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      const int low = threadIdx.x & (step - 1), i = 2 * (threadIdx.x - low) + low;
      if (threadIdx.x < size / 2) {
        const uint64_t a = s.list.rank[i], b = s.list.rank[i + step];
        if ((a < b) == ((i & width) == 0)) {
          s.list.rank[i] = b;
          s.list.rank[i + step] = a;
        }
      }
    }
  __syncthreads();
}

// Samples from the k best of the n listed, k <= n <= LIST: sorts them and sums p in that order. The list is padded with
// 0 to a multiple of 4.
__device__ int sample_listed(Shared &s, const Row &r, int n, int k, double top_p, uint64_t random) {
  if (threadIdx.x == 0) s.choice = k - 1;
  if (n <= COUNTED) {
    uint64_t mine = 0;
    int place = k;
    double p = 0.0;
    if (threadIdx.x < n) {
      mine = s.list.rank[threadIdx.x];
      place = 0;
#pragma unroll 2
      for (int i = 0; i < n; i += 4) {
        const ulonglong2 a = *(const ulonglong2 *)(s.list.rank + i), b = *(const ulonglong2 *)(s.list.rank + i + 2);
        place += (a.x > mine) + (a.y > mine) + (b.x > mine) + (b.y > mine);
      }
      if (place < k) p = r.p(of_key(rank_key(mine)));
    }
    __syncthreads();  // the list has been read
    if (place < k) {
      s.list.rank[place] = mine;
      s.list.p[place] = p;
    }
  } else {
    sort_list(s, n <= 512 ? 512 : LIST);
#pragma unroll 1
    for (int i = threadIdx.x; i < k; i += THREADS) s.list.p[i] = r.p(of_key(rank_key(s.list.rank[i])));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    // One after the other, as the CPU adds them, for the same roundings. Eight are loaded at once, also past the k-th,
    // so that only the additions wait for each other.
    double total = 0.0;
#pragma unroll 1
    for (int i = 0; i < k; i += 8) {
      double p[8];
#pragma unroll
      for (int j = 0; j < 8; j++) p[j] = s.list.p[i + j];
#pragma unroll
      for (int j = 0; j < 8; j++) s.list.p[i + j] = total += p[j];
    }
  }
  __syncthreads();
  double total = s.list.p[k - 1];
  if (top_p > 0.0 && top_p < 1.0) {
#pragma unroll 1
    for (int i = threadIdx.x; i < k; i += THREADS)
      if (s.list.p[i] >= top_p * total && (i == 0 || s.list.p[i - 1] < top_p * total)) s.choice = i;
    __syncthreads();
    k = s.choice + 1;  // if no sum reaches it, choice is still the last
    total = s.list.p[k - 1];
    __syncthreads();
  }
  const double rest = (double)random * 0x1p-53 * total;
  if (threadIdx.x == 0) s.choice = k - 1;  // if no sum exceeds it because of rounding
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < k; i += THREADS)
    if (s.list.p[i] > rest && (i == 0 || !(s.list.p[i - 1] > rest))) s.choice = i;
  __syncthreads();
  return rank_id(s.list.rank[s.choice]);
}

// One candidate, and the mass of those before it.
struct Place {
  unsigned key;
  int id;         // -1 if only tie is known
  unsigned tie;   // how many logits of the same key come before
  uint64_t mass;
};

// The candidate at which the running count (or mass) reaches goal >= 1. It must not be in the last bin of the near
// histogram. A bin of few logits is sorted; one of many is searched by digits.
__device__ Place place(Shared &s, const Row &r, bool by_mass, uint64_t goal) {
  const Found f = find(s, s.near, by_mass, goal);
  const int n = s.near.count[f.bin];
  Place to;
  if (n > LIST) {
    const Level level = descend(s, r, f.bin, Level{0, f.count, f.mass}, by_mass, goal);
    const uint64_t one = r.mass(of_key(level.key));  // of each logit with this key
    to.key = level.key;
    to.id = -1;
    to.tie = by_mass ? (goal - level.mass - 1) / one : goal - level.count - 1;
    to.mass = level.mass + to.tie * one;
    return to;
  }
  const int size = clear_list(s, n);
  each<4, 1>(r.logits, 0, r.V, r.wide, [&](int id, float v) {
    if (r.near(v) == f.bin) s.list.rank[atomicAdd(&s.listed, 1u)] = rank_of(key_of(v), id);
  });
  sort_list(s, size);
  for (int i = threadIdx.x; i < LIST; i += THREADS) {
    const uint64_t mass = i < n ? r.mass(of_key(rank_key(s.list.rank[i]))) : 0;
    s.list.each.count[i] = i < n;
    s.list.each.low[i] = mass;
    s.list.each.high[i] = mass >> 32;
  }
  const Found e = find(s, s.list.each, by_mass, goal - (by_mass ? f.mass : f.count));
  const uint64_t rank = s.list.rank[e.bin];
  to.key = rank_key(rank);
  to.id = rank_id(rank);
  to.tie = 0;
  to.mass = f.mass + e.mass;
  __syncthreads();  // the list has been read
  return to;
}

// Samples from any number of candidates.
__device__ int sample_any(Shared &s, const Row &r, int k, double top_p, uint64_t random) {
  s.near.clear();
  __syncthreads();
  each<4, 1>(r.logits, 0, r.V, r.wide, [&](int, float v) {
    const int bin = r.near(v);
    s.near.add(bin, bin < NEAR - 1 ? r.mass(v) : 0);
  });
  const Found kth = find(s, s.near, false, k);
  uint64_t total = s.total;
  // Finds the last of top_k, the last of top_p and the token, in one loop to keep the code small.
  Place last;
#pragma unroll 1
  for (int stage = 0; stage < 3; stage++) {
    uint64_t goal = k;
    if (stage == 0 && (k == r.V || kth.bin == NEAR - 1)) continue;  // there is no mass in the last bin
    if (stage == 1) {
      if (!(top_p > 0.0 && top_p < 1.0)) continue;
      goal = (uint64_t)ceil(top_p * (double)total);
      goal = goal < 1 ? 1 : goal > total ? total : goal;
    }
    // The first token whose cumulative mass exceeds u * total, u = random / 2^53.
    if (stage == 2) goal = (__umul64hi(random, total) << 11 | random * total >> 53) + 1;
    last = place(s, r, stage > 0, goal);
    total = last.mass + r.mass(of_key(last.key));
  }
  return last.id >= 0 ? last.id : nth_of_key(s, r, last.key, last.tie);
}

// Publishes the result of sequence b. One thread calls it.
__device__ void finish(const Sample &a, int b, uint64_t step, int position, int token, float log_probability) {
  a.tokens[b] = token < 0 ? 0 : token;  // a valid id, as steps that are already launched read it
  a.pos[b] = position;
  gs_slot *slot = a.slots + (step % a.count) * a.B + b;
  const uint32_t expired = a.decode ? a.decode->expired : 0;
  slot->token = expired ? GS_SLOT_TIMEOUT : token;
  slot->log_probability = log_probability;
  slot->position = expired ? (int64_t)(expired & 0x7fffffffu) : (int64_t)(a.sampling->offset + (int64_t)position);
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  slot->time = time;
  // Released to the whole system: a host that reads it reads the rest of the slot too.
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(&slot->sequence), "l"(step + 1) : "memory");
  // The last sequence increases the step, after all have read it.
  if (a.B > 1) {
    if (arrive(a.done) != a.B - 1u) return;
    *a.done = 0;
  }
  a.sampling->step = step + 1;
}

__global__ void __launch_bounds__(THREADS, 1) sample_kernel(const gs_stamp stamp, Sample a) {
  __shared__ Shared s;
  gs_let_next();
  const gs_stamped stamped(stamp);
  gs_wait();
  stamped.start();
  const int split = blockIdx.x, b = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float *row = a.logits + (size_t)b * a.ld;
  const int begin = split * a.span, end = min(a.V, begin + a.span);
  const double temperature = a.sampling->temperature;
  const int top_k = a.sampling->top_k, log_probs = a.sampling->log_probs;
  const int k = top_k <= 0 || top_k > a.V ? a.V : top_k;
  const bool sampled = temperature > 0.0 && top_k != 1, few = k <= LIST;
  const bool held = a.span <= SPAN, picked = sampled && few && held;

  uint64_t best = 0, ranks[HELD];
  if (held) {
    hold(row, begin, end, a.wide, ranks);
#pragma unroll
    for (int j = 0; j < HELD; j++) best = ranks[j] > best ? ranks[j] : best;
  } else {
    each<2, 2>(row, begin, end, a.wide, [&](int id, float v) {
      const uint64_t rank = rank_of(key_of(v), id);
      best = rank > best ? rank : best;
    });
  }
  // All CTAs read these before they arrive below, so before they change. The loads overlap with what follows.
  const uint64_t step = a.sampling->step;
  const int before = a.pos[b], idle = a.pad ? *a.pad : 0;
  if (picked) {
    const unsigned least = __reduce_min_sync(0xffffffffu, best ? rank_key(best) : 0xffffffffu);
    if (lane == 0) s.least[warp] = least;
  }
  best = warp_best(best);
  const int position = before + a.T - idle;
  uint64_t random = 0;
  double top_p = 0.0;
  if (sampled) {
    top_p = a.sampling->top_p;
    random = random53(a.sampling->seed, b, a.sampling->offset + (uint64_t)(int64_t)position);
  }
  if (lane == 0) s.best[warp] = best;
  __syncthreads();
  best = warp_best(s.best[lane % WARPS]);

  double sum = 0.0;
  if (log_probs) {
    // float32 exponentials: their relative error of about 1e-7 does not show in a float32 log-probability. The sum of a
    // row that is not finite is not used.
    const float most = of_key(rank_key(best));
    float part = 0.0f;
    if (held) {
#pragma unroll
      for (int j = 0; j < HELD; j++)
        if (ranks[j]) part += expf(of_key(rank_key(ranks[j])) - most);
    } else {
      each<2, 2>(row, begin, end, a.wide, [&](int, float v) { part += expf(v - most); });
    }
    sum = warp_sum((double)part);
    if (lane == 0) s.sum[warp] = sum;
    __syncthreads();
    sum = 0.0;
    for (int w = 0; w < WARPS; w++) sum += s.sum[w];
  }

  // Each CTA picks from its logits. The one that arrives last makes a second turn, and picks from the candidates of
  // all.
  const int n = end - begin;
  const int room = room_for(k), left = a.splits * room;  // places for candidates: of a CTA, of all
  const bool combined = picked && left <= HELD * THREADS;
  uint64_t *const candidates = a.candidates + (size_t)b * a.splits * LIST;
  uint64_t least = 0, high = best + 1;
  unsigned want = min(k, n), listed = 0;  // in s.list
  bool alone = a.splits == 1, pick_now = picked;
  if (picked) {
    // The bound is the least of the threads' best, if there are at least `want` of these.
    least = __reduce_min_sync(0xffffffffu, s.least[lane % WARPS]);
    least = min(THREADS, (n + 3) / 4) >= (int)want ? least << 32 : 1;
  }
#pragma unroll 1
  for (;;) {
    if (pick_now)
      listed = pick(s, ranks, least, high, want, alone ? LIST : room, alone ? s.list.rank : candidates + split * room);
    if (alone) break;
    if (threadIdx.x == 0) {
      Partial *mine = a.partials + (size_t)b * a.splits + split;
      mine->best = best;
      mine->sum = sum;
      mine->least = n >= k ? least : 0;
      s.last = arrive(a.arrived + b) == a.splits - 1u;
    }
    __syncthreads();
    if (!s.last) return;
    if (combined) gather(candidates, left, ranks);  // overlaps with the partial results
    if (warp == 0) {
      Partial p = {0, 0.0, 0};
      if (lane < a.splits) {
        const Partial *from = a.partials + (size_t)b * a.splits + lane;
        p.best = __ldcg(&from->best);
        p.sum = __ldcg(&from->sum);
      }
      best = warp_best(p.best);
      if (log_probs)
        sum = warp_sum(lane < a.splits && rank_key(p.best) != MINUS_INFINITY
                           ? p.sum * exp((double)of_key(rank_key(p.best)) - (double)of_key(rank_key(best)))
                           : 0.0);
      if (lane == 0) {
        a.arrived[b] = 0;
        s.row_best = best;
        s.row_sum = sum;
      }
    } else if (warp == 1 && picked) {
      const uint64_t most = warp_best(lane < a.splits ? __ldcg(&a.partials[(size_t)b * a.splits + lane].least) : 0);
      if (lane == 0) s.row_least = most;
    }
    __syncthreads();
    best = s.row_best;
    sum = s.row_sum;
    least = s.row_least;
    high = best + 1;
    want = k;
    pick_now = combined;
    alone = true;
  }

  const unsigned largest = rank_key(best);
  const float none = __uint_as_float(0x7fc00000u);
  const bool finite = largest < PLUS_INFINITY && largest != MINUS_INFINITY;
  const double log_sum = log_probs && finite ? (double)of_key(largest) + log(sum) : 0.0;
  int token = finite ? rank_id(best) : -1;
  if (!finite || !sampled) {
    if (threadIdx.x == 0)
      finish(a, b, step, position, token, log_probs && finite ? (float)((double)of_key(largest) - log_sum) : none);
    return;
  }
  Row r;
  r.logits = row;
  r.V = a.V;
  r.wide = a.wide;
  r.largest = of_key(largest);
  r.temperature = temperature;
  if (picked && left <= MANY * THREADS) {
    if (a.splits > 1 && !combined) {
      uint64_t many[MANY];
      gather(candidates, left, many);
      listed = pick(s, many, least, high, k, LIST, s.list.rank);
    }
    token = sample_listed(s, r, listed, k, top_p, random);
  } else {
    r.inverse = fmin(1.0 / temperature, 1e300);  // finite, as is bins: 0 times it must be 0
    int bits = 0;
    while ((a.V - 1) >> bits) bits++;
    r.scale = (double)(1ull << (62 - bits));
    r.bins = fmin((NEAR - 1) / (44.0 * temperature), 1e300);
    token = sample_any(s, r, k, top_p, random);
  }
  if (threadIdx.x == 0) finish(a, b, step, position, token, log_probs ? (float)((double)row[token] - log_sum) : none);
}

int splits_of(const gs_sample_args *a, int *span) {
  int splits = (a->V + SPAN - 1) / SPAN;
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  *span = (a->V + splits - 1) / splits;
  *span = (*span + 4 * THREADS - 1) / (4 * THREADS) * (4 * THREADS);
  return (a->V + *span - 1) / *span;
}

// The work area: counters (done, arrived (B)), then partial results, then candidates.
uint64_t counter_bytes(int B) { return (4 * (1 + (uint64_t)B) + 15) / 16 * 16; }

}  // namespace

extern "C" int gs_sample_work(gs_stream *, const gs_sample_args *a, uint64_t *bytes) {
  GS_CHECK_SIZE(a);
  int span;
  const uint64_t splits = splits_of(a, &span);
  *bytes = counter_bytes(a->B) + a->B * splits * (sizeof(Partial) + (splits > 1 ? LIST * sizeof(uint64_t) : 0));
  return GS_OK;
}

extern "C" int gs_sample(gs_stream *s, const gs_sample_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "sample: no variant %d", a->variant);
  unsigned *done = (unsigned *)a->work;
  Sample p = {(const float *)a->logits,
              (gs_sampling *)a->sampling,
              (int *)a->pos,
              (const int *)a->pad,
              (int *)a->tokens,
              (gs_slot *)a->slots,
              done,
              done + 1,
              (Partial *)(a->work + counter_bytes(a->B))};
  p.B = a->B, p.V = a->V, p.ld = a->ld, p.T = a->T, p.count = a->count;
  p.splits = splits_of(a, &p.span);
  p.candidates = (uint64_t *)(p.partials + (size_t)p.B * p.splits);
  p.wide = gs_wide(a->logits, a->ld, 4, 4);
  p.decode = (const gs_persistent_header *)a->persistent_work;
  return gs_launch_as(s, "sample", sample_kernel, dim3(p.splits, a->B), THREADS, 0, {1, a->T == 1}, p);
}
